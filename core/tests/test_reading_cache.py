"""Kept readings: a second run recalls them, and everything that decides a reading makes another key."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

import bitwise_core as bitwise
from bitwise_core.caching import code_digest
from bitwise_core.caching.entry_files import OFF_VARIABLE
from bitwise_core.caching.key_digest import key_digest
from bitwise_core.checker import analysis, readings
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.kernel_comparisons import compare_or_recall
from bitwise_core.checker.kernel_readings import ANALYSIS, Execution, analysis_jobs, readers
from bitwise_core.checker.partition import Partition, partition, verdicts
from bitwise_core.checker.readings import Reading, ReadingCache, kernel_subject, open_cache, reading_key
from bitwise_core.checker.results import LARGE_GRID, AnalysisResult
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.cli import app
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.launch import Argument, Launch, TensorMap
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PLAIN, SWAPPED, NEIGHBOURS = row_sum(), row_sum(swapped=True), row_sum(neighbours=True)
STRANGE = PLAIN.replace("ld.param.u64 %rd1, [x];", "frobnicate.b32 %r1, %r1;")
RACING = PLAIN.replace("add.s64 %rd6, %rd2, %rd5;", "mov.u64 %rd6, %rd2;")
TEXTS: dict[str, str | bytes] = {
    "a.ptx": PLAIN, "b.ptx": SWAPPED, "c.ptx": NEIGHBOURS, "d.ptx": STRANGE, "e.ptx": RACING
}  # fmt: skip
LAUNCHES = [launch(name) for name in TEXTS]
OPTIONS = Options(audit_contraction=False)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of each test, with the cache turned on and code that counts as unchanged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(OFF_VARIABLE)
    monkeypatch.setattr("bitwise_core.caching.code_digest._STARTED", float("inf"))
    return tmp_path / "cache" / "bitwise" / "readings"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    return write(tmp_path / "kernels", TEXTS, LAUNCHES)


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are analysed in this process."""
    names: list[str] = []
    analyse = Session.analyse

    def counted(session: Session, source: Source, arch: Arch) -> AnalysisResult:
        names.append(source.name)
        return analyse(session, source, arch)

    monkeypatch.setattr(Session, "analyse", counted)
    return names


def entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def found_by(folder: Path, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["partition", str(folder), "--json", "--workers", "1", *options])
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    del found["seconds"]
    return found


def test_a_second_run_recalls_every_reading(folder: Path, analysed: list[str]) -> None:
    first = found_by(folder)
    assert first["classes"] == [["a.ptx", "b.ptx"], ["c.ptx"], ["d.ptx"], ["e.ptx"]]
    assert sorted(analysed) == sorted(TEXTS)
    analysed.clear()
    assert found_by(folder) == first
    assert analysed == []
    assert found_by(folder, "--workers", "2") == first


def test_every_field_of_a_result_is_recalled(folder: Path, analysed: list[str]) -> None:
    sources = [Source(name, str(TEXTS[name]), Launch.model_validate(launch(name))) for name in TEXTS]
    found = [partition(sources, "sm_90", OPTIONS, workers=1, cache=open_cache()).results for _ in range(2)]
    assert found[0] == found[1]
    assert [each.nondeterministic for each in found[1]] == [each.nondeterministic for each in found[0]]
    assert found[1][3].unknown is not None
    assert "at line" in found[1][3].unknown
    assert len(analysed) == len(TEXTS)


def test_a_changed_kernel_alone_is_read_again(folder: Path, analysed: list[str]) -> None:
    found_by(folder)
    analysed.clear()
    (folder / "c.ptx").write_text(NEIGHBOURS + "\n// a comment\n")
    found_by(folder)
    assert analysed == ["c.ptx"]


def test_equal_kernels_of_one_run_are_read_once(tmp_path: Path, analysed: list[str]) -> None:
    names = ["a.ptx", "b.ptx", "c.ptx", "d.ptx"]
    folder = write(tmp_path, dict.fromkeys(names, PLAIN), [launch(name) for name in names])
    assert found_by(folder, "--no-cache")["classes"] == [names]
    assert len(analysed) == 1
    unknown = write(tmp_path, dict.fromkeys(names, STRANGE), None)
    found = found_by(unknown, "--no-cache")
    assert found["classes"] == [[name] for name in names]
    assert len(set(found["unknown"].values())) == 1


def test_malformed_kernels_have_messages_of_their_own(tmp_path: Path, directory: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": "garbage", "c.ptx": "garbage"}, None)
    for _ in range(2):
        done = CliRunner().invoke(app, ["partition", str(folder), "--workers", "1"])
        assert done.exit_code == 2
        assert "b.ptx" in done.stderr
        assert "c.ptx" in done.stderr
    assert len(entries(directory)) == 1


def key_of(
    text: str = PLAIN,
    launched: dict[str, Any] | None = None,
    *,
    entry: str | None = None,
    arch: str = "sm_90",
    buffers: tuple[str, ...] = ("X", "Y"),
    options: Options = OPTIONS,
) -> str:
    cache = open_cache()
    assert cache is not None
    record = None if launched is None else Launch.model_validate(launched)
    source = Source("name.ptx", text, record, entry)
    found = reading_key(ANALYSIS, (source, arch), buffer_numbers(set(buffers)), options, cache)
    assert found is not None
    return found


LAUNCH = launch("a.ptx")
X, Y = LAUNCH["args"]
CHANGED_LAUNCHES: dict[str, list[Any]] = {
    "entry": ["another", None],
    "grid": [[5], [1, 4]],
    "block": [[64], [4, 8]],
    "args": [
        [Y, X],
        [X],
        [X, {"buffer": "Y"}],
        [X, {**Y, "offset": 16}],
        [X, {**Y, "dtype": "bf16"}],
        [X, {"i32": 1}],
        [X, {"u32": 1}],
        [X, {"fp32": 1}],
        [X, {"fp32": 1.0}],
        [X, {"fp32": 0.0}],
        [X, {"fp32": -0.0}],
        [X, {"fp32": float("nan")}],
        [X, {"fp32": float("inf")}],
        [X, {"tensor_map": {"buffer": "Y", "dtype": "fp32", "shape": [8], "strides": [1], "block": [4]}}],
        [X, {"tensor_map": {"buffer": "Y", "dtype": "fp32", "shape": [8], "strides": [1], "block": [8]}}],
    ],
    "shared": [0, 1024],
    "cluster": [[1], [2]],
}
CHANGED_OPTIONS: dict[str, Any] = {
    "every_launch": True,
    "assume": frozenset({"finite"}),
    "audit_contraction": True,
    "cross_architecture": True,
}


def test_different_launches_and_options_have_different_keys() -> None:
    changed_launches = [{**LAUNCH, name: value} for name, values in CHANGED_LAUNCHES.items() for value in values]
    keys = [
        key_of(launched=LAUNCH),
        key_of(),
        key_of(entry="row_sum"),
        key_of(PLAIN + " ", LAUNCH),
        key_of(launched=LAUNCH, arch="sm_100"),
        key_of(launched=LAUNCH, buffers=("X", "Y", "Z")),
        key_of(launched=LAUNCH, buffers=("A", "X", "Y")),
        *(key_of(launched=each) for each in changed_launches),
        *(key_of(launched=LAUNCH, options=replace(OPTIONS, **{k: v})) for k, v in CHANGED_OPTIONS.items()),
    ]
    assert len(set(keys)) == len(keys)


CHANGED_OPTIONS_OF_ANY_TYPE = [each.name for each in fields(Options) if each.name != "time_limit"]


@pytest.mark.parametrize("name", [name for name in Launch.model_fields if name != "file"])
def test_any_field_of_a_launch_is_in_the_key(name: str) -> None:
    record = Launch.model_validate(LAUNCH)
    changed = record.model_copy(update={name: "changed"})
    assert key_digest(kernel_subject(Source("a", "", changed), "sm_90")) != key_digest(
        kernel_subject(Source("a", "", record), "sm_90")
    )


@pytest.mark.parametrize("name", Argument.model_fields)
def test_any_field_of_an_argument_is_in_the_key(name: str) -> None:
    argument = Argument.model_validate(X)
    assert key_digest(argument.model_copy(update={name: "changed"})) != key_digest(argument)


@pytest.mark.parametrize("name", TensorMap.model_fields)
def test_any_field_of_a_tensor_map_is_in_the_key(name: str) -> None:
    given = TensorMap(buffer="Y", dtype="fp32", shape=(8,), strides=(1,), block=(4,))
    assert key_digest(given.model_copy(update={name: "changed"})) != key_digest(given)


@pytest.mark.parametrize("name", CHANGED_OPTIONS_OF_ANY_TYPE)
def test_any_option_is_in_the_key(name: str) -> None:
    changed = copy(OPTIONS)
    object.__setattr__(changed, name, "changed")
    assert key_of(launched=LAUNCH, options=changed) != key_of(launched=LAUNCH)


def test_a_launch_with_a_part_that_has_no_digest_is_read_and_not_kept(analysed: list[str], directory: Path) -> None:
    record = Launch.model_validate(LAUNCH).model_copy(update={"entry": None, "cluster": None})
    sources = [Source("a.ptx", PLAIN, record.model_copy(update={"shared": Path("file")})) for _ in range(2)]
    for _ in range(2):
        partition(sources, "sm_90", OPTIONS, workers=1, cache=open_cache())
    assert len(analysed) == 4
    assert entries(directory) == []


def test_the_name_of_the_file_and_the_time_limit_are_not_in_the_key() -> None:
    assert key_of(launched={**LAUNCH, "file": "other.ptx"}) == key_of(launched=LAUNCH)
    assert key_of(launched=LAUNCH, options=replace(OPTIONS, time_limit=5.0)) == key_of(launched=LAUNCH)


def other_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(readings, "code_digest", lambda modules: "other code")


def other_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugins = registry.default()
    first, *rest = plugins.plugins
    changed = replace(plugins, plugins=(replace(first, version="99"), *rest))
    monkeypatch.setattr(registry, "default", lambda: changed)


def fewer_plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugins = registry.default()
    changed = replace(plugins, plugins=plugins.plugins[1:])
    monkeypatch.setattr(registry, "default", lambda: changed)


def other_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def other_assembler_of_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other_assembler(monkeypatch, tmp_path)
    monkeypatch.delenv("PATH")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))


def a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BITWISE_SOMETHING", "1")


@pytest.mark.parametrize(
    "change", [other_code, other_version, fewer_plugins, other_assembler, other_assembler_of_triton, a_variable]
)
def test_the_environment_is_in_the_key(
    change: Callable[[pytest.MonkeyPatch, Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = key_of(launched=LAUNCH)
    assert key_of(launched=LAUNCH) == before
    change(monkeypatch, tmp_path)
    assert key_of(launched=LAUNCH) != before


def test_the_version_of_numpy_is_known_without_an_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, stated = key_of(launched=LAUNCH), code_digest._numpy_version()
    monkeypatch.delitem(sys.modules, "numpy")
    assert code_digest._numpy_version() == stated
    assert "numpy" not in sys.modules
    folders = code_digest._folders
    (tmp_path / "version.py").write_text('version = "1.0"\n')
    monkeypatch.setattr(code_digest, "_folders", lambda name: [tmp_path] if name == "numpy" else folders(name))
    assert code_digest._numpy_version() == "1.0"
    assert key_of(launched=LAUNCH) != before


def test_an_assembler_that_changes_in_place_is_another_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other_assembler(monkeypatch, tmp_path)
    before = key_of(launched=LAUNCH)
    (tmp_path / "ptxas").write_text("#!/bin/sh\n:\n")
    assert key_of(launched=LAUNCH) != before


def test_without_known_code_nothing_is_kept(
    folder: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, analysed: list[str]
) -> None:
    monkeypatch.setattr("bitwise_core.caching.code_digest._STARTED", 0.0)
    cache = open_cache()
    assert cache is not None
    assert cache.environment is None
    found_by(folder)
    found_by(folder)
    assert len(analysed) == 2 * len(TEXTS)
    assert entries(directory) == []


def test_code_that_changes_during_a_run_ends_the_keeping(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    cache = open_cache()
    assert cache is not None
    result = AnalysisResult("a.ptx", bytes(16))
    cache.put(ANALYSIS, "0" * 64, result)
    monkeypatch.setattr(readings, "_SECONDS_BETWEEN_CHECKS", -1.0)
    monkeypatch.setattr(readings, "code_digest", lambda modules: "other code")
    cache.put(ANALYSIS, "1" * 64, result)
    assert [path.name for path in entries(directory)] == ["0" * 64]
    assert cache.fault is not None


def test_code_that_changes_before_the_first_result_ends_the_keeping(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    cache = open_cache()
    assert cache is not None
    assert cache.environment is not None
    monkeypatch.setattr(readings, "code_digest", lambda modules: "other code")
    cache.put(ANALYSIS, "0" * 64, AnalysisResult("a.ptx", bytes(16)))
    assert entries(directory) == []
    assert cache.fault is not None


@pytest.mark.parametrize(
    "change",
    [partial(replace, malformed=True), partial(replace, failed=True), partial(replace, interrupted=True)],
    ids=["malformed", "failed", "interrupted"],
)
def test_what_another_run_may_decide_otherwise_is_not_kept(change: Callable[..., Any], directory: Path) -> None:
    cache = open_cache()
    assert cache is not None
    cache.put(ANALYSIS, "0" * 64, change(AnalysisResult("a.ptx", None, "a reason")))
    assert entries(directory) == []


def test_a_missing_assembler_and_exhausted_memory_are_not_kept(
    folder: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(analysis, "prepare", exhausted)
    assert set(found_by(folder)["unknown"].values()) == {"the analysis ran out of memory"}
    assert entries(directory) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"false", b"true ", 1),
        lambda content: b"",
        lambda content: content.replace(b"null", b"1234"),
    ],
    ids=["torn", "another value", "empty", "other fields"],
)
def test_a_spoilt_entry_is_read_again(
    folder: Path, directory: Path, analysed: list[str], spoil: Callable[[bytes], bytes]
) -> None:
    first = found_by(folder)
    for path in entries(directory):
        path.write_bytes(spoil(path.read_bytes()))
    analysed.clear()
    assert found_by(folder) == first
    assert sorted(analysed) == sorted(TEXTS)
    analysed.clear()
    assert found_by(folder) == first
    assert analysed == []


def test_a_result_of_other_fields_is_not_used(directory: Path) -> None:
    cache = open_cache()
    assert cache is not None
    cache.put(ANALYSIS, "0" * 64, AnalysisResult("a.ptx", bytes(16)))
    content = cache.entries.read("0" * 64)
    assert content is not None
    contents: list[object] = [
        {**json.loads(content), "another": 1},
        {k: v for k, v in json.loads(content).items() if k != "notes"},
        {**json.loads(content), "notes": 3},
        {**json.loads(content), "signature": {"hex": "xyz"}},
        [],
    ]
    for changed in contents:
        cache.entries.write("1" * 64, json.dumps(changed).encode())
        assert cache.get(ANALYSIS, "1" * 64) is None
    assert cache.get(ANALYSIS, "0" * 64) is not None


def test_exchanged_entries_are_not_used(folder: Path, directory: Path, analysed: list[str]) -> None:
    first = found_by(folder)
    paths = entries(directory)
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    analysed.clear()
    assert found_by(folder) == first
    assert len(analysed) == len(TEXTS)


@pytest.mark.parametrize("value", ["1", "yes"])
def test_the_cache_can_be_turned_off(
    folder: Path, directory: Path, analysed: list[str], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    found_by(folder, "--no-cache")
    monkeypatch.setenv(OFF_VARIABLE, value)
    found_by(folder)
    assert len(analysed) == 2 * len(TEXTS)
    assert entries(directory) == []
    monkeypatch.setenv(OFF_VARIABLE, "0")
    found_by(folder)
    found_by(folder, "--no-cache")
    assert len(analysed) == 4 * len(TEXTS)


def a_file(directory: Path) -> None:
    directory.parent.mkdir(parents=True)
    directory.write_text("")


def a_full_disk(directory: Path) -> None:
    directory.parent.mkdir(parents=True)
    directory.symlink_to("/dev/full")


@pytest.mark.parametrize("spoil", [a_file, a_full_disk])
def test_a_folder_that_cannot_be_written_is_stated_once(
    folder: Path, directory: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(directory)
    done = CliRunner().invoke(app, ["partition", str(folder), "--json", "--workers", "1"])
    assert done.exit_code == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"bitwise: results are not kept for another run: {directory} cannot be written (")
    assert json.loads(done.stdout)["classes"][0] == ["a.ptx", "b.ptx"]
    with pytest.warns(readings.CacheWarning, match="cannot be written") as warned:
        found = bitwise.partition(folder, workers=1)
    assert len(warned) == 1
    assert found.classes[0] == ("a.ptx", "b.ptx")


def test_a_full_disk_leaves_no_part_of_an_entry(folder: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    done = CliRunner().invoke(app, ["partition", str(folder), "--json", "--workers", "1"])
    assert (done.exit_code, len(done.stderr.splitlines())) == (0, 1)
    assert "No space left on device" in done.stderr
    assert entries(directory) == []


def test_entries_belong_to_this_user_alone(folder: Path, directory: Path) -> None:
    found_by(folder)
    assert {stat.S_IMODE(path.stat().st_mode) for path in entries(directory)} == {0o600}


def test_concurrent_runs_agree(folder: Path, directory: Path) -> None:
    command = [sys.executable, "-c", "from bitwise_core.cli import main; main()", "partition", str(folder), "--json"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    found = []
    for each in runs:
        out, err = each.communicate()
        assert (each.returncode, err) == (0, b"")
        found.append(json.loads(out)["classes"])
    assert found[0] == found[1] == [["a.ptx", "b.ptx"], ["c.ptx"], ["d.ptx"], ["e.ptx"]]
    assert all(path.name == path.read_bytes().split(b"\n")[1].decode() for path in entries(directory))


def test_a_verdict_is_recalled(folder: Path, analysed: list[str]) -> None:
    def diff(right: str, *options: str) -> tuple[int, Any]:
        arguments = ["diff", str(folder / "a.ptx"), str(folder / right), "--json", "--no-search", *options]
        done = CliRunner().invoke(app, arguments)
        assert done.stderr == ""
        return done.exit_code, json.loads(done.stdout)

    for right, status, analyses in (("b.ptx", 0, 0), ("c.ptx", 4, 2), ("d.ptx", 3, 0), ("e.ptx", 3, 0)):
        first = diff(right)
        assert first[0] == status
        analysed.clear()
        assert diff(right) == first
        # What differs needs its trees again.
        assert len(analysed) == analyses
        assert diff(right, "--no-cache") == first


def test_readings_of_a_folder_serve_a_comparison(folder: Path, analysed: list[str]) -> None:
    found_by(folder)
    analysed.clear()
    left, right = folder / "a.ptx", folder / "b.ptx"
    assert bitwise.compare(str(left), str(right), folder / "manifest.json").outcome is bitwise.Outcome.EQUAL
    assert analysed == []
    assert bitwise.compare(str(left), str(right), folder / "manifest.json", cache=False).outcome.value == "equal"
    assert len(analysed) == 2


def test_the_scope_is_in_the_key(folder: Path, analysed: list[str]) -> None:
    found_by(folder)
    analysed.clear()
    assert found_by(folder, "--every-launch")["scope"] == "every launch"
    assert len(analysed) == len(TEXTS)
    analysed.clear()
    assert found_by(folder, "--every-launch")["scope"] == "every launch"
    assert analysed == []


@pytest.mark.parametrize("limit", ["MAXIMUM_LANES", "MAXIMUM_WORK"])
def test_comparisons_of_large_grids_are_recalled(
    folder: Path, analysed: list[str], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(analysis, limit, 0)
    first = found_by(folder)
    assert first["classes"][:2] == [["a.ptx", "b.ptx"], ["c.ptx"]]
    assert LARGE_GRID in first["notes"]

    def summary(*arguments: object) -> None:
        raise AssertionError("a grid is summarised again")

    monkeypatch.setattr(Session, "summary", summary)
    analysed.clear()
    assert found_by(folder) == first
    assert analysed == []
    assert (
        bitwise.compare(str(folder / "a.ptx"), str(folder / "b.ptx"), folder / "manifest.json").outcome
        is bitwise.Outcome.EQUAL
    )


def test_verdicts_on_candidates_are_recalled(analysed: list[str]) -> None:
    reference, *others = (Source(name, str(TEXTS[name]), Launch.model_validate(launch(name))) for name in TEXTS)
    found = [verdicts(reference, others, "sm_90", OPTIONS, workers=1, cache=open_cache()) for _ in range(2)]
    assert found[0] == found[1]
    assert [each.outcome.value for each in found[1]] == ["equal", "equal", "unproved", "unknown", "unknown"]
    assert len(analysed) == len(TEXTS)


def test_a_comparison_recalls_what_a_comparison_kept(analysed: list[str]) -> None:
    cache = open_cache()
    left, right = (Source(name, str(TEXTS[name])) for name in ("a.ptx", "b.ptx"))
    options = replace(OPTIONS, every_launch=True)
    found = [compare_or_recall(left, right, ("sm_90", "sm_90"), options, cache).verdict for _ in range(2)]
    assert found[0] == found[1]
    assert len(analysed) == 2


class Kind(StrEnum):
    """A kind of answer."""

    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True)
class Part:
    """A part of an answer."""

    kind: Kind
    lines: tuple[int, int] | None = None


@dataclass(frozen=True)
class Length:
    """The answer to another question about a kernel."""

    name: str
    part: Part | None
    parts: tuple[Part, ...] = ()
    whole: bytes = b""
    seconds: float = field(default=0.0, compare=False)


ASKED: list[str] = []


def length_of(session: Session, job: tuple[Source, str]) -> Length:
    ASKED.append(job[0].name)
    part = Part(Kind.LONG, (1, len(job[0].text)))
    return Length(job[0].name, part, (part, Part(Kind.SHORT)), b"\0\xff", 1.0)


@pytest.mark.parametrize("kept", [True, False])
def test_another_question_uses_the_same_pool_and_cache(kept: bool) -> None:
    reading: Reading[tuple[Source, str], Length] = Reading(
        name="length",
        answer=length_of,
        subject=lambda job: kernel_subject(*job),
        cost=lambda job: len(job[0].text),
        lost=lambda job, reason: Length(job[0].name, None),
        renamed=lambda result, job: replace(result, name=job[0].name),
        keeps=lambda result: True,
        result=Length if kept else None,
    )
    sources = [Source("a", PLAIN), Source("b", PLAIN), Source("c", NEIGHBOURS)]
    ASKED.clear()
    answers = []
    for _ in range(2):
        with readers(sources, "sm_90", OPTIONS, Execution(workers=1, cache=open_cache())) as reader:
            answers.append(reader.read_all(reading, analysis_jobs(sources, "sm_90")))
    assert sorted(ASKED) == ["a", "c"] if kept else ["a", "a", "c", "c"]
    assert answers[0] == answers[1]
    assert [each.name for each in answers[1]] == ["a", "b", "c"]
    assert answers[1][0].part is not None
    assert answers[1][0].part.kind is Kind.LONG
    assert answers[1][0].whole == b"\0\xff"


def test_the_cache_is_shown_and_cleared(folder: Path, directory: Path) -> None:
    found_by(folder)
    done = CliRunner().invoke(app, ["cache", "info", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["directory"], found["off"]) == (0, str(directory.parent), False)
    assert found["folders"]["readings"] == {"entries": len(TEXTS), "size": 4096 * len(TEXTS)}
    shown = CliRunner().invoke(app, ["cache", "info"])
    assert f"readings: {len(TEXTS)} entries" in shown.stdout
    cleared = CliRunner().invoke(app, ["cache", "clear"])
    assert (cleared.exit_code, f"readings: {len(TEXTS)} entries removed" in cleared.stdout) == (0, True)
    assert entries(directory) == []
    assert CliRunner().invoke(app, ["cache", "clear"]).exit_code == 0


def test_a_cache_that_cannot_be_read_is_an_error_of_its_commands_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not hold for every user who runs this test; a name that is too long is refused by the system."""
    base = f"/{'x' * 300}"
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    for command in ("info", "clear"):
        done = CliRunner().invoke(app, ["cache", command])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == f"bitwise: {base}/bitwise: cannot be read (File name too long)\n"
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert f"{base}/bitwise: 0 entries, 0.0 of at most 256 MiB; it cannot be written" in done.stdout


def test_a_partition_is_the_same_with_and_without_the_cache(folder: Path) -> None:
    def comparable(found: Partition) -> Partition:
        return replace(found, seconds=0.0, results=())

    fresh, kept, recalled = (
        comparable(bitwise.partition(folder, workers=1, cache=cache)) for cache in (False, True, True)
    )
    assert fresh == kept == recalled


def test_a_cache_is_of_one_environment(directory: Path) -> None:
    cache = open_cache()
    assert cache is not None
    other = ReadingCache(cache.entries, "another environment")
    source = (Source("a.ptx", PLAIN), "sm_90")
    keys = {reading_key(ANALYSIS, source, {}, OPTIONS, each) for each in (cache, other, None)}
    assert len(keys) == 3
