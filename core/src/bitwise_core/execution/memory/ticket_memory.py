"""Global memory of a run in which blocks take tickets: atomic operations whose old values are numbers.

A ticket is an atomic operation of one thread of a block on a counter, which releases what the block has done and
acquires what the blocks with earlier tickets of the counter had done.  The operations act one after another, in the
order of the run.  Only the block with the last ticket of a counter may store after it, or touch the counter otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import THREAD_SHIFT, Machine
from bitwise_core.execution.memory.global_memory import Change, GlobalMemory
from bitwise_core.execution.memory.store_forwarding import Access, LoadRaces, StoredRows, forward_stores
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.numerics import Operation


@dataclass(frozen=True, slots=True)
class TicketLines:
    """Lines of the text: of the operations that take tickets, and of accesses that no ticket orders.

    The latter are loads that need not see what other threads stored, and asynchronous accesses.
    """

    tickets: frozenset[int]
    unordered: frozenset[int]


@dataclass(frozen=True, slots=True)
class Counter:
    """The tickets of one counter of `bits` bits, in the order in which they were taken.

    `blocks` took them, `contents` are those before each ticket, and `final` is the content after the last.
    """

    bits: int
    blocks: tuple[int, ...]
    contents: tuple[int, ...]
    final: int


class TicketMemory(GlobalMemory):
    """Global memory in which the operations of some lines take tickets.

    `expected` are the counters of another order of the blocks, by address; None while they are not known.  Then no
    block is the last, and no access is ordered by tickets.
    """

    orders_blocks: ClassVar[bool] = True

    def __init__(
        self,
        *arguments: object,
        blocks: int,
        lines: TicketLines,
        expected: Mapping[int, Counter] | None,
        **keywords: object,
    ) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]
        self.lines, self.expected = lines, expected
        self.machine: Machine | None = None
        self._counters: dict[int, list[tuple[int, int, int]]] = {}
        """By address of the counter: for each ticket its block, and the contents before and after it."""
        self._bits: dict[int, int] = {}
        self._stored_by_last: set[tuple[int, int]] = set()
        self._found_values: dict[int, Value] = {}
        self._counter = np.zeros(blocks, dtype=np.uint64)
        self._last, self._taken = np.zeros(blocks, dtype=bool), np.zeros(blocks, dtype=bool)
        self._epoch = np.full(blocks, -1, dtype=np.int64)
        counters = sorted((expected or {}).items())
        self._cells = np.array([address for address, _ in counters], dtype=np.uint64)
        self._ends = self._cells + np.array([each.bits // 8 for _, each in counters], dtype=np.uint64)
        if expected is not None:
            self.block_order = self._ordered

    def counters(self) -> dict[int, Counter]:
        """Return the counters by address."""
        return {
            address: Counter(
                self._bits[address],
                tuple(block for block, _, _ in tickets),
                tuple(before for _, before, _ in tickets),
                tickets[-1][2],
            )
            for address, tickets in self._counters.items()
        }

    def stored_by_last(self) -> set[tuple[int, int]]:
        """Return the bytes that blocks stored after the last ticket of a counter: its address and that of the byte."""
        return self._stored_by_last

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int) -> Value:
        """See `GlobalMemory.load`."""
        self._check_counters(address, bits, mask, thread, line)
        return super().load(address, bits, mask, thread, epoch, line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: int, line: int) -> None:
        """See `GlobalMemory.store`."""
        self._check_counters(address, width(value), mask, thread, line)
        self._check_last(mask, thread, line)
        if line in self.lines.unordered:
            raise Unsupported("an asynchronous store is not ordered by tickets", line)
        if self._last.any():
            self._note_stores(address, width(value) // 8, mask, thread)
        super().store(address, value, mask, thread, epoch, line)

    def forward(
        self, value: Value, stores: StoredRows, load: Access, active: Array
    ) -> tuple[Value, Sequence[LoadRaces]]:
        """See `GlobalMemory.forward`."""
        order = None if load.line in self.lines.unordered else self.block_order
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
        if line not in self.lines.tickets:
            self._check_last(mask, thread, line, atomic=True)
            super().atomic(operation, address, value, mask, thread, epoch, line)
            return
        if operation.is_float or line in self._found_values:
            raise Unsupported("an atomic operation takes no ticket", line)

        def change(old: Value) -> Value:
            return self.domain.integer(operation, [old, value])

        self._found_values[line] = self._take(change, address, width(value), mask, thread, epoch, line)

    def update(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """See `GlobalMemory.update`."""
        if line in self.lines.tickets:
            return self._take(change, address, bits, mask, thread, epoch, line)
        self._check_last(mask, thread, line, atomic=True)
        return super().update(change, address, bits, mask, thread, epoch, line)

    def old_value(self, bits: int, shape: tuple[int, int], line: int) -> Value:
        """See `GlobalMemory.old_value`: the number of the ticket."""
        found = self._found_values.pop(line, None)
        return super().old_value(bits, shape, line) if found is None else found

    def contribute(self, *arguments: object, **keywords: object) -> None:
        """See `GlobalMemory.contribute`: not modelled in a run with tickets."""
        raise Unsupported("an atomic operation at a computed address in a launch with tickets")

    def _take(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """Take a ticket in each active lane, in the order of the lanes.  Return the old values."""
        machine = self.machine
        if machine is None or machine.condition is not None or machine.path is not None:
            raise Unsupported("whether a ticket is taken depends on data", line)
        shape = np.broadcast_shapes(address.shape, thread.shape, (1, 1) if mask is None else mask.shape)
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        old: Array = np.zeros(shape, dtype=L.UNSIGNED[bits])
        where, who = np.broadcast_to(address, shape)[active], np.broadcast_to(thread, shape)[active]
        blocks = who >> THREAD_SHIFT
        if np.unique(blocks).size < blocks.size or self._taken[blocks].any():
            raise Unsupported("a block takes several tickets", line)
        rows = np.flatnonzero(active.reshape(-1))
        places = np.broadcast_to(address, shape).reshape(-1)
        for row, place, block, who_takes in zip(
            rows.tolist(), where.tolist(), blocks.tolist(), who.tolist(), strict=True
        ):
            tickets = self._counters.setdefault(place, [])
            content = tickets[-1][2] if tickets else self._initial_number(place, bits, line)
            if self._bits.setdefault(place, bits) != bits:
                raise Unsupported("tickets of one counter have different widths", line)
            old.reshape(-1)[places == place] = content
            after = as_symbolic_vector(change(old))
            lane = np.zeros(shape, dtype=bool)
            lane.reshape(-1)[row] = True
            if not np.broadcast_to(np.asarray(L.constant_mask(after)), shape)[lane].all():
                raise Unsupported("the content of a counter depends on data", line)
            tickets.append((block, content, int(np.broadcast_to(after.words[0], shape)[lane][0])))
            self._note(block, place, who_takes, epoch, len(tickets), line)
        for row, place, block in zip(rows.tolist(), where.tolist(), blocks.tolist(), strict=True):
            old.reshape(-1)[row] = next(before for taker, before, _ in self._counters[place] if taker == block)
        return old

    def _note(self, block: int, place: int, thread: int, epoch: int, count: int, line: int) -> None:
        self._taken[block], self._counter[block] = True, place
        self._epoch[block] = epoch
        if self.expected is None or place not in self.expected or count != len(self.expected[place].blocks):
            return
        self._last[block] = True
        bits, address = self._bits[place], np.array([place], dtype=np.uint64)
        content = as_symbolic_vector(np.full((1, 1), self._counters[place][-1][2], dtype=L.UNSIGNED[bits]))
        access = Access(address, np.array([thread]), epoch, content, bits, line)
        self.stores.setdefault(int(self.buffer_of(address)[0]), []).append(access)

    def _note_stores(self, address: Array, size: int, mask: Array | None, thread: Array) -> None:
        shape = np.broadcast_shapes(address.shape, thread.shape, (1, 1) if mask is None else mask.shape)
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        blocks = np.broadcast_to(thread, shape)[active] >> THREAD_SHIFT
        places = np.broadcast_to(address, shape)[active][self._last[blocks]]
        counters = self._counter[blocks[self._last[blocks]]]
        for offset in range(size):
            self._stored_by_last.update(zip(counters.tolist(), (places + np.uint64(offset)).tolist(), strict=True))

    def _initial_number(self, place: int, bits: int, line: int) -> int:
        address = np.array([[place]], dtype=np.uint64)
        buffers = {int(each) for each in self.buffer_of(address).flat}
        found = as_symbolic_vector(self.initial(address, bits, None, buffers, line))
        if not np.all(L.constant_mask(found)):
            raise Unsupported("the content of a counter of tickets before the launch is not given", line)
        return int(found.words[0].flat[0])

    def _check_counters(self, address: Array, bits: int, mask: Array | None, thread: Array, line: int) -> None:
        """Raise Unsupported if an access touches a counter, unless its block has taken the last ticket of it."""
        if not self._cells.size:
            return
        shape = np.broadcast_shapes(address.shape, thread.shape, (1, 1) if mask is None else mask.shape)
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        where = np.broadcast_to(address, shape)[active].astype(np.uint64, copy=False)
        first = np.searchsorted(self._ends, where, side="right")
        end = np.searchsorted(self._cells, where + np.uint64(bits // 8), side="left")
        near = end > first
        if not near.any():
            return
        blocks = np.broadcast_to(thread, shape)[active][near] >> THREAD_SHIFT
        own = self._last[blocks] & (end[near] - first[near] == 1)
        if not (own & (self._counter[blocks] == self._cells[first[near]])).all():
            raise Unsupported("a counter is accessed other than by tickets", line)

    def _check_last(self, mask: Array | None, thread: Array, line: int, *, atomic: bool = False) -> None:
        """Raise Unsupported if a block stores after a ticket that is not the last; `atomic`: after any ticket."""
        if not self._taken.any() or self.expected is None:
            return
        shape = thread.shape if mask is None else np.broadcast_shapes(thread.shape, mask.shape)
        who = np.broadcast_to(thread, shape)
        blocks = (who if mask is None else who[np.broadcast_to(mask, shape)]) >> THREAD_SHIFT
        if (self._taken[blocks] if atomic else self._taken[blocks] & ~self._last[blocks]).any():
            raise Unsupported("a block stores after it has taken a ticket that is not the last", line)

    def _ordered(self, thread: Array, epoch: Array, later_thread: Array, later_epoch: Array) -> Array:
        """See `BlockOrder`: a barrier and the ticket of the first block follow its access.

        The last ticket of the counter and a barrier precede the access of the second block.
        """
        block, later = thread >> THREAD_SHIFT, later_thread >> THREAD_SHIFT
        found: Array = self._taken[block] & self._last[later] & (block != later)
        found &= self._counter[block] == self._counter[later]
        found &= (epoch < self._epoch[block]) & (later_epoch > self._epoch[later])
        return found
