"""Loads of what the launch stored: the last stores before a load, byte by byte, and the races with others.

A load whose elements are those of the stores takes the stored values.  Any other load is assembled from the stored
values and the initial content of which its bytes are parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.memory.undetermined import OTHER_BLOCK, OTHER_THREAD, STORE_RACE, Cause, Kind
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a batch: flat arrays over the active lanes, in thread order."""

    address: Array
    thread: Array
    """The number of the thread in the whole launch."""
    epoch: int
    value: SymbolicVector | None
    bits: int
    line: int
    chosen: bool = False
    """Whether data decides if the threads store at all: the value is then the content after either decision."""


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

    def after(self, row: Array, final: Array, order: BlockOrder | None = None) -> Array:
        """Return which rows may execute after the `final` row of their address, despite earlier program order."""
        other_thread = self.thread[row] != self.thread[final]
        unordered = (block_of(self.thread[row]) != block_of(self.thread[final])) | (
            self.epoch[row] >= self.epoch[final]
        )
        if order is not None:
            unordered &= ~order(self.thread[row], self.epoch[row], self.thread[final], self.epoch[final])
        found: Array = other_thread & unordered & (self.words[:, row] != self.words[:, final]).any(axis=0)
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


def common_granule(accesses: Iterable[Access]) -> int:
    """Return the largest power of two, in bytes, that divides the addresses and sizes of all elements."""
    together = 0
    for each in accesses:
        together |= int(np.bitwise_or.reduce(each.address, initial=np.uint64(0))) | each.bits // 8
    return together & -together


def forward_stores(
    value: Value,
    stores: Sequence[Access],
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
    if any(each.bits != bits and overlapping(load, each).any() for each in stores):
        return _forward_bytes(value, stores, load, active, recorder, in_order=in_order, order=order)
    alike = [each for each in stores if each.bits == bits]
    if not alike:
        return value, ()
    address = np.concatenate([each.address for each in alike])
    by_address = np.argsort(address, kind="stable")
    rows = _Rows(
        address[by_address],
        np.concatenate([each.thread for each in alike])[by_address],
        _numbers(alike)[by_address],
        alike,
    )
    low = np.searchsorted(rows.address, where, side="left")
    high = np.searchsorted(rows.address, where, side="right")
    if (np.searchsorted(rows.address, where - size + np.uint64(1), side="left") != low).any() or (
        np.searchsorted(rows.address, where + size, side="left") != high
    ).any():
        return _forward_bytes(value, stores, load, active, recorder, in_order=in_order, order=order)
    if not (high > low).any():
        return value, ()
    words_of_rows, flags_of_rows = (column[..., by_address] for column in payload(alike))

    def contents() -> tuple[hashing.Words, hashing.Words]:
        hashes = exact_hash(SymbolicVector(bits, words_of_rows[:, None], flags_of_rows[None]))[:, 0]
        return hashes, hashes_of_lanes(as_symbolic_vector(value), active)

    taken = np.where(high > low, high - 1, -1)
    races: Sequence[LoadRaces] = ()
    if not in_order:
        taken, races = rows.last_before(load, low, high, contents, order)
    hit = taken >= 0
    old = as_symbolic_vector(value)
    words = np.broadcast_to(old.words, (2, *active.shape)).copy()
    flags = np.broadcast_to(np.uint32(old.flags) if isinstance(old.flags, int) else old.flags, active.shape).copy()
    block, lane = (axis[hit] for axis in np.nonzero(active))
    words[:, block, lane] = words_of_rows[:, taken[hit]]
    flags[block, lane] = flags_of_rows[taken[hit]]
    return L.as_array_if_constant(SymbolicVector(bits, words, flags)), races


_Contents: TypeAlias = Callable[[], tuple[hashing.Words, hashing.Words]]
"""Returns the hashes of all rows, shape (2, rows), and of the initial content of all places, shape (2, places)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Stores of one width that do not overlap partially, by address and then in program order."""

    address: Array
    thread: Array
    access: Array
    """The number of the access of each row among `stores`."""
    stores: Sequence[Access]

    def last_before(
        self, load: Access, low: Array, high: Array, contents: _Contents, order: BlockOrder | None
    ) -> tuple[Array, Sequence[LoadRaces]]:
        """Return the row that each loaded place reads, -1 for its initial content, and the races of the load.

        The rows of a place are those from `low` to `high`.
        """
        place, row = range_pairs(low, high)
        epoch = np.array([each.epoch for each in self.stores])[self.access]
        foreign = block_of(self.thread[row]) != block_of(load.thread[place])
        unordered = foreign | ((self.thread[row] != load.thread[place]) & (epoch[row] >= load.epoch))
        if order is not None:
            unordered &= ~order(self.thread[row], epoch[row], load.thread[place], np.full(row.shape, load.epoch))
        if not unordered.any() and not (high - low > 1).any():
            return np.where(high > low, high - 1, -1), ()
        races: list[LoadRaces] = []
        hashes, initial = contents()
        # The last store that is ordered before the load; the initial content where there is none.
        taken = np.full(low.shape, -1, dtype=np.int64)
        np.maximum.at(taken, place[~unordered], row[~unordered])
        expected = np.where(taken >= 0, hashes[:, taken], initial)
        differs = (hashes[:, row] != expected[:, place]).any(axis=0)
        if any(each.chosen for each in self.stores):
            differs |= np.array([each.chosen for each in self.stores])[self.access[row]]
        for chosen, kind, reason in (
            (unordered & foreign & differs, Kind.BLOCKS, OTHER_BLOCK),
            (unordered & ~foreign & differs, Kind.GLOBAL, OTHER_THREAD),
        ):
            if chosen.any():
                cause = Cause(kind, reason, load.line, self._line(row[chosen][0]))
                races.append(LoadRaces(np.unique(place[chosen]), cause))
        ordered = np.flatnonzero(~unordered)
        final = taken[place[ordered]]
        late = StoredElements(self.address, self.thread, epoch, hashes).after(row[ordered], final, order)
        if late.any():
            first, last = self._line(row[ordered][late][0]), self._line(final[late][0])
            cause = Cause(Kind.GLOBAL, STORE_RACE, first, last)
            races.append(LoadRaces(np.unique(place[ordered][late]), cause))
        return taken, races

    def _line(self, row: int) -> int:
        return self.stores[int(self.access[row])].line


def _numbers(stores: Sequence[Access]) -> Array:
    """Return the number of its access for each stored element."""
    return np.repeat(np.arange(len(stores)), [each.address.size for each in stores])


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
    stores: Sequence[Access],
    load: Access,
    active: Array,
    recorder: Recorder | None,
    *,
    in_order: bool,
    order: BlockOrder | None,
) -> tuple[Value, Sequence[LoadRaces]]:
    """See `forward_stores`: for elements that share bytes without being the same.

    The order and the races are those of each cell, which is as wide as all accesses allow.  A loaded element is then
    the concatenation of the longest possible parts of stored elements, so that its term does not depend on the cells.
    """
    near = [_selected(each, overlapping(each, load)) for each in stores]
    near = [each for each in near if each.address.size]
    granule = common_granule([load, *near])
    width = 8 * granule
    count = load.bits // width
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(granule)
    cells = Access(
        (load.address + offsets[:, None]).reshape(-1), np.tile(load.thread, count), load.epoch, None, width, load.line
    )
    element, part, address = _stored_cells(near, granule)
    by_address = np.lexsort((element, address))
    element, part = element[by_address], part[by_address]
    thread = np.concatenate([each.thread for each in near])
    rows = _Rows(address[by_address], thread[element], _numbers(near)[element], near)
    low = np.searchsorted(rows.address, cells.address, side="left")
    high = np.searchsorted(rows.address, cells.address, side="right")

    def contents() -> tuple[hashing.Words, hashing.Words]:
        stored = np.concatenate([_hashes_of_parts(each, width) for each in near], axis=1)[:, by_address]
        initial = [as_symbolic_vector(extract(value, low, width)) for low in range(0, load.bits, width)]
        return stored, np.concatenate([hashes_of_lanes(each, active) for each in initial], axis=1)

    taken = np.where(high > low, high - 1, -1)
    races: Sequence[LoadRaces] = ()
    if not in_order:
        taken, races = rows.last_before(cells, low, high, contents, order)
    lanes = load.address.size
    races = [LoadRaces(np.unique(each.place % lanes), each.cause) for each in races]
    shape = (count, lanes)
    sources = _Sources(
        np.where(taken >= 0, element[taken], -1).reshape(shape), np.where(taken >= 0, part[taken], 0).reshape(shape)
    )
    return _assembled(value, sources, near, granule, active, recorder), races


def _selected(access: Access, chosen: Array) -> Access:
    """Return the chosen elements of an access."""
    if chosen.all():
        return access
    value = None if access.value is None else _lanes_of(access.value, chosen)
    return Access(
        access.address[chosen], access.thread[chosen], access.epoch, value, access.bits, access.line, access.chosen
    )


def _stored_cells(stores: Sequence[Access], granule: int) -> tuple[Array, Array, Array]:
    """Return the cells of stored elements: the element's number in program order, the cell's in it, and its address.

    The cells of an access are sorted by their number in the element.
    """
    element, part, address = [], [], []
    first = 0
    for each in stores:
        size, count = each.address.size, each.bits // (8 * granule)
        element.append(np.tile(np.arange(first, first + size), count))
        part.append(np.repeat(np.arange(count), size))
        offsets = np.arange(count, dtype=np.uint64) * np.uint64(granule)
        address.append((each.address + offsets[:, None]).reshape(-1))
        first += size
    return np.concatenate(element), np.concatenate(part), np.concatenate(address)


def _hashes_of_parts(access: Access, width: int) -> hashing.Words:
    """Return the hashes of the cells of stored elements, in the order of `_stored_cells`."""
    assert access.value is not None
    whole = np.ones((1, access.address.size), dtype=bool)
    parts = [as_symbolic_vector(extract(access.value, low, width)) for low in range(0, access.bits, width)]
    return np.concatenate([hashes_of_lanes(each, whole) for each in parts], axis=1)


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
    value: Value, sources: _Sources, stores: Sequence[Access], granule: int, active: Array, recorder: Recorder | None
) -> Value:
    """Return the loaded value whose active lanes have these sources; `value` is the initial content."""
    width = 8 * granule
    words, flags = payload(stores)
    cells_of_element = np.concatenate([np.full(each.address.size, each.bits // width) for each in stores])
    layouts, number = sources.layouts(cells_of_element)
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
