"""Execution of a launch on bit patterns in a chosen order of its blocks, warps and lanes.

Each warp runs until it waits or ends, and then the next one; a load returns the last store so far.  Of several lanes
that store to one address by one instruction, the last one in the order decides: the CUDA C++ Programming Guide leaves
open which lane's store remains.  Where `LOWEST_LANE` holds, it is the lowest lane in every order.  This is
one of the executions that a GPU may choose, also where accesses race.  Two orders that leave different bytes prove that
the launch's result is not determined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.concrete import PreparedLaunch, lines_that_synchronise, machine_for, run_until_valid
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.executor import Executor, LaneGroup
from bitwise_core.execution.memory.bit_memory import BitsMemory, BufferContents, bytes_after
from bitwise_core.execution.memory.given_contents import placed_pointers
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.memory.store_forwarding import Access, LoadRaces, StoredRows, forward_stores
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.races.race_histories import NoRaceDetection
from bitwise_core.execution.simulation import bits_domain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, width
from bitwise_core.numerics import Operation

MAXIMUM_STEPS = 400_000
"""The largest number of steps of a run."""


MAXIMUM_BLOCKS_ALONE = 64
"""Launches of at most this many blocks are run one block after another, others in batches.

Launches whose threads may wait for others are run one block after another in any case.
"""

MAXIMUM_REPETITIONS = 32
"""How often threads read one content where they may wait for others, while nothing else is stored."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of execution: blocks, warps and the lanes of a store by ascending or descending number.

    `together`: blocks, and the warps of a block, run in step instead, as far as their control flow allows.
    """

    descending: bool
    together: bool = False


ORDERS = (Order(descending=False), Order(descending=True), Order(False, together=True), Order(True, together=True))


class OrderedExecutor(Executor):
    """An executor that runs one warp after another; `descending` begins with the last one."""

    descending = False
    separates_registers = False

    def _first_groups(self, pc: int, lanes: Array | None) -> list[LaneGroup]:
        if self.depth:
            return super()._first_groups(pc, lanes)
        warps = np.arange(self.machine.threads) // self.machine.warp
        return [LaneGroup(pc, (warps == each)[None]) for each in np.unique(warps)]

    def _place(self, group: LaneGroup, pc: int) -> tuple[int, ...]:
        return (-self._warp(group) if self.descending else self._warp(group), *super()._place(group, pc))

    def _merge_groups(self, groups: list[LaneGroup]) -> None:
        by_warp: dict[int, list[LaneGroup]] = {}
        for each in groups:
            by_warp.setdefault(self._warp(each), []).append(each)
        for members in by_warp.values():
            super()._merge_groups(members)
        groups[:] = [each for members in by_warp.values() for each in members]

    def _release_barriers(self, groups: list[LaneGroup], alive: Array | None) -> None:
        """See `Executor._release_barriers`; an aligned barrier that all threads pass joins the lanes of every warp."""
        waiting = [each.waiting for each in groups]
        aligned = all(each is not None and each.aligned and each.count is None for each in waiting)
        whole = len({self._warp(each) for each in groups}) == len(groups)
        super()._release_barriers(groups, alive)
        if aligned and whole and self._runs_all_threads() and all(each.waiting is None for each in groups):
            self.machine.parted_lanes = False

    def _warp(self, group: LaneGroup) -> int:
        if group.mask is None:
            return 0
        return int(np.argmax(np.broadcast_to(group.mask.any(axis=0), (self.machine.threads,)))) // self.machine.warp


def _in_reverse(value: Value) -> Value:
    """Return a value of shape (blocks, lanes) with its lanes in reverse."""
    if isinstance(value, PackedVector):
        return concat([_in_reverse(part) for part in value.parts])
    vector = as_symbolic_vector(value)
    flags = vector.flags if isinstance(vector.flags, int) else vector.flags[:, ::-1]
    return SymbolicVector(vector.bits, vector.words[:, :, ::-1], flags)


class OrderedSharedMemory(SharedMemory):
    """Shared memory that holds zeros at the start: its content is not defined, and every run begins with the same.

    Of several lanes that store to one address at once, the last one decides, and the first one if `descending`.
    """

    descending = False

    def store(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> None:
        """See `SharedMemory.store`."""
        if self.descending:
            cells, value = cells[:, ::-1], _in_reverse(value)
            mask, rows = (None if each is None else each[:, ::-1] for each in (mask, rows))
        super().store(cells, value, mask, rows)

    def _reserve(self, size: int) -> None:
        before = self.words.shape[2]
        super()._reserve(size)
        zero = L.constant_flags(np.zeros(1, dtype=np.uint64), 8 * self.granule)
        self.words[:, :, before:] = 0
        self.flags[:, before:] = zero


class OrderedMemory(BitsMemory):
    """Global memory whose content at any time is what has been stored so far; `descending` reverses the lanes too.

    `waiting` are the lines of reads by which threads may wait for others.  Unsupported is raised where such reads find
    one content again and again, since the threads that change it may not run before.  `updated` are the buffers in
    which atomic operations read and change elements (`GlobalMemory.update`).
    """

    descending = False

    def __init__(self, *arguments: object, **keywords: object) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]
        self.waiting: frozenset[int] = frozenset()
        self.updated: set[int] = set()
        self._repeated: dict[tuple[int, bytes, bytes], int] = {}

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """See `GlobalMemory.load`."""
        found = super().load(address, bits, mask, thread, epoch, line)
        if line in self.waiting:
            self._count_repetition(address, as_symbolic_vector(found).words, mask, line)
        return found

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        if line not in self.waiting:
            self._repeated.clear()
        # One element, which a load of its width can read back.
        element: Value = as_symbolic_vector(value)
        if self.descending:
            address, element, thread = address[:, ::-1], _in_reverse(element), thread[:, ::-1]
            mask = None if mask is None else mask[:, ::-1]
        super().store(address, element, mask, thread, epoch, line)

    def _count_repetition(self, address: Array, words: Array, mask: Array | None, line: int) -> None:
        chosen = b"" if mask is None else mask.tobytes()
        key = line, address.tobytes() + chosen, np.where(True if mask is None else mask, words, 0).tobytes()
        count = self._repeated[key] = self._repeated.get(key, 0) + 1
        if count > MAXIMUM_REPETITIONS:
            raise Unsupported("threads wait for memory that no thread writes before them in this order", line)

    def forward(
        self, value: Value, stores: StoredRows, load: Access, active: Array
    ) -> tuple[Value, Sequence[LoadRaces]]:
        """See `GlobalMemory.forward`: the last store so far decides."""
        return forward_stores(value, stores, load, active, in_order=True)

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
        """See `GlobalMemory.atomic`: the lanes act one after another."""
        old = self._in_turns(self.change_by(operation, value), address, width(value), mask, thread, epoch, line)
        self._old_values.setdefault(line, []).append(old)

    def update(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> Value:
        """See `GlobalMemory.update`: the lanes act one after another."""
        self.updated |= self._buffers(self.in_own_launch(address), mask)
        return self._in_turns(change, address, bits, mask, thread, epoch, line)

    def _in_turns(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> Value:
        """Change the content of one lane's element after another's.  Return the content before each lane's turn."""
        active = active_lanes(mask, address, thread)
        turns = np.full(active.shape, -1, dtype=np.int64)
        turns[active] = _turns(active_values(self.in_own_launch(address), active), self.descending)
        found: Value = np.zeros(active.shape, dtype=L.UNSIGNED[bits])
        for turn in range(int(turns.max(initial=-1)) + 1):
            chosen = turns == turn
            old = self.load(address, bits, chosen, thread, epoch, line)
            new = change(old)
            before, after = as_symbolic_vector(old), as_symbolic_vector(new)
            known = np.asarray(L.constant_mask(before)) & np.asarray(L.constant_mask(after))
            changed = ((before.words[0] != after.words[0]) | ~known) & chosen
            if changed.any():
                self.store(address, new, changed, thread, epoch, line)
            found = blend_values(chosen, old, found)
        return found


def _turns(address: Array, descending: bool) -> Array:
    """Return for each access how many accesses to its address come before it."""
    order = np.argsort(address, kind="stable")
    if descending:
        order = np.argsort(address[::-1], kind="stable")
        order = address.size - 1 - order
    ordered = address[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if address.size else np.zeros(0, np.int64)
    counts = np.diff(np.append(first, address.size))
    found = np.empty(address.size, dtype=np.int64)
    found[order] = np.arange(address.size) - np.repeat(first, counts)
    return found


@dataclass(frozen=True, slots=True)
class OrderedRun:
    """The bytes of every buffer after a launch; the buffers in which atomic operations read and change elements.

    `notes` are on the assumptions behind the bytes.
    """

    after: Mapping[str, Array]
    updated: frozenset[str]
    notes: tuple[str, ...] = ()


def run_in_order(
    prepared: PreparedLaunch,
    contents: Mapping[str, Array],
    order: Order,
    *,
    open_ended: bool = False,
    finite: bool = False,
) -> OrderedRun:
    """Run the launch's blocks in an order.

    `contents` holds the bytes before it (uint8).  If `open_ended`, buffers continue with zeros, as far as the launch
    accesses them.  Raises Unsupported, and if `finite` for an infinity or a NaN that is made from finite numbers.
    """
    if prepared.blocks_interact:
        raise Unsupported("the blocks of a cluster depend on each other, and are not run in a chosen order")
    given = prepared.launch.given()
    contents = {**contents, **{name: each.patterns for name, each in given.items()}}
    numbers = {name: index + 1 for index, name in enumerate(sorted(contents))}
    names = {number: name for name, number in numbers.items()}
    before = [{numbers[name]: each for name, each in contents.items()}]
    buffers = BufferContents([{**before[0], **placed_pointers(given, numbers)}])
    blocks = np.arange(prepared.launch.blocks)[:: -1 if order.descending else 1]
    waiting = lines_that_synchronise(prepared, old_values=True)

    notes: dict[str, None] = {}

    def attempt(granule: int, watched: frozenset[int]) -> OrderedMemory:
        domain = bits_domain(prepared, buffers, finite)
        memory = OrderedMemory(domain, buffers, names, open_ended, frozenset(numbers[name] for name in given))
        memory.watched, memory.descending, memory.waiting = watched, order.descending, waiting
        budget = [MAXIMUM_STEPS]
        alone = not order.together and (bool(waiting) or blocks.size <= MAXIMUM_BLOCKS_ALONE)
        for batch in np.split(blocks, blocks.size) if alone else prepared.batches(blocks):
            machine = machine_for(prepared, memory, numbers, batch, granule)
            machine.shared = shared = OrderedSharedMemory(4096, machine.blocks, granule)
            shared.descending = order.descending
            machine.races = NoRaceDetection(prepared.threads, prepared.arch.warp)
            memory.scratch = frozenset(machine.extra.get("scratch", ()))
            if order.together:
                Executor(prepared.program, machine, budget).start()
            else:
                executor = OrderedExecutor(prepared.program, machine, budget)
                executor.descending = order.descending
                executor.start()
        notes.update(domain.notes)
        return memory

    memory = run_until_valid(prepared.arch.granule(prepared.kernel), attempt)
    after = {names[number]: each for number, each in bytes_after(memory, before)[0].items()}
    updated = frozenset(names[number] for number in memory.updated if number in names)
    return OrderedRun(after, updated, tuple(notes))
