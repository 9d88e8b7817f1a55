"""Comparisons of numbers of the form block + thread: of their difference with 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitwise_core.engine.block_linear import Rule
from bitwise_core.engine.grid import Column, Grid
from bitwise_core.engine.separable import Separable, exact, plain
from bitwise_core.machine.lanes import Array


def comparison(compare: Callable[[Any, Any], Any], swap: bool) -> Rule:
    """`compare` of the difference with 0; `swap` exchanges the operands first."""

    def rule(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "b":
            return None
        one, two = (_exact_or_plain(value) for value in ((right, left) if swap else (left, right)))
        if one is None or two is None:
            return None
        (a, x), (b, y) = one, two
        if min(int(x.min()), int(y.min())) < -(1 << 61) or max(int(x.max()), int(y.max())) > 1 << 61:
            return None
        return _compare(grid, compare, a, b, x - y)

    return rule


def _exact_or_plain(value: Any) -> tuple[Column | None, Array] | None:
    if isinstance(value, Separable):
        return exact(value)
    if value.dtype == np.uint64 and (value >> np.uint64(63)).any():
        return None
    return None, value.astype(np.int64)


def _compare(grid: Grid, compare: Callable[[Any, Any], Any], a: Column | None, b: Column | None, thread: Array) -> Any:
    if a is b:
        return compare(thread, 0)
    for column in (a, b):
        if column is not None and (grid.bounds(column)[0] < -(1 << 61) or grid.bounds(column)[1] > 1 << 61):
            return None
    if b is None:
        assert a is not None
        difference = a
    elif a is None:
        difference = grid.derived("negative", lambda: -b.values, b)
    else:
        difference = grid.derived("subtract", lambda: a.values - b.values, a, b)
    least, most = int(thread.min()), int(thread.max())
    low, high = grid.bounds(difference)
    always = _over_range(compare, low + least, high + most)
    if always is not None:
        return np.full((1, 1), always)
    numbers = grid.on(difference)
    ends = compare(numbers + least, 0), compare(numbers + most, 0)
    if compare is np.equal:
        true = ends[0] & ends[1]
        mixed = ~true & (numbers + least <= 0) & (numbers + most >= 0)
    else:
        true, mixed = ends[0] & ends[1], ends[0] ^ ends[1]
    keys = np.where(mixed, numbers - low + 1, 0)
    kept = keys == keys[0]
    grid.narrow(keys)
    if mixed[0]:
        return compare(numbers[0] + thread, 0)
    return plain(Separable(grid, grid.spread(true[kept]), np.zeros((1, 1), dtype=bool)))


def _over_range(compare: Callable[[Any, Any], Any], low: int, high: int) -> bool | None:
    """The comparison with 0 if it is the same for all numbers from `low` to `high`."""
    if compare is np.equal:
        return False if low > 0 or high < 0 else True if low == high == 0 else None
    ends = bool(compare(low, 0)), bool(compare(high, 0))
    return ends[0] if ends[0] == ends[1] else None


def unequal(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Where the difference is not 0."""
    result = comparison(np.equal, False)(grid, left, right, dtype)
    return None if result is None else ~result
