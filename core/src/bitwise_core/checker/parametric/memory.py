"""The global memory of the launch-parametric analysis: loads and stores of one block at symbolic addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.accessed_elements import LoadedElement, StoredElement
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.global_conflicts import check_conflicts
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.values import ParametricInteger, Predicate, Selection, conjunction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.atomic_contributions import is_order_independent
from bitwise_core.execution.memory.given_contents import GivenContents, none_given
from bitwise_core.execution.memory.loads import stored_elements
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.nan_marks import format_of_mark
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, may_be_moved, term
from bitwise_core.numerics import Operation

UNSPECIFIED_NAN_STORED = "a stored value may have bits of a NaN that no document specifies"
COPIED_BITS = 16
"""Copied elements are compared in parts of this width, so that the width of a copy does not matter."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The elements of one store: hashes of shape (2, rows, elements), as in `Elements`."""

    element_hash: hashing.Words
    address: hashing.Words
    operation: str
    line: int
    access: StoredElement


@dataclass(frozen=True, slots=True)
class Elements:
    """All elements that a block stores, of shape (2, rows, elements).

    `element_hash` is the hash of address, condition and value, `address` that of the address alone.
    """

    element_hash: hashing.Words
    address: hashing.Words


class ParametricMemory:
    """Loads and stores of a block; a buffer is identified by the pointer parameter that is the base of an address.

    `path` are the conditions of the branches on the path to the current instruction.  `only_determined`: loaded values
    need not be exact, so that a thread may read an element that it has written.  `unordered` are the lines of loads
    that nothing orders with stores, not even with those of their thread.
    """

    undetermined = None
    """A race ends the analysis."""
    orders_blocks: ClassVar[bool] = False
    """See `GlobalMemory.orders_blocks`."""
    given: ClassVar[GivenContents] = none_given()
    """Contents that a launch gives are ignored for every launch."""

    def __init__(
        self,
        domain: ParametricDomain,
        threads: int,
        only_determined: bool = False,
        unordered: frozenset[int] = frozenset(),
    ) -> None:
        self.only_determined, self.unordered = only_determined, unordered
        self.domain, self.rows, self.threads = domain, domain.rows, threads
        self.stored: list[Stored] = []
        self.written: dict[int, str] = {}
        self.contributed: dict[int, int] = {}
        """The buffers that atomic operations change, with the line of one."""
        self.loaded: dict[int, list[LoadedElement]] = {}
        self.reads = 0
        """How often memory was read."""
        self.path: list[Value] = []
        self.iterations: list[int] = []
        """The atoms that number the iterations of the loops around the current instruction."""
        self.open_nans: dict[tuple[int, str], int] = {}
        """The buffers to which numbers of a format are stored whose NaN has open bits, with the line of a store."""
        self.mask_differs: int | None = None
        """The line of a store whose active threads differ between instances of the launch."""

    def pointer(self, address: Value, line: int) -> int:
        """The index of the pointer parameter that is the base of an address.  Raises Unsupported."""
        if isinstance(address, ParametricInteger):
            atoms = self.domain.integers.atoms
            pointers = [
                (atoms[m[0]].pointer, c)
                for m, c in address.polynomial.terms.items()
                if len(m) == 1 and atoms[m[0]].pointer is not None
            ]
            number, coefficient = pointers[0] if len(pointers) == 1 else (None, 0)
            if number is not None and isinstance(coefficient, int) and coefficient == 1:
                return number
        raise Unsupported("memory is accessed at an address that is not an offset from one pointer", line)

    def buffer_of_pointer(self, pointer: Value) -> int | None:
        """The index of a pointer parameter, None for a parameter that is no pointer."""
        found = pointer.polynomial.atoms() if isinstance(pointer, ParametricInteger) else set()
        return self.domain.integers.atoms[found.pop()].pointer if len(found) == 1 else None

    def pointers_in(self, value: Value) -> frozenset[int]:
        """The indices of the pointer parameters in the sum that a value is."""
        found = value.polynomial.atoms() if isinstance(value, ParametricInteger) else set()
        pointers = (self.domain.integers.atoms[each].pointer for each in found)
        return frozenset(each for each in pointers if each is not None)

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """Raise Unsupported: no address is a number."""
        raise Unsupported("memory is read at an absolute address", line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """Raise Unsupported: no address is a number."""
        raise Unsupported("memory is written at an absolute address", line)

    def atomic(
        self,
        operation: Operation,
        address: Array,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> None:
        """Raise Unsupported: no address is a number."""
        raise Unsupported("an atomic operation at an absolute address", line)

    def contribute(
        self,
        operation: Operation,
        parts: Sequence[Value],
        mask: Array | None,
        shape: tuple[int, int],
        line: int,
        buffers: Sequence[int] | None = None,
    ) -> None:
        """Record an atomic operation where only determinism is wanted.  Raises Unsupported.

        Its result does not depend on the order of the contributions, nor on where their addresses come from.
        `buffers` are the pointer parameters from which the address may be computed.
        """
        if not self.only_determined:
            raise Unsupported("an atomic operation at a computed address", line)
        if not is_order_independent(operation):
            raise Unsupported("an atomic operation's result depends on the order of threads", line)
        if any(np.any(np.bitwise_and(as_symbolic_vector(part).flags, L.STICKY)) for part in parts):
            raise Unsupported("a contribution depends on an undefined value", line)
        for pointer in (self.pointer(parts[0], line),) if buffers is None else buffers:
            if self.written.setdefault(pointer, operation.name) != operation.name:
                raise Unsupported("a buffer is written in different ways", line)
            self.contributed[pointer] = line

    def gather(self, address: Value, bits: int, mask: Array | None, line: int, buffers: object = None) -> Value:
        """The contents before the launch; the kernel must not have written the buffer.  Raises Unsupported."""
        pointer = self.pointer(address, line)
        if pointer in self.written and (pointer in self.contributed or not self.only_determined):
            raise Unsupported("a buffer is read after the kernel has written it", line)
        assert isinstance(address, ParametricInteger)
        self.reads += 1
        self.loaded.setdefault(pointer, []).append(
            LoadedElement(pointer, address.polynomial, bits, self._active_threads(mask), line)
        )
        return self.domain.gather(address, bits, mask)

    def _active_threads(self, mask: Array | None) -> Array:
        """The threads that are active in some instance of the launch."""
        if mask is None:
            return np.arange(self.threads)
        return np.flatnonzero(np.broadcast_to(mask.any(axis=0), (self.threads,)))

    def loads_so_far(self) -> dict[int, int]:
        """The number of recorded loads of each buffer."""
        return {pointer: len(loads) for pointer, loads in self.loaded.items()}

    def loads_after(self, counts: Mapping[int, int]) -> list[LoadedElement]:
        """The loads that were recorded after `counts` was taken."""
        return [each for pointer, loads in self.loaded.items() for each in loads[counts.get(pointer, 0) :]]

    def add_loads(self, loads: Sequence[LoadedElement]) -> None:
        """Record loads."""
        for each in loads:
            self.loaded.setdefault(each.pointer, []).append(each)

    def forget_accesses_after(self, stores: int, loads: Mapping[int, int]) -> None:
        """Drop the stores and loads that were recorded after these counts were taken."""
        del self.stored[stores:]
        self.forget_loads_after(loads)

    def forget_loads_after(self, counts: Mapping[int, int]) -> None:
        """Drop the loads that were recorded after `counts` was taken."""
        for pointer in list(self.loaded):
            del self.loaded[pointer][counts.get(pointer, 0) :]
            if not self.loaded[pointer]:
                del self.loaded[pointer]

    @property
    def read(self) -> set[int]:
        """The pointers of the buffers that the kernel has read."""
        return set(self.loaded)

    def copied(
        self,
        machine: Machine,
        address: Value,
        bits: int,
        count: Value | None,
        mask: Array | None,
        line: int,
        buffers: object = None,
    ) -> Value:
        """The value of an asynchronous copy: all bytes, or zeros where the byte count is 0.  Raises Unsupported."""
        parts: list[Value] = []
        predicate: Value | None = None
        if count is not None:
            known = machine.known(count)
            if known is not None and ((known == bits // 8) | (known == 0)).all():
                predicate = known != 0
            elif (
                isinstance(count, Selection)
                and _is_constant(count.if_true, bits // 8)
                and _is_constant(count.if_false, 0)
            ):
                predicate = count.predicate
            else:
                raise Unsupported("an asynchronous copy has a computed byte count", line)
        for low in range(0, bits, 32):
            offset = np.full((1, 1), low // 8, dtype=np.uint64)
            place = self.domain.integer(numerics.operation("add.b64"), [address, offset]) if low else address
            load = self.gather(place, 32, mask, line)
            parts.append(
                load if predicate is None else self.domain.select(predicate, load, np.zeros((1, 1), dtype=np.uint32))
            )
        return concat(parts)

    def scatter(self, machine: Machine, address: Value, value: Value, line: int, operation: str = "store") -> None:
        """Record a store, or an atomic operation whose result does not depend on order, in the active lanes.

        Raises Unsupported.
        """
        pointer = self.pointer(address, line)
        assert isinstance(address, ParametricInteger)
        if self.written.setdefault(pointer, operation) != operation:
            raise Unsupported("a buffer is written in different ways", line)
        if operation != "store" and not is_order_independent(numerics.operation(operation)):
            raise Unsupported("an atomic operation's result depends on the order of threads", line)
        known: Array | None = machine.mask
        condition: SymbolicVector | None = None
        conditions = [*self.path, *(() if machine.condition is None else (machine.condition,))]
        bounds = tuple(value for each in conditions if isinstance(each, Predicate) for value in each.polynomials)
        if conditions:
            whole_condition = conjunction(self.domain.integers, conditions)
            settled = machine.known(whole_condition)
            if settled is None:
                condition = as_symbolic_vector(whole_condition)
                if np.any(np.bitwise_and(condition.flags, L.STICKY)):
                    raise Unsupported("whether an element is stored depends on an undefined value", line)
                if np.any(np.bitwise_and(condition.flags, L.UNSPECIFIED_NAN)):
                    reason = "whether an element is stored may depend on bits of a NaN that no document specifies"
                    raise Unsupported(reason, line)
                possible = self._possible(condition)
                settled = np.ones((1, 1), dtype=bool) if possible is None else possible
            known = settled if known is None else known & settled
        addresses = self.domain.integers.words_of(address.polynomial)
        for offset, part in _stored_elements(value):
            place = P.add_constant(address.polynomial, offset)
            self._record(pointer, place, addresses + np.uint64(offset), condition, bounds, part, known, operation, line)

    @staticmethod
    def _possible(condition: SymbolicVector) -> Array | None:
        """The lanes in which a condition may be true; None for all lanes."""
        known = L.constant_mask(condition)
        if known is False:
            return None
        possible = ~(known & (condition.words[0] == 0))
        return None if np.all(possible) else np.atleast_2d(possible)

    def _record(
        self,
        pointer: int,
        place: Polynomial,
        addresses: hashing.Words,
        condition: SymbolicVector | None,
        bounds: tuple[Polynomial, ...],
        value: SymbolicVector,
        known: Array | None,
        operation: str,
        line: int,
    ) -> None:
        hashed, flags_of_value = exact_hash(value), value.flags
        flags = int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(flags_of_value)), axis=None))
        if flags & L.STICKY:
            raise Unsupported("a stored value depends on an undefined value", line)
        if flags & L.UNSPECIFIED_NAN:
            raise Unsupported(UNSPECIFIED_NAN_STORED, line)
        marks = np.asarray(np.bitwise_and(flags_of_value, L.NAN_MARK))
        for mark in np.unique(marks[(marks != 0) & (np.asarray(may_be_moved(flags_of_value)) | (value.bits == 64))]):
            form = format_of_mark(int(mark), value.bits)
            if form is None or (operation != "store" and form != "fp64"):
                raise Unsupported(UNSPECIFIED_NAN_STORED, line)
            self.open_nans.setdefault((pointer, form), line)
        total: Any = hashing.mix(
            addresses * hashing.multiplier(51) + hashing.constant(f"{operation} {value.bits} to {pointer}")
        )
        address = total
        value_hash = hashed
        total = total + hashed * hashing.multiplier(52)
        if condition is not None:
            total = total + hashing.mix(full_hash(condition) * hashing.multiplier(53) + hashing.constant("where"))
        total = hashing.mix(total.copy())
        threads = self.threads
        shape = (2, self.rows, threads)
        element_hash, addresses = np.broadcast_to(total, shape), np.broadcast_to(address, shape)
        value_hash = np.broadcast_to(value_hash, shape)
        active = np.ones(threads, dtype=bool)
        if known is not None:
            if known.shape[0] > 1 and (known != known[:1]).any() and self.mask_differs is None:
                self.mask_differs = line
            active = np.broadcast_to(known[:1], (1, threads))[0]
            element_hash, addresses = element_hash[:, :, active], addresses[:, :, active]
            value_hash = value_hash[:, :, active]
        access = StoredElement(
            pointer,
            place,
            value.bits,
            np.flatnonzero(active),
            value_hash,
            element_hash,
            operation,
            line,
            bounds,
            tuple(self.iterations),
        )
        self.stored.append(Stored(element_hash, addresses, operation, line, access))

    def store_under_condition(self, *arguments: object) -> bool:
        """See `GlobalMemory.store_under_condition`: each store is a select of its own."""
        return False

    def pass_without(self, thread: Array) -> bool:
        """See `GlobalMemory.pass_without`: a thread reads only what it alone writes, whatever barriers order."""
        return False

    def old_value(self, bits: int, shape: tuple[int, int], line: int) -> Value:
        """See `GlobalMemory.old_value`: one term, since nothing may depend on it."""
        return term(bits, f"old value at line {line}", [], L.NONDETERMINISTIC)

    def check_determined(self) -> tuple[str, ...]:
        """Check that each stored element has one value at the end of every launch.

        Returns the notes of the assumptions.  Raises Unsupported, also where the block stores nothing.
        """
        if not self.stored and not self.contributed:
            raise Unsupported("the kernel stores nothing")
        for pointer, line in self.contributed.items():
            if pointer in self.loaded:
                raise Unsupported("a buffer that atomic operations change is read", line)
        stored = {each.access.pointer for each in self.stored}
        for each in (each for pointer in stored for each in self.loaded.get(pointer, ())):
            if each.line in self.unordered:
                raise Unsupported("a buffer that the launch writes is read by a load that nothing orders", each.line)
        for operation in {each.operation for each in self.stored}:
            self._check(operation, [each for each in self.stored if each.operation == operation])
        return check_conflicts(
            [each.access for each in self.stored],
            [each for loads in self.loaded.values() for each in loads],
            self.domain.integers,
        )

    def elements(self) -> Elements:
        """All elements that the block stores.  Raises Unsupported where they differ between instances."""
        if self.mask_differs is not None:
            raise Unsupported("whether an element is stored differs between launches", self.mask_differs)
        return Elements(
            np.concatenate([each.element_hash for each in self.stored], axis=2),
            np.concatenate([each.address for each in self.stored], axis=2),
        )

    def _check(self, operation: str, stored: list[Stored]) -> None:
        """Check that each address is written once, because the order and the number of stores are not recorded."""
        element_hash = np.concatenate([each.element_hash[:, 0] for each in stored], axis=1)
        address = np.concatenate([each.address[:, 0] for each in stored], axis=1)
        elements, addresses = _distinct_count(element_hash), _distinct_count(address)
        if operation == "store" and elements != addresses and not self._written_by_one_thread(stored, address):
            raise Unsupported("one address is written twice", stored[-1].line)
        if operation.split(".")[0] in ("add", "xor") and elements != element_hash.shape[1]:
            raise Unsupported("equal contributions to one sum are not counted", stored[-1].line)

    def _written_by_one_thread(self, stored: list[Stored], address: hashing.Words) -> bool:
        """Whether only determinism is wanted, and the stores to each address are ordered, being of one thread."""
        numbers = _numbers(address)
        threads = np.concatenate([each.access.threads for each in stored])
        last = np.zeros(numbers.max(initial=0) + 1, dtype=np.int64)
        last[numbers] = threads
        return self.only_determined and bool((last[numbers] == threads).all())


def _numbers(words: hashing.Words) -> Array:
    """A number for each hash, equal for equal hashes."""
    pairs = np.ascontiguousarray(words.T).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    found: Array = np.unique(pairs, return_inverse=True)[1].ravel()
    return found


def _is_constant(value: Value, number: int) -> bool:
    return isinstance(value, np.ndarray) and bool((value == number).all())


def _distinct_count(words: hashing.Words) -> int:
    return len(np.unique(np.ascontiguousarray(words.T).view([("high", np.uint64), ("low", np.uint64)]).ravel()))


def _stored_elements(value: Value) -> list[tuple[int, SymbolicVector]]:
    """The elements of a stored value with their byte offsets; copied elements in parts of COPIED_BITS."""
    result: list[tuple[int, SymbolicVector]] = []
    for offset, part in stored_elements(value):
        stored = value if part is value else part
        if part.bits > COPIED_BITS and _is_copy(stored):
            steps = range(0, part.bits, COPIED_BITS)
            result.extend((offset + low // 8, as_symbolic_vector(extract(stored, low, COPIED_BITS))) for low in steps)
        else:
            result.append((offset, part))
    return result


def _is_copy(value: Value) -> bool:
    if isinstance(value, Selection):
        return _is_copy(value.if_true) and (isinstance(value.if_false, np.ndarray) or _is_copy(value.if_false))
    if isinstance(value, np.ndarray):
        return True
    if not isinstance(value, SymbolicVector) or not isinstance(value.flags, int):
        return False
    # A part of a number whose NaN has a mark is a term of its bits.
    return value.flags & L.KIND in (L.LOAD, L.CONST) and not value.flags & L.NAN_MARK
