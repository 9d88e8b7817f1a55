"""Which accesses to shared memory are ordered by barriers: vector clocks over warps.

Every warp (and each asynchronous agent beside them) has a clock.  A barrier joins the clocks of the warps it
stops; an access that no barrier orders against an earlier one of another thread, where either writes, is a race,
and a kernel with a race has no defined result.  Lanes of one warp are ordered by a warp barrier only.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lanes import Array

PENDING = np.int32(2**31 - 1)
"""The time of an asynchronous access that nobody has waited for yet."""


class RaceDetector:
    """Clocks and last accesses for blocks that run the same barriers (`blocks` 1) or each their own."""

    def __init__(self, cells: int, threads: int, warp: int, agents: int = 4) -> None:
        self.threads, self.warp = threads, warp
        self.warps = -(-threads // warp)
        total = self.warps + agents
        self.clock = np.zeros((total, total), dtype=np.int32)
        np.fill_diagonal(self.clock, 1)
        self.lockstep = np.zeros(total, dtype=np.int32)
        self.writer: Array = np.full(cells, -1, dtype=np.int32)
        self.written: Array = np.zeros(cells, dtype=np.int32)
        self.written_step: Array = np.zeros(cells, dtype=np.int32)
        self.reader: Array = np.full(cells, -1, dtype=np.int32)
        self.read: Array = np.zeros(cells, dtype=np.int32)
        self.read_step: Array = np.zeros(cells, dtype=np.int32)
        self.reads_by_warp: Array = np.zeros((self.warps, cells), dtype=np.int32)
        self.generic: Array = np.zeros(cells, dtype=bool)

    def _resize(self, cells: int) -> None:
        more = cells - self.writer.size
        self.reads_by_warp = np.pad(self.reads_by_warp, ((0, 0), (0, more)))
        self.generic = np.pad(self.generic, (0, more))
        self.writer, self.reader = (np.pad(each, (0, more), constant_values=-1) for each in (self.writer, self.reader))
        self.written, self.written_step, self.read, self.read_step = (
            np.pad(each, (0, more)) for each in (self.written, self.written_step, self.read, self.read_step)
        )

    def barrier(self, warps: Array) -> None:
        """All threads of these warps meet."""
        joined = self.clock[warps].max(axis=0)
        self.clock[warps] = joined
        self.clock[warps, warps] += 1
        self.lockstep[warps] += 1

    def warp_barrier(self, warps: Array) -> None:
        """The lanes of each of these warps meet."""
        self.lockstep[warps] += 1

    def release(self, warps: Array) -> Array:
        """What these warps publish by arriving somewhere: a clock to be handed to `acquire`."""
        published: Array = self.clock[warps].max(axis=0)
        self.clock[warps, warps] += 1
        return published

    def acquire(self, warps: Array, published: Array) -> None:
        """These warps have seen a published clock."""
        self.clock[warps] = np.maximum(self.clock[warps], published)
        self.lockstep[warps] += 1

    def _ordered(self, actor: Array, other: Array, time: Array, step: Array) -> Array:
        warp, other_warp = actor // self.warp, other // self.warp
        seen = self.clock[warp, other_warp] >= time
        same_warp = warp == other_warp
        in_step = np.where(same_warp, (self.lockstep[warp] > step) & (time != PENDING), seen)
        ordered: Array = (other < 0) | ((actor == other) & (time != PENDING)) | in_step
        return ordered

    def reads(self, cells: Array, actor: Array, what: str = "reads") -> None:
        """`actor` threads read these cells (flat arrays of one length).  Raises Unreadable on a race."""
        if cells.size and int(cells.max()) >= self.writer.size:
            self._resize(int(cells.max()) + 64)
        if not self._ordered(actor, self.writer[cells], self.written[cells], self.written_step[cells]).all():
            raise Unreadable(f"a thread {what} shared memory that another wrote with no barrier between (a race)")
        warp = actor // self.warp
        self.reader[cells] = actor
        self.read[cells] = self.clock[warp, warp]
        self.read_step[cells] = self.lockstep[warp]
        self.reads_by_warp[warp, cells] = self.clock[warp, warp]

    def _read_before(self, cells: Array, actor: Array) -> Array:
        """Whether the reads of all other warps are ordered before what `actor` does now."""
        warp = actor // self.warp
        times = self.reads_by_warp[:, cells]
        seen = times <= self.clock[warp, : self.warps].T
        own = np.arange(self.warps)[:, None] == warp[None]
        before: Array = np.all(seen | (own & (times != PENDING)), axis=0)
        return before

    def writes(self, cells: Array, actor: Array, *, pending: bool = False) -> None:
        """`actor` threads write these cells; `pending` marks a write that finishes at a later wait."""
        if cells.size and int(cells.max()) >= self.writer.size:
            self._resize(int(cells.max()) + 64)
        ordered = self._ordered(actor, self.reader[cells], self.read[cells], self.read_step[cells])
        if not (ordered & self._read_before(cells, actor)).all():
            raise Unreadable("a thread overwrites shared memory that another reads with no barrier between (a race)")
        if not self._ordered(actor, self.writer[cells], self.written[cells], self.written_step[cells]).all():
            raise Unreadable("two threads write the same shared memory with no barrier between (a race)")
        self._record_write(cells, actor, pending)
        self.generic[cells] = not pending

    def fence(self, threads: Array) -> None:
        """What these threads (a boolean array) have written is visible to asynchronous agents from now on."""
        mine = (self.writer >= 0) & threads[np.maximum(self.writer, 0)]
        self.generic[mine] = False

    def finished(self, cells: Array, actor: Array) -> None:
        """A pending write of `actor` threads is complete and visible to them."""
        self._record_write(cells, actor, False)

    def arrived(self, cells: Array) -> None:
        """A copy engine's write is complete and visible to whoever waited for it."""
        self.read[cells] = 0
        self.writer[cells] = -1
        self.generic[cells] = False

    def _record_write(self, cells: Array, actor: Array, pending: bool) -> None:
        warp = actor // self.warp
        self.writer[cells] = actor
        self.written[cells] = PENDING if pending else self.clock[warp, warp]
        self.written_step[cells] = self.lockstep[warp]

    def pending_reads(self, cells: Array, actor: int) -> None:
        """An asynchronous agent started by thread `actor` reads these cells until `finished_reads`."""
        if cells.size and int(cells.max()) >= self.writer.size:
            self._resize(int(cells.max()) + 64)
        who = np.full(cells.shape, actor, dtype=np.int64)
        if not self._ordered(who, self.writer[cells], self.written[cells], self.written_step[cells]).all():
            raise Unreadable(
                "a matrix instruction reads shared memory that another thread wrote with no barrier between (a race)"
            )
        if self.generic[cells].any():
            raise Unreadable(
                "an asynchronous instruction reads shared memory that threads wrote with no proxy fence after it"
            )
        self.reader[cells] = actor
        self.read[cells] = PENDING
        self.reads_by_warp[actor // self.warp, cells] = PENDING

    def finished_reads(self, cells: Array, actor: int) -> None:
        """The agent's reads are done, as far as the warp of `actor` knows."""
        if cells.size and int(cells.max()) >= self.writer.size:
            self._resize(int(cells.max()) + 64)
        warp = actor // self.warp
        still = (self.reader[cells] == actor) & (self.read[cells] == PENDING)
        self.read[cells] = np.where(still, self.clock[warp, warp], self.read[cells])
        self.read_step[cells] = np.where(still, self.lockstep[warp], self.read_step[cells])
        mine = self.reads_by_warp[warp, cells]
        self.reads_by_warp[warp, cells] = np.where(mine == PENDING, self.clock[warp, warp], mine)


DESIGNATED = 4
"""How many blocks of a batch are watched once blocks have parted ways; before that one watch serves all."""


class Races:
    """The race detectors of a batch.

    While all blocks do the same, one detector speaks for all of them.  When blocks part, a few of them (the first,
    the last and some between) go on with detectors of their own; the others run the same code with other
    trip counts and are not watched further.
    """

    def __init__(self, cells: int, threads: int, warp: int, blocks: int) -> None:
        self.blocks = blocks
        self.warps = -(-threads // warp)
        self._by_block: dict[int, RaceDetector] = {}
        self._shared: RaceDetector | None = RaceDetector(cells, threads, warp)

    def acting(self, mask: Array | None) -> list[RaceDetector]:
        """The detectors of the blocks that have an active lane."""
        if mask is None or mask.shape[0] == 1:
            return self._all()
        return self.of_blocks(np.any(mask, axis=1))

    def of_blocks(self, rows: Array) -> list[RaceDetector]:
        """The detectors of the blocks in a boolean array of shape (blocks,)."""
        if rows.all():
            return self._all()
        if self._shared is not None:
            chosen = np.unique(np.linspace(0, self.blocks - 1, DESIGNATED).astype(int))
            self._by_block = {int(block): deepcopy(self._shared) for block in chosen}
            self._shared = None
        return [detector for block, detector in self._by_block.items() if rows[block]]

    def _all(self) -> list[RaceDetector]:
        return [self._shared] if self._shared is not None else list(self._by_block.values())
