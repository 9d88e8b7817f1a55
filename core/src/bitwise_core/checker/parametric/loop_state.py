"""States of a machine at the header of a loop: recorded and compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash

INERT = frozenset({"copies", "fragments", "tiles", "scratch", "constants", "local"})
"""State that an architecture keeps in `Machine.extra` and that does not write shared memory asynchronously."""


def hash_of(value: Value) -> tuple[hashing.Words, int]:
    """A value's hash, and the sticky properties of any lane."""
    lanes = as_symbolic_vector(value)
    flags = int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(lanes.flags)), axis=None))
    return full_hash(lanes), flags & L.STICKY


@dataclass(frozen=True, slots=True)
class State:
    """Registers, cells of shared memory, and the asynchronous copies in flight."""

    registers: dict[str, Value]
    words: hashing.Words
    flags: Array
    copies: tuple[Any, ...]

    @staticmethod
    def of(machine: Machine) -> State:
        """The machine's state now."""
        shared = machine.shared
        copies = machine.extra.get("copies")
        return State(dict(machine.registers), shared.words.copy(), shared.flags.copy(), _copies(copies))

    def written(self, cells: Array) -> Array:
        """Those of the cells that hold a value in some instance."""
        known = cells[cells < self.flags.shape[1]]
        empty = (self.flags[:, known] & np.uint32(L.POISON)).all(axis=0)
        found: Array = np.concatenate([known[~empty], cells[cells >= self.flags.shape[1]]])
        return found

    def has(self, row: int, other: State, other_row: int, name: str) -> bool:
        """Whether two states agree, each in an instance of its own, on one register."""
        left, right = self.registers.get(name), other.registers.get(name)
        return left is not None and right is not None and _same_value(left, row, right, other_row)

    def agrees(self, row: int, other: State, other_row: int, names: Iterable[str], live: Array) -> bool:
        """Whether two states agree, each in an instance of its own: on these registers, these cells, and the copies."""
        if not all(self.has(row, other, other_row, name) for name in names):
            return False
        cells = live[live < min(self.words.shape[2], other.words.shape[2])]
        if cells.size != live.size:
            return False
        if (self.words[:, row][:, cells] != other.words[:, other_row][:, cells]).any():
            return False
        if (self.flags[row, cells] != other.flags[other_row, cells]).any() or (
            self.flags[row, cells] & np.uint32(L.POISON)
        ).any():
            return False
        if len(self.copies) != len(other.copies):
            return False
        return all(
            _same_copy(left, row, right, other_row) for left, right in zip(self.copies, other.copies, strict=True)
        )


def _same(left: hashing.Words, row: int, right: hashing.Words, other_row: int) -> bool:
    first, second = left[:, min(row, left.shape[1] - 1)], right[:, min(other_row, right.shape[1] - 1)]
    return bool((first == second).all())


def _same_value(left: Value, row: int, right: Value, other_row: int) -> bool:
    """Part by part: a row of parts that are known in some instances only is no single leaf."""
    first = left.parts if isinstance(left, L.PackedVector) else (left,)
    second = right.parts if isinstance(right, L.PackedVector) else (right,)
    if [L.width(part) for part in first] != [L.width(part) for part in second]:
        return False
    return all(_same(hash_of(a)[0], row, hash_of(b)[0], other_row) for a, b in zip(first, second, strict=True))


def _copies(copies: Any) -> tuple[Any, ...]:
    """The copies in flight as (place in the order of groups, cells, value)."""
    if copies is None:
        return ()
    found: list[Any] = [("open", each.cells, each.value, each.mask) for each in copies.open]
    for key in sorted(copies.groups):
        for number, group in enumerate(copies.groups[key].groups):
            if not group.blocks.all():
                raise Unsupported("copies are in flight in some instances only")
            found.append(((key, number), None, None, None))
            found.extend(((key, number), each.cells, each.value, each.mask) for each in group.work)
    return tuple(found)


def in_flight(machine: Machine) -> bool:
    """Whether some asynchronous copy has not arrived."""
    return any(cells is not None for _, cells, _, _ in _copies(machine.extra.get("copies")))


def _same_copy(left: Any, row: int, right: Any, other_row: int) -> bool:
    if left[0] != right[0] or (left[1] is None) != (right[1] is None):
        return False
    if left[1] is None:
        return True
    if (left[3] is None) != (right[3] is None) or (left[3] is not None and not np.array_equal(left[3], right[3])):
        return False
    return np.array_equal(left[1], right[1]) and _same_value(left[2], row, right[2], other_row)


def _active(cells: Array, lanes: Array | None) -> Array:
    return cells if lanes is None else cells[..., np.broadcast_to(lanes, cells.shape[-1:])]


def forget(shared: SharedMemory, known: Array, name: str) -> None:
    """Makes the cells of shared memory outside `known` undefined."""
    shared.words[:, :, ~known] = hashing.constant(name)
    shared.flags[:, ~known] = L.TERM | L.POISON
    shared.version += 1


class LiveInMemory(SharedMemory):
    """Shared memory that records which cells a period reads before it writes them."""

    @staticmethod
    def around(machine: Machine) -> LiveInMemory:
        """Replaces the machine's shared memory by one that records, without copies in flight."""
        memory = LiveInMemory.__new__(LiveInMemory)
        old = machine.shared
        memory.granule, memory.blocks, memory.version = old.granule, old.blocks, old.version + 1
        memory.words, memory.flags, memory.recorder = old.words.copy(), old.flags.copy(), old.recorder
        memory.filled, memory.watching = np.zeros(0, dtype=bool), False
        memory.overwritten = np.zeros(0, dtype=bool)
        memory.read = np.zeros(0, dtype=bool)
        memory.machine = machine
        machine.shared = memory
        machine.extra.pop("copies", None)
        return memory

    machine: Machine
    filled: Array
    overwritten: Array
    read: Array
    watching: bool

    def _marked(self, flags: Array, cells: Array, count: int) -> Array:
        size = self.words.shape[2]
        if flags.size < size:
            flags = np.concatenate([flags, np.zeros(size - flags.size, dtype=bool)])
        for part in range(count):
            flags[np.unique(cells) + part] = True
        return flags

    def watch(self) -> None:
        """Starts recording a period."""
        self.watching = True

    def store(self, cells: Array, value: Value, mask: Array | None) -> None:
        """See `SharedMemory.store`."""
        super().store(cells, value, mask)
        count = L.width(value) // (8 * self.granule)
        self.filled = self._marked(
            self.filled, _active(cells, None if mask is None else np.asarray(mask.any(axis=0))), count
        )
        if self.watching:
            self.overwritten = self._marked(self.overwritten, _active(cells, None if mask is None else mask[0]), count)

    def load(self, cells: Array, bits: int) -> Value:
        """See `SharedMemory.load`."""
        if self.watching:
            before = self._marked(np.zeros(0, dtype=bool), cells, max(1, bits // (8 * self.granule)))
            size = before.size
            written = np.zeros(size, dtype=bool)
            written[: min(size, self.overwritten.size)] = self.overwritten[:size]
            seen = np.zeros(size, dtype=bool)
            seen[: min(size, self.read.size)] = self.read[:size]
            self.read = seen | (before & ~written)
        return super().load(cells, bits)

    def live_in(self) -> Array:
        """The cells that a period reads before it writes them."""
        return np.flatnonzero(self.read)

    def leave(self) -> None:
        """After the loop, the cells that its iterations write and the copies in flight are undefined.

        Every period writes the same cells, and a period before the recorded one was run as well.  Asynchronous state
        other than the copies handled here may write anywhere.
        """
        self.watching = False
        filled = self.filled
        for _, cells, value, _ in _copies(self.machine.extra.get("copies")):
            if cells is not None:
                filled = self._marked(filled, cells, max(1, L.width(value) // (8 * self.granule)))
        known = np.ones(self.words.shape[2], dtype=bool)
        known[: min(known.size, filled.size)] = ~filled[: known.size]
        if self.machine.extra.keys() - INERT:
            known[:] = False
        forget(self, known, "shared memory after a loop")
        copies = self.machine.extra.get("copies")
        if copies is None:
            return

        def emptied(copy: Any) -> Any:
            bits = L.width(copy.value)
            return replace(copy, value=SymbolicVector(bits, hashing.constant("a copy after a loop"), L.TERM | L.POISON))

        copies.open = [emptied(each) for each in copies.open]
        for groups in copies.groups.values():
            for group in groups.groups:
                group.work = [emptied(each) for each in group.work]
