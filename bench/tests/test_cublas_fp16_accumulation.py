"""The campaign of products that are accumulated in fp16: counts by kernel, and by a row of the profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.cublas.fp16_accumulation import by_kernel, counted

RECORD = Path(__file__).resolve().parents[2] / "records" / "cublas-fp16-accumulation-sm90-h200-13.1.json"
ROWS = [
    [1, 8, 9, 7, "NN", [21, 15, 18, 1, 0, 0], "equal"], [2, 8, 9, 7, "NT", [21, 15, 18, 3, 2, 0], "equal"],
    [3, 8, 9, 7, "NN", [21, 15, 18, 5, 2, 0], "different"],
    [4, 8, 9, 7, "NN", [39, 1, 1, 1, 0, 0], "not described: why"],
]  # fmt: skip


def test_outcomes_are_counted_by_kernel() -> None:
    assert by_kernel(ROWS) == {
        "algorithm 21, no slices, REDUCTION_SCHEME 0": {"equal": 1},
        "algorithm 21, slices, REDUCTION_SCHEME 2": {"equal": 1, "different": 1},
        "algorithm 39, no slices, REDUCTION_SCHEME 0": {"not described": 1},
    }


def test_a_row_of_the_profile_counts_its_kernel() -> None:
    row = {"algorithm": 21, "sliced": True, "reductions": [2]}
    assert counted(row, ROWS) == (1, 1)
    assert counted({**row, "sliced": False, "reductions": [0]}, ROWS) == (1, 0)
    assert counted({**row, "reductions": [1]}, ROWS) == (0, 0)


def test_no_product_of_the_record_differs() -> None:
    if not RECORD.exists():
        pytest.skip("records are not part of an installed distribution")
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    assert len(rows) > 100
    assert {row[-1] for row in rows} == {"equal"}
