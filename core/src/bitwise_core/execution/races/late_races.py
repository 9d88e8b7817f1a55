"""Loads from global memory that race with a later store or with an atomic operation of the launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from bitwise_core.execution.memory.copy_ends import may_read_late
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.store_forwarding import (
    Access,
    BlockOrder,
    differing,
    epochs_of,
    equal_bytes,
    overlapping,
    payload,
    range_pairs,
)
from bitwise_core.execution.memory.store_pages import decisive
from bitwise_core.execution.races.epochs import epochs_at
from bitwise_core.execution.races.undetermined import (
    AFTER_ATOMIC,
    OTHER_BLOCK,
    OTHER_THREAD,
    Cause,
    Kind,
    UndeterminedValues,
    by_arrival,
)
from bitwise_core.execution.thread_numbers import block_of, is_agent
from bitwise_core.execution.time_limit import check_time
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash

_LOADS_PER_BATCH = 1 << 14
"""The number of loaded elements that are compared with stores in one step."""


def contest_late_races(memory: GlobalMemory, undetermined: UndeterminedValues) -> None:
    """Contest the loads that another thread's store or an atomic operation may precede, though it came later.

    A store of the loaded value itself has no effect on the load.
    """
    for buffer, loads in memory.loads.items():
        stores = memory.stores.get(buffer, ())
        tables = _Tables(stores, memory.block_order) if stores else None
        for load in loads:
            check_time(load.line)
            if tables is not None:
                for rows, of_others in tables.for_load(load):
                    _contest(load, rows, of_others, undetermined, memory)
            for _, each in memory.atomics.get(buffer, ()):
                changed = overlapping(load, each) & ~_undetermined_lanes(load)
                cause = Cause(Kind.ARRIVAL, AFTER_ATOMIC, load.line, each.line)
                if changed.any() and undetermined.note(cause):
                    undetermined.contest_loads(cause, load.line, load.address[changed], load.thread[changed])


_MANY_STORES = 16
"""The number of stores to a buffer from which on loads are compared with some of their elements only."""


class _Tables:
    """The stores to a buffer, as tables of elements that decide about the races of a load."""

    def __init__(self, stores: Sequence[Access], order: BlockOrder | None) -> None:
        self._stores = stores
        self._alike = order is None and len(stores) >= _MANY_STORES and len({each.bits for each in stores}) == 1
        self._alike = self._alike and all(isinstance(each.epoch, int) for each in stores)
        self._by_epoch: dict[int, _Rows | None] = {}

    @cached_property
    def _all(self) -> _Rows:
        return _Rows(self._stores)

    @cached_property
    def _for_others(self) -> _Rows:
        """The elements that decide about loads of other blocks."""
        return self._decisive(self._stores, 20)

    def _of_epoch(self, epoch: int) -> _Rows | None:
        """The elements that decide about loads of their own block in an epoch, None if there are none."""
        if epoch not in self._by_epoch:
            mine = [each for each in self._stores if each.epoch == epoch]
            self._by_epoch[epoch] = self._decisive(mine, 0) if mine else None
        return self._by_epoch[epoch]

    def _decisive(self, stores: Sequence[Access], shift: int) -> _Rows:
        """The elements that decide about races, of stores of which those of one thread number >> `shift` are alike."""
        chosen = np.repeat([each.chosen for each in stores], [each.address.size for each in stores])
        hashes = np.concatenate([_hash_of(each) for each in stores], axis=1)
        address, thread = _concatenated(stores, "address"), _concatenated(stores, "thread")
        return _Rows(stores, decisive(address, thread >> shift, chosen, hashes))

    def for_load(self, load: Access) -> list[tuple[_Rows, bool | None]]:
        """Return tables for a load, each with whether it is for stores of other blocks or its own, None for both."""
        if (
            not self._alike
            or not isinstance(load.epoch, int)
            or load.bits != self._stores[0].bits
            or load.flight
            or is_agent(load.thread).any()
        ):
            return [(self._all, None)]
        address, size = self._for_others.address, np.uint64(load.bits // 8)
        before = np.searchsorted(address, load.address - size + np.uint64(1), side="left")
        after = np.searchsorted(address, load.address + size, side="left")
        if (before != np.searchsorted(address, load.address, side="left")).any() or (
            after != np.searchsorted(address, load.address, side="right")
        ).any():
            return [(self._all, None)]
        own = self._of_epoch(load.epoch)
        return [(self._for_others, True), *([] if own is None else [(own, False)])]


def _concatenated(stores: Sequence[Access], name: str) -> Array:
    return np.concatenate([getattr(each, name) for each in stores])


class _Rows:
    """Stored elements sorted by address; `kept`: those with these numbers only, in ascending order."""

    def __init__(self, stores: Sequence[Access], kept: Array | None = None) -> None:
        address = _concatenated(stores, "address")
        order = np.argsort(address, kind="stable") if kept is None else kept[np.argsort(address[kept], kind="stable")]
        counts = [each.address.size for each in stores]
        self.address = address[order]
        self.thread = _concatenated(stores, "thread")[order]
        self.epoch = epochs_of(stores)[order]
        self.line, self.bits = (
            np.repeat(np.array(column, dtype=np.int64), counts)[order]
            for column in zip(*((each.line, each.bits) for each in stores), strict=True)
        )
        self.chosen = np.repeat(np.array([each.chosen for each in stores]), counts)[order]
        self.number = np.repeat(np.arange(len(stores)), counts)[order]
        self.hash = np.concatenate([_hash_of(each) for each in stores], axis=1)[:, order]
        self._stores, self._order = stores, order
        self.widest = max(each.bits for each in stores) // 8

    @cached_property
    def payload(self) -> tuple[hashing.Words, Array]:
        """The words of the stored elements, shape (2, rows), and their flags, shape (rows,)."""
        words, flags = payload(self._stores)
        return words[:, self._order], flags[self._order]


def _hash_of(access: Access) -> hashing.Words:
    assert access.value is not None
    return np.broadcast_to(exact_hash(access.value), (2, 1, access.address.size))[:, 0]


def _undetermined_lanes(load: Access) -> Array:
    """Return which loaded elements are undetermined anyway."""
    assert load.value is not None
    found = np.asarray(L.has_flag(SymbolicVector(load.bits, load.value.words, load.value.flags), L.NONDETERMINISTIC))
    lanes: Array = np.broadcast_to(found, (1, load.address.size))[0]
    return lanes


def _equal_parts(load: Access, rows: _Rows, place: Array, row: Array) -> Array:
    """Return which stored elements hold, in the bytes that they share with a loaded element, what was loaded."""
    assert load.value is not None
    (words, flags), (stored_words, stored_flags) = payload([load]), rows.payload
    found: Array = np.zeros(place.size, dtype=bool)
    distance = (rows.address[row] - load.address[place]).astype(np.int64)
    for bits in np.unique(rows.bits[row]).tolist():
        here = rows.bits[row] == bits
        left, right = place[here], row[here]
        found[here] = equal_bytes(
            SymbolicVector(load.bits, words[:, None, left], flags[None, left]),
            SymbolicVector(bits, stored_words[:, None, right], stored_flags[None, right]),
            distance[here],
        )
    return found


def _contest(
    load: Access, rows: _Rows, of_others: bool | None, undetermined: UndeterminedValues, memory: GlobalMemory
) -> None:
    """Contest a load; `of_others`: by stores of other blocks only, or of its own only, None: by all."""
    order = memory.block_order
    end = load.address + np.uint64(load.bits // 8)
    low = np.searchsorted(rows.address, load.address - np.uint64(rows.widest) + np.uint64(1), side="left")
    high = np.searchsorted(rows.address, end, side="left")
    if not (high > low).any():
        return
    settled, loaded = _undetermined_lanes(load), _hash_of(load)
    for start in range(0, load.address.size, _LOADS_PER_BATCH):
        place, row = range_pairs(low[start : start + _LOADS_PER_BATCH], high[start : start + _LOADS_PER_BATCH])
        place += start
        stored_end = rows.address[row] + (rows.bits[row] // 8).astype(np.uint64)
        foreign = block_of(rows.thread[row]) != block_of(load.thread[place])
        racing = (stored_end > load.address[place]) & ~settled[place]
        if of_others is not None:
            racing &= foreign == of_others
        now = epochs_at(load.epoch, place)
        until = now if load.flight is None else epochs_at(load.flight.until, place)
        near = (rows.epoch[row] >= now) & (rows.epoch[row] <= until)
        near |= may_read_late(load, place, rows.epoch[row], memory.copy_ends)
        others = rows.thread[row] != load.thread[place]
        if load.flight is not None:
            # A store of its own thread that came between the issue and the wait.
            number = rows.number[row]
            others |= (number >= load.flight.first) & (number < load.flight.end) | rows.chosen[row]
        racing &= foreign | (others & near)
        whole = (rows.bits[row] == load.bits) & (rows.address[row] == load.address[place])
        racing &= ~whole | rows.chosen[row] | differing(rows.hash[:, row], loaded[:, place])
        if order is not None:
            stored, who = (rows.thread[row], rows.epoch[row]), load.thread[place]
            first, last = np.full(row.shape, now), np.full(row.shape, until)
            racing &= ~order(*stored, who, first) & ~order(who, last, *stored)
        if not racing.any():
            continue
        partial = np.flatnonzero(racing & ~whole & ~rows.chosen[row])
        if partial.size:
            racing[partial] = ~_equal_parts(load, rows, place[partial], row[partial])
        for kind, reason, here in (
            (Kind.BLOCKS, OTHER_BLOCK, racing & foreign),
            (Kind.GLOBAL, OTHER_THREAD, racing & ~foreign),
        ):
            if not here.any():
                continue
            cause = by_arrival(Cause(kind, reason, load.line, int(rows.line[row[here]][0])), undetermined.updates)
            if undetermined.note(cause):
                chosen = np.unique(place[here])
                undetermined.contest_loads(cause, load.line, load.address[chosen], load.thread[chosen])
