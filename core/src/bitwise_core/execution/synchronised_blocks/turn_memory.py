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

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.synchronised_blocks.block_knowledge import BlockKnowledge
from bitwise_core.execution.synchronised_blocks.machine_state import MachineState, forget_changes
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation, SynchronisedMemory
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.numerics import Operation

MAXIMUM_ROUNDS = 8
"""How often one content of a cell is read again at most until a round changes nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A content of a cell: the block that wrote it (-1: the content before the launch), and its access's number there.

    `released` is what a thread knows that acquires it: by block, the number of its last known access; None: nothing.
    """

    content: int
    block: int
    number: int
    thread: int = 0
    epoch: int = 0
    line: int = 0
    released: Array | None = None


@dataclass(slots=True, eq=False)
class _Cell:
    bits: int
    writes: list[_Write]
    reads: list[tuple[int, int]] = field(default_factory=list)
    """The blocks that read a content and went on, with the numbers of their accesses."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A block that is to return to a read of a cell: the remaining contents, and the state at the last read."""

    line: int
    place: int
    thread: int
    contents: list[int]
    rounds: int
    state: MachineState
    changed: set[object] = field(default_factory=set)


class TurnMemory(SynchronisedMemory):
    """Global memory in which accesses of the given lines synchronise, if one thread executes them."""

    cell_name = "flag"

    def __init__(
        self,
        domain: Domain,
        given: GivenContents,
        *,
        blocks: int,
        lines: Mapping[int, Synchronisation],
        unordered: frozenset[int],
        cells: Mapping[int, int] | None,
    ) -> None:
        super().__init__(domain, given, unordered, cells)
        self.lines = lines
        self._cells: dict[int, _Cell] = {}
        self._knowledge = BlockKnowledge(blocks)
        self._waiting: _Waiting | None = None
        self._passed: tuple[int, int, int, int] | None = None
        """The line, cell, thread and number of writes of the last read that went on."""
        self.block_order = self._knowledge.ordered

    def cells(self) -> dict[int, int]:
        """Return the addresses of the cells, with their widths in bits."""
        return {place: cell.bits for place, cell in self._cells.items()}

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

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """See `GlobalMemory.load`."""
        if self._synchronises(address, mask, thread, line):
            return self._synchronise(lambda old: old, address, bits, mask, thread, epoch_of_all(epoch), line)
        return super().load(address, bits, mask, thread, epoch, line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        if self._synchronises(address, mask, thread, line):
            self._synchronise(lambda old: value, address, width(value), mask, thread, epoch_of_all(epoch), line)
            return
        if self._waiting is not None:
            raise Unsupported("a block stores while it waits", line)
        super().store(address, value, mask, thread, epoch, line)

    def _synchronises(
        self, address: Array, mask: Array | None, thread: Array, line: int, operation: Operation | None = None
    ) -> bool:
        """See `SynchronisedMemory`: accesses of integers that one thread executes, on certain lines."""
        if line not in self.lines or (operation is not None and operation.is_float):
            return False
        return self._is_of_one_thread(address, mask, thread)

    def _synchronise(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """See `SynchronisedMemory`: one lane accesses a cell."""
        machine = self._unconditional_machine(line)
        if machine.blocks != 1:
            raise Unsupported("several blocks may synchronise at once", line)
        lane = active_lanes(mask, address, thread)
        place, who = int(active_values(address, lane)[0]), int(active_values(thread, lane)[0])
        self._knowledge.enter(block_of(who), who, epoch, line)
        cell = self._cell(place, bits, line)
        knows = self._knowledge.at(block_of(who), epoch, who)

        def result(content: int) -> Array:
            return np.full(lane.shape, content, dtype=L.UNSIGNED[bits])

        def changed(content: int) -> int:
            return self._changed_number(change, result(content), lane, line)

        waiting = self._waiting
        if waiting is not None:
            if (waiting.line, waiting.place, waiting.thread) != (line, place, who):
                raise Unsupported("a block goes on with an earlier content of a flag", waiting.line)
            if forget_changes(machine, waiting.state, waiting.changed, line):
                waiting.rounds += 1
                if waiting.rounds > MAXIMUM_ROUNDS:
                    raise Unsupported("waiting for a flag changes the state of a block again and again", line)
            else:
                waiting.contents.pop(0)
                waiting.rounds = 0
            waiting.state = MachineState.of(machine)
        else:
            if self._passed == (line, place, who, len(cell.writes)):
                raise Unsupported("a block waits for a flag that no block before it sets", line)
            contents = self._earlier(cell, knows, block_of(who))
            if cell.writes[-1].content in contents:
                raise Unsupported("a flag holds one number twice", line)
            waiting = _Waiting(line, place, who, contents, 0, MachineState.of(machine))
        if waiting.contents:
            content = waiting.contents[0]
            if changed(content) != content:
                raise Unsupported("the order of the changes of a flag is open", line)
            self._waiting = waiting
            return result(content)
        self._waiting = None
        found = self._finish(cell, changed, knows, who, epoch, line)
        self._passed = (line, place, who, len(cell.writes))
        return result(found)

    def _finish(self, cell: _Cell, changed: Callable[[int], int], knows: Array, who: int, epoch: int, line: int) -> int:
        """The access finds the last content of a cell, and may change it.  Return the content before."""
        number, kind = block_of(who), self.lines[line]
        last, access = cell.writes[-1], self._knowledge.count(number)
        if kind.acquires and last.released is not None and last.block != number:
            knows = np.maximum(knows, last.released)
            self._knowledge.acquire(number, who, epoch, knows)
        after = changed(last.content)
        if after != last.content:
            known = all(each.block in (-1, number) or knows[each.block] >= each.number for each in cell.writes)
            if not known or any(reader != number and knows[reader] < place for reader, place in cell.reads):
                raise Unsupported("the order of the changes of a flag is open", line)
            released = self._knowledge.release(number, access, epoch, knows) if kind.releases else None
            cell.writes.append(_Write(after, number, access, who, epoch, line, released))
        elif self._is_store(line):
            raise Unsupported("a flag is set to the number that it holds", line)
        cell.reads.append((number, access))
        return last.content

    def _is_store(self, line: int) -> bool:
        return not self.lines[line].acquires

    def _earlier(self, cell: _Cell, knows: Array, block: int) -> list[int]:
        """Return the contents before the last that a thread with this knowledge may read, without repetitions."""
        known = max(
            place
            for place, each in enumerate(cell.writes)
            if each.block in (-1, block) or knows[each.block] >= each.number
        )
        return list(dict.fromkeys(each.content for each in cell.writes[known:-1]))

    def _cell(self, place: int, bits: int, line: int) -> _Cell:
        cell = self._cells.get(place)
        if cell is None:
            cell = self._cells[place] = _Cell(bits, [_Write(self._initial_number(place, bits, line), -1, 0)])
        if cell.bits != bits:
            raise Unsupported("a flag is accessed in several widths", line)
        return cell
