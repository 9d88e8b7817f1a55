"""The functions of `bitwise_core` itself, as a user calls and types them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest
from toy_texts import launch, row_sum, write

import bitwise_core
from bitwise_core import BitwiseError, GEMMDesc, Launch, Outcome, Partition, RunResult, Source, Verdict
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare, session_of
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.checker.sources import Options
from bitwise_core.descriptors import Instruction, split_k
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PLAIN, SWAPPED, NEIGHBOURS = row_sum(), row_sum(swapped=True), row_sum(neighbours=True)
LAUNCH = launch("a.ptx")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {"a.ptx": PLAIN, "b.ptx": SWAPPED, "c.ptx": NEIGHBOURS}, [launch(f"{n}.ptx") for n in "abc"])


def test_compare_takes_texts_paths_and_sources(folder: Path) -> None:
    found = assert_type(bitwise_core.compare(PLAIN, SWAPPED, LAUNCH), Verdict)
    assert (found.outcome, found.scope) == (Outcome.EQUAL, "launch")
    by_path = bitwise_core.compare(folder / "a.ptx", str(folder / "b.ptx"), folder / "manifest.json")
    assert by_path.outcome is Outcome.EQUAL
    record = Launch.model_validate(LAUNCH)
    sources = Source("one", PLAIN, record), Source("two", SWAPPED, record)
    assert bitwise_core.compare(*sources).outcome is Outcome.EQUAL
    renamed = bitwise_core.compare(PLAIN, PLAIN.replace("%f5", "%f8"))
    assert (renamed.outcome, renamed.scope) == (Outcome.EQUAL, "every launch")


def test_a_counterexample_is_part_of_the_verdict() -> None:
    found = bitwise_core.compare(PLAIN, NEIGHBOURS, LAUNCH)
    assert found.outcome is Outcome.DIFFERENT
    assert found.counterexample is not None
    assert found.divergence is not None
    seen = found.counterexample
    after = [bitwise_core.run(text, dict(seen.arrays), LAUNCH)["Y"].view(np.uint32) for text in (PLAIN, NEIGHBOURS)]
    assert [int(each[seen.index]) for each in after] == [seen.left, seen.right]
    unproved = bitwise_core.compare(PLAIN, NEIGHBOURS, LAUNCH, search_seconds=0)
    assert (unproved.outcome, unproved.counterexample) == (Outcome.UNPROVED, None)


def test_kernels_are_partitioned(folder: Path) -> None:
    found = assert_type(bitwise_core.partition(folder, workers=1), Partition)
    assert found.classes == (("a.ptx", "b.ptx"), ("c.ptx",))
    texts = bitwise_core.partition([PLAIN, SWAPPED, NEIGHBOURS], LAUNCH, workers=1)
    assert texts.classes == (("kernel 1", "kernel 2"), ("kernel 3",))


def test_a_kernel_is_run(folder: Path) -> None:
    x = np.arange(256, dtype=np.float32)
    found = assert_type(bitwise_core.run(folder / "a.ptx", {"X": x, "Y": np.zeros(4, np.float32)}), RunResult)
    assert found["Y"].tolist() == x.reshape(4, 64).sum(axis=1).tolist()
    assert found["Y"].dtype == np.float32


def test_descriptors_are_evaluated() -> None:
    unit = Instruction(architecture="sm_90", family="wgmma", k=16)
    desc: bitwise_core.GEMMDesc = split_k(64, "fp16", unit, slices=2, tile=32)
    ones = np.ones((8, 64), dtype=np.float16)
    assert (bitwise_core.evaluate(desc, ones, ones.T.copy()).view(np.float16) == 64).all()


def test_the_version_is_that_of_the_distribution() -> None:
    assert assert_type(bitwise_core.__version__, str).count(".") >= 1
    assert {"compare", "partition", "run", "evaluate", "GEMMDesc"} <= set(dir(bitwise_core))
    with pytest.raises(AttributeError, match="has no attribute 'compared'"):
        bitwise_core.compared  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, bitwise_core; print([m for m in sys.modules if m == 'numpy' or m.startswith('bitwise_core.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['bitwise_core.lazy_names']\n"


WITHOUT_MEANING = PLAIN.replace("mov.u32 %r1", "frobnicate.u32 %r1")
BUFFERS = {"X": np.zeros(256, np.float32), "Y": np.zeros(4, np.float32)}
ERRORS: dict[str, Callable[[], object]] = {
    "gone.ptx: there is no such file": lambda: bitwise_core.compare("gone.ptx", PLAIN, LAUNCH),
    "a: a value of type int is not a kernel: give a path,": lambda: bitwise_core.compare(3, PLAIN),  # type: ignore[arg-type]
    "b: the text of a Source is of type bytes: give a string": lambda: bitwise_core.compare(
        PLAIN,
        Source("b", b"x"),  # type: ignore[arg-type]
    ),
    "a: a value of type int is not a launch: give a Launch": lambda: bitwise_core.compare(PLAIN, PLAIN, 5),  # type: ignore[arg-type]
    "kernels: a value of type NoneType is neither a folder": lambda: bitwise_core.determinism(None),  # type: ignore[arg-type]
    "a: the launch of a Source is of type dict: give a Launch": lambda: bitwise_core.compare(
        Source("a", PLAIN, LAUNCH),
        PLAIN,
    ),
    "Launch: file: is missing: give it; Launch: grid: 'x' is not a shape": lambda: Launch(grid="x"),  # type: ignore[call-arg]
    "Launch: args.0.value: 'y' is no number": lambda: Launch(file="k", grid=(1,), args=({"i32": "y"},)),
    "Launch: spam: there is no such field": lambda: Launch(file="k", grid=(1, 1, 1), spam=2),  # type: ignore[call-arg]
    "a value of type int is not a descriptor's text": lambda: GEMMDesc.from_text(3),  # type: ignore[arg-type]
    "GEMMDesc: a value of type int is not JSON": lambda: GEMMDesc.from_json(3),  # type: ignore[arg-type]
    "assume: 3 is not a sequence of names": lambda: bitwise_core.compare(PLAIN, PLAIN, assume=3),  # type: ignore[arg-type]
    "time_limit: 'x' is not a number of seconds": lambda: bitwise_core.compare(PLAIN, PLAIN, time_limit="x"),  # type: ignore[arg-type]
    "search_seconds: -1 is not a number": lambda: bitwise_core.compare(PLAIN, PLAIN, search_seconds=-1),
    "launch: give one launch for both kernels, or a pair, not 3": lambda: bitwise_core.compare(
        PLAIN,
        PLAIN,
        (LAUNCH, LAUNCH, LAUNCH),  # type: ignore[arg-type]
    ),
    "a: the key `kernels` of a manifest has a list": lambda: bitwise_core.compare(PLAIN, PLAIN, {"kernels": 3}),
    "kernel: buffers: a value of type NoneType is not": lambda: bitwise_core.run(PLAIN, None, LAUNCH),  # type: ignore[arg-type]
    "kernel: buffers: X is not an array": lambda: bitwise_core.run(PLAIN, {"X": [[1], [2, 3]]}, LAUNCH),
    "workers: '2' is not a number of processes": lambda: bitwise_core.partition([PLAIN], workers="2"),  # type: ignore[arg-type]
    "workers: 0 is not a number of processes": lambda: bitwise_core.determinism([PLAIN], workers=0),
    "a and b: only one of them has a launch": lambda: bitwise_core.compare(
        Source("a", PLAIN, Launch.model_validate(LAUNCH)), PLAIN
    ),
    "a: launch: grid.0: input should be greater than or equal to 1": lambda: bitwise_core.compare(
        PLAIN, PLAIN, {"grid": [0]}
    ),
    "a: the manifest has 0 launches of this kernel": lambda: bitwise_core.compare(PLAIN, PLAIN, {"kernels": []}),
    "assume: unknown assumption": lambda: bitwise_core.compare(PLAIN, PLAIN, assume="sunshine"),
    "b:": lambda: bitwise_core.compare(PLAIN, PLAIN[:400]),
    "kernels: the sequence is empty": lambda: bitwise_core.partition([]),
    "kernel: has no launch; a kernel is run for one": lambda: bitwise_core.run(PLAIN, {}),
    "kernel: buffers: X is missing; the launch's": lambda: bitwise_core.run(PLAIN, {}, LAUNCH),
    "kernel cannot be run: the instruction frobnicate.u32": lambda: bitwise_core.run(WITHOUT_MEANING, BUFFERS, LAUNCH),
}


@pytest.mark.parametrize(("sentence", "call"), ERRORS.items(), ids=ERRORS)
def test_errors_are_sentences(sentence: str, call: Callable[[], object]) -> None:
    with pytest.raises(BitwiseError) as found:
        call()
    assert str(found.value).startswith(sentence)


def test_records_have_short_representations(folder: Path) -> None:
    arch, options = registry.default().arch("sm_90"), Options()
    left, right = (read_kernel(str(folder / name)) for name in ("a.ptx", "c.ptx"))
    compared = compare(left, right, arch, options)
    ready = prepare(left, arch, options)
    buffers = {"X": np.zeros(1024, np.uint8), "Y": np.zeros(16, np.uint8)}
    session = session_of((left,), options)
    records: list[Any] = [
        left,
        arch,
        registry.default(),
        registry.default().plugins[0],
        ready,
        ready.module,
        ready.kernel,
        *compared.results,
        compared.verdict,
        compared,
        compared.trace,
        simulate(ready, buffers),
        session.summary(left, arch),
        bitwise_core.partition(folder, workers=1),
        bitwise_core.compare(PLAIN, NEIGHBOURS, LAUNCH),
        bitwise_core.compare(PLAIN, NEIGHBOURS, LAUNCH).counterexample,
        bitwise_core.run(folder / "a.ptx", BUFFERS),
    ]
    assert {type(each).__name__: len(repr(each)) for each in records if len(repr(each)) > 2000} == {}
    for each in records:
        shown = getattr(each, "_repr_html_", None)
        assert shown is None or 0 < len(shown()) < 5000


def test_a_large_partition_has_a_short_representation() -> None:
    names = tuple((f"a kernel with a rather long name, {number}",) for number in range(4000))
    found = Partition(names, {}, "launch", 1.0, ())
    assert repr(found) == "Partition(4000 kernels, 4000 classes, 0 unknown, for the given launches)"
    assert len(found._repr_html_()) < 10_000
