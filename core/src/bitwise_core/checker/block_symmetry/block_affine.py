"""Integers of all blocks of a pass at once: a term of the block plus a term of the thread, modulo 2**bits.

A `BlockAffine` has the value `column[block] + thread[thread]`, wrapped to its width.  It is accepted wherever a plain
array is; a plain array, of shape (1, threads) or (1, 1), is the same in every block of the pass.  NumPy's functions
reach a BlockAffine through NumPy's protocols.  Each function has an exact rule, which gives the result for every block
still in the pass or None where it does not apply; the function is then evaluated on each distinct block, and blocks
whose result is not the reference block's plus one number per block are set aside (`Grid.narrow`).  A function that is
not supported raises NotSymmetric.

The launch is known, so the terms are numbers.  Integers over the symbols of every launch are in `polynomial`, hashes of
sums of data-dependent integers in `machine.linear_hash`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from bitwise_core.checker.block_symmetry.grid import Column, Grid, NotSymmetric
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, take
from bitwise_core.execution.values.symbolic_vector import Array

TAINT = L.NONDETERMINISTIC
"""In an address pass: the data depends on a number that differs between blocks by more than a leaf's address."""


class BlockAffine(NDArrayOperatorsMixin, L.LazyIntegers):
    """`column[block] + thread[thread]` modulo 2**bits.

    `column` is of shape (blocks,) and `thread` (1, threads or 1), both of one unsigned type (bool for a predicate that
    does not depend on the thread); `signed` says that NumPy code sees the signed type of the same width.
    """

    __slots__ = ("_exact", "column", "grid", "signed", "thread")

    def __init__(self, grid: Grid, column: Column, thread: Array, signed: bool = False) -> None:
        self.grid, self.column, self.thread, self.signed = grid, column, thread, signed
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
        """2, as of any register's value."""
        return 2

    def view(self, dtype: Any) -> BlockAffine:
        """The same bits in a type of the same width."""
        wanted = np.dtype(dtype)
        if wanted.itemsize != self.thread.dtype.itemsize or wanted.kind not in "iu" or self.bits == 1:
            raise NotSymmetric(f"a number that differs between blocks is viewed as {wanted}")
        return BlockAffine(self.grid, self.column, self.thread, wanted.kind == "i")

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The numbers in another integer type, with NumPy's meaning."""
        return convert(self, np.dtype(dtype))

    def any(self) -> bool:
        """Whether some lane of some block of the pass holds."""
        self._predicate()
        return self.grid.bounds(self.column)[1] == 1

    def all(self) -> bool:
        """Whether every lane of every block of the pass holds."""
        self._predicate()
        return self.grid.bounds(self.column)[0] == 1

    def _predicate(self) -> None:
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

    # -- the interface of a register's value (`LazyIntegers`) --------------------------------------------------------

    def known_numbers(self) -> Any:
        """A predicate is decided, which may narrow the grid; a number stays as it is unless the blocks agree."""
        return decide(self) if self.bits == 1 else plain(self)

    def symbolic_vector(self) -> L.SymbolicVector:
        """Among data: its number where the blocks agree, else a tainted token."""
        value = plain(self)
        return L.constant_vector(value) if isinstance(value, np.ndarray) else token(self.bits, TAINT)

    def extract(self, low: int, bits: int) -> Any:
        """See `LazyIntegers.extract`."""
        dtype = np.dtype(L.UNSIGNED[bits])
        if low == 0:
            return convert(self, dtype)
        amount = np.full((1, 1), low, dtype=self.thread.dtype)
        return (BlockAffine(self.grid, self.column, self.thread) >> amount).astype(dtype)

    def blend(self, mask: Array, new: Any, old: Any) -> Any:
        """See `packing.blend_values`.  Lanes that nothing wrote may hold the new numbers."""
        if isinstance(old, L.SymbolicVector) and isinstance(old.flags, int) and old.flags & L.POISON:
            return new
        if isinstance(new, L.SymbolicVector | L.PackedVector) or isinstance(old, L.SymbolicVector | L.PackedVector):
            return blend_values(mask, as_symbolic_vector(new), as_symbolic_vector(old))
        return select(self.grid, mask, new, old)

    def concat(self, parts: Sequence[Any]) -> Any:
        """See `pieces.concat`."""
        total = np.dtype(L.UNSIGNED[sum(L.width(part) for part in parts)])
        result: Any = np.zeros((1, 1), dtype=total)
        shift = 0
        for part in parts:
            wide = part.astype(total)
            result = result + (wide << np.full((1, 1), shift, dtype=total) if shift else wide)
            shift += L.width(part)
        return result

    def take_threads(self, index: Array) -> Any:
        """See `pieces.take_threads`."""
        return BlockAffine(self.grid, self.column, take(self.thread, index), self.signed)

    def numbers_of_thread(self, thread: int) -> Any:
        """The numbers of one thread."""
        if self.thread.shape[1] == 1:
            return self
        return BlockAffine(self.grid, self.column, self.thread[:, thread : thread + 1], self.signed)

    def equality_key(self) -> int:
        """See `LazyIntegers`: a digest of the thread's number in every block of the pass."""
        numbers = self.column.values + self.thread.reshape(-1)[:1]
        return -1 - int.from_bytes(blake2b(numbers.tobytes(), digest_size=16).digest())


def token(bits: int, taint: int = 0) -> L.SymbolicVector:
    """Data of which the pass knows nothing but its taint.

    Each token is an object of its own: what is one object is taken for one value, and two tokens are not.
    """
    return L.SymbolicVector(bits, _DATA, L.TERM | taint)


_DATA = hashing.constant("data")


def plain(value: Any) -> Any:
    """The plain array where the blocks of the pass agree, else the value itself."""
    if isinstance(value, BlockAffine) and value.grid.constant(value.column):
        number = value.grid.on(value.column)[:1].reshape(1, 1)
        array = number if value.bits == 1 else number + value.thread
        return array.view(value.dtype)
    return value


def decide(value: Any) -> Array:
    """A predicate as a plain array; the grid is narrowed to the blocks that agree with the reference."""
    if not isinstance(value, BlockAffine):
        return value  # type: ignore[no-any-return]
    value.grid.narrow(value.grid.on(value.column))
    return value.grid.on(value.column)[:1].reshape(1, 1).astype(np.bool_)


def block_only(value: Any) -> bool:
    """Whether the value does not depend on the thread."""
    return (value.thread if isinstance(value, BlockAffine) else value).size == 1


def operand(grid: Grid, value: Any, others: Sequence[Any]) -> Any:
    """A NumPy operand as a BlockAffine or a plain array of two axes, Python's numbers in the others' type."""
    if isinstance(value, BlockAffine):
        return value
    if isinstance(value, bool | int):
        dtype = next(each.dtype for each in others if hasattr(each, "dtype"))
        if dtype == np.bool_ and not isinstance(value, bool):
            raise NotSymmetric("a number meets a predicate")
        return np.full((1, 1), value, dtype=dtype)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind not in "iub":
        raise NotSymmetric("a number that differs between blocks meets one that is no integer")
    if array.ndim == 0:
        return array.reshape(1, 1)
    if array.ndim != 2 or array.shape[0] != 1:
        raise NotSymmetric("a number that differs between blocks meets an array of another shape")
    return array


def unsigned(value: Any) -> Any:
    """The same bits in the unsigned type."""
    dtype = value.dtype
    return value.view(np.dtype(f"uint{dtype.itemsize * 8}")) if dtype.kind == "i" else value


def convert(value: Any, to: np.dtype[Any]) -> Any:
    """Another integer type, with NumPy's wrap-around; widening is exact or goes block by block."""
    if isinstance(value, np.ndarray):
        return value.astype(to)
    value = plain(value)
    if isinstance(value, np.ndarray):
        return value.astype(to)
    grid, source = value.grid, value.dtype
    if to == source:
        return value
    if to.kind not in "iu" or source == np.bool_:
        return by_distinct_blocks(grid, [value], lambda a: a.astype(to))
    target = np.dtype(f"uint{to.itemsize * 8}")
    if to.itemsize == source.itemsize:
        return BlockAffine(grid, value.column, value.thread, to.kind == "i")
    if to.itemsize < source.itemsize:
        column = grid.derived(("narrow", target), lambda: value.column.values.astype(target), value.column)
        return BlockAffine(grid, column, value.thread.astype(target), to.kind == "i")
    found = exact(value)
    if found is None:
        return by_distinct_blocks(grid, [value], lambda a: a.astype(to))
    true, thread = found
    column = grid.derived(("wide", target), lambda: true.values.astype(target), true)
    return BlockAffine(grid, column, thread.astype(target), to.kind == "i")


def exact(value: BlockAffine) -> tuple[Column, Array] | None:
    """The numbers as the sum, without any wrap-around, of a column and a row of signed 64-bit integers; or None."""
    cached = value._exact.get(value.signed)
    if cached is not None and cached[0] == value.grid.version:
        return cached[1]
    result = _exact(value)
    value._exact[value.signed] = (value.grid.version, result)
    return result


def _exact(value: BlockAffine) -> tuple[Column, Array] | None:
    grid, bits = value.grid, value.bits
    low, high = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if value.signed else (0, min((1 << bits) - 1, (1 << 63) - 1))
    )
    rows = [_numbers(value.thread, each) for each in (True, False)]
    for column_signed in (value.signed, not value.signed):
        column = _true(grid, value.column, column_signed)
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
        moved = _shifted(grid, value.column, first)
        column = _true(grid, moved, value.signed)
        if column is not None and grid.bounds(column)[1] + int(row.max()) - first <= high:
            return column, row - first
    return None


def _numbers(array: Array, signed: bool) -> Array | None:
    """An unsigned array's numbers in int64, None where they do not fit."""
    if signed:
        return array.view(f"int{array.dtype.itemsize * 8}").astype(np.int64)
    if array.dtype.itemsize == 8 and (array >> np.uint64(63)).any():
        return None
    return array.astype(np.int64)


def _true(grid: Grid, column: Column, signed: bool) -> Column | None:
    if not signed and column.values.dtype.itemsize == 8 and grid.bounds(column)[1] >> 63:
        return None
    width = column.values.dtype.itemsize * 8
    if signed:
        return grid.derived("signed", lambda: column.values.view(f"int{width}").astype(np.int64), column)
    return grid.derived("unsigned", lambda: column.values.astype(np.int64), column)


def _shifted(grid: Grid, column: Column, by: int) -> Column:
    """The column plus a number, wrapped to its width."""
    if by == 0:
        return column
    dtype = column.values.dtype
    bits = 8 * dtype.itemsize
    number = np.full(1, by & ((1 << bits) - 1), dtype=f"uint{bits}").view(dtype)
    return grid.derived(("plus", by), lambda: column.values + number, column)


# -- functions of numbers, by distinct block --------------------------------------------------------------------------


def by_column(grid: Grid, key: tuple[Any, ...], values: Sequence[Any], evaluate: Callable[..., Any]) -> Any:
    """A function of numbers that do not depend on the thread, evaluated on every block."""
    columns = [value.column for value in values if isinstance(value, BlockAffine)]
    rest = tuple(
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

    column = grid.derived((key, rest), make, *columns)
    signed = (
        bool(values) and isinstance(key[-1], str) and np.dtype(key[-1]).kind == "i" and column.values.dtype != np.bool_
    )
    return plain(BlockAffine(grid, column, np.zeros((1, 1), dtype=column.values.dtype), signed))


def _with_thread(value: BlockAffine) -> Array:
    return value.column.values if value.bits == 1 else value.column.values + value.thread.reshape(1)


def by_distinct_blocks(grid: Grid, values: Sequence[Any], evaluate: Callable[..., Any]) -> Any:
    """Evaluates on every distinct block; keeps the blocks whose result is separable beside the reference's."""
    columns = list({id(value.column): value.column for value in values if isinstance(value, BlockAffine)}.values())
    threads = max((value.thread if isinstance(value, BlockAffine) else value).size for value in values)
    first, inverse = grid.distinct(columns)
    if len(first) * threads > grid.limits.lanes:
        raise NotSymmetric("an instruction acts on too many different blocks at once")
    arrays = []
    for value in values:
        if isinstance(value, BlockAffine):
            column = grid.on(value.column)[first][:, None]
            arrays.append((column if value.bits == 1 else column + value.thread).view(value.dtype))
        else:
            arrays.append(value)
    result = np.asarray(evaluate(*arrays))
    if result.ndim != 2 or result.shape[0] not in (1, len(first)) or result.dtype.kind not in "iub":
        raise NotSymmetric("an instruction's result is no number of each thread")
    if result.shape[0] == 1:
        return result
    signed, rows = result.dtype.kind == "i", unsigned(result)
    if rows.shape[1] == 1:
        return plain(BlockAffine(grid, grid.spread(rows[inverse, 0]), np.zeros((1, 1), dtype=rows.dtype), signed))
    if rows.dtype == np.bool_:
        return _predicates(grid, rows, inverse)
    base = rows[:, 0]
    pattern = rows - base[:, None]
    inverse = _narrow(grid, _row_numbers(pattern), inverse)
    return plain(BlockAffine(grid, grid.spread(base[inverse]), pattern[inverse[0] : inverse[0] + 1], signed))


def _predicates(grid: Grid, rows: Array, inverse: Array) -> Any:
    """Predicates that hold in all threads of a block, or in none, go together; other patterns part the grid."""
    uniform: Array = np.asarray(rows.all(axis=1) | ~rows.any(axis=1))
    inverse = _narrow(grid, np.where(uniform, 0, 1 + _row_numbers(rows)), inverse)
    if uniform[inverse[0]]:
        return plain(BlockAffine(grid, grid.spread(rows[inverse, 0]), np.zeros((1, 1), dtype=bool)))
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


# -- sums, products, shifts and quotients -----------------------------------------------------------------------------


Rule: TypeAlias = Callable[[Grid, Any, Any, np.dtype[Any]], Any]


def _thread(value: Any) -> Array:
    thread: Array = value.thread if isinstance(value, BlockAffine) else unsigned(value)
    return thread


def _number_of(value: Any) -> int | None:
    """The one number of a plain array."""
    return int(value.flat[0]) if isinstance(value, np.ndarray) and value.size == 1 else None


def _add(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping addition."""
    thread, signed = _thread(left) + _thread(right), dtype.kind == "i"
    if not isinstance(right, BlockAffine):
        return BlockAffine(grid, left.column, thread, signed)
    if not isinstance(left, BlockAffine):
        return BlockAffine(grid, right.column, thread, signed)
    a, b = left.column, right.column
    return plain(BlockAffine(grid, grid.derived("add", lambda: a.values + b.values, a, b), thread, signed))


def _subtract(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping subtraction."""
    thread, signed = _thread(left) - _thread(right), dtype.kind == "i"
    if not isinstance(right, BlockAffine):
        return BlockAffine(grid, left.column, thread, signed)
    b = right.column
    if not isinstance(left, BlockAffine):
        zero = b.values.dtype.type(0)
        return BlockAffine(grid, grid.derived("negative", lambda: zero - b.values, b), thread, signed)
    a = left.column
    return plain(BlockAffine(grid, grid.derived("subtract", lambda: a.values - b.values, a, b), thread, signed))


def _multiply(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Wrapping multiplication by a number that all lanes share."""
    value, factor = (left, right) if isinstance(left, BlockAffine) else (right, left)
    number = _number_of(factor)
    if number is None:
        return None
    by = unsigned(factor).reshape(1)
    column = grid.derived(("times", number), lambda: value.column.values * by, value.column)
    return plain(BlockAffine(grid, column, value.thread * by, dtype.kind == "i"))


def _left_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by an amount that all lanes share."""
    amount = _number_of(right)
    if amount is None or not 0 <= amount < dtype.itemsize * 8:
        return None
    factor = np.full((1, 1), 1 << amount, dtype=np.dtype(f"uint{dtype.itemsize * 8}")).view(dtype)
    return _multiply(grid, left, factor, dtype)


def _right_shift(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """A shift by an amount that all lanes share: division by a power of two, rounded down."""
    amount = _number_of(right)
    if amount is None or not 0 <= amount < min(63, dtype.itemsize * 8):
        return None
    return _divide(grid, left, 1 << amount, dtype)


def _floor_divide(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Division, rounded down, by a positive number that all lanes share."""
    number = _number_of(right)
    return None if number is None or number <= 0 else _divide(grid, left, number, dtype)


def _remainder(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """What `floor_divide` leaves."""
    number = _number_of(right)
    return None if number is None or number <= 0 else _rest(grid, left, number, dtype)


def _of_exact(grid: Grid, column: Column, thread: Array, dtype: np.dtype[Any]) -> Any:
    """The low bits of exact numbers, as many as the type has."""
    target = np.dtype(f"uint{dtype.itemsize * 8}")
    own = grid.derived(("as", target.str), lambda: column.values.astype(target), column)
    return plain(BlockAffine(grid, own, thread.astype(target), dtype.kind == "i"))


def _parts(grid: Grid, value: BlockAffine, number: int) -> tuple[Column, Column, Array] | None:
    """Quotient and rest of the blocks' numbers, and the threads' numbers."""
    found = exact(value)
    if found is None:
        return None
    true, thread = found
    quotient = grid.derived(("quotient", number), lambda: true.values // number, true)
    rest = grid.derived(("rest", number), lambda: true.values - quotient.values * number, true)
    return quotient, rest, thread


def _divide(grid: Grid, value: BlockAffine, number: int, dtype: np.dtype[Any]) -> Any:
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


def _rest(grid: Grid, value: BlockAffine, number: int, dtype: np.dtype[Any]) -> Any:
    """A number less the next lower multiple of `number`, which is positive."""
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
                    masked = _low_or_high(grid, value, number, dtype)
                    if masked is not None:
                        return masked
        return _by_fields(grid, ufunc, [left, right], dtype)

    return rule


def _low_or_high(grid: Grid, value: BlockAffine, mask: int, dtype: np.dtype[Any]) -> Any:
    """A mask of the low bits is a remainder; a mask of the high bits takes the remainder away."""
    full = (1 << dtype.itemsize * 8) - 1
    if mask & (mask + 1) == 0 and mask < 1 << 62:
        return _rest(grid, value, mask + 1, dtype)
    low = full & ~mask
    if low & (low + 1) == 0 and low < 1 << 62:
        rest = _rest(grid, value, low + 1, dtype)
        if rest is None:
            return None
        return _subtract(grid, value, rest, dtype) if isinstance(plain(value), BlockAffine) else plain(value) - rest
    return None


def _by_fields(grid: Grid, ufunc: np.ufunc, values: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """Where the blocks' numbers keep to high bits and the threads' to low ones, each field has its own result."""
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
    return plain(BlockAffine(grid, grid.spread(true[kept]), np.zeros((1, 1), dtype=bool)))


def _over_range(compare: Callable[[Any, Any], Any], low: int, high: int) -> bool | None:
    """The comparison with 0 if it is the same for all numbers from `low` to `high`."""
    if compare is np.equal:
        return False if low > 0 or high < 0 else True if low == high == 0 else None
    ends = bool(compare(low, 0)), bool(compare(high, 0))
    return ends[0] if ends[0] == ends[1] else None


def _unequal(grid: Grid, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """Where the difference is not 0."""
    result = _comparison(np.equal, False)(grid, left, right, dtype)
    return None if result is None else ~result


# -- NumPy's functions by name ----------------------------------------------------------------------------------------


_RULES: dict[str, Rule] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "left_shift": _left_shift, "right_shift": _right_shift,
    "floor_divide": _floor_divide, "remainder": _remainder, "invert": _invert,
    "bitwise_and": _bitwise(np.bitwise_and), "bitwise_or": _bitwise(np.bitwise_or),
    "bitwise_xor": _bitwise(np.bitwise_xor),
    "less": _comparison(np.less, False), "less_equal": _comparison(np.less_equal, False),
    "greater": _comparison(np.less, True), "greater_equal": _comparison(np.less_equal, True),
    "equal": _comparison(np.equal, False), "not_equal": _unequal,
}  # fmt: skip


def apply_ufunc(grid: Grid, ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """A NumPy function of integers or predicates, with NumPy's types."""
    values = [plain(operand(grid, each, inputs)) for each in inputs]
    dtype = np.result_type(*(value.dtype for value in values))
    if dtype.kind not in "iub":
        raise NotSymmetric("numbers of two types that do not mix differ between blocks")
    values = [value if value.dtype == dtype else convert(value, dtype) for value in values]
    if not any(isinstance(value, BlockAffine) for value in values):
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
        and isinstance(new, BlockAffine)
        and isinstance(old, BlockAffine)
        and np.array_equal(new.thread, old.thread)
    ):
        a, b, chosen = new.column, old.column, mask.column
        column = grid.derived("where", lambda: np.where(chosen.values, a.values, b.values), chosen, a, b)
        return plain(BlockAffine(grid, column, new.thread, new.signed))
    return new if decide(mask).all() else old


def _select_threads(grid: Grid, mask: Array, new: Any, old: Any) -> Any:
    """A choice between threads keeps its form where both sides shift alike from block to block."""
    if new.dtype != np.bool_ and isinstance(new, BlockAffine) and isinstance(old, BlockAffine):
        a, b = new.column, old.column
        apart = grid.derived("subtract", lambda: b.values - a.values, b, a)
        if grid.constant(apart):
            thread = np.where(mask, new.thread, old.thread + grid.on(apart)[:1])
            return BlockAffine(grid, a, thread, new.signed)
    return by_distinct_blocks(grid, [mask, new, old], np.where)
