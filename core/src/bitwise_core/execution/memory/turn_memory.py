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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import THREAD_SHIFT, Machine
from bitwise_core.execution.memory.global_memory import Change, GlobalMemory
from bitwise_core.execution.memory.store_forwarding import Access, LoadRaces, StoredRows, forward_stores
from bitwise_core.execution.memory.undetermined import undetermined
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.numerics import Operation

MAXIMUM_ROUNDS = 8
"""How often one content of a cell is read again at most until a round changes nothing else."""


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """What the access of a line does: see `InstructionInfo`."""

    acquires: bool
    releases: bool


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
class _Block:
    """The synchronising accesses of a block: acquired and released knowledge with epoch and thread."""

    count: int = 0
    last: tuple[int, int] = (-1, -1)
    acquired: list[tuple[int, int, Array]] = field(default_factory=list)
    released: list[tuple[int, int]] = field(default_factory=list)
    """The epoch and the number of each releasing access."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A block that is to return to a read of a cell: the remaining contents, and the state at the last read."""

    line: int
    place: int
    thread: int
    contents: list[int]
    rounds: int
    state: _State
    changed: set[object] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    registers: Mapping[str, Value]
    words: Array
    flags: Array
    local: Mapping[int, Value]
    extra: Mapping[str, Any]


class TurnMemory(GlobalMemory):
    """Global memory in which accesses of the given lines synchronise, if one thread executes them.

    `cells` are the cells of an earlier run, with their widths in bits; None while they are not known.  Then other
    accesses to them are not found, and the run proves nothing.
    """

    orders_blocks: ClassVar[bool] = True

    def __init__(
        self,
        *arguments: object,
        blocks: int,
        lines: Mapping[int, Synchronisation],
        unordered: frozenset[int],
        cells: Mapping[int, int] | None,
        **keywords: object,
    ) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]
        self.lines, self.unordered = lines, unordered
        self.machine: Machine | None = None
        self._cells: dict[int, _Cell] = {}
        self._blocks = [_Block() for _ in range(blocks)]
        self._waiting: _Waiting | None = None
        self._passed: tuple[int, int, int, int] | None = None
        """The line, cell, thread and number of writes of the last read that went on."""
        self._found_values: dict[int, Value] = {}
        self._inside_atomic = False
        expected = sorted((cells or {}).items())
        self._starts = np.array([place for place, _ in expected], dtype=np.uint64)
        self._ends = self._starts + np.array([bits // 8 for _, bits in expected], dtype=np.uint64)
        self.block_order = self._ordered

    def cells(self) -> dict[int, int]:
        """Return the addresses of the cells, with their widths in bits."""
        return {place: cell.bits for place, cell in self._cells.items()}

    def end_block(self) -> None:
        """The block ends.  Raises Unsupported if it does not return to a read of an earlier content."""
        if self._waiting is not None:
            raise Unsupported("a block goes on with an earlier content of a flag", self._waiting.line)
        self._passed = None

    def store_cells(self) -> None:
        """Record the contents that the cells hold after the last block."""
        for place, cell in self._cells.items():
            last = cell.writes[-1]
            if last.block < 0:
                continue
            address = np.array([place], dtype=np.uint64)
            content = as_symbolic_vector(np.full((1, 1), last.content, dtype=L.UNSIGNED[cell.bits]))
            access = Access(address, np.array([last.thread]), last.epoch, content, cell.bits, last.line)
            self.stores.setdefault(int(self.buffer_of(address)[0]), []).append(access)

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int) -> Value:
        """See `GlobalMemory.load`."""
        if self._synchronises(address, mask, thread, line):
            return self._synchronise(None, address, bits, mask, thread, epoch, line)
        self._check_cells(address, bits, mask, thread, line)
        return super().load(address, bits, mask, thread, epoch, line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: int, line: int) -> None:
        """See `GlobalMemory.store`."""
        if self._synchronises(address, mask, thread, line):
            self._synchronise(lambda old: value, address, width(value), mask, thread, epoch, line)
            return
        if self._waiting is not None:
            raise Unsupported("a block stores while it waits", line)
        if line in self.unordered:
            raise Unsupported("an asynchronous store is not ordered by flags", line)
        self._check_cells(address, width(value), mask, thread, line)
        super().store(address, value, mask, thread, epoch, line)

    def forward(
        self, value: Value, stores: StoredRows, load: Access, active: Array
    ) -> tuple[Value, Sequence[LoadRaces]]:
        """See `GlobalMemory.forward`."""
        order = None if load.line in self.unordered else self._ordered
        return forward_stores(value, stores, load, active, self.domain.recorder, order=order)

    def atomic(
        self,
        operation: Operation,
        address: Array,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: int,
        line: int,
    ) -> None:
        """See `GlobalMemory.atomic`."""
        if operation.is_float or not self._synchronises(address, mask, thread, line):
            outer, self._inside_atomic = self._inside_atomic, True
            super().atomic(operation, address, value, mask, thread, epoch, line)
            self._inside_atomic = outer
            return
        if line in self._found_values:
            raise Unsupported("an atomic operation on several elements does not synchronise", line)

        def change(old: Value) -> Value:
            return self.domain.integer(operation, [old, value])

        self._found_values[line] = self._synchronise(change, address, width(value), mask, thread, epoch, line)

    def update(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """See `GlobalMemory.update`."""
        if self._synchronises(address, mask, thread, line):
            return self._synchronise(change, address, bits, mask, thread, epoch, line)
        outer, self._inside_atomic = self._inside_atomic, True
        found = super().update(change, address, bits, mask, thread, epoch, line)
        self._inside_atomic = outer
        return found

    def old_value(self, bits: int, shape: tuple[int, int], line: int) -> Value:
        """See `GlobalMemory.old_value`: the content that the access found."""
        found = self._found_values.pop(line, None)
        return super().old_value(bits, shape, line) if found is None else found

    def contribute(self, *arguments: object, **keywords: object) -> None:
        """See `GlobalMemory.contribute`: not modelled in a run with flags."""
        raise Unsupported("an atomic operation at a computed address in a launch with flags")

    def _synchronises(self, address: Array, mask: Array | None, thread: Array, line: int) -> bool:
        """Return whether one thread executes an access of a line that synchronises."""
        if self._inside_atomic or line not in self.lines:
            return False
        shape = np.broadcast_shapes(address.shape, thread.shape, (1, 1) if mask is None else mask.shape)
        return (shape[0] * shape[1] if mask is None else int(np.broadcast_to(mask, shape).sum())) == 1

    def _synchronise(
        self,
        change: Change | None,
        address: Array,
        bits: int,
        mask: Array | None,
        thread: Array,
        epoch: int,
        line: int,
    ) -> Value:
        """Access a cell by one lane.  Return the content before.  Raises Unsupported."""
        machine = self.machine
        if machine is None or machine.condition is not None or machine.path is not None or machine.blocks != 1:
            raise Unsupported("whether an access synchronises depends on data", line)
        shape = np.broadcast_shapes(address.shape, thread.shape, (1, 1) if mask is None else mask.shape)
        lane = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        place, who = int(np.broadcast_to(address, shape)[lane][0]), int(np.broadcast_to(thread, shape)[lane][0])
        block = self._blocks[who >> THREAD_SHIFT]
        if block.last[0] != -1 and block.last[0] != who and block.last[1] >= epoch:
            raise Unsupported("several threads of a block synchronise with no barrier between", line)
        block.last = (who, epoch)
        cell = self._cell(place, bits, line)
        knows = self._knowledge(who, epoch)

        def changed(content: int) -> int:
            if change is None:
                return content
            after = as_symbolic_vector(change(np.full(shape, content, dtype=L.UNSIGNED[bits])))
            if not np.broadcast_to(np.asarray(L.constant_mask(after)), shape)[lane].all():
                raise Unsupported("the content of a flag depends on data", line)
            return int(np.broadcast_to(after.words[0], shape)[lane][0])

        def result(content: int) -> Value:
            return np.full(shape, content, dtype=L.UNSIGNED[bits])

        waiting = self._waiting
        if waiting is not None:
            if (waiting.line, waiting.place, waiting.thread) != (line, place, who):
                raise Unsupported("a block goes on with an earlier content of a flag", waiting.line)
            if self._changed_state(machine, waiting):
                waiting.rounds += 1
                if waiting.rounds > MAXIMUM_ROUNDS:
                    raise Unsupported("waiting for a flag changes the state of a block again and again", line)
            else:
                waiting.contents.pop(0)
                waiting.rounds = 0
            waiting.state = _state(machine)
        else:
            if self._passed == (line, place, who, len(cell.writes)):
                raise Unsupported("a block waits for a flag that no block before it sets", line)
            contents = self._earlier(cell, knows, who >> THREAD_SHIFT)
            if cell.writes[-1].content in contents:
                raise Unsupported("a flag holds one number twice", line)
            waiting = _Waiting(line, place, who, contents, 0, _state(machine))
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
        number, kind = who >> THREAD_SHIFT, self.lines[line]
        block, last = self._blocks[number], cell.writes[-1]
        block.count += 1
        if kind.acquires and last.released is not None and last.block != number:
            knows = np.maximum(knows, last.released)
            block.acquired.append((epoch, who, knows))
        after = changed(last.content)
        if after != last.content:
            known = all(each.block in (-1, number) or knows[each.block] >= each.number for each in cell.writes)
            if not known or any(reader != number and knows[reader] < place for reader, place in cell.reads):
                raise Unsupported("the order of the changes of a flag is open", line)
            released = None
            if kind.releases:
                released = knows.copy()
                released[number] = block.count
                block.released.append((epoch, block.count))
            cell.writes.append(_Write(after, number, block.count, who, epoch, line, released))
        elif self._is_store(line):
            raise Unsupported("a flag is set to the number that it holds", line)
        cell.reads.append((number, block.count))
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

    def _knowledge(self, thread: int, epoch: int) -> Array:
        """Return for each block the number of the last of its accesses that is ordered before an access of a thread."""
        number = thread >> THREAD_SHIFT
        found = np.zeros(len(self._blocks), dtype=np.int64)
        for at, who, knows in self._blocks[number].acquired:
            if at < epoch or who == thread:
                found = np.maximum(found, knows)
        return found

    def _cell(self, place: int, bits: int, line: int) -> _Cell:
        cell = self._cells.get(place)
        if cell is None:
            address = np.array([[place]], dtype=np.uint64)
            found = as_symbolic_vector(
                self.initial(address, bits, None, {int(each) for each in self.buffer_of(address).flat}, line)
            )
            if not np.all(L.constant_mask(found)):
                raise Unsupported("the content of a flag before the launch is not given", line)
            cell = self._cells[place] = _Cell(bits, [_Write(int(found.words[0].flat[0]), -1, 0)])
        if cell.bits != bits:
            raise Unsupported("a flag is accessed in several widths", line)
        return cell

    def _check_cells(self, address: Array, bits: int, mask: Array | None, thread: Array, line: int) -> None:
        """Raise Unsupported if an access that does not synchronise touches a cell."""
        if not self._starts.size:
            return
        shape = np.broadcast_shapes(address.shape, thread.shape, (1, 1) if mask is None else mask.shape)
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        where = np.broadcast_to(address, shape)[active].astype(np.uint64, copy=False)
        first = np.searchsorted(self._ends, where, side="right")
        if (np.searchsorted(self._starts, where + np.uint64(bits // 8), side="left") > first).any():
            raise Unsupported("a flag is accessed without synchronisation", line)

    def _ordered(self, thread: Array, epoch: Array, later_thread: Array, later_epoch: Array) -> Array:
        """See `BlockOrder`: a release after the first access is known at the second."""
        columns = np.stack([thread >> THREAD_SHIFT, epoch, later_thread >> THREAD_SHIFT, later_epoch])
        keys, inverse = np.unique(columns, axis=1, return_inverse=True)
        found = np.zeros(keys.shape[1], dtype=bool)
        for place, (block, at, later, later_at) in enumerate(keys.T.tolist()):
            released = [number for when, number in self._blocks[block].released if when > at]
            if block != later and released:
                knows = self._knowledge_of_block(later, later_at)
                found[place] = knows[block] >= released[0]
        result: Array = found[inverse.reshape(-1)]
        return result

    def _knowledge_of_block(self, block: int, epoch: int) -> Array:
        found = np.zeros(len(self._blocks), dtype=np.int64)
        for at, _, knows in self._blocks[block].acquired:
            if at < epoch:
                found = np.maximum(found, knows)
        return found

    def _changed_state(self, machine: Machine, waiting: _Waiting) -> bool:
        """Make what a round has changed undetermined.  Return whether it changed what no round before did."""
        before, now = waiting.state, _state(machine)
        extra = now.extra.keys() == before.extra.keys() and all(now.extra[e] is before.extra[e] for e in now.extra)
        local = now.local.keys() == before.local.keys() and all(_same(now.local[e], before.local[e]) for e in now.local)
        if not extra or not local:
            raise Unsupported("a block changes more than registers and shared memory while it waits", waiting.line)
        fresh = False
        shape = (machine.blocks, machine.threads)
        for name, value in now.registers.items():
            old = before.registers.get(name)
            if old is None or not _same(old, value):
                machine.registers[name] = undetermined(width(value), shape, machine.domain.recorder)
                fresh |= name not in waiting.changed
                waiting.changed.add(name)
        count = min(before.words.shape[2], now.words.shape[2])
        differ = np.ones(now.words.shape[2], dtype=bool)
        differ[:count] = (now.words[:, 0, :count] != before.words[:, 0, :count]).any(axis=0)
        differ[:count] |= now.flags[0, :count] != before.flags[0, :count]
        columns = np.flatnonzero(differ)
        if columns.size:
            shared = machine.shared
            content = as_symbolic_vector(undetermined(8 * shared.granule, (1, columns.size), machine.domain.recorder))
            shared.words[:, 0, columns] = np.broadcast_to(content.words, (2, 1, columns.size))[:, 0]
            shared.flags[0, columns] = content.flags
            shared.version += 1
            fresh |= not waiting.changed.issuperset(columns.tolist())
            waiting.changed.update(columns.tolist())
        return fresh


def _state(machine: Machine) -> _State:
    shared = machine.shared
    return _State(
        dict(machine.registers), shared.words.copy(), shared.flags.copy(), dict(machine.local), dict(machine.extra)
    )


def _same(left: Value, right: Value) -> bool:
    """Return whether two values are proved to be equal in all lanes."""
    if left is right:
        return True
    if width(left) != width(right):
        return False
    one, other = as_symbolic_vector(left), as_symbolic_vector(right)
    return bool((one.words == other.words).all() and np.all(one.flags == other.flags))
