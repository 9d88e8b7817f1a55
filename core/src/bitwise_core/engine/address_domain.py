"""The domain of an address pass: integers of all blocks exactly, data as tokens that only know their taint.

Data is tainted where a number that differs between blocks has entered it: such data is not the reference block's
under a shift of addresses, and a pass that stores it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitwise_core.engine import block_arithmetic as arithmetic
from bitwise_core.engine import block_evaluation as evaluation
from bitwise_core.engine.grid import Column, Grid, NotTranslations
from bitwise_core.engine.separable import TAINT, Separable, block_only, decide, exact, plain, token, unsigned
from bitwise_core.machine import lanes as L
from bitwise_core.machine import matrix
from bitwise_core.machine.cells import SharedMemory
from bitwise_core.machine.global_memory import GlobalMemory
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.launch import POINTER_SHIFT
from bitwise_core.machine.matrix import FusedStep
from bitwise_core.machine.pieces import choose
from bitwise_core.machine.races import RaceDetector, Races
from bitwise_core.numeric import Operation


def taint_of(*values: Any) -> int:
    """TAINT where some value is not the same in all blocks of the pass up to the addresses of its leaves."""
    for value in values:
        if isinstance(value, Separable):
            if isinstance(plain(value), Separable):
                return TAINT
        elif isinstance(value, L.Pieces):
            if taint_of(*value.parts):
                return TAINT
        elif isinstance(value, L.Lanes):
            meta = value.meta
            if meta & TAINT if isinstance(meta, int) else (meta & np.uint32(TAINT)).any():
                return TAINT
    return 0


class AddressDomain:
    """See `machine.domain.Domain`."""

    name = "addresses"

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.pointers: set[int] = set()
        """The buffers whose addresses data was added to: what a gather may read."""

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`: a pass assumes nothing, and so follows at least what a run follows."""
        return False

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`: known numbers are evaluated, everything else is a token."""
        for each in operands:
            if not isinstance(each, np.ndarray):
                break
        else:
            if operation.function is not None:
                return operation.function(*operands)
        return token(operation.bits, taint_of(*operands))

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Any:
        """See `Domain.integer`."""
        function = operation.function
        assert function is not None
        values = [_numbers(each) for each in operands]
        if all(isinstance(each, np.ndarray) for each in values):
            return function(*values)
        if not all(isinstance(each, np.ndarray | Separable) for each in values):
            return self._mixed(operation, function, values)
        if all(block_only(each) for each in values):
            return evaluation.by_column(self.grid, (operation.name, operation.bits), values, function)
        result = _by_name(self.grid, operation, values)
        return evaluation.by_distinct_blocks(self.grid, values, function) if result is None else result

    def _mixed(self, operation: Operation, function: Callable[..., Array], values: Sequence[Any]) -> Value:
        """Data meets integers; a predicate of the launch decides where it absorbs."""
        if operation.name in ("and.b1", "or.b1"):
            for fixed, other in (values, values[::-1]):
                if isinstance(fixed, np.ndarray | Separable):
                    decided = decide(fixed)
                    absorbing = decided if operation.verb == "or" else ~decided
                    if absorbing.all():
                        return decided
                    return choose(absorbing, decided, other) if absorbing.any() else other
        self._note_pointers(values)
        result = token(operation.bits, taint_of(*values))
        known: Any = True
        for each in values:
            known = known & (isinstance(each, np.ndarray) or (isinstance(each, L.Lanes) and L.known_where(each)))
        if not np.any(known):
            return result
        numbers = [each if isinstance(each, np.ndarray) else L.numbers_of(each) for each in values]
        return choose(known, function(*numbers), result)

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Any:
        """See `Domain.select`."""
        chosen: Any = _numbers(predicate)
        numbers = all(isinstance(each, np.ndarray | Separable) for each in (if_true, if_false))
        if numbers and if_true is if_false:
            return if_true
        if isinstance(chosen, Separable):
            if numbers:
                return arithmetic.select(self.grid, chosen, if_true, if_false)
            return if_true if decide(chosen).all() else if_false
        if isinstance(chosen, np.ndarray):
            return choose(chosen, if_true, if_false)
        self._note_pointers([if_true, if_false])
        return token(L.width(if_true), taint_of(predicate, if_true, if_false))

    def _note_pointers(self, values: Sequence[Any]) -> None:
        """Numbers that meet data and are addresses of buffers."""
        for value in values:
            if isinstance(value, np.ndarray | Separable) and value.dtype.itemsize == 8:
                first = value if isinstance(value, np.ndarray) else value.grid.on(value.column)[:1] + value.thread
                buffers = np.unique(first >> np.uint64(POINTER_SHIFT))
                self.pointers.update(int(each) for each in buffers if each)

    def vectors(self, elements: L.Lanes) -> matrix.Vectors:
        """See `Domain.vectors`."""
        return matrix.hashed_vectors(elements)

    def fused(self, step: FusedStep, accumulator: L.Lanes, left: matrix.Vectors, right: matrix.Vectors) -> L.Lanes:
        """See `Domain.fused`."""
        assert isinstance(left, matrix.Hashed)
        assert isinstance(right, matrix.Hashed)
        return matrix.fused_terms(step, accumulator, left, right)

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return token(bits)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        return token(bits, taint_of(address))


def _numbers(value: Any) -> Any:
    """Numbers in some lanes and nothing yet in the others as numbers: a run tells if the others are read."""
    if isinstance(value, L.Lanes) and not isinstance(value.meta, int) and value.bits in L.UNSIGNED:
        unwritten = (value.meta & np.uint32(L.POISON)) != 0
        if ((value.meta & np.uint32(L.FORM | L.STICKY) == L.KNOWN) | unwritten).all() and not unwritten.all():
            return L.numbers_of(value)
    return plain(value)


def _signed(value: Any) -> Any:
    return value.view(np.dtype(f"int{value.dtype.itemsize * 8}"))


def _apply(grid: Grid, ufunc: np.ufunc, *values: Any) -> Any:
    result = arithmetic.apply_ufunc(grid, ufunc, values)
    return result if result.dtype == np.bool_ else unsigned(result)


_WRAPPING = {"add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_COMPARISONS = {"eq": np.equal, "lt": np.less, "le": np.less_equal}


def _by_name(grid: Grid, operation: Operation, values: Sequence[Any]) -> Any:
    """The exact rule of an integer operation by its verb, None where there is none."""
    verb, bits, form = operation.verb, operation.bits, operation.operands[0]
    if (bits == 1 and not operation.is_comparison) or operation.modifiers or operation.is_float:
        return None
    if verb in _WRAPPING:
        return _apply(grid, _WRAPPING[verb], *values)
    if verb == "mul":
        return _apply(grid, np.multiply, *values)
    if verb in ("shl", "shr"):
        return _shift(grid, verb, form.name, values, bits)
    if verb == "not":
        return _apply(grid, np.invert, *values)
    if verb == "neg":
        return _apply(grid, np.subtract, np.zeros((1, 1), dtype=L.UNSIGNED[bits]), *values)
    is_signed = form.name[0] == "s"
    viewed = [_signed(each) if is_signed else each for each in values]
    if verb == "convert":
        return unsigned(viewed[0].astype(L.UNSIGNED[bits]))
    if verb == "mulwide":
        wide = np.dtype(f"{'int' if is_signed else 'uint'}{bits}")
        return _apply(grid, np.multiply, *(each.astype(wide) for each in viewed))
    if verb in _COMPARISONS:
        return _apply(grid, _COMPARISONS[verb], *viewed)
    if verb in ("min", "max"):
        less = arithmetic.apply_ufunc(grid, np.less, viewed)
        return arithmetic.select(grid, less if verb == "min" else ~less, *values)
    if verb in ("div", "rem"):
        return _quotient(grid, verb, viewed)
    return None


def _shift(grid: Grid, verb: str, kind: str, values: Sequence[Any], bits: int) -> Any:
    value, by = values
    if not isinstance(by, np.ndarray) or by.size != 1 or int(by.flat[0]) >= bits:
        return None
    amount = np.full((1, 1), int(by.flat[0]), dtype=L.UNSIGNED[bits])
    if verb == "shl":
        return _apply(grid, np.left_shift, value, amount)
    if kind[0] == "s":
        return _apply(grid, np.right_shift, _signed(value), _signed(amount))
    return _apply(grid, np.right_shift, value, amount)


def _quotient(grid: Grid, verb: str, values: Sequence[Any]) -> Any:
    """Division of numbers that are not negative, where rounding down is rounding toward zero."""
    value, by = values
    if not isinstance(by, np.ndarray) or by.size != 1 or int(by.flat[0]) <= 0:
        return None
    found = exact(value)
    if found is None or grid.bounds(found[0])[0] + int(found[1].min()) < 0:
        return None
    return _apply(grid, np.floor_divide if verb == "div" else np.remainder, value, by)


@dataclass(frozen=True, slots=True)
class Touch:
    """One access to global memory: in block b, lane i touches `bits` bits at `column[b] + thread[i]`, wrapped."""

    kind: str
    column: Column | None
    thread: Array
    bits: int
    line: int
    operation: str = ""


class AddressMemory(GlobalMemory):
    """Global memory of an address pass: what is touched, in order, and nothing else."""

    def __init__(self, domain: AddressDomain) -> None:
        super().__init__(domain)
        self.addresses = domain
        self.touched: list[Touch] = []
        self.read_by_data: set[int] = set()

    def _touch(self, kind: str, address: Any, bits: int, mask: Array | None, line: int, operation: str = "") -> None:
        value = plain(address)
        column = value.column if isinstance(value, Separable) else None
        thread = value.thread if isinstance(value, Separable) else value
        if mask is not None:
            shape = np.broadcast_shapes(thread.shape, mask.shape)
            thread = np.broadcast_to(thread, shape)[np.broadcast_to(mask, shape)]
        if thread.size:
            self.touched.append(
                Touch(kind, column, thread.reshape(-1).astype(np.uint64, copy=False), bits, line, operation)
            )

    def load(self, address: Any, bits: int, mask: Array | None, thread: Array, epoch: int, line: int) -> Value:
        """See `GlobalMemory.load`."""
        self._touch("load", address, bits, mask, line)
        return token(bits)

    def gather(self, address: Value, bits: int, mask: Array | None, line: int, buffers: object = None) -> Value:
        """See `GlobalMemory.gather`."""
        if not self.addresses.pointers:
            raise NotTranslations("memory is read at a computed address in a buffer that is not known", line)
        self.read_by_data |= self.addresses.pointers
        return self.domain.gather(address, bits, mask)

    def store(self, address: Any, value: Value, mask: Array | None, thread: Array, epoch: int, line: int) -> None:
        """See `GlobalMemory.store`."""
        self._check(value, line)
        self._touch("store", address, L.width(value), mask, line)

    def atomic(
        self,
        operation: Operation,
        address: Any,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: int,
        line: int,
    ) -> None:
        """See `GlobalMemory.atomic`."""
        self._check(value, line)
        self._touch("atomic", address, L.width(value), mask, line, operation.name)

    def _check(self, value: Value, line: int) -> None:
        if taint_of(value):
            raise NotTranslations("a stored value depends on the block's number by more than addresses", line)


class OpaqueShared(SharedMemory):
    """Shared memory of which the pass only knows whether something tainted was stored: enough where it holds data."""

    def __init__(self) -> None:
        super().__init__(16, 1, 16)
        self.taint = 0

    def cells(self, address: Array, mask: Array | None) -> Array:
        """See `SharedMemory.cells`."""
        if isinstance(plain(address), Separable):
            raise NotTranslations("an address in shared memory differs between blocks")
        return address.astype(np.int64)

    def store(self, cells: Array, value: Value, mask: Array | None) -> None:
        """See `SharedMemory.store`."""
        taint = self.taint | taint_of(value)
        self.version += taint != self.taint
        self.taint = taint

    def load(self, cells: Array, bits: int) -> Value:
        """See `SharedMemory.load`."""
        return token(bits, self.taint)


class NoRaces(Races):
    """Watches nothing: the blocks that are run in full are watched."""

    def __init__(self, threads: int, warp: int) -> None:
        super().__init__(1, threads, warp, 1)

    def acting(self, mask: Array | None) -> list[RaceDetector]:
        """See `Races.acting`."""
        return []

    def of_blocks(self, rows: Array) -> list[RaceDetector]:
        """See `Races.of_blocks`."""
        return []

    def at(self, cells: Array, mask: Array) -> list[tuple[RaceDetector, Array]]:
        """See `Races.at`."""
        return []
