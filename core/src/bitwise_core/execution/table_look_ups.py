"""Results of functions of bytes (`byte_tables`): of numbers, of terms at once, and of terms that wait.

A result that waits is looked up together with the others of its function, when one of them is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.byte_tables import Function, Part
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.repeated_lanes import RepeatedLanes, repeated_lanes
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import term


def of_numbers(function: Function, numbers: Mapping[int, Array]) -> Value:
    """Return the result of a function of numbers."""
    shape = np.broadcast_shapes(*(each.shape for each in numbers.values()))
    found: Array = np.zeros(shape, dtype=np.uint64)
    for part in function:
        octets = [(numbers[number] >> numbers[number].dtype.type(8 * byte)) & 255 for number, byte in part.atoms]
        bits = part.table[tuple([each.astype(np.intp) for each in octets])]
        found |= bits.astype(np.uint64) << np.uint64(part.low)
    return found.astype(L.UNSIGNED[sum(part.bits for part in function)])


def part_value(part: Part, varying: Mapping[int, Value]) -> Value | None:
    """Return bits of a result; None where lanes have constants among several atoms."""
    if not part.atoms:
        return part.table.reshape(1, 1)
    atoms = [
        extract(value.value if type(value) is DeferredLookUp else value, 8 * byte, 8)
        for value, byte in ((varying[number], byte) for number, byte in part.atoms)
    ]
    if part.copies:
        return atoms[0]
    vectors = [as_symbolic_vector(each) for each in atoms]
    if len(vectors) == 1:
        return _looked_up(part, vectors)[0]
    if any(L.constant_mask(each) is not False for each in vectors):
        return None
    return term(part.bits, part.tag, vectors, L.INTEGER, exact=True)


def _looked_up(part: Part, atoms: Sequence[SymbolicVector]) -> list[Value]:
    """Return bits of a result of one atom for each of these."""
    alike: dict[Hashable, list[int]] = {}
    for place, atom in enumerate(atoms):
        kind = atom.words.shape, atom.flags if isinstance(atom.flags, int) else None
        alike.setdefault(kind, []).append(place)
    found: dict[int, Value] = {}
    for places in alike.values():
        stacked = _stacked([atoms[place] for place in places])
        known = L.constant_mask(stacked)
        result = term(part.bits, part.tag, [stacked], L.INTEGER, exact=True)
        if known is not False:
            numbers = part.table[(stacked.words[0] & np.uint64(255)).astype(np.intp)]
            result = L.blend(known, L.constant_vector(numbers), result)
        for place, value in zip(places, _split(result, len(places)), strict=True):
            found[place] = value if known is False else L.as_array_if_constant(value)
    return [found[place] for place in range(len(atoms))]


def _stacked(vectors: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return vectors of one shape, whose flags are the same number or arrays, as one of more blocks."""
    first = vectors[0]
    if len(vectors) == 1:
        return first
    words = np.concatenate([each.words for each in vectors], axis=1)
    flags = first.flags
    if not isinstance(flags, int):
        shape = first.words.shape[1:]
        flags = np.concatenate([np.broadcast_to(np.asarray(each.flags), shape) for each in vectors])
    return SymbolicVector(first.bits, words, flags)


def _split(vector: SymbolicVector, count: int) -> list[SymbolicVector]:
    """Return the vectors of which `_stacked` made one."""
    if count == 1:
        return [vector]
    blocks = vector.words.shape[1] // count
    found = []
    for start in range(0, count * blocks, blocks):
        flags = vector.flags
        if not isinstance(flags, int):
            flags = L.uniform_flags(np.broadcast_to(flags, vector.words.shape[1:])[start : start + blocks])
        found.append(SymbolicVector(vector.bits, vector.words[:, start : start + blocks], flags))
    return found


_MOST_WAITING = 256
"""How many results of one function wait until one of them is read."""

_MAXIMUM_DEPTH = 16
"""How many values that wait for each other are deferred."""


class DeferredLookUp(DeferredValue):
    """A result that is looked up together with the others of its function, when one of them is read."""

    __slots__ = ("varying", "waiting")

    def __init__(self, varying: Mapping[int, Value], waiting: LookUps) -> None:
        self.varying, self.waiting = varying, waiting
        depths = [each.depth for each in varying.values() if isinstance(each, DeferredValue) and not each.is_computed]
        super().__init__(sum(part.bits for part in waiting.function), 1 + max(depths, default=0))
        waiting.results.append(self)

    def compute(self) -> Value:
        """Return the result."""
        results, self.waiting.results = self.waiting.results, []
        for each, value in zip(results, self.waiting.values(results), strict=True):
            each.settle(value)
        assert self._computed is not None
        return self._computed

    def settle(self, value: Value) -> None:
        """Keep the result, and drop what it is computed from."""
        self._computed, self.varying = value, {}


def waits_to_be_looked_up(value: object) -> bool:
    """Return whether a value is a result that nothing has looked up yet."""
    return type(value) is DeferredLookUp and not value.is_computed


def may_be_deferred(machine: Machine, value: DeferredLookUp) -> bool:
    """Return whether a result may wait: in a domain that defers steps, behind few values and beside few results."""
    defers = getattr(machine.domain, "defers_steps", False)
    return defers and value.depth <= _MAXIMUM_DEPTH and len(value.waiting.results) <= _MOST_WAITING


@dataclass(slots=True, eq=False)
class LookUps:
    """The results of a function, each part of which depends on one byte at most, that nothing has read yet."""

    function: Function
    results: list[DeferredLookUp]

    def values(self, results: Sequence[DeferredLookUp]) -> list[Value]:
        """Return the value of each result."""
        found: list[list[Value]] = [[] for _ in results]
        sources: dict[int, _Sources] = {}
        for part in self.function:
            if not part.atoms:
                for parts in found:
                    parts.append(part.table.reshape(1, 1))
                continue
            ((number, byte),) = part.atoms
            if number not in sources:
                sources[number] = _sources([L.settled(each.varying[number]) for each in results])
            for parts, value in zip(found, _bits_of(part, byte, sources[number]), strict=True):
                parts.append(value)
        return [concat(parts) for parts in found]


@dataclass(frozen=True, slots=True)
class _Sources:
    """The values of one input of several results.

    `alike` are places of values with one shape and one kind of flags, of which nothing but their lanes is known: `own`
    has the lanes of all of them, or of those groups of lanes of which these consist.
    """

    values: Sequence[Value]
    alike: Sequence[tuple[Sequence[int], SymbolicVector, RepeatedLanes | None]]
    others: Sequence[int]


def _sources(values: Sequence[Value]) -> _Sources:
    alike: dict[Hashable, list[int]] = {}
    others = []
    for place, each in enumerate(values):
        if type(each) is not SymbolicVector or each.origins or each.maximum is not None or each.recorder is not None:
            others.append(place)
            continue
        kind = each.words.shape, each.flags if isinstance(each.flags, int) else None
        alike.setdefault(kind, []).append(place)
    found = []
    for places in alike.values():
        stacked = _stacked([vector for place in places if isinstance(vector := values[place], SymbolicVector)])
        repeated = repeated_lanes([stacked])
        found.append((places, stacked if repeated is None else repeated.reduced(stacked), repeated))
    return _Sources(values, found, others)


def _bits_of(part: Part, byte: int, sources: _Sources) -> list[Value]:
    """Return bits of each of several results, which depend on a byte of the sources."""
    values, others = sources.values, sources.others
    if part.copies:
        return [extract(each, 8 * byte, 8) for each in values]
    atoms = [as_symbolic_vector(extract(values[place], 8 * byte, 8)) for place in others]
    found: dict[int, Value] = dict(zip(others, _looked_up(part, atoms), strict=True))
    for places, own, repeated in sources.alike:
        (value,) = _looked_up(part, [as_symbolic_vector(extract(own, 8 * byte, 8))])
        vector = as_symbolic_vector(value)
        whole = vector if repeated is None else repeated.whole(vector)
        for place, each in zip(places, _split(whole, len(places)), strict=True):
            found[place] = L.as_array_if_constant(each) if L.constant_mask(whole) is not False else each
    return [found[place] for place in range(len(values))]
