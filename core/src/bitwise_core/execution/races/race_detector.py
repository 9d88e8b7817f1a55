"""Race detection for shared memory: vector clocks over warps.

Every warp, and each asynchronous agent, has a clock.  A barrier joins the clocks of the warps that arrive at it.  Two
accesses of different threads to one cell, of which at least one writes, are a race unless a barrier orders them.  The
lanes of one warp are ordered by a warp barrier only.

A memory barrier is waited for by the parity of a phase.  A wait may end as soon as the first such phase has, of those
that the waiting thread does not know to have ended, so that it acquires no later one (`memory_barriers`).

`reads` and `writes` raise for a race.  `unordered_reads` and `unordered_writes` return which accesses are races, and
the caller decides which values they leave undetermined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.memory.shared_updates import SharedUpdates
from bitwise_core.execution.races.agent_accesses import AgentAccess, AgentMemory
from bitwise_core.execution.races.memory_barriers import Phases, with_further_agent
from bitwise_core.execution.races.undetermined import (
    AGENT_RACE,
    OVERTAKEN_READ,
    OVERWRITE_RACE,
    READ_RACE,
    UNTRACKED_COPIES,
    WRITE_RACE,
    Kind,
    race,
)
from bitwise_core.execution.races.unfenced_reads import UnfencedReads
from bitwise_core.execution.values.symbolic_vector import Array, some

SEVERAL = np.int32(-2)
"""Several lanes of a warp."""

PENDING = np.int32(2**31 - 1)
"""The time of an asynchronous access that has not been waited for."""

NO_BARRIER_SUFFICES = 2**62
"""The round of an access that a barrier of all warps does not order: it is asynchronous."""


_PHASES = -2
"""The kind of the agents whose clocks count the ended phases of memory barriers."""

_COMPLETIONS = -7
"""The kind of the agents whose clocks count the instructions of a warp that arrive when its work is complete."""

_FIRST_CELLS = 64
"""The number of cells of a detector before its first access: most kernels use few, and many detectors are made."""


_MOST_DEFERRED = 256
"""The number of reads whose recording is deferred at most."""


@dataclass(frozen=True, slots=True)
class _DeferredRead:
    """A read of cells by threads (flat arrays of one length), and the times and steps of all warps at it."""

    cells: Array
    actor: Array
    times: Array
    steps: Array


class RaceDetector:
    """Clocks and last accesses of blocks that have the same history of accesses and barriers."""

    def __init__(self, cells: int, threads: int, warp: int) -> None:
        cells = min(cells, _FIRST_CELLS)
        self.threads, self.warp = threads, warp
        self.warps = -(-threads // warp)
        self.agents: dict[tuple[int, ...], int] = {}
        """The clocks of asynchronous agents, which follow those of the warps."""
        self.reads_by_agent: dict[int, Array] = {}
        """For each agent, the times of its last reads of the cells; 0 stands for no read."""
        self.agent_memories: dict[str, AgentMemory] = {}
        """The accesses of memories that only agents access, by the name of the memory."""
        self.clock: Array = np.eye(self.warps, dtype=np.int32)
        self.lockstep: Array = np.zeros(self.warps, dtype=np.int32)
        self.warp_of: Array = np.arange(self.warps * warp) // warp
        self.writer: Array = np.full(cells, -1, dtype=np.int64)  # an index of other arrays, as the next
        self.written: Array = np.zeros(cells, dtype=np.int32)
        self.written_step: Array = np.zeros(cells, dtype=np.int32)
        self.reader: Array = np.full(cells, -1, dtype=np.int64)
        self.read: Array = np.zeros(cells, dtype=np.int32)
        self.read_step: Array = np.zeros(cells, dtype=np.int32)
        self.reads_by_warp: Array = np.zeros((self.warps, cells), dtype=np.int32)
        self.lane_by_warp: Array = np.zeros((self.warps, cells), dtype=np.int32)
        """The last reader of each cell in each warp, or SEVERAL; it has a meaning where there is a step."""
        self.step_by_warp: Array = np.zeros((self.warps, cells), dtype=np.int32)
        """One more than the step at which it read, 0 stands for no read: zeros take no memory."""
        self.generic: Array = np.zeros(cells, dtype=bool)
        self.fenced: Array = np.full(cells, -1, dtype=np.int64)
        """For each generic cell that threads other than its writer have fenced an index of `fences`, else -1."""
        self.fences: list[Mapping[int, int]] = []
        """Warps that have executed a fence for asynchronous agents, with the time of the first one."""
        self.generation: Array = np.zeros(cells, dtype=np.int64)
        """How often the content of each cell was replaced by an access that may be a race."""
        self.settled: Array = np.zeros(cells, dtype=np.int64)
        """The generation of each cell at the last barrier of all warps: every earlier read is ordered before it."""
        self.other_writers: Array = np.full(cells, -1, dtype=np.int64)
        """For each cell with several writers an index of `writers`, else -1."""
        self.writers: list[tuple[Array, Array]] = []
        """Times of warps and steps of their lanes (-1: none), after all of which a write must be ordered."""
        self.updates: SharedUpdates | None = None
        """The atomic operations since the last barrier of all warps, None if there are none."""
        self.updated: Array = np.zeros(cells, dtype=bool)
        """Which cells atomic operations have changed since they were last written."""
        self.meetings: dict[int, tuple[Array, Array]] = {}
        """By number of a barrier of some warps, those that met there last, with the time of each after it."""
        self.arrived_at: dict[int, Array] = {}
        """What the arrivals at each memory barrier have published so far."""
        self.phases: dict[int, Phases] = {}
        """The phases of each memory barrier."""
        self.causes: Array = np.zeros((self.warps, self.warps), dtype=np.int32)
        """For each warp how many arrivals of each warp have come before, in the columns of the clocks.

        The columns of memory barriers hold how many of their phases the warp knows to have ended.
        """
        self.tracked: dict[int, dict[int, tuple[int, int]]] = {}
        """For memory barriers whose phase tracks copies by threads: by warp the time, and its lanes as bits."""
        self.round = 0
        """The number of barriers of all warps so far.  Accesses of earlier rounds are ordered before all later ones."""
        self.read_round: Array = np.full(cells, -1, dtype=np.int64)
        self.write_round: Array = np.full(cells, -1, dtype=np.int64)
        self.deferred: list[_DeferredRead] = []
        """Reads that are recorded only when a later access may race with them, in order (see `_record_deferred`)."""
        self.has_deferred: Array = np.zeros(cells, dtype=bool)
        """Which cells the deferred reads take."""
        self.has_asynchronous_reads = False
        """Whether a thread has started a read that `finished_reads` ends."""
        self.unfenced: UnfencedReads | None = None
        """The reads that an asynchronous write may overtake; None where they are not followed."""
        self.warps_with_agents: frozenset[int] = frozenset()
        """The warps whose threads have started reads that an asynchronous agent makes."""

    @property
    def size_in_bytes(self) -> int:
        """The size of the arrays."""
        arrays = sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))
        return arrays if self.updates is None else arrays + self.updates.size_in_bytes

    def copy(self) -> RaceDetector:
        """Return an independent copy."""
        self._record_deferred()
        found = copy(self)
        found.deferred = []
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(found, name, value.copy())
        found.arrived_at, found.agents, found.meetings = dict(self.arrived_at), dict(self.agents), dict(self.meetings)
        found.phases = {barrier: each.copy() for barrier, each in self.phases.items()}
        found.tracked = {barrier: dict(warps) for barrier, warps in self.tracked.items()}
        found.writers, found.fences = list(self.writers), list(self.fences)
        found.reads_by_agent = {agent: times.copy() for agent, times in self.reads_by_agent.items()}
        found.agent_memories = {name: memory.copy() for name, memory in self.agent_memories.items()}
        found.updates = None if self.updates is None else self.updates.copy()
        found.unfenced = None if self.unfenced is None else self.unfenced.copy()
        return found

    def _require(self, cells: Array) -> None:
        """Make room for these cells."""
        last = int(cells.max()) if cells.size else 0
        if last >= self.writer.size:
            # The first access is often to memory barriers at the end: what lies beyond them is little.
            self._resize(max(last + last // 8 + 64, 2 * self.writer.size))

    def _resize(self, cells: int) -> None:
        for name in (
            *("reads_by_warp", "lane_by_warp", "step_by_warp", "generic", "generation", "settled", "updated"),
            *("has_deferred", "written", "written_step", "read", "read_step"),
        ):
            setattr(self, name, _grown(getattr(self, name), cells, 0))
        for name in ("other_writers", "fenced", "writer", "reader", "read_round", "write_round"):
            setattr(self, name, _grown(getattr(self, name), cells, -1))
        self.reads_by_agent = {agent: _grown(times, cells, 0) for agent, times in self.reads_by_agent.items()}
        if self.updates is not None:
            self.updates.resize(cells)

    def barrier(self, warps: Array, number: int | None = None) -> None:
        """All threads of these warps arrive at a barrier, the one with a number where some warps meet.

        Raises Unsupported if one of them may have arrived before, in the place of a warp that met there last.
        """
        if number is not None:
            self._meet(number, warps)
        if len(warps) == self.warps:
            self.meetings = {}
            self.settled = self.generation.copy()
            self.round += 1
            if self.deferred:  # they are ordered before all later accesses
                self.deferred = []
                self.has_deferred[:] = False
            self.updates = None
        joined = self.clock[warps].max(axis=0)
        self.clock[warps] = joined
        self.clock[warps, warps] += 1
        self.lockstep[warps] += 1
        self.causes[warps] = self.causes[warps].max(axis=0)
        if number is not None and len(warps) < self.warps:
            self.meetings[number] = warps, self.clock[warps, warps]

    def _meet(self, number: int, warps: Array) -> None:
        """Check that warps which did not meet last at a barrier arrive after those that did."""
        if number not in self.meetings:
            return
        last, times = self.meetings[number]
        others = np.setdiff1d(warps, last)
        if not (self.clock[others][:, last] >= times).any(axis=1).all():
            raise Unsupported("which warps meet at a barrier depends on the order in which they arrive")

    def warp_barrier(self, warps: Array) -> None:
        """The lanes of each of these warps arrive at a warp barrier."""
        self.lockstep[warps] += 1

    def arrive(self, barrier: int, warps: Array, whole: Sequence[int] = ()) -> None:
        """These warps publish their accesses to the threads that wait for the current phase of a memory barrier.

        `whole` are those all of whose lanes arrive.
        """
        if whole:
            self.phases[barrier].arrive_together({each: int(self.clock[each, each]) for each in whole})
        published = self.clock[warps].max(axis=0)
        before = self.arrived_at.get(barrier)
        self.arrived_at[barrier] = published if before is None else np.maximum(before, published)
        self.clock[warps, warps] += 1

    def enter_phase(self, barrier: int, warps: Array, counted: set[tuple[int, int]] | None = None) -> None:
        """These warps arrive at a memory barrier, or start what arrives there.

        `counted` are the warps that have arrived at others by the same instruction: all of these are one arrival.
        Raises Unsupported if one of them may do so in an earlier phase.
        """
        self.check_phase(barrier, warps)
        phases = self.phases[barrier]
        done = set() if counted is None else counted
        fresh = [warp for warp in warps.tolist() if (id(self), warp) not in done]
        done.update((id(self), warp) for warp in fresh)
        self.causes[fresh, fresh] += 1
        arrivals = np.zeros(self.causes.shape[1], dtype=np.int32)
        arrivals[warps] = self.causes[warps, warps]
        phases.arrive(arrivals, self.causes[warps].max(axis=0))

    def check_phase(self, barrier: int, warps: Array, *columns: int) -> None:
        """Raise Unsupported if one of these warps may arrive at an earlier phase of a memory barrier.

        What was counted before in `columns` of the counts comes before this arrival.
        """
        phases = self.phases[barrier]
        for warp in warps.tolist():
            counts = self.causes[warp]
            if columns:
                counts = counts.copy()
                counts[list(columns)] = self.clock.diagonal()[list(columns)] - 1
            if phases.known(counts) < phases.ended:
                reason = "at which phase of a memory barrier a thread arrives depends on the order in which threads run"
                raise Unsupported(reason)

    def expect_later(self, barrier: int) -> None:
        """Work that ends later arrives at the current phase of a memory barrier."""
        self.phases[barrier].expect_later()

    def begin(self, barrier: int, cells: Array) -> None:
        """Initialise a memory barrier in some cells: nothing has been published to it."""
        self.arrived_at.pop(barrier, None)
        self.tracked.pop(barrier, None)
        column = self._agent(_PHASES, barrier)
        before = self.phases.get(barrier)
        # Phases are counted on from an even number: what a warp knows of the earlier ones is less than that.
        first = 0 if before is None else before.ended + before.ended % 2
        self.phases[barrier] = Phases(column, first, cells, len(self.clock))

    def track_copies(self, barrier: int, threads: Array) -> None:
        """The current phase of a memory barrier tracks the copies of these threads (a boolean array), and no arrivals.

        Another arrival of the phase must be ordered after this, see `complete`.
        """
        warps = self.tracked.setdefault(barrier, {})
        for warp in np.unique(np.flatnonzero(threads) // self.warp).tolist():
            _, lanes = warps.get(warp, (0, 0))
            warps[warp] = int(self.clock[warp, warp]), lanes | self._lanes_of(threads, warp)

    def arrive_after_copies(self, barrier: int, threads: Array) -> None:
        """These threads (a boolean array) arrive at a memory barrier.

        Its phase ends after the tracked copies of these threads, and of those that a barrier orders before one of them.
        """
        tracked = self.tracked.get(barrier, {})
        arriving = np.unique(np.flatnonzero(threads) // self.warp)
        for warp, (time, lanes) in list(tracked.items()):
            seen = (self.clock[arriving, warp] >= time) & (arriving != warp)
            if some(seen) or (self.clock[warp, warp] > time and warp in arriving):
                lanes = 0
            tracked[warp] = time, lanes & ~self._lanes_of(threads, warp)

    def _lanes_of(self, threads: Array, warp: int) -> int:
        lanes = threads[warp * self.warp : (warp + 1) * self.warp]
        return sum(1 << lane for lane in np.flatnonzero(lanes).tolist())

    def complete(self, barrier: int) -> None:
        """Complete the memory barrier's phase; what was published to it becomes visible to waiting threads.

        Raises Race where the phase may have completed before it tracked the copies of a thread.
        """
        if any(lanes for _, lanes in self.tracked.pop(barrier, {}).values()):
            raise race(Kind.SHARED, UNTRACKED_COPIES, None)
        self.phases[barrier].end(self.arrived_at.get(barrier))

    def acquire(
        self, barrier: int, warps: Array, parity: int, whole: Sequence[int] = (), *, of_cluster: bool = False
    ) -> None:
        """These warps have waited for a phase of a parity of a memory barrier, which has ended.

        They see what was published to the first phase after which such a wait may end.  `whole` are those all of whose
        lanes have waited.  `of_cluster` has no effect on blocks without access to the shared memory of others.
        """
        self.acquire_counted(barrier, warps, parity, whole, (barrier,))

    def acquire_counted(
        self, barrier: int, warps: Array, parity: int, whole: Sequence[int], counted: Sequence[int]
    ) -> None:
        """See `acquire`; `counted` are the barriers whose phases end together with those of `barrier`."""
        columns = [self.phases[each].agent for each in counted]
        for warp in warps.tolist():
            known = max(self.phases[each].known(self.causes[warp]) for each in counted)
            ended, phase = self.phases[barrier].first_wait(known, parity)
            if phase is not None:
                self.clock[warp] = np.maximum(self.clock[warp], phase.published)
                # That it has ended says what came before, whatever its arrivals have published.
                self.causes[warp] = np.maximum(self.causes[warp], phase.causes)
            self.causes[warp, columns] = np.maximum(self.causes[warp, columns], ended)
            arrival = self.phases[barrier].arrival(warp, ended) if warp in whole else None
            if arrival is not None and self._is_idle_since(warp, arrival):
                self.lockstep[warp] += 1

    def _is_idle_since(self, warp: int, time: int) -> bool:
        """Return whether no lane of a warp has made an access after a time, except to memory barriers."""
        self._record_deferred()
        late = (self.warp_of.take(self.writer) == warp) & (self.writer >= 0) & (self.written > time)
        late |= self.reads_by_warp[warp] > time
        if self.updates is not None:
            late |= self.updates.times[warp] > time
        for each in self.phases.values():
            late[each.cells[each.cells < late.size]] = False
        return not late.any() and all(times[warp] <= time for times, _ in self.writers)

    def _of_this_round(self, rounds: Array, cells: Array) -> bool:
        """Return whether an access to one of these cells has no barrier of all warps after it."""
        return int(rounds.take(cells).max(initial=-1)) >= self.round

    def _ordered(self, actor: Array, other: Array, time: Array, step: Array) -> Array:
        warp, other_warp = self.warp_of.take(actor), self.warp_of.take(other)  # that of no thread, -1, is not used
        complete = time != PENDING
        in_step = self.lockstep.take(warp) > step
        in_step &= complete
        seen = self.clock.take(warp * len(self.clock) + other_warp) >= time
        ordered: Array = np.where(warp == other_warp, in_step, seen)
        ordered |= (actor == other) & complete
        ordered |= other < 0
        return ordered

    def has_seen_writes(self, cells: Array, warps: Array) -> bool:
        """Return whether the last writes of all these cells are complete, and ordered before what these warps do."""
        self._require(cells)
        writer, time = self.writer.take(cells), self.written.take(cells)
        seen = self.clock[np.ix_(warps, self.warp_of.take(writer))] >= time
        return bool((writer >= 0).all() and (time != PENDING).all() and seen.all())

    def reads(self, cells: Array, actor: Array, what: str = "reads") -> None:
        """`actor` threads read these cells (flat arrays of one length).  Raises Race."""
        if some(self.unordered_reads(cells, actor)):
            raise race(Kind.SHARED, READ_RACE.replace("reads", what, 1), None)

    def unordered_reads(self, cells: Array, actor: Array) -> Array:
        """`actor` threads read these cells.  Return which reads are not ordered after the last write."""
        self._require(cells)
        unordered = _no_lanes(cells.size)
        if self._of_this_round(self.write_round, cells):
            unordered = ~self._ordered(
                actor, self.writer.take(cells), self.written.take(cells), self.written_step.take(cells)
            )
            unordered |= ~self._after_updates(cells, actor, None)
        self.deferred.append(_DeferredRead(cells, actor, self.clock.diagonal().copy(), self.lockstep.copy()))
        self.has_deferred[cells] = True
        if self.has_asynchronous_reads or len(self.deferred) >= _MOST_DEFERRED:
            self._record_deferred()
        return unordered

    def follow_unfenced_reads(self) -> None:
        """Follow reads from now on that `copies_over` checks."""
        self.unfenced = UnfencedReads(self.warps)

    def loads(self, cells: Array, actor: Array, line: int) -> None:
        """`actor` threads read these cells by the instruction of a line, which may end late."""
        if self.unfenced is not None:
            self.unfenced.read(cells, self.warp_of.take(actor), line)

    def excuse_loads(self, cells: Array) -> None:
        """Later reads of the current content of these cells are assumed to end before any write."""
        if self.unfenced is not None:
            self.unfenced.excuse(cells)

    def waited_at(self, cells: Array, warps: Array) -> None:
        """These warps have waited for a memory barrier in these cells, so that their last use of it has ended.

        It has no effect on blocks without access to the shared memory of others.
        """

    def copies_over(self, cells: Array, thread: int | Array, line: int) -> None:
        """The instruction of a line starts an asynchronous write of these cells, which ends at a wait.

        It does so for a thread, or for the thread of each cell.

        Raises Race, also where the write may overtake an earlier read: no fence of the reading threads lies between.
        """
        self.writes(cells, np.broadcast_to(thread, cells.shape), pending=True)
        if self.unfenced is None:
            raise Unsupported("which reads end before an asynchronous write is not followed here", line)
        warps = np.broadcast_to(thread, cells.shape) // self.warp
        for warp in np.unique(warps).tolist():
            read = self.unfenced.line_of(cells[warps == warp], warp, self.clock[warp])
            if read is not None:
                raise race(Kind.SHARED, OVERTAKEN_READ, read, line)

    def _record_deferred(self) -> None:
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
        warp = self.warp_of.take(actor)
        time, step = access.times.take(warp), access.steps.take(warp)
        self.read_round[cells] = np.maximum(self.read_round.take(cells), self.round)
        self.reader[cells] = actor
        self.read[cells] = time
        self.read_step[cells] = step
        place = warp * self.writer.size + cells  # in the flat array of all warps
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

    def _read_by_other_lane(self, cells: Array, actor: Array) -> Array:
        """Return whether another lane of the warp of `actor` has read a cell since the last barrier of the warp."""
        warp = self.warp_of.take(actor)
        place = warp * self.writer.size + cells
        current = self.step_by_warp.take(place) == self.lockstep.take(warp) + 1
        found: Array = current & (self.lane_by_warp.take(place) != actor)
        return found

    def _read_before(self, cells: Array, actor: Array) -> Array:
        """Return whether the reads of all other warps are ordered before the current access of `actor`."""
        warp = self.warp_of.take(actor)
        times = self.reads_by_warp.take(cells, axis=1)
        seen = times <= self.clock.T[: self.warps].take(warp, axis=1)
        own = np.arange(self.warps)[:, None] == warp[None]
        before: Array = np.all(seen | (own & (times != PENDING)), axis=0)
        return before & self._after_agents(cells, actor) if self.reads_by_agent else before

    def _after_agents(self, cells: Array, actor: Array) -> Array:
        """Return whether the reads of all agents are ordered before the current access of `actor`."""
        warp, found = self.warp_of.take(actor), np.ones(cells.shape, dtype=bool)
        for agent, times in self.reads_by_agent.items():
            found &= times.take(cells) <= self.clock[:, agent].take(warp)
        return found

    def writes(self, cells: Array, actor: Array, *, pending: bool = False) -> None:
        """`actor` threads write these cells; `pending` marks a write that completes at a later wait.  Raises Race."""
        of_readers, of_writers = self.unordered_writes(cells, actor)
        if some(of_readers):
            raise race(Kind.SHARED, OVERWRITE_RACE, None)
        if some(of_writers):
            raise race(Kind.SHARED, WRITE_RACE, None)
        self._record_write(cells, actor, pending)
        self.other_writers[cells] = -1
        self.generic[cells] = not pending
        if self.fences:
            self.fenced[cells] = -1

    def unordered_writes(self, cells: Array, actor: Array, operation: str | None = None) -> tuple[Array, Array]:
        """Return which writes of these cells are not ordered after the reads, and which not after earlier writes.

        `operation` is that of atomic operations, which are not ordered among each other, None for plain writes.
        """
        self._require(cells)
        if self.deferred and some(self.has_deferred.take(cells)):
            self._record_deferred()
        if not self._of_this_round(self.write_round, cells) and not self._of_this_round(self.read_round, cells):
            late = ~self._after_agents(cells, actor) if self.reads_by_agent else _no_lanes(cells.size)
            return late, _no_lanes(cells.size)
        who = actor[:1] if actor.strides == (0,) else actor  # one thread
        ordered = self._ordered(who, self.reader.take(cells), self.read.take(cells), self.read_step.take(cells))
        ordered &= self._read_before(cells, who) & ~self._read_by_other_lane(cells, who)
        after = self._ordered(who, self.writer.take(cells), self.written.take(cells), self.written_step.take(cells))
        for agent, times in self.reads_by_agent.items():
            # What is ordered after a read is ordered after the write before the read.
            late = times.take(cells)
            after |= (late > 0) & (late <= self.clock[:, agent].take(self.warp_of.take(actor)))
        if self.writers:
            after &= self._after_other_writers(cells, actor)
        return ~ordered, ~(after & self._after_updates(cells, actor, operation))

    def _after_updates(self, cells: Array, actor: Array, operation: str | None) -> Array:
        """Return whether accesses are ordered after the atomic operations on their cells, except those of their own."""
        if self.updates is None:
            return np.ones(cells.shape, dtype=bool)
        return self.updates.ordered(cells, self.warp_of.take(actor), self.clock, self.lockstep, operation)

    def record_updates(self, cells: Array, actor: Array, operation: str) -> None:
        """`actor` threads change these cells by an atomic operation that is associative and commutative."""
        if self.updates is None:
            self.updates = SharedUpdates(self.warps, self.writer.size)
        warp = self.warp_of.take(actor)
        self.updates.record(cells, warp, self.clock.diagonal().take(warp), self.lockstep.take(warp), operation)
        if self.unfenced is not None:
            self.unfenced.written(cells)
        self.generation[cells] += 1
        self.generic[cells] = self.updated[cells] = True
        self.write_round[cells] = np.maximum(self.write_round.take(cells), self.round)

    def _after_other_writers(self, cells: Array, actor: Array) -> Array:
        """Return whether writes are ordered after those of all threads that wrote a cell without an order."""
        index, warp = self.other_writers[cells], self.warp_of[actor]
        found = np.ones(cells.shape, dtype=bool)
        for each in _indices(index):
            times, steps = self.writers[each]
            here = index == each
            mine = warp[here]
            seen = self.clock[mine][:, : times.size] >= times
            own = np.arange(times.size) == mine[:, None]
            found[here] = (seen | own).all(axis=1) & (self.lockstep[mine] > steps[mine])
        return found

    def has_pending(self, cells: Array) -> bool:
        """Return whether a warp may not have waited for an asynchronous access to one of these cells."""
        reads = self.reads_by_warp[:, cells] == PENDING
        if some(reads) or some(self.read[cells] == PENDING) or some(self.written[cells] == PENDING):
            return True
        seen = self._seen()
        return any(some(times[cells] > seen[agent]) for agent, times in self.reads_by_agent.items())

    def record_writes(self, cells: Array, actor: Array, unordered: Array, kept: Array) -> None:
        """`actor` threads write these cells, some of them after no order with earlier writes.

        `kept` marks writes of the very content that the cell already has.
        """
        writer, time, step = self.writer.take(cells), self.written.take(cells), self.written_step.take(cells)
        replaced = ~kept | ~unordered
        self._record_write(cells[replaced], actor[replaced], False)
        self.generation[cells[~kept]] += 1
        self.generic[cells] = True
        if self.fences:
            self.fenced[cells] = -1
        self.write_round[cells] = np.maximum(self.write_round.take(cells), self.round)
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
        own, places = self._numbered(cells)
        place = places[cells]
        # For each cell the times of all warps, then the steps of their lanes.
        accesses = np.zeros((own.size, 2, self.warps), dtype=np.int64)
        accesses[:, 1] = -1
        for index in _indices(before):
            there = place[before == index]
            accesses[there] = np.maximum(accesses[there], np.stack(self.writers[index]))
        warp = self.warp_of[actor]
        _raise_to(accesses, place, warp, self.clock.diagonal()[warp], self.lockstep[warp])
        others, writer, time, step = earlier
        other = self.warp_of[writer]
        inside = other < self.warps  # a copy engine's writes are followed by a wait
        _raise_to(accesses, places[others[inside]], other[inside], time[inside], step[inside])
        # Cells with equal accesses share an entry. The order by a sum of products brings equal rows together.
        order = np.argsort(accesses.reshape(own.size, -1) @ np.arange(1, 2 * self.warps + 1) ** 5)
        accesses = accesses[order]
        first = np.append(True, (accesses[1:] != accesses[:-1]).any(axis=(1, 2)))
        self.other_writers[own[order]] = len(self.writers) + np.cumsum(first) - 1
        self.writers += [(times, steps) for times, steps in accesses[first]]

    def _numbered(self, cells: Array) -> tuple[Array, Array]:
        """Return the distinct cells in ascending order, and for each of them its number, by cell."""
        present = np.zeros(self.writer.size, dtype=bool)
        present[cells] = True
        own = np.flatnonzero(present)
        numbers = np.empty(present.size, dtype=np.intp)
        numbers[own] = np.arange(own.size)
        return own, numbers

    def written_by_others(self, cells: Array, actor: Array) -> bool:
        """Return whether the last write of one of these cells is not that of the `actor` thread at its position."""
        return some(self.writer.take(cells) != actor)

    def fence(self, threads: Array, *, of_cluster: bool = True) -> None:
        """Make the writes of these threads (a boolean array) visible to asynchronous agents.

        The writes of other threads that are ordered before the fence are visible to work that is ordered after it.
        `of_cluster`: their writes to the shared memory of other blocks as well.  Their earlier reads end before it.
        """
        self.fence_reads(threads, slice(None))
        self._fence_writes(threads, None)

    def _fence_writes(self, threads: Array, kept: tuple[int, int] | None) -> None:
        """Make writes visible, see `fence`: of all cells, or of those with a remainder `kept[0]` modulo `kept[1]`."""
        mine = np.flatnonzero((self.writer >= 0) & (self.writer < threads.size))
        writer = self.writer[mine]
        # Who sees such a write sees this fence, since nothing published the write in between.
        current = threads[writer] & (self.written[mine] == self.clock.diagonal().take(self.warp_of.take(writer)))
        if kept is not None:
            current &= mine % kept[1] == kept[0]
        self.generic[mine[current]] = False
        rest = np.flatnonzero(self.generic if kept is None else self.generic[kept[0] :: kept[1]])
        if kept is not None:
            rest = rest * kept[1] + kept[0]
        if rest.size:
            self._fence_of_published(rest, threads)

    def fence_reads(self, threads: Array, cells: slice) -> None:
        """The reads of these threads (a boolean array) of some cells end before what they do next."""
        if self.unfenced is not None:
            lanes = np.arange(self.warps * self.warp) >= self.threads  # those that do not exist
            lanes[: threads.size] |= threads
            self.unfenced.fence(lanes, self.warp, cells, self.clock.diagonal())

    def _fence_of_published(self, cells: Array, threads: Array) -> None:
        """These threads execute a fence after these cells were written by other threads, or by them and published."""
        actors = np.unique(np.flatnonzero(threads) // self.warp) * self.warp
        writer = self.writer[cells]
        accesses = writer, self.written[cells], self.written_step[cells]
        own = (writer >= 0) & (writer < threads.size) & (self.written[cells] != PENDING)
        own[own] = threads[writer[own]]
        seen = np.array(
            [
                self._ordered(np.full(cells.shape, actor), *accesses)
                | (own & (writer // self.warp == actor // self.warp))
                for actor in actors.tolist()
            ]
        )
        earlier = self.fenced[cells]
        # Cells that are alike follow each other, also where they are not neighbours.
        alike, first, number = _alike(np.vstack([earlier, seen]))
        for place in range(len(first)):
            index, of_warps = int(earlier[first[place]]), seen[:, first[place]]
            before = self.fences[index] if index >= 0 else {}
            merged = {
                **{warp: int(self.clock[warp, warp]) for warp in (actors[of_warps] // self.warp).tolist()},
                **before,
            }
            if merged.keys() != before.keys():
                self.fenced[cells[alike[number[place] : number[place + 1]]]] = len(self.fences)
                self.fences.append(merged)

    def _visible_after_fences(self, cells: Array, actor: int) -> bool:
        """Return whether a fence makes these cells, which threads wrote, visible to asynchronous work of `actor`."""
        warp = actor // self.warp
        fenced = self.fenced[cells]
        if fenced.size and fenced.min() < 0:
            return False
        for index in _indices(fenced):
            fences = self.fences[index]
            if not any(other == warp or self.clock[warp, other] >= time for other, time in fences.items()):
                return False
        return True

    def fence_initialisations(self, cells: Array, threads: Array) -> None:
        """These threads publish their initialisations of memory barriers in these cells at a barrier of the cluster.

        It has no effect on blocks without access to the shared memory of others.
        """

    def finished(self, cells: Array, actor: Array) -> None:
        """The pending writes of `actor` threads to these cells are complete and visible to them."""
        self._require(cells)
        still = (self.writer[cells] == actor) & (self.written[cells] == PENDING)
        self._record_write(cells[still], actor[still], False)

    def arrived(self, cells: Array, *barriers: int, engine: int = 0, ago: int = 1) -> None:
        """A copy engine's write is complete and visible to threads that wait for the phases of the memory barriers.

        The phases are the last but `ago` - 1 that have ended.
        `engine` numbers the copy engines.  Copies that complete on different barriers are not ordered among each other.
        """
        self._require(cells)
        self._record_deferred()
        agent = self._agent(engine, *barriers)
        self.clock[agent, agent] += 1
        self.read[cells] = 0
        self._forget_agent_reads(cells)
        self.writer[cells] = agent * self.warp
        self.written[cells] = self.clock[agent, agent]
        self.write_round[cells] = NO_BARRIER_SUFFICES
        self.generic[cells] = False
        for barrier in barriers:
            self.phases[barrier].publish(self.clock[agent].copy(), ago)

    def _agent(self, *key: int) -> int:
        """The number of the clock of an agent, such as the copies of an engine that complete on the same barriers."""
        found = self.agents.get(key)
        if found is None:
            found = self.agents[key] = len(self.clock)
            self.clock = with_further_agent(np.append(self.clock, np.zeros_like(self.clock[:1]), axis=0))
            self.clock[found, found] = 1
            self.lockstep = with_further_agent(self.lockstep)
            self.causes = with_further_agent(self.causes)
            self.warp_of = np.append(self.warp_of, np.full(self.warp, found))
            self.arrived_at = {barrier: with_further_agent(clock) for barrier, clock in self.arrived_at.items()}
            for phases in self.phases.values():
                phases.resize()
        return found

    def _record_write(self, cells: Array, actor: Array, pending: bool) -> None:
        warp = self.warp_of.take(actor)
        self._forget_agent_reads(cells)
        if self.unfenced is not None:
            self.unfenced.written(cells)
        self.writer[cells] = actor
        self.updated[cells] = False
        self.written[cells] = PENDING if pending else self.clock.diagonal().take(warp)
        self.written_step[cells] = self.lockstep.take(warp)
        self.write_round[cells] = NO_BARRIER_SUFFICES if pending else self.round

    def _forget_agent_reads(self, cells: Array) -> None:
        """A write of these cells that is ordered after the reads of agents replaces them."""
        for times in self.reads_by_agent.values():
            times[cells] = 0

    def pending_reads(self, cells: Array, actor: int) -> None:
        """An asynchronous agent started by thread `actor` reads these cells until `finished_reads`.

        Raises Unsupported for a race, and for bytes that threads wrote without a proxy fence after it.
        """
        self._check_asynchronous_read(cells, actor)
        self._record_deferred()
        self.has_asynchronous_reads = True
        self.reader[cells] = actor
        self.read[cells] = PENDING
        self.read_round[cells] = NO_BARRIER_SUFFICES
        self.reads_by_warp[actor // self.warp, cells] = PENDING
        self.warps_with_agents |= {actor // self.warp}

    def _check_asynchronous_read(self, cells: Array, actor: int) -> None:
        self._require(cells)
        if self._of_this_round(self.write_round, cells):
            who = np.full(cells.shape, actor, dtype=np.int64)
            if not self._ordered(who, self.writer[cells], self.written[cells], self.written_step[cells]).all():
                reason = (
                    "a matrix instruction reads shared memory that another thread wrote with no barrier between (a "
                    "race)"
                )
                raise race(Kind.SHARED, reason, None)
        if some(self.updated.take(cells)):
            raise Unsupported("an asynchronous instruction reads shared memory that atomic operations have changed")
        generic = cells[self.generic.take(cells)]
        if generic.size and not self._visible_after_fences(generic, actor):
            raise Unsupported(
                "an asynchronous instruction reads shared memory that threads wrote with no proxy fence after it"
            )

    def agent_reads(self, cells: Array, access: AgentAccess) -> None:
        """An agent reads these cells of shared memory.

        Raises Unsupported for a race, and for bytes that threads wrote without a proxy fence after it.
        """
        self._check_asynchronous_read(cells, access.thread)
        agent = self._agent(*access.agent)
        if agent not in self.reads_by_agent:
            self.reads_by_agent[agent] = np.zeros(self.writer.size, dtype=np.int32)
        self.reads_by_agent[agent][cells] = self.clock[agent, agent]

    def agent_accesses(self, memory: str, cells: Array, access: AgentAccess) -> None:
        """An agent accesses these cells of a memory that only agents access.  Raises Race."""
        agent = self._agent(*access.agent)
        seen = self.clock[access.thread // self.warp]
        accesses = self.agent_memories.setdefault(memory, AgentMemory())
        if accesses.record(cells, access, agent, int(self.clock[agent, agent]), seen).any():
            raise race(Kind.AGENTS, AGENT_RACE.format(memory=memory), None)

    def begin_completion(self, thread: int) -> None:
        """A thread issues an instruction whose arrivals at memory barriers come when all its earlier work is complete.

        `agent_arrives` and `agent_completes` make the arrivals of the last such instruction.
        """
        column = self._agent(_COMPLETIONS, thread // self.warp)
        self.clock[column, column] += 1

    def agent_arrives(self, agent: tuple[int, ...], thread: int, barrier: int, *, in_order: bool = False) -> None:
        """All work of an agent that a thread has issued so far arrives at a memory barrier once it is complete.

        Threads that wait for the barrier also see what the thread has seen, and what it has published itself.

        It does not matter which of several arrivals of a thread ends a phase, since the later one implies the earlier.
        So an earlier one at the same barrier counts as having come before.  `in_order`: it has come before at other
        barriers too, and the arrivals of one instruction come together.
        """
        published = self.clock[thread // self.warp].copy()
        published[thread // self.warp] -= 1
        self._agent_publishes(agent, thread, published, barrier, in_order)

    def agent_completes(self, agent: tuple[int, ...], thread: int, barrier: int, *, in_order: bool = False) -> None:
        """As `agent_arrives`, but threads that wait for the barrier see the work of the agent only.

        That the phase has ended says to them which other phases had ended before, as the thread knew.
        """
        self._agent_publishes(agent, thread, np.zeros_like(self.clock[0]), barrier, in_order)

    def _agent_publishes(
        self, agent: tuple[int, ...], thread: int, published: Array, barrier: int, in_order: bool
    ) -> None:
        warp = thread // self.warp
        number, column = self._agent(*agent), self._agent(_COMPLETIONS, warp)
        published = np.pad(published, (0, len(self.clock) - published.size))
        self.check_phase(barrier, np.array([warp]), column)
        arrivals, causes = np.zeros(self.causes.shape[1], dtype=np.int32), self.causes[warp].copy()
        arrivals[column] = self.clock[column, column]
        if in_order:
            causes[column] = arrivals[column]
        self.phases[barrier].arrive(arrivals, causes)
        published[number] = self.clock[number, number]
        before = self.arrived_at.get(barrier)
        self.arrived_at[barrier] = published if before is None else np.maximum(before, published)
        self.clock[number, number] += 1

    def wait_for_agent(self, agent: tuple[int, ...], thread: int) -> None:
        """The warp of a thread waits until all work of an agent is complete."""
        number = self._agent(*agent)
        self.clock[thread // self.warp, number] = self.clock[number, number]
        self.clock[number, number] += 1

    def state_key(self) -> bytes:
        """Bytes that are equal for two detectors of one `state`, and that take less time."""
        return np.maximum(self.clock - self._seen(), 0).tobytes() if self._has_agents() else b""

    def _seen(self) -> Array:
        """Return for each warp and agent the time that all warps have seen."""
        seen: Array = self.clock[: self.warps].min(axis=0)
        return seen

    def _has_agents(self) -> bool:
        return bool(self.reads_by_agent or self.agent_memories or self.fences)

    def state(self) -> bytes | None:
        """Bytes that are equal for two detectors only if every later access is a race in both or in neither.

        None if every access so far is complete and ordered before the next access of each thread.  Only the order of
        earlier accesses and the next accesses matters, so that times which all warps have seen are equal, and other
        times count from these.  The numbers of generations are names, and not a part of the state (see `absorb`).
        """
        self._record_deferred()
        seen = self._seen()
        # Every access before the last barrier of all warps is ordered before all later ones.
        recent = np.flatnonzero((self.read_round >= self.round) | (self.write_round >= self.round) | self.generic)
        late_reads = self.reads_by_warp[:, recent] > seen[: self.warps, None]
        lanes = self.lane_by_warp[:, recent]
        unordered_lanes = self.step_by_warp[:, recent] > self.lockstep[: self.warps, None]
        matters = late_reads.any(axis=0) | unordered_lanes.any(axis=0) | self.generic[recent]
        accesses = [(self.writer, self.written, self.written_step), (self.reader, self.read, self.read_step)]
        for actor, time, step in ((who[recent], at[recent], place[recent]) for who, at, place in accesses):
            warp = np.maximum(actor, 0) // self.warp
            matters |= (actor >= 0) & ((time > seen[warp]) | (step >= self.lockstep[warp]))
        cells, lanes, unordered_lanes = recent[matters], lanes[:, matters], unordered_lanes[:, matters]
        several, writers = self._late_writers(seen)
        agents = self._has_agents()
        tracked = self.arrived_at or self.phases or self.tracked or self.meetings
        pending = bool(tracked) or self.updates is not None or bool(self.updated.any())
        unfenced = () if self.unfenced is None else tuple(self.unfenced.state(seen[: self.warps]))
        if not cells.size and not pending and not several.size and not agents and not any(map(len, unfenced)):
            return None

        def since(times: Array, base: Array) -> Array:
            return np.where(times == PENDING, times, np.maximum(times - base, 0))

        parts: list[Array] = [cells, np.maximum(self.clock - seen[None], 0)]
        for actor, time, step in ((who[cells], at[cells], place[cells]) for who, at, place in accesses):
            warp = np.maximum(actor, 0) // self.warp
            late, unordered = since(time, seen[warp]), step >= self.lockstep[warp]
            used = (actor >= 0) & ((late > 0) | unordered)
            parts += [np.where(used, actor, -1), np.where(used, late, 0), used & unordered]
        parts += [
            since(self.reads_by_warp[:, cells], seen[: self.warps, None]),
            np.where(unordered_lanes, lanes, -1),
            self.generic[cells],
        ]
        parts += [several, *writers, np.flatnonzero(self.updated), *unfenced]
        if self.updates is not None:
            parts += [self.clock, self.lockstep, *self.updates.state()]
        if agents:
            parts += self._state_of_agents(cells, seen)
        parts.append(np.frombuffer(repr([*self.agents.items()]).encode(), dtype=np.uint8))  # what the clocks are of
        found: list[bytes] = []
        for part in parts:
            found += [part.size.to_bytes(8, "little"), part.tobytes()]
        found.append(len(self.arrived_at).to_bytes(8, "little"))
        for barrier in sorted(self.arrived_at):
            found += [barrier.to_bytes(8, "little"), np.maximum(self.arrived_at[barrier] - seen, 0).tobytes()]
        if self.phases:
            counted = self.causes.min(axis=0)
            completions = [number for key, number in self.agents.items() if key[0] == _COMPLETIONS]
            counted[completions] = self.clock.diagonal()[completions]  # who may know of them, does
            found.append((self.causes - counted).tobytes())
            for barrier in sorted(self.phases):
                found.append(barrier.to_bytes(8, "little"))
                for piece in self.phases[barrier].state(seen, counted, self._is_idle_since):
                    found += [len(piece).to_bytes(8, "little"), piece]
        for number, (warps, times) in sorted(self.meetings.items()):
            found += [number.to_bytes(8, "little"), warps.tobytes(), (times - seen[warps]).tobytes()]
        if self.tracked:  # their times count from the start, and so do the clocks next to them
            found += [
                self.clock.tobytes(),
                repr(sorted((key, *each.items()) for key, each in self.tracked.items())).encode(),
            ]
        return b"".join(found)

    def _state_of_agents(self, cells: Array, seen: Array) -> Iterator[Array]:
        """Yield what `state` holds of the accesses of agents, and of fences; `cells` are those that it holds."""
        for agent, read in sorted(self.reads_by_agent.items()):
            late = np.flatnonzero(read > seen[agent])
            # A write before a read is ordered before what is ordered after the read.
            yield from (np.full(1, agent, dtype=np.int64), late, read[late] - seen[agent], read[cells] > 0)
        fenced = np.where(self.generic[cells], self.fenced[cells], -1)
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for index in _indices(fenced):
            # All warps have seen a fence whose time counts as 0.
            times = {warp: max(time - int(seen[warp]), 0) for warp, time in self.fences[index].items()}
            known = ((-1, 0),) if 0 in times.values() else tuple(sorted(times.items()))
            alike.setdefault(known, []).append(index)
        for known, indices in sorted(alike.items()):
            yield from (np.flatnonzero(np.isin(fenced, indices)), np.array(known, dtype=np.int64))
        for name, memory in sorted(self.agent_memories.items()):
            yield np.frombuffer(name.encode(), dtype=np.uint8)
            yield from memory.state(seen)

    def _late_writers(self, seen: Array) -> tuple[Array, list[Array]]:
        """Return the cells with several writers that do not come before the next access of every thread.

        For each of them, in their order, the times of the writers since `seen` follow, and whether the lanes of a warp
        are not in step since then.
        """
        late: dict[int, tuple[Array, Array]] = {}
        step, own = self.lockstep[: self.warps], np.eye(self.warps, dtype=bool)
        for index in _indices(self.other_writers):
            times, steps = self.writers[index]
            if not ((self.clock[: self.warps, : self.warps] >= times) | own).all() or not (step > steps).all():
                late[index] = np.maximum(times - seen[: self.warps], 0), steps >= step
        cells = np.flatnonzero(np.isin(self.other_writers, list(late)))
        return cells, [part for index in self.other_writers[cells].tolist() for part in late[index]]

    def absorb(self, other: RaceDetector) -> None:
        """Stand for another detector of the same state too.

        Generations are numbered anew from the higher number on.  A write that comes too late contests all from the
        older of the settled ones on, whichever of the two numbered what was read.
        """
        size = max(self.writer.size, other.writer.size)
        if self.writer.size < size:
            self._resize(size)
        here = slice(0, other.writer.size)
        self.settled[here] = np.minimum(self.settled[here], other.settled)
        self.settled[other.writer.size :] = 0
        self.generation[here] = np.maximum(self.generation[here], other.generation)

    def finished_reads(self, cells: Array, actor: int) -> None:
        """All reads of these cells that the warp of `actor` started are complete, ordered for that warp.

        Each cell occurs once; they ascend.
        """
        self._require(cells)
        self._record_deferred()
        where, warp = _as_slice(cells), actor // self.warp
        read, mine = self.read[where], self.reads_by_warp[warp, where]
        reader = self.reader[where]
        still = (read == PENDING) & (reader >= warp * self.warp) & (reader < (warp + 1) * self.warp)
        self.read[where] = np.where(still, self.clock[warp, warp], read)
        self.read_step[where] = np.where(still, self.lockstep[warp], self.read_step[where])
        self.reads_by_warp[warp, where] = np.where(mine == PENDING, self.clock[warp, warp], mine)
        pending = self.read[where] == PENDING
        for each in self.warps_with_agents:
            pending |= self.reads_by_warp[each, where] == PENDING
        self.read_round[where] = np.where(pending, NO_BARRIER_SUFFICES, self.round)


def _grown(values: Array, cells: int, fill: int) -> Array:
    """Return an array with more cells along its last axis."""
    shape = (*values.shape[:-1], cells)
    # Zeros take no memory before they are written.
    found = np.full(shape, fill, dtype=values.dtype) if fill else np.zeros(shape, dtype=values.dtype)
    found[..., : values.shape[-1]] = values
    return found


def _alike(columns: Array) -> tuple[Array, Array, Array]:
    """Return the columns of a table of integers, sorted, the first one of each set of equal ones, and where it begins.

    The last array has one more element: the number of columns.
    """
    changes = np.flatnonzero((columns[:, 1:] != columns[:, :-1]).any(axis=0)) + 1
    runs = np.append(0, changes)  # neighbours are mostly equal
    _, inverse = np.unique(columns[:, runs], axis=1, return_inverse=True)
    length = np.diff(np.append(runs, columns.shape[1]))
    of_column = np.repeat(np.ravel(inverse), length)
    order = np.argsort(of_column, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(of_column[order]) != 0))
    return order, order[begins], np.append(begins, columns.shape[1])


def _indices(indices: Array) -> list[int]:
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


@lru_cache(maxsize=256)
def _no_lanes(count: int) -> Array:
    found = np.zeros(count, dtype=bool)
    found.setflags(write=False)
    return found


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
