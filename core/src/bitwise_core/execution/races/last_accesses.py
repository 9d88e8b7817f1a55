"""The last accesses of each cell of shared memory, and whether a later access comes after them.

Accesses before a barrier of all warps come before all later ones, so that only those of the current round between two
such barriers are compared.  Reads are recorded when a write may race with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.races.vector_clocks import PENDING, VectorClocks
from bitwise_core.execution.values.symbolic_vector import Array, some

SEVERAL = np.int32(-2)
"""Several lanes of a warp."""

NO_BARRIER_SUFFICES = 2**62
"""The round of an access that a barrier of all warps does not order: it is asynchronous."""

_MOST_DEFERRED = 256
"""The number of reads whose recording is deferred at most."""


@dataclass(frozen=True, slots=True)
class _DeferredRead:
    """A read of cells by threads (flat arrays of one length), and the times and steps of all warps at it."""

    cells: Array
    actor: Array
    times: Array
    steps: Array


class LastAccesses:
    """The last writer and the last readers of each cell, with their times and steps in the clocks `order`."""

    def __init__(self, cells: int, order: VectorClocks) -> None:
        self.order = order
        self.writer: Array = np.full(cells, -1, dtype=np.int64)  # an index of other arrays, as the next
        self.written: Array = np.zeros(cells, dtype=np.int32)
        self.written_step: Array = np.zeros(cells, dtype=np.int32)
        self.reader: Array = np.full(cells, -1, dtype=np.int64)
        self.read: Array = np.zeros(cells, dtype=np.int32)
        self.read_step: Array = np.zeros(cells, dtype=np.int32)
        self.reads_by_warp: Array = np.zeros((order.warps, cells), dtype=np.int32)
        self.lane_by_warp: Array = np.zeros((order.warps, cells), dtype=np.int32)
        """The last reader of each cell in each warp, or SEVERAL; it has a meaning where there is a step."""
        self.step_by_warp: Array = np.zeros((order.warps, cells), dtype=np.int32)
        """One more than the step at which it read, 0 stands for no read: zeros take no memory."""
        self.reads_by_agent: dict[int, Array] = {}
        """For each agent, the times of its last reads of the cells; 0 stands for no read."""
        self.other_writers: Array = np.full(cells, -1, dtype=np.int64)
        """For each cell with several writers an index of `writers`, else -1."""
        self.writers: list[tuple[Array, Array]] = []
        """Times of warps and steps of their lanes (-1: none), after all of which a write must be ordered."""
        self.round = 0
        """The number of barriers of all warps so far.  Accesses of earlier rounds are ordered before all later ones."""
        self.read_round: Array = np.full(cells, -1, dtype=np.int64)
        self.write_round: Array = np.full(cells, -1, dtype=np.int64)
        self.deferred: list[_DeferredRead] = []
        """Reads that are recorded only when a later access may race with them, in order (see `record_deferred`)."""
        self.has_deferred: Array = np.zeros(cells, dtype=bool)
        """Which cells the deferred reads take."""
        self.has_asynchronous_reads = False
        """Whether a thread has started a read that `finished_reads` ends."""
        self.warps_with_agents: frozenset[int] = frozenset()
        """The warps whose threads have started reads that an asynchronous agent makes."""

    @property
    def cells(self) -> int:
        """The number of cells; `resize` makes room for more."""
        return self.writer.size

    def copy(self, order: VectorClocks) -> LastAccesses:
        """Return an independent copy, for a copy of the clocks."""
        self.record_deferred()
        found = copy(self)
        found.order, found.deferred, found.writers = order, [], list(self.writers)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(found, name, value.copy())
        found.reads_by_agent = {agent: times.copy() for agent, times in self.reads_by_agent.items()}
        return found

    def resize(self, cells: int) -> None:
        """Make room for more cells."""
        for name in (
            *("reads_by_warp", "lane_by_warp", "step_by_warp", "has_deferred"),
            *("written", "written_step", "read", "read_step"),
        ):
            setattr(self, name, grown(getattr(self, name), cells, 0))
        for name in ("other_writers", "writer", "reader", "read_round", "write_round"):
            setattr(self, name, grown(getattr(self, name), cells, -1))
        self.reads_by_agent = {agent: grown(times, cells, 0) for agent, times in self.reads_by_agent.items()}

    def begin_round(self) -> None:
        """All warps have met at a barrier, which orders all accesses before it before all later ones."""
        self.round += 1
        if self.deferred:
            self.deferred = []
            self.has_deferred[:] = False

    def of_this_round(self, rounds: Array, cells: Array) -> bool:
        """Return whether an access to one of these cells has no barrier of all warps after it.

        `rounds` are those of the last writes or of the last reads.
        """
        return int(rounds.take(cells).max(initial=-1)) >= self.round

    def come_after_write(self, cells: Array, actor: Array) -> Array:
        """Return which accesses of `actor` to cells come after the last write."""
        return self.order.comes_after(
            actor, self.writer.take(cells), self.written.take(cells), self.written_step.take(cells)
        )

    def come_after_writes(self, cells: Array, actor: Array) -> Array:
        """Return which accesses of `actor` to cells come after the writes of all threads."""
        found = self.come_after_write(cells, _once(actor))
        for agent, times in self.reads_by_agent.items():
            # What is ordered after a read is ordered after the write before the read.
            late = times.take(cells)
            found |= (late > 0) & (late <= self.order.clock[:, agent].take(self.order.warp_of.take(actor)))
        if self.writers:
            found &= self._come_after_other_writers(cells, actor)
        return found

    def come_after_reads(self, cells: Array, actor: Array) -> Array:
        """Return which accesses of `actor` to cells come after all reads.  No read may be deferred."""
        actor = _once(actor)
        reader, time, step = self.reader.take(cells), self.read.take(cells), self.read_step.take(cells)
        found = self.order.comes_after(actor, reader, time, step)
        found &= self._come_after_other_warps(cells, actor) & ~self._read_by_other_lane(cells, actor)
        return found

    def _come_after_other_warps(self, cells: Array, actor: Array) -> Array:
        """Return which accesses of `actor` come after the reads of all other warps, and of all agents."""
        order, warp = self.order, self.order.warp_of.take(actor)
        times = self.reads_by_warp.take(cells, axis=1)
        seen = times <= order.clock.T[: order.warps].take(warp, axis=1)
        own = np.arange(order.warps)[:, None] == warp[None]
        before: Array = np.all(seen | (own & (times != PENDING)), axis=0)
        return before & self.come_after_agents(cells, actor) if self.reads_by_agent else before

    def come_after_agents(self, cells: Array, actor: Array) -> Array:
        """Return which accesses of `actor` to cells come after the reads of all agents."""
        warp, found = self.order.warp_of.take(actor), np.ones(cells.shape, dtype=bool)
        for agent, times in self.reads_by_agent.items():
            found &= times.take(cells) <= self.order.clock[:, agent].take(warp)
        return found

    def _read_by_other_lane(self, cells: Array, actor: Array) -> Array:
        """Return whether another lane of the warp of `actor` has read a cell since the last barrier of the warp."""
        warp = self.order.warp_of.take(actor)
        place = warp * self.cells + cells
        current = self.step_by_warp.take(place) == self.order.lockstep.take(warp) + 1
        found: Array = current & (self.lane_by_warp.take(place) != actor)
        return found

    def _come_after_other_writers(self, cells: Array, actor: Array) -> Array:
        """Return whether writes come after those of all threads that wrote a cell without an order."""
        index, warp = self.other_writers[cells], self.order.warp_of[actor]
        found = np.ones(cells.shape, dtype=bool)
        for each in distinct(index):
            times, steps = self.writers[each]
            here = index == each
            mine = warp[here]
            seen = self.order.clock[mine][:, : times.size] >= times
            own = np.arange(times.size) == mine[:, None]
            found[here] = (seen | own).all(axis=1) & (self.order.lockstep[mine] > steps[mine])
        return found

    def record_reads(self, cells: Array, actor: Array) -> None:
        """`actor` threads read these cells (flat arrays of one length)."""
        order = self.order
        self.deferred.append(_DeferredRead(cells, actor, order.clock.diagonal().copy(), order.lockstep.copy()))
        self.has_deferred[cells] = True
        if self.has_asynchronous_reads or len(self.deferred) >= _MOST_DEFERRED:
            self.record_deferred()

    def record_deferred(self) -> None:
        """Record the deferred reads, as if each had been recorded when it was made.

        Those before a barrier of all warps are never recorded: no later access races with them.
        """
        if not self.deferred:
            return
        for each in self.deferred:
            self._record_read(each)
        self.deferred = []
        self.has_deferred[:] = False

    def _record_read(self, access: _DeferredRead) -> None:
        cells, actor = access.cells, access.actor
        warp = self.order.warp_of.take(actor)
        time, step = access.times.take(warp), access.steps.take(warp)
        self.read_round[cells] = np.maximum(self.read_round.take(cells), self.round)
        self.reader[cells] = actor
        self.read[cells] = time
        self.read_step[cells] = step
        place = warp * self.cells + cells  # in the flat array of all warps
        self.reads_by_warp.reshape(-1)[place] = time
        self._record_lanes(place, step, actor)

    def _record_lanes(self, place: Array, step: Array, actor: Array) -> None:
        """Record which lane of each warp has read a cell since the last barrier of the warp."""
        lanes, steps = self.lane_by_warp.reshape(-1), self.step_by_warp.reshape(-1)
        before = lanes.take(place)
        several = steps.take(place) == step + 1
        several &= before != actor
        lanes[place] = actor
        several |= lanes.take(place) != actor
        if some(several):
            lanes[place[several]] = SEVERAL
        steps[place] = step + 1

    def record_agent_read(self, cells: Array, agent: int) -> None:
        """An agent reads these cells at its current time."""
        if agent not in self.reads_by_agent:
            self.reads_by_agent[agent] = np.zeros(self.cells, dtype=np.int32)
        self.reads_by_agent[agent][cells] = self.order.clock[agent, agent]

    def give_reads_to_agent(self, cells: Array, warp: int, time: int, agent: int) -> None:
        """The reads of a warp at a time, of some of these cells, become those of an agent.  No read may be deferred."""
        cells = cells[self.reads_by_warp[warp, cells] == time]
        self.record_agent_read(cells, agent)
        self.reads_by_warp[warp, cells] = self.step_by_warp[warp, cells] = 0
        self.reader[cells[self.reader[cells] // self.order.warp == warp]] = -1

    def start_reads(self, cells: Array, actor: int) -> None:
        """An asynchronous agent started by thread `actor` reads these cells until `finished_reads`."""
        self.record_deferred()
        self.has_asynchronous_reads = True
        self.reader[cells] = actor
        self.read[cells] = PENDING
        self.read_round[cells] = NO_BARRIER_SUFFICES
        warp = actor // self.order.warp
        self.reads_by_warp[warp, cells] = PENDING
        self.warps_with_agents |= {warp}

    def finished_reads(self, cells: Array, actor: int) -> None:
        """All reads of these cells that the warp of `actor` started are complete, ordered for that warp.

        Each cell occurs once; they ascend.
        """
        self.record_deferred()
        order, where, warp = self.order, _as_slice(cells), actor // self.order.warp
        read, mine = self.read[where], self.reads_by_warp[warp, where]
        reader = self.reader[where]
        still = (read == PENDING) & (reader >= warp * order.warp) & (reader < (warp + 1) * order.warp)
        self.read[where] = np.where(still, order.clock[warp, warp], read)
        self.read_step[where] = np.where(still, order.lockstep[warp], self.read_step[where])
        self.reads_by_warp[warp, where] = np.where(mine == PENDING, order.clock[warp, warp], mine)
        pending = self.read[where] == PENDING
        for each in self.warps_with_agents:
            pending |= self.reads_by_warp[each, where] == PENDING
        self.read_round[where] = np.where(pending, NO_BARRIER_SUFFICES, self.round)

    def record_write(self, cells: Array, actor: Array, *, pending: bool) -> None:
        """`actor` threads write these cells and are their last writers; a pending write completes at a later wait."""
        warp = self.order.warp_of.take(actor)
        self._forget_agent_reads(cells)
        self.writer[cells] = actor
        self.written[cells] = PENDING if pending else self.order.clock.diagonal().take(warp)
        self.written_step[cells] = self.order.lockstep.take(warp)
        self.write_round[cells] = NO_BARRIER_SUFFICES if pending else self.round

    def record_agent_write(self, cells: Array, agent: int) -> None:
        """An agent has written these cells at its current time, after all their reads."""
        self.record_deferred()
        self.read[cells] = 0
        self._forget_agent_reads(cells)
        self.set_agent_as_writer(cells, agent)

    def set_agent_as_writer(self, cells: Array, agent: int) -> None:
        """Take an agent at its current time as the last writer of these cells."""
        self.writer[cells] = agent * self.order.warp
        self.written[cells] = self.order.clock[agent, agent]
        self.write_round[cells] = NO_BARRIER_SUFFICES

    def _forget_agent_reads(self, cells: Array) -> None:
        """A write of these cells that is ordered after the reads of agents replaces them."""
        for times in self.reads_by_agent.values():
            times[cells] = 0

    def note_written_in_this_round(self, cells: Array) -> None:
        """Later accesses to these cells in this round must be compared with writes."""
        self.write_round[cells] = np.maximum(self.write_round.take(cells), self.round)

    def record_writes(self, cells: Array, actor: Array, unordered: Array, replaced: Array) -> None:
        """`actor` threads write these cells, some of them after no order with earlier writes.

        `replaced`: they become the last writers of their cells.
        """
        writer, time, step = self.writer.take(cells), self.written.take(cells), self.written_step.take(cells)
        self.record_write(cells[replaced], actor[replaced], pending=False)
        self.note_written_in_this_round(cells)
        several = unordered
        if some((self.writer[cells] != actor)[replaced]):
            several = several | _duplicates(cells)  # threads of one instruction write one cell
        if not some(several):
            if self.writers:
                self.other_writers[cells] = -1
            return
        before = self.other_writers[cells]
        self.other_writers[cells] = -1
        chosen = several & (writer >= 0)
        self._note_writers(
            cells[several], actor[several], before[several], (cells[chosen], writer[chosen], time[chosen], step[chosen])
        )

    def _note_writers(
        self, cells: Array, actor: Array, before: Array, earlier: tuple[Array, Array, Array, Array]
    ) -> None:
        """Later writes of each of `cells` must be ordered after that of `actor` now, and after its earlier ones.

        `before` are the sets of earlier writers of the cells by index. `earlier` are cells with the last writer before
        this instruction, and its time and step.
        """
        warps, order = self.order.warps, self.order
        own, places = self._numbered(cells)
        place = places[cells]
        # For each cell the times of all warps, then the steps of their lanes.
        accesses = np.zeros((own.size, 2, warps), dtype=np.int64)
        accesses[:, 1] = -1
        for index in distinct(before):
            there = place[before == index]
            accesses[there] = np.maximum(accesses[there], np.stack(self.writers[index]))
        warp = order.warp_of[actor]
        _raise_to(accesses, place, warp, order.clock.diagonal()[warp], order.lockstep[warp])
        others, writer, time, step = earlier
        other = order.warp_of[writer]
        inside = other < warps  # a copy engine's writes are followed by a wait
        _raise_to(accesses, places[others[inside]], other[inside], time[inside], step[inside])
        # Cells with equal accesses share an entry. The order by a sum of products brings equal rows together.
        sorting = np.argsort(accesses.reshape(own.size, -1) @ np.arange(1, 2 * warps + 1) ** 5)
        accesses = accesses[sorting]
        first = np.append(True, (accesses[1:] != accesses[:-1]).any(axis=(1, 2)))
        self.other_writers[own[sorting]] = len(self.writers) + np.cumsum(first) - 1
        self.writers += [(times, steps) for times, steps in accesses[first]]

    def _numbered(self, cells: Array) -> tuple[Array, Array]:
        """Return the distinct cells in ascending order, and for each of them its number, by cell."""
        present = np.zeros(self.cells, dtype=bool)
        present[cells] = True
        own = np.flatnonzero(present)
        numbers = np.empty(present.size, dtype=np.intp)
        numbers[own] = np.arange(own.size)
        return own, numbers

    def are_seen(self, cells: Array, warps: Array) -> bool:
        """Return whether the last writes of all these cells are complete, and ordered before what these warps do."""
        writer, time = self.writer.take(cells), self.written.take(cells)
        seen = self.order.clock[np.ix_(warps, self.order.warp_of.take(writer))] >= time
        return bool((writer >= 0).all() and (time != PENDING).all() and seen.all())

    def has_pending(self, cells: Array) -> bool:
        """Return whether a warp may not have waited for an asynchronous access to one of these cells."""
        reads = self.reads_by_warp[:, cells] == PENDING
        if some(reads) or some(self.read[cells] == PENDING) or some(self.written[cells] == PENDING):
            return True
        seen = self.order.seen_by_all()
        return any(some(times[cells] > seen[agent]) for agent, times in self.reads_by_agent.items())

    def made_since(self, warp: int, time: int) -> Array:
        """Return for each cell whether it is known that a lane of a warp has accessed it after a time.

        An access that has not ended does not count: nothing comes after it, and it has its time when it ends.
        """
        self.record_deferred()
        written, read = self.written, self.reads_by_warp[warp]
        late: Array = (self.order.warp_of.take(self.writer) == warp) & (self.writer >= 0)
        late &= (written > time) & (written != PENDING)
        late |= (read > time) & (read != PENDING)
        return late

    def has_other_writes_since(self, warp: int, time: int) -> bool:
        """Return whether a warp has written a cell of several writers after a time."""
        return any(bool(times[warp] > time) for times, _ in self.writers)

    def late_cells(self, seen: Array, others: Array) -> Array:
        """Return, ascending, the cells with an access that does not come before the next access of every thread.

        All warps have seen the times `seen`.  `others` (a boolean array) marks cells that are returned in any case.
        """
        order = self.order
        # Every access before the last barrier of all warps is ordered before all later ones.
        recent = np.flatnonzero((self.read_round >= self.round) | (self.write_round >= self.round) | others)
        late_reads = self.reads_by_warp[:, recent] > seen[: order.warps, None]
        matters = late_reads.any(axis=0) | self._unordered_lanes(recent).any(axis=0) | others[recent]
        for actor, time, step in self._accesses(recent):
            warp = np.maximum(actor, 0) // order.warp
            matters |= (actor >= 0) & ((time > seen[warp]) | (step >= order.lockstep[warp]))
        found: Array = recent[matters]
        return found

    def _unordered_lanes(self, cells: Array) -> Array:
        """Return which warps have read which cells since their last barrier, shape (warps, cells)."""
        found: Array = self.step_by_warp[:, cells] > self.order.lockstep[: self.order.warps, None]
        return found

    def _accesses(self, cells: Array) -> list[tuple[Array, Array, Array]]:
        """Return the actors, times and steps of the last writes of these cells, and of their last reads."""
        accesses = (self.writer, self.written, self.written_step), (self.reader, self.read, self.read_step)
        return [(actor[cells], time[cells], step[cells]) for actor, time, step in accesses]

    def state(self, cells: Array, seen: Array) -> Iterator[Array]:
        """Yield arrays that are equal for two blocks only if later accesses come after the same earlier ones in both.

        All warps have seen the times `seen`; `cells` are those that `late_cells` returns.  Times count from `seen`.
        """
        order = self.order
        for actor, time, step in self._accesses(cells):
            warp = np.maximum(actor, 0) // order.warp
            late, unordered = _since(time, seen[warp]), step >= order.lockstep[warp]
            used = (actor >= 0) & ((late > 0) | unordered)
            yield from (np.where(used, actor, -1), np.where(used, late, 0), used & unordered)
        yield _since(self.reads_by_warp[:, cells], seen[: order.warps, None])
        yield np.where(self._unordered_lanes(cells), self.lane_by_warp[:, cells], -1)

    def state_of_agents(self, cells: Array, seen: Array) -> Iterator[Array]:
        """Yield what belongs to `state` where agents have read cells."""
        for agent, read in sorted(self.reads_by_agent.items()):
            late = np.flatnonzero(read > seen[agent])
            # A write before a read is ordered before what is ordered after the read.
            yield from (np.full(1, agent, dtype=np.int64), late, read[late] - seen[agent], read[cells] > 0)

    def late_writers(self, seen: Array) -> tuple[Array, list[Array]]:
        """Return the cells with several writers that do not come before the next access of every thread.

        For each of them, in their order, the times of the writers since `seen` follow, and whether the lanes of a warp
        are not in step since then.
        """
        late: dict[int, tuple[Array, Array]] = {}
        warps, clock = self.order.warps, self.order.clock
        step, own = self.order.lockstep[:warps], np.eye(warps, dtype=bool)
        for index in distinct(self.other_writers):
            times, steps = self.writers[index]
            if not ((clock[:warps, :warps] >= times) | own).all() or not (step > steps).all():
                late[index] = np.maximum(times - seen[:warps], 0), steps >= step
        cells = np.flatnonzero(np.isin(self.other_writers, list(late)))
        return cells, [part for index in self.other_writers[cells].tolist() for part in late[index]]


def _once(actor: Array) -> Array:
    """Return one number where all of an array are one that is broadcast."""
    return actor[:1] if actor.strides == (0,) else actor


def _since(times: Array, base: Array) -> Array:
    """Return times that count from a base; earlier ones are 0."""
    found: Array = np.where(times == PENDING, times, np.maximum(times - base, 0))
    return found


def grown(values: Array, cells: int, fill: int) -> Array:
    """Return an array with more cells along its last axis."""
    shape = (*values.shape[:-1], cells)
    # Zeros take no memory before they are written.
    found = np.full(shape, fill, dtype=values.dtype) if fill else np.zeros(shape, dtype=values.dtype)
    found[..., : values.shape[-1]] = values
    return found


def distinct(indices: Array) -> list[int]:
    """Return the different ones of many indices, in their order, without the negative ones.

    There are few of them, so that counting takes a fraction of the time of sorting.
    """
    found: list[int] = np.flatnonzero(np.bincount(indices[indices >= 0])).tolist()
    return found


def _as_slice(cells: Array) -> Array | slice:
    """Return different cells, in ascending order, as a slice where they are neighbours."""
    if cells.size and int(cells[-1]) - int(cells[0]) == cells.size - 1:
        return slice(int(cells[0]), int(cells[-1]) + 1)
    return cells


def _duplicates(cells: Array) -> Array:
    """Return which cells occur several times in a flat array."""
    found: Array = (np.bincount(cells) > 1).take(cells)
    return found


def _raise_to(accesses: Array, cell: Array, warp: Array, time: Array, step: Array) -> None:
    """Raise the times and steps, shape (cells, 2, warps), of some cells and warps to at least these.

    Where a cell and a warp occur several times together, they do so with one time and one step.
    """
    for place, given in enumerate((time, step)):
        accesses[cell, place, warp] = np.maximum(accesses[cell, place, warp], given)
