"""Lanes that are computed when something reads them, in the domain of terms.

A reduction of a wave exchanges lanes by DPP, combines, and then reads one lane.  Most of the other lanes hold partial
results that nothing reads, in several forms: sums with zeros from beyond a row, for example.  So an exchange and the
operations on its result are kept as a graph.  What reads one lane computes the lanes that this one depends on; any
other instruction reads the whole value.

An operation is deferred only where all lanes are active, and computes every lane by itself.  A result of 64 bits is
two registers, its halves, from which the operations on it join it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_amd_gfx942.opcodes.compute import Compute
from bitwise_core.execution.domains.domain import Domain, StepsInOrder
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import blend_values, concat, extract, is_term_of_parts
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison

BITS = 32
"""The width of a register."""

_MAXIMUM_DEPTH = 48
"""How many operations on the results of others are deferred."""

_FEW = 4
"""The active lanes alone are computed where they are at most one of so many."""

_Fetch: TypeAlias = Callable[[Value, Array], Value]
"""Returns the lanes of an operand, by the indices of their threads."""

_NO_LANES = np.zeros(1, dtype=bool)
_ZERO = np.zeros((1, 1), dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Batch:
    """What an operation that computes every lane by itself asks of a machine; a mask of None stands for all lanes."""

    domain: Domain
    mask: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lanewise:
    """An operation that computes every lane by itself."""

    domain: Domain
    compute: Compute
    operands: tuple[Value, ...]

    def needs(self, lanes: Array) -> Iterator[tuple[Value, Array]]:
        """Yield each operand with the lanes of it on which these lanes of the result depend."""
        for each in self.operands:
            yield each, lanes

    def evaluate(self, threads: Array, fetch: _Fetch) -> Value:
        """Return these lanes of the result."""
        # An operand that occurs twice stays one object.
        values = {id(each): fetch(each, threads) for each in self.operands}
        found: Value = self.compute(Batch(self.domain), *[values[id(each)] for each in self.operands])
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A value in which each thread has the lane of thread `index`, and 0 where that one is not `valid` (None: all)."""

    source: Value
    index: Array
    valid: Array | None

    def needs(self, lanes: Array) -> Iterator[tuple[Value, Array]]:
        """See `Lanewise.needs`."""
        read = np.zeros(lanes.shape, dtype=bool)
        read[self.index[lanes if self.valid is None else lanes & self.valid]] = True
        yield self.source, read

    def evaluate(self, threads: Array, fetch: _Fetch) -> Value:
        """See `Lanewise.evaluate`."""
        index = self.index[threads]
        if self.valid is None:
            return fetch(self.source, index)
        valid = self.valid[threads]
        if valid.all():
            return fetch(self.source, index)
        if not valid.any():
            return _ZERO
        return blend_values(valid[None], fetch(self.source, np.where(valid, index, index[valid][0])), _ZERO)


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """A value that is `new` where a constant mask is set, else `old`."""

    mask: Array
    new: Value
    old: Value

    def needs(self, lanes: Array) -> Iterator[tuple[Value, Array]]:
        """See `Lanewise.needs`."""
        chosen = self._chosen(np.flatnonzero(lanes))
        if chosen.any():
            yield self.new, lanes
        if not chosen.all():
            yield self.old, lanes

    def evaluate(self, threads: Array, fetch: _Fetch) -> Value:
        """See `Lanewise.evaluate`."""
        chosen = self._chosen(threads)
        if chosen.all():
            return fetch(self.new, threads)
        if not chosen.any():
            return fetch(self.old, threads)
        return blend_values(chosen, fetch(self.new, threads), fetch(self.old, threads))

    def _chosen(self, threads: Array) -> Array:
        return self.mask if self.mask.shape[1] == 1 else self.mask[:, threads]


Node: TypeAlias = Lanewise | Exchange | Masked


class DeferredLanes(DeferredValue):
    """A value of which some lanes can be computed without the others."""

    __slots__ = ("_node", "_partial", "_read", "threads")

    def __init__(self, node: Node, operands: Sequence[Value], threads: int, bits: int = BITS) -> None:
        self._node: Node | None = node
        self._partial: tuple[Array, Value] | None = None
        self._read: tuple[bytes, Value] | None = None
        self.threads = threads
        super().__init__(bits, 1 + max(map(_depth, operands)))

    @property
    def node(self) -> Node | None:
        """How the value is computed; None once it is."""
        return self._node

    def compute(self) -> Value:
        """Return all lanes."""
        assert self._node is not None
        every = np.arange(self.threads)
        found = self._node.evaluate(every, lambda operand, threads: _lanes(operand, threads, every))
        self._node = None
        return found

    def read_by_halves(self, machine: Machine, index: Array) -> Value:
        """Return `read_lanes` of this value, which is kept for the next call."""
        key = index.tobytes()
        if self._read is None or self._read[0] != key:
            self._read = key, read_lanes(machine, self, index)
        return self._read[1]

    def in_active_lanes(self, machine: Machine) -> Value:
        """Return a value that is the same in the active lanes; other lanes are arbitrary."""
        node, mask = self._node, machine.mask
        if node is None or mask is None:
            return self.value
        if isinstance(node, Lanewise) and node.compute in _HALVES:
            # The inactive lanes of both halves are those of one value, so that they are joined to it again.
            (whole,) = node.operands
            return node.compute(
                machine, whole.in_active_lanes(machine) if type(whole) is DeferredLanes else L.settled(whole)
            )
        if type(node) is Masked:
            for chosen, others in ((node.new, ~node.mask), (node.old, node.mask)):
                if not (mask & others).any():
                    return chosen.in_active_lanes(machine) if type(chosen) is DeferredLanes else L.settled(chosen)
        active = np.flatnonzero(np.broadcast_to(mask.any(axis=0), self.threads))
        if not active.size or _FEW * active.size > self.threads:
            return self.value
        if self._partial is None or self._partial[0] is not mask:
            index = np.full(self.threads, active[0])
            index[active] = active
            self._partial = mask, read_lanes(machine, self, index[None])
        return self._partial[1]


def is_deferred(value: object) -> bool:
    """Return whether a value is deferred, and nothing has read it."""
    return type(value) is DeferredLanes and value.node is not None


def written_in(value: Value, mask: Array) -> Value | None:
    """Return what a write to some lanes put into the lanes of a mask, None for a value that no such write made."""
    node = value.node if type(value) is DeferredLanes else None
    return node.new if type(node) is Masked and not (mask & ~node.mask).any() else None


def _depth(value: Value) -> int:
    return value.depth if type(value) is DeferredLanes and value.node is not None else 0


def may_defer(machine: Machine) -> bool:
    """Return whether an instruction may be deferred: all lanes execute it, under no condition, in the domain of terms.

    What is recorded needs the trees of all values.
    """
    return (
        machine.mask is None
        and machine.condition is None
        and machine.path is None
        and bool(getattr(machine.domain, "defers_steps", False))
    )


def deferred(node: Node, operands: Sequence[Value], threads: int, bits: int = BITS) -> Value | None:
    """Return the value of a node with these operands, None where it should be computed at once."""
    if not all(map(_is_plain, operands)) or max(map(_depth, operands)) >= _MAXIMUM_DEPTH:
        return None
    return DeferredLanes(node, operands, threads, bits)


def masked_write(mask: Array, value: Value, old: Value | None, threads: int) -> Value | None:
    """Return a register after a write to the lanes of a mask; None unless the register is deferred."""
    if not is_deferred(old) or L.width(value) != BITS:
        return None
    assert old is not None
    return deferred(Masked(mask, value, old), (value, old), threads)


def _is_plain(value: Value) -> bool:
    """Return whether lanes of a value are a value by themselves, in the same form."""
    if isinstance(value, PackedVector):
        return is_term_of_parts(value) and all(type(each) in (np.ndarray, SymbolicVector) for each in value.parts)
    return type(value) in (np.ndarray, SymbolicVector, DeferredLanes)


def read_lanes(machine: Machine, value: Value, index: Array) -> Value:
    """Return `take_threads` of a value; of a deferred one, only the lanes are computed that it depends on."""
    if type(value) is not DeferredLanes or value.node is None:
        return take_threads(L.settled(value), index)
    if isinstance(value.node, Lanewise) and value.node.compute in _HALVES:
        # What reads one half of a value of 64 bits reads the other one as well.
        (whole,) = value.node.operands
        assert isinstance(whole, DeferredLanes)
        return value.node.compute(machine, whole.read_by_halves(machine, index))
    nodes = _operands_first(value)
    wanted = np.zeros(value.threads, dtype=bool)
    wanted[index.reshape(-1)] = True
    demand: dict[int, Array] = {id(value): wanted}
    for each in reversed(nodes):
        lanes, node = demand.get(id(each)), each.node
        assert node is not None
        if lanes is None or not lanes.any():
            continue
        for operand, read in node.needs(lanes):
            if is_deferred(operand):
                before = demand.get(id(operand))
                demand[id(operand)] = read if before is None else before | read
    found: dict[int, tuple[Array, Value]] = {}

    def fetch(operand: Value, threads: Array) -> Value:
        if not is_deferred(operand):
            return take_threads(L.settled(operand), threads[None])
        own, lanes = found[id(operand)]
        return _lanes(lanes, np.searchsorted(own, threads), own)

    domain = machine.domain
    with domain.on_parts_of_lanes() if isinstance(domain, StepsInOrder) else nullcontext():
        for each in nodes:
            node, own = each.node, np.flatnonzero(demand.get(id(each), _NO_LANES))
            if own.size:
                assert node is not None
                found[id(each)] = own, node.evaluate(own, fetch)
    own, result = found[id(value)]
    return take_threads(result, np.searchsorted(own, index))


def _lanes(value: Value, places: Array, every: Array) -> Value:
    """Return the lanes of a value at these places, `every` of them in order being the value itself."""
    value = L.settled(value)
    if places.size == every.size and (places == np.arange(every.size)).all():
        return value
    return take_threads(value, places[None])


def _operands_first(root: DeferredLanes) -> list[DeferredLanes]:
    """Return the deferred values of a graph, each after those on which it depends."""
    found: list[DeferredLanes] = []
    seen: set[int] = set()

    def visit(value: DeferredLanes) -> None:
        seen.add(id(value))
        for operand in operands_of(value.node):
            if type(operand) is DeferredLanes and operand.node is not None and id(operand) not in seen:
                visit(operand)
        found.append(value)

    visit(root)
    return found


def operands_of(node: Node | None) -> tuple[Value, ...]:
    """Return the operands of a node."""
    if node is None:
        return ()
    if isinstance(node, Lanewise):
        return node.operands
    return (node.source,) if isinstance(node, Exchange) else (node.new, node.old)


Source: TypeAlias = str | tuple[str, str] | Callable[[Machine], Value]
"""The name of a vector register, the names of two that hold a value of 64 bits, or a reader of anything else."""


@dataclass(frozen=True, slots=True)
class Deferrable:
    """An instruction whose result may be deferred: the registers that it writes, its sources, what it computes."""

    results: tuple[str, ...]
    sources: tuple[Source, ...]
    compute: Compute

    def reads_deferred(self, machine: Machine) -> bool:
        """Return whether a source is deferred."""
        registers = machine.registers
        for each in self.sources:
            names = (each,) if isinstance(each, str) else each if isinstance(each, tuple) else ()
            if any(is_deferred(registers.get(name)) for name in names):
                return True
        return False

    def read(self, machine: Machine) -> list[Value] | None:
        """Return the values of the sources, without computing what is deferred; None where they must be computed."""
        found: list[Value] = []
        joined: dict[Source, Value] = {}  # an operand that occurs twice stays one object
        for each in self.sources:
            value = joined.get(each) if isinstance(each, tuple) else None
            if value is None:
                value = _held(machine, each) if isinstance(each, str | tuple) else each(machine)
            if value is None:
                return None
            if isinstance(each, tuple):
                joined[each] = value
            found.append(value)
        return found

    def defer(self, machine: Machine, operands: Sequence[Value]) -> Value | None:
        """Return the deferred result of these operands, None where it must be computed."""
        if len(operands) == 1 and self.compute is moved:
            return operands[0] if is_deferred(operands[0]) else None
        values = tuple(operands)
        node = Lanewise(machine.domain, self.compute, values)
        return deferred(node, values, machine.threads, BITS * len(self.results))

    def write(self, machine: Machine, result: Value) -> bool:
        """Write a deferred result; false, and nothing is written, where it must be computed."""
        if len(self.results) == 1:
            machine.registers[self.results[0]] = result
            return True
        node = result.node if type(result) is DeferredLanes else None
        halves: list[Value | None]
        if isinstance(node, Lanewise) and node.compute is _joined:
            halves = list(node.operands)  # a move of two registers
        else:
            halves = [
                deferred(Lanewise(machine.domain, half, (result,)), (result,), machine.threads) for half in _HALVES
            ]
        for name, half in zip(self.results, halves, strict=True):
            if half is None:
                return False
            machine.registers[name] = half
        return True


def _held(machine: Machine, source: str | tuple[str, str]) -> Value | None:
    """Return what registers hold, without computing what is deferred; None where they must be read."""
    if isinstance(source, str):
        return undefined_if_none(machine.registers.get(source))
    halves = tuple(undefined_if_none(machine.registers.get(name)) for name in source)
    low, high = (each.node if type(each) is DeferredLanes else None for each in halves)
    if isinstance(low, Lanewise) and isinstance(high, Lanewise):
        are_halves = (low.compute, high.compute) == _HALVES
        if are_halves and low.operands[0] is high.operands[0]:
            return low.operands[0]
    if not any(map(is_deferred, halves)):
        return concat(list(halves)) if all(map(_is_plain, halves)) else None
    return deferred(Lanewise(machine.domain, _joined, halves), halves, machine.threads, 2 * BITS)


def _joined(machine: Machine, low: Value, high: Value) -> Value:
    return concat([low, high])


def _low_half(machine: Machine, value: Value) -> Value:
    return extract(value, 0, BITS)


def _high_half(machine: Machine, value: Value) -> Value:
    return extract(value, BITS, BITS)


_HALVES = _low_half, _high_half


def moved(machine: Machine, value: Value) -> Value:
    """Return the source of a move."""
    return value


def undefined_if_none(value: Value | None) -> Value:
    """Return the content of a register, undefined where nothing wrote it."""
    return poison(BITS) if value is None else value
