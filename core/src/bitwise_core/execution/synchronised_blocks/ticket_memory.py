"""Global memory of a run in which blocks take tickets: atomic operations whose old values are numbers.

A ticket is an atomic operation of one thread of a block on a counter, which releases what the block has done and
acquires what the blocks with earlier tickets of the counter had done.  The operations act one after another, in the
order of the run.  Only the block with the last ticket of a counter may store after it, or touch the counter otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisedMemory
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
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


class TicketMemory(SynchronisedMemory):
    """Global memory in which the atomic operations of some lines take tickets.

    `expected` are the counters of another order of the blocks, by address; None while they are not known.  Then no
    block is the last, and no access is ordered by tickets.
    """

    cell_name = "counter"

    def __init__(
        self,
        domain: Domain,
        given: GivenContents,
        *,
        blocks: int,
        lines: TicketLines,
        expected: Mapping[int, Counter] | None,
    ) -> None:
        cells = None if expected is None else {address: each.bits for address, each in expected.items()}
        super().__init__(domain, given, lines.unordered, cells)
        self.tickets, self.expected = lines.tickets, expected
        self._counters: dict[int, list[tuple[int, int, int]]] = {}
        """By address of the counter: for each ticket its block, and the contents before and after it."""
        self._bits: dict[int, int] = {}
        self._stored_by_last: set[tuple[int, int]] = set()
        self._counter = np.zeros(blocks, dtype=np.uint64)
        self._last, self._taken = np.zeros(blocks, dtype=bool), np.zeros(blocks, dtype=bool)
        self._epoch = np.full(blocks, -1, dtype=np.int64)
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

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        blocks = block_of(active_values(thread, mask))
        self._check_taken(self._taken[blocks] & ~self._last[blocks], line)
        if self._last.any():
            self._note_stores(address, width(value) // 8, mask, thread)
        super().store(address, value, mask, thread, epoch, line)

    def _synchronises(
        self, address: Array, mask: Array | None, thread: Array, line: int, operation: Operation | None = None
    ) -> bool:
        """See `SynchronisedMemory`.  Raises Unsupported for another atomic operation after a ticket.

        The block with the last ticket may make one that is a load and a store of its thread.  While the counters are
        not known, any block may.
        """
        blocks = block_of(active_values(thread, mask))
        taken, last = self._taken[blocks], self._last[blocks]
        if operation is None and (taken if self.expected is None else last).all():
            return False
        if line not in self.tickets:
            self._check_taken(taken, line)
            return False
        if operation is not None and operation.is_float:
            raise Unsupported("an atomic operation on floats takes no ticket", line)
        return True

    def _synchronise(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """See `SynchronisedMemory`: take a ticket in each active lane, in the order of the lanes."""
        self._unconditional_machine(line)
        active = active_lanes(mask, address, thread)
        old: Array = np.zeros(active.shape, dtype=L.UNSIGNED[bits])
        where, who = active_values(address, active), active_values(thread, active)
        blocks = block_of(who)
        if np.unique(blocks).size < blocks.size or self._taken[blocks].any():
            raise Unsupported("a block takes several tickets", line)
        rows = np.flatnonzero(active.reshape(-1))
        places = np.broadcast_to(address, active.shape).reshape(-1)
        for row, place, block, who_takes in zip(
            rows.tolist(), where.tolist(), blocks.tolist(), who.tolist(), strict=True
        ):
            tickets = self._counters.setdefault(place, [])
            content = tickets[-1][2] if tickets else self._initial_number(place, bits, line)
            if self._bits.setdefault(place, bits) != bits:
                raise Unsupported("tickets of one counter have different widths", line)
            old.reshape(-1)[places == place] = content
            lane = np.zeros(active.shape, dtype=bool)
            lane.reshape(-1)[row] = True
            tickets.append((block, content, self._changed_number(change, old, lane, line)))
            self._note_ticket(block, place, who_takes, epoch_of_all(epoch), line)
        for row, place, block in zip(rows.tolist(), where.tolist(), blocks.tolist(), strict=True):
            old.reshape(-1)[row] = next(before for taker, before, _ in self._counters[place] if taker == block)
        return old

    def _note_ticket(self, block: int, place: int, thread: int, epoch: int, line: int) -> None:
        """A block has taken the latest ticket of the counter at an address."""
        self._taken[block], self._counter[block] = True, place
        self._epoch[block] = epoch
        tickets, expected = self._counters[place], (self.expected or {}).get(place)
        if expected is not None and len(tickets) == len(expected.blocks):
            self._last[block] = True
            self._store_number(place, tickets[-1][2], self._bits[place], thread, epoch, line)

    def _note_stores(self, address: Array, size: int, mask: Array | None, thread: Array) -> None:
        active = active_lanes(mask, address, thread)
        blocks = block_of(active_values(thread, active))
        places = active_values(address, active)[self._last[blocks]]
        counters = self._counter[blocks[self._last[blocks]]]
        for offset in range(size):
            self._stored_by_last.update(zip(counters.tolist(), (places + np.uint64(offset)).tolist(), strict=True))

    def _may_touch(self, thread: Array, first: Array, end: Array) -> bool:
        """See `SynchronisedMemory`: the block with the last ticket of a counter may."""
        block = block_of(thread)
        found = self._last[block] & (end - first == 1) & (self._counter[block] == self._starts[first])
        return bool(found.all())

    def _check_taken(self, forbidden: Array, line: int) -> None:
        """Raise Unsupported if a block stores after a ticket that forbids it."""
        if self.expected is not None and forbidden.any():
            raise Unsupported("a block stores after it has taken a ticket that is not the last", line)

    def _ordered(self, thread: Array, epoch: Array, later_thread: Array, later_epoch: Array) -> Array:
        """See `BlockOrder`: a barrier and the ticket of the first block follow its access.

        The last ticket of the counter and a barrier precede the access of the second block.
        """
        block, later = block_of(thread), block_of(later_thread)
        found: Array = self._taken[block] & self._last[later] & (block != later)
        found &= self._counter[block] == self._counter[later]
        found &= (epoch < self._epoch[block]) & (later_epoch > self._epoch[later])
        return found
