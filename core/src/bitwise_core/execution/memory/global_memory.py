"""Global memory during a launch: loads of initial content, and the stores that form the result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import ClassVar, TypeAlias

import numpy as np

from bitwise_core.assembly.module import Kernel, Module
from bitwise_core.execution.active_lanes import active_lanes, active_values, whole_mask
from bitwise_core.execution.domains.domain import DataDependent, Domain, Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, buffer_at, buffers_at
from bitwise_core.execution.memory.atomic_contributions import ScatteredAtomics, combined, is_order_independent
from bitwise_core.execution.memory.conditional_stores import ConditionalStores
from bitwise_core.execution.memory.copy_ends import CopyEnds
from bitwise_core.execution.memory.given_contents import GivenContents, none_given
from bitwise_core.execution.memory.loads import NEVER_COMPLETE, Load, LoadInFlight, stored_elements
from bitwise_core.execution.memory.program_order import ProgramOrder
from bitwise_core.execution.memory.shared_elements import (
    contended_lanes,
    differing_lanes,
    lanes_in_order,
    placed,
    two_of_each_block,
)
from bitwise_core.execution.memory.store_forwarding import (
    Access,
    BlockOrder,
    Flight,
    LoadRaces,
    StoredRows,
    forward_stores,
    overlapping,
)
from bitwise_core.execution.memory.store_pages import StorePages
from bitwise_core.execution.races.epochs import Epoch, epochs_at, epochs_of_lanes
from bitwise_core.execution.races.undetermined import (
    AFTER_ATOMIC,
    AFTER_CONDITION,
    BEYOND,
    BEYOND_STORE,
    OLD_VALUE,
    WAITS,
    Cause,
    ComputedStore,
    Kind,
    Nondeterministic,
    Undetermined,
    UndeterminedValues,
    by_arrival,
    race,
    undetermined,
    undetermined_where,
)
from bitwise_core.execution.thread_numbers import further_thread
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, high_half
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import term
from bitwise_core.numerics import FloatFormat, Operation, operation

_NO_VALUE: Array = np.zeros((1, 1), dtype=np.bool_)
"""What atomic operations return that have no order."""

MAXIMUM_STORED = 1 << 24
"""The largest number of elements that a launch may store where each is followed: each takes about 150 bytes."""


class StoreLimitExceeded(Unsupported):
    """A run stores more elements than it may."""


ANY_BUFFER = -1
"""The buffer number that means an unknown buffer."""

MAXIMUM_POLLS = 1024
"""How often reads by which threads may wait are executed at most at the same addresses while nothing is stored."""


MAXIMUM_BYTES_KEPT = 1 << 26
"""How many bytes kept loads may take.  Otherwise a launch that loads and then stores a buffer is executed again."""

Change: TypeAlias = Callable[[Value], Value]
"""The content of an element after an atomic operation, as a function of the content before it."""


def _with_joined_halves(value: PackedVector) -> PackedVector:
    """Return the value with each bf16 that was widened to fp32 as one part."""
    parts: list[Array | SymbolicVector] = []
    place = start = 0
    while place < len(value.parts):
        pair = PackedVector(value.parts[place : place + 2])
        if start % 32 == 0 and pair.bits == 32 and high_half(pair) is not None:
            parts.append(as_symbolic_vector(pair))
            place += 2
        else:
            parts.append(value.parts[place])
            place += 1
        start += L.width(parts[-1])
    return PackedVector(tuple(parts))


def _distinct(numbers: Array) -> list[int]:
    """Return the numbers that occur, in ascending order; the common case of one number is fast."""
    low, high = int(numbers.min()), int(numbers.max())
    return [low] if low == high else [int(each) for each in sorted_distinct(numbers)]


class GlobalMemory:
    """The loads and stores of a launch, over all its batches.

    `given` are the contents that the launch gives: loads of them are numbers.  All other contents are the domain's.
    """

    orders_blocks: ClassVar[bool] = False
    """Whether accesses of different blocks may be ordered."""
    joins_conditions: ClassVar[bool] = True
    """Whether stores of several threads to one element, under conditions on data, are joined (`conditional_stores`)."""

    def __init__(self, domain: Domain, given: GivenContents | None = None) -> None:
        self.domain = domain
        self.given = none_given() if given is None else given
        self.stores: dict[int, list[Access]] = {}
        self._storing: tuple[Array, Array, Array] | None = None
        self.loads: dict[int, list[Access]] = {}
        self.atomics: dict[int, list[tuple[str, Access]]] = {}
        self.of_blocks: dict[int, list[Access]] = {}
        """The elements by buffer on which atomic operations have the scope of a block."""
        self.conditional = ConditionalStores()
        self.pages: dict[int, StorePages] = {}
        self.watched: frozenset[int] = frozenset()
        """The buffers whose loads are recorded from the start; those of others are kept while nothing is stored."""
        self.kept: dict[int, list[Load]] = {}
        self._bytes_kept = 0
        self._absent: Array = np.zeros(0, dtype=np.int64)
        """The threads that had ended where others passed a barrier."""
        self._in_flight: list[LoadInFlight] | None = None
        """The loads that are made now, if they are asynchronous."""
        self._issues = 0
        """How many asynchronous loads have been issued."""
        self.copy_ends: dict[int, CopyEnds] = {}
        """By the number of an issue, when the load of a copy engine was complete."""
        self.stored = 0
        """How many elements have been stored."""
        self.most_stored: int | None = None
        """How many may be stored in this run (None: as many as in any)."""
        self.gathered: dict[int, int] = {}
        self.scattered: list[ScatteredAtomics] = []
        self.loaded_buffers: set[int] = set()
        self.formats: Mapping[int, FloatFormat] = {}
        """The floating-point format of the elements of each buffer that has one."""
        self.of_bytes: frozenset[int] = frozenset()
        """The buffers whose elements have one byte."""
        self.program: tuple[Module, Kernel] | None = None
        self.undetermined: UndeterminedValues | None = None
        """The undetermined values of the launch; None: a race ends the run."""
        self.block_order: BlockOrder | None = None
        """The order between accesses of different blocks; None: there is none."""
        self.like_address: tuple[str, int] | None = None
        """A sentence on a given number that could be taken for an address, and the line that loaded it as a term."""
        self.program_order: ProgramOrder | None = None
        """The order of the accesses of each warp; None: only barriers order lanes."""
        self._old_values: dict[int, list[Value]] = {}
        """By line, what ordered atomic operations of the current instruction found."""
        self._combined: list[tuple[str, Array]] = []
        """The operations that were executed together, with their elements."""
        self.sizes: Mapping[int, int] = {}
        """The size in bytes of each buffer for which the launch states it."""
        self.executions: dict[int, int] = {}
        """How often instructions of some lines have been executed, where that distinguishes their results."""
        self.declared: dict[int, list[tuple[object, Hashable]]] = {}
        """By address, what no store describes and blocks have put there, such as a tensor map, with who has done so."""
        self.follows_pointers = False
        """Whether what is loaded now may be used as an address: other readers refuse the pointers of given contents."""
        self.polls: frozenset[int] = frozenset()
        """The lines of reads by which threads may wait for others."""
        self.lane_stores: dict[int, int] = {}
        """The lines of stores of which the lowest lane's value may be assumed to remain, and the lanes of a warp."""
        self._polled = 0
        self._last_polls: dict[int, bytes] = {}
        """By line, the addresses of the last such read."""

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """Return the content of memory at each active lane's address.  Raises Unsupported."""
        if line in self.polls:
            self._count_poll(line, address)
        buffers = self._buffers(address, mask)
        self.loaded_buffers |= buffers
        beyond = None if buffers.isdisjoint(self.sizes) else self._lanes_beyond(address, bits, mask)
        inside = mask if beyond is None else ~beyond if mask is None else mask & ~beyond
        value = self.initial(address.astype(np.uint64, copy=False), bits, inside, buffers, line)
        if beyond is not None:
            value = self._undetermined_beyond(value, beyond, bits, line)
        known = self.undetermined
        suspect = known is not None and (line in known.doubted or line in known.loads)
        active = active_lanes(mask, address, thread)
        accessed = self.stores.keys() | self.watched | self.atomics.keys() | self.conditional.buffers
        if not suspect and not buffers & accessed:
            same = beyond is None and self.domain.recorder is None
            made = Load(address, mask, thread, active.shape, epoch, None if same else value, bits, line)
            made = self._numbered(made)
            self._keep(made, buffers)
            self._note_in_flight(made, buffers)
            return value
        where, who = active_values(address, active), active_values(thread, active)
        racing = np.zeros(where.shape, dtype=bool)
        load = Access(where, who, epochs_of_lanes(epoch, active), None, bits, line)
        kept = self.conditional.touches(load, buffers)
        if kept is not None:
            if self.undetermined is None:
                raise Unsupported(AFTER_CONDITION, line)
            if self.undetermined.note(Cause(Kind.GLOBAL, AFTER_CONDITION, line)):
                racing |= kept
        for buffer in buffers:
            atomics = self.atomics.get(buffer)
            if atomics:
                if self.undetermined is None:
                    raise Unsupported("global memory is read after an atomic operation on the same buffer", line)
                for _, each in atomics:
                    changed = overlapping(load, each)
                    if changed.any() and self.undetermined.note(Cause(Kind.ARRIVAL, AFTER_ATOMIC, line, each.line)):
                        racing |= changed
            near = self.stores_near(buffer, load)
            if near is not None:
                value, races = self.forward(value, near, load, active)
                for found in races:
                    racing[found.place] |= self.note_race(found.cause)
        if self.undetermined is not None:
            contested = self.undetermined.contested_loads(line, where, bits, who)
            racing = racing if contested is None else racing | contested
            if line in self.undetermined.doubted:
                kind = Kind.ARRIVAL if line in self.undetermined.updates else Kind.BLOCKS
                racing |= self.undetermined.note(Cause(kind, WAITS, line))
        if racing.any():
            lanes = np.zeros(active.shape, dtype=bool)
            lanes[active] = racing
            value = undetermined_where(lanes, value, self.domain.recorder)
        made = self._numbered(Load(address, mask, thread, active.shape, epoch, value, bits, line))
        self._note_in_flight(made, buffers)
        read = made.accesses(self.undetermined is not None)
        for buffer in buffers:
            self.loads.setdefault(buffer, []).extend(read)
        return value if self.domain.recorder is None else self.domain.recorder.mark(value)

    @contextmanager
    def issuing(self) -> Iterator[list[LoadInFlight]]:
        """List the loads that are made until the end, which are asynchronous, for `complete`."""
        outer, found = self._in_flight, list[LoadInFlight]()
        self._in_flight = found
        try:
            yield found
        finally:
            self._in_flight = outer

    def _numbered(self, load: Load) -> Load:
        """Return a load with the number of its issue, if it is asynchronous."""
        if self._in_flight is None:
            return load
        self._issues += 1
        return replace(load, issue=self._issues)

    def end_copies(self, loads: Iterable[LoadInFlight], thread: Array, epoch: Array) -> None:
        """All threads of the blocks of some threads know that these loads of copy engines are complete.

        `thread` holds one thread of each block, and `epoch` the epoch of each, both of shape (blocks,).
        """
        for each in loads:
            self.copy_ends.setdefault(each.load.issue, CopyEnds()).add(thread, epoch)

    def _note_in_flight(self, load: Load, buffers: Iterable[int]) -> None:
        if self._in_flight is not None:
            self._in_flight.append(LoadInFlight(load, {each: len(self.stores.get(each, ())) for each in buffers}))

    def complete(self, loads: Iterable[LoadInFlight], epoch: Epoch) -> None:
        """Asynchronous loads are complete in an epoch: until then another thread's store, and their own, races.

        They are recorded again, since what was recorded at their issue may have been compared.
        """
        accessed = self.stores.keys() | self.watched | self.atomics.keys()
        for each in loads:
            for buffer, first in each.stores.items():
                flight = Flight(epoch, first, len(self.stores.get(buffer, ())))
                load = replace(each.load, flight=flight)
                if load.value is None and buffer in accessed and self.undetermined is not None:
                    load = self._with_initial(load)
                if buffer in accessed:
                    self.loads.setdefault(buffer, []).extend(load.accesses(self.undetermined is not None))
                else:
                    self._keep(load, (buffer,))

    def _with_initial(self, load: Load) -> Load:
        """Return a load whose value is not kept, with the initial content that it is."""
        where, reached = load.address.astype(np.uint64, copy=False), self._buffers(load.address, load.mask)
        with self.following_pointers():
            return replace(load, value=self.initial(where, load.bits, load.mask, reached, load.line))

    @contextmanager
    def following_pointers(self) -> Iterator[None]:
        """What is loaded until the end may be used as an address, so that given contents may hold a pointer there."""
        outer, self.follows_pointers = self.follows_pointers, True
        try:
            yield
        finally:
            self.follows_pointers = outer

    def _keep(self, load: Load, buffers: Iterable[int]) -> None:
        """Keep a load of buffers that nothing has stored to, unless these loads take too much memory."""
        self._bytes_kept += load.bytes()
        if self._bytes_kept > MAXIMUM_BYTES_KEPT:
            self.kept.clear()
            return
        for buffer in buffers:
            self.kept.setdefault(buffer, []).append(load)

    def record_kept_loads(self, buffers: Iterable[int]) -> bool:
        """Record the kept loads of buffers, as if the buffers had been watched.  Return whether all were kept."""
        if self._bytes_kept > MAXIMUM_BYTES_KEPT:
            return False
        for buffer in buffers:
            for each in self.kept.pop(buffer, ()):
                load = each
                if load.value is None and self.undetermined is not None:
                    load = self._with_initial(load)
                self.loads.setdefault(buffer, []).extend(load.accesses(self.undetermined is not None))
        return True

    def forward(
        self, value: Value, stores: StoredRows, load: Access, active: Array
    ) -> tuple[Value, Sequence[LoadRaces]]:
        """Return the loaded value with earlier stores applied, and the races of the load; see `forward_stores`."""
        return forward_stores(value, stores, load, active, self.domain.recorder)

    def _beyond(self, address: Array, bits: int) -> Array:
        """Return which accesses leave a buffer whose size is stated."""
        found: Array = np.zeros(address.shape, dtype=bool)
        numbers = self.buffer_of(address)
        for number, size in self.sizes.items():
            start = np.uint64(number << POINTER_SHIFT)
            inside = (address >= start) & (address + np.uint64(bits // 8) <= start + np.uint64(size))
            found |= (numbers == number) & ~inside
        return found

    def _lanes_beyond(self, address: Array, bits: int, mask: Array | None) -> Array | None:
        """Return which active lanes load beyond the elements of a buffer, None if none does."""
        beyond = self._beyond(address, bits)
        if mask is not None:
            beyond = beyond & mask
        return beyond if beyond.any() else None

    def _undetermined_beyond(self, value: Value, beyond: Array, bits: int, line: int) -> Value:
        """Return what is loaded, undetermined in the lanes that load beyond the elements of a buffer."""
        if self.undetermined is None:
            raise Unsupported(BEYOND, line)
        if not self.undetermined.note(Cause(Kind.UNDEFINED, BEYOND, line)):
            return value
        return undetermined_where(beyond, value, self.domain.recorder)

    def _count_poll(self, line: int, address: Array) -> None:
        """A read by which threads may wait is executed.  Raises Undetermined if nothing else happens any more."""
        places = address.tobytes()
        if self._last_polls.get(line) != places:
            self._last_polls[line], self._polled = places, 0
        self._polled += 1
        if self._polled > MAXIMUM_POLLS:
            cause = Cause(Kind.ARRIVAL, WAITS, line)
            raise Undetermined("threads wait for memory that others write after them in this order", line, (cause,))

    def note_race(self, cause: Cause) -> bool:
        """Record a race.  Return whether it leaves a value undetermined.  Raises Race where a race ends the run."""
        if self.undetermined is None:
            raise race(cause.kind, cause.reason, cause.line, cause.other)
        return self.undetermined.note(by_arrival(cause, self.undetermined.updates))

    def old_value(self, bits: int, shape: tuple[int, int], line: int) -> Value:
        """Return what an atomic operation returns: undetermined unless the operations on its element are ordered."""
        known = self._old_values.pop(line, [])
        if len(known) == 1 and width(known[0]) == bits:
            return known[0]
        found = undetermined(bits, shape, self.domain.recorder)
        if self.undetermined is None or self.undetermined.note(Cause(Kind.ARRIVAL, OLD_VALUE, line)):
            return found
        return L.without_flags(as_symbolic_vector(found), L.NONDETERMINISTIC)

    def initial(self, address: Array, bits: int, mask: Array | None, buffers: Iterable[int], line: int) -> Value:
        """Return the content before the launch at each active lane's address, which lies in one of `buffers`.

        Raises Unsupported beyond the given contents of a buffer, and for a pointer that the reader does not follow.
        """
        known = self.given.buffers.intersection(buffers)
        if not known:
            return self.domain.load(address, bits)
        active = np.ones((1, 1), dtype=bool) if mask is None else mask
        # A term of a number that could be taken for an address is that of an element whose content is not given.
        like = self.given.where_like_addresses(address, bits, active) if self.domain.name == "terms" else None
        numbers: Value = self.given.read(
            address, bits, active, line, checked=like is None, follows_pointers=self.follows_pointers
        )
        if like is not None:
            numbers = blend_values(like[0], self.domain.load(address, bits), numbers)
            self.like_address = self.like_address or (like[1], line)
        if known.issuperset(buffers):
            return numbers
        inside = np.isin(self.buffer_of(address), list(known))
        return blend_values(inside, numbers, self.domain.load(address, bits))

    def stores_near(self, buffer: int, load: Access) -> StoredRows | None:
        """Return the stored elements of a buffer that decide what a load returns, None if there are none."""
        stores = self.stores.get(buffer)
        if not stores:
            return None
        pages = self.pages.get(buffer)
        if pages is None:
            pages = self.pages[buffer] = StorePages(between_blocks=self.orders_blocks)
        pages.update(stores)
        return pages.near(load)

    def _buffers(self, address: Array, mask: Array | None) -> set[int]:
        address = active_values(address, mask)
        return set(_distinct(self.buffer_of(address))) if address.size else set()

    def buffer_of(self, address: Array) -> Array:
        """Return the number of the buffer at each address."""
        return buffers_at(address)

    def gather(
        self, address: Value, bits: int, mask: Array | None, line: int, buffers: Iterable[int] | None = None
    ) -> Value:
        """Return the initial content at addresses that depend on data, in one of `buffers` (None: in any).

        No store of the launch may reach these addresses.  Raises Unsupported.
        """
        if buffers is None and (self.stores or self.atomics):
            raise DataDependent("memory is read at a computed address after the kernel has stored", line, (address,))
        for buffer in buffers or (ANY_BUFFER,):
            self.gathered.setdefault(buffer, line)
        return self._with_given(self.domain.gather(address, bits, mask), address, bits, mask, line)

    def _with_given(self, value: Value, address: Value, bits: int, mask: Array | None, line: int) -> Value:
        """Return what a gather reads, with numbers in the lanes whose address in given contents is known."""
        if not self.given.buffers:
            return value
        where = as_symbolic_vector(address)
        known = np.asarray(L.constant_mask(where)) & np.isin(self.buffer_of(where.words[0]), list(self.given.buffers))
        if not known.any():
            return value
        active = known if mask is None else known & mask
        return blend_values(known, self.given.read(where.words[0], bits, active, line), value)

    def check_gathers(self) -> None:
        """Raise Unsupported if an access at a computed address may conflict with another access of the launch."""
        written = self.stores.keys() | self.atomics.keys()
        for buffer, line in self.gathered.items():
            if buffer in written or (buffer == ANY_BUFFER and written):
                raise DataDependent("memory that the launch writes is read at a computed address", line)
        read = self.loaded_buffers | self.gathered.keys()
        for each in self.scattered:
            conflicts = bool(read) if each.buffers is None or ANY_BUFFER in read else not each.buffers.isdisjoint(read)
            if conflicts:
                raise Unsupported(
                    "atomic operations at computed addresses may conflict with loads of the launch", each.line
                )

    def in_own_launch(self, address: Array) -> Array:
        """Return the addresses moved to each block's own launch, of several that run together: there is only one."""
        return address

    def scatter(self, machine: object, address: Value, value: Value, line: int, operation: str = "store") -> None:
        """Store at addresses that depend on data.

        Raises Unsupported here; the launch-parametric analysis overrides it.
        """
        raise ComputedStore(line, address)

    def copied(
        self,
        machine: object,
        address: Value,
        bits: int,
        count: Value | None,
        mask: Array | None,
        line: int,
        buffers: Iterable[int] | None = None,
    ) -> Value:
        """Return what an asynchronous copy reads at an address that depends on data; `buffers` as in `gather`.

        The copy reads `count` bytes, all or none, and fills `bits` bits with zeros if it reads none.  Raises
        Unsupported.
        """
        whole = None if count is None else self.reads_all(count, bits // 8, mask, line)
        parts: list[Value] = []
        for low in range(0, bits, 32):
            offset = np.full((1, 1), low // 8, dtype=np.uint64)
            place = self.domain.integer(operation("add.b64"), [address, offset]) if low else address
            part = self.gather(place, 32, mask, line, buffers)
            parts.append(part if whole is None else self.domain.select(whole, part, np.zeros((1, 1), dtype=np.uint32)))
        return concat(parts)

    def reads_all(self, count: Value, size: int, mask: Array | None, line: int) -> Value:
        """Return the predicate that a copy of `count` bytes reads all its `size` bytes.

        Raises Unsupported unless it otherwise reads none in the active lanes.  Where the count is not determined, the
        predicate is not either.
        """
        equal = operation("eq.b32")
        whole, none = (
            self.domain.integer(equal, [count, np.full((1, 1), each, dtype=np.uint32)]) for each in (size, 0)
        )
        one, other = as_symbolic_vector(whole), as_symbolic_vector(none)
        known = np.asarray(L.constant_mask(one)) & np.asarray(L.constant_mask(other))
        flags = np.asarray(one.flags) ^ np.asarray(other.flags)
        negated = (one.words == other.words).all(axis=0) & ((flags & L.NEGATED) != 0)
        decided = np.where(known, one.words[0] != other.words[0], negated) | np.asarray(L.has_flag(one, L.STICKY))
        if not (decided if mask is None else decided | ~mask).all():
            raise DataDependent("an asynchronous copy's size depends on data", line, (count,))
        return whole

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """Store the value at each active lane's address."""
        self._polled = 0
        if isinstance(value, PackedVector) and value.whole is not None:
            inside = value.whole if mask is None else value.whole & mask
            rest = ~value.whole if mask is None else ~value.whole & mask
            self.store(address, as_symbolic_vector(value), inside, thread, epoch, line)
            self.store(address, PackedVector(value.parts), rest, thread, epoch, line)
            return
        parts = stored_elements(self._with_widened_elements(value, address, mask))
        active = active_lanes(mask, address, thread, *(lanes.words[0] for _, lanes in parts))
        where = active_values(address, active).astype(np.uint64, copy=False)
        if not where.size:
            return
        who, epochs = self._active_threads(thread, active), epochs_of_lanes(epoch, active)
        self.stored += where.size * len(parts)
        if self.most_stored is not None and self.stored > self.most_stored:
            raise StoreLimitExceeded(f"the launch stores more than {self.most_stored} elements", line)
        if self.stored > MAXIMUM_STORED:
            reason = f"the launch stores more than {MAXIMUM_STORED} elements, which is more than is followed one by one"
            raise Unsupported(f"{reason}; a launch of fewer blocks may be analysed", line)
        numbers = self.buffer_of(where)
        buffers = _distinct(numbers)
        if self.sizes and self._beyond(where, width(value)).any():
            cause = Cause(Kind.UNDEFINED, BEYOND_STORE, line)
            raise Nondeterministic(BEYOND_STORE, line, (cause,))
        if not self.conditional.buffers.isdisjoint(buffers):
            access = Access(where, who, epochs, None, width(value), line)
            if self.conditional.touches(access, buffers) is not None:
                raise Nondeterministic(AFTER_CONDITION, line, (Cause(Kind.GLOBAL, AFTER_CONDITION, line),))
        for offset, lanes in parts:
            flat = L.chosen_lanes(lanes, active)
            if len(buffers) == 1:
                access = Access(where + np.uint64(offset), who, epochs, flat, lanes.bits, line)
                self.stores.setdefault(buffers[0], []).append(access)
                continue
            for buffer in buffers:
                chosen = numbers == buffer
                part = L.chosen_lanes(flat, chosen[None])
                own = epochs_at(epochs, chosen)
                access = Access(where[chosen] + np.uint64(offset), who[chosen], own, part, lanes.bits, line)
                self.stores.setdefault(buffer, []).append(access)

    def store_under_condition(
        self,
        address: Array,
        value: Value,
        condition: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> bool:
        """Store in the active lanes where a condition on data holds, if it is joined with those of other threads.

        Return whether it is: several lanes store one content to an element, or such a store is kept already.
        """
        vector, holds = as_symbolic_vector(value), as_symbolic_vector(condition)
        active = active_lanes(mask, address, thread, vector.words[0], holds.words[0])
        where, who = active_values(address, active).astype(np.uint64, copy=False), active_values(thread, active)
        buffers = _distinct(self.buffer_of(where)) if where.size else []
        if not self.joins_conditions or len(buffers) != 1 or self.conditional.is_full(where.size):
            return False
        epochs = epochs_of_lanes(epoch, active)
        access = Access(where, who, epochs, L.chosen_lanes(vector, active), vector.bits, line)
        if not self.conditional.joins(access, buffers[0]):
            return False
        others = (*self.stores.get(buffers[0], ()), *(each for _, each in self.atomics.get(buffers[0], ())))
        if any(overlapping(access, each).any() for each in others):
            return False
        if self.sizes and self._beyond(where, vector.bits).any():
            raise Nondeterministic(BEYOND_STORE, line, (Cause(Kind.UNDEFINED, BEYOND_STORE, line),))
        self._polled = 0
        self.conditional.keep(access, L.chosen_lanes(holds, active), buffers[0])
        return True

    def settle_conditions(self) -> None:
        """The launch has ended: record what the kept conditional stores leave.  Raises Unsupported."""
        kept, self.conditional = self.conditional, ConditionalStores()
        found = kept.settled(
            self.domain, lambda address, bits, buffer, line: self.initial(address, bits, None, (buffer,), line)
        )
        for buffer, events in found.items():
            self.stores.setdefault(buffer, []).extend(events)

    def _active_threads(self, thread: Array, active: Array) -> Array:
        """Return the numbers of the active threads; stores by the same threads share them."""
        known = self._storing
        if known is None or known[0] is not thread or not np.array_equal(known[1], active):
            known = self._storing = (thread, active, active_values(thread, active))
        return known[2]

    def _with_widened_elements(self, value: Value, address: Array, mask: Array | None) -> Value:
        """Return the value with each bf16 that was widened to fp32 as one part, if all are elements of fp32 buffers.

        NaNs of fp32 count as one value, but their halves do not.
        """
        if not isinstance(value, PackedVector) or not self.formats:
            return value
        forms = {None if form is None else form.name for form in map(self.formats.get, self._buffers(address, mask))}
        return value if forms != {"fp32"} else _with_joined_halves(value)

    def buffer_of_pointer(self, pointer: Value) -> int | None:
        """Return the buffer to which a parameter points, None for a parameter that is no pointer."""
        if not isinstance(pointer, np.ndarray) or pointer.size != 1:
            return None
        return buffer_at(int(pointer.flat[0])) or None

    def contribute(
        self,
        operation: Operation,
        parts: Sequence[Value],
        mask: Array | None,
        shape: tuple[int, int],
        line: int,
        buffers: Iterable[int] | None = None,
    ) -> None:
        """Record contributions of an atomic whose address, value or condition depends on data, in one of `buffers`.

        If the operation is exact in any order, the result is a function of the multiset of contributions.  Raises
        Nondeterministic if it is not, and Unsupported for a mix of operations.
        """
        if not is_order_independent(operation):
            reason = "a floating-point sum at computed addresses may have several contributors"
            raise Nondeterministic(reason, line, (Cause(Kind.SUM, reason, line),))
        if any(other.name != operation.name for other in self.scattered):
            raise DataDependent("different atomic operations at computed addresses", line)
        contribution = term(
            64,
            "contribution " + operation.name,
            [as_symbolic_vector(part) for part in parts],
            exact=True,
            recorder=self.domain.recorder,
        )
        chosen = L.chosen_lanes(contribution, whole_mask(mask, shape))
        words = chosen.words[:, 0].sum(axis=1, dtype=np.uint64)
        if L.flags_of_some_lane(chosen) & L.STICKY:
            causes = () if self.undetermined is None else tuple(self.undetermined.causes)
            raise Undetermined("a contribution depends on a value that is not determined", line, causes)
        self.scattered.append(
            ScatteredAtomics(operation.name, words, line, None if buffers is None else frozenset(buffers))
        )

    def limit_scope(
        self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> None:
        """The next atomic operation of each active lane is atomic only with those of threads of its block.

        Raises Unsupported.
        """
        active = active_lanes(mask, address, thread)
        where, who = active_values(address, active).astype(np.uint64, copy=False), active_values(thread, active)
        for buffer in self._buffers(address, mask):
            limited = Access(where, who, epochs_of_lanes(epoch, active), None, bits, line)
            self.of_blocks.setdefault(buffer, []).append(limited)

    def pass_without(self, thread: Array) -> bool:
        """Others pass a barrier of the block without these threads, which have ended.

        Their loads are taken to read at any later time.  Return whether they may have stored: then the barrier orders
        nothing.
        """
        atomics = (event for found in self.atomics.values() for _, event in found)
        stored = any(np.isin(event.thread, thread).any() for event in chain(*self.stores.values(), atomics))
        if stored or self.conditional.count or self.scattered or self._bytes_kept > MAXIMUM_BYTES_KEPT:
            return True
        fresh = np.setdiff1d(thread, self._absent)
        if fresh.size:
            self._absent = np.union1d(self._absent, fresh)
            for buffer, kept in self.kept.items():
                self.kept[buffer] = [*kept, *(each for load in kept for each in load.of_ended(fresh))]
            for buffer, loads in self.loads.items():
                mine = [each for each in loads if np.isin(each.thread, fresh).any()]
                self.loads[buffer] = [*loads, *(replace(each, flight=NEVER_COMPLETE) for each in mine)]
        return False

    def change_by(self, operation: Operation, value: Value) -> Change:
        """Return the change of an element by an atomic operation with `value`."""
        act = self.domain.floating if operation.is_float else self.domain.integer
        return lambda before: act(operation, [before, value])

    def atomic(
        self,
        operation: Operation,
        address: Array,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> None:
        """Combine `value` with the content of each active lane's address by an operation."""
        mask = self._without_lanes_together(operation, address, value, mask, thread, epoch, line)
        mask = self._without_lanes_in_turn(operation, address, value, mask, thread, epoch, line)
        before = {buffer: len(events) for buffer, events in self.stores.items()}
        self.store(address, value, mask, thread, epoch, line)
        for buffer in list(self.stores):
            events = self.stores[buffer]
            fresh = events[before.get(buffer, 0) :]
            if fresh:
                self.atomics.setdefault(buffer, []).extend((operation.name, event) for event in fresh)
                del events[before.get(buffer, 0) :]
                if not events:
                    del self.stores[buffer]

    def _without_lanes_together(
        self,
        operation: Operation,
        address: Array,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> Array | None:
        """Execute the lanes whose operations commute as one load and store of each element by a further thread.

        Return the mask of the others.
        """
        if self.undetermined is None or not self.undetermined.together.size:
            return mask
        vector = as_symbolic_vector(value)
        active = active_lanes(mask, address, thread, vector.words[0])
        lanes = active & np.isin(address, self.undetermined.together)
        if not lanes.any():
            return mask
        where = active_values(address, lanes).astype(np.uint64, copy=False)
        if any(name != operation.name and np.isin(where, others).any() for name, others in self._combined):
            raise Unsupported("different atomic operations update one element", line)
        self._combined.append((operation.name, where))
        order = np.argsort(where, kind="stable")
        _, start, count = np.unique(where[order], return_index=True, return_counts=True)
        total = combined(self.domain, operation, None, lanes_in_order(vector, lanes, order), start, count)
        first = np.zeros(lanes.shape, dtype=bool)
        block, lane = (each[order][start] for each in np.nonzero(lanes))
        first[block, lane] = True
        spread = placed(as_symbolic_vector(total), first, block, lane)
        other = further_thread(thread)
        old = self.load(address, vector.bits, first, other, epoch, line)
        self.store(address, self.change_by(operation, spread)(old), first, other, epoch, line)
        self._old_values.setdefault(line, []).append(_NO_VALUE)
        return active & ~lanes

    def _without_lanes_in_turn(
        self,
        operation: Operation,
        address: Array,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> Array | None:
        """Execute the lanes whose operations are ordered as loads and stores.  Return the mask of the others."""
        if self.undetermined is None or not self.undetermined.in_turn.size:
            return mask
        active = active_lanes(mask, address, thread)
        lanes = active & np.isin(address, self.undetermined.in_turn)
        if not lanes.any():
            return mask
        old = self.update(self.change_by(operation, value), address, width(value), lanes, thread, epoch, line)
        if not (active & ~lanes).any():
            self._old_values.setdefault(line, []).append(old)
        return active & ~lanes

    def update(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> Value:
        """Change the content of each active lane's element in one atomic step.  Return the content before it.

        It is recorded as a load and a store.  Every order of atomic operations is an order of such loads and stores,
        so a value that is the same in all orders of these is determined.  Raises Unsupported.
        """
        if self.undetermined is not None:
            self.undetermined.updates.add(line)
        old = self.load(address, bits, mask, thread, epoch, line)
        new = change(old)
        contended = contended_lanes(self.in_own_launch(address), old, new, mask, thread)
        if contended is None:
            polled = self._polled
            self.store(address, new, mask, thread, epoch, line)
            if _are_equal_numbers(old, new, mask):
                self._polled = polled
                self._count_poll(line, address)
            return old
        where = np.broadcast_to(self.in_own_launch(address), contended.shape)
        who = np.broadcast_to(thread, contended.shape)
        if self.note_race(Cause(Kind.ARRIVAL, OLD_VALUE, line, line)):
            old = undetermined_where(contended, old, self.domain.recorder)
            new = change(old)
            differing = differing_lanes(where, new, contended)
            new = undetermined_where(differing, new, self.domain.recorder)
        active = active_lanes(mask, contended)
        self.store(address, new, active & ~contended | two_of_each_block(where, who, contended), thread, epoch, line)
        return old


def _are_equal_numbers(left: Value, right: Value, mask: Array | None) -> bool:
    """Return whether both values are known to be the same in all active lanes."""
    one, other = as_symbolic_vector(left), as_symbolic_vector(right)
    same = np.asarray(L.constant_mask(one)) & np.asarray(L.constant_mask(other)) & (one.words[0] == other.words[0])
    return bool((same if mask is None else same | ~mask).all())
