"""States of the machine at the header of a loop, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitwise_core.execution.active_lanes import WholeBlocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.async_groups import (
    AsyncGroup,
    AsyncGroups,
    AsynchronousRead,
    AsynchronousReads,
    ReadQueue,
)
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash

INERT = frozenset(
    {"copies", "fragments", "tiles", "cells of tiles", "tiles of descriptors", "scratch", "constants", "local"}
)
"""The keys of `Machine.extra` whose state does not write shared memory asynchronously, or is handled here."""


def hash_of(value: Value) -> tuple[hashing.Words, int]:
    """The hash of a value, and the union of the sticky flags of its lanes."""
    lanes = as_symbolic_vector(value)
    return exact_hash(lanes), L.flags_of_some_lane(lanes) & L.STICKY


@dataclass(frozen=True, slots=True)
class LoopState:
    """The state of a machine: registers, cells of shared memory, asynchronous copies in flight."""

    registers: dict[str, Value]
    words: hashing.Words
    flags: Array
    copies: tuple[Any, ...]

    @staticmethod
    def of(machine: Machine) -> LoopState:
        """The current state of the machine."""
        shared = machine.shared
        copies = machine.extra.get("copies")
        return LoopState(dict(machine.registers), shared.words.copy(), shared.flags.copy(), _list_copies(copies))

    def written(self, cells: Array) -> Array:
        """The cells, among these, that are defined in some instance."""
        defined = cells[cells < self.flags.shape[1]]
        empty = (self.flags[:, defined] & np.uint32(L.POISON)).all(axis=0)
        found: Array = np.concatenate([defined[~empty], cells[cells >= self.flags.shape[1]]])
        return found

    def agrees_on_register(self, row: int, other: LoopState, other_row: int, name: str) -> bool:
        """Whether a register is equal in two states, each in the given instance."""
        left, right = self.registers.get(name), other.registers.get(name)
        return left is not None and right is not None and _same_value(left, row, right, other_row)

    def agrees(self, row: int, other: LoopState, other_row: int, names: Iterable[str], live: Array) -> bool:
        """Whether these registers, these cells and the copies are equal in two states, each in the given instance."""
        if not all(self.agrees_on_register(row, other, other_row, name) for name in names):
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
    """Whether values are equal, part by part: parts that are constant in some instances only are not one load."""
    first = left.parts if isinstance(left, L.PackedVector) else (left,)
    second = right.parts if isinstance(right, L.PackedVector) else (right,)
    if [L.width(part) for part in first] != [L.width(part) for part in second]:
        return False
    return all(_same(hash_of(a)[0], row, hash_of(b)[0], other_row) for a, b in zip(first, second, strict=True))


def _list_copies(copies: Any) -> tuple[Any, ...]:
    """The copies in flight as (position in the order of groups, cells, value, mask)."""
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


def copies_in_flight(machine: Machine) -> bool:
    """Whether an asynchronous copy has not arrived."""
    return copies_are_in_flight(machine.extra.get("copies"))


def copies_are_in_flight(copies: Any) -> bool:
    """Whether an asynchronous copy has not arrived."""
    return any(cells is not None for _, cells, _, _ in _list_copies(copies))


def copies_are_equal(left: Any, right: Any) -> bool:
    """Whether the same copies are in flight, in the same groups, in every instance of the launch."""
    first, second = _list_copies(left), _list_copies(right)
    if len(first) != len(second):
        return False
    return all(
        _same_copy(a, row, b, row)
        for a, b in zip(first, second, strict=True)
        for row in range(1 if a[1] is None else max(hash_of(each[2])[0].shape[1] for each in (a, b)))
    )


def queue_of_copies(copies: Any) -> Any:
    """An independent record of the same copies in flight."""
    if copies is None:
        return None
    found = type(copies)()
    found.open = list(copies.open)
    found.groups = {key: groups.copy() for key, groups in copies.groups.items()}
    return found


def undefined_copy(copy: Any) -> Any:
    """The copy of an undefined value."""
    bits = L.width(copy.value)
    return replace(copy, value=SymbolicVector(bits, hashing.constant("a copy after a branch"), L.TERM | L.POISON))


def copies_have_equal_places(left: Any, right: Any) -> bool:
    """Whether copies to the same cells are in flight, in the same groups."""
    first, second = _list_copies(left), _list_copies(right)
    return len(first) == len(second) and all(
        a[0] == b[0] and (a[1] is None) == (b[1] is None) and (a[1] is None or np.array_equal(a[1], b[1]))
        for a, b in zip(first, second, strict=True)
    )


def merged_copies(histories: Sequence[Any], of_copy: Callable[[Any], Any] = undefined_copy) -> Any:
    """The copies in flight after one of several histories, each None or a record with open copies and groups.

    `of_copy` is applied to copies whose value depends on the history.  Groups are counted from the newest, as waits
    count them.
    """
    present = [each for each in histories if each is not None]
    if not present:
        return None
    if len(present) == len(histories) and all(copies_are_equal(present[0], each) for each in present[1:]):
        return present[0]
    found = type(present[0])()
    found.open = _changed_copies([each.open for each in present], of_copy)
    for key in dict.fromkeys(key for each in present for key in each.groups):
        found.groups[key] = _merged_groups([each.groups[key] for each in present if key in each.groups])
        for group in found.groups[key].groups:
            group.work = _changed_copies([group.work], of_copy)
    return found


def _changed_copies(lists: Sequence[list[Any]], of_copy: Callable[[Any], Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for each in (copy for copies in lists for copy in copies):
        found.setdefault((each.cells.tobytes(), each.threads.tobytes(), L.width(each.value)), of_copy(each))
    return list(found.values())


def _merged_groups(histories: Sequence[AsyncGroups[Any]]) -> AsyncGroups[Any]:
    found: AsyncGroups[Any] = AsyncGroups()
    for age in range(max(len(each.groups) for each in histories)):
        groups = [each.groups[-1 - age] for each in histories if len(each.groups) > age]
        blocks = np.logical_or.reduce([each.blocks for each in groups])
        found.groups.insert(0, AsyncGroup([work for each in groups for work in each.work], blocks))
    return found


def merged_reads(histories: Sequence[AsynchronousReads]) -> AsynchronousReads:
    """The asynchronous reads in flight after one of several histories; groups are counted from the newest."""
    found = AsynchronousReads()
    for key in dict.fromkeys(key for each in histories for key in each.queues):
        present = [each.queues[key] for each in histories if key in each.queues]
        merged = found.queues[key] = ReadQueue(
            _distinct_reads([read for each in present for read in each.open]),
            _merged_groups([each.groups for each in present]),
        )
        for group in merged.groups.groups:
            group.work = _distinct_reads(group.work)
    return found


def _distinct_reads(reads: list[AsynchronousRead]) -> list[AsynchronousRead]:
    return list({(each.cells.tobytes(), each.blocks.tobytes()): each for each in reads}.values())


def _same_copy(left: Any, row: int, right: Any, other_row: int) -> bool:
    if left[0] != right[0] or (left[1] is None) != (right[1] is None):
        return False
    if left[1] is None:
        return True
    if (left[3] is None) != (right[3] is None) or (left[3] is not None and not np.array_equal(left[3], right[3])):
        return False
    return np.array_equal(left[1], right[1]) and _same_value(left[2], row, right[2], other_row)


def _active_cells(cells: Array, lanes: Array | None) -> Array:
    return cells if lanes is None else cells[..., np.broadcast_to(lanes, cells.shape[-1:])]


def invalidate(shared: SharedMemory, defined: Array, name: str) -> None:
    """Make the cells of shared memory outside `defined` undefined."""
    shared.words[:, :, ~defined] = hashing.constant(name)
    shared.flags[:, ~defined] = L.TERM | L.POISON
    shared.version += 1


class LiveInSharedMemory(SharedMemory):
    """Shared memory that records the cells that a period reads before it writes them."""

    @staticmethod
    def install(machine: Machine) -> LiveInSharedMemory:
        """Replace the shared memory of the machine by a recording one, without copies in flight."""
        memory = LiveInSharedMemory.__new__(LiveInSharedMemory)
        old = machine.shared
        memory.granule, memory.blocks, memory.version = old.granule, old.blocks, old.version + 1
        memory.words, memory.flags, memory.recorder = old.words.copy(), old.flags.copy(), old.recorder
        memory.written_cells, memory.recording = np.zeros(0, dtype=bool), False
        memory.overwritten_cells = np.zeros(0, dtype=bool)
        memory.read = np.zeros(0, dtype=bool)
        memory.machine = machine
        machine.shared = memory
        machine.extra.pop("copies", None)
        machine.extra.pop("tiles", None)
        return memory

    def duplicate(self) -> LiveInSharedMemory:
        """An independent copy, with the same record."""
        found = LiveInSharedMemory.__new__(LiveInSharedMemory)
        vars(found).update(vars(self))
        found.words, found.flags, found.read = self.words.copy(), self.flags.copy(), self.read.copy()
        found.written_cells, found.overwritten_cells = self.written_cells.copy(), self.overwritten_cells.copy()
        return found

    machine: Machine
    written_cells: Array
    overwritten_cells: Array
    read: Array
    recording: bool

    def _mark_cells(self, flags: Array, cells: Array, count: int) -> Array:
        size = self.words.shape[2]
        if flags.size < size:
            flags = np.concatenate([flags, np.zeros(size - flags.size, dtype=bool)])
        for part in range(count):
            flags[np.unique(cells) + part] = True
        return flags

    def start_recording(self) -> None:
        """Start to record a period."""
        self.recording = True

    def store(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> None:
        """See `SharedMemory.store`."""
        super().store(cells, value, mask, rows)
        count = L.width(value) // (8 * self.granule)
        self.written_cells = self._mark_cells(
            self.written_cells, _active_cells(cells, None if mask is None else np.asarray(mask.any(axis=0))), count
        )
        if self.recording:
            self.overwritten_cells = self._mark_cells(
                self.overwritten_cells, _active_cells(cells, None if mask is None else mask[0]), count
            )

    def load(self, cells: Array, bits: int, rows: Array | None = None, whole: WholeBlocks | None = None) -> Value:
        """See `SharedMemory.load`."""
        if self.recording:
            before = self._mark_cells(np.zeros(0, dtype=bool), cells, max(1, bits // (8 * self.granule)))
            size = before.size
            written = np.zeros(size, dtype=bool)
            written[: min(size, self.overwritten_cells.size)] = self.overwritten_cells[:size]
            seen = np.zeros(size, dtype=bool)
            seen[: min(size, self.read.size)] = self.read[:size]
            self.read = seen | (before & ~written)
        return super().load(cells, bits, rows, whole)

    def live_in(self) -> Array:
        """The cells that a period reads before it writes them."""
        return np.flatnonzero(self.read)

    def finish_loop(self) -> None:
        """Make the cells that iterations write and the copies in flight undefined, as they are after the loop.

        Every period writes the same cells, and a period before the recorded one was executed as well.  Asynchronous
        state other than the copies handled here may write any cell.
        """
        self.recording = False
        written_cells = self.written_cells
        for _, cells, value, _ in _list_copies(self.machine.extra.get("copies")):
            if cells is not None:
                written_cells = self._mark_cells(written_cells, cells, max(1, L.width(value) // (8 * self.granule)))
        defined = np.ones(self.words.shape[2], dtype=bool)
        defined[: min(defined.size, written_cells.size)] = ~written_cells[: defined.size]
        if self.machine.extra.keys() - INERT:
            defined[:] = False
        invalidate(self, defined, "shared memory after a loop")
