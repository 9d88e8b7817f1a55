"""Block symmetry on grids that can be executed in full as well: both give the same results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.checker import analysis
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.comparison import compare, session_of
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.checker.partition import partition
from bitwise_core.checker.results import LARGE_GRID
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli import app
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

TEXTS: dict[str, str | bytes] = {
    "a.ptx": row_sum(),
    "b.ptx": row_sum(neighbours=True),
    "c.ptx": row_sum(swapped=True),
    "d.ptx": row_sum(rows=2),
    "e.ptx": row_sum(neighbours=True, swapped=True),
}
LAUNCHES = [launch(name, rows=2 if name == "d.ptx" else 1) for name in TEXTS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, TEXTS, LAUNCHES)


LIMITS = {"threads": "MAXIMUM_LANES", "work": "MAXIMUM_WORK", "stores": "MOST_STORED_AT_ONCE"}


@pytest.fixture(params=list(LIMITS))
def all_grids_are_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All grids are large, by the number of threads, of thread steps, or of stored elements."""
    monkeypatch.setattr(analysis, LIMITS[request.param], 0)


def run_json(*arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.stderr == ""
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.usefixtures("all_grids_are_large")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_block_symmetry_finds_the_classes_of_full_execution(folder: Path, workers: str) -> None:
    _, found = run_json("partition", str(folder), "--workers", workers)
    assert found["classes"] == [["a.ptx", "c.ptx", "d.ptx"], ["b.ptx", "e.ptx"]]
    assert found["unknown"] == {}
    assert LARGE_GRID in found["notes"]


def test_full_execution_finds_the_same_classes(folder: Path) -> None:
    _, found = run_json("partition", str(folder), "--workers", "1")
    assert found["classes"] == [["a.ptx", "c.ptx", "d.ptx"], ["b.ptx", "e.ptx"]]
    assert LARGE_GRID not in found["notes"]


@pytest.mark.usefixtures("all_grids_are_large")
def test_a_difference_has_a_first_divergence(folder: Path) -> None:
    status, found = run_json("diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--no-search")
    assert (status, found["outcome"], found["divergence"]["element"]) == (4, "unproved", "Y[0]")
    assert found["divergence"]["left"]["node"] == "add.rn.fp32(X[0], X[32])"
    assert found["divergence"]["right"]["node"] == "add.rn.fp32(X[0], X[1])"
    assert run_json("diff", str(folder / "a.ptx"), str(folder / "d.ptx"))[0] == 0


@pytest.mark.usefixtures("all_grids_are_large")
def test_an_element_that_one_side_does_not_store(folder: Path) -> None:
    write(folder, {}, [launch("a.ptx"), launch("b.ptx", grid=[3])])
    status, found = run_json("diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--no-search")
    assert (status, found["divergence"]["element"]) == (4, "Y[3]")
    assert found["divergence"]["why_not"] == "b.ptx does not store an element of that width there"


@pytest.mark.usefixtures("all_grids_are_large")
def test_the_tree_of_an_element_in_another_block(folder: Path) -> None:
    done = CliRunner().invoke(app, ["tree", str(folder / "d.ptx"), "--element", "Y[3]", "--whole"])
    assert done.exit_code == 0
    loads = [line.strip() for line in done.stdout.splitlines() if "X[" in line]
    assert sorted(loads) == sorted(f"X[{192 + index}]" for index in range(64))
    done = CliRunner().invoke(app, ["tree", str(folder / "d.ptx"), "--element", "Y[4]"])
    assert (done.exit_code, done.stderr) == (
        2,
        "bitwise: --element: d.ptx does not store Y[4]; nothing is stored there\n",
    )


def test_a_grid_with_too_many_blocks_is_unknown(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": row_sum()}, [{**launch("a.ptx"), "grid": [2**31 - 1, 2**31 - 1]}])
    _, found = run_json("partition", str(folder), "--workers", "1")
    assert found["unknown"]["a.ptx"].endswith(
        "are not proved to be translations of each other: the grid has more than 67108864 blocks"
    )


@pytest.mark.usefixtures("all_grids_are_large")
def test_a_kernel_with_a_race_is_unknown(folder: Path) -> None:
    race = row_sum().replace("add.s64 %rd6, %rd2, %rd5;", "mov.u64 %rd6, %rd2;")
    write(folder, {"b.ptx": race, "c.ptx": race}, None)
    _, found = run_json("partition", str(folder), "--workers", "1")
    assert found["classes"] == [["a.ptx", "d.ptx"], ["b.ptx"], ["c.ptx"], ["e.ptx"]]
    assert list(found["unknown"]) == ["b.ptx", "c.ptx"]


@pytest.mark.usefixtures("all_grids_are_large")
def test_a_session_caches_the_most_recent_summaries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arch, options = registry.default().arch("sm_90"), Options(audit_contraction=False)
    sources = [read_kernel(str(folder / name)) for name in ("a.ptx", "b.ptx", "c.ptx")]
    session = session_of(tuple(sources), options)
    assert all(session.analyse(source, arch).large for source in sources)
    first = session.summary(sources[0], arch)
    assert session.summary(sources[0], arch) is first
    monkeypatch.setattr(analysis, "MAXIMUM_SUMMARIES", 1)
    session.summary(read_kernel(str(folder / "d.ptx")), arch)
    assert session.summary(sources[0], arch) is not first


@pytest.mark.usefixtures("all_grids_are_large")
def test_a_comparison_prepares_each_kernel_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []

    def counted(source: Source, arch: Arch, options: Options) -> PreparedLaunch:
        prepared.append(source.name)
        return prepare(source, arch, options)

    prepare = analysis.prepare
    monkeypatch.setattr(analysis, "prepare", counted)
    left, right = (read_kernel(str(folder / name)) for name in ("a.ptx", "b.ptx"))
    found = compare(left, right, registry.default().arch("sm_90"), Options())
    assert found.verdict.divergence is not None
    assert prepared == ["a.ptx", "b.ptx"]


def test_a_launch_that_stores_too_many_elements_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source("a.ptx", row_sum(), Launch.model_validate(launch("a.ptx")))]
    assert partition(sources, "sm_90", Options(audit_contraction=False)).unknown == {}
    monkeypatch.setattr("bitwise_core.execution.memory.global_memory.MAXIMUM_STORED", 0)
    (reason,) = partition(sources, "sm_90", Options(audit_contraction=False)).unknown.values()
    assert reason.startswith("the launch stores more than 0 elements, which is more than is followed one by one")


@pytest.mark.parametrize("error", [NotSymmetric("no translation"), Unsupported("not followed for one block")])
@pytest.mark.parametrize("limit", ["MAXIMUM_WORK", "MOST_STORED_AT_ONCE"])
def test_where_block_symmetry_proves_nothing_all_blocks_are_executed(
    monkeypatch: pytest.MonkeyPatch, limit: str, error: Exception
) -> None:
    source = Source("a.ptx", row_sum(), Launch.model_validate(launch("a.ptx")))
    arch, buffers, options = registry.default().arch("sm_90"), {"X": 1, "Y": 2}, Options(audit_contraction=False)
    whole = analysis.analyse(source, arch, buffers, options)

    def refused(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(analysis, "summarise", refused)
    monkeypatch.setattr(analysis, limit, 0)
    found = analysis.analyse(source, arch, buffers, options)
    assert whole.signature is not None
    assert found.signature == whole.signature
