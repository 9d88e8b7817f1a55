"""Global memory of a run in which blocks wait for each other, with the order between blocks that waits give.

Some accesses of one thread synchronise: they read or change a cell by an atomic operation, an acquiring load or a
releasing store.  A cell's contents are numbers, and each that may still be read is one that no known later content
replaces.

One block runs at a time.  A thread that reads the last content of a cell, and comes back to the read with no other
effect, waits for a further content: its block stops until another block has written one (`WaitingBlocks`).

A thread may read a cell before the last block that wrote it did, and must then read it again with no other effect.
So such a read returns every earlier content first, until the block is back at it.  What one such round changes in
registers and in shared memory is undetermined in the next, until a round changes nothing else.  The run then stands for
every number of rounds.

The writes of a cell must be ordered after all its writes and reads before, so that each read has one result in every
order of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.synchronised_blocks.flag_memory import Flag, FlagAccess, FlagMemory, FlagWrite
from bitwise_core.execution.synchronised_blocks.machine_state import MachineState
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisingCode
from bitwise_core.execution.synchronised_blocks.waiting_blocks import WaitingBlocks
from bitwise_core.execution.synchronised_blocks.waits import Wait
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Value


@dataclass(slots=True, eq=False)
class _Flag(Flag[int]):
    reads: list[tuple[int, int]] = field(default_factory=list)
    """The blocks that read a content and went on, with the numbers of their accesses."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A block that is to return to a read of a flag, or, once it has found the last content, may return to it.

    `last` is the place of the last content among the flag's writes.  `found` is the read of this content, as it stands
    among the flag's reads (None: the block is to return), and `acquired` whether the block acquired what it releases.
    `in_vain`: the block has returned to the read after the last content, too.
    """

    line: int
    place: int
    thread: int
    wait: Wait
    last: int
    contents: set[int]
    """All contents that the block may have found in this wait."""
    found: tuple[int, int] | None = None
    acquired: bool = False
    in_vain: bool = False


class TurnMemory(FlagMemory[_Flag]):
    """Global memory in which accesses of the given lines synchronise, if one thread executes them."""

    def __init__(
        self, domain: Domain, given: GivenContents, code: SynchronisingCode, cells: Mapping[int, int] | None
    ) -> None:
        super().__init__(domain, given, code, cells)
        self._blocks = WaitingBlocks()
        self._waits: dict[int, _Waiting] = {}
        """The last read of each block, by its place in the order of execution, unless the block has stored since."""

    def run_blocks(self, executions: Sequence[Callable[[], None]]) -> None:
        """Execute blocks.  Raises Unsupported if one does not return to a read of an earlier content."""
        self._blocks.run(executions)
        for waiting in self._waits.values():
            self._check_found(waiting)

    def store_cells(self) -> None:
        """See `FlagMemory`."""
        for place, cell in self._cells.items():
            last = cell.writes[-1]
            if last.block >= 0:
                self._store_number(place, last.content, cell.bits, last.thread, last.epoch, last.line)

    def _note_other_access(self, epoch: Epoch, line: int, *, stores: bool) -> None:
        """See `CellMemory`."""
        waiting = self._waits.get(self._blocks.running) if stores else None
        if waiting is not None:
            if waiting.found is None:
                raise Unsupported("a block stores while it waits", line)
            del self._waits[self._blocks.running]

    @staticmethod
    def _check_found(waiting: _Waiting) -> None:
        """Raise Unsupported if a block goes on that is to return to its read."""
        if waiting.found is None:
            raise Unsupported("a block goes on with an earlier content of a flag", waiting.line)

    def _access(self, flag: _Flag, change: Change, access: FlagAccess) -> Value:
        """See `FlagMemory`."""
        line, lane, bits = access.line, access.lane, flag.bits

        def result(content: int) -> Array:
            return np.full(lane.shape, content, dtype=L.UNSIGNED[bits])

        def changed(content: int) -> int:
            return self._changed_number(change, result(content), lane, line)

        waiting = self._waits.get(self._blocks.running)
        if waiting is None or (waiting.line, waiting.place, waiting.thread) != (line, access.place, access.thread):
            if waiting is not None:
                self._check_found(waiting)
            waiting = self._begin(flag, access)
        else:
            self._return(flag, waiting, access)
        if waiting.wait.contents:
            content = waiting.wait.contents[0]
            if changed(content) != content:
                raise Unsupported("the order of the changes of a flag is open", line)
            return result(content)
        return result(self._finish(flag, changed, waiting, access))

    def _begin(self, flag: _Flag, access: FlagAccess) -> _Waiting:
        """A block reads a flag."""
        knows = self._knowledge.at(access.block, access.epoch, access.thread)
        wait = Wait([], MachineState.of(access.machine))
        first = flag.last_known(access.block, knows)
        waiting = _Waiting(access.line, access.place, access.thread, wait, first - 1, set())
        self._add_contents(flag, waiting)
        self._waits[self._blocks.running] = waiting
        return waiting

    @staticmethod
    def _add_contents(flag: _Flag, waiting: _Waiting) -> None:
        """Let a read find the contents after the last one that it knows of, the last of them in the end."""
        *earlier, last = (each.content for each in flag.writes[waiting.last + 1 :])
        waiting.wait.contents = list(dict.fromkeys(earlier))
        waiting.contents.update(earlier)
        if last in waiting.contents:
            raise Unsupported("a flag holds one number twice", waiting.line)
        waiting.contents.add(last)
        waiting.last = len(flag.writes) - 1

    def _return(self, flag: _Flag, waiting: _Waiting, access: FlagAccess) -> None:
        """A block returns to a read.  It waits for other blocks where it has found all contents in vain."""
        wait = waiting.wait
        if waiting.found is not None:
            flag.reads.remove(waiting.found)
            if waiting.acquired:
                self._knowledge.forget_last_acquired(access.block)
            waiting.found, waiting.acquired, waiting.in_vain = None, False, True
            wait.contents = [flag.writes[waiting.last].content]
        wait.read_again(access.machine, "a flag", access.line)
        if waiting.in_vain and not wait.contents:
            self._blocks.wait(lambda: waiting.last < len(flag.writes) - 1, access.line)
            self._go_on(access.machine)
            self._add_contents(flag, waiting)
            waiting.in_vain = False

    def _go_on(self, machine: Machine) -> None:
        """Other blocks have run: that of `machine` does now."""
        self.machine = machine
        if self.domain.recorder is not None:
            self.domain.recorder.line_source = machine

    def _finish(self, flag: _Flag, changed: Callable[[int], int], waiting: _Waiting, access: FlagAccess) -> int:
        """The access finds the last content of a flag, and may change it.  Return the content before."""
        block, who, epoch, line = access.block, access.thread, access.epoch, access.line
        knows = self._knowledge.at(block, epoch, who)
        last, kind, number = flag.writes[-1], self.lines[line], self._knowledge.count(block)
        waiting.acquired = kind.acquires and last.released is not None and last.block != block
        if waiting.acquired:
            assert last.released is not None
            knows = np.maximum(knows, last.released)
            self._knowledge.acquire(block, who, epoch, knows)
        waiting.found = block, number
        after = changed(last.content)
        if after != last.content:
            unread = all(reader == block or knows[reader] >= place for reader, place in flag.reads)
            if not flag.knows_all(block, knows) or not unread:
                raise Unsupported("the order of the changes of a flag is open", line)
            released = self._knowledge.release(block, number, epoch, knows) if kind.releases else None
            flag.writes.append(FlagWrite(after, block, number, who, epoch, line, released))
            del self._waits[self._blocks.running]
        elif not kind.acquires:  # a store
            raise Unsupported("a flag is set to the number that it holds", line)
        flag.reads.append(waiting.found)
        return last.content

    def _new_cell(self, place: int, bits: int, line: int) -> _Flag:
        """See `CellMemory`."""
        return _Flag(bits, [FlagWrite(self._initial_number(place, bits, line), -1, 0)])
