"""Sums, products, shifts and divisions of numbers of the form block + thread.

Operands have one type, and the first or the second is a `Separable`.  A rule gives back the result for every block
still in the pass, or None where it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bitwise_core.engine.block_evaluation import by_distinct_blocks
from bitwise_core.engine.grid import Column, Grid
from bitwise_core.engine.separable import Separable, convert, exact, plain, unsigned
from bitwise_core.machine.lanes import Array

Rule: TypeAlias = Callable[[Grid, Any, Any, np.dtype[Any]], Any]


def _thread(value: Any) -> Array:
    thread: Array = value.thread if isinstance(value, Separable) else unsigned(value)
    return thread


def number_of(value: Any) -> int | None:
    """The one number of a plain array."""
    return int(value.flat[0]) if isinstance(value, np.ndarray) and value.size == 1 else None


def add(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping addition."""
    thread, signed = _thread(left) + _thread(right), dtype.kind == "i"
    if not isinstance(right, Separable):
        return Separable(grid, left.column, thread, signed)
    if not isinstance(left, Separable):
        return Separable(grid, right.column, thread, signed)
    a, b = left.column, right.column
    return plain(Separable(grid, grid.derived("add", lambda: a.values + b.values, a, b), thread, signed))


def subtract(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping subtraction."""
    thread, signed = _thread(left) - _thread(right), dtype.kind == "i"
    if not isinstance(right, Separable):
        return Separable(grid, left.column, thread, signed)
    b = right.column
    if not isinstance(left, Separable):
        zero = b.values.dtype.type(0)
        return Separable(grid, grid.derived("negative", lambda: zero - b.values, b), thread, signed)
    a = left.column
    return plain(Separable(grid, grid.derived("subtract", lambda: a.values - b.values, a, b), thread, signed))


def multiply(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping multiplication by a number that all lanes share."""
    value, factor = (left, right) if isinstance(left, Separable) else (right, left)
    number = number_of(factor)
    if number is None:
        return None
    by = unsigned(factor).reshape(1)
    column = grid.derived(("times", number), lambda: value.column.values * by, value.column)
    return plain(Separable(grid, column, value.thread * by, dtype.kind == "i"))


def left_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by an amount that all lanes share."""
    amount = number_of(right)
    if amount is None or not 0 <= amount < dtype.itemsize * 8:
        return None
    factor = np.full((1, 1), 1 << amount, dtype=np.dtype(f"uint{dtype.itemsize * 8}")).view(dtype)
    return multiply(grid, left, factor, dtype)


def right_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by an amount that all lanes share: division by a power of two, rounded down."""
    amount = number_of(right)
    if amount is None or not 0 <= amount < min(63, dtype.itemsize * 8):
        return None
    return _divide(grid, left, 1 << amount, dtype)


def floor_divide(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Division, rounded down, by a positive number that all lanes share."""
    number = number_of(right)
    return None if number is None or number <= 0 else _divide(grid, left, number, dtype)


def remainder(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """What `floor_divide` leaves."""
    number = number_of(right)
    return None if number is None or number <= 0 else what_is_left(grid, left, number, dtype)


def of_exact(grid: Grid, column: Column, thread: Array, dtype: np.dtype[Any]) -> Any:
    """The low bits of exact numbers, as many as the type has."""
    target = np.dtype(f"uint{dtype.itemsize * 8}")
    own = grid.derived(("as", target.str), lambda: column.values.astype(target), column)
    return plain(Separable(grid, own, thread.astype(target), dtype.kind == "i"))


def _parts(grid: Grid, value: Separable, number: int) -> tuple[Column, Column, Array] | None:
    """Quotient and rest of the blocks' numbers, and the threads' numbers."""
    found = exact(value)
    if found is None:
        return None
    true, thread = found
    quotient = grid.derived(("quotient", number), lambda: true.values // number, true)
    rest = grid.derived(("rest", number), lambda: true.values - quotient.values * number, true)
    return quotient, rest, thread


def _divide(grid: Grid, value: Separable, number: int, dtype: np.dtype[Any]) -> Any:
    parts = _parts(grid, value, number)
    if parts is None:
        return None
    quotient, rest, thread = parts
    low, high = grid.bounds(rest)
    whole = of_exact(grid, quotient, np.zeros((1, 1), dtype=np.int64), dtype)
    if low == high:
        return _sum(
            grid, whole, ((low + thread) // number).astype(np.dtype(f"int{dtype.itemsize * 8}")).view(dtype), dtype
        )
    if low + int(thread.min()) >= 0 and high + int(thread.max()) < number:
        return whole
    inner = of_exact(grid, rest, thread, np.dtype(np.int64))
    return _sum(grid, whole, convert(by_distinct_blocks(grid, [inner], lambda a: a // number), dtype), dtype)


def what_is_left(grid: Grid, value: Separable, number: int, dtype: np.dtype[Any]) -> Any:
    """A number less the next lower multiple of `number`, which is positive."""
    parts = _parts(grid, value, number)
    if parts is None:
        return None
    _, rest, thread = parts
    low, high = grid.bounds(rest)
    if low == high:
        return ((low + thread) % number).astype(dtype)
    inner = of_exact(grid, rest, thread, np.dtype(np.int64))
    if low + int(thread.min()) < 0 or high + int(thread.max()) >= number:
        inner = by_distinct_blocks(grid, [inner], lambda a: a % number)
    return convert(inner, dtype)


def _sum(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    left, right = plain(left), plain(right)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left + right
    return add(grid, left, right, dtype)


def invert(grid: Grid, value: Any, _: Any, dtype: np.dtype[Any]) -> Any:
    """-1 - x."""
    if dtype.kind == "b":
        return None
    minus_one = np.full((1, 1), -1, dtype=np.dtype(f"int{dtype.itemsize * 8}")).view(dtype)
    return subtract(grid, minus_one, value, dtype)
