"""Bitwise functions of numbers of the form block + thread, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitwise_core.engine.block_linear import Rule, number_of, of_exact, subtract, what_is_left
from bitwise_core.engine.grid import Column, Grid
from bitwise_core.engine.separable import Separable, exact, plain
from bitwise_core.machine.lanes import Array


def bitwise(ufunc: np.ufunc) -> Rule:
    """The rule of a bitwise function of unsigned numbers."""

    def rule(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "i":
            return None
        if ufunc is np.bitwise_and:
            for value, mask in ((left, right), (right, left)):
                number = number_of(mask)
                if number is not None:
                    masked = _low_or_high(grid, value, number, dtype)
                    if masked is not None:
                        return masked
        return _by_fields(grid, ufunc, [left, right], dtype)

    return rule


def _low_or_high(grid: Grid, value: Separable, mask: int, dtype: np.dtype[Any]) -> Any:
    """A mask of the low bits is a remainder; a mask of the high bits takes the remainder away."""
    full = (1 << dtype.itemsize * 8) - 1
    if mask & (mask + 1) == 0 and mask < 1 << 62:
        return what_is_left(grid, value, mask + 1, dtype)
    low = full & ~mask
    if low & (low + 1) == 0 and low < 1 << 62:
        rest = what_is_left(grid, value, low + 1, dtype)
        if rest is None:
            return None
        return subtract(grid, value, rest, dtype) if isinstance(plain(value), Separable) else plain(value) - rest
    return None


def _by_fields(grid: Grid, ufunc: np.ufunc, values: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """Where the blocks' numbers keep to high bits and the threads' to low ones, each field has its own result."""
    columns: list[Column | int] = []
    threads: list[Array] = []
    for value in values:
        if not isinstance(value, Separable):
            if (value >> value.dtype.type(value.dtype.itemsize * 8 - 1)).any():
                return None
            columns.append(0)
            threads.append(value.astype(np.int64))
            continue
        found = exact(value)
        if found is None or grid.bounds(found[0])[0] < 0:
            return None
        columns.append(found[0])
        threads.append(found[1])
    split = _split_fields(grid, columns, threads)
    if split is None:
        return None
    highs, lows = split
    blocks = [each for each in highs if isinstance(each, Column)]
    key = (ufunc.__name__, tuple(-1 if isinstance(each, Column) else each for each in highs))
    column = grid.derived(
        key, lambda: ufunc(*(each.values if isinstance(each, Column) else np.int64(each) for each in highs)), *blocks
    )
    return of_exact(grid, column, ufunc(*lows), dtype)


def _split_fields(
    grid: Grid, columns: Sequence[Column | int], threads: Sequence[Array]
) -> tuple[list[Column | int], list[Array]] | None:
    for _ in range(4):
        wide = [
            thread
            for thread, column in zip(threads, columns, strict=True)
            if isinstance(column, Column) or thread.size > 1
        ]
        if min(int(each.min()) for each in threads) < 0:
            return None
        unit = 1 << max(int(each.max()) for each in wide).bit_length()
        if unit >= 1 << 63:
            return None  # a column's numbers are 64 bits wide: nothing lies above such a field
        highs: list[Column | int] = []
        lows: list[Array] = []
        for column, thread in zip(columns, threads, strict=True):
            if not isinstance(column, Column):
                number = int(thread.flat[0]) // unit * unit if thread.size == 1 else 0
                highs.append(number)
                lows.append(thread - number)
                continue
            low, high = grid.bounds(_modulo(grid, column, unit))
            if low != high:
                return None
            highs.append(_shifted(grid, column, -low))
            lows.append(thread + low)
        if all(int(each.max()) < unit for each in lows):
            return highs, lows
        columns, threads = highs, lows
    return None


def _modulo(grid: Grid, column: Column, unit: int) -> Column:
    return grid.derived(("rest", unit), lambda: column.values % unit, column)


def _shifted(grid: Grid, column: Column, by: int) -> Column:
    if not by:
        return column
    with np.errstate(over="ignore"):
        return grid.derived(("plus", by), lambda: column.values + by, column)
