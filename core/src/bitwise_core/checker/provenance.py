"""One block run again with every term's making recorded, so that a hash leads back to its operation and operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bitwise_core.assembly.module import SourceLine
from bitwise_core.execution.concrete import PreparedLaunch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.machine import THREAD_SHIFT
from bitwise_core.execution.memory.global_memory import Access, GlobalMemory
from bitwise_core.execution.memory.outputs import final_events
from bitwise_core.execution.term_recorder import SAME, RecordedTerm, Recorder, TooManyTerms
from bitwise_core.execution.values import hashing, mma_steps
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import WIDENING, base_hash, full_hash
from bitwise_core.numerics import Operation

_KEPT = L.FORM | L.ABSORBED | 255 << L.OPERATION_SHIFT
MAXIMUM_ATOMIC_LANES = 1 << 16
"""What atomic operations leave may come from any block: up to this many threads all blocks are replayed for it."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """What one lane holds: payload words and form, as in `machine.lanes`."""

    first: int
    second: int
    flags: int
    bits: int

    @property
    def kind(self) -> int:
        """KNOWN, LEAF, TERM or SET, of the payload."""
        return self.flags & L.KIND

    def without(self, flag: int) -> Scalar:
        """The value without a part of its form."""
        return Scalar(self.first, self.second, self.flags & ~flag, 16 if flag == L.WIDENED else self.bits)

    def lanes(self) -> SymbolicVector:
        """The value as the lanes of one thread."""
        words = np.array([self.first, self.second], dtype=np.uint64).reshape(2, 1, 1)
        return SymbolicVector(self.bits, words, self.flags)

    @property
    def hash(self) -> tuple[int, int]:
        """The hash of the value itself: equal for two values exactly when they are the same canonical tree."""
        return _pair(full_hash(self.lanes()))


def _pair(words: hashing.Words) -> tuple[int, int]:
    flat = words.reshape(2, -1)
    return int(flat[0, 0]), int(flat[1, 0])


def known(number: int, bits: int) -> Scalar:
    """A known number."""
    return Scalar(number, number, L.CONST, bits)


@dataclass(frozen=True, slots=True)
class Part:
    """A value taken apart: its operation's name, its operands, and which of them may change places.

    `name` is "load", "constant" or "undefined" for what has no operands.  `line` is that of the assembly, 0 where the
    value is none of the text's own instructions.
    """

    name: str
    scalar: Scalar
    operands: tuple[Scalar, ...] = ()
    commuting: tuple[int, ...] = ()
    line: int = 0


_FORMAT = {16: "fp16", 32: "fp32", 64: "fp64"}


@dataclass(eq=False)
class Provenance:
    """What was recorded of a run of some blocks of a kernel."""

    ready: PreparedLaunch
    memory: GlobalMemory
    made: list[RecordedTerm]
    buffers: Mapping[str, int]
    _starts: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Replay({self.ready!r}, {len(self.made)} operations)"

    @cached_property
    def _index(self) -> tuple[Array, Array, Array]:
        """First words of all results in order, with their second words and their places."""
        first, second = [], []
        total = 0
        for each in self.made:
            words = base_hash(each.result).reshape(2, -1)
            self._starts.append(total)
            total += words.shape[1]
            first.append(words[0])
            second.append(words[1])
        if not first:
            empty = np.zeros(0, dtype=np.uint64)
            return empty, empty, np.zeros(0, dtype=np.int64)
        keys = np.concatenate(first)
        order = np.argsort(keys, kind="stable")
        return keys[order], np.concatenate(second)[order], order

    def find(self, scalar: Scalar) -> tuple[RecordedTerm, int] | None:
        """How a payload was made, and its place among the results made at once."""
        keys, seconds, order = self._index
        first, second = _pair(base_hash(scalar.lanes()))
        place = int(np.searchsorted(keys, np.uint64(first)))
        while place < len(keys) and int(keys[place]) == first:
            if int(seconds[place]) == second:
                flat = int(order[place])
                number = int(np.searchsorted(self._starts, flat, side="right")) - 1
                return self.made[number], flat - self._starts[number]
            place += 1
        return None

    def part(self, scalar: Scalar) -> Part:
        """A value taken apart by one operation."""
        while True:
            outer = _outer(scalar)
            if outer is not None:
                return outer
            found = self.find(scalar)
            if found is None:
                return Part("undefined", scalar)
            made, flat = found
            operands = _operands(made, flat)
            if made.name != SAME:
                break
            if operands[0] == scalar:
                return Part("undefined", scalar)
            scalar = operands[0]
        if scalar.kind == L.AC_TERMS and made.commutes:
            operands = tuple(self._members(scalar, made, operands))
        if made.name.startswith("fma") and len(operands) == 2:
            # A product that may not be negated apart stands as one operand of such a sum.
            product = self.part(operands[0])
            operands = (*product.operands, operands[1])
        return Part(made.name, scalar, operands, _commuting(made, len(operands)), made.line)

    def _members(self, scalar: Scalar, made: RecordedTerm, operands: tuple[Scalar, ...]) -> Iterator[Scalar]:
        """The members of a set, however it was put together."""
        name, own = made.name, scalar.flags & (255 << L.OPERATION_SHIFT)
        stack = list(reversed(operands))
        while stack:
            each = stack.pop()
            inside = each.kind == L.AC_TERMS and not each.flags & (L.PLUS_ZERO | L.NEGATED | L.WIDENED)
            found = self.find(each) if inside and each.flags & (255 << L.OPERATION_SHIFT) == own else None
            if found is None or found[0].name != name:
                yield each
                continue
            stack.extend(reversed(_operands(*found)))

    def stored(self, buffer: int, address: int, size: int) -> tuple[Scalar, int]:
        """The value that the run leaves at an address, and the line that stored it.  Raises Unsupported."""
        for event in reversed(final_events(self.memory, buffer)):
            wide = event.bits // 8
            inside = (event.address <= np.uint64(address)) & (
                event.address + np.uint64(wide) >= np.uint64(address + size)
            )
            if inside.any():
                return _stored(event, int(np.flatnonzero(inside)[0]), address, size), event.line
        raise Unsupported(f"the block replayed stores nothing of {size} bytes there")

    @cached_property
    def sources(self) -> Mapping[int, SourceLine]:
        """The lines of the kernel's own source by the assembly's."""
        kernels = [self.ready.kernel, *self.ready.module.functions.values()]
        return {each.line: each.source for kernel in kernels for each in kernel.instructions if each.source is not None}


def _stored(event: Access, lane: int, address: int, size: int) -> Scalar:
    value = event.value
    assert value is not None
    whole = _scalar(value, (1, event.address.size), lane)
    low = (address - int(event.address[lane])) * 8
    if low == 0 and size * 8 == event.bits:
        return whole
    return _scalar(as_symbolic_vector(extract(whole.lanes(), low, size * 8)), (1, 1), 0)


class RecordingDomain(TermDomain):
    """The domain of terms of a replay: its values carry the recorder."""

    def __init__(self, assumptions: frozenset[str], recorder: Recorder) -> None:
        super().__init__(assumptions, recorder)
        self._mark = recorder.mark

    def _marked(self, values: Sequence[Value]) -> list[Value]:
        return [self._mark(value) for value in values]

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        return self._mark(super().floating(operation, self._marked(operands), properties))

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        return self._mark(super().integer(operation, self._marked(operands)))

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        return self._mark(super().select(*self._marked([predicate, if_true, if_false])))

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return self._mark(super().load(address, bits))

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        return self._mark(super().gather(address, bits, mask))

    def mma_step(
        self,
        step: mma_steps.MmaStep,
        accumulator: SymbolicVector,
        left: mma_steps.OperandVectors,
        right: mma_steps.OperandVectors,
    ) -> SymbolicVector:
        """See `Domain.mma_step`."""
        return self._mark(super().mma_step(step, accumulator, left, right))


def trace_provenance(
    ready: PreparedLaunch, buffers: Mapping[str, int], assume: frozenset[str], buffer: int, thread: int
) -> Provenance:
    """Runs the block of a thread again, recorded; all blocks for a buffer that atomic operations write.

    Raises Unsupported where that is too much to be kept.
    """
    block = thread >> THREAD_SHIFT
    try:
        recorder = Recorder()
        memory, _ = run_blocks(ready, RecordingDomain(assume, recorder), buffers, [block])
        if buffer in memory.atomics and ready.launch.blocks > 1:
            if ready.launch.blocks * ready.threads > MAXIMUM_ATOMIC_LANES:
                raise Unsupported("atomic operations of many blocks meet there, too many to be shown")
            recorder = Recorder()
            memory, _ = run_blocks(ready, RecordingDomain(assume, recorder), buffers)
        if buffer in memory.atomics:
            final_events(memory, buffer)
    except TooManyTerms as error:
        raise Unsupported(str(error)) from None
    return Provenance(ready, memory, recorder.terms, buffers)


def _operands(made: RecordedTerm, flat: int) -> tuple[Scalar, ...]:
    shape = made.result.words.shape[1:]
    return tuple(_scalar(each, shape, flat) for each in made.operands)


def _scalar(lanes: SymbolicVector, shape: tuple[int, ...], flat: int) -> Scalar:
    """What lanes hold at a place of the shape to which they broadcast."""
    place = np.unravel_index(flat, shape)
    first, second = (int(_at(lanes.words[half], place)) for half in (0, 1))
    flags = lanes.flags if isinstance(lanes.flags, int) else int(_at(lanes.flags, place))
    return Scalar(first, second, flags & _KEPT, lanes.bits)


def _at(array: Array, place: tuple[np.intp, ...]) -> Array:
    inner = place[len(place) - array.ndim :]
    found: Array = array[tuple(0 if extent == 1 else index for index, extent in zip(inner, array.shape, strict=True))]
    return found


def _outer(scalar: Scalar) -> Part | None:
    """What a value's form alone says: a sum with +0, a sign flip, a widening, a number, a load."""
    if scalar.flags & L.PLUS_ZERO:
        zero = known(0, scalar.bits)
        return Part(f"add.rn.{_FORMAT[scalar.bits]}", scalar, (scalar.without(L.PLUS_ZERO), zero), (0, 1))
    if scalar.flags & L.NEGATED:
        name = "not.b1" if scalar.bits == 1 else f"neg.{_FORMAT[scalar.bits]}"
        return Part(name, scalar, (scalar.without(L.NEGATED),))
    if scalar.flags & L.WIDENED:
        return Part(WIDENING, scalar, (scalar.without(L.WIDENED),))
    if scalar.kind == L.CONST:
        return Part("constant", scalar)
    return Part("load", scalar) if scalar.kind == L.LOAD else None


def _commuting(made: RecordedTerm, count: int) -> tuple[int, ...]:
    if made.name.startswith(mma_steps.MATRIX):
        return (1, 2)
    if not made.commutes:
        return ()
    return (0, 1) if made.name.startswith("fma") else tuple(range(count))
