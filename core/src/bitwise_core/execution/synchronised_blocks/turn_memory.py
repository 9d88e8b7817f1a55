"""Global memory of a run in which blocks wait for each other: one block after another, with the order that waits give.

Some accesses of one thread synchronise: they read or change a cell by an atomic operation, an acquiring load or a
releasing store.  A cell's contents are numbers, and each that may still be read is one that no known later content
replaces.

A thread may read a cell before the last block that wrote it did, and must then read it again with no other effect.
So such a read returns every earlier content first, until the block is back at it.  What one such round changes in
registers and in shared memory is undetermined in the next, until a round changes nothing else.  The run then stands for
every number of rounds.

The writes of a cell must be ordered after all its writes and reads before, so that each read has one result in every
order of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.synchronised_blocks.flag_memory import Flag, FlagAccess, FlagMemory, FlagWrite
from bitwise_core.execution.synchronised_blocks.machine_state import MachineState
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisingCode
from bitwise_core.execution.synchronised_blocks.waits import Wait
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Value


@dataclass(slots=True, eq=False)
class _Flag(Flag[int]):
    reads: list[tuple[int, int]] = field(default_factory=list)
    """The blocks that read a content and went on, with the numbers of their accesses."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A block that is to return to a read of a flag."""

    line: int
    place: int
    thread: int
    wait: Wait


class TurnMemory(FlagMemory[_Flag]):
    """Global memory in which accesses of the given lines synchronise, if one thread executes them."""

    def __init__(
        self, domain: Domain, given: GivenContents, code: SynchronisingCode, cells: Mapping[int, int] | None
    ) -> None:
        super().__init__(domain, given, code, cells)
        self._waiting: _Waiting | None = None
        self._passed: tuple[int, int, int, int] | None = None
        """The line, address, thread and number of writes of the last read that went on."""

    def run_block(self, execute: Callable[[], None]) -> None:
        """Execute a block.  Raises Unsupported if it does not return to a read of an earlier content."""
        execute()
        if self._waiting is not None:
            raise Unsupported("a block goes on with an earlier content of a flag", self._waiting.line)
        self._passed = None

    def store_cells(self) -> None:
        """Record the contents that the cells hold after the last block."""
        for place, cell in self._cells.items():
            last = cell.writes[-1]
            if last.block >= 0:
                self._store_number(place, last.content, cell.bits, last.thread, last.epoch, last.line)

    def _note_other_access(self, epoch: Epoch, line: int, *, stores: bool) -> None:
        """See `CellMemory`."""
        if stores and self._waiting is not None:
            raise Unsupported("a block stores while it waits", line)

    def _access(self, flag: _Flag, change: Change, access: FlagAccess) -> Value:
        """See `FlagMemory`."""
        machine, line, lane = access.machine, access.line, access.lane
        bits, place, who = flag.bits, access.place, access.thread
        knows = self._knowledge.at(access.block, access.epoch, who)

        def result(content: int) -> Array:
            return np.full(lane.shape, content, dtype=L.UNSIGNED[bits])

        def changed(content: int) -> int:
            return self._changed_number(change, result(content), lane, line)

        waiting = self._waiting
        if waiting is not None:
            if (waiting.line, waiting.place, waiting.thread) != (line, place, who):
                raise Unsupported("a block goes on with an earlier content of a flag", waiting.line)
            waiting.wait.read_again(machine, "a flag", line)
        else:
            if self._passed == (line, place, who, len(flag.writes)):
                raise Unsupported("a block waits for a flag that no block before it sets", line)
            # The contents before the last that the thread may read, without repetitions.
            earlier = flag.writes[flag.last_known(access.block, knows) : -1]
            contents = list(dict.fromkeys(each.content for each in earlier))
            if flag.writes[-1].content in contents:
                raise Unsupported("a flag holds one number twice", line)
            waiting = _Waiting(line, place, who, Wait(contents, MachineState.of(machine)))
        if waiting.wait.contents:
            content = waiting.wait.contents[0]
            if changed(content) != content:
                raise Unsupported("the order of the changes of a flag is open", line)
            self._waiting = waiting
            return result(content)
        self._waiting = None
        found = self._finish(flag, changed, knows, access)
        self._passed = (line, place, who, len(flag.writes))
        return result(found)

    def _finish(self, flag: _Flag, changed: Callable[[int], int], knows: Array, access: FlagAccess) -> int:
        """The access finds the last content of a flag, and may change it.  Return the content before."""
        block, who, epoch, line = access.block, access.thread, access.epoch, access.line
        last, kind, number = flag.writes[-1], self.lines[line], self._knowledge.count(block)
        if kind.acquires and last.released is not None and last.block != block:
            knows = np.maximum(knows, last.released)
            self._knowledge.acquire(block, who, epoch, knows)
        after = changed(last.content)
        if after != last.content:
            unread = all(reader == block or knows[reader] >= place for reader, place in flag.reads)
            if not flag.knows_all(block, knows) or not unread:
                raise Unsupported("the order of the changes of a flag is open", line)
            released = self._knowledge.release(block, number, epoch, knows) if kind.releases else None
            flag.writes.append(FlagWrite(after, block, number, who, epoch, line, released))
        elif not kind.acquires:  # a store
            raise Unsupported("a flag is set to the number that it holds", line)
        flag.reads.append((block, number))
        return last.content

    def _new_cell(self, place: int, bits: int, line: int) -> _Flag:
        """See `CellMemory`."""
        return _Flag(bits, [FlagWrite(self._initial_number(place, bits, line), -1, 0)])
