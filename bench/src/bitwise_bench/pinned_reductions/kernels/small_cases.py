"""Small cases of pinned reductions: kernels of the benchmark and further ones, for tests.

Every configuration of one order returns the same bits: warps, blocks, tiles of a long axis and stages are free. ORDER
"" is the free order of `tl.sum`.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from bitwise_bench.pinned_reductions.kernels import benchmark
from bitwise_triton.reductions.kernels.functions import (
    index_range,
    logsumexp,
    maximum_with_index,
    negative_zero,
    tree_dot,
    tree_reduce,
    tree_sum,
)


@triton.jit
def pinned_sum(x, axis: tl.constexpr, order: tl.constexpr, extent=None):
    """`tree_sum`, or `tl.sum` for the order ""."""
    if order == "":  # noqa: SIM108
        total = tl.sum(x, axis)
    else:
        total = tree_sum(x, axis, order, extent)
    return total


@triton.jit
def whole_row_sum(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """One program adds ROW_BLOCK whole rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
    tl.store(y + row, pinned_sum(value, 1, ORDER, columns), mask=row < rows)


@triton.jit
def whole_column_sum(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """One program adds BLOCK whole columns of up to ROW_BLOCK rows."""
    row = tl.arange(0, ROW_BLOCK)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
    tl.store(y + column, pinned_sum(value, 0, ORDER), mask=column < columns)


@triton.jit
def row_dot(x, w, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """A matrix times a vector, ROW_BLOCK rows to a program."""
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
def argmax_rows(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """The index of the greatest element of whole rows, the first of equal ones."""
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
    """A kernel, its launch, the reduced axis, and its configurations without the order.

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

    def grid(self, flags: Mapping[str, Any]) -> tuple[int]:
        """The programs of a launch."""
        if self.axis == 0:
            return (-(-self.columns // int(flags["BLOCK"])),)
        return (-(-self.rows // int(flags["ROW_BLOCK"])),)


FLOATS = (("x", "fp32"), ("y", "fp32"))


def sources(case: PinnedCase, order: str, every: int = 1, *, target: str = "sm_90", title: str = "") -> list[Any]:
    """Every `every`-th configuration of a case in one order, compiled for `target`, as sources of the checker.

    They are named by `title` and their number. A chunked case is read in chunks of 128. Raises CaptureError.
    """
    from bitwise_triton import Buffer, compile_configuration
    from bitwise_triton.equivalence import source_of

    found = []
    for number, configuration in enumerate(case.configurations[::every]):
        constants: dict[str, object] = {"ORDER": order}
        constants |= {key: value for key, value in configuration.items() if key.isupper()}
        if case.chunked:
            constants["TOTALS"] = configuration["PIECE"] if not order else 1 if order.endswith("chain(7:)") else 128
        options: dict[str, Any] = {key: value for key, value in configuration.items() if not key.isupper()}
        arguments: dict[str, Any] = {name: Buffer(name.upper(), dtype) for name, dtype in case.buffers}
        arguments |= {"rows": case.rows, "columns": case.columns}
        captured = compile_configuration(case.kernel, arguments, constants, grid=case.grid, target=target, **options)
        found.append(source_of(captured, f"{title}{number}"))
    return found


def space(rows: Sequence[int], blocks: Sequence[int], warps: Sequence[int], stages: Sequence[int] = (3,)) -> Any:
    """Every combination, as the constants and options of a configuration."""
    return tuple(
        {"ROW_BLOCK": row, "BLOCK": block, "num_warps": warp, "num_stages": stage}
        for row in rows
        for block in blocks
        for warp in warps
        for stage in stages
    )


def with_constants(configurations: Sequence[Mapping[str, int]], **constants: int) -> Any:
    """The configurations with further constants."""
    return tuple({**configuration, **constants} for configuration in configurations)


def read_at_once(configurations: Sequence[Mapping[str, int]], name: str) -> Any:
    """The configurations of a long axis, with tiles of `name` elements read whole."""
    return tuple({**configuration, "PIECE": configuration[name]} for configuration in configurations)


def cases() -> list[PinnedCase]:
    """The small cases; each is analysed in seconds."""
    whole = space((1, 2, 4), (256, 512), (1, 2, 4, 8))
    few, small = space((1, 4), (256, 512), (1, 4)), space((1, 4), (256,), (1, 2, 4))
    even, uneven = space((1, 4), (64,), (1, 2, 4)), space((1, 4), (128,), (1, 4))
    rows = read_at_once(space((1, 4), (128, 256), (1, 4), (1, 3)), "BLOCK")
    columns = read_at_once(space((128, 256), (16, 32), (1, 4), (1, 3)), "ROW_BLOCK")
    weighted = (("x", "fp32"), ("w", "fp32"), ("b", "fp32"), ("y", "fp32"))
    tall = space((128, 256), (16, 32, 64), (1, 2, 4, 8))
    return [
        PinnedCase("whole_row_sum", whole_row_sum, 8, 200, FLOATS, whole),
        PinnedCase("whole_column_sum", whole_column_sum, 100, 64, FLOATS, tall, axis=0),
        PinnedCase("row_sum", benchmark.row_sum, 8, 1000, FLOATS, rows, chunked=True),
        PinnedCase("column_sum", benchmark.column_sum, 500, 32, FLOATS, columns, axis=0, chunked=True),
        PinnedCase("softmax", benchmark.softmax, 8, 200, FLOATS, small),
        PinnedCase("layer_norm", benchmark.layer_norm, 8, 200, weighted, small),
        PinnedCase("row_dot", row_dot, 8, 200, (("x", "fp32"), ("w", "fp32"), ("y", "fp32")), few),
        PinnedCase("welford_rows", benchmark.welford_rows, 8, 100, FLOATS, with_constants(uneven, EVEN=0)),
        PinnedCase("even_welford_rows", benchmark.welford_rows, 8, 64, FLOATS, with_constants(even, EVEN=1)),
        PinnedCase("argmax_rows", argmax_rows, 8, 100, (("x", "fp32"), ("y", "i32")), uneven),
        PinnedCase("logsumexp_rows", logsumexp_rows, 8, 100, FLOATS, uneven),
    ]
