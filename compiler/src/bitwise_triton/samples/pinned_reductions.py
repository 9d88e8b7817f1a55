"""Reductions with a pinned order, each kernel with the free order of `tl.sum` beside it (ORDER is the empty text).

Every configuration of one order returns the same bits: the number of warps, the blocks, the tiles of a long axis and
the stages are free. The benchmark runs these same kernels.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from bitwise_triton.reductions.kernels.functions import (
    index_range,
    logsumexp,
    maximum_with_index,
    negative_zero,
    negative_zeros,
    sum_end,
    sum_into,
    tree_dot,
    tree_reduce,
    tree_sum,
    tree_welford,
    welford,
)


@triton.jit
def pinned_sum(x, axis: tl.constexpr, order: tl.constexpr, extent=None):
    """`tree_sum`, or `tl.sum` for the empty order."""
    if order == "":  # noqa: SIM108
        total = tl.sum(x, axis)
    else:
        total = tree_sum(x, axis, order, extent)
    return total


@triton.jit
def row_sum(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """One program adds ROW_BLOCK whole rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
    tl.store(y + row, pinned_sum(value, 1, ORDER), mask=row < rows)


@triton.jit
def column_sum(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """One program adds BLOCK whole columns of up to ROW_BLOCK rows."""
    row = tl.arange(0, ROW_BLOCK)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
    tl.store(y + column, pinned_sum(value, 0, ORDER), mask=column < columns)


@triton.jit
def long_row_sum(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr, TOTALS: tl.constexpr
):
    """One program adds ROW_BLOCK rows, BLOCK columns at a time; TOTALS elements of a row stay apart to the end."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    if ORDER == "":  # noqa: SIM108
        total = tl.zeros((ROW_BLOCK,), tl.float32)
    else:
        total = negative_zeros((ROW_BLOCK, TOTALS))
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
        if ORDER == "":
            total += tl.sum(value, 1)
        else:
            total = sum_into(total, value, 1, ORDER)
    if ORDER == "":
        tl.store(y + row, total, mask=row < rows)
    else:
        tl.store(y + row, sum_end(total, 1, ORDER), mask=row < rows)


@triton.jit
def long_column_sum(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr, TOTALS: tl.constexpr
):
    """One program adds BLOCK columns, ROW_BLOCK rows at a time."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if ORDER == "":  # noqa: SIM108
        total = tl.zeros((BLOCK,), tl.float32)
    else:
        total = negative_zeros((TOTALS, BLOCK))
    for start in range(0, rows, ROW_BLOCK):
        row = start + tl.arange(0, ROW_BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
        if ORDER == "":
            total += tl.sum(value, 0)
        else:
            total = sum_into(total, value, 0, ORDER)
    if ORDER == "":
        tl.store(y + column, total, mask=column < columns)
    else:
        tl.store(y + column, sum_end(total, 0, ORDER), mask=column < columns)


@triton.jit
def softmax(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """Softmax of whole rows; the maximum has no order."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None] * columns + column[None, :]
    score = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    weight = tl.exp(score - tl.max(score, 1)[:, None])
    tl.store(y + at, weight / pinned_sum(weight, 1, ORDER, columns)[:, None], mask=inside)


@triton.jit
def layer_norm(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """Rows with their mean taken away, over their standard deviation; the squares are added as `tree_dot` does."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None] * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=negative_zero()).to(tl.float32)
    mean = pinned_sum(value, 1, ORDER) / columns
    apart = tl.where(inside, value - mean[:, None], 0.0)
    if ORDER == "":  # noqa: SIM108
        squares = tl.sum(apart * apart, 1)
    else:
        squares = tree_dot(apart, apart, 1, ORDER)
    tl.store(y + at, apart / tl.sqrt_rn(squares / columns + 1e-5)[:, None], mask=inside)


@triton.jit
def row_dot(x, w, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """A matrix times a vector: ROW_BLOCK rows to a program."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(w + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    if ORDER == "":
        tl.store(y + row, tl.sum(value * weight, 1), mask=row < rows)
    else:
        tl.store(y + row, tree_dot(value, weight, 1, ORDER), mask=row < rows)


@triton.jit
def welford_rows(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """The mean and the variance of whole rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
    if ORDER == "":
        count = tl.where(column[None, :] < columns, tl.full(value.shape, 1.0, tl.float32), 0.0)
        total, squares, count = tl.reduce((value, tl.zeros_like(value), count), 1, welford)
    else:
        total, squares, count = tree_welford(value, 1, ORDER, columns)
    tl.store(y + 2 * row, tl.div_rn(total, count), mask=row < rows)
    tl.store(y + 2 * row + 1, tl.div_rn(squares, count), mask=row < rows)


@triton.jit
def even_welford_rows(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """`welford_rows` of rows of BLOCK elements, whose counts are known."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    value = tl.load(x + row[:, None] * columns + tl.arange(0, BLOCK)[None, :])
    if ORDER == "":
        ones = tl.full(value.shape, 1.0, tl.float32)
        total, squares, count = tl.reduce((value, tl.zeros_like(value), ones), 1, welford)
    else:
        total, squares, count = tree_welford(value, 1, ORDER)
    tl.store(y + 2 * row, tl.div_rn(total, count))
    tl.store(y + 2 * row + 1, tl.div_rn(squares, count))


@triton.jit
def argmax_rows(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """The place of the greatest element of whole rows, the first of equals."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=-float("inf")).to(tl.float32)
    start = (value, tl.broadcast_to(index_range(BLOCK)[None, :], (ROW_BLOCK, BLOCK)))
    if ORDER == "":
        _, place = tl.reduce(start, 1, maximum_with_index)
    else:
        _, place = tree_reduce(start, 1, maximum_with_index, ORDER)
    tl.store(y + row, place, mask=row < rows)


@triton.jit
def logsumexp_rows(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """The logarithm of the sum of the exponentials of whole rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=-float("inf")).to(tl.float32)
    start = (value, tl.where(column[None, :] < columns, tl.full(value.shape, 1.0, tl.float32), 0.0))
    if ORDER == "":
        greatest, total = tl.reduce(start, 1, logsumexp)
    else:
        greatest, total = tree_reduce(start, 1, logsumexp, ORDER)
    tl.store(y + row, greatest + tl.log(total), mask=row < rows)


@dataclass(frozen=True)
class PinnedCase:
    """A kernel, its launch, the axis that is reduced, and its configurations, the order left out.

    `buffers` are (name, dtype) of its pointers in order, the last one the result. `chunked` kernels read a long axis
    tile by tile and need an order with an open chain.
    """

    name: str
    kernel: Any
    rows: int
    columns: int
    buffers: tuple[tuple[str, str], ...]
    configurations: Sequence[Mapping[str, int]]
    axis: int = 1
    chunked: bool = False

    def grid(self, meta: Mapping[str, Any]) -> tuple[int]:
        """The programs of a launch."""
        if self.axis == 0:
            return (-(-self.columns // int(meta["BLOCK"])),)
        return (-(-self.rows // int(meta["ROW_BLOCK"])),)


FLOATS = (("x", "fp32"), ("y", "fp32"))


def space(rows: Sequence[int], blocks: Sequence[int], warps: Sequence[int], stages: Sequence[int] = (3,)) -> Any:
    """Every combination, as the constants and options of a configuration."""
    return tuple(
        {"ROW_BLOCK": row, "BLOCK": block, "num_warps": warp, "num_stages": stage}
        for row in rows
        for block in blocks
        for warp in warps
        for stage in stages
    )


def cases() -> list[PinnedCase]:
    """The kernels of the proof, small enough to be read in seconds each."""
    whole = space((1, 2, 4), (256, 512), (1, 2, 4, 8))
    few = space((1, 4), (256, 512), (1, 4))
    return [
        PinnedCase("row_sum", row_sum, 8, 200, FLOATS, whole),
        PinnedCase("column_sum", column_sum, 100, 64, FLOATS, space((128, 256), (16, 32, 64), (1, 2, 4, 8)), axis=0),
        PinnedCase(
            "long_row_sum", long_row_sum, 8, 1000, FLOATS, space((1, 4), (128, 256), (1, 4), (1, 3)), chunked=True
        ),
        PinnedCase(
            "long_column_sum", long_column_sum, 500, 32, FLOATS, space((128, 256), (16, 32), (1, 4), (1, 3)),
            axis=0, chunked=True,
        ),
        PinnedCase("softmax", softmax, 8, 200, FLOATS, few),
        PinnedCase("layer_norm", layer_norm, 8, 200, FLOATS, few),
        PinnedCase("row_dot", row_dot, 8, 200, (("x", "fp32"), ("w", "fp32"), ("y", "fp32")), few),
        PinnedCase("welford_rows", welford_rows, 8, 100, FLOATS, space((1, 4), (128,), (1, 4))),
        PinnedCase("even_welford_rows", even_welford_rows, 8, 64, FLOATS, space((1, 4), (64,), (1, 2, 4))),
        PinnedCase("argmax_rows", argmax_rows, 8, 100, (("x", "fp32"), ("y", "i32")), space((1, 4), (128,), (1, 4))),
        PinnedCase("logsumexp_rows", logsumexp_rows, 8, 100, FLOATS, space((1, 4), (128,), (1, 4))),
    ]  # fmt: skip
