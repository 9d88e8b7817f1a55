"""Public kernels: which launches are intercepted and varied, and the figures about kernels that were read."""

from __future__ import annotations

import json
import random
import shutil
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from bitwise_bench.public_kernels import fetch, read, search, times
from bitwise_bench.public_kernels.agreement import PARTS, agreement, part_of, reasons_of, shortened
from bitwise_bench.public_kernels.block_orders import reordered
from bitwise_bench.public_kernels.configurations import chosen_configurations, variations
from bitwise_bench.public_kernels.fetch import _extracted
from bitwise_bench.public_kernels.interception import Interception, intercepted
from bitwise_bench.public_kernels.read import (
    digests_of,
    launch_folders,
    main,
    read_launch,
    with_searched,
    with_times,
    without_repeated,
    without_seen,
)
from bitwise_bench.public_kernels.record import SourceArchives, batches, planned
from bitwise_bench.public_kernels.residue import FILLINGS
from bitwise_bench.public_kernels.sources import SOURCES, Source
from bitwise_bench.public_kernels.without_gpu import pretended_gpu
from bitwise_bench.public_kernels.witnesses import with_witnesses, witness_of
from bitwise_bench.result_tables.corpus_tables import public_kernels, public_kernels_by_part
from bitwise_core.checker import analysis
from bitwise_core.checker.counterexamples.value_distributions import DISTINGUISHING_KINDS, ORDER_KINDS
from bitwise_core.checker.kernel_files import read_folder
from bitwise_core.checker.sources import Options
from bitwise_core.checker.sources import Source as Kernel
from bitwise_core.errors import InputError
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.element_types import element_type
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry

SAMPLES = Path(__file__).parents[2] / "plugins" / "nvidia_sm90" / "tests" / "samples" / "sm_90" / "row_sum"


@triton.jit
def plain(n, BLOCK: tl.constexpr):
    tl.device_assert(n > BLOCK)


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=2) for block in (16, 32, 64)], key=["n"])
@triton.jit
def tuned(n, BLOCK: tl.constexpr):
    tl.device_assert(n > BLOCK)


class OwnTuner(triton.runtime.Autotuner):
    def run(self, *arguments: Any, **keywords: Any) -> Any:
        raise AssertionError("the package's own choice of a configuration must not take place")


def settings_of(interception: Interception) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (each.values["BLOCK"], each.options["num_warps"], each.options["num_stages"], each.grid)
            for each in one.configurations
        ]
        for one in interception.launches
    ]


def test_a_kernel_without_an_autotuner_is_varied_in_warps_and_then_stages() -> None:
    with intercepted(Interception(execute=False)) as found:
        plain[(3,)](100, BLOCK=16, num_warps=2)
    (launch,) = settings_of(found)
    assert launch == [(16, warps, stages, (3, 1, 1)) for warps, stages in
                      [(2, 3), (1, 3), (4, 3), (8, 3), (2, 1), (2, 2), (2, 4)]]  # fmt: skip
    assert not found.launches[0].own


def test_an_autotuned_kernel_has_the_configurations_of_its_package_and_their_grids() -> None:
    with intercepted(Interception(execute=False)) as found:
        tuned[lambda meta: (triton.cdiv(128, meta["BLOCK"]),)](100)
    assert settings_of(found) == [[(16, 2, 3, (8, 1, 1)), (32, 2, 3, (4, 1, 1)), (64, 2, 3, (2, 1, 1))]]
    assert found.launches[0].own
    assert found.launches[0].name == f"{__name__}.tuned"


@pytest.mark.parametrize("late", [False, True])
def test_an_autotuner_of_a_package_does_not_tune(late: bool) -> None:
    with intercepted(Interception(execute=False)) as found:
        cls = type("LateTuner", (OwnTuner,), {"run": OwnTuner.__dict__["run"]}) if late else OwnTuner
        cls(plain, plain.arg_names, [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], ["n"], None, None)[
            (1,)
        ](100)
    assert [len(each.configurations) for each in found.launches] == [2]


def test_a_launch_is_recorded_once_and_another_argument_is_another_launch() -> None:
    with intercepted(Interception(execute=False)) as found:
        for number in (100, 100, 101):
            plain[(3,)](number, BLOCK=16)
    assert found.calls == 3
    assert [one.configurations[0].values["n"] for one in found.launches] == [100, 101]


def test_launches_beyond_the_limits_are_refused_with_the_reason() -> None:
    with intercepted(Interception(execute=False, maximum_launches=1)) as found:
        plain[(5000,)](100, BLOCK=16)
        plain[(1,)](100, BLOCK=16)
        plain[(2,)](100, BLOCK=16)
    assert [one.configurations[0].grid for one in found.launches] == [(1, 1, 1)]
    assert [words.split(": ", 1)[1] for words in found.refused] == ["5000 blocks", "more than 1 launches in one case"]


def test_the_autotuner_is_as_before_when_the_interception_ends() -> None:
    before = triton.runtime.JITFunction.run, triton.runtime.Autotuner.run, OwnTuner.run
    with intercepted(Interception(execute=False)):
        pass
    assert (triton.runtime.JITFunction.run, triton.runtime.Autotuner.run, OwnTuner.run) == before
    assert "__init_subclass__" not in triton.runtime.Autotuner.__dict__


def test_configurations_beyond_the_limit_are_left_out_at_equal_distances() -> None:
    assert chosen_configurations(range(5), 8) == [0, 1, 2, 3, 4]
    assert chosen_configurations(range(20), 4) == [0, 5, 10, 15]


def test_variations_keep_the_other_options_of_the_call() -> None:
    assert {each.num_ctas for each in variations({"num_ctas": 2, "num_warps": 8})} == {2}
    assert variations({"num_warps": 8, "num_stages": 1})[0].all_kwargs()["num_warps"] == 8


def test_every_source_has_a_turn_before_any_has_two() -> None:
    names = ["a/1", "a/2", "a/3", "b/1", "c/1", "c/2"]
    assert batches(names, 2) == [["a/1", "a/2"], ["b/1"], ["c/1", "c/2"], ["a/3"]]


def test_every_source_has_drivers_and_every_case_is_planned() -> None:
    assert planned() == [f"{name}/{case}" for name, source in SOURCES.items() for case in source.drivers()]
    assert all(source.drivers() for source in SOURCES.values())


def entry(*kernels: dict[str, Any], launch: str = "liger/norms/00_x") -> dict[str, Any]:
    base = {
        "unknown": None,
        "undetermined": False,
        "places": [],
        "seconds": 1.0,
        "hashes": [["a"]],
        "moved": [],
        "error": None,
    }
    rows = [{"file": f"{place:02}.ptx", **base, **kernel} for place, kernel in enumerate(kernels)]
    return {"launch": launch, "kernel": "x", "tuned": False, "kernels": rows}


def test_a_class_with_two_byte_patterns_is_named() -> None:
    found = agreement([entry({"class": 0}, {"class": 0, "hashes": [["b"]]}, {"class": 1})])
    assert found["mixed"] == [["liger/norms/00_x/00.ptx", "liger/norms/00_x/01.ptx"]]
    assert (found["classes"], found["byte classes"], found["ratio"]) == (2, 2, 1.0)


def test_classes_and_bytes_of_different_launches_are_different() -> None:
    found = agreement([entry({"class": 0}), entry({"class": 0}, launch="liger/norms/01_y")])
    assert (found["classes"], found["byte classes"]) == (2, 2)


def test_kernels_whose_bytes_moved_are_named_or_missed_and_in_no_other_figure() -> None:
    moved = {"moved": ["wide"]}
    found = agreement(
        [entry({"class": 0, **moved}, {"class": 1, "unknown": "w", **moved},
               {"class": 2, "unknown": "w", "undetermined": True, **moved}, {"class": 0, "hashes": [["b"]]})]
    )  # fmt: skip
    assert (found["moved"], found["named"], found["missed"]) == (3, 1, 1)
    assert found["missed kernels"] == ["liger/norms/00_x/00.ptx"]
    assert (found["kernels"], found["determined"], found["unknown"], found["mixed"]) == (4, 1, 0, [])


def test_the_share_of_unknown_counts_determined_kernels() -> None:
    found = agreement([entry({"class": 0, "unknown": "why"}, {"class": 1}, {"class": 2, "error": "launch failed"})])
    assert (found["determined"], found["unknown"], found["unknown share"], found["not run"]) == (2, 1, 0.5, 1)


def test_kernels_with_a_witness_are_counted_apart_from_determined_ones() -> None:
    witness = {"unknown": "w", "witness": "S0[3] differs"}
    kernels = [{"class": 0, **witness, "undetermined": True}, {"class": 1, **witness}, {"class": 2, "unknown": "w"}]
    found = agreement([entry(*kernels, {"class": 3})])
    assert (found["kernels"], found["determined"], found["unknown"]) == (4, 2, 1)
    assert (found["witnessed"], found["named, witnessed"], found["moved"]) == (2, 1, 0)
    assert [each["kernels"] for each in reasons_of([entry(*kernels)])] == [2]


def atomic_sum(threads: int) -> str:
    """Return a kernel in which so many threads of a warp add one number each to an element."""
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 S0, .param .u64 S1)
.maxntid 32, 1, 1
{{
    .reg .b64 %d<6>; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .pred %p<2>;
    ld.param.u64 %d0, [S0];
    ld.param.u64 %d1, [S1];
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p0, %r0, {threads};
    @%p0 ret;
    mul.wide.u32 %d2, %r0, 4;
    add.u64 %d3, %d0, %d2;
    ld.global.f32 %f0, [%d3];
    red.global.add.f32 [%d1], %f0;
    ret;
}}
"""


def write_atomic_sum(place: Path, threads: int) -> None:
    place.mkdir(parents=True)
    (place / "00.ptx").write_text(atomic_sum(threads))
    arguments = [{"buffer": name, "dtype": "fp32"} for name in ("S0", "S1")]
    launch = {"file": "00.ptx", "entry": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "args": arguments}
    (place / "manifest.json").write_text(json.dumps({"kernels": [launch]}))
    kernel = {"file": "00.ptx", "name": "k", "digest": "d", "hashes": [["a"]], "moved": [], "error": None}
    (place / "bytes.json").write_text(json.dumps({"kernel": "k", "tuned": False, "kernels": [kernel]}))


@pytest.mark.parametrize(("threads", "differs"), [(1, False), (32, True)])
def test_a_sum_of_several_threads_has_a_witness_and_that_of_one_has_none(
    tmp_path: Path, threads: int, differs: bool
) -> None:
    place = tmp_path / "sums"
    write_atomic_sum(place, threads)
    found = witness_of(str(place), "00.ptx", (".ptx",), "sm_90", 20.0)
    assert (found is not None) is differs
    kernel = {"class": 0, "unknown": "w", "undetermined": True}
    launch = entry(kernel, {**kernel, "moved": ["wide"]}, {"class": 0}, launch="sums")
    with ThreadPoolExecutor(1) as executor:
        (read,) = with_witnesses(tmp_path, [launch], (".ptx",), "sm_90", 20.0, executor)
    assert [each.get("witness") for each in read["kernels"]] == [found, None, None]


def test_the_record_has_the_witnesses_of_its_unknown_kernels(tmp_path: Path) -> None:
    folder, out = tmp_path / "kernels", tmp_path / "record.json"
    write_atomic_sum(folder / "liger" / "sums" / "00_k", 32)
    assert main([str(folder), "--workers", "1", "--witnesses", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    total = found["total"]
    assert (total["determined"], total["unknown"], total["witnessed"], total["named, witnessed"]) == (0, 0, 1, 1)
    assert "two orders of the threads" in found["criterion"]
    other = tmp_path / "other.json"
    assert main([str(folder), "--workers", "1", "--kept", str(out), "--out", str(other)]) == 0
    assert {name: json.loads(other.read_text())[name] for name in ("total", "criterion")} == {
        name: found[name] for name in ("total", "criterion")
    }
    assert main([str(folder), "--workers", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    total = found["total"]
    assert (total["determined"], total["unknown"], total["witnessed"]) == (1, 1, 0)
    assert "criterion" not in found


def test_without_bytes_there_is_no_ratio_and_what_the_reading_calls_not_determined_is_left_out() -> None:
    unread = {"hashes": None}
    found = agreement([entry({"class": 0, **unread}, {"class": 1, "unknown": "w", "undetermined": True, **unread})])
    assert (found["determined"], found["unknown"], found["ratio"]) == (1, 0, None)


def test_reasons_are_counted_without_their_names_and_numbers() -> None:
    kernels = [{"class": place, "unknown": f"a race at line {place} of `k{place}`"} for place in range(3)]
    (reason,) = reasons_of([entry(*kernels)])
    assert (reason["reason"], reason["kernels"]) == ("a race at line N of X", 3)
    assert reason["examples"] == [["liger/norms/00_x/00.ptx", "a race at line 0 of `k0`"]]
    assert shortened("at %r12, 0x1f bytes") == "at X, N bytes"


def test_the_compile_times_are_those_of_the_kernels_that_have_one() -> None:
    timed = [{"class": 0, "compile seconds": seconds, "CPU seconds": [1.0, seconds]} for seconds in (2.0, 1.0, 4.0)]
    found = agreement([entry(*timed, {"class": 0, "compile seconds": None, "CPU seconds": [61.0, None]})])
    assert found["compile seconds"] == {"median": 2.0, "p90": 4.0, "most": 4.0, "sum": 7.0}
    assert found["CPU seconds"] == {"median": 1.0, "p90": 61.0, "most": 61.0, "sum": 64.0, "above 60 s": 1}
    assert found["reading over compiling"] == {"median": 0.5, "p90": 1.0, "most": 1.0}
    other = agreement([entry({"class": 0})])
    assert (other["compile seconds"], other["reading over compiling"]) == (None, None)


def test_a_source_has_its_archive_when_its_last_case_is_done(tmp_path: Path) -> None:
    out = tmp_path / "kernels"
    for name in ("liger/norms", "liger/losses", "gems/rows"):
        (out / name).mkdir(parents=True)
        (out / name / "case.json").write_text("{}")
    archives = SourceArchives(out, tmp_path / "all.tar.xz", ["liger/norms", "liger/losses", "gems/rows", "mamba/scan"])
    archives.done("liger/norms")
    archives.done("mamba/scan")
    assert not list(tmp_path.glob("*.tar.xz"))
    archives.done("liger/losses")
    assert [path.name for path in tmp_path.glob("all*")] == ["all-liger.tar.xz"]
    with tarfile.open(tmp_path / "all-liger.tar.xz") as archive:
        files = sorted(member.name for member in archive if member.isfile())
    assert files == ["kernels/liger/losses/case.json", "kernels/liger/norms/case.json"]


def test_the_files_of_several_places_are_taken(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as wheel:
        for name in ("a/k/one.py", "a/l_two.py", "a/other.py"):
            wheel.writestr(name, "x = 1\n")
    found = list(_extracted(tmp_path / "a-1-py3-none-any.whl", tmp_path / "into", ("a/k/", "a/l_")))
    assert [path.name for path in found] == ["one.py", "l_two.py"]


def test_a_package_that_a_source_imports_lies_beside_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("a", "a-kernels", "1", "MIT", needs=(("helpful", "2"),))
    monkeypatch.setattr(fetch, "SOURCES", {"a": source})
    for name, file in (("a_kernels-1", "a/one.py"), ("helpful-2", "helpful/two.py")):
        with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(file, "x = 1\n")
    assert fetch.main(["--into", str(tmp_path / "into"), "--archives", str(tmp_path)]) == 0
    assert sorted(str(path.relative_to(tmp_path / "into")) for path in (tmp_path / "into").rglob("*.py")) == [
        "a/a/one.py",
        "a/helpful/two.py",
    ]


def test_tensors_on_a_gpu_that_is_not_there_lie_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    with pretended_gpu():
        made = torch.ones(3, device="cuda")
        assert (made.is_cuda, str(made.device), str(torch.device("cuda"))) == (True, "cpu", "cuda")
        assert made.cuda().to("cuda:0").tolist() == [1.0, 1.0, 1.0]
    assert not torch.ones(3).is_cuda


def test_a_kernel_that_writes_beyond_its_memory_changes_no_bytes_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from bitwise_bench.public_kernels import replay
    from bitwise_bench.public_kernels.interception import Intercepted, Storage

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    drawn: list[Any] = []

    def inputs(*_: object) -> dict[int, Any]:
        drawn.append({1: torch.ones(8, dtype=torch.uint8), 2: torch.ones(8, dtype=torch.uint8)})
        return drawn[-1]

    def doubled(memory: Any) -> None:
        memory[2] += memory[1]

    def beyond(memory: Any) -> None:
        doubled(memory)
        drawn[-1][1] += 1

    monkeypatch.setattr(replay, "drawn", inputs)
    monkeypatch.setattr(replay, "_disturb", lambda: None)
    monkeypatch.setattr(replay, "leave", lambda filling: None)
    launch = Intercepted("a", None, (), {each: Storage(torch.ones(8), torch.uint8) for each in (1, 2)}, True)
    text = SimpleNamespace(assembly="ret;")
    kernels: Any = [SimpleNamespace(launch=each, kernel=text) for each in (doubled, beyond, doubled)]
    first, other, last = replay.recorded_bytes(launch, kernels)
    assert (first["error"], other["error"], last["error"]) == (None, replay.BEYOND_BUFFERS, None)
    assert first == last


def test_a_kernel_that_returns_what_nothing_wrote_moves_and_one_that_writes_there_has_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    from bitwise_bench.public_kernels import replay
    from bitwise_bench.public_kernels.interception import Intercepted, Storage

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(replay, "_disturb", lambda: None)
    left: list[int] = []
    monkeypatch.setattr(replay, "leave", left.append)

    def whole(memory: Any) -> Any:
        return torch.empty(0, dtype=torch.uint8).set_(memory[1].untyped_storage())

    def behind(memory: Any) -> None:
        memory[1][0] = whole(memory)[8]

    def shared(memory: Any) -> None:
        memory[1][0] = left[-1]

    def writes(memory: Any) -> None:
        whole(memory)[8] = 7

    def inside(memory: Any) -> None:
        memory[1] += 1

    launch = Intercepted("a", None, (), {1: Storage(torch.ones(8, dtype=torch.uint8), torch.uint8)}, True)
    text = SimpleNamespace(assembly="ret;")
    kernels: Any = [SimpleNamespace(launch=each, kernel=text) for each in (behind, shared, writes, inside)]
    found = replay.recorded_bytes(launch, kernels)
    assert [each["moved"] for each in found] == [list(replay.DRAWS), list(replay.DRAWS), [], []]
    assert [each["error"] for each in found] == [None, None, replay.BEYOND_BUFFERS, None]
    assert set(left) == set(FILLINGS)


@pytest.mark.parametrize(
    "text", ["ret;", "red.global.add.f32 [%rd1], %f1;", "@%p1 atom.global.add.f32 %f1, [%rd1], %f2;"]
)
def test_a_kernel_with_atomic_operations_runs_more_often_beside_other_work(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from bitwise_bench.public_kernels import replay
    from bitwise_bench.public_kernels.interception import Intercepted, Storage

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    disturbed = replay.DISTURBED[text != "ret;"]
    others: list[None] = []
    monkeypatch.setattr(replay, "_disturb", lambda: others.append(None))
    monkeypatch.setattr(replay, "leave", lambda filling: None)
    runs = iter(range(1 << 20))
    last = replay.REPEATS + disturbed - 1

    def moving(memory: Any) -> None:
        memory[1] += next(runs) == last

    launch = Intercepted("a", None, (), {1: Storage(torch.ones(8, dtype=torch.uint8), torch.uint8)}, True)
    kernels: Any = [SimpleNamespace(launch=moving, kernel=SimpleNamespace(assembly=text))]
    (found,) = replay.recorded_bytes(launch, kernels)
    assert found["moved"] == [replay.DRAWS[0]]
    assert len(others) == disturbed * len(replay.DRAWS)


def test_normal_numbers_are_positive_where_all_of_a_launch_are() -> None:
    torch = pytest.importorskip("torch")
    from bitwise_bench.public_kernels import replay
    from bitwise_bench.public_kernels.interception import Storage

    both = {1: torch.ones(256), 2: -torch.ones(256)}
    storages = {name: Storage(each.view(torch.uint8), torch.float32) for name, each in both.items()}
    found = {name: each.view(torch.float32) for name, each in replay.drawn(storages, "normal", "a").items()}
    assert (found[1] > 0).all()
    assert (found[2] > 0).any()
    assert (found[2] < 0).any()
    assert found[1].max() / found[1].min() > 1 << 12


def test_the_python_files_of_the_wanted_folder_are_taken_and_nothing_outside_is_written(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as wheel:
        for name in ("a/k/one.py", "a/k/VERSION", "a/k/data.bin", "a/other.py", "a/k/../../../evil.py", "/a/k/evil.py"):
            wheel.writestr(name, "x = 1\n")
    found = list(_extracted(tmp_path / "a-1-py3-none-any.whl", tmp_path / "into", "a/k"))
    assert found == [tmp_path / "into" / "a/k" / name for name in ("one.py", "VERSION")]
    assert [path.name for path in tmp_path.rglob("*.py")] == ["one.py"]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of one launch of two configurations, of the samples of this repository."""
    place = tmp_path / "kernels" / "liger" / "sums" / "00_row_sum"
    shutil.copytree(SAMPLES, place)
    (place / "expected.json").unlink(missing_ok=True)
    manifest = json.loads((place / "manifest.json").read_text())
    files = [each["file"] for each in manifest["kernels"]]
    kernels = [
        {"file": file, "name": file, "digest": "0", "hashes": [[str(number)]], "moved": [], "error": None}
        for number, file in enumerate(files)
    ]
    content = {"kernel": "row_sum", "tuned": True, "left out": 0, "errors": [], "draws": ["captured"], "repeats": 1}
    (place / "bytes.json").write_text(json.dumps({**content, "kernels": kernels}))
    return tmp_path / "kernels"


def test_a_launch_is_read_with_the_classes_of_its_partition(recording: Path) -> None:
    (place,) = launch_folders(recording)
    found = read_launch(place, "liger/sums/00_row_sum", Options())
    assert [each["unknown"] for each in found["kernels"]] == [None] * len(found["kernels"])
    assert found["tuned"] is True
    assert len({each["class"] for each in found["kernels"]}) < len(found["kernels"])


def test_a_kernel_for_a_target_on_which_it_cannot_run_is_determined_as_its_configuration(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitwise_bench.public_kernels import other_targets, replay
    from bitwise_bench.public_kernels.configurations import Configuration
    from bitwise_triton.errors import CaptureError

    def compiled_for(launch: Any, configuration: Configuration, target: str) -> tuple[Any, str, float]:
        if configuration.options["place"] == 1:
            raise CaptureError("too much shared memory")
        return SimpleNamespace(name=target), str(configuration.options["place"]), 0.5

    wrote: list[Any] = []
    monkeypatch.setattr(other_targets, "compiled_for", compiled_for)
    monkeypatch.setattr(replay, "write_launch", lambda *given: wrote.append(given))
    compiled: Any = [SimpleNamespace(configuration=Configuration({}, {"place": place}, None)) for place in range(3)]
    ran = [{"hashes": [["a"]], "moved": moved, "error": None} for moved in ([], ["wide"], ["wide"])]
    replay.write_for_target(tmp_path, SimpleNamespace(name="k"), "sm_100", compiled, ran)  # type: ignore[arg-type]
    ((folder, _, kernels, errors, bytes_),) = wrote
    assert (folder, [each.digest for each in kernels], errors) == (tmp_path, ["0", "2"], ["too much shared memory"])
    assert [(each["hashes"], each["moved"]) for each in bytes_] == [([], []), ([], ["wide"])]


def test_the_times_of_a_reading_are_those_of_each_kernel_and_give_ratios(recording: Path, tmp_path: Path) -> None:
    (place,) = launch_folders(recording)
    described = json.loads((place / "bytes.json").read_text())
    described["kernels"][0]["compile CPU seconds"] = 2.0
    (place / "bytes.json").write_text(json.dumps(described))
    name = "liger/sums/00_row_sum"
    found = times.times_of(name, {"folder": str(recording), "until": 1e12, "target": "sm_90"})
    assert [each["compiling"] for each in found["kernels"].values()][:2] == [2.0, None]
    assert all(each["reading"] > 0 and each["unknown"] is None for each in found["kernels"].values())
    assert "out of time" in times.times_of(name, {"folder": str(recording), "until": 0.0, "target": "sm_90"})["error"]
    first, *others = with_times([read_launch(place, name, Options())], {"launches": {name: found["kernels"]}})
    assert (first["kernels"][0]["CPU seconds"][1], others) == (2.0, [])
    assert agreement([first])["CPU seconds"]["above 60 s"] == 0
    assert times.summary({name: found["kernels"]})["with both"] == 1


def test_a_text_that_several_launches_have_is_counted_once_and_as_open_first() -> None:
    held_out = {**entry({"digest": "a"}, {"digest": "b"}, launch="liger/norms/00_x"), "part": "held out"}
    opened = {**entry({"digest": "b"}, {"digest": "b"}, launch="liger/norms/01_y"), "part": "open"}
    again = {**entry({"digest": "b"}, launch="liger/norms/02_z"), "part": "open"}
    found = without_repeated([held_out, again, opened])
    assert [(each["launch"], [kernel["digest"] for kernel in each["kernels"]]) for each in found] == [
        ("liger/norms/00_x", ["a"]),
        ("liger/norms/01_y", ["b", "b"]),
    ]


def test_kernels_that_other_records_have_are_left_out() -> None:
    entries = [entry({"class": 0, "digest": "a"}, {"class": 1, "digest": "b"}), entry({"class": 0, "digest": "a"})]
    (left,) = without_seen(entries, digests_of([{"launches": [entry({"class": 0, "digest": "a"})]}]))
    assert [each["digest"] for each in left["kernels"]] == ["b"]


def with_equal_bytes(recording: Path) -> str:
    """Give all kernels of the recording the same recorded bytes; return the name of the launch."""
    (place,) = launch_folders(recording)
    described = json.loads((place / "bytes.json").read_text())
    for each in described["kernels"]:
        each["hashes"] = [["0"]]
    (place / "bytes.json").write_text(json.dumps(described))
    return str(place.relative_to(recording))


class SimulatedKernel:
    """A kernel that is simulated in the place of a GPU."""

    def __init__(self, source: Kernel) -> None:
        self.source = source

    def run(self, contents: dict[str, Any], beyond: int = 0) -> dict[str, Any]:
        prepared = analysis.prepare(self.source, registry.default().arch("sm_90"), Options())
        after = simulate(prepared, contents, open_ended=True).after
        return {name: after[name][: each.size] for name, each in contents.items()}

    def unload(self) -> None:
        """Nothing is on a GPU."""


def settings_of_search(recording: Path, inputs: Path, draws: int = 0) -> dict[str, Any]:
    return {"folder": str(recording), "inputs": str(inputs), "seconds": 5.0, "draws": draws, "until": 1e12}


def test_inputs_are_found_for_classes_with_equal_bytes_and_tell_them_apart(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = with_equal_bytes(recording), settings_of_search(recording, tmp_path / "inputs")
    read = read_launch(recording / name, name, Options())
    classes = {each["file"]: each["class"] for each in read["kernels"]}
    pairs = search.search_launch(name, settings)["pairs"]
    assert len(pairs) == len(set(classes.values())) - 1 > 0
    assert all(pair["input"] for pair in pairs)
    monkeypatch.setattr(search, "_loaded", SimulatedKernel)
    ran = search.run_launch(name, settings)
    assert [pair["differ"] for pair in ran["pairs"]] == [True] * len(pairs)
    labels = {file: each["label"] for file, each in ran["kernels"].items()}
    assert {(classes[one], labels[one]) for one in labels} == set(zip(classes.values(), labels.values(), strict=True))
    assert len(set(labels.values())) == len(set(classes.values()))
    with_bytes = with_searched(read, {"launches": {name: ran}})
    assert (with_bytes["inputs"], with_bytes["pairs"]) == (len(pairs), ran["pairs"])
    figures = agreement([with_bytes])
    assert (figures["byte classes"], figures["functions"], figures["classes"]) == (1, len(pairs) + 1, len(pairs) + 1)
    assert figures["mixed"] == []


def test_drawn_inputs_alone_tell_kernels_apart_and_are_the_same_each_time(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = with_equal_bytes(recording), settings_of_search(recording, tmp_path / "inputs", draws=3)
    monkeypatch.setattr(search, "_loaded", SimulatedKernel)
    ran = search.run_launch(name, settings)
    assert ran["inputs"] == 3
    assert len({each["label"] for each in ran["kernels"].values()}) > 1
    assert search.run_launch(name, settings) == ran


def test_further_inputs_are_drawn_until_a_pair_without_one_is_told_apart(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = with_equal_bytes(recording), settings_of_search(recording, tmp_path / "inputs")
    read = read_launch(recording / name, name, Options())
    first, *others = {each["class"]: each["file"] for each in read["kernels"]}.values()
    pairs = [{"left": first, "right": other, "input": None} for other in others]
    (tmp_path / "inputs" / name).mkdir(parents=True)
    (tmp_path / "inputs" / name / search.PLAN).write_text(json.dumps({"pairs": pairs}))
    monkeypatch.setattr(search, "_loaded", SimulatedKernel)
    ran = search.run_launch(name, settings)
    labels = {file: each["label"] for file, each in ran["kernels"].items()}
    assert all(labels[first] != labels[other] for other in others)
    assert 0 < ran["inputs"] <= len(pairs)
    rows = {first: {"a": "x", "b": None}, others[0]: {"a": "x", "b": None}}
    assert search.undivided(pairs[:1], rows) == []
    assert search.undivided(pairs[:1], {file: {"a": "x"} for file in rows}) == [(first, others[0])]


def test_an_input_on_which_a_kernel_returns_other_bytes_each_time_does_not_count(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = with_equal_bytes(recording), settings_of_search(recording, tmp_path / "inputs")
    assert search.search_launch(name, settings)["pairs"]
    count = iter(range(1 << 20))

    class Moving(SimulatedKernel):
        def run(self, contents: dict[str, Any], beyond: int = 0) -> dict[str, Any]:
            moved = np.frombuffer(next(count).to_bytes(4, "little"), dtype=np.uint8)
            return dict.fromkeys(contents, moved)

    monkeypatch.setattr(search, "_loaded", Moving)
    ran = search.run_launch(name, settings)
    assert ran["inputs"] == 0
    assert {each["label"] for each in ran["kernels"].values()} == {0}
    inputs = {pair["input"] for pair in ran["pairs"]}
    assert [set(each["moved"]) for each in ran["kernels"].values()] == [inputs] * len(ran["kernels"])
    read = with_searched(read_launch(recording / name, name, Options()), {"launches": {name: ran}})
    assert (agreement([read])["determined"], agreement([read])["moved"]) == (0, len(read["kernels"]))


def test_launches_of_an_earlier_run_are_kept() -> None:
    before = {"launches": {"a": {"kernels": {"0": 1}}, "b": {"kernels": {}}}, "not run": {"c": "why", "d": "why"}}
    found = search.searched_record(
        {"gpu": "H100"}, {"a": {"kernels": {"0": 2}}, "c": {"kernels": {}}}, {"d": "again"}, before
    )
    assert found["launches"] == {"a": {"kernels": {"0": 2}}, "b": {"kernels": {}}, "c": {"kernels": {}}}
    assert found["not run"] == {"d": "again"}


def test_a_class_with_several_searched_byte_patterns_is_mixed() -> None:
    kernels = [{"class": 0, "digest": "a"}, {"class": 0, "digest": "b"}]
    read = entry(*kernels)
    labels = {"00.ptx": {"digest": "a", "label": 0}, "01.ptx": {"digest": "b", "label": 1}}
    found = agreement([with_searched(read, {"launches": {read["launch"]: {"kernels": labels}}})])
    assert found["mixed"] == [["liger/norms/00_x/00.ptx", "liger/norms/00_x/01.ptx"]]
    assert (found["byte classes"], found["functions"]) == (1, 2)


def test_the_search_of_other_kernels_is_refused() -> None:
    read = entry({"class": 0, "digest": "a"})
    with pytest.raises(InputError, match="is not the kernel that was searched"):
        with_searched(read, {"launches": {read["launch"]: {"kernels": {"00.ptx": {"digest": "b", "label": 0}}}}})


def test_nans_of_a_format_have_one_digest_and_numbers_their_own() -> None:
    quiet, other, number = (np.full(3, each, dtype=np.uint32).view(np.uint8) for each in (0x7FC00000, 0xFFFFFFFF, 1))
    fp32, words = element_type("fp32"), element_type("i32")
    assert search.digest(quiet, fp32) == search.digest(other, fp32) != search.digest(number, fp32)
    assert search.digest(quiet, words) != search.digest(other, words)


def test_every_second_further_input_shows_orders_of_sums(recording: Path) -> None:
    (place,) = launch_folders(recording)
    source = read_folder(place, (".ptx",)).sources[0]
    sizes, first = search.buffer_sizes([source], []), len(DISTINGUISHING_KINDS)
    kinds = [name.split(": ")[1] for name, _ in search._drawn("a", [source], sizes, first + 40)]
    assert kinds[:first] == list(DISTINGUISHING_KINDS)
    assert {kind for number, kind in enumerate(kinds[first:], first) if number % 2} == set(ORDER_KINDS)
    assert {kind for number, kind in enumerate(kinds[first:], first) if not number % 4} == {search.FEW_SPECIAL}
    assert {kind for number, kind in enumerate(kinds[first:], first) if number % 4 == 2} - set(ORDER_KINDS)


def test_an_input_with_few_special_values_has_them_in_one_buffer(recording: Path) -> None:
    (place,) = launch_folders(recording)
    source = read_folder(place, (".ptx",)).sources[0]
    assert source.launch is not None
    sizes, forms = search.buffer_sizes([source], []), element_types([source.launch])
    drawn = [each for name, each in search._drawn("a", [source], sizes, 80) if search.FEW_SPECIAL in name]
    assert len(drawn) > 10
    changed = 0
    for contents in drawn:
        unusual = []
        for buffer, data in contents.items():
            form = forms[buffer].format
            if form is not None:
                magnitudes = data.view(f"u{forms[buffer].bytes}") & ((1 << (form.bits - 1)) - 1)
                fields = magnitudes >> form.mantissa_bits
                unusual.append(int(((fields < form.bias - 3) | (fields > form.bias + 1)).sum()))
        assert sum(each > 0 for each in unusual) <= 1
        assert sum(unusual) <= 3
        changed += sum(unusual) > 0
    assert changed > 5


def test_blocks_in_another_order_do_the_same_work(recording: Path) -> None:
    (place,) = launch_folders(recording)
    source = read_folder(place, (".ptx",)).sources[0]
    assert source.launch is not None
    rows = source.launch.blocks
    assert rows > 2
    texts = {reordered(source.text, source.launch.grid, random.Random(number)) for number in range(6)}
    assert None not in texts
    assert len(texts) > 3
    sizes = search.buffer_sizes([source], [])
    ((_, contents),) = search._drawn("a", [source], sizes, 1)
    expected = SimulatedKernel(source).run(contents)
    for text in texts:
        found = SimulatedKernel(replace(source, text=str(text))).run(contents)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "text",
    [
        "add.u32 %r1, %ctaid.x, 1;",
        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %clusterid.x;",
        "mov.u32 %r1, %tid.x;",
        "mov.u32 %r1, %ctaid.x;\nadd.u32 %r2, %ctaid.y, 1;",
    ],
)
def test_blocks_whose_index_is_read_in_another_way_keep_their_order(text: str) -> None:
    assert reordered(text, (4, 4, 1), random.Random(0)) is None


def test_every_block_does_the_work_of_one_other() -> None:
    for number in range(20):
        text = reordered("@!%p3 mov.u32 \t%r7, %ctaid.y;", (2, 12, 1), random.Random(number))
        first, scale, rest = str(text).splitlines()
        factor, add = (int(each.rstrip(";")) for each in scale.split(", ")[2:])
        assert [first[:5], scale[:5], rest] == ["@!%p3", "@!%p3", "@!%p3 rem.u32 %r7, %r7, 12;"]
        assert sorted((factor * block + add) % 12 for block in range(12)) == list(range(12))


def test_only_kernels_with_atomic_operations_run_in_other_orders(recording: Path) -> None:
    (place,) = launch_folders(recording)
    source = read_folder(place, (".ptx",)).sources[0]
    assert search.in_orders(source) == [source]
    atomic = replace(source, text=source.text.replace("ret;", "red.global.add.u32 [%rd1], 1;\nret;"))
    found = search.in_orders(atomic)
    assert found[0] == atomic
    assert 1 < len({each.text for each in found}) == len(found) <= 1 + search.ORDERS


def test_half_of_the_launches_are_open_and_a_part_is_read_alone(recording: Path, tmp_path: Path) -> None:
    names = [f"a/b/{number:02d}_x" for number in range(400)]
    assert 150 < sum(part_of(name) == "open" for name in names) < 250
    (place,) = launch_folders(recording)
    for number in range(1, 4):
        shutil.copytree(place, place.with_name(f"{number:02d}_row_sum"))
    names = [f"liger/sums/{number:02d}_row_sum" for number in range(4)]
    for part in PARTS:
        out = tmp_path / f"{part}.json"
        main([str(recording), "--out", str(out), "--part", part, "--workers", "1"])
        record = json.loads(out.read_text())
        mine = [name for name in names if part_of(name) == part]
        assert [each["launch"] for each in record["launches"]] == mine
        assert {each["part"] for each in record["launches"]} <= {part}
        assert record["parts"][part]["packages"] == record["parts"][part]["all"] == record["total"]
        assert record["parts"][part]["TorchInductor"]["launches"] == 0
        assert record["largest process, MiB"] > 0 or not mine


def test_launches_with_unknown_are_read_again_under_an_assumption(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = launch_folders(recording)
    shutil.copytree(place, place.with_name("01_row_sum"))
    asked: list[tuple[str, ...]] = []

    def read_all(folder: Path, launches: list[Path], options: Options, *others: Any) -> list[dict[str, Any]]:
        names = [each.relative_to(folder).as_posix() for each in launches]
        if not names:
            asked.append(())
            return []
        asked.append((*sorted(options.assume), *names))
        unknown = None if options.assume else "two lanes store"
        found = [entry({"class": 0, "unknown": unknown}, {"class": 1}, launch=names[0])]
        found += [entry({"class": 0}, launch=name) for name in names[1:]]
        return [{**each, "part": part_of(each["launch"])} for each in found]

    monkeypatch.setattr(read, "_read_all", read_all)
    out = tmp_path / "record.json"
    main([str(recording), "--out", str(out), "--also", "lowest-lane"])
    names = ("liger/sums/00_row_sum", "liger/sums/01_row_sum")
    assert asked == [names, ("lowest-lane", names[0])]
    record = json.loads(out.read_text())
    part = part_of(names[0])
    assert record["parts"][part]["all"]["unknown"] == 1
    assert record["parts"][part]["all"]["unknown, assuming"] == {"lowest-lane": 0}
    found = public_kernels_by_part({**record, "environment": {"bytes": {"triton": "3", "gpu": "NVIDIA H200"}}})
    kernels = record["parts"][part]["all"]["determined"]
    other = tmp_path / "other.json"
    assert main([str(recording), "--out", str(other), "--kept", str(out)]) == 0
    assert asked[2:] == [()]
    assert json.loads(other.read_text())["launches"] == record["launches"]
    assert json.loads(other.read_text())["parts"] == record["parts"]
    assert f"Under `--assume lowest-lane`, 0 of {kernels} are Unknown in the {part} part." in found


def test_an_unreadable_launch_is_reported_and_the_others_are_read(recording: Path, capsys: Any) -> None:
    shutil.copytree(recording / "liger" / "sums" / "00_row_sum", recording / "liger" / "sums" / "01_row_sum")
    (recording / "liger" / "sums" / "00_row_sum" / "manifest.json").write_text("{}")
    main([str(recording), "--workers", "1"])
    printed = capsys.readouterr()
    assert "liger/sums/00_row_sum: " in printed.err
    assert printed.out.splitlines()[1].split()[:2] == ["liger", "3"]


def test_the_command_fails_where_a_class_mixes_bytes(recording: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "record.json"
    assert main([str(recording), "--out", str(out), "--workers", "1"]) == 1
    record = json.loads(out.read_text())
    assert record["total"]["mixed"]
    assert record["sources"]["liger"]["distribution"] == "liger-kernel"
    assert "mixed" in capsys.readouterr().out
    record["environment"]["bytes"] = {"triton": "3.6.0", "gpu": "NVIDIA H100 80GB HBM3"}
    table = public_kernels(record).splitlines()
    whole = record["total"]
    parts = public_kernels_by_part(record).splitlines()
    part = part_of("liger/sums/00_row_sum")
    rows = [line for line in parts[2:] if line.startswith("|")]
    # A group without launches has no row.
    assert [row.split(" | ")[:4] for row in rows] == [
        [f"| {part}, {name}", "1", str(whole["kernels"]), "0 of 0"] for name in ("packages", "all")
    ]
    assert "1 sources" in parts[-1]
    assert table[2].startswith(f"| liger-kernel 0.8.5 | 1 | {whole['kernels']} | {whole['kernels']} | 0.0 % |")
    assert table[3].startswith("| all | 1 |")
