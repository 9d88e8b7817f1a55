"""Integers of all blocks of a pass at once: a number of the block plus a number of the thread.

`Separable` stands where a plain array may; its number in block b and thread t is `column[b] + thread[t]`, wrapped
to its width.  A plain array, of shape (1, threads) or (1, 1), is the same in every block of the pass.  NumPy's
functions reach a Separable through NumPy's protocols and act by exact rules; a function without a rule is
evaluated on each distinct block, and where the result is no longer separable for all blocks alike, the grid is
narrowed.  Whatever has no meaning here raises NotTranslations: nothing reads a Separable by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from bitwise_core.engine.grid import Column, Grid, NotTranslations
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Array
from bitwise_core.machine.pieces import as_lanes, choose, take

TAINT = L.UNDETERMINED
"""In an address pass: the data depends on a number that differs between blocks by more than a leaf's address."""


class Separable(L.Numbers):
    """`column` (blocks,) and `thread` (1, threads or 1) of one unsigned type; `signed` is how NumPy code views them."""

    __slots__ = ("_exact", "column", "grid", "signed", "thread")

    def __init__(self, grid: Grid, column: Column, thread: Array, signed: bool = False) -> None:
        self.grid, self.column, self.thread, self.signed = grid, column, thread, signed
        self._exact: dict[bool, tuple[int, tuple[Column, Array] | None]] = {}

    # -- what an array has ------------------------------------------------------------------------------------------

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
        """One row: the blocks are no axis here."""
        return (1, self.thread.shape[1])

    @property
    def ndim(self) -> int:
        """Blocks and threads."""
        return 2

    def view(self, dtype: Any) -> Separable:
        """The same bits in a type of the same width."""
        wanted = np.dtype(dtype)
        if wanted.itemsize != self.thread.dtype.itemsize or wanted.kind not in "iu" or self.bits == 1:
            raise NotTranslations(f"a number that differs between blocks is viewed as {wanted}")
        return Separable(self.grid, self.column, self.thread, wanted.kind == "i")

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
            raise NotTranslations("a number that differs between blocks is used as a truth")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotTranslations(f"an instruction takes {name} of a number that differs between blocks")

    def __bool__(self) -> bool:
        raise NotTranslations("a number that differs between blocks is used as a truth")

    __int__ = __len__ = __iter__ = __array__ = __index__ = __float__ = __bool__

    def __getitem__(self, key: Any) -> Any:
        raise NotTranslations("an instruction picks lanes of a number that differs between blocks")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise NotTranslations(f"NumPy's {ufunc.__name__}.{method} of a number that differs between blocks")
        return _rules().apply_ufunc(self.grid, ufunc, inputs)

    def __array_function__(self, function: Any, types: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if function is np.where and len(arguments) == 3 and not options:
            grid = self.grid
            values = [operand(grid, each, arguments[1:]) for each in arguments[1:]]
            return _rules().select(grid, arguments[0], values[0], values[1])
        if function is np.broadcast_to:
            return np.broadcast_to(decide(self), *arguments[1:], **options) if self.bits == 1 else self
        raise NotTranslations(f"NumPy's {function.__name__} of a number that differs between blocks")

    def __add__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.add, (self, other))

    def __radd__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.add, (other, self))

    def __sub__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.subtract, (self, other))

    def __mul__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.multiply, (self, other))

    def __floordiv__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.floor_divide, (self, other))

    def __mod__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.remainder, (self, other))

    def __and__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.bitwise_and, (self, other))

    def __or__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.bitwise_or, (self, other))

    def __xor__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.bitwise_xor, (self, other))

    def __lshift__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.left_shift, (self, other))

    def __rshift__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.right_shift, (self, other))

    def __invert__(self) -> Any:
        return _rules().apply_ufunc(self.grid, np.invert, (self,))

    def __lt__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.less, (self, other))

    def __le__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.less_equal, (self, other))

    def __gt__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.greater, (self, other))

    def __ge__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.greater_equal, (self, other))

    def __eq__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.equal, (self, other))

    def __ne__(self, other: Any) -> Any:
        return _rules().apply_ufunc(self.grid, np.not_equal, (self, other))

    __hash__ = None  # type: ignore[assignment]

    # -- what a register's value has (`L.Numbers`) ------------------------------------------------------------------

    def settled(self) -> Any:
        """A predicate is decided, which may narrow the grid; a number stays as it is unless the blocks agree."""
        return decide(self) if self.bits == 1 else plain(self)

    def lanes(self) -> L.Lanes:
        """Among data: its number where the blocks agree, else a tainted token."""
        value = plain(self)
        return L.known_lanes(value) if isinstance(value, np.ndarray) else token(self.bits, TAINT)

    def cut(self, low: int, bits: int) -> Any:
        """See `lanes.cut`."""
        dtype = np.dtype(L.UNSIGNED[bits])
        if low == 0:
            return convert(self, dtype)
        amount = np.full((1, 1), low, dtype=self.thread.dtype)
        return (
            _rules()
            .apply_ufunc(self.grid, np.right_shift, (Separable(self.grid, self.column, self.thread), amount))
            .astype(dtype)
        )

    def choose(self, mask: Array, new: Any, old: Any) -> Any:
        """See `pieces.choose`.  Lanes that nothing wrote may hold the new numbers: a run tells if they are read."""
        if isinstance(old, L.Lanes) and isinstance(old.meta, int) and old.meta & L.POISON:
            return new
        if isinstance(new, L.Lanes | L.Pieces) or isinstance(old, L.Lanes | L.Pieces):
            return choose(mask, as_lanes(new), as_lanes(old))
        return _rules().select(self.grid, mask, new, old)

    def join(self, parts: Sequence[Any]) -> Any:
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
        return Separable(self.grid, self.column, take(self.thread, index), self.signed)

    def of_thread(self, thread: int) -> Any:
        """The numbers of one thread."""
        if self.thread.shape[1] == 1:
            return self
        return Separable(self.grid, self.column, self.thread[:, thread : thread + 1], self.signed)

    def identity(self) -> int:
        """See `lanes.Numbers`: a digest of the thread's number in every block of the pass."""
        numbers = self.column.values + self.thread.reshape(-1)[:1]
        return -1 - int.from_bytes(blake2b(numbers.tobytes(), digest_size=16).digest())


def _rules() -> Any:
    """The arithmetic, which is stated over this class and so imported late."""
    from bitwise_core.engine import block_arithmetic

    return block_arithmetic


def token(bits: int, taint: int = 0) -> L.Lanes:
    """Data of which the pass knows nothing but its taint.

    Each token is an object of its own: what is one object is taken for one value, and two tokens are not.
    """
    return L.Lanes(bits, _DATA, L.TERM | taint)


_DATA = hashing.constant("data")


def plain(value: Any) -> Any:
    """The plain array where the blocks of the pass agree, else the value itself."""
    if isinstance(value, Separable) and value.grid.constant(value.column):
        number = value.grid.on(value.column)[:1].reshape(1, 1)
        array = number if value.bits == 1 else number + value.thread
        return array.view(value.dtype)
    return value


def decide(value: Any) -> Array:
    """A predicate as a plain array; the grid is narrowed to the blocks that agree with the reference."""
    if not isinstance(value, Separable):
        return value  # type: ignore[no-any-return]
    value.grid.narrow(value.grid.on(value.column))
    return value.grid.on(value.column)[:1].reshape(1, 1).astype(np.bool_)


def block_only(value: Any) -> bool:
    """Whether the value does not depend on the thread."""
    return (value.thread if isinstance(value, Separable) else value).size == 1


def operand(grid: Grid, value: Any, others: Sequence[Any]) -> Any:
    """A NumPy operand as a Separable or a plain array of two axes, Python's numbers in the others' type."""
    if isinstance(value, Separable):
        return value
    if isinstance(value, bool | int):
        dtype = next(each.dtype for each in others if hasattr(each, "dtype"))
        if dtype == np.bool_ and not isinstance(value, bool):
            raise NotTranslations("a number meets a predicate")
        return np.full((1, 1), value, dtype=dtype)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind not in "iub":
        raise NotTranslations("a number that differs between blocks meets one that is no integer")
    if array.ndim == 0:
        return array.reshape(1, 1)
    if array.ndim != 2 or array.shape[0] != 1:
        raise NotTranslations("a number that differs between blocks meets an array of another shape")
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
        return _rules().by_distinct_blocks(grid, [value], lambda a: a.astype(to))
    target = np.dtype(f"uint{to.itemsize * 8}")
    if to.itemsize == source.itemsize:
        return Separable(grid, value.column, value.thread, to.kind == "i")
    if to.itemsize < source.itemsize:
        column = grid.derived(("narrow", target), lambda: value.column.values.astype(target), value.column)
        return Separable(grid, column, value.thread.astype(target), to.kind == "i")
    found = exact(value)
    if found is None:
        return _rules().by_distinct_blocks(grid, [value], lambda a: a.astype(to))
    true, thread = found
    column = grid.derived(("wide", target), lambda: true.values.astype(target), true)
    return Separable(grid, column, thread.astype(target), to.kind == "i")


def exact(value: Separable) -> tuple[Column, Array] | None:
    """The numbers as the sum, without any wrap-around, of a column and a row of signed 64-bit integers; or None."""
    cached = value._exact.get(value.signed)
    if cached is not None and cached[0] == value.grid.version:
        return cached[1]
    result = _exact(value)
    value._exact[value.signed] = (value.grid.version, result)
    return result


def _exact(value: Separable) -> tuple[Column, Array] | None:
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
    number = np.full(1, by & ((1 << (8 * dtype.itemsize)) - 1), dtype=dtype)
    return grid.derived(("plus", by), lambda: column.values + number, column)
