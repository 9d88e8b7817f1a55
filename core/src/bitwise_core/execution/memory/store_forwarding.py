"""Loads of what the launch stored: the last stores before a load, byte by byte, and the races with others.

A load whose elements are those of the stores takes the stored values.  Any other load is assembled from the stored
values and the initial content of which its bytes are parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.races.epochs import Epoch, epochs_at
from bitwise_core.execution.races.undetermined import OTHER_BLOCK, OTHER_THREAD, STORE_RACE, Cause, Kind
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.thread_numbers import block_of, is_agent
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash


@dataclass(frozen=True, slots=True)
class Flight:
    """When an asynchronous load of a buffer was complete: its thread has waited for it in the epoch `until`.

    `first` and `end` are the numbers of stores to the buffer that the launch had made at its issue and at the wait.
    """

    until: Epoch
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a batch: flat arrays over the active lanes, in thread order."""

    address: Array
    thread: Array
    """The number of the thread in the whole launch."""
    epoch: Epoch
    value: SymbolicVector | None
    bits: int
    line: int
    chosen: bool = False
    """Whether data decides if the threads store at all: the value is then the content after either decision."""
    flight: Flight | None = None
    """For an asynchronous load, when it was complete; None: it was at once, or nothing waits for it."""
    issue: int = 0
    """For a load of a copy engine, the number by which its end is known (`copy_ends`); 0: it may read at any time."""


BlockOrder: TypeAlias = Callable[[Array, Array, Array, Array], Array]
"""Returns which accesses are ordered before accesses of other blocks.

The arguments are the threads and the epochs of the earlier accesses, and then those of the later ones.
"""


@dataclass(frozen=True, slots=True, eq=False)
class StoredElements:
    """Stored elements sorted by address, and by program order within one address; one row for each element."""

    address: Array
    thread: Array
    epoch: Array
    words: hashing.Words
    """The hashes of the stored values, shape (2, elements)."""
    chosen: Array
    """For which of them data decides whether they are stored at all, see `Access.chosen`."""

    def after(self, row: Array, final: Array, order: BlockOrder | None = None) -> Array:
        """Return which rows may execute after the `final` row of their address, despite earlier program order."""
        other_thread = self.thread[row] != self.thread[final]
        unordered = (block_of(self.thread[row]) != block_of(self.thread[final])) | (
            self.epoch[row] >= self.epoch[final]
        )
        unordered |= is_agent(self.thread[row]) | is_agent(self.thread[final])
        if order is not None:
            unordered &= ~order(self.thread[row], self.epoch[row], self.thread[final], self.epoch[final])
        chosen = np.flatnonzero(other_thread & unordered)
        found: Array = np.zeros(row.shape, dtype=bool)
        found[chosen] = differing(self.words[:, row[chosen]], self.words[:, final[chosen]])
        return found

    def after_last(self, row: Array, final: Array, order: BlockOrder | None = None) -> Array:
        """Return which rows may execute after the last store to their address, in program order the `final` row.

        If data decides whether the final store is executed, another one of the same content may be the last: that of
        the other side of a branch.
        """
        found = self.after(row, final, order)
        open_ = np.flatnonzero(self.chosen[final] & ~found)
        # A row with the content of the final one differs from no other row of that content.
        open_ = open_[differing(self.words[:, row[open_]], self.words[:, final[open_]])]
        if not open_.size:
            return found
        place, other = range_pairs(row[open_] + 1, final[open_])
        alike = self.chosen[other] & ~differing(self.words[:, other], self.words[:, final[open_[place]]])
        place, other = place[alike], other[alike]
        late = self.after(row[open_[place]], other, order)
        found[open_[place[late]]] = True
        return found


def range_pairs(low: Array, high: Array) -> tuple[Array, Array]:
    """Return all pairs (place, row) with low[place] <= row < high[place], as two flat arrays."""
    count = np.maximum(high - low, 0)
    place = np.repeat(np.arange(low.size), count)
    row = np.arange(place.size) - np.repeat(np.cumsum(count) - count, count) + low[place]
    return place, row


@dataclass(frozen=True, slots=True)
class LoadRaces:
    """The loaded elements (positions among the active lanes) whose value depends on an order, and why."""

    place: Array
    cause: Cause


def overlapping(load: Access, store: Access) -> Array:
    """Return which loaded elements share a byte with a stored one."""
    keys = np.sort(store.address)
    first = np.searchsorted(keys, load.address - np.uint64(store.bits // 8) + np.uint64(1), side="left")
    found: Array = np.searchsorted(keys, load.address + np.uint64(load.bits // 8), side="left") > first
    return found


def epochs_of(accesses: Sequence[Access]) -> Array:
    """Return the epochs of the elements of some accesses, one after another."""
    return np.concatenate([np.full(each.address.size, each.epoch, dtype=np.int64) for each in accesses])


def common_granule(accesses: Iterable[Access]) -> int:
    """Return the largest power of two, in bytes, that divides the addresses and sizes of all elements."""
    together = 0
    for each in accesses:
        together |= int(np.bitwise_or.reduce(each.address, initial=np.uint64(0))) | each.bits // 8
    return together & -together


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Stored elements in program order, one row for each: arrays of shape (rows,), and `words` of shape (2, rows).

    `everything` returns the rows of which these are a part that is enough for loads of whole elements, None: these.
    """

    address: Array
    thread: Array
    epoch: Array
    line: Array
    bits: Array
    chosen: Array
    words: hashing.Words
    flags: Array
    everything: Callable[[], StoredRows] | None = None

    @staticmethod
    def of(stores: Sequence[Access]) -> StoredRows:
        """Return the elements of at least one store."""
        counts = [each.address.size for each in stores]

        def column(numbers: list[int]) -> Array:
            return np.repeat(np.array(numbers, dtype=np.int64), counts)

        return StoredRows(
            np.concatenate([each.address for each in stores]),
            np.concatenate([each.thread for each in stores]),
            epochs_of(stores),
            column([each.line for each in stores]),
            column([each.bits for each in stores]),
            column([each.chosen for each in stores]) != 0,
            *payload(stores),
        )

    @staticmethod
    def joined(parts: Sequence[StoredRows]) -> StoredRows:
        """Return the rows of several parts, of which each follows the one before for every address."""
        if len(parts) == 1:
            return parts[0]

        def column(name: str) -> Array:
            return np.concatenate([getattr(each, name) for each in parts], axis=-1)

        return StoredRows(
            column("address"),
            column("thread"),
            column("epoch"),
            column("line"),
            column("bits"),
            column("chosen"),
            column("words"),
            column("flags"),
        )

    def taken(self, rows: Array) -> StoredRows:
        """Return some rows, by a mask or by their numbers."""
        return StoredRows(
            self.address[rows],
            self.thread[rows],
            self.epoch[rows],
            self.line[rows],
            self.bits[rows],
            self.chosen[rows],
            self.words[:, rows],
            self.flags[rows],
            self.everything,
        )

    def sharing(self, load: Access) -> StoredRows:
        """Return the rows that share a byte with a loaded element."""
        keys = np.sort(load.address)
        first = np.searchsorted(keys, self.address - np.uint64(load.bits // 8) + np.uint64(1), side="left")
        found = np.searchsorted(keys, self.address + (self.bits >> 3).astype(np.uint64), side="left") > first
        return self if found.all() else self.taken(found)

    def parts(self, width: int) -> hashing.Words:
        """Return the hashes of the parts of `width` bits of all elements, each element's in ascending order."""
        counts = self.bits // width
        start = np.cumsum(counts) - counts
        found = np.empty((2, int(counts.sum())), dtype=np.uint64)
        for bits in np.unique(self.bits).tolist():
            rows = np.flatnonzero(self.bits == bits)
            whole = SymbolicVector(bits, self.words[:, None, rows], L.uniform_flags(self.flags[None, rows]))
            every = np.ones((1, rows.size), dtype=bool)
            for part in range(bits // width):
                piece = as_symbolic_vector(extract(whole, part * width, width))
                found[:, start[rows] + part] = hashes_of_lanes(piece, every)
        return found


def differing(left: hashing.Words, right: hashing.Words) -> Array:
    """Return which of two rows of hashes, shape (2, rows), are not equal."""
    found: Array = (left[0] != right[0]) | (left[1] != right[1])
    return found


def forward_stores(
    value: Value,
    stores: StoredRows,
    load: Access,
    active: Array,
    recorder: Recorder | None = None,
    *,
    in_order: bool = False,
    order: BlockOrder | None = None,
) -> tuple[Value, Sequence[LoadRaces]]:
    """Return the loaded value with earlier stores of this launch applied, and the races of the load.

    `load` holds the active lanes.  A store that is not ordered before the load is no race if it stores the bytes that
    the load returns without it, unless data decides whether it is executed.  `in_order`: the last store decides, and
    there are no races.  `recorder` is that of a recorded run.  `order`: the order between blocks, None: there is none.
    """
    bits, where, size = load.bits, load.address, np.uint64(load.bits // 8)
    near = stores.sharing(load)
    if not near.address.size:
        return value, ()
    rows = near.taken(np.argsort(near.address, kind="stable"))
    low = np.searchsorted(rows.address, where, side="left")
    high = np.searchsorted(rows.address, where, side="right")
    if (
        (rows.bits != bits).any()
        or (np.searchsorted(rows.address, where - size + np.uint64(1), side="left") != low).any()
        or (np.searchsorted(rows.address, where + size, side="left") != high).any()
    ):
        if near.everything is not None:
            near = near.everything().sharing(load)
        return _forward_bytes(value, near, load, active, recorder, in_order=in_order, order=order)

    def contents() -> tuple[hashing.Words, hashing.Words]:
        hashes = exact_hash(SymbolicVector(bits, rows.words[:, None], rows.flags[None]))[:, 0]
        return hashes, hashes_of_lanes(as_symbolic_vector(value), active)

    taken = np.where(high > low, high - 1, -1)
    races: Sequence[LoadRaces] = ()
    if not in_order:
        taken, races = _last_before(rows, load, low, high, contents, order)
    hit = taken >= 0
    old = as_symbolic_vector(value)
    words = np.broadcast_to(old.words, (2, *active.shape)).copy()
    flags = np.broadcast_to(np.uint32(old.flags) if isinstance(old.flags, int) else old.flags, active.shape).copy()
    block, lane = (axis[hit] for axis in np.nonzero(active))
    words[:, block, lane] = rows.words[:, taken[hit]]
    flags[block, lane] = rows.flags[taken[hit]]
    return L.as_array_if_constant(SymbolicVector(bits, words, flags)), races


_Contents: TypeAlias = Callable[[], tuple[hashing.Words, hashing.Words]]
"""Returns the hashes of all rows, shape (2, rows), and of the initial content of all places, shape (2, places)."""


def _last_before(
    rows: StoredRows, load: Access, low: Array, high: Array, contents: _Contents, order: BlockOrder | None
) -> tuple[Array, Sequence[LoadRaces]]:
    """Return the row that each loaded place reads, -1 for its initial content, and the races of the load.

    The rows do not overlap partially, and are sorted by address and then in program order.  Those of a place are from
    `low` to `high`.
    """
    place, row = range_pairs(low, high)
    thread, epoch, loading = rows.thread[row], rows.epoch[row], load.thread[place]
    now = epochs_at(load.epoch, place)
    foreign = block_of(thread) != block_of(loading)
    unordered = foreign | ((thread != loading) & ((epoch >= now) | is_agent(thread) | is_agent(loading)))
    if order is not None:
        unordered &= ~order(thread, epoch, loading, np.full(row.shape, now))
    if not unordered.any() and not (high - low > 1).any():
        return np.where(high > low, high - 1, -1), ()
    races: list[LoadRaces] = []
    hashes, initial = contents()
    # The last store that is ordered before the load; the initial content where there is none.
    taken = np.full(low.shape, -1, dtype=np.int64)
    np.maximum.at(taken, place[~unordered], row[~unordered])
    if unordered.any():
        expected = np.where(taken >= 0, hashes[:, taken], initial)
        differs = differing(hashes[:, row], expected[:, place]) | rows.chosen[row]
        for chosen, kind, reason in (
            (unordered & foreign & differs, Kind.BLOCKS, OTHER_BLOCK),
            (unordered & ~foreign & differs, Kind.GLOBAL, OTHER_THREAD),
        ):
            if chosen.any():
                cause = Cause(kind, reason, load.line, int(rows.line[row[chosen][0]]))
                races.append(LoadRaces(np.unique(place[chosen]), cause))
    ordered = np.flatnonzero(~unordered)
    final = taken[place[ordered]]
    stored = StoredElements(rows.address, rows.thread, rows.epoch, hashes, rows.chosen)
    late = stored.after_last(row[ordered], final, order)
    if late.any():
        first, last = int(rows.line[row[ordered][late][0]]), int(rows.line[final[late][0]])
        cause = Cause(Kind.GLOBAL, STORE_RACE, first, last)
        races.append(LoadRaces(np.unique(place[ordered][late]), cause))
    return taken, races


def payload(stores: Sequence[Access]) -> tuple[hashing.Words, Array]:
    """Return the words of all stored elements, shape (2, elements), and their flags, shape (elements,)."""
    words, flags = [], []
    for each in stores:
        assert each.value is not None
        found = each.value.flags
        words.append(np.broadcast_to(each.value.words, (2, 1, each.address.size))[:, 0])
        flags.append(np.broadcast_to(np.uint32(found) if isinstance(found, int) else found[0], each.address.shape))
    return np.concatenate(words, axis=1), np.concatenate(flags)


def equal_bytes(left: SymbolicVector, right: SymbolicVector, distance: Array) -> Array:
    """Return which lanes of two values, shape (1, lanes), have equal bytes where they overlap in memory.

    `distance` is the number of bytes from the address of `left` to that of `right`, shape (lanes,), and they overlap.
    """
    found: Array = np.ones(distance.shape, dtype=bool)
    for each in np.unique(distance).tolist():
        chosen = distance == each
        one, other = (_lanes_of(value, chosen) for value in (left, right))
        low = max(8 * each, 0)
        bits = min(left.bits, 8 * each + right.bits) - low
        same = [
            (exact_hash(as_symbolic_vector(first)) == exact_hash(as_symbolic_vector(second))).all(axis=0)
            for first, second in zip(
                _pieces(one, low, low, bits), _pieces(other, low - 8 * each, low, bits), strict=True
            )
        ]
        found[chosen] = np.all(np.broadcast_arrays(*same, np.ones((1, int(chosen.sum())), dtype=bool)), axis=0)[0]
    return found


def _lanes_of(value: SymbolicVector, chosen: Array) -> SymbolicVector:
    """Return the chosen lanes of a value of shape (1, lanes)."""
    words, flags = np.broadcast_to(value.words, (2, 1, chosen.size))[:, :, chosen], value.flags
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (1, chosen.size))[:, chosen]
    return SymbolicVector(value.bits, words, flags)


def hashes_of_lanes(value: SymbolicVector, active: Array) -> hashing.Words:
    """Return the hashes of the active lanes, shape (2, lanes)."""
    found: hashing.Words = np.broadcast_to(exact_hash(value), (2, *active.shape))[:, active]
    return found


def _forward_bytes(
    value: Value,
    near: StoredRows,
    load: Access,
    active: Array,
    recorder: Recorder | None,
    *,
    in_order: bool,
    order: BlockOrder | None,
) -> tuple[Value, Sequence[LoadRaces]]:
    """See `forward_stores`: for elements that share bytes without being the same; `near` are those of the stores.

    The order and the races are those of each cell, which is as wide as all accesses allow.  A loaded element is then
    the concatenation of the longest possible parts of stored elements, so that its term does not depend on the cells.
    """
    together = int(np.bitwise_or.reduce(near.address)) | int(np.bitwise_or.reduce(near.bits >> 3))
    together |= int(np.bitwise_or.reduce(load.address)) | load.bits // 8
    granule = together & -together
    width = 8 * granule
    count = load.bits // width
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(granule)
    epoch = load.epoch if isinstance(load.epoch, int) else np.tile(load.epoch, count)
    cells = Access(
        (load.address + offsets[:, None]).reshape(-1), np.tile(load.thread, count), epoch, None, width, load.line
    )
    counts = near.bits // width
    element = np.repeat(np.arange(counts.size), counts)
    part = np.arange(element.size) - np.repeat(np.cumsum(counts) - counts, counts)
    address = near.address[element] + (part * granule).astype(np.uint64)
    by_address = np.lexsort((element, address))
    element, part = element[by_address], part[by_address]
    rows = replace(near.taken(element), address=address[by_address])
    low = np.searchsorted(rows.address, cells.address, side="left")
    high = np.searchsorted(rows.address, cells.address, side="right")

    def contents() -> tuple[hashing.Words, hashing.Words]:
        initial = [as_symbolic_vector(extract(value, low, width)) for low in range(0, load.bits, width)]
        return near.parts(width)[:, by_address], np.concatenate([hashes_of_lanes(e, active) for e in initial], axis=1)

    taken = np.where(high > low, high - 1, -1)
    races: Sequence[LoadRaces] = ()
    if not in_order:
        taken, races = _last_before(rows, cells, low, high, contents, order)
    lanes = load.address.size
    races = [LoadRaces(np.unique(each.place % lanes), each.cause) for each in races]
    shape = (count, lanes)
    sources = _Sources(
        np.where(taken >= 0, element[taken], -1).reshape(shape), np.where(taken >= 0, part[taken], 0).reshape(shape)
    )
    return _assembled(value, sources, near, granule, active, recorder), races


@dataclass(frozen=True, slots=True, eq=False)
class _Sources:
    """What each cell of each loaded element holds: cell `part` of a stored element, whose number is -1 for none.

    Both have the shape (cells, loaded elements).
    """

    element: Array
    part: Array

    def layouts(self, cells_of_element: Array) -> tuple[Array, Array]:
        """Return the layouts that occur, and the number of that of each loaded element.

        A layout has the shape (cells, 3): whether a source begins with the cell, how many cells its stored element has
        (0 for the initial content), and the cell of it that is loaded.
        """
        stored = self.element >= 0
        begins = np.ones(self.element.shape, dtype=bool)
        begins[1:] = self.element[1:] != self.element[:-1]
        size = np.where(stored, cells_of_element[self.element], 0)
        columns = np.stack([begins, size, self.part], axis=1).reshape(-1, self.element.shape[1])
        found, number = np.unique(columns, axis=1, return_inverse=True)
        return found.T.reshape(found.shape[1], -1, 3), number.reshape(-1)


def _assembled(
    value: Value, sources: _Sources, stores: StoredRows, granule: int, active: Array, recorder: Recorder | None
) -> Value:
    """Return the loaded value whose active lanes have these sources; `value` is the initial content."""
    width = 8 * granule
    words, flags = stores.words, stores.flags
    layouts, number = sources.layouts(stores.bits // width)
    result = value
    for index, layout in enumerate(layouts.tolist()):
        if not any(size for _, size, _ in layout):
            continue
        chosen = np.flatnonzero(number == index)
        mask = np.zeros(active.shape, dtype=bool)
        mask[tuple(axis[chosen] for axis in np.nonzero(active))] = True
        starts = [cell for cell, (begins, _, _) in enumerate(layout) if begins]
        parts: list[Value] = []
        for start, end in zip(starts, [*starts[1:], len(layout)], strict=True):
            _, size, first = layout[start]
            source, low = value, start * width
            if size:
                rows = sources.element[start, chosen]
                source, low = _in_lanes(size * width, words[:, rows], flags[rows], mask), first * width
                source.recorder = recorder
            parts += _pieces(source, low, start * width, (end - start) * width)
        result = blend_values(mask, concat(parts), result)
    joined = as_symbolic_vector(result)
    form = np.broadcast_to(np.bitwise_and(joined.flags, L.FORM), active.shape)[active]
    exact = ((form == L.CONST) | (form == L.LOAD)).all()
    return L.as_array_if_constant(joined) if exact or not isinstance(result, PackedVector) else result


def _in_lanes(bits: int, words: hashing.Words, flags: Array, mask: Array) -> SymbolicVector:
    """Return values in the lanes of a mask; the others hold the first one, so that they add no other flags."""
    spread = np.empty((2, *mask.shape), dtype=np.uint64)
    spread[:] = words[:, :1, None]
    spread[:, mask] = words
    meta = np.full(mask.shape, flags[0], dtype=np.uint32)
    meta[mask] = flags
    return SymbolicVector(bits, spread, L.uniform_flags(meta))


def _pieces(source: Value, low: int, place: int, bits: int) -> list[Value]:
    """Return `bits` bits of a value from bit `low`, for bit `place` of a load, in parts that registers may have."""
    found: list[Value] = []
    done = 0
    while done < bits:
        size = 1 << (bits - done).bit_length() - 1
        while (place + done) % size:
            size //= 2
        found.append(L.as_array_if_constant(extract(source, low + done, size)))
        done += size
    return found
