"""What relu returns for a NaN: the rows of the data file are those of the records, and mixed kernels are refused."""

from __future__ import annotations

import json
import lzma
from typing import Any

import pytest

from bitwise_bench.cublas.orders.relu_of_nans import COLUMNS, RECORDS, rows_of
from bitwise_cublas_profiles.profile import profile


def record(*rows: tuple[str, int, int, int, int, int]) -> dict[str, Any]:
    """Return a record of calls: type, algorithm, slices, reduction, NaNs and zeros."""
    listed = [
        [dtype, 8, 8, 8, "NN", 1.0, [algorithm, 0, 0, split, reduction, 0, 0, 0, 0], nans, zeros, 0, 0]
        for dtype, algorithm, split, reduction, nans, zeros in rows
    ]
    return {"columns": list(COLUMNS), "rows": listed}


def test_rows_of_the_data_file_are_those_of_the_records() -> None:
    assert RECORDS
    records = [json.loads(lzma.decompress(path.read_bytes())) for path in RECORDS]
    rows = [dict(row) for row in profile("13.1", "9.0").tables["rectifiers"]]
    assert rows == rows_of(records)
    assert {row["nan"] for row in rows} == {"kept", "zero"}


def test_kernels_are_told_apart_by_slices_reduction_and_type() -> None:
    rows = rows_of([record(("bf16", 24, 1, 0, 0, 5), ("bf16", 24, 2, 4, 7, 0)), record(("fp16", 24, 1, 0, 0, 2))])
    shown = [(row["algorithm"], row["sliced"], row["dtypes"], row["nan"], row["sampled"]) for row in rows]
    assert shown == [(24, False, ["bf16", "fp16"], "zero", 2), (24, True, ["bf16"], "kept", 1)]


def test_kernels_of_one_row_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="return NaNs and zeros"):
        rows_of([record(("bf16", 24, 1, 0, 0, 5), ("bf16", 24, 1, 0, 3, 0))])
