"""A function of numbers of the form block + thread, evaluated on each distinct block.

Blocks whose result is not the reference's plus one number per block are set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bitwise_core.engine.grid import Grid, NotTranslations
from bitwise_core.engine.separable import Separable, plain, unsigned
from bitwise_core.machine.lanes import Array


def by_column(grid: Grid, key: tuple[Any, ...], values: Sequence[Any], evaluate: Callable[..., Any]) -> Any:
    """A function of numbers that do not depend on the thread, evaluated on every block."""
    columns = [value.column for value in values if isinstance(value, Separable)]
    rest = tuple(
        ("block", value.dtype.str, int(value.thread.flat[0]))
        if isinstance(value, Separable)
        else (value.dtype.str, int(value.flat[0]))
        for value in values
    )

    def make() -> Array:
        arrays = [
            _with_thread(value).reshape(-1, 1).view(value.dtype)
            if isinstance(value, Separable)
            else value.reshape(1, 1)
            for value in values
        ]
        return unsigned(np.broadcast_to(evaluate(*arrays), (grid.numbers.size, 1)))[:, 0]  # type: ignore[no-any-return]

    column = grid.derived((key, rest), make, *columns)
    signed = (
        bool(values) and isinstance(key[-1], str) and np.dtype(key[-1]).kind == "i" and column.values.dtype != np.bool_
    )
    return plain(Separable(grid, column, np.zeros((1, 1), dtype=column.values.dtype), signed))


def _with_thread(value: Separable) -> Array:
    return value.column.values if value.bits == 1 else value.column.values + value.thread.reshape(1)


def by_distinct_blocks(grid: Grid, values: Sequence[Any], evaluate: Callable[..., Any]) -> Any:
    """Evaluates on every distinct block; keeps the blocks whose result is separable beside the reference's."""
    columns = list({id(value.column): value.column for value in values if isinstance(value, Separable)}.values())
    threads = max((value.thread if isinstance(value, Separable) else value).size for value in values)
    first, inverse = grid.distinct(columns)
    if len(first) * threads > grid.limits.lanes:
        raise NotTranslations("an instruction acts on too many different blocks at once")
    arrays = []
    for value in values:
        if isinstance(value, Separable):
            column = grid.on(value.column)[first][:, None]
            arrays.append((column if value.bits == 1 else column + value.thread).view(value.dtype))
        else:
            arrays.append(value)
    result = np.asarray(evaluate(*arrays))
    if result.ndim != 2 or result.shape[0] not in (1, len(first)) or result.dtype.kind not in "iub":
        raise NotTranslations("an instruction's result is no number of each thread")
    if result.shape[0] == 1:
        return result
    signed, rows = result.dtype.kind == "i", unsigned(result)
    if rows.shape[1] == 1:
        return plain(Separable(grid, grid.spread(rows[inverse, 0]), np.zeros((1, 1), dtype=rows.dtype), signed))
    if rows.dtype == np.bool_:
        return _predicates(grid, rows, inverse)
    base = rows[:, 0]
    pattern = rows - base[:, None]
    inverse = _narrow(grid, _row_numbers(pattern), inverse)
    return plain(Separable(grid, grid.spread(base[inverse]), pattern[inverse[0] : inverse[0] + 1], signed))


def _predicates(grid: Grid, rows: Array, inverse: Array) -> Any:
    """Predicates that hold in all threads of a block, or in none, go together; other patterns part the grid."""
    uniform: Array = np.asarray(rows.all(axis=1) | ~rows.any(axis=1))
    inverse = _narrow(grid, np.where(uniform, 0, 1 + _row_numbers(rows)), inverse)
    if uniform[inverse[0]]:
        return plain(Separable(grid, grid.spread(rows[inverse, 0]), np.zeros((1, 1), dtype=bool)))
    return rows[inverse[0] : inverse[0] + 1]


def _row_numbers(rows: Array) -> Array:
    if (rows == rows[0]).all():
        return np.zeros(len(rows), dtype=np.int64)
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.dtype.itemsize)))[:, 0]
    return np.unique(whole, return_inverse=True)[1].reshape(-1)


def _narrow(grid: Grid, numbers: Array, inverse: Array) -> Array:
    """Narrows by the number of each block's row; gives back the rows of the blocks that stay."""
    keys = numbers[inverse]
    kept = keys == keys[0]
    grid.narrow(keys)
    remaining: Array = inverse[kept]
    return remaining
