"""Integers of all blocks of a pass at once: a number of the block plus a number of the thread, modulo 2**bits.

A `BlockAffine` has the value `column[block] + thread[thread]`, wrapped to its width.  It is accepted wherever a plain
array is; a plain array, of shape (1, threads) or (1, 1), has the same value in every block of the pass.  NumPy
functions are dispatched to a BlockAffine by the NumPy protocols.  Each function has an exact rule, which returns the
result for every active block, or None where it does not apply.  In that case the function is evaluated on each distinct
block, and blocks whose result is not that of the reference block plus one number per block are excluded
(`Grid.narrow`).  A function that is not supported raises NotSymmetric.

The launch is known, so both summands are numbers.  For polynomials over the symbols of a parametric launch see
`checker.parametric.polynomial`, for hashes of linear forms of data see `execution.values.integers.linear_hash`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from bitwise_core.checker.block_symmetry.grid import Column, Grid, NotSymmetric
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import Array

TAINT = L.NONDETERMINISTIC
"""In an address pass: the data depends on a number that differs between blocks, other than by addresses of loads."""


class BlockAffine(NDArrayOperatorsMixin, L.LazyIntegers):
    """`column[block] + thread[thread]` modulo 2**bits.

    `column` is of shape (blocks,) and `thread` of shape (1, threads or 1), both of one unsigned type (bool for a
    predicate that does not depend on the thread).  `signed`: NumPy code sees the signed type of the same width.
    """

    __slots__ = ("_exact", "column", "grid", "product", "signed", "thread")

    def __init__(self, grid: Grid, column: Column, thread: Array, signed: bool = False) -> None:
        self.grid, self.column, self.thread, self.signed = grid, column, thread, signed
        self.product: tuple[BlockAffine, int] | None = None
        """The number and the positive factor of which this is the product, which may wrap."""
        self._exact: dict[bool, tuple[int, tuple[Column, Array] | None]] = {}

    # -- the interface of an array ------------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """The width; 1 for a predicate."""
        return L.width(self.thread)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that NumPy code sees."""
        return np.dtype(f"int{self.bits}") if self.signed else self.thread.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """(1, threads or 1): blocks are not an axis."""
        return (1, self.thread.shape[1])

    @property
    def ndim(self) -> int:
        """2, as for the value of any register."""
        return 2

    def view(self, dtype: Any) -> BlockAffine:
        """The same bits in a type of the same width."""
        wanted = np.dtype(dtype)
        if wanted.itemsize != self.thread.dtype.itemsize or wanted.kind not in "iu" or self.bits == 1:
            raise NotSymmetric(f"a number that differs between blocks is viewed as {wanted}")
        return BlockAffine(self.grid, self.column, self.thread, wanted.kind == "i")

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The numbers converted to another integer type as NumPy converts them."""
        return convert(self, np.dtype(dtype))

    def any(self) -> bool:
        """Whether the predicate is true in a lane of an active block."""
        self._require_predicate()
        return self.grid.bounds(self.column)[1] == 1

    def all(self) -> bool:
        """Whether the predicate is true in all lanes of all active blocks."""
        self._require_predicate()
        return self.grid.bounds(self.column)[0] == 1

    def _require_predicate(self) -> None:
        if self.bits != 1:
            raise NotSymmetric("a number that differs between blocks is used as a truth value")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotSymmetric(f"an instruction takes {name} of a number that differs between blocks")

    def __bool__(self) -> bool:
        raise NotSymmetric("a number that differs between blocks is used as a truth value")

    __int__ = __len__ = __iter__ = __array__ = __index__ = __float__ = __bool__

    def __getitem__(self, key: Any) -> Any:
        raise NotSymmetric("an instruction picks lanes of a number that differs between blocks")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        in_place = options.keys() == {"out"} and options["out"][0] is self  # as in a += b, which then rebinds a
        if method != "__call__" or (options and not in_place):
            raise NotSymmetric(f"NumPy's {ufunc.__name__}.{method} of a number that differs between blocks")
        return apply_ufunc(self.grid, ufunc, inputs)

    def __array_function__(self, function: Any, types: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if function is np.where and len(arguments) == 3 and not options:
            grid = self.grid
            values = [operand(grid, each, arguments[1:]) for each in arguments[1:]]
            return select(grid, arguments[0], values[0], values[1])
        if function is np.broadcast_to:
            return np.broadcast_to(decide(self), *arguments[1:], **options) if self.bits == 1 else self
        raise NotSymmetric(f"NumPy's {function.__name__} of a number that differs between blocks")

    # -- the interface `LazyIntegers` ---------------------------------------------------------------------------------

    def known_numbers(self, active: Array | None = None) -> Any:
        """Decide a predicate, which may narrow the grid; a number becomes a plain array only if the blocks agree."""
        return decide(self) if self.bits == 1 else plain(self)

    def symbolic_vector(self) -> L.SymbolicVector:
        """The value as data: a constant where the blocks agree, else tainted opaque data."""
        value = plain(self)
        return L.constant_vector(value) if isinstance(value, np.ndarray) else opaque_data(self.bits, TAINT)

    def extract(self, low: int, bits: int) -> Any:
        """See `LazyIntegers.extract`."""
        dtype = np.dtype(L.UNSIGNED[bits])
        if low == 0:
            return convert(self, dtype)
        amount = np.full((1, 1), low, dtype=self.thread.dtype)
        return (BlockAffine(self.grid, self.column, self.thread) >> amount).astype(dtype)

    def blend(self, mask: Array, new: Any, old: Any) -> Any:
        """See `LazyIntegers.blend`.  Undefined lanes may get the new numbers."""
        if isinstance(old, L.SymbolicVector) and isinstance(old.flags, int) and old.flags & L.POISON:
            return new
        if isinstance(new, L.SymbolicVector | L.PackedVector) or isinstance(old, L.SymbolicVector | L.PackedVector):
            return blend_values(mask, as_symbolic_vector(new), as_symbolic_vector(old))
        return select(self.grid, mask, new, old)

    def concat(self, parts: Sequence[Any]) -> Any:
        """See `LazyIntegers.concat`."""
        total = np.dtype(L.UNSIGNED[sum(L.width(part) for part in parts)])
        result: Any = np.zeros((1, 1), dtype=total)
        shift = 0
        for part in parts:
            wide = part.astype(total)
            result = result + (wide << np.full((1, 1), shift, dtype=total) if shift else wide)
            shift += L.width(part)
        return result

    def take_threads(self, index: Array) -> Any:
        """See `LazyIntegers.take_threads`."""
        return BlockAffine(self.grid, self.column, take(self.thread, index), self.signed)

    def numbers_of_thread(self, thread: int) -> Any:
        """The numbers of one thread."""
        if self.thread.shape[1] == 1:
            return self
        return BlockAffine(self.grid, self.column, self.thread[:, thread : thread + 1], self.signed)

    def equality_key(self) -> int:
        """See `LazyIntegers.equality_key`: a digest of the numbers of the first thread in all blocks of the pass."""
        numbers = self.column.values + self.thread.reshape(-1)[:1]
        return -1 - int.from_bytes(blake2b(numbers.tobytes(), digest_size=16).digest())


def opaque_data(bits: int, taint: int = 0) -> L.SymbolicVector:
    """Data of which the pass knows only the taint.

    Each call returns a new object with a hash of its own, because the same object, or an equal hash, is assumed to be
    the same value: one value could be used for another that is tainted, or two conditions taken for the same.
    """
    word = np.uint64(next(_NUMBERS))
    return L.SymbolicVector(bits, hashing.mix(_OPAQUE + word), L.TERM | taint)


_OPAQUE = hashing.constant("data")
_NUMBERS = itertools.count()


def plain(value: Any) -> Any:
    """The plain array where the active blocks agree, else the value itself."""
    if isinstance(value, BlockAffine) and value.grid.constant(value.column):
        number = value.grid.active_values(value.column)[:1].reshape(1, 1)
        array = number if value.bits == 1 else number + value.thread
        return array.view(value.dtype)
    return value


def decide(value: Any) -> Array:
    """A predicate as a plain array; the grid is narrowed to the blocks that agree with the reference."""
    if not isinstance(value, BlockAffine):
        return value  # type: ignore[no-any-return]
    value.grid.narrow(value.grid.active_values(value.column))
    return value.grid.active_values(value.column)[:1].reshape(1, 1).astype(np.bool_)


def block_only(value: Any) -> bool:
    """Whether the value does not depend on the thread."""
    return (value.thread if isinstance(value, BlockAffine) else value).size == 1


def operand(grid: Grid, value: Any, others: Sequence[Any]) -> Any:
    """A NumPy operand as a BlockAffine or a plain array of two axes; a Python number gets the type of the others."""
    if isinstance(value, BlockAffine):
        return value
    if isinstance(value, bool | int):
        dtype = next(each.dtype for each in others if hasattr(each, "dtype"))
        if dtype == np.bool_ and not isinstance(value, bool):
            raise NotSymmetric("an operation combines a number and a predicate")
        return np.full((1, 1), value, dtype=dtype)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind not in "iub":
        raise NotSymmetric("an operation combines a number that differs between blocks and one that is not an integer")
    if array.ndim == 0:
        return array.reshape(1, 1)
    if array.ndim != 2 or array.shape[0] != 1:
        raise NotSymmetric("an operation combines a number that differs between blocks and an array of another shape")
    return array


def unsigned(value: Any) -> Any:
    """The same bits in the unsigned type."""
    dtype = value.dtype
    return value.view(np.dtype(f"uint{dtype.itemsize * 8}")) if dtype.kind == "i" else value


def convert(value: Any, to: np.dtype[Any]) -> Any:
    """Convert to another integer type with NumPy's wrap-around; widening is exact or evaluated on distinct blocks."""
    if isinstance(value, np.ndarray):
        return value.astype(to)
    value = plain(value)
    if isinstance(value, np.ndarray):
        return value.astype(to)
    grid, source = value.grid, value.dtype
    if to == source:
        return value
    if to.kind not in "iu" or source == np.bool_:
        return evaluate_by_distinct_blocks(grid, [value], lambda a: a.astype(to))
    target = np.dtype(f"uint{to.itemsize * 8}")
    if to.itemsize == source.itemsize:
        return BlockAffine(grid, value.column, value.thread, to.kind == "i")
    if to.itemsize < source.itemsize:
        column = grid.derived(("narrow", target), lambda: value.column.values.astype(target), value.column)
        return BlockAffine(grid, column, value.thread.astype(target), to.kind == "i")
    found = exact(value)
    if found is None:
        return evaluate_by_distinct_blocks(grid, [value], lambda a: a.astype(to))
    exact_column, thread = found
    column = grid.derived(("wide", target), lambda: exact_column.values.astype(target), exact_column)
    return BlockAffine(grid, column, thread.astype(target), to.kind == "i")


def exact(value: BlockAffine) -> tuple[Column, Array] | None:
    """The numbers as a sum of a column and a row of int64 that does not wrap around, or None."""
    cached = value._exact.get(value.signed)
    if cached is not None and cached[0] == value.grid.version:
        return cached[1]
    result = _exact_sum_of(value)
    value._exact[value.signed] = (value.grid.version, result)
    return result


def _exact_sum_of(value: BlockAffine) -> tuple[Column, Array] | None:
    grid, bits = value.grid, value.bits
    low, high = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if value.signed else (0, min((1 << bits) - 1, (1 << 63) - 1))
    )
    rows = [_array_as_int64(value.thread, each) for each in (True, False)]
    for column_signed in (value.signed, not value.signed):
        column = _column_as_int64(grid, value.column, column_signed)
        if column is None:
            continue
        least, most = grid.bounds(column)
        for row in rows:
            if row is not None and least + int(row.min()) >= low and most + int(row.max()) <= high:
                return column, row
    for row in rows:
        if row is None:
            continue
        first = int(row.min())
        moved = _plus_constant(grid, value.column, first)
        column = _column_as_int64(grid, moved, value.signed)
        if column is not None and grid.bounds(column)[1] + int(row.max()) - first <= high:
            return column, row - first
    return None


def _array_as_int64(array: Array, signed: bool) -> Array | None:
    """An unsigned array, reinterpreted as signed if `signed`, in int64; None where it does not fit."""
    if signed:
        return array.view(f"int{array.dtype.itemsize * 8}").astype(np.int64)
    if array.dtype.itemsize == 8 and (array >> np.uint64(63)).any():
        return None
    return array.astype(np.int64)


def _column_as_int64(grid: Grid, column: Column, signed: bool) -> Column | None:
    if not signed and column.values.dtype.itemsize == 8 and grid.bounds(column)[1] >> 63:
        return None
    width = column.values.dtype.itemsize * 8
    if signed:
        return grid.derived("signed", lambda: column.values.view(f"int{width}").astype(np.int64), column)
    return grid.derived("unsigned", lambda: column.values.astype(np.int64), column)


def _plus_constant(grid: Grid, column: Column, by: int) -> Column:
    """The column plus a constant, wrapped to its width."""
    if by == 0:
        return column
    dtype = column.values.dtype
    bits = 8 * dtype.itemsize
    number = np.full(1, by & ((1 << bits) - 1), dtype=f"uint{bits}").view(dtype)
    return grid.derived(("plus", by), lambda: column.values + number, column)


# -- evaluation on distinct blocks ------------------------------------------------------------------------------------


def evaluate_by_column(grid: Grid, key: tuple[Any, ...], values: Sequence[Any], evaluate: Callable[..., Any]) -> Any:
    """Evaluate a function of numbers that do not depend on the thread on every block."""
    columns = [value.column for value in values if isinstance(value, BlockAffine)]
    remainder = tuple(
        ("block", value.dtype.str, int(value.thread.flat[0]))
        if isinstance(value, BlockAffine)
        else (value.dtype.str, int(value.flat[0]))
        for value in values
    )

    def make() -> Array:
        arrays = [
            _with_thread(value).reshape(-1, 1).view(value.dtype)
            if isinstance(value, BlockAffine)
            else value.reshape(1, 1)
            for value in values
        ]
        return unsigned(np.broadcast_to(evaluate(*arrays), (grid.numbers.size, 1)))[:, 0]  # type: ignore[no-any-return]

    column = grid.derived((key, remainder), make, *columns)
    signed = (
        bool(values) and isinstance(key[-1], str) and np.dtype(key[-1]).kind == "i" and column.values.dtype != np.bool_
    )
    return plain(BlockAffine(grid, column, np.zeros((1, 1), dtype=column.values.dtype), signed))


def _with_thread(value: BlockAffine) -> Array:
    return value.column.values if value.bits == 1 else value.column.values + value.thread.reshape(1)


def evaluate_by_distinct_blocks(grid: Grid, values: Sequence[Any], evaluate: Callable[..., Any]) -> Any:
    """Evaluate a function on every distinct block; exclude the blocks whose result differs from that of the reference
    by more than one number per block.
    """
    columns = list({id(value.column): value.column for value in values if isinstance(value, BlockAffine)}.values())
    threads = max((value.thread if isinstance(value, BlockAffine) else value).size for value in values)
    first, inverse = grid.distinct(columns)
    if len(first) * threads > grid.limits.lanes:
        raise NotSymmetric("an instruction has different operands in too many blocks")
    arrays = []
    for value in values:
        if isinstance(value, BlockAffine):
            column = grid.active_values(value.column)[first][:, None]
            arrays.append((column if value.bits == 1 else column + value.thread).view(value.dtype))
        else:
            arrays.append(value)
    result = np.asarray(evaluate(*arrays))
    if result.ndim != 2 or result.shape[0] not in (1, len(first)) or result.dtype.kind not in "iub":
        raise NotSymmetric("the result of an instruction is not one number for each thread")
    if result.shape[0] == 1:
        return result
    signed, rows = result.dtype.kind == "i", unsigned(result)
    if rows.shape[1] == 1:
        return plain(
            BlockAffine(grid, grid.column_of_active(rows[inverse, 0]), np.zeros((1, 1), dtype=rows.dtype), signed)
        )
    if rows.dtype == np.bool_:
        return _predicates(grid, rows, inverse)
    base = rows[:, 0]
    pattern = rows - base[:, None]
    inverse = _narrow(grid, _row_numbers(pattern), inverse)
    return plain(BlockAffine(grid, grid.column_of_active(base[inverse]), pattern[inverse[0] : inverse[0] + 1], signed))


def _predicates(grid: Grid, rows: Array, inverse: Array) -> Any:
    """Predicates that are uniform within each block share a column; any other pattern divides the grid."""
    uniform: Array = np.asarray(rows.all(axis=1) | ~rows.any(axis=1))
    inverse = _narrow(grid, np.where(uniform, 0, 1 + _row_numbers(rows)), inverse)
    if uniform[inverse[0]]:
        return plain(BlockAffine(grid, grid.column_of_active(rows[inverse, 0]), np.zeros((1, 1), dtype=bool)))
    return rows[inverse[0] : inverse[0] + 1]


def _row_numbers(rows: Array) -> Array:
    if (rows == rows[0]).all():
        return np.zeros(len(rows), dtype=np.int64)
    void_rows = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.dtype.itemsize)))[:, 0]
    return np.unique(void_rows, return_inverse=True)[1].reshape(-1)


def _narrow(grid: Grid, numbers: Array, inverse: Array) -> Array:
    """Narrow the grid by a number for each row; returns the rows of the blocks that remain active."""
    keys = numbers[inverse]
    kept = keys == keys[0]
    grid.narrow(keys)
    remaining: Array = inverse[kept]
    return remaining


# -- sums, products, shifts and quotients -----------------------------------------------------------------------------


Rule: TypeAlias = Callable[[Grid, Any, Any, np.dtype[Any]], Any]


def _thread_numbers(value: Any) -> Array:
    thread: Array = value.thread if isinstance(value, BlockAffine) else unsigned(value)
    return thread


def _number_of(value: Any) -> int | None:
    """The number of a plain array with one element, else None."""
    return int(value.flat[0]) if isinstance(value, np.ndarray) and value.size == 1 else None


def _add(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping addition."""
    thread, signed = _thread_numbers(left) + _thread_numbers(right), dtype.kind == "i"
    if not isinstance(right, BlockAffine):
        return BlockAffine(grid, left.column, thread, signed)
    if not isinstance(left, BlockAffine):
        return BlockAffine(grid, right.column, thread, signed)
    a, b = left.column, right.column
    return plain(BlockAffine(grid, grid.derived("add", lambda: a.values + b.values, a, b), thread, signed))


def _subtract(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping subtraction."""
    thread, signed = _thread_numbers(left) - _thread_numbers(right), dtype.kind == "i"
    if not isinstance(right, BlockAffine):
        return BlockAffine(grid, left.column, thread, signed)
    b = right.column
    if not isinstance(left, BlockAffine):
        zero = b.values.dtype.type(0)
        return BlockAffine(grid, grid.derived("negative", lambda: zero - b.values, b), thread, signed)
    a = left.column
    return plain(BlockAffine(grid, grid.derived("subtract", lambda: a.values - b.values, a, b), thread, signed))


def _multiply(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping multiplication by one number for all lanes."""
    value, factor = (left, right) if isinstance(left, BlockAffine) else (right, left)
    number = _number_of(factor)
    if number is None:
        return None
    by = unsigned(factor).reshape(1)
    column = grid.derived(("times", number), lambda: value.column.values * by, value.column)
    result = BlockAffine(grid, column, value.thread * by, dtype.kind == "i")
    result.product = (value, number) if number > 0 else None
    return plain(result)


def _left_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by one amount for all lanes."""
    amount = _number_of(right)
    if amount is None or not 0 <= amount < dtype.itemsize * 8:
        return None
    factor = np.full((1, 1), 1 << amount, dtype=np.dtype(f"uint{dtype.itemsize * 8}")).view(dtype)
    return _multiply(grid, left, factor, dtype)


def _right_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by one amount for all lanes: division by a power of two, rounded down."""
    amount = _number_of(right)
    if amount is None or not 0 <= amount < min(63, dtype.itemsize * 8):
        return None
    quotient = _quotient_of_product(grid, left, amount, dtype)
    return _divide_by(grid, left, 1 << amount, dtype) if quotient is None else quotient


def _quotient_of_product(grid: Grid, left: BlockAffine, amount: int, dtype: np.dtype[Any]) -> Any:
    """x m / 2^amount, rounded down, as x/d, which has few remainders; None where it is none.

    Compilers divide x by d so.  With d = ceil(2^amount / m) and e = d m - 2^amount, x m / 2^amount is x/d +
    x e / (d 2^amount).  Rounded down both are equal if 0 <= x e < 2^amount, since x/d is a multiple of 1/d.
    """
    if left.product is None:
        return None
    value, factor = left.product
    found = exact(value)
    if found is None or amount < 8:
        return None
    column, thread = found
    lowest, greatest = (
        number + int(least) for number, least in zip(grid.bounds(column), (thread.min(), thread.max()), strict=True)
    )
    divisor = -(-(1 << amount) // factor)
    wraps = greatest * factor >> dtype.itemsize * 8 - (dtype.kind == "i")
    if lowest < 0 or wraps or divisor < 2 or greatest * (divisor * factor - (1 << amount)) >= 1 << amount:
        return None
    return convert(_divide_by(grid, value, divisor, value.dtype), dtype)


def _floor_divide(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Division, rounded down, by one positive number for all lanes."""
    number = _number_of(right)
    return None if number is None or number <= 0 else _divide_by(grid, left, number, dtype)


def _remainder(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """The remainder of `floor_divide`, by one positive number for all lanes."""
    number = _number_of(right)
    return None if number is None or number <= 0 else _remainder_by(grid, left, number, dtype)


def _from_exact(grid: Grid, column: Column, thread: Array, dtype: np.dtype[Any]) -> Any:
    """Exact numbers reduced to the width of the type."""
    target = np.dtype(f"uint{dtype.itemsize * 8}")
    own = grid.derived(("as", target.str), lambda: column.values.astype(target), column)
    return plain(BlockAffine(grid, own, thread.astype(target), dtype.kind == "i"))


def _quotient_and_remainder(grid: Grid, value: BlockAffine, number: int) -> tuple[Column, Column, Array] | None:
    """Quotient and remainder of the numbers of the blocks, and the numbers of the threads."""
    found = exact(value)
    if found is None:
        return None
    exact_column, thread = found
    quotient = grid.derived(("quotient", number), lambda: exact_column.values // number, exact_column)
    remainder = grid.derived(("rest", number), lambda: exact_column.values - quotient.values * number, exact_column)
    return quotient, remainder, thread


def _divide_by(grid: Grid, value: BlockAffine, number: int, dtype: np.dtype[Any]) -> Any:
    parts = _quotient_and_remainder(grid, value, number)
    if parts is None:
        return None
    quotient, remainder, thread = parts
    low, high = grid.bounds(remainder)
    whole_quotient = _from_exact(grid, quotient, np.zeros((1, 1), dtype=np.int64), dtype)
    if low == high:
        return _sum(
            grid,
            whole_quotient,
            ((low + thread) // number).astype(np.dtype(f"int{dtype.itemsize * 8}")).view(dtype),
            dtype,
        )
    if low + int(thread.min()) >= 0 and high + int(thread.max()) < number:
        return whole_quotient
    dividend = _from_exact(grid, remainder, thread, np.dtype(np.int64))
    return _sum(
        grid,
        whole_quotient,
        convert(evaluate_by_distinct_blocks(grid, [dividend], lambda a: a // number), dtype),
        dtype,
    )


def _remainder_by(grid: Grid, value: BlockAffine, number: int, dtype: np.dtype[Any]) -> Any:
    """The remainder of division, rounded down, by `number`, which is positive."""
    parts = _quotient_and_remainder(grid, value, number)
    if parts is None:
        return None
    _, remainder, thread = parts
    low, high = grid.bounds(remainder)
    if low == high:
        return ((low + thread) % number).astype(dtype)
    dividend = _from_exact(grid, remainder, thread, np.dtype(np.int64))
    if low + int(thread.min()) < 0 or high + int(thread.max()) >= number:
        dividend = evaluate_by_distinct_blocks(grid, [dividend], lambda a: a % number)
    return convert(dividend, dtype)


def _sum(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    left, right = plain(left), plain(right)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left + right
    return _add(grid, left, right, dtype)


def _invert(grid: Grid, value: Any, _: Any, dtype: np.dtype[Any]) -> Any:
    """-1 - x."""
    if dtype.kind == "b":
        return None
    minus_one = np.full((1, 1), -1, dtype=np.dtype(f"int{dtype.itemsize * 8}")).view(dtype)
    return _subtract(grid, minus_one, value, dtype)


# -- bitwise functions ------------------------------------------------------------------------------------------------


def _bitwise(ufunc: np.ufunc) -> Rule:
    """The rule of a bitwise function of unsigned numbers."""

    def rule(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "i":
            return None
        if ufunc is np.bitwise_and:
            for value, mask in ((left, right), (right, left)):
                number = _number_of(mask)
                if number is not None:
                    masked = _contiguous_mask(grid, value, number, dtype)
                    if masked is not None:
                        return masked
        return _by_fields(grid, ufunc, [left, right], dtype)

    return rule


def _contiguous_mask(grid: Grid, value: BlockAffine, mask: int, dtype: np.dtype[Any]) -> Any:
    """A mask of the low bits gives a remainder; a mask of the high bits subtracts a remainder."""
    full = (1 << dtype.itemsize * 8) - 1
    if mask & (mask + 1) == 0 and mask < 1 << 62:
        return _remainder_by(grid, value, mask + 1, dtype)
    low = full & ~mask
    if low & (low + 1) == 0 and low < 1 << 62:
        remainder = _remainder_by(grid, value, low + 1, dtype)
        if remainder is None:
            return None
        return (
            _subtract(grid, value, remainder, dtype)
            if isinstance(plain(value), BlockAffine)
            else plain(value) - remainder
        )
    return None


def _by_fields(grid: Grid, ufunc: np.ufunc, values: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """If the numbers of blocks have high bits only and those of threads low bits only, evaluate each field."""
    columns: list[Column | int] = []
    threads: list[Array] = []
    for value in values:
        if not isinstance(value, BlockAffine):
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
    return _from_exact(grid, column, ufunc(*lows), dtype)


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
            return None  # the numbers of a column have 64 bits, so there are no bits above such a field
        highs: list[Column | int] = []
        lows: list[Array] = []
        for column, thread in zip(columns, threads, strict=True):
            if not isinstance(column, Column):
                number = int(thread.flat[0]) // unit * unit if thread.size == 1 else 0
                highs.append(number)
                lows.append(thread - number)
                continue
            low, high = grid.bounds(_column_modulo(grid, column, unit))
            if low != high:
                return None
            highs.append(_plus_constant(grid, column, -low))
            lows.append(thread + low)
        if all(int(each.max()) < unit for each in lows):
            return highs, lows
        columns, threads = highs, lows
    return None


def _column_modulo(grid: Grid, column: Column, unit: int) -> Column:
    return grid.derived(("rest", unit), lambda: column.values % unit, column)


# -- comparisons ------------------------------------------------------------------------------------------------------


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
    if isinstance(value, BlockAffine):
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
    always = _uniform_over_range(compare, low + least, high + most)
    if always is not None:
        return np.full((1, 1), always)
    numbers = grid.active_values(difference)
    ends = compare(numbers + least, 0), compare(numbers + most, 0)
    if compare is np.equal:
        uniform = ends[0] & ends[1]
        mixed = ~uniform & (numbers + least <= 0) & (numbers + most >= 0)
    else:
        uniform, mixed = ends[0] & ends[1], ends[0] ^ ends[1]
    keys = np.where(mixed, numbers - low + 1, 0)
    kept = keys == keys[0]
    grid.narrow(keys)
    if mixed[0]:
        return compare(numbers[0] + thread, 0)
    return plain(BlockAffine(grid, grid.column_of_active(uniform[kept]), np.zeros((1, 1), dtype=bool)))


def _uniform_over_range(compare: Callable[[Any, Any], Any], low: int, high: int) -> bool | None:
    """The comparison with 0 if it has the same result for all numbers from `low` to `high`, else None."""
    if compare is np.equal:
        return False if low > 0 or high < 0 else True if low == high == 0 else None
    ends = bool(compare(low, 0)), bool(compare(high, 0))
    return ends[0] if ends[0] == ends[1] else None


def _unequal(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Where the difference is not 0."""
    result = _comparison(np.equal, False)(grid, left, right, dtype)
    return None if result is None else ~result


def _extremum(largest: bool) -> Rule:
    """The larger or smaller operand, where the ranges of the two have at most one number in common."""

    def rule(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "b":
            return None
        ranges = []
        for value in (left, right):
            found = _exact_or_plain(value)
            if found is None:
                return None
            column, thread = found
            low, high = (0, 0) if column is None else grid.bounds(column)
            ranges.append((low + int(thread.min()), high + int(thread.max())))
        (low, high), (other_low, other_high) = ranges
        if high <= other_low:
            return right if largest else left
        return (left if largest else right) if other_high <= low else None

    return rule


# -- dispatch of NumPy functions --------------------------------------------------------------------------------------


_RULES: dict[str, Rule] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "left_shift": _left_shift, "right_shift": _right_shift,
    "floor_divide": _floor_divide, "remainder": _remainder, "invert": _invert,
    "bitwise_and": _bitwise(np.bitwise_and), "bitwise_or": _bitwise(np.bitwise_or),
    "bitwise_xor": _bitwise(np.bitwise_xor),
    "less": _comparison(np.less, False), "less_equal": _comparison(np.less_equal, False),
    "greater": _comparison(np.less, True), "greater_equal": _comparison(np.less_equal, True),
    "equal": _comparison(np.equal, False), "not_equal": _unequal,
    "maximum": _extremum(True), "minimum": _extremum(False),
}  # fmt: skip


def apply_ufunc(grid: Grid, ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """A NumPy function of integers or predicates, with NumPy's types."""
    values = [plain(operand(grid, each, inputs)) for each in inputs]
    dtype = np.result_type(*(value.dtype for value in values))
    if dtype.kind not in "iub":
        raise NotSymmetric("an operation combines numbers of incompatible types that differ between blocks")
    values = [value if value.dtype == dtype else convert(value, dtype) for value in values]
    if not any(isinstance(value, BlockAffine) for value in values):
        return ufunc(*values)
    if all(block_only(value) for value in values):
        return evaluate_by_column(grid, (ufunc.__name__, dtype.str), values, ufunc)
    rule = _RULES.get(ufunc.__name__)
    result = None
    if rule is not None and (dtype.kind != "b" or ufunc.__name__ == "equal"):
        result = rule(grid, values[0], values[1] if len(values) > 1 else None, dtype)
    return evaluate_by_distinct_blocks(grid, values, ufunc) if result is None else result


def select(grid: Grid, mask: Any, new: Any, old: Any) -> Any:
    """Select lane by lane: `new` where the predicate is true, else `old`; both are numbers of one type."""
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
        return evaluate_by_column(grid, ("where", new.dtype.str), [mask, new, old], np.where)
    if (
        new.dtype != np.bool_
        and isinstance(new, BlockAffine)
        and isinstance(old, BlockAffine)
        and np.array_equal(new.thread, old.thread)
    ):
        a, b, chosen = new.column, old.column, mask.column
        column = grid.derived("where", lambda: np.where(chosen.values, a.values, b.values), chosen, a, b)
        return plain(BlockAffine(grid, column, new.thread, new.signed))
    return new if decide(mask).all() else old


def _select_threads(grid: Grid, mask: Array, new: Any, old: Any) -> Any:
    """A selection between threads is exact where both sides shift equally between blocks."""
    if new.dtype != np.bool_ and isinstance(new, BlockAffine) and isinstance(old, BlockAffine):
        a, b = new.column, old.column
        difference = grid.derived("subtract", lambda: b.values - a.values, b, a)
        if grid.constant(difference):
            thread = np.where(mask, new.thread, old.thread + grid.active_values(difference)[:1])
            return BlockAffine(grid, a, thread, new.signed)
    return evaluate_by_distinct_blocks(grid, [mask, new, old], np.where)
