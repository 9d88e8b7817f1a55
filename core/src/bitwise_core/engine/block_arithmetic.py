"""Exact arithmetic on numbers of the form block + thread (`separable`), by the names of NumPy's functions.

Each rule gives the result for every block still in the pass, or None where it has nothing to say; then the
function is evaluated on each distinct block (`block_evaluation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitwise_core.engine.block_comparisons import comparison, unequal
from bitwise_core.engine.block_evaluation import by_column, by_distinct_blocks
from bitwise_core.engine.block_fields import bitwise
from bitwise_core.engine.block_linear import (
    Rule,
    add,
    floor_divide,
    invert,
    left_shift,
    multiply,
    remainder,
    right_shift,
    subtract,
)
from bitwise_core.engine.grid import Grid, NotTranslations
from bitwise_core.engine.separable import Separable, block_only, convert, decide, operand, plain
from bitwise_core.machine.lanes import Array

_RULES: dict[str, Rule] = {
    "add": add, "subtract": subtract, "multiply": multiply, "left_shift": left_shift, "right_shift": right_shift,
    "floor_divide": floor_divide, "remainder": remainder, "invert": invert,
    "bitwise_and": bitwise(np.bitwise_and), "bitwise_or": bitwise(np.bitwise_or),
    "bitwise_xor": bitwise(np.bitwise_xor),
    "less": comparison(np.less, False), "less_equal": comparison(np.less_equal, False),
    "greater": comparison(np.less, True), "greater_equal": comparison(np.less_equal, True),
    "equal": comparison(np.equal, False), "not_equal": unequal,
}  # fmt: skip


def apply_ufunc(grid: Grid, ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """A NumPy function of integers or predicates, with NumPy's types."""
    values = [plain(operand(grid, each, inputs)) for each in inputs]
    dtype = np.result_type(*(value.dtype for value in values))
    if dtype.kind not in "iub":
        raise NotTranslations("numbers of two types that do not mix differ between blocks")
    values = [value if value.dtype == dtype else convert(value, dtype) for value in values]
    if not any(isinstance(value, Separable) for value in values):
        return ufunc(*values)
    if all(block_only(value) for value in values):
        return by_column(grid, (ufunc.__name__, dtype.str), values, ufunc)
    rule = _RULES.get(ufunc.__name__)
    result = None
    if rule is not None and (dtype.kind != "b" or ufunc.__name__ == "equal"):
        result = rule(grid, values[0], values[1] if len(values) > 1 else None, dtype)
    return by_distinct_blocks(grid, values, ufunc) if result is None else result


def select(grid: Grid, mask: Any, new: Any, old: Any) -> Any:
    """Lane by lane: `new` where the predicate holds, else `old`; both known numbers of one type."""
    mask, new, old = plain(mask), plain(new), plain(old)
    if isinstance(mask, np.ndarray):
        if mask.all():
            return new
        if not mask.any():
            return old
        if isinstance(new, np.ndarray) and isinstance(old, np.ndarray):
            return np.where(mask, new, old)
        return _select_threads(grid, mask, new, old)
    if (isinstance(new, np.ndarray) and isinstance(old, np.ndarray) and new.size == old.size == 1) or all(
        block_only(value) for value in (new, old)
    ):
        return by_column(grid, ("where", new.dtype.str), [mask, new, old], np.where)
    if (
        new.dtype != np.bool_
        and isinstance(new, Separable)
        and isinstance(old, Separable)
        and np.array_equal(new.thread, old.thread)
    ):
        a, b, chosen = new.column, old.column, mask.column
        column = grid.derived("where", lambda: np.where(chosen.values, a.values, b.values), chosen, a, b)
        return plain(Separable(grid, column, new.thread, new.signed))
    return new if decide(mask).all() else old


def _select_threads(grid: Grid, mask: Array, new: Any, old: Any) -> Any:
    """A choice between threads keeps its form where both sides shift alike from block to block."""
    if new.dtype != np.bool_ and isinstance(new, Separable) and isinstance(old, Separable):
        a, b = new.column, old.column
        apart = grid.derived("subtract", lambda: b.values - a.values, b, a)
        if grid.constant(apart):
            thread = np.where(mask, new.thread, old.thread + grid.on(apart)[:1])
            return Separable(grid, a, thread, new.signed)
    return by_distinct_blocks(grid, [mask, new, old], np.where)
