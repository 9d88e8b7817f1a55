from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.library_measurements import comparison, kinds, recorded
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, HeuristicResult

TABLE = Path(__file__).parents[2] / "plugins" / "cublas_profiles" / "tests" / "heuristics-sm90-h200-13.1.json"


class Replayed:
    """A library with the recorded results, except one attribute of one shape."""

    def __init__(self) -> None:
        columns, rows = recorded(TABLE)
        self.results = {tuple(row[:4]): dict(zip(columns[4:], row[4:], strict=True)) for row in rows}
        self.results[4, 512, 11528, "fp16"]["split_k"] = 7
        self.results[4, 512, 11528, "bf16"]["tile"] = 7

    def heuristic(self, query: GemmQuery, count: int = 1) -> tuple[HeuristicResult, ...]:
        found = self.results.get((query.m, query.n, query.k, query.a))
        if found is None:
            raise CublasError(f"no algorithm for {query.description}")
        return (HeuristicResult(Configuration(**found), 0, 1.0, bytes(64)),)


def test_changed_heuristic_results_are_counted() -> None:
    library: Any = Replayed()
    found = comparison(library, argparse.Namespace(recorded=TABLE))
    assert found.pop("microseconds a question") > 0
    moved = found.pop("answers that differ")
    assert found == {
        "asked": 505, "differ": 2, "differ in a deciding field": 1, "fields": {"split_k": 1, "tile": 1},
    }  # fmt: skip
    assert [each[:4] for each in moved] == [[4, 512, 11528, "fp16"], [4, 512, 11528, "bf16"]]


def test_a_query_without_result_is_recorded() -> None:
    library: Any = Replayed()
    found = kinds(library, argparse.Namespace())
    texts = {each["question"]: each.get("error") for each in found}
    for words in ("256x512x1024 e4m3 TT to bf16", "8 x 256x512x1024 tf32 NN to fp32"):
        assert texts[words] == f"no algorithm for {words}"
