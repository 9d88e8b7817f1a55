"""Global memory of a run in which what a block reads of flags decides which way it takes.

Some accesses of one thread synchronise: they read or change a cell by an atomic operation, an acquiring load or a
releasing store.  A read of a cell may find each content that is not known to be replaced, so a block has several ways.
The blocks are executed one after another, and each of them once for each of its ways.  A content after which the block
returns to the read with no other effect is a wait; what one such round changes in registers and in shared memory is
undetermined in the next (see `turn_memory`).

All ways of a block must leave the same elements and the same contents of cells in one order, so that later blocks need
not know which way it took.  They know only what every way knows.  An element belongs to one block: no other block may
store to it, and no block that is executed before may read it in any of its ways.

So by induction over the blocks in this order, every read of a launch finds what some way has found: the elements and
the cells that a block reads are written by blocks before it only, and these leave the same in every order of blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change, GlobalMemory
from bitwise_core.execution.memory.outputs import outputs
from bitwise_core.execution.memory.store_forwarding import Access
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.races.late_races import contest_late_races
from bitwise_core.execution.synchronised_blocks.block_knowledge import AccessesOfBlock
from bitwise_core.execution.synchronised_blocks.cell_memory import WithoutComputedAddresses
from bitwise_core.execution.synchronised_blocks.flag_memory import Flag, FlagAccess, FlagMemory, FlagWrite
from bitwise_core.execution.synchronised_blocks.machine_state import MachineState, digest_of
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisingCode
from bitwise_core.execution.synchronised_blocks.waits import Wait
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import exact_hash

MAXIMUM_WAYS = 1024
"""How many ways of all blocks together are executed at most."""

MAXIMUM_READS = 512
"""How often one way reads cells and goes on at most."""


_Write = FlagWrite[Value]


@dataclass(slots=True, eq=False)
class _Flag(Flag[Value]):
    readers: set[int] = field(default_factory=set)
    """The blocks that read a content in some way."""


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A read of a cell that the block may return to: its number among the reads of its way.

    `wait` has the places of the contents that are still to be found, that of the last one found first.
    """

    number: int
    line: int
    place: int
    thread: int
    wait: Wait


class _KnownState(Exception):
    """The block is in a state from which another way has gone on."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a run has recorded of its accesses: the lists of each buffer, and other fields."""

    lists: Mapping[str, Mapping[int, Sequence[Any]]]
    others: Mapping[str, Any]

    @staticmethod
    def of(memory: GlobalMemory) -> _Recorded:
        """Return what has been recorded so far."""
        lists = {name: {buffer: tuple(events) for buffer, events in getattr(memory, name).items()} for name in _LISTS}
        return _Recorded(lists, {name: getattr(memory, name) for name in _NUMBERS})

    def restore(self, memory: GlobalMemory) -> None:
        """Forget what was recorded since."""
        for name, events in self.lists.items():
            setattr(memory, name, {buffer: list(each) for buffer, each in events.items()})
        for name, number in self.others.items():
            setattr(memory, name, number)
        memory.pages = {}

    def fresh(self, name: str, events: Mapping[int, Sequence[Access]], buffer: int) -> list[Access]:
        """Return the accesses of a list of a buffer that were recorded since."""
        return list(events.get(buffer, ())[len(self.lists[name].get(buffer, ())) :])


_LISTS = ("stores", "loads", "kept")
_NUMBERS = ("stored", "_bytes_kept", "_absent")
"""The fields of `GlobalMemory` that accesses to elements change; those of atomic operations are not among them."""


@dataclass(slots=True, eq=False)
class _Way:
    """What a way leaves: a digest of its elements and of its writes of cells, the writes, and the stored bytes.

    `recorded` and `knowledge` are the state of the memory after it.
    """

    digest: bytes
    writes: list[tuple[int, _Write]]
    stored: Array
    recorded: _Recorded
    knowledge: AccessesOfBlock | None


class WayMemory(WithoutComputedAddresses, FlagMemory[_Flag]):
    """Global memory in which accesses of the given lines synchronise, if one thread executes them.

    `live_at` returns for an instruction which registers may be read from it on.
    """

    def __init__(
        self,
        domain: Domain,
        given: GivenContents,
        code: SynchronisingCode,
        cells: Mapping[int, int] | None,
        live_at: Callable[[int], Callable[[str], bool]],
    ) -> None:
        super().__init__(domain, given, code, cells)
        self.live_at = live_at
        self.ways = 0
        self._read_bytes: Array = np.zeros(0, dtype=np.uint64)
        self._stored_bytes: Array = np.zeros(0, dtype=np.uint64)
        self._skipped: list[tuple[int, ...]] = []
        """For each read of the current way the contents with which other ways have gone on."""
        self._other_ways: list[list[tuple[int, ...]]] = []
        self._known_states: set[bytes] = set()
        self._reads: list[tuple[int, ...]] = []
        self._waiting: _Read | None = None
        self._block: int | None = None
        """The block that is executed, once it has accessed a cell."""
        self._seen: dict[int, int] = {}
        """The latest content of each cell that the block has read or written."""
        self._writes: list[tuple[int, _Write]] = []
        self._last_access = -1
        """The epoch of the last access of the block to global memory."""
        self._loads_without_order = False
        """Whether the block has loaded in this way what no barrier orders."""

    def store_cells(self) -> None:
        """See `FlagMemory`."""
        for place, cell in self._cells.items():
            last = cell.writes[-1]
            if last.block >= 0:
                address = np.array([place], dtype=np.uint64)
                value = as_symbolic_vector(last.content)
                access = Access(address, np.array([last.thread]), last.epoch, value, cell.bits, last.line)
                self.stores.setdefault(int(self.buffer_of(address)[0]), []).append(access)

    def run_blocks(self, executions: Sequence[Callable[[], None]]) -> None:
        """Execute each block once for each of its ways.  Raises Unsupported if these leave different contents."""
        for each in executions:
            self._run_block(each)

    def _run_block(self, execute: Callable[[], None]) -> None:
        before = _Recorded.of(self)
        self._other_ways, self._known_states, self._block = [[]], set(), None
        first: _Way | None = None
        read = [self._read_bytes]
        while self._other_ways:
            self.ways += 1
            if self.ways > MAXIMUM_WAYS:
                raise Unsupported("the blocks of the launch have more ways than are followed")
            self._begin_way(self._other_ways.pop(), before)
            is_new = True
            try:
                execute()
                self._leave_read()
            except _KnownState:
                is_new = False
            self._check_loads()
            read.append(_bytes_of(self.loads, before, "loads"))
            if not is_new:
                continue
            way = self._finished_way(before)
            if first is None:
                first = way
                continue
            if way.digest != first.digest:
                raise Unsupported("what a block leaves depends on what it reads of a flag")
            first.writes = [_known_to_both(*each) for each in zip(first.writes, way.writes, strict=True)]
        assert first is not None
        self._begin_way([], before)
        self._end_block(first)
        self._read_bytes = np.unique(np.concatenate(read))

    def _end_block(self, way: _Way) -> None:
        """Go on from the state after a way, which stands for all."""
        way.recorded.restore(self)
        if self._block is not None and way.knowledge is not None:
            self._knowledge.put(self._block, way.knowledge)
        for place, write in way.writes:
            self._cells[place].writes.append(write)
        self._writes = []
        self._stored_bytes = np.union1d(self._stored_bytes, way.stored)

    def _begin_way(self, skipped: list[tuple[int, ...]], before: _Recorded) -> None:
        before.restore(self)
        for place, _ in self._writes:
            self._cells[place].writes.pop()
        if self._block is not None:
            self._knowledge.take(self._block)
        self._skipped, self._reads, self._writes = skipped, [], []
        self._waiting, self._seen, self._last_access, self._loads_without_order = None, {}, -1, False

    def _check_loads(self) -> None:
        """Contest the loads of this way that race with stores.  Raises Unsupported if not all loads were kept."""
        if not self.record_kept_loads(list(self.kept)):
            raise Unsupported("a launch with flags loads too much")
        if self.undetermined is not None:
            contest_late_races(self, self.undetermined)

    def _finished_way(self, before: _Recorded) -> _Way:
        """Return what the way leaves.  Raises Unsupported where it is not determined, or not the block's own."""
        if self.atomics or self.scattered or self.declared:
            raise Unsupported("an atomic operation on an element in a launch with flags")
        stored = _bytes_of(self.stores, before, "stores")
        if np.isin(stored, self._stored_bytes).any() or np.isin(stored, self._read_bytes).any():
            raise Unsupported("several blocks access an element that one of them stores")
        digest = hashlib.sha256()
        for buffer, output in sorted(outputs(self._memory_of_way(before)).items()):
            digest.update(buffer.to_bytes(8, "little"))
            for column in (output.address, output.size, output.words, output.flags & np.uint32(L.STICKY)):
                digest.update(np.ascontiguousarray(column).tobytes())
            self._add_order(digest, buffer, before)
        for place, write in self._writes:
            digest.update(repr((place, write.released is None)).encode())
            digest.update(_hash_of(write.content))
        knowledge = None if self._block is None else self._knowledge.take(self._block)
        return _Way(digest.digest(), list(self._writes), stored, _Recorded.of(self), knowledge)

    def _memory_of_way(self, before: _Recorded) -> GlobalMemory:
        """Return memory with the stores of this way only, whose bits count, also those of NaNs."""
        found = GlobalMemory(self.domain)
        found.program = self.program
        found.stores = {
            buffer: events for buffer in self.stores if (events := before.fresh("stores", self.stores, buffer))
        }
        return found

    def _add_order(self, digest: Any, buffer: int, before: _Recorded) -> None:
        """Add to a digest how many of the block's writes of cells each of its stores to a buffer may follow."""
        epochs = np.array([write.epoch for _, write in self._writes], dtype=np.int64)
        places: dict[int, int] = {}
        for each in before.fresh("stores", self.stores, buffer):
            count = int((epochs <= each.epoch).sum())
            for byte in range(each.bits // 8):
                for address in (each.address + np.uint64(byte)).tolist():
                    if places.setdefault(address, count) != count:
                        raise Unsupported("an element is stored before and after the change of a flag", each.line)
        digest.update(repr(sorted(places.items())).encode())

    def _note_other_access(self, epoch: Epoch, line: int, *, stores: bool) -> None:
        """See `CellMemory`."""
        self._leave_read()
        self._last_access = epoch_of_all(epoch)
        self._loads_without_order |= not stores and line in self.unordered

    def _access(self, flag: _Flag, change: Change, access: FlagAccess) -> Value:
        """See `FlagMemory`."""
        self._block = access.block
        column = np.flatnonzero(access.lane.any(axis=0))[:1][None]

        def changed(content: Value) -> Value:
            return take_threads(change(content), column)

        latest = flag.writes[-1].content
        if not _is_same(changed(latest), latest):
            self._leave_read()
            return self._write(flag, changed, access)
        return self._find(flag, changed, access)

    def _write(self, flag: _Flag, changed: Callable[[Value], Value], access: FlagAccess) -> Value:
        """A block changes a flag of which it knows all contents.  Return the content before."""
        block, who, epoch, line = access.block, access.thread, access.epoch, access.line
        knows, kind = self._knowledge.at(block, epoch, who), self.lines[line]
        if not flag.knows_all(block, knows) or flag.readers - {block}:
            raise Unsupported("the order of the changes of a flag is open", line)
        last = flag.writes[-1]
        if kind.acquires and last.released is not None and last.block != block:
            knows = np.maximum(knows, last.released)
            self._knowledge.acquire(block, who, epoch, knows)
        number = self._knowledge.count(block)
        released = self._knowledge.release(block, number, epoch, knows) if kind.releases else None
        write = FlagWrite(changed(last.content), block, number, who, epoch, line, released)
        flag.writes.append(write)
        self._writes.append((access.place, write))
        self._seen[access.place], self._last_access = len(flag.writes) - 1, epoch
        return last.content

    def _find(self, flag: _Flag, changed: Callable[[Value], Value], access: FlagAccess) -> Value:
        """A block reads a flag.  Return the content that it finds in this way."""
        machine, block, line, place = access.machine, access.block, access.line, access.place
        waiting = self._waiting
        if waiting is not None and (waiting.line, waiting.place, waiting.thread) == (line, place, access.thread):
            self._knowledge.forget_last_acquired(block)
            waiting.wait.read_again(machine, "a flag", line)
            if not waiting.wait.contents:
                raise Unsupported("a block waits for a flag that no block before it sets", line)
        else:
            self._leave_read()
            number = len(self._reads)
            if number >= MAXIMUM_READS:
                raise Unsupported("a block reads more flags than are followed", line)
            if number >= len(self._skipped):
                self._note_state(access)
            skipped = self._skipped[number] if number < len(self._skipped) else ()
            known = flag.last_known(block, self._knowledge.at(block, access.epoch, access.thread))
            first = max(known, self._seen.get(place, 0))
            contents = [index for index in range(first, len(flag.writes)) if index not in skipped]
            waiting = _Read(number, line, place, access.thread, Wait(contents, MachineState.of(machine)))
            self._waiting = waiting
            self._reads.append(skipped)
            flag.readers.add(block)
        index = waiting.wait.contents[0]
        found = flag.writes[index]
        if not _is_same(changed(found.content), found.content):
            raise Unsupported("the order of the changes of a flag is open", line)
        knows = self._knowledge.at(block, access.epoch, access.thread)
        if self.lines[line].acquires and found.released is not None and found.block != block:
            knows = np.maximum(knows, found.released)
        self._knowledge.acquire(block, access.thread, access.epoch, knows)
        self._seen[place], self._last_access = index, access.epoch
        return found.content

    def _leave_read(self) -> None:
        """The block goes on with the content that it has found.  Note the ways in which it finds a later one."""
        read, self._waiting = self._waiting, None
        if read is not None and len(read.wait.contents) > 1 and read.number >= len(self._skipped) - 1:
            before = self._reads[: read.number]
            self._other_ways.append([*before, (*self._reads[read.number], read.wait.contents[0])])

    def _note_state(self, access: FlagAccess) -> None:
        """Note the state before a read.  Raises _KnownState if another way has gone on from it.

        A barrier must come after all accesses to memory before it: then what follows is ordered after them in all ways.
        """
        machine, block, epoch = access.machine, access.block, access.epoch
        if self._last_access >= epoch:
            return
        if machine.group is not None or machine.condition is not None or machine.path is not None:
            return
        if self._loads_without_order or machine.asynchronous_reads.some():
            return
        if any(not isinstance(each, int | str | frozenset | set) for each in machine.extra.values()):
            return
        found = hashlib.sha256(digest_of(machine, self.live_at(machine.pc)))
        histories = [each.state() for each in machine.races.all()]
        known = self._knowledge.at(block, epoch).tobytes()
        extra = sorted((name, repr(each)) for name, each in machine.extra.items())
        read = (machine.pc, access.line, access.place, access.thread)
        found.update(repr((*read, histories, known, extra, sorted(self._seen.items()))).encode())
        found.update(self._digest_of_writes())
        state = found.digest()
        if state in self._known_states:
            raise _KnownState
        self._known_states.add(state)

    def _digest_of_writes(self) -> bytes:
        """Return a digest of all stores and writes of cells so far, of their order, and of what the writes release.

        A way that ends in a known state leaves what the way before it left, which is not compared again.
        """
        found = hashlib.sha256()
        for buffer, events in sorted(self.stores.items()):
            for each in events:
                if each.value is not None and block_of(int(each.thread[0])) == self._block:
                    order = sum(write.epoch <= epoch_of_all(each.epoch) for _, write in self._writes)
                    found.update(repr((buffer, each.bits, each.line, each.chosen, order)).encode())
                    found.update(each.address.tobytes() + each.thread.tobytes())
                    found.update(np.ascontiguousarray(exact_hash(each.value)).tobytes())
                    found.update(np.asarray(each.value.flags).tobytes())
        for place, write in self._writes:
            released = None if write.released is None else write.released.tobytes()
            found.update(repr((place, write.line, write.number, released)).encode() + _hash_of(write.content))
        return found.digest()

    def _new_cell(self, place: int, bits: int, line: int) -> _Flag:
        """See `CellMemory`."""
        content = np.full((1, 1), self._initial_number(place, bits, line), dtype=L.UNSIGNED[bits])
        return _Flag(bits, [FlagWrite(content, -1, 0)])


def _known_to_both(one: tuple[int, _Write], other: tuple[int, _Write]) -> tuple[int, _Write]:
    """Return a write of two ways, which releases what its thread knows in both."""
    place, write = one
    if write.released is None or other[1].released is None:
        return place, replace(write, released=None)
    return place, replace(write, released=np.minimum(write.released, other[1].released))


def _hash_of(value: Value) -> bytes:
    return np.ascontiguousarray(exact_hash(as_symbolic_vector(value))).tobytes()


def _is_same(one: Value, other: Value) -> bool:
    """Return whether two contents are proved to be equal."""
    sticky = L.sticky_flags(as_symbolic_vector(one), as_symbolic_vector(other))
    return not L.any_flag(sticky) and _hash_of(one) == _hash_of(other)


def _bytes_of(events: Mapping[int, Sequence[Access]], before: _Recorded, name: str) -> Array:
    """Return the address of each byte of the accesses of a list that were recorded since, each once."""
    found = [
        (each.address[:, None] + np.arange(each.bits // 8, dtype=np.uint64)).reshape(-1)
        for buffer in events
        for each in before.fresh(name, events, buffer)
    ]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *found]))
