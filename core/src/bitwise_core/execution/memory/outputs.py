"""What a launch leaves in global memory: the last store to every address, and the results of atomic operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from bitwise_core.assembly.module import Kernel, Module, program_digest
from bitwise_core.execution.domains.domain import DataDependent, Domain, Unsupported
from bitwise_core.execution.memory.atomic_contributions import combined, is_order_independent, kept_contributions
from bitwise_core.execution.memory.copy_ends import may_read_late
from bitwise_core.execution.memory.free_memory import return_free_memory
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.store_forwarding import (
    Access,
    StoredElements,
    common_granule,
    overlapping,
    payload,
    range_pairs,
)
from bitwise_core.execution.races.epochs import epochs_at
from bitwise_core.execution.races.undetermined import (
    AFTER_ATOMIC,
    LANES_STORE_RACE,
    MIXED_UPDATES,
    NARROW_SCOPE,
    OTHER_BLOCK,
    STORE_RACE,
    SUM_ORDER,
    Cause,
    Kind,
    Nondeterministic,
    Undetermined,
    by_arrival,
    race,
    undetermined_output,
    undetermined_where,
)
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.thread_numbers import block_of, of_one_warp
from bitwise_core.execution.time_limit import check_time
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats import nan_marks
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, unspecified_nans, with_unspecified_nans
from bitwise_core.numerics import FloatFormat, Operation, operation

_LOADS_PER_BATCH = 1 << 14
"""The number of loaded elements that are compared with stores in one step."""

MAXIMUM_ROWS = 1 << 17
"""How many stored elements of one buffer are sorted together, where no two of them can overlap partially."""

_PLACES_PER_ELEMENT = 8
"""Elements that are further apart on average are not compared with each other in advance."""

_RANGES_BETWEEN_RETURNS = 8
"""After how many ranges the memory of forgotten stores is returned."""

COMPUTED_ADDRESSES = 0
"""The key in the outputs of atomics at computed addresses, in whatever buffer."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a launch leaves in one buffer, by sorted address: bytes (uint8), full hashes, flags, lines and threads.

    Threads are numbered as in `Access`, in 8 bytes, or in 4 where these hold all numbers.  The thread of an element
    made by atomic operations has no meaning.
    """

    address: Array
    size: Array
    words: hashing.Words
    flags: Array
    line: Array
    thread: Array


@dataclass(frozen=True, slots=True, eq=False)
class _StoredRows:
    """Stored elements sorted by address, then by program order; `order` holds their positions in program order."""

    address: Array
    thread: Array
    size: Array
    words: hashing.Words
    flags: Array
    line: Array
    epoch: Array
    chosen: Array
    order: Array

    @staticmethod
    def of(events: list[Access]) -> _StoredRows:
        """Return the elements of these stores."""
        address, thread, size, words, flags, line, epoch, chosen = _columns(events)
        order = np.argsort(address, kind="stable")
        columns = (_taken(each, order) for each in (size, flags, line, epoch, chosen))
        sizes, all_flags, lines, epochs, all_chosen = columns
        return _StoredRows(
            address[order], thread[order], sizes, words[:, order], all_flags, lines, epochs, all_chosen, order
        )

    def rows(self, chosen: Array) -> Output:
        """Return the chosen elements."""
        if chosen.all():
            return Output(self.address, self.size, self.words, self.flags, self.line, self.thread)
        return Output(self.address[chosen], self.size[chosen], self.words[:, chosen], self.flags[chosen],
                      self.line[chosen], self.thread[chosen])  # fmt: skip

    def overlap(self) -> bool:
        """Return whether two elements overlap partially."""
        same = self.address[1:] == self.address[:-1]
        overlapping = (self.address[:-1] + self.size[:-1] > self.address[1:])[~same].any()
        return bool(overlapping or (self.size[1:] != self.size[:-1])[same].any())


def _taken(column: Array, order: Array) -> Array:
    """Return a column in another order; one number throughout, as most columns are, needs no order."""
    return column if column.size and (column == column[0]).all() else column[order]


def _select_elements(events: list[Access], numbers: Array) -> list[Access]:
    """Return the elements with these positions in the concatenation of all stores."""
    kept = np.zeros(sum(event.address.size for event in events), dtype=bool)
    kept[numbers] = True
    found, start = [], 0
    for event in events:
        assert event.value is not None
        chosen = kept[start : start + event.address.size]
        start += chosen.size
        if chosen.any():
            value = L.chosen_lanes(event.value, chosen[None])
            epoch = epochs_at(event.epoch, chosen)
            own = replace(event, address=event.address[chosen], thread=event.thread[chosen], epoch=epoch, value=value)
            found.append(own)
    return found


def _columns(events: list[Access]) -> tuple[Array, Array, Array, hashing.Words, Array, Array, Array, Array]:
    address = np.concatenate([e.address for e in events])
    thread = np.concatenate([e.thread for e in events])
    size = np.concatenate([np.full(e.address.size, e.bits // 8, dtype=np.uint8) for e in events])
    line = np.concatenate([np.full(e.address.size, e.line, dtype=np.int32) for e in events])
    epoch = np.concatenate([np.full(e.address.size, e.epoch, dtype=np.int32) for e in events])
    chosen = np.concatenate([np.full(e.address.size, e.chosen) for e in events])
    words, flag_rows = [], []
    for event in events:
        assert event.value is not None
        shape = (1, event.address.size)
        words.append(np.broadcast_to(exact_hash(event.value), (2, *shape))[:, 0])
        flag_rows.append(L.flags_of_lanes(event.value.flags, shape)[0])
    return address, thread, size, np.concatenate(words, axis=1), np.concatenate(flag_rows), line, epoch, chosen


def _without_own_nans(events: list[Access], form: FloatFormat | None) -> list[Access]:
    """Return stores to a buffer with NaNs of its elements' format counted as one value.

    Elements of another width are compared bit by bit, and all of them if a store may overwrite a part of an element.
    """
    if form is None or any(event.bits < form.bits for event in events):
        return events
    foreign = nan_marks.foreign_marks(form.name)
    return [
        event
        if event.value is None or event.bits != form.bits
        else replace(event, value=nan_marks.without_marks_but(event.value, foreign))
        for event in events
    ]


def _of_format(output: Output, form: FloatFormat | None) -> Output:
    """Return the content of a buffer, whose hashes depend on the format in which NaNs are counted as one value."""
    if form is None:
        return output
    words = output.words + hashing.constant(f"elements of {form.name}")[:, :, 0]
    return replace(output, words=hashing.mix(words))


def split_elements(
    events: list[Access], *, halves: bool = True, narrowest: int | None = None, recorder: Recorder | None = None
) -> list[Access]:
    """Split elements to the smallest stored width, constants and loads further to at most 16 bits if `halves`.

    The result does not depend on how a kernel packed its stores.  `narrowest` is the width, None: that of these stores.
    `recorder` is that of a recorded run.
    """
    narrowest = min(event.bits for event in events) if narrowest is None else narrowest
    exact_width = min(narrowest, 16) if halves else narrowest
    result: list[Access] = []
    for event in events:
        assert event.value is not None
        flags = event.value.flags
        form = flags & L.FORM if isinstance(flags, int) else flags & np.uint32(L.FORM)
        exact = (form == L.LOAD) | (form == L.CONST)
        if event.bits <= exact_width:
            result.append(event)
            continue
        chosen = np.broadcast_to(exact if isinstance(exact, np.ndarray) else np.bool_(exact), (1, event.address.size))[
            0
        ]
        for keep, narrow in ((~chosen, False), (chosen, True)):
            if not keep.any():
                continue
            lanes = L.chosen_lanes(event.value, keep[None])
            lanes.recorder = recorder
            epoch = epochs_at(event.epoch, keep)
            base = replace(event, address=event.address[keep], thread=event.thread[keep], epoch=epoch, value=lanes)
            width = exact_width if narrow else narrowest
            for low in range(0, event.bits, width):
                part = as_symbolic_vector(extract(lanes, low, width))
                place = base.address + np.uint64(low // 8)
                result.append(replace(base, address=place, value=part, bits=width))
    return result


def final_events(memory: GlobalMemory, buffer: int) -> list[Access]:
    """Return the stores to a buffer in their order, or the results of its atomic operations.  Raises Unsupported."""
    events = list(memory.stores.get(buffer, ()))
    atomics = memory.atomics.get(buffer, [])
    if not atomics:
        return events
    _check_scopes(memory, buffer, [each for _, each in atomics])
    for _, each in atomics:
        mixed = next((event for event in events if overlapping(each, event).any()), None)
        if mixed is not None:
            cause = Cause(Kind.ARRIVAL, MIXED_UPDATES, each.line, mixed.line)
            raise Undetermined(MIXED_UPDATES, cause.line, (cause,))
    names = sorted({name for name, _ in atomics})
    groups = [[event for other, event in atomics if other == name] for name in names]
    for place, group in enumerate(groups):
        for one in group:
            other = next((each for more in groups[:place] for each in more if overlapping(one, each).any()), None)
            if other is not None:
                raise Unsupported("different atomic operations update one element", max(one.line, other.line))
    return [*events, *(_accumulate_atomics(memory, buffer, *each) for each in zip(names, groups, strict=True))]


def _check_scopes(memory: GlobalMemory, buffer: int, atomics: Sequence[Access]) -> None:
    """Raise Nondeterministic if several blocks update an element on which an operation has the scope of its block."""
    limited = memory.of_blocks.get(buffer)
    if not limited:
        return
    address = np.concatenate([each.address for each in atomics])
    block = block_of(np.concatenate([each.thread for each in atomics]))
    order = np.lexsort((block, address))
    address, block = address[order], block[order]
    shared = address[1:][(address[1:] == address[:-1]) & (block[1:] != block[:-1])]
    for each in limited:
        if np.isin(each.address, shared).any():
            raise Nondeterministic(NARROW_SCOPE, each.line, (Cause(Kind.ARRIVAL, NARROW_SCOPE, each.line),))


def outputs(memory: GlobalMemory, *, release: bool = False) -> dict[int, Output]:
    """Return the final content of every buffer that the launch wrote.  Raises Unsupported for a race.

    `release`: the memory is not used afterwards, and its stores may be forgotten.
    """
    result: dict[int, Output] = {}
    memory.check_gathers()
    for buffer in sorted(memory.stores.keys() | memory.atomics.keys()):
        form, narrowest = memory.formats.get(buffer), _narrowest(memory, buffer)
        in_ranges = _output_by_ranges(memory, buffer, form, release)
        if in_ranges is not None:
            result[buffer] = in_ranges
            continue
        events = _without_own_nans(final_events(memory, buffer), form)
        stored = _StoredRows.of(split_elements(events, narrowest=narrowest))
        if stored.overlap():
            # A copied element that was overwritten by a computed one has been split into halves, the computed one not.
            events = split_elements(events, halves=False)
            whole = _StoredRows.of(events)
            if whole.overlap():
                # Elements that are not aligned to their width.
                events, granule = final_events(memory, buffer), common_granule(events)
                if form is None or 8 * granule >= form.bits:
                    events = _without_own_nans(events, form)
                events = split_elements(events, halves=False, narrowest=8 * granule)
                whole = _StoredRows.of(events)
            last = _last_stores(memory, buffer, whole)
            stored = _StoredRows.of(split_elements(_select_elements(events, whole.order[last]), narrowest=narrowest))
        kept = _last_stores(memory, buffer, stored)
        kept &= ~_as_given(memory, buffer, stored)
        if kept.any():
            result[buffer] = _with_unspecified_nans(_of_format(stored.rows(kept), form), memory.program)
    if memory.scattered:
        first = memory.scattered[0]
        if any(memory.stores.values()) or any(
            other != first.name for each in memory.atomics.values() for other, _ in each
        ):
            raise DataDependent("atomic operations at computed addresses may conflict with stores", first.line)
        total = np.sum([each.words for each in memory.scattered], axis=0, dtype=np.uint64)
        words = hashing.mix(total.reshape(2, 1, 1) + hashing.constant("contributions " + first.name))
        one = np.zeros(1, dtype=np.uint64)
        line = np.array([first.line])
        result[COMPUTED_ADDRESSES] = Output(
            one, one, words[:, 0], np.full(1, L.TERM, dtype=np.uint32), line, np.zeros(1, dtype=np.int64)
        )
    return result


def _narrowest(memory: GlobalMemory, buffer: int) -> int | None:
    """Return the width into which what is stored to a buffer is split; None for the least width that is stored.

    Kernels pack bytes into words of any width, so elements of one byte are compared one by one.
    """
    return 8 if buffer in memory.of_bytes else None


def _as_given(memory: GlobalMemory, buffer: int, rows: _StoredRows) -> Array:
    """Return which rows hold the number that the launch gives for their element: it changes nothing there.

    Locks and counters that a kernel sets back are such elements.
    """
    found = np.zeros(rows.address.size, dtype=bool)
    if buffer not in memory.given.buffers:
        return found
    known = (rows.flags & np.uint32(L.FORM)) == L.CONST
    for size in np.unique(rows.size[known]).tolist():
        here = np.flatnonzero(known & (rows.size == size))
        address = rows.address[here][None]
        try:
            numbers = memory.given.read(address, 8 * size, np.ones(address.shape, dtype=bool), None)
        except Unsupported:
            return np.zeros(rows.address.size, dtype=bool)  # beyond the given numbers
        given = exact_hash(L.constant_vector(numbers))[:, 0]
        found[here] = (rows.words[:, here] == given).all(axis=0)
    return found


def _output_by_ranges(memory: GlobalMemory, buffer: int, form: FloatFormat | None, release: bool) -> Output | None:
    """Return the final content of a buffer, made range by range of its addresses, so that it takes little memory.

    The ranges do not depend on each other where all elements have one width, to which they are aligned.  None where
    they may, where an order of threads decides what is left, and for a buffer with few elements.
    """
    events = memory.stores.get(buffer, [])
    count = sum(each.address.size for each in events)
    if count <= MAXIMUM_ROWS or memory.atomics.get(buffer) or memory.loads.get(buffer):
        return None
    width = events[0].bits // 8
    within = np.uint64(width - 1)
    if any(each.bits != 8 * width or np.bitwise_or.reduce(each.address) & within for each in events):
        return None
    bounds = [(int(each.address.min()), int(each.address.max())) for each in events]
    low, high = min(first for first, _ in bounds), max(last for _, last in bounds) + width
    ranges = -(-count // MAXIMUM_ROWS)
    step = max(width, -(-(high - low) // ranges) // width * width)
    # Pages that are not written take no memory.
    narrowest = _narrowest(memory, buffer)
    most, filled = count * (max(1, width // 2) if narrowest is None else width), 0
    found: dict[str, Array] = {}
    pending = list(zip(events, bounds, strict=True))
    numbers = np.uint32 if max(int(each.thread.max()) for each in events) < 1 << 32 else np.int64
    # With nothing stored twice, every range succeeds, and no store is needed after its last range.
    forgets = release and _are_distinct(events, low, high, width, count)
    if forgets:
        del memory.stores[buffer]
    del events
    for start in range(low, high, step):
        end = min(start + step, high)
        inside = [_within(each, start, end) for each, (first, last) in pending if first < end and last >= start]
        inside = [each for each in inside if each.address.size]
        if not inside:
            continue
        check_time(inside[0].line)
        stored = _StoredRows.of(split_elements(_without_own_nans(inside, form), narrowest=narrowest))
        if stored.overlap():
            return None
        try:
            last_rows = _last_stores(memory, buffer, stored)
        except Unsupported:
            return None
        part = _with_unspecified_nans(_of_format(stored.rows(last_rows), form), memory.program)
        size = part.address.size
        for each in fields(Output):
            column: Array = getattr(part, each.name)
            if each.name not in found:
                dtype = numbers if each.name == "thread" else column.dtype
                found[each.name] = np.empty((*column.shape[:-1], most), dtype=dtype)
            found[each.name][..., filled : filled + size] = column
        filled += size
        if forgets:
            inside.clear()
            pending = [each for each in pending if each[1][1] >= end]
            if (start - low) // step % _RANGES_BETWEEN_RETURNS == _RANGES_BETWEEN_RETURNS - 1:
                return_free_memory()
    return Output(**{name: column[..., :filled] for name, column in found.items()})


def is_written_once(memory: GlobalMemory, buffer: int) -> bool:
    """Return whether plain stores of determined values wrote each element of a buffer once, and nothing read it.

    Such elements have one width, to which they are aligned: there is no race that `outputs` could find.
    """
    events = [each for each in memory.stores.get(buffer, ()) if each.address.size]
    if memory.scattered or memory.atomics.get(buffer) or memory.loads.get(buffer) or not events:
        return False
    width = events[0].bits // 8
    within = np.uint64(width - 1)
    for each in events:
        if each.value is None or each.bits != 8 * width or np.bitwise_or.reduce(each.address) & within:
            return False
        if np.any(np.asarray(each.value.flags, dtype=np.uint32) & np.uint32(L.STICKY | L.POISON)):
            return False
    low = min(int(each.address.min()) for each in events)
    high = max(int(each.address.max()) for each in events) + width
    return _are_distinct(events, low, high, width, sum(each.address.size for each in events))


def _are_distinct(events: list[Access], low: int, high: int, width: int, count: int) -> bool:
    """Return whether aligned elements of one width, `count` in all, have different addresses from `low` to `high`."""
    places = (high - low) // width
    if places > _PLACES_PER_ELEMENT * count:
        return False
    stored = np.zeros(places, dtype=bool)
    for each in events:
        stored[(each.address - np.uint64(low)) // np.uint64(width)] = True
    return int(np.count_nonzero(stored)) == count


def _within(event: Access, start: int, end: int) -> Access:
    """Return the elements of a store at addresses from `start` up to `end`."""
    chosen = (event.address >= np.uint64(start)) & (event.address < np.uint64(end))
    if chosen.all():
        return event
    assert event.value is not None
    value = L.chosen_lanes(event.value, chosen[None])
    thread, epoch = event.thread[chosen], epochs_at(event.epoch, chosen)
    return replace(event, address=event.address[chosen], thread=thread, epoch=epoch, value=value)


def _with_unspecified_nans(output: Output, program: tuple[Module, Kernel] | None) -> Output:
    """Return stored elements, with a hash of the program where they depend on bits of a NaN that no document specifies.

    Such an element is equal to that of the same store of the same instructions only, which an assembler translates in
    the same way.
    """
    chosen = unspecified_nans(output.flags, output.size * np.uint64(8))
    if not chosen.any():
        return output
    text = "" if program is None else program_digest(*program)
    return replace(output, words=with_unspecified_nans(output.words, chosen, text, output.line))


def _last_stores(memory: GlobalMemory, buffer: int, rows: _StoredRows) -> Array:
    """Return which rows are the last of their address.

    Raises Unsupported if the order of threads decides which store or load is last.
    """
    last = np.append(rows.address[1:] != rows.address[:-1], True)
    if not last.all():
        stored = StoredElements(rows.address, rows.thread, rows.epoch, rows.words, rows.chosen)
        clash = stored.after_last(np.arange(rows.address.size), _last_row_of_address(last), memory.block_order)
        if clash.any():
            raise _store_race(memory, rows, clash, _last_row_of_address(last))
    if memory.undetermined is None:
        _check_loads(memory, buffer, rows.address, rows.thread, rows.size, rows.epoch)
    return last


def _store_race(memory: GlobalMemory, rows: _StoredRows, clash: Array, final: Array) -> Nondeterministic:
    """Return the error of stores whose order decides what a launch leaves."""
    sticky = (rows.flags | rows.flags[final]) & np.uint32(L.STICKY) != 0
    if (clash & sticky).any():
        return undetermined_output(memory.undetermined, int(rows.line[clash & sticky][0]))
    of_lanes = _of_lanes(memory, rows, final)
    # A clash that no assumption settles comes first.
    row = int(np.flatnonzero(clash & ~of_lanes if (clash & ~of_lanes).any() else clash)[0])
    other = int(final[row])
    line = int(rows.line[row])
    # Two loads, two numbers, or one of each differ on some input.  Terms of other forms may be one function.
    proved = {int(rows.flags[each]) & L.FORM for each in (row, other)} <= {L.LOAD, L.CONST}
    updates = () if memory.undetermined is None else memory.undetermined.updates
    reason = LANES_STORE_RACE if of_lanes[row] else STORE_RACE
    cause = by_arrival(Cause(Kind.GLOBAL, reason, line, int(rows.line[other])), updates)
    return Nondeterministic(cause.reason, line, (cause,), proved=proved)


def _of_lanes(memory: GlobalMemory, rows: _StoredRows, final: Array) -> Array:
    """Return which rows are stores of the instruction of the last one to their address, by a lane of the same warp."""
    found = np.zeros(rows.line.shape, dtype=bool)
    for line, warp in memory.lane_stores.items():
        here = np.flatnonzero((rows.line == line) & (rows.line[final] == line) & (rows.epoch == rows.epoch[final]))
        found[here] = of_one_warp(rows.thread[here], rows.thread[final[here]], warp)
    return found


def _last_row_of_address(last: Array) -> Array:
    """Return the row of the last store to each row's address; `last` marks these rows."""
    rows = np.flatnonzero(last)
    found: Array = rows[np.cumsum(last) - last]
    return found


def _check_loads(memory: GlobalMemory, buffer: int, address: Array, thread: Array, size: Array, epoch: Array) -> None:
    """Check that no load conflicts with a store of another block or an unordered store of another thread.

    Raises Unsupported.
    """
    atomic = bool(memory.atomics.get(buffer))
    for load in memory.loads.get(buffer, ()):
        check_time(load.line)
        # Elements do not overlap partially, so their ends are in the same order as their starts.
        low = np.searchsorted(address + size, load.address, side="right")
        high = np.searchsorted(address, load.address + np.uint64(load.bits // 8), side="left")
        if atomic and (high > low).any():
            raise Unsupported(AFTER_ATOMIC, load.line)
        for start in range(0, load.address.size, _LOADS_PER_BATCH):
            place, row = range_pairs(low[start : start + _LOADS_PER_BATCH], high[start : start + _LOADS_PER_BATCH])
            place += start
            other = thread[row] != load.thread[place]
            now = epochs_at(load.epoch, place)
            until = now if load.flight is None else epochs_at(load.flight.until, place)
            near = (epoch[row] >= now) & (epoch[row] <= until)
            near |= may_read_late(load, place, epoch[row], memory.copy_ends)
            if (other & (block_of(thread[row]) != block_of(load.thread[place]))).any():
                raise race(Kind.BLOCKS, OTHER_BLOCK, load.line)
            if (other & near).any():
                reason = "a thread reads global memory that another writes with no barrier between (a race)"
                raise race(Kind.GLOBAL, reason, load.line)


def _accumulate_atomics(memory: GlobalMemory, buffer: int, name: str, events: Sequence[Access]) -> Access:
    """Return the results of an atomic operation on elements of a buffer; nondeterministic where its order matters."""
    domain = memory.domain
    bits = events[0].bits
    if any(event.bits != bits for event in events):
        raise Unsupported("atomic operations of different widths update one buffer", events[0].line)
    address = np.concatenate([e.address for e in events])
    words, flags = payload(events)
    order = np.argsort(address, kind="stable")
    order = order[kept_contributions(operation(name), address[order], words[:, order], flags[order])]
    address, words, flags = address[order], words[:, None, order], flags[None, order]
    unique, start, count = np.unique(address, return_index=True, return_counts=True)
    initial = memory.initial(unique[None], bits, None, (buffer,), events[0].line)
    ordered = count > 1
    if not is_order_independent(operation(name)):
        hashes = exact_hash(SymbolicVector(bits, words, flags))[:, 0]
        # Equal contributions have one sum in every order.
        ordered = np.logical_or.reduceat((hashes != np.repeat(hashes[:, start], count, axis=1)).any(axis=0), start)
    contributions = SymbolicVector(bits, words, flags)
    total = combined(domain, operation(name), initial, contributions, start, count)
    pair = _of_pairs(domain, operation(name), initial, contributions, start, count)
    if pair is not None:
        two, sums = pair
        ordered = ordered & ~two
        total = blend_values(two[None], sums, total)
    if not is_order_independent(operation(name)) and ordered.any():
        line = np.repeat(np.array([e.line for e in events]), [e.address.size for e in events])[order]
        first = int(np.flatnonzero(ordered)[0])
        lines = sorted(set(line[start[first] : start[first] + count[first]].tolist()))
        cause = Cause(Kind.SUM, SUM_ORDER, lines[0], lines[1] if len(lines) > 1 else None)
        if memory.undetermined is None or memory.undetermined.note(cause):
            total = undetermined_where(ordered[None], total)
            if memory.undetermined is not None:
                memory.undetermined.sums.setdefault(cause, set()).add(buffer)
        always = ~np.repeat(np.array([e.chosen for e in events]), [e.address.size for e in events])[order]
        differ = _orders_differ(initial, words, flags, start, count, bits, always)
        if memory.undetermined is not None and differ[ordered].any():
            memory.undetermined.proved[buffer] = cause
    return Access(unique, np.zeros(unique.size, dtype=np.int64), 0, as_symbolic_vector(total), bits, events[0].line)


def _of_pairs(
    domain: Domain, added: Operation, initial: Value, contributions: SymbolicVector, start: Array, count: Array
) -> tuple[Array, Value] | None:
    """Return which elements hold a known zero and take two contributions, and the sums of these elements.

    (0 + x) + y and (0 + y) + x are both (x + y) + 0, also with zeros of either sign.  None if there is no such element.
    """
    rounds = added.verb == "add" and "rn" in added.modifiers and isinstance(added.result, FloatFormat)
    if not rounds or added.bits != contributions.bits:
        return None
    content = as_symbolic_vector(initial)
    zero = np.logical_or(L.equals_constant(content, 0), L.equals_constant(content, 1 << added.bits - 1))
    two = np.broadcast_to(zero, (1, count.size))[0] & (count == 2)
    if not two.any():
        return None
    first = combined(domain, added, None, contributions, start, np.ones_like(count))
    second = combined(domain, added, None, contributions, np.where(two, start + 1, start), np.ones_like(count))
    return two, domain.floating(added, [domain.floating(added, [first, second]), initial])


def _orders_differ(
    initial: Value, words: Array, flags: Array, start: Array, count: Array, bits: int, always: Array
) -> Array:
    """Return for which elements two orders of floating-point contributions are known to give different sums.

    There are different contributions other than zeros, and three numbers to add, of which not all are constants.
    `always`: data does not decide whether a contribution is made; others do not count.
    """
    value = SymbolicVector(bits, words, flags)
    known = np.broadcast_to(np.asarray(L.constant_mask(value)), (1, words.shape[2]))[0]
    zero = known & ((words[0, 0] & np.uint64((1 << bits - 1) - 1)) == 0)
    settled = (np.broadcast_to(flags, (1, words.shape[2]))[0] & np.uint32(L.STICKY)) == 0
    hashes = exact_hash(value)[:, 0]
    starts_known = np.broadcast_to(np.asarray(L.constant_mask(as_symbolic_vector(initial))), (1, start.size))[0]
    found = np.zeros(start.size, dtype=bool)
    for element in np.flatnonzero(count > 1).tolist():
        here = slice(int(start[element]), int(start[element] + count[element]))
        used = ~zero[here] & settled[here] & always[here]
        distinct = np.unique(hashes[:, here][:, used], axis=1).shape[1]
        numbers = int(used.sum()) + (not starts_known[element])
        found[element] = distinct > 1 and numbers > 2 and not (starts_known[element] and known[here].all())
        if found[element]:
            break  # one element suffices
    return found
