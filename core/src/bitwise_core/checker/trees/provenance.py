"""Provenance: one block executed again with recording, so that a hash maps to its operation and operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from bitwise_core.assembly.module import SourceLine
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.concrete import PreparedLaunch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import final_events
from bitwise_core.execution.memory.store_forwarding import Access
from bitwise_core.execution.term_recorder import SAME, RecordedTerm, Recorder, TooManyTerms
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps import mma_steps
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import WIDENING, base_hash, full_hash
from bitwise_core.execution.warp_order import note_of_warp_order
from bitwise_core.numerics import Operation, operation

_HASHED_FLAGS = L.FORM | L.ABSORBED | 255 << L.OPERATION_SHIFT
MAXIMUM_ATOMIC_LANES = 1 << 16
"""The result of atomic operations depends on all blocks, which are all executed again, up to this many threads."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """The value of one lane: payload words and flags, as in `execution.values.symbolic_vector`."""

    first: int
    second: int
    flags: int
    bits: int

    @property
    def kind(self) -> int:
        """The kind of the payload: CONST, LOAD, TERM or AC_TERMS."""
        return self.flags & L.KIND

    def without(self, flag: int) -> Scalar:
        """The value without one of its flags."""
        return Scalar(self.first, self.second, self.flags & ~flag, 16 if flag == L.WIDENED else self.bits)

    def vector(self) -> SymbolicVector:
        """The value as a vector of one thread."""
        words = np.array([self.first, self.second], dtype=np.uint64).reshape(2, 1, 1)
        return SymbolicVector(self.bits, words, self.flags)

    @property
    def hash(self) -> tuple[int, int]:
        """The hash of the value, flags included: equal for two values exactly when their canonical trees are equal."""
        return _pair(full_hash(self.vector()))


def _pair(words: hashing.Words) -> tuple[int, int]:
    flat = words.reshape(2, -1)
    return int(flat[0, 0]), int(flat[1, 0])


def constant(number: int, bits: int) -> Scalar:
    """A constant."""
    return Scalar(number, number, L.CONST, bits)


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a value: the name of its operation, its operands, and the positions of commutative ones.

    `name` is "load", "constant" or "undefined" for values without operands.  `line` is the line of the assembly, 0
    where the value is not the result of an instruction of the text.
    """

    name: str
    scalar: Scalar
    operands: tuple[Scalar, ...] = ()
    commutative: tuple[int, ...] = ()
    line: int = 0


_FLOAT_FORMATS = {16: "fp16", 32: "fp32", 64: "fp64"}


@dataclass(eq=False)
class Provenance:
    """The terms recorded in an execution of some blocks of a kernel, and the memory after it."""

    ready: PreparedLaunch
    memory: GlobalMemory
    recorded: list[RecordedTerm]
    buffers: Mapping[str, int]

    def __repr__(self) -> str:
        return f"Provenance({self.ready!r}, {len(self.recorded)} operations)"

    @cached_property
    def _hashes(self) -> list[Array]:
        """The hash words (2, results) of each recorded term."""
        return [base_hash(each.result).reshape(2, -1) for each in self.recorded]

    @cached_property
    def _offsets(self) -> list[int]:
        """The position of the first result of each recorded term among all results."""
        return [0, *accumulate(each.shape[1] for each in self._hashes)][: len(self.recorded)]

    @cached_property
    def _index(self) -> tuple[Array, Array, Array]:
        """The first words of all results in ascending order, with their second words and positions."""
        if not self._hashes:
            empty = np.zeros(0, dtype=np.uint64)
            return empty, empty, np.zeros(0, dtype=np.int64)
        keys, seconds = np.concatenate(self._hashes, axis=1)
        order = np.argsort(keys, kind="stable")
        return keys[order], seconds[order], order

    @cached_property
    def _index_of_second_words(self) -> tuple[Array, Array]:
        """The second words of the hashes of all results in ascending order, with their positions.

        There are two for each result: with the flags of the value, and without them.
        """
        seconds = [np.stack([base[1], np.broadcast_to(full_hash(each.result)[1].reshape(-1), base[1].shape)])
                   for base, each in zip(self._hashes, self.recorded, strict=True)]  # fmt: skip
        keys = np.concatenate(seconds, axis=1)
        order = np.argsort(keys, axis=None, kind="stable")
        return keys.reshape(-1)[order], order % keys.shape[1]

    def recorded_term(self, scalar: Scalar) -> tuple[RecordedTerm, int] | None:
        """The recorded term with this payload, and its position among the results of that term; None if unknown."""
        keys, seconds, order = self._index
        first, second = _pair(base_hash(scalar.vector()))
        position = int(np.searchsorted(keys, np.uint64(first)))
        while position < len(keys) and int(keys[position]) == first:
            if int(seconds[position]) == second:
                return self._result(int(order[position]))
            position += 1
        if first == second and scalar.kind == L.TERM and self.recorded:
            # Of the parts of a guarded value only the second word of the hash is known (`values.floats.nan_guards`).
            keys, order = self._index_of_second_words
            position = int(np.searchsorted(keys, np.uint64(second)))
            if position < len(keys) and int(keys[position]) == second:
                return self._result(int(order[position]))
        return None

    def _result(self, flat: int) -> tuple[RecordedTerm, int]:
        number = int(np.searchsorted(self._offsets, flat, side="right")) - 1
        return self.recorded[number], flat - self._offsets[number]

    def definition(self, scalar: Scalar) -> Definition:
        """The definition of a value."""
        while True:
            from_flags = _definition_from_flags(scalar)
            if from_flags is not None:
                return from_flags
            found = self.recorded_term(scalar)
            if found is None:
                return Definition("undefined", scalar)
            term, flat = found
            operands = _operands(term, flat)
            if term.name != SAME:
                break
            if operands[0] == scalar:
                return Definition("undefined", scalar)
            scalar = operands[0]
        if scalar.first == scalar.second and scalar.kind == L.TERM:
            scalar = scalar_at(term.result, term.result.words.shape[1:], flat)
        if scalar.kind == L.AC_TERMS and term.commutes:
            operands = tuple(self._flattened_operands(scalar, term, operands))
        if term.name.startswith("fma") and len(operands) == 2:
            # A product whose sign cannot be separated is recorded as one operand of the sum.
            product = self.definition(operands[0])
            operands = (*product.operands, operands[1])
        return Definition(term.name, scalar, operands, _commutative_positions(term, len(operands)), term.line)

    def _flattened_operands(self, scalar: Scalar, term: RecordedTerm, operands: tuple[Scalar, ...]) -> Iterator[Scalar]:
        """The operands of a flattened AC operation, in whatever order it was built."""
        name, own = term.name, scalar.flags & (255 << L.OPERATION_SHIFT)
        stack = list(reversed(operands))
        while stack:
            each = stack.pop()
            nested = each.kind == L.AC_TERMS and not each.flags & (L.PLUS_ZERO | L.NEGATED | L.WIDENED)
            found = self.recorded_term(each) if nested and each.flags & (255 << L.OPERATION_SHIFT) == own else None
            if found is None or found[0].name != name:
                yield each
                continue
            stack.extend(reversed(_operands(*found)))

    def stored(self, buffer: int, address: int, size: int) -> tuple[Scalar, int]:
        """The final value at an address, of `size` bytes, and the line of its store.  Raises Unsupported."""
        for event in reversed(final_events(self.memory, buffer)):
            wide = event.bits // 8
            containing = (event.address <= np.uint64(address)) & (
                event.address + np.uint64(wide) >= np.uint64(address + size)
            )
            if containing.any():
                return _stored(event, int(np.flatnonzero(containing)[0]), address, size), event.line
        raise Unsupported(f"the traced block stores no element of {size} bytes there")

    @cached_property
    def widths(self) -> Mapping[str, int]:
        """The width in bytes of the elements of each buffer whose type the launch states."""
        known = element_types([self.ready.launch]).items()
        return {name: each.bytes for name, each in known if each.kind is not None}

    @cached_property
    def sources(self) -> Mapping[int, SourceLine]:
        """The lines of the kernel's source by the lines of the assembly."""
        kernels = [self.ready.kernel, *self.ready.module.functions.values()]
        return {each.line: each.source for kernel in kernels for each in kernel.instructions if each.source is not None}


def _stored(event: Access, lane: int, address: int, size: int) -> Scalar:
    value = event.value
    assert value is not None
    whole = scalar_at(value, (1, event.address.size), lane)
    low = (address - int(event.address[lane])) * 8
    if low == 0 and size * 8 == event.bits:
        return whole
    return scalar_at(as_symbolic_vector(extract(whole.vector(), low, size * 8)), (1, 1), 0)


class RecordingDomain(TermDomain):
    """The term domain with recording: every value carries the recorder."""

    def __init__(self, assumptions: frozenset[str], recorder: Recorder) -> None:
        super().__init__(assumptions, recorder)
        self._attach = recorder.mark

    def _attached(self, values: Sequence[Value]) -> list[Value]:
        return [self._attach(value) for value in values]

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        return self._attach(super().floating(operation, self._attached(operands), properties))

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        return self._attach(super().integer(operation, self._attached(operands)))

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        return self._attach(super().select(*self._attached([predicate, if_true, if_false])))

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return self._attach(super().load(address, bits))

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        return self._attach(super().gather(address, bits, mask))

    def mma_step(
        self,
        step: mma_steps.MmaStep,
        accumulator: SymbolicVector,
        left: mma_steps.OperandVectors,
        right: mma_steps.OperandVectors,
    ) -> SymbolicVector:
        """See `Domain.mma_step`."""
        return self._attach(super().mma_step(step, accumulator, left, right))


def trace_provenance(
    ready: PreparedLaunch, buffers: Mapping[str, int], assume: frozenset[str], buffer: int, thread: int
) -> Provenance:
    """Execute the block of a thread again, with recording; all blocks for a buffer that atomic operations write.

    Raises Unsupported where there are too many terms to record.
    """
    block = block_of(thread)
    in_order = note_of_warp_order(ready.arch, assume) in ready.used
    try:
        recorder = Recorder()
        domain = RecordingDomain(assume, recorder)
        memory, _ = run_blocks(ready, domain, buffers, [block], in_program_order=in_order)
        if buffer in memory.atomics and ready.launch.blocks > 1:
            if ready.launch.blocks * ready.threads > MAXIMUM_ATOMIC_LANES:
                raise Unsupported("atomic operations of too many blocks update this buffer for a trace")
            recorder = Recorder()
            memory, _ = run_blocks(ready, RecordingDomain(assume, recorder), buffers)
        if buffer in memory.atomics:
            final_events(memory, buffer)
    except TooManyTerms as error:
        raise Unsupported(str(error)) from None
    return Provenance(ready, memory, recorder.terms, buffers)


def _operands(term: RecordedTerm, flat: int) -> tuple[Scalar, ...]:
    shape = term.result.words.shape[1:]
    return tuple(scalar_at(each, shape, flat) for each in term.operands)


def scalar_at(vector: SymbolicVector, shape: tuple[int, ...], flat: int) -> Scalar:
    """The value of a vector at a flat index of the shape to which it broadcasts."""
    position = np.unravel_index(flat, shape)
    first, second = (int(_at(vector.words[half], position)) for half in (0, 1))
    flags = vector.flags if isinstance(vector.flags, int) else int(_at(vector.flags, position))
    return Scalar(first, second, flags & _HASHED_FLAGS, vector.bits)


def _at(array: Array, position: tuple[np.intp, ...]) -> Array:
    inner = position[len(position) - array.ndim :]
    found: Array = array[tuple(0 if extent == 1 else index for index, extent in zip(inner, array.shape, strict=True))]
    return found


def _definition_from_flags(scalar: Scalar) -> Definition | None:
    """The definition that follows from the flags alone: a sum with +0, a sign flip, a widening, a constant, a load."""
    if scalar.flags & L.PLUS_ZERO:
        zero = constant(0, scalar.bits)
        return Definition(f"add.rn.{_FLOAT_FORMATS[scalar.bits]}", scalar, (scalar.without(L.PLUS_ZERO), zero), (0, 1))
    if scalar.flags & L.NEGATED:
        name = "not.b1" if scalar.bits == 1 else f"neg.{_FLOAT_FORMATS[scalar.bits]}"
        return Definition(name, scalar, (scalar.without(L.NEGATED),))
    if scalar.flags & L.WIDENED:
        return Definition(WIDENING, scalar, (scalar.without(L.WIDENED),))
    if scalar.kind == L.CONST:
        return Definition("constant", scalar)
    return Definition("load", scalar) if scalar.kind == L.LOAD else None


def _commutative_positions(term: RecordedTerm, count: int) -> tuple[int, ...]:
    if term.name.startswith(mma_steps.MATRIX):
        return (1, 2)
    if not term.commutes:
        return ()
    return (0, 1) if operation(term.name).arity > 2 else tuple(range(count))
