"""Global memory of a run in which blocks count their arrivals, and wait until enough of them have arrived.

All blocks are executed together.  Some accesses synchronise, one thread of each block at a time: they add a number to a
counter (an arrival), or read it.  A read may come before some of the arrivals that it does not know.  Its contents are
then those after any number of arrivals from the known ones on, because arrivals of a counter add the same number, and
each later arrival must know the read.  With fewer arrivals than all, a block must come to another read of the same
counter by the same thread, with no other access to global memory.

`variant` says how many arrivals besides the known ones the first read of each wait finds, if there are as many.  Where
threads wait in a loop, it is executed for each smaller number, and what a round changes in registers and in shared
memory is undetermined in the next, until a round changes nothing else.  The blocks then read all arrivals.  At the next
access to global memory, the state of the batch is noted (`states`): registers that may be read again, and shared and
local memory.  If it is the same in the runs of all variants, it is the same whatever each read of each wait finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.synchronised_blocks.cell_memory import CellMemory, WithoutComputedAddresses
from bitwise_core.execution.synchronised_blocks.machine_state import MachineState, digest_of
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisingCode
from bitwise_core.execution.synchronised_blocks.waits import Wait
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.numerics import Operation

MAXIMUM_READS = 8
"""The largest number of reads of one wait before it comes to a loop."""


@dataclass(frozen=True, slots=True, eq=False)
class _Arrival:
    """An arrival: its block and its number there, and what a thread knows that acquires it (None: nothing)."""

    block: int
    number: int
    thread: int
    epoch: int
    line: int
    released: Array | None


@dataclass(slots=True, eq=False)
class _Counter:
    """A counter of `bits` bits with its content before the launch; each arrival adds `step`."""

    bits: int
    initial: int
    step: int = 0
    arrivals: list[_Arrival] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    """The blocks that read all arrivals, with the numbers of their reads."""

    def content(self, arrivals: int) -> int:
        """Return the content after some arrivals."""
        return (self.initial + self.step * arrivals) % (1 << self.bits)


@dataclass(frozen=True, slots=True, eq=False)
class _Lanes:
    """The lanes of a synchronising access, the addresses of their counters, their threads and blocks."""

    rows: list[int]
    places: list[int]
    threads: list[int]
    blocks: list[int]


@dataclass(slots=True, eq=False)
class _Waiting:
    """Blocks that wait: their threads and counters, and, in a loop, its instruction and what is left."""

    threads: list[int]
    places: list[int]
    reads: int = 0
    instruction: int | None = None
    loop: Wait | None = None


class BarrierMemory(WithoutComputedAddresses, CellMemory[_Counter]):
    """Global memory in which accesses of the given lines synchronise, if one thread of each block executes them.

    `live_at` returns for an instruction which registers may be read from it on.
    """

    cell_name = "counter"

    def __init__(
        self,
        domain: Domain,
        given: GivenContents,
        code: SynchronisingCode,
        cells: Mapping[int, int] | None,
        live_at: Callable[[int], Callable[[str], bool]],
        variant: int | None,
    ) -> None:
        super().__init__(domain, given, code, cells)
        self.live_at, self.variant = live_at, variant
        self.most_open = 0
        """The largest number of arrivals that a read may or may not come after."""
        self.states: list[bytes] = []
        self._waiting: _Waiting | None = None
        self._passed: tuple[MachineState, int] | None = None
        """The state and the epoch in which the blocks last stopped to wait, until their next access."""
        self._last_read: tuple[int, list[int], list[int], list[int]] | None = None

    def store_counters(self) -> None:
        """Record the contents that the counters hold after all arrivals.  Raises Unsupported if blocks still wait."""
        if self._waiting is not None:
            raise Unsupported("a block goes on with too few arrivals")
        for place, counter in self._cells.items():
            if counter.arrivals:
                last = counter.arrivals[-1]
                content = counter.content(len(counter.arrivals))
                self._store_number(place, content, counter.bits, last.thread, last.epoch, last.line)

    def _note_other_access(self, epoch: Epoch, line: int, *, stores: bool) -> None:
        """See `CellMemory`."""
        self._leave_wait(line)

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
        """See `GlobalMemory.atomic`.  What an arrival returns is undetermined."""
        if not self._synchronises(address, mask, thread, line, operation):
            self._leave_wait(line)
            with self._other_atomic():
                super().atomic(operation, address, value, mask, thread, epoch, line)
            return
        if operation.verb != "add" or line in self._old_values:
            raise Unsupported("an atomic operation does not count arrivals", line)
        change, bits = self.change_by(operation, value), L.width(value)
        found = self._access(change, address, bits, mask, thread, epoch_of_all(epoch), line, counts=True)
        if found is not None:
            self._old_values[line] = [found]

    def update(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> Value:
        """See `GlobalMemory.update`."""
        if not self._synchronises(address, mask, thread, line):
            self._leave_wait(line)
        return super().update(change, address, bits, mask, thread, epoch, line)

    def _synchronises(
        self, address: Array, mask: Array | None, thread: Array, line: int, operation: Operation | None = None
    ) -> bool:
        """See `SynchronisedMemory`: accesses of integers, on certain lines, that one thread of a block executes."""
        if self._inside_atomic or line not in self.lines or (operation is not None and operation.is_float):
            return False
        blocks = block_of(active_values(thread, active_lanes(mask, address, thread)))
        return blocks.size > 0 and np.unique(blocks).size == blocks.size

    def _synchronise(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """See `SynchronisedMemory`: an access that reads counters."""
        found = self._access(change, address, bits, mask, thread, epoch, line, counts=False)
        assert found is not None
        return found

    def _access(
        self,
        change: Change,
        address: Array,
        bits: int,
        mask: Array | None,
        thread: Array,
        epoch: int,
        line: int,
        *,
        counts: bool,
    ) -> Array | None:
        """Read the counters of the active lanes, and return their contents, or count arrivals, and return None."""
        machine = self._unconditional_machine(line)
        lane = active_lanes(mask, address, thread)
        places, threads = (active_values(each, lane).astype(np.int64).tolist() for each in (address, thread))
        rows = np.flatnonzero(lane.reshape(-1)).tolist()
        lanes = _Lanes(rows, places, threads, [int(each) for each in block_of(np.array(threads))])
        for block, who in zip(lanes.blocks, threads, strict=True):
            self._knowledge.enter(block, who, epoch, line)
        counters = [self._cell(place, bits, line) for place in places]

        def contents(arrivals: list[int]) -> Array:
            """Return the contents after these numbers of arrivals in all lanes, 0 in the others."""
            found: Array = np.zeros(lane.shape, dtype=L.UNSIGNED[bits])
            found.reshape(-1)[rows] = [each.content(n) for each, n in zip(counters, arrivals, strict=True)]
            return found

        def added(arrivals: list[int]) -> list[int]:
            before = contents(arrivals)
            after = as_symbolic_vector(change(before))
            if not np.broadcast_to(np.asarray(L.constant_mask(after)), lane.shape)[lane].all():
                raise Unsupported("the content of a counter depends on data", line)
            new = np.broadcast_to(after.words[0], lane.shape).reshape(-1)[rows].tolist()
            old = before.reshape(-1)[rows].tolist()
            return [(one - other) % (1 << bits) for one, other in zip(new, old, strict=True)]

        present = [len(each.arrivals) for each in counters]
        steps = added(present)
        if any(steps):
            if not counts or not all(steps):
                raise Unsupported("an access changes a counter otherwise than by counting", line)
            self._leave_wait(line)
            self._arrive(lanes, counters, steps, epoch, line)
            return None
        found = self._read(machine, lanes, counters, present, epoch, line)
        if any(added(found)):
            raise Unsupported("an access changes a counter otherwise than by counting", line)
        return contents(found)

    def _arrive(self, lanes: _Lanes, counters: list[_Counter], steps: list[int], epoch: int, line: int) -> None:
        """Count the arrivals of one instruction, which do not know each other."""
        for block, who, counter, step in zip(lanes.blocks, lanes.threads, counters, steps, strict=True):
            knows = self._knowledge.at(block, epoch, who)
            if any(reader != block and knows[reader] < number for reader, number in counter.reads):
                raise Unsupported("a counter may be read before or after an arrival", line)
            if counter.step not in (0, step):
                raise Unsupported("arrivals add different numbers to a counter", line)
            counter.step = step
            number = self._knowledge.count(block)
            releases = self.lines[line].releases
            released = self._knowledge.release(block, number, epoch, knows) if releases else None
            counter.arrivals.append(_Arrival(block, number, who, epoch, line, released))
            if min(step, (1 << counter.bits) - step) * len(counter.arrivals) >= 1 << (counter.bits - 1):
                raise Unsupported("a counter of arrivals may exceed its type and wrap around", line)

    def _read(
        self, machine: Machine, lanes: _Lanes, counters: list[_Counter], present: list[int], epoch: int, line: int
    ) -> list[int]:
        """Return how many arrivals each lane finds."""
        known = [
            self._known(counter, block, self._knowledge.at(block, epoch, who))
            for counter, block, who in zip(counters, lanes.blocks, lanes.threads, strict=True)
        ]
        waiting = self._waiting
        if waiting is None:
            self._settle(machine, line)
            left = present[0] - known[0]
            if any(all_of - some != left for all_of, some in zip(present, known, strict=True)):
                raise Unsupported("blocks that read counters know different numbers of arrivals", line)
            read = (machine.pc, lanes.places, lanes.threads, present)
            if self._last_read == read:
                raise Unsupported("a block waits for arrivals that no block makes", line)
            self.most_open = max(self.most_open, left)
            if self.variant is not None and self.variant < left:
                self._waiting = _Waiting(lanes.threads, lanes.places)
                return [each + self.variant for each in known]
        else:
            if (waiting.threads, waiting.places) != (lanes.threads, lanes.places):
                raise Unsupported("a block goes on with too few arrivals", line)
            if fewer := self._fewer_arrivals(machine, waiting, present[0] - known[0], line):
                return [each + fewer[0] for each in known]
            self._waiting = None
        for block, who, counter in zip(lanes.blocks, lanes.threads, counters, strict=True):
            self._pass(counter, block, who, epoch, line)
        self._passed = MachineState.of(machine), epoch
        self._last_read = (machine.pc, lanes.places, lanes.threads, present)
        return present

    @staticmethod
    def _fewer_arrivals(machine: Machine, waiting: _Waiting, left: int, line: int) -> list[int]:
        """A waiting block reads again.  Return the numbers of arrivals, fewer than all, that it is still to find."""
        if waiting.instruction != machine.pc or waiting.loop is None:
            waiting.reads += 1
            if waiting.reads > MAXIMUM_READS:
                raise Unsupported("a block waits by more reads than are followed", line)
            changed: set[object] = set() if waiting.loop is None else waiting.loop.changed
            waiting.instruction = machine.pc
            waiting.loop = Wait(list(range(left)), MachineState.of(machine), changed=changed)
        else:
            waiting.loop.read_again(machine, "arrivals", line)
        return waiting.loop.contents

    def _pass(self, counter: _Counter, block: int, who: int, epoch: int, line: int) -> None:
        """A thread has read all arrivals of a counter."""
        counter.reads.append((block, self._knowledge.count(block)))
        released = [each.released for each in counter.arrivals if each.released is not None and each.block != block]
        if self.lines[line].acquires and released:
            knows = np.maximum(self._knowledge.at(block, epoch, who), np.max(released, axis=0))
            self._knowledge.acquire(block, who, epoch, knows)

    @staticmethod
    def _known(counter: _Counter, block: int, knows: Array) -> int:
        """Return how many arrivals come before an access of a block in every order."""
        return sum(each.block == block or int(knows[each.block]) >= each.number for each in counter.arrivals)

    def _leave_wait(self, line: int) -> None:
        """An access that reads no counter follows.  Raises Unsupported if blocks wait."""
        if self._waiting is not None:
            raise Unsupported("a block goes on with too few arrivals", line)
        if self.machine is not None:
            self._settle(self.machine, line)

    def _settle(self, machine: Machine, line: int) -> None:
        """Note the state of the batch at the first access after a wait.

        A barrier must come before it, so that nothing that follows can race with what a block does while it waits.
        """
        if self._passed is None:
            return
        state, epoch = self._passed
        if machine.epoch <= epoch:
            raise Unsupported("no barrier of the block follows a wait", line)
        if machine.group is not None or machine.condition is not None or machine.path is not None:
            raise Unsupported("after a wait only some of the threads go on", line)
        if state.changes_elsewhere(machine):
            raise Unsupported("after a wait a block changes more than registers and shared memory", line)
        self.states.append(digest_of(machine, self.live_at(machine.pc)))
        self._passed = None

    def _new_cell(self, place: int, bits: int, line: int) -> _Counter:
        """See `CellMemory`."""
        return _Counter(bits, self._initial_number(place, bits, line))
