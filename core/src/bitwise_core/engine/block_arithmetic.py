"""Exact arithmetic on numbers of the form block + thread (`separable`), by the names of NumPy's functions.

Each rule gives the result for every block still in the pass, or None where it has nothing to say; then the
function is evaluated on each distinct block, and blocks whose result is not the reference's plus one number
per block are set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bitwise_core.engine.grid import Column, Grid, NotTranslations
from bitwise_core.engine.separable import Separable, block_only, convert, decide, exact, operand, plain, unsigned
from bitwise_core.machine.lanes import Array

Rule = Callable[[Grid, Any, Any, np.dtype[Any]], Any]


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


# -- rules: operands of one type, at least one a Separable ----------------------------------------------------------


def _thread(value: Any) -> Array:
    thread: Array = value.thread if isinstance(value, Separable) else unsigned(value)
    return thread


def _number(value: Any) -> int | None:
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
    number = _number(factor)
    if number is None:
        return None
    by = unsigned(factor).reshape(1)
    column = grid.derived(("times", number), lambda: value.column.values * by, value.column)
    return plain(Separable(grid, column, value.thread * by, dtype.kind == "i"))


def left_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by an amount that all lanes share."""
    amount = _number(right)
    if amount is None or not 0 <= amount < dtype.itemsize * 8:
        return None
    factor = np.full((1, 1), 1 << amount, dtype=np.dtype(f"uint{dtype.itemsize * 8}")).view(dtype)
    return multiply(grid, left, factor, dtype)


def right_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by an amount that all lanes share: division by a power of two, rounded down."""
    amount = _number(right)
    if amount is None or not 0 <= amount < min(63, dtype.itemsize * 8):
        return None
    return _divide(grid, left, 1 << amount, dtype)


def floor_divide(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Division, rounded down, by a positive number that all lanes share."""
    number = _number(right)
    return None if number is None or number <= 0 else _divide(grid, left, number, dtype)


def remainder(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """What `floor_divide` leaves."""
    number = _number(right)
    return None if number is None or number <= 0 else _rest(grid, left, number, dtype)


def _of_exact(grid: Grid, column: Column, thread: Array, dtype: np.dtype[Any]) -> Any:
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
    whole = _of_exact(grid, quotient, np.zeros((1, 1), dtype=np.int64), dtype)
    if low == high:
        return _sum(
            grid, whole, ((low + thread) // number).astype(np.dtype(f"int{dtype.itemsize * 8}")).view(dtype), dtype
        )
    if low + int(thread.min()) >= 0 and high + int(thread.max()) < number:
        return whole
    inner = _of_exact(grid, rest, thread, np.dtype(np.int64))
    return _sum(grid, whole, convert(by_distinct_blocks(grid, [inner], lambda a: a // number), dtype), dtype)


def _rest(grid: Grid, value: Separable, number: int, dtype: np.dtype[Any]) -> Any:
    parts = _parts(grid, value, number)
    if parts is None:
        return None
    _, rest, thread = parts
    low, high = grid.bounds(rest)
    if low == high:
        return ((low + thread) % number).astype(dtype)
    inner = _of_exact(grid, rest, thread, np.dtype(np.int64))
    if low + int(thread.min()) < 0 or high + int(thread.max()) >= number:
        inner = by_distinct_blocks(grid, [inner], lambda a: a % number)
    return convert(inner, dtype)


def _sum(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    left, right = plain(left), plain(right)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left + right
    return add(grid, left, right, dtype)


def _bitwise(ufunc: np.ufunc) -> Rule:
    def rule(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "i":
            return None
        if ufunc is np.bitwise_and:
            for value, mask in ((left, right), (right, left)):
                number = _number(mask)
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
        return _rest(grid, value, mask + 1, dtype)
    low = full & ~mask
    if low & (low + 1) == 0 and low < 1 << 62:
        rest = _rest(grid, value, low + 1, dtype)
        return (
            None
            if rest is None
            else subtract(grid, value, rest, dtype)
            if isinstance(plain(value), Separable)
            else plain(value) - rest
        )
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
    return _of_exact(grid, column, ufunc(*lows), dtype)


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


def _comparison(compare: Callable[[Any, Any], Any], swap: bool) -> Rule:
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


def _unequal(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    result = _comparison(np.equal, False)(grid, left, right, dtype)
    return None if result is None else ~result


def invert(grid: Grid, value: Any, _: Any, dtype: np.dtype[Any]) -> Any:
    """-1 - x."""
    if dtype.kind == "b":
        return None
    minus_one = np.full((1, 1), -1, dtype=np.dtype(f"int{dtype.itemsize * 8}")).view(dtype)
    return subtract(grid, minus_one, value, dtype)


_RULES: dict[str, Rule] = {
    "add": add, "subtract": subtract, "multiply": multiply, "left_shift": left_shift, "right_shift": right_shift,
    "floor_divide": floor_divide, "remainder": remainder, "invert": invert,
    "bitwise_and": _bitwise(np.bitwise_and), "bitwise_or": _bitwise(np.bitwise_or),
    "bitwise_xor": _bitwise(np.bitwise_xor),
    "less": _comparison(np.less, False), "less_equal": _comparison(np.less_equal, False),
    "greater": _comparison(np.less, True), "greater_equal": _comparison(np.less_equal, True),
    "equal": _comparison(np.equal, False), "not_equal": _unequal,
}  # fmt: skip


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
