"""The address pass: one execution for all blocks of a grid, with integers exact in every block and data opaque.

Integers are `BlockAffine` values.  Data is an opaque value with a taint flag, which is set where a number that differs
between blocks is an operand.  Tainted data is not the data of the reference block with shifted addresses, so a pass
that stores it fails.  The sum of such a number and data is an address that shifts like any other (`MovedData`), also
where a sum of 32 bits is widened (`MovedWord`).  Loads from buffers whose contents the launch gives are integers, exact
in every block, if the launch does not write the buffer.  The result of a pass is the list of global memory accesses of
its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bitwise_core.checker.block_symmetry.block_affine import (
    TAINT,
    BlockAffine,
    apply_ufunc,
    block_only,
    convert,
    decide,
    evaluate_by_column,
    evaluate_by_distinct_blocks,
    exact,
    opaque_data,
    plain,
    select,
    unsigned,
)
from bitwise_core.checker.block_symmetry.grid import Column, Grid, Limits, NotSymmetric
from bitwise_core.execution.active_lanes import WholeBlocks, active_values
from bitwise_core.execution.buffers import sizes_of_buffers
from bitwise_core.execution.concrete import PreparedLaunch, machine_for
from bitwise_core.execution.domains.domain import OpaqueProducts, Unsupported
from bitwise_core.execution.executor import MAXIMUM_STEPS, Executor
from bitwise_core.execution.launch import POINTER_SHIFT, buffer_at, buffers_at
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change, GlobalMemory
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.races.race_histories import NoRaceDetection
from bitwise_core.execution.term_recorder import Recorder, TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps import mma_steps
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.numerics import FloatFormat, Operation


def taint_of(*values: Any) -> int:
    """TAINT where a value differs between blocks by more than the addresses of its loads; else 0."""
    for value in values:
        if isinstance(value, BlockAffine):
            if isinstance(plain(value), BlockAffine):
                return TAINT
        elif isinstance(value, L.PackedVector):
            if taint_of(*value.parts):
                return TAINT
        elif isinstance(value, L.SymbolicVector):
            flags = value.flags
            if flags & TAINT if isinstance(flags, int) else (flags & np.uint32(TAINT)).any():
                return TAINT
    return 0


_CONTEXT = TermContext()


class MovedData(L.SymbolicVector):
    """A sum, in 64 bits, of a number that differs between blocks and data that is not tainted.

    As an address it moves by that number between blocks, as the address of any other load does.  As data it is tainted.
    `wraps`: the sum may be less by that many bytes at least, which as an address must leave its buffer; 0: it is exact.
    """

    __slots__ = ("number", "wraps")

    def __init__(self, number: BlockAffine, wraps: int = 0) -> None:
        super().__init__(64, opaque_data(64).words, L.TERM | TAINT)
        self.number, self.wraps = number, wraps


class MovedWord(L.SymbolicVector):
    """A sum, in 32 bits, of a number of each block below 2**31 and data that is not tainted.  As data it is tainted.

    It wraps around to a negative number only, as the data is at most 2**31 - 1: the sum is then less than the number
    by more than 2**31.
    """

    __slots__ = ("number",)

    def __init__(self, number: BlockAffine) -> None:
        super().__init__(32, opaque_data(32).words, L.TERM | TAINT)
        self.number = number


class AddressDomain(OpaqueProducts):
    """The domain of an address pass, see `execution.domains.domain.Domain`."""

    name = "addresses"
    recorder: Recorder | None = None

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.pointers: set[int] = set()
        """The buffers whose addresses were combined with data; a gather may read them."""
        self.moved_pointers: set[int] = set()
        """Those of which the address differs between blocks, and was combined with data by additions only."""

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`: no assumption decides an address."""
        return True

    def assumed_finite(self, value: Value, form: FloatFormat) -> bool | Array:
        """See `Domain.assumed_finite`: a pass assumes nothing, so it covers at least the executions of a full run."""
        return False

    def with_open_nans(self, value: Value, form: FloatFormat, note: str) -> Value:
        """See `Domain.with_open_nans`: no address is the bits of a NaN."""
        return value

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`: constants are evaluated, all other results are opaque data."""
        for each in operands:
            if not isinstance(each, np.ndarray):
                break
        else:
            if operation.function is not None:
                return operation.function(*operands)
        return opaque_data(operation.bits, taint_of(*operands))

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Any:
        """See `Domain.integer`."""
        function = operation.function
        assert function is not None
        values = [_as_integers(each) for each in operands]
        if all(isinstance(each, np.ndarray) for each in values):
            return function(*values)
        if not all(isinstance(each, np.ndarray | BlockAffine) for each in values):
            return self._integer_with_data(operation, function, values)
        if all(block_only(each) for each in values):
            return evaluate_by_column(self.grid, (operation.name, operation.bits), values, function)
        result = _exact_result(self.grid, operation, values)
        return evaluate_by_distinct_blocks(self.grid, values, function) if result is None else result

    def _integer_with_data(self, operation: Operation, function: Callable[..., Array], values: Sequence[Any]) -> Value:
        """An operation on data and integers; a known predicate decides the lanes in which it is absorbing."""
        if operation.name in ("and.b1", "or.b1"):
            for fixed, other in (values, values[::-1]):
                if isinstance(fixed, np.ndarray | BlockAffine):
                    decided = decide(fixed)
                    absorbing = decided if operation.verb == "or" else ~decided
                    if absorbing.all():
                        return decided
                    return blend_values(absorbing, decided, other) if absorbing.any() else other
        moved = self._moved(operation, values)
        if moved is not None:
            return moved
        self._note_pointers(values)
        result = opaque_data(operation.bits, taint_of(*values))
        known: Any = True
        for each in values:
            known = known & (
                isinstance(each, np.ndarray) or (isinstance(each, L.SymbolicVector) and L.constant_mask(each))
            )
        if not np.any(known):
            return result
        numbers = [each if isinstance(each, np.ndarray) else L.constants_of(each) for each in values]
        return blend_values(known, function(*numbers), result)

    def _moved(self, operation: Operation, values: Sequence[Any]) -> Value | None:
        """The result of an operation that keeps the sum of a number of each block and data; None for any other."""
        if operation.name == "add.b64":
            return self._moved_data(values[0], values[1])
        if operation.name == "add.b32":
            return self._moved_word(values[0], values[1]) or self._moved_word(values[1], values[0])
        if operation.name == "shr.s64":
            return self._widened_word(values[0], values[1])
        return None

    def _moved_data(self, left: Any, right: Any) -> MovedData | None:
        """The sum of data and of a number that differs between blocks, or of such a sum and another value."""
        for value, other in ((left, right), (right, left)):
            if isinstance(value, MovedData):
                if isinstance(other, np.ndarray | BlockAffine):
                    total = _apply(self.grid, np.add, value.number, other)
                    if isinstance(total, BlockAffine):
                        self.moved_pointers |= _buffers_of(other)
                        return MovedData(total, value.wraps)
                    return None
                # More data could bring a sum that wrapped around back into its buffer.
                return None if taint_of(other) or value.wraps else value
            if isinstance(value, BlockAffine) and isinstance(other, L.SymbolicVector) and not taint_of(other):
                self.moved_pointers |= _buffers_of(value)
                return MovedData(value)
        return None

    def _moved_word(self, value: Any, other: Any) -> MovedWord | None:
        """The sum, in 32 bits, of a number of each block below 2**31 and of data."""
        if not isinstance(value, BlockAffine) or not isinstance(other, L.SymbolicVector) or taint_of(other):
            return None
        found = exact(value)
        if found is None:
            return None
        (low, high), thread = self.grid.bounds(found[0]), found[1]
        small = low + int(thread.min()) >= 0 and high + int(thread.max()) < 1 << 31
        return MovedWord(value) if small else None

    def _widened_word(self, value: Any, by: Any) -> MovedData | None:
        """A sum of 32 bits, sign-extended and times a power of two: zeros and the sum, shifted to the right."""
        if not isinstance(value, L.PackedVector) or not isinstance(by, np.ndarray) or by.size != 1:
            return None
        amount = int(by.flat[0])
        if len(value.parts) != 2 or not 0 <= amount <= 32:
            return None
        low, word = value.parts
        if not isinstance(low, np.ndarray) or low.any() or L.width(low) != 32 or not isinstance(word, MovedWord):
            return None
        number = convert(word.number, np.dtype(np.uint64))
        scaled = _apply(self.grid, np.left_shift, number, np.full((1, 1), 32 - amount, dtype=np.uint64))
        return MovedData(scaled, 1 << 63 - amount) if isinstance(scaled, BlockAffine) else None

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Any:
        """See `Domain.select`."""
        chosen: Any = _as_integers(predicate)
        numbers = all(isinstance(each, np.ndarray | BlockAffine) for each in (if_true, if_false))
        if numbers and if_true is if_false:
            return if_true
        if isinstance(chosen, BlockAffine):
            if numbers:
                return select(self.grid, chosen, if_true, if_false)
            return if_true if decide(chosen).all() else if_false
        if isinstance(chosen, np.ndarray):
            return blend_values(chosen, if_true, if_false)
        self._note_pointers([if_true, if_false])
        return opaque_data(L.width(if_true), taint_of(predicate, if_true, if_false))

    def _note_pointers(self, values: Sequence[Any]) -> None:
        """Record the buffers of the addresses among these integers, which an operation combines with data."""
        for value in values:
            if isinstance(value, np.ndarray | BlockAffine) and value.dtype.itemsize == 8:
                self.pointers |= _buffers_of(value)

    def note_stored(self, value: Value) -> None:
        """See `Domain.note_stored`."""

    def recalled(self, value: Value, mask: Array | None) -> Value:
        """See `Domain.recalled`."""
        return value

    def operand_vectors(self, elements: L.SymbolicVector, form: str, parts: int = 1) -> mma_steps.OperandVectors:
        """See `Domain.operand_vectors`."""
        return mma_steps.hashed_vectors(elements, form, _CONTEXT)

    def mma_step(
        self,
        step: MmaStep,
        accumulator: L.SymbolicVector,
        left: mma_steps.OperandVectors,
        right: mma_steps.OperandVectors,
    ) -> L.SymbolicVector:
        """See `Domain.mma_step`."""
        assert isinstance(left, mma_steps.HashedVectors)
        assert isinstance(right, mma_steps.HashedVectors)
        return mma_steps.mma_terms(step, accumulator, left, right, _CONTEXT)

    def opaque_products(self, bits: int, count: int, operands: Sequence[Value]) -> list[L.SymbolicVector]:
        """See `OpaqueProducts.opaque_products`."""
        taint = taint_of(*operands)
        return [opaque_data(bits, taint) for _ in range(count)]

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return opaque_data(bits)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        return opaque_data(bits, taint_of(address))


def _column_of_signed(number: BlockAffine) -> Column:
    """The numbers of the blocks of a number of 64 bits, as signed ones."""
    column = number.column
    return number.grid.derived("signed", lambda: column.values.view(np.int64), column)


def _buffers_of(number: Any) -> set[int]:
    """The buffers that numbers of 64 bits point into in the reference block, as far as they are pointers."""
    if isinstance(number, BlockAffine):
        number = number.grid.active_values(number.column)[:1] + number.thread
    return {int(each) for each in np.unique(buffers_at(number)) if each}


def _as_integers(value: Any) -> Any:
    """Lanes that are constants or undefined, as integers; a full run detects uses of undefined lanes."""
    if isinstance(value, L.SymbolicVector) and not isinstance(value.flags, int) and value.bits in L.UNSIGNED:
        unwritten = (value.flags & np.uint32(L.POISON)) != 0
        if ((value.flags & np.uint32(L.FORM | L.STICKY) == L.CONST) | unwritten).all() and not unwritten.all():
            return L.constants_of(value)
    return plain(value)


def _signed(value: Any) -> Any:
    return value.view(np.dtype(f"int{value.dtype.itemsize * 8}"))


def _apply(grid: Grid, ufunc: np.ufunc, *values: Any) -> Any:
    result = apply_ufunc(grid, ufunc, values)
    return result if result.dtype == np.bool_ else unsigned(result)


_WRAPPING = {"add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_COMPARISONS = {"eq": np.equal, "lt": np.less, "le": np.less_equal}


def _exact_result(grid: Grid, operation: Operation, values: Sequence[Any]) -> Any:
    """The result of an integer operation by an exact rule, None where no rule applies."""
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
        less = apply_ufunc(grid, np.less, viewed)
        return select(grid, less if verb == "min" else ~less, *values)
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
    """Division of nonnegative integers, for which rounding down is rounding toward zero."""
    value, by = values
    if not isinstance(by, np.ndarray) or by.size != 1 or int(by.flat[0]) <= 0:
        return None
    found = exact(value)
    if found is None or grid.bounds(found[0])[0] + int(found[1].min()) < 0:
        return None
    return _apply(grid, np.floor_divide if verb == "div" else np.remainder, value, by)


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """An access to global memory: in block b, lane i accesses `bits` bits at `column[b] + thread[i]`, modulo 2**64.

    `kind` is `load`, `gather`, `store` or `atomic`; `operation` is the name of the atomic operation.  A gather, a load
    at a computed address, accesses the sum of these addresses and of data, in the buffer of these addresses.
    """

    kind: str
    column: Column | None
    thread: Array
    bits: int
    line: int
    operation: str = ""


class AddressMemory(GlobalMemory):
    """The global memory of an address pass: it records accesses in order, and has no contents but given ones."""

    joins_conditions: ClassVar[bool] = False

    def __init__(self, domain: AddressDomain, given: GivenContents, sizes: Mapping[int, int]) -> None:
        super().__init__(domain, given)
        self.address_domain, self.sizes = domain, sizes
        self.accesses: list[GlobalAccess] = []
        self.gathered_buffers: set[int] = set()
        self.loaded_given: set[int] = set()

    def _record(self, kind: str, address: Any, bits: int, mask: Array | None, line: int, operation: str = "") -> None:
        value = plain(address)
        column = value.column if isinstance(value, BlockAffine) else None
        thread = value.thread if isinstance(value, BlockAffine) else value
        thread = active_values(thread, mask)
        if thread.size:
            self.accesses.append(
                GlobalAccess(kind, column, thread.reshape(-1).astype(np.uint64, copy=False), bits, line, operation)
            )

    def load(self, address: Any, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Any:
        """See `GlobalMemory.load`."""
        self._record("load", address, bits, mask, line)
        given = self._given_buffer(address, mask)
        if given is None:
            return opaque_data(bits)
        self.loaded_given.add(given)
        active = np.ones((1, 1), dtype=bool) if mask is None else mask

        def read(where: Array) -> Array:
            return self.given.read(where, bits, active, line, follows_pointers=self.follows_pointers)

        value = plain(address)
        if not isinstance(value, BlockAffine):
            return read(value)
        return evaluate_by_distinct_blocks(self.address_domain.grid, [value], read)

    def _given_buffer(self, address: Any, mask: Array | None) -> int | None:
        """The buffer of an access to given contents, that of its first active lane in the reference block.

        Every access of a pass is later proved to be to one buffer, in all lanes of all blocks (`symmetry`).
        """
        if not self.given.buffers:
            return None
        value = plain(address)
        if isinstance(value, BlockAffine):
            value = value.grid.active_values(value.column)[:1].reshape(1, 1) + value.thread
        value = active_values(value, mask)
        buffer = buffer_at(int(value.flat[0])) if value.size else 0
        return buffer if buffer in self.given.buffers else None

    def gather(
        self, address: Value, bits: int, mask: Array | None, line: int, buffers: Iterable[int] | None = None
    ) -> Value:
        """See `GlobalMemory.gather`."""
        domain, known = self.address_domain, set(buffers or ())
        if not domain.pointers | domain.moved_pointers:
            raise NotSymmetric("memory is read at a computed address in an unknown buffer", line)
        self.gathered_buffers |= domain.pointers | domain.moved_pointers | known
        number = address.number if isinstance(address, MovedData) else None
        if isinstance(address, MovedData) and address.wraps:
            self._check_leaves_its_buffer(address, mask, line)
        if number is None and taint_of(address):
            return domain.gather(address, bits, mask)
        # Data that a run of one block finds to be constant makes a load of the address to which it is added.
        own = set() if number is None else _buffers_of(number)
        column = None if number is None else number.column
        reached = own | (known or domain.pointers)
        for buffer in reached:
            thread = np.array([buffer << POINTER_SHIFT], dtype=np.uint64)
            if number is not None and buffer in own:
                thread = active_values(number.thread, mask).reshape(-1)
            if thread.size:
                self.accesses.append(GlobalAccess("gather", column, thread, 8, line))
        # There it returns given numbers, which differ between blocks.
        moves_in_given = column is not None and not reached.isdisjoint(self.given.buffers)
        return opaque_data(bits, TAINT if moves_in_given else 0)

    def _check_leaves_its_buffer(self, address: MovedData, mask: Array | None, line: int) -> None:
        """Raise NotSymmetric unless an address that wrapped around is below its buffer in every block.

        No access leaves its buffer, so that the sum of an access has not wrapped around.  A buffer whose size the
        launch does not state may have elements below its start.
        """
        number = address.number
        thread = active_values(number.thread, mask).view(np.int64)
        least, most = number.grid.bounds(_column_of_signed(number))
        first, last = least + int(thread.min(initial=0)), most + int(thread.max(initial=0))
        buffer = buffer_at(first)
        if first < 0 or last - address.wraps >= buffer << POINTER_SHIFT:
            raise NotSymmetric("a sum of 32 bits with data may wrap around within its buffer", line)
        if buffer not in self.sizes:
            raise NotSymmetric(
                "a sum of 32 bits with data may wrap around; state the number of elements of its buffer", line
            )

    def store(self, address: Any, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        self._check_untainted(value, line)
        self._record("store", address, L.width(value), mask, line)

    def atomic(
        self,
        operation: Operation,
        address: Any,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> None:
        """See `GlobalMemory.atomic`."""
        self._check_untainted(value, line)
        self._record("atomic", address, L.width(value), mask, line, operation.name)

    def limit_scope(self, address: Any, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.limit_scope`.  Raises NotSymmetric: other blocks may update the element."""
        raise NotSymmetric("an atomic operation has the scope of a block", line)

    def update(
        self, change: Change, address: Any, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> Value:
        """See `GlobalMemory.update`.  Raises NotSymmetric: blocks may update one element."""
        raise NotSymmetric("an atomic operation returns or leaves a value that depends on the order of blocks", line)

    def _check_untainted(self, value: Value, line: int) -> None:
        if taint_of(value):
            raise NotSymmetric("a stored value depends on the block's number by more than addresses", line)


class OpaqueSharedMemory(SharedMemory):
    """Shared memory that records only whether tainted data was stored: sufficient if it holds no integers."""

    def __init__(self) -> None:
        super().__init__(16, 1, 16)
        self.taint = 0

    def cells(self, address: Array, mask: Array | None) -> Array:
        """See `SharedMemory.cells`."""
        if isinstance(plain(address), BlockAffine):
            raise NotSymmetric("an address in shared memory differs between blocks")
        return address.astype(np.int64)

    def store(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> None:
        """See `SharedMemory.store`."""
        taint = self.taint | taint_of(value)
        self.version += taint != self.taint
        self.taint = taint

    def load(self, cells: Array, bits: int, rows: Array | None = None, whole: WholeBlocks | None = None) -> Value:
        """See `SharedMemory.load`."""
        return opaque_data(bits, self.taint)

    def copy(self) -> SharedMemory:
        """See `SharedMemory.copy`: the sides of a branch on data share what was stored."""
        return self

    def selected(self, other: SharedMemory, select: Callable[[Value, Value], Value]) -> SharedMemory:
        """See `SharedMemory.selected`."""
        return self


# -- the pass ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddressPass:
    """The result of one pass: its active blocks have the same control flow, masks and `accesses`.

    `scratch` are the buffers of scratch memory.
    """

    grid: Grid
    accesses: tuple[GlobalAccess, ...]
    scratch: frozenset[int]
    gathered: frozenset[int]
    """Buffers that may be read at addresses computed from data."""
    loaded_given: frozenset[int]
    """Buffers of which the pass read the contents that the launch gives."""


def address_passes(prepared: PreparedLaunch, buffers: Mapping[str, int], limits: Limits) -> list[AddressPass]:
    """Run the passes that together cover the grid.  Raises NotSymmetric where a pass fails or there are too many.

    A pass that fails after it was narrowed is repeated with its active blocks alone, in which more numbers are equal.
    Shared memory is opaque at first; a kernel that keeps integers there is executed again with exact shared memory.
    """
    if prepared.launch.blocks > limits.grid_blocks:
        raise NotSymmetric(f"the grid has more than {limits.grid_blocks} blocks")
    if prepared.blocks_interact:
        raise NotSymmetric("the blocks of a cluster depend on each other")
    pending: list[Array] = [np.arange(prepared.launch.blocks, dtype=np.int64)]
    granule = prepared.arch.granule(prepared.kernel)
    found: list[AddressPass] = []
    opaque = True
    while pending:
        if len(pending) + len(found) > limits.classes:
            raise NotSymmetric(f"the grid has more than {limits.classes} classes of blocks with different control flow")
        grid = Grid(pending.pop(), limits)
        try:
            found.append(_run_pass(prepared, buffers, grid, granule, opaque=opaque))
            pending.extend(grid.excluded)
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise NotSymmetric("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            pending.append(grid.numbers)
        except NotSymmetric:
            if grid.active is not None and grid.blocks.size < grid.numbers.size:
                pending.extend([*grid.excluded, grid.blocks])
            elif opaque:
                opaque = False
                pending.append(grid.numbers)
            else:
                raise
    return found


def _run_pass(
    prepared: PreparedLaunch, buffers: Mapping[str, int], grid: Grid, granule: int, *, opaque: bool
) -> AddressPass:
    numbers = grid.numbers
    given = GivenContents(prepared.launch, buffers)
    memory = AddressMemory(AddressDomain(grid), given, sizes_of_buffers(prepared.launch, buffers))
    block = None
    if numbers.size > 1:
        block = BlockAffine(grid, Column(numbers.view(np.uint64)), np.zeros((1, 1), dtype=np.uint64))
    # An architecture derives registers of the initial state from the index of the block.
    machine = machine_for(prepared, memory, buffers, numbers[:1], granule, block)  # type: ignore[arg-type]
    if opaque:
        machine.shared = OpaqueSharedMemory()
    machine.races = NoRaceDetection(prepared.threads, prepared.arch.warp)
    machine.races.follows_updates = False
    machine.thread = machine.local_thread
    try:
        Executor(prepared.program, machine, [MAXIMUM_STEPS]).start()
    except NotSymmetric as error:
        if error.line is None:
            error.line = machine.line
        raise
    except Unsupported as error:
        raise NotSymmetric(f"the execution of all blocks at once fails: {error.reason}", error.line) from None
    return AddressPass(
        grid,
        tuple(memory.accesses),
        frozenset(machine.extra.get("scratch", ())),
        frozenset(memory.gathered_buffers),
        frozenset(memory.loaded_given),
    )
