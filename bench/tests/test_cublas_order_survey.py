from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.cublas.orders import order_survey, order_survey_check
from bitwise_bench.cublas.orders.order_survey import packed, unpacked
from bitwise_bench.cublas.orders.summation_trees import digest, tree_of
from bitwise_bench.cublas.row_evidence import count_evidence
from bitwise_core.descriptors import Cut, GEMMDesc, Group, Instruction, per_mma
from bitwise_cublas_profiles.profile import SECTIONS, profile
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, HeuristicResult

RECORDS = Path(__file__).parents[2] / "records"


def scalar(k: int, *cuts: Cut) -> GEMMDesc:
    return GEMMDesc(k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=cuts)


@pytest.mark.parametrize(
    ("desc", "nodes"),
    [
        (scalar(3), ((0, 1), (-1, 2))),
        (scalar(4, Cut(count=2)), ((0, 1), (2, 3), (-1, -2))),
        (scalar(4, Cut(layout="strided", count=4, merge="halves")), ((0, 2), (1, 3), (-1, -2))),
        (scalar(4, Cut(layout="strided", count=4, merge="neighbours")), ((0, 1), (2, 3), (-1, -2))),
        # Three of eight lanes hold values; a lane with +0 has no effect on the order.
        (scalar(3, Cut(layout="strided", count=8, merge="halves")), ((0, 2), (-1, 1))),
        (scalar(5, Cut(layout="strided", count=5, groups=(Group(count=2),))), ((0, 2), (-1, 4), (1, 3), (-2, -3))),
        (
            per_mma(20, "fp16", Instruction(architecture="sm_90", family="mma.sync", k=16), k_loop_step=16),
            ((0, 1, 2, 3), (-1, *range(4, 20))),
        ),
    ],
)
def test_the_tree_of_a_descriptor(desc: GEMMDesc, nodes: tuple[tuple[int, ...], ...]) -> None:
    tree = tree_of(desc)
    assert tree.nodes == nodes
    assert unpacked(packed(tree)) == tree


def read(version: str) -> list[dict[str, object]]:
    path = RECORDS / f"cublas-survey-sm90-h100-{version}.jsonl.xz"
    if not path.exists():
        pytest.skip("the records are in the source, not here")
    return order_survey_check.read(path)[1]


@pytest.mark.parametrize("version", ["13.1", "12.8"])
def test_surveyed_orders_match_the_profile(version: str) -> None:
    known, lines = profile(version, "9.0"), read(version)
    # The heuristic never selected algorithm 35 or slices of algorithm 56, so they have no rows.
    short = [
        case
        for case in order_survey_check.cases(lines)
        if case[0].k <= 333 and case[1].algorithm != 35 and (case[1].algorithm, case[1].split_k) != (56, 3)
    ]
    assert len(short) > 1000
    assert all(order_survey_check.agrees(case, known) for case in short)
    more = {41, 42, 56, 66} if version == "13.1" else set()
    assert {case[1].algorithm for case in short} >= {11, 13, 16, 21, 23, 24} | more


def test_a_wrong_row_is_found_by_its_orders() -> None:
    known, lines = profile("13.1", "9.0"), read("13.1")
    (case,) = [
        each
        for each in order_survey_check.cases(lines)
        if (each[1].custom, each[0].k, each[0].m, each[0].transposes) == (72, 333, 512, "NN")
    ]
    tables, wrong = count_evidence(known, [], [case])
    (row,) = [row for row in tables["lanes"] if row["custom"] == 72]
    assert (row["provenance"], row["orders"], row["transposes"], wrong) == ("measured", 1, ["NN"], [])
    assert "shapes" not in row
    other = {**case[2], "digest": digest(tree_of(scalar(333)))}
    tables, wrong = count_evidence(known, [], [(*case[:2], other)])
    assert len(wrong) == 1
    assert wrong[0].startswith("a surveyed order: 512x1x333 fp16 NN to fp32")
    assert set(tables) == set(SECTIONS)


def test_a_survey_is_checked_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = {"library version": "13.1.0", "capability": "9.0", "algorithms": {}}
    found = {"m": 3, "n": 40, "k": 9, "a": "fp16", "transposes": "NN", "c": "fp32", "algorithm": 16, "split_k": 1}
    right = {**found, "digest": digest(tree_of(scalar(9))), "words": "a chain"}
    file = tmp_path / "survey.jsonl"
    content = [about, right, {**found, "open": ["nothing"]}, {**right, "algorithm": 57}]
    file.write_text("\n".join(map(json.dumps, content)), encoding="utf-8")
    assert order_survey_check.main([str(file)]) == 0
    assert capsys.readouterr().out == (
        "algorithm 16: 1 equal\nalgorithm 16: 1 open\nalgorithm 57: 1 algorithm 57 has no row\n"
    )
    content[1] = {**right, "digest": "0"}
    file.write_text("\n".join(map(json.dumps, content)), encoding="utf-8")
    assert order_survey_check.main([str(file)]) == 1


class Accepting:
    """A library with some algorithms that accepts one configuration of each."""

    def __init__(self) -> None:
        self.tried: list[Configuration] = []

    def algorithms(self, query: GemmQuery) -> tuple[int, ...]:
        return (13, 14, 16, 24, 99)

    def capabilities(self, query: GemmQuery, algorithm: int) -> dict[str, tuple[int, ...]]:
        if algorithm == 99:
            raise CublasError("it has none")
        return {"customs": (2 if algorithm == 13 else 0,), "stages": (7, 8), "tiles": (5, 11)}

    def check_configuration(self, query: GemmQuery, configuration: Configuration) -> HeuristicResult:
        self.tried.append(configuration)
        if configuration.tile == 5:
            raise CublasError("another tile")
        return HeuristicResult(configuration, 0, 1.0, b"")


def test_every_algorithm_option_and_stage_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = Accepting()
    found = order_survey.cases(library, ["fp16"])
    assert [query.k for query, _ in found] == sorted(query.k for query, _ in found)
    kinds = Counter(each[0].algorithm for _, each in found)
    # Three lengths, two directions, four layouts and three options; blocks; three shapes; two lengths and two stages.
    assert kinds == {13: 72, 14: 24, 16: 36, 24: 16}
    assert {(query.m, query.n) for query, each in found if each[0].algorithm == 13} == {(512, 1), (1, 512)}
    query, configurations = next(case for case in found if case[1][0].algorithm == 24)
    monkeypatch.setattr(order_survey, "read", lambda *_: {"open": [], "digest": "0"})
    line = order_survey.line(library, query, configurations)
    assert [each.tile for each in library.tried] == [5, 11]
    assert line == {
        "m": 64, "n": 64, "k": 75, "a": "fp16", "transposes": "NN", "c": "fp32", "algorithm": 24, "tile": 11,
        "stages": 7, "split_k": 1, "open": [], "digest": "0",
    }  # fmt: skip
    assert order_survey.line(library, query, configurations[:1]) is None
