"""Sixteen reductions over different dimensions and axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument, Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result
from bitwise_bench.corpus.kernels.row_reductions import row_sum, rows_sum, tail_sum
from bitwise_bench.corpus.kernels.tile_reductions import (
    column_sum,
    column_sum_loop,
    row_sum_loop,
    row_sum_two_level,
    square_sum_all,
)
from bitwise_bench.published_corpus.grids import SUM, WARPS, Extent, Kernel, tuned

ROWS, COLUMNS = 8, 1000
"""The matrix whose rows are summed."""

TALL, WIDE = 128, 96
"""The matrix whose columns are summed."""

BOX = (16, 16, 64)
"""The array that is summed along one of three axes."""

PLANES, PLANE = 8, 2048
"""Sums of all elements of a plane; the tiles are factorisations of its number of elements."""


@triton.jit
def box_sum(
    source,
    target,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    TILE_B: tl.constexpr,
    TILE_C: tl.constexpr,
    AXIS: tl.constexpr,
):
    """Sum of an array (A, B, C) along AXIS, in tiles (A, TILE_B, TILE_C)."""
    i = tl.arange(0, A)
    j = tl.program_id(0) * TILE_B + tl.arange(0, TILE_B)
    k = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    values = tl.load(source + i[:, None, None] * (B * C) + j[None, :, None] * C + k[None, None, :]).to(tl.float32)
    total = tl.sum(values, axis=AXIS)
    if AXIS == 0:
        tl.store(target + j[:, None] * C + k[None, :], total)
    elif AXIS == 1:
        tl.store(target + i[:, None] * C + k[None, :], total)
    else:
        tl.store(target + i[:, None] * B + j[None, :], total)


@triton.jit
def row_dot(left, right, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    x = tl.load(left + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(right + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + row, tl.sum(x * y, axis=0))


def reduction(
    name: str,
    function: Any,
    arguments: Callable[[str], list[Argument]],
    tiles: Sequence[tuple[dict[str, Any], tuple[int, ...]]],
    **constants: Any,
) -> Kernel:
    """Return a kernel in every tile, given by its constants and its grid of blocks, number of warps and option."""

    def grid(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
        launched = arguments(dtype)
        for (tile, blocks), warps, (stages, options) in product(tiles, WARPS, list(tuned(target, extent))):
            yield configure(
                name,
                dtype,
                function,
                launched,
                blocks,
                warps=warps,
                stages=stages,
                options=dict(options),
                **tile,
                **constants,
            )

    return Kernel(name, grid)


def _rows(dtype: str) -> list[Argument]:
    return [given("source", dtype, ROWS * COLUMNS), result("target", SUM, ROWS), *numbers(columns=COLUMNS)]


def _many_rows(dtype: str) -> list[Argument]:
    rows, columns = 4 * ROWS, 500
    return [
        given("source", dtype, rows * columns),
        result("target", SUM, rows),
        *numbers(rows=rows, columns=columns),
    ]


def _spans(dtype: str) -> list[Argument]:
    return [*_rows(dtype), *numbers(span=256)]


def _columns(dtype: str) -> list[Argument]:
    return [
        given("source", dtype, TALL * WIDE),
        result("target", SUM, WIDE),
        *numbers(rows=TALL, columns=WIDE),
    ]


def _planes(dtype: str) -> list[Argument]:
    return [given("source", dtype, PLANES * PLANE), result("target", SUM, PLANES)]


def _pairs(dtype: str) -> list[Argument]:
    left, right = given("left", dtype, ROWS * COLUMNS), given("right", dtype, ROWS * COLUMNS)
    return [left, right, result("target", SUM, ROWS), *numbers(columns=COLUMNS)]


def _box(axis: int) -> Callable[[str], list[Argument]]:
    left = BOX[0] * BOX[1] * BOX[2] // BOX[axis]
    return lambda dtype: [
        given("source", dtype, BOX[0] * BOX[1] * BOX[2]),
        result("target", SUM, left),
    ]


def _blocks(*sizes: int) -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    return [({"BLOCK": size}, (ROWS,)) for size in sizes]


_WHOLE_ROWS = _blocks(1024, 2048, 4096)
_STRIPS: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"ROWS": TALL, "COLUMNS": wide}, (ceil_div(WIDE, wide),)) for wide in (8, 16, 32)
]
_STEPS: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"ROWS": tall, "COLUMNS": 32}, (ceil_div(WIDE, 32),)) for tall in (16, 32, 64)
]
_PLANES: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"ROWS": tall, "COLUMNS": PLANE // tall}, (PLANES,)) for tall in (8, 16, 32)
]


def _box_tiles(axis: int) -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    a, b, c = BOX
    sizes = {"A": a, "B": b, "C": c, "AXIS": axis}
    if axis == 2:
        return [({**sizes, "TILE_B": tile, "TILE_C": c}, (b // tile, 1)) for tile in (1, 2, 4)]
    return [({**sizes, "TILE_B": b, "TILE_C": tile}, (1, c // tile)) for tile in (2, 4, 8)]


KERNELS: tuple[Kernel, ...] = (
    reduction("row_sum", row_sum, _rows, _WHOLE_ROWS),
    reduction(
        "row_sum_tile",
        rows_sum,
        _many_rows,
        [({"ROWS": tall, "BLOCK": 512}, (4 * ROWS // tall,)) for tall in (2, 4, 8)],
    ),
    reduction("row_sum_loop", row_sum_loop, _rows, _blocks(128, 256, 512), EARLY=False),
    reduction("row_sum_loop_early", row_sum_loop, _rows, _blocks(128, 256, 512), EARLY=True),
    reduction("row_sum_two_level", row_sum_two_level, _spans, _blocks(64, 128, 256)),
    reduction("row_dot", row_dot, _pairs, _WHOLE_ROWS),
    reduction("row_square_sum", tail_sum, _rows, _WHOLE_ROWS, KIND="square"),
    reduction("column_sum", column_sum, _columns, _STRIPS),
    reduction("column_sum_loop", column_sum_loop, _columns, _STEPS, EARLY=False),
    reduction("column_sum_loop_early", column_sum_loop, _columns, _STEPS, EARLY=True),
    reduction("box_sum_outer", box_sum, _box(0), _box_tiles(0)),
    reduction("box_sum_middle", box_sum, _box(1), _box_tiles(1)),
    reduction("box_sum_inner", box_sum, _box(2), _box_tiles(2)),
    reduction("plane_sum", square_sum_all, _planes, _PLANES, FIRST=2),
    reduction("plane_sum_rows_first", square_sum_all, _planes, _PLANES, FIRST=0),
    reduction("plane_sum_columns_first", square_sum_all, _planes, _PLANES, FIRST=1),
)
