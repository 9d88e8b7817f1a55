"""Stores of the two sides of a branch that whole blocks take by data: each element is a select of its two contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from bitwise_core.execution.active_lanes import whole_mask
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine, invert, literal
from bitwise_core.execution.memory.atomic_contributions import combined, identity_of
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.loads import Load
from bitwise_core.execution.memory.outputs import split_elements
from bitwise_core.execution.memory.store_forwarding import (
    Access,
    StoredElements,
    common_granule,
    differing,
    forward_stores,
    payload,
)
from bitwise_core.execution.races.epochs import Epoch, epochs_at, simplest
from bitwise_core.execution.races.undetermined import CHOSEN_UPDATES, STORE_RACE, Cause, Kind, race, undetermined_where
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash
from bitwise_core.numerics import FloatFormat, Operation, operation

Event = TypeVar("Event", Access, Load, tuple[str, Access])


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores, the recorded loads, the kept loads and the atomic operations of one side, by buffer, in order."""

    stores: Mapping[int, Sequence[Access]] = field(default_factory=dict)
    loads: Mapping[int, Sequence[Access]] = field(default_factory=dict)
    kept: Mapping[int, Sequence[Load]] = field(default_factory=dict)
    atomics: Mapping[int, Sequence[tuple[str, Access]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recorded:
    """How many accesses of each buffer there were at a branch."""

    stores: Mapping[int, int]
    loads: Mapping[int, int]
    kept: Mapping[int, int]
    atomics: Mapping[int, int]
    conditional: int

    @staticmethod
    def of(memory: GlobalMemory) -> Recorded:
        """Return the current numbers."""
        stores, loads, kept, atomics = (
            {buffer: len(events) for buffer, events in each.items()}
            for each in (memory.stores, memory.loads, memory.kept, memory.atomics)
        )
        return Recorded(stores, loads, kept, atomics, memory.conditional.count)

    def take(self, memory: GlobalMemory) -> Stores:
        """Remove what was recorded since, and return it.  Raises Unsupported for kept stores under conditions."""
        if memory.conditional.count != self.conditional:
            raise Unsupported("whether stores under conditions are executed depends on data")
        return Stores(
            _taken(memory.stores, self.stores),
            _taken(memory.loads, self.loads),
            _taken(memory.kept, self.kept),
            _taken(memory.atomics, self.atomics),
        )


def _taken(events: dict[int, list[Event]], before: Mapping[int, int]) -> dict[int, list[Event]]:
    found = {}
    for buffer in list(events):
        count = before.get(buffer, 0)
        fresh = events[buffer][count:]
        if fresh:
            found[buffer] = fresh
            del events[buffer][count:]
            if not events[buffer]:
                del events[buffer]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Elements:
    """The elements that the blocks leave on one side, by ascending key: one row for each address and block."""

    key: Array
    address: Array
    thread: Array
    epoch: Array
    line: Array
    value: SymbolicVector
    earlier: Array
    """The earlier stores to these elements by another thread, in another epoch or of another content, shape (4, n):
    their keys, threads, epochs and lines."""

    @staticmethod
    def of(events: Sequence[Access], bits: int, keys: _Keys) -> _Elements:
        """Return the last stores of each block to each address, and the earlier ones without their values.

        Raises Race if the order of the threads of a block decides which is last.
        """
        if not events:
            none = np.zeros(0, dtype=np.int64)
            empty = SymbolicVector(bits, np.zeros((2, 1, 0), dtype=np.uint64), np.zeros((1, 0), dtype=np.uint32))
            return _Elements(none, none.astype(np.uint64), none, none, none, empty, np.zeros((4, 0), dtype=np.int64))
        address = np.concatenate([each.address for each in events])
        thread = np.concatenate([each.thread for each in events])
        epoch = np.concatenate([np.full(each.address.size, each.epoch, dtype=np.int64) for each in events])
        line = np.concatenate([np.full(each.address.size, each.line, dtype=np.int64) for each in events])
        words, flags = payload(events)
        key = keys.of(address, thread)
        order = np.argsort(key, kind="stable")
        key, address, thread, epoch, line = key[order], address[order], thread[order], epoch[order], line[order]
        value = SymbolicVector(bits, words[:, None, order], flags[None, order])
        last = np.append(key[1:] != key[:-1], True)
        rows = np.flatnonzero(last)
        final = rows[np.cumsum(last) - last]
        decided = np.concatenate([np.full(each.address.size, each.chosen) for each in events])[order]
        hashes = exact_hash(value)[:, 0]
        stored = StoredElements(address, thread, epoch, hashes, decided)
        clash = stored.after_last(np.arange(address.size), final)
        if clash.any():
            raise race(Kind.GLOBAL, STORE_RACE, int(line[clash][0]))
        chosen = L.chosen_lanes(value, last[None])
        replaced = (thread != thread[final]) | (epoch != epoch[final]) | differing(hashes, hashes[:, final])
        earlier = np.unique(np.stack([key, thread, epoch, line])[:, replaced], axis=1)
        return _Elements(key[rows], address[rows], thread[rows], epoch[rows], line[rows], chosen, earlier)

    def contents(self, rows: Array) -> SymbolicVector:
        """Return the contents of these rows, shape (1, rows)."""
        flags = L.flags_of_lanes(self.value.flags, (1, self.address.size))
        return SymbolicVector(self.value.bits, self.value.words[:, :, rows], flags[:, rows])

    def rows_of(self, key: Array) -> tuple[Array, Array]:
        """Return the row of each key, and whether there is one."""
        if not self.key.size:
            return np.zeros(key.size, dtype=np.int64), np.zeros(key.size, dtype=bool)
        rows = np.minimum(np.searchsorted(self.key, key), self.key.size - 1)
        return rows, self.key[rows] == key


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """Numbers of the pairs of an address and a block, ascending by address and then by block."""

    addresses: Array
    blocks: Array

    @staticmethod
    def among(events: Sequence[Access]) -> _Keys:
        """Return the numbers of the pairs that these stores have."""
        return _Keys(
            np.unique(np.concatenate([each.address for each in events])),
            np.unique(block_of(np.concatenate([each.thread for each in events]))),
        )

    def of(self, address: Array, thread: Array) -> Array:
        """Return the number of each address with the block of the thread."""
        place = np.searchsorted(self.addresses, address).astype(np.int64)
        found: Array = place * self.blocks.size + np.searchsorted(self.blocks, block_of(thread))
        return found

    def addresses_of(self, key: Array) -> Array:
        """Return the address of each number."""
        found: Array = self.addresses[key // self.blocks.size]
        return found


def join_stores(machine: Machine, predicate: Value, if_true: Stores, if_false: Stores) -> None:
    """Record what both sides stored and loaded: an element is a select of the contents that the sides leave.

    `predicate` has one lane for each block.  What one side did not store keeps its content.  The select is recorded as
    stored by the threads of both sides, so that every conflict of either with another access is found.
    """
    memory = machine.memory
    for side in (if_true, if_false):
        for buffer, loads in side.loads.items():
            memory.loads.setdefault(buffer, []).extend([*loads, *_late_loads(machine, loads)])
        for buffer, kept in side.kept.items():
            memory.kept.setdefault(buffer, []).extend([*kept, *_late_kept(machine, kept)])
    fresh: dict[int, list[Access]] = {}
    for buffer in {**if_true.stores, **if_false.stores}:
        sides = [list(each.stores.get(buffer, ())) for each in (if_true, if_false)]
        fresh[buffer] = _joined(machine, predicate, buffer, sides)
    for buffer, events in fresh.items():
        memory.stores.setdefault(buffer, []).extend(events)
    for side, holds in ((if_true, predicate), (if_false, invert(machine.domain, predicate))):
        for buffer, updates in side.atomics.items():
            joined = [(name, _chosen_update(machine, holds, buffer, operation(name), each)) for name, each in updates]
            memory.atomics.setdefault(buffer, []).extend(joined)


def _chosen_update(machine: Machine, holds: Value, buffer: int, update: Operation, event: Access) -> Access:
    """Return atomic operations of one side: where it is not taken, they leave the contents as they are.

    `holds` says which blocks take it.  An update without an operand that leaves every content is undetermined.
    """
    assert event.value is not None
    memory = machine.memory
    number = identity_of(update)
    form = update.result
    exact = update.verb == "add" and "rn" in update.modifiers and "ftz" not in update.modifiers
    if number is None and exact and isinstance(form, FloatFormat) and memory.formats.get(buffer) == form:
        number = 1 << form.bits - 1  # x + -0 is x, but for the bits of a NaN
    if number is None or update.result.bits != event.bits:
        value = as_symbolic_vector(event.value)
        if memory.note_race(Cause(Kind.SUM, CHOSEN_UPDATES, event.line)):
            every = np.ones((1, event.address.size), dtype=bool)
            value = as_symbolic_vector(undetermined_where(every, value, memory.domain.recorder))
    else:
        chosen = _predicate_of_threads(machine, holds, event.thread)
        value = as_symbolic_vector(machine.domain.select(chosen, event.value, literal(number, event.bits)))
    return replace(event, value=value, chosen=True)


def _late_loads(machine: Machine, loads: Sequence[Access]) -> list[Access]:
    """Return the loads that follow a barrier which the other side lacks, as loads after the last barrier of both.

    No barrier may be between them and the accesses after the join.  Stores need no such copy: a later access is ordered
    after a store only if its epoch is greater.
    """
    found = []
    for each in loads:
        joined = _epochs_of_threads(machine, each.thread)
        late = np.broadcast_to(np.asarray(each.epoch > joined), each.thread.shape)
        if late.any():
            value = None if each.value is None else L.chosen_lanes(each.value, late[None])
            epoch = epochs_at(joined, late)
            found.append(replace(each, address=each.address[late], thread=each.thread[late], epoch=epoch, value=value))
    return found


def _late_kept(machine: Machine, loads: Sequence[Load]) -> list[Load]:
    """See `_late_loads`: the same for loads of whole batches."""
    found = []
    for each in loads:
        late = np.asarray(each.epoch > machine.epoch)
        if late.all():
            found.append(replace(each, epoch=machine.epoch))
        elif late.any():
            found.append(replace(each, epoch=machine.epoch, mask=whole_mask(each.mask, each.shape) & late))
    return found


def _joined(machine: Machine, predicate: Value, buffer: int, sides: Sequence[list[Access]]) -> list[Access]:
    bits = 8 * common_granule([*sides[0], *sides[1]])
    recorder = machine.domain.recorder
    split = [split_elements(side, halves=False, narrowest=bits, recorder=recorder) if side else [] for side in sides]
    keys = _Keys.among([*split[0], *split[1]])
    parts = [_Elements.of(each, bits, keys) for each in split]
    key = np.union1d(parts[0].key, parts[1].key)
    address = keys.addresses_of(key)
    found = [each.rows_of(key) for each in parts]
    thread = np.empty(address.size, dtype=np.int64)
    line = np.empty(address.size, dtype=np.int64)
    for part, (rows, there) in zip(parts, found, strict=True):
        thread[there], line[there] = part.thread[rows[there]], part.line[rows[there]]
    contents: list[SymbolicVector] = []
    for part, (rows, there) in zip(parts, found, strict=True):
        if there.all():
            contents.append(part.contents(rows))
            continue
        old = _content_before(machine, buffer, address, thread, bits, int(line[~there][0]))
        if there.any():
            old = L.blend(there[None], part.contents(rows), old)
        contents.append(old)
    chosen = _predicate_of_threads(machine, predicate, thread)
    for each in contents:
        each.recorder = recorder
    if machine.path is None:  # within another branch, a block stores under the conditions of both
        chosen = _joint_predicate(machine, chosen, address, [there for _, there in found], contents)
    value = as_symbolic_vector(machine.domain.select(chosen, contents[0], contents[1]))
    result: list[Access] = []
    # Other accesses may conflict with the earlier stores too, whatever these stored.
    for part in parts:
        place = np.searchsorted(key, part.earlier[0])
        for stamp in np.unique(part.earlier[2:], axis=1).T:
            here = (part.earlier[2:] == stamp[:, None]).all(axis=0)
            lanes = _rows_of(value, place[here], address.size)
            at, who = address[place[here]], part.earlier[1, here]
            result.append(Access(at, who, int(stamp[0]), lanes, bits, int(stamp[1]), chosen=True))
    for part, (rows, there) in zip(parts, found, strict=True):
        stamps = np.stack([part.epoch, part.line], axis=1)[rows] if part.address.size else np.zeros((address.size, 2))
        for epoch, number in np.unique(stamps[there], axis=0):
            here = there & (stamps[:, 0] == epoch) & (stamps[:, 1] == number)
            lanes = L.chosen_lanes(value, here[None])
            result.append(
                Access(address[here], part.thread[rows[here]], int(epoch), lanes, bits, int(number), chosen=True)
            )
    return result


def _rows_of(value: SymbolicVector, rows: Array, count: int) -> SymbolicVector:
    """Return rows of a value of `count` rows, shape (1, count), by their numbers, some of them several times."""
    words = np.broadcast_to(value.words, (2, 1, count))[:, :, rows]
    found = SymbolicVector(value.bits, words, L.flags_of_lanes(value.flags, (1, count))[:, rows])
    found.recorder = value.recorder
    return found


def _joint_predicate(
    machine: Machine, predicate: Value, address: Array, there: Sequence[Array], contents: Sequence[SymbolicVector]
) -> Value:
    """Return the predicate of each row, with one for all blocks that may store one content to an address on one side.

    In every order of the blocks, such an address has that content if any of them stores it.  Rows are by ascending
    address; `there` says which rows each side stores, `contents` what it leaves.
    """
    first = np.append(True, address[1:] != address[:-1])
    start = np.flatnonzero(first)
    count = np.diff(np.append(start, address.size))
    if (count == 1).all():
        return predicate
    group = np.cumsum(first) - 1
    unlike = np.zeros(address.size, dtype=bool)
    for each in contents:
        hashes = exact_hash(each)[:, 0]
        unlike |= (hashes != hashes[:, start[group]]).any(axis=0)
    vector = as_symbolic_vector(predicate)
    result: Value = predicate
    for side, verb in ((0, "or"), (1, "and")):
        alone = there[side] & ~there[1 - side] & ~unlike
        whole = np.logical_and.reduceat(alone, start) & (count > 1)
        if not whole.any():
            continue
        flags = L.flags_of_lanes(vector.flags, (1, address.size))
        lanes = SymbolicVector(1, np.broadcast_to(vector.words, (2, 1, address.size)), flags)
        lanes.recorder = vector.recorder
        joint = as_symbolic_vector(combined(machine.domain, operation(f"{verb}.b1"), None, lanes, start, count))
        rows = SymbolicVector(
            1,
            np.broadcast_to(joint.words, (2, 1, start.size))[:, :, group],
            L.flags_of_lanes(joint.flags, (1, start.size))[:, group],
        )
        rows.recorder = vector.recorder
        result = L.blend(whole[group][None], rows, as_symbolic_vector(result))
    return result


def _content_before(
    machine: Machine, buffer: int, address: Array, thread: Array, bits: int, line: int
) -> SymbolicVector:
    """Return the content of these addresses before the branch, as the threads that store there would read it."""
    memory = machine.memory
    value = memory.initial(address[None], bits, None, (buffer,), line)
    load = Access(address, thread, _epochs_of_threads(machine, thread), None, bits, line)
    stores = memory.stores_near(buffer, load)
    if stores is not None:
        active = np.ones((1, address.size), dtype=bool)
        value, races = forward_stores(value, stores, load, active, memory.domain.recorder)
        for found in races:
            if not memory.note_race(found.cause):
                continue
            racing = np.zeros((1, address.size), dtype=bool)
            racing[0, found.place] = True
            value = undetermined_where(racing, value, memory.domain.recorder)
    return as_symbolic_vector(value)


def _predicate_of_threads(machine: Machine, predicate: Value, thread: Array) -> Value:
    """Return the predicate of the block of each thread, shape (1, threads)."""
    vector = as_symbolic_vector(predicate)
    rows = _rows_of_threads(machine, thread)
    words = np.broadcast_to(vector.words, (2, machine.blocks, 1))[:, rows, 0][:, None]
    flags = vector.flags
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (machine.blocks, 1))[rows, 0][None]
    found = SymbolicVector(1, words, flags)
    found.recorder = vector.recorder
    return found


def _rows_of_threads(machine: Machine, thread: Array) -> Array:
    """Return the row of the batch that the block of each thread has."""
    blocks = np.broadcast_to(block_of(machine.thread[:, :1]), (machine.blocks, 1))[:, 0]
    order = np.argsort(blocks)
    found: Array = order[np.searchsorted(blocks[order], block_of(thread))]
    return found


def _epochs_of_threads(machine: Machine, thread: Array) -> Epoch:
    """Return the present epoch of the block of each thread."""
    epoch = machine.epoch
    return epoch if isinstance(epoch, int) else simplest(epoch[_rows_of_threads(machine, thread), 0])
