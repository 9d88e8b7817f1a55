"""Softmax over the rows of a matrix: a block of rows to a program, a whole row to a tile."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from bitwise_triton.arguments import Buffer
from bitwise_triton.samples.sample import Sample

ROWS, COLUMNS = 64, 1000


@triton.jit
def softmax_rows(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """One program normalises ROW_BLOCK rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None] * columns + column[None, :]
    score = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    weight = tl.exp(score - tl.max(score, axis=1)[:, None])
    tl.store(y + at, weight / tl.sum(weight, axis=1)[:, None], mask=inside)


def configurations() -> list[Any]:
    """The tuning space."""
    return [
        triton.Config({"ROW_BLOCK": row_block, "BLOCK": block}, num_warps=warps)
        for row_block in (1, 2, 4)
        for block in (1024, 2048)
        for warps in (1, 2, 4, 8)
    ]


def grid(meta: dict[str, Any]) -> tuple[int]:
    """The blocks of rows."""
    return (-(-int(meta["rows"]) // int(meta["ROW_BLOCK"])),)


SAMPLE = Sample(
    name="softmax_rows",
    title=f"Softmax of {ROWS} rows of {COLUMNS}, fp16 to fp32",
    kernel=softmax_rows,
    configurations=configurations(),
    arguments={"x": Buffer("X", "fp16"), "y": Buffer("Y", "fp32"), "rows": ROWS, "columns": COLUMNS},
    grid=grid,
    element="Y[0]",
)
