"""Race detection for blocks that access each other's shared memory: one set of vector clocks for a cluster.

The warps of all blocks of a cluster have clocks in one detector, and so has the copy engine of each block.  Barriers of
one block order the accesses of its own warps.  Barriers of the cluster, and memory barriers of other blocks, order
accesses between blocks.

The shared memory of a block exists from the start of the block to its end.  An access of another block must come after
the former and before the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bitwise_core.execution.alternatives import Ways
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.races.proxy_fences import VisibleCopies
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.race_histories import History, RaceDetectors
from bitwise_core.execution.races.undetermined import READ_RACE, Kind, race
from bitwise_core.execution.races.vector_clocks import PENDING
from bitwise_core.execution.values.symbolic_vector import Array

_COUNTED_USES = -3
"""What the key of an agent begins with that stands for the counted uses of a memory barrier."""

_ENDED_READS = -4
"""What the key of an agent begins with that stands for the ended reads of a warp."""

MAXIMUM_HISTORIES = 64
"""The largest number of histories of the clusters of a batch."""


class ClusterDetector(RaceDetector):
    """Clocks and last accesses of clusters of `size` blocks with the same history.

    A block of rank r has the warps from r * `block_warps` on.  Its cell c is cell c * `size` + r here.
    """

    def __init__(self, cells: int, threads: int, warp: int, size: int, copies: VisibleCopies | None = None) -> None:
        self.size, self.block_warps = size, -(-threads // warp)
        super().__init__(cells * size, size * self.block_warps * warp, warp, copies)
        self.waited: Array = np.zeros(self.warps, dtype=np.int32)
        """The time of each warp when it had first waited for a barrier of the cluster, after which all blocks have
        started; 0 before."""
        self.reached: Array = np.zeros((size, self.warps), dtype=np.int32)
        """The time of each warp's last access to the shared memory of another block, by the rank of that block."""
        self.reached_at: Array = np.zeros((size, self.warps), dtype=np.int64)
        """The lines of these accesses."""
        self.reached_by_agents: dict[tuple[int, int], int] = {}
        """The time of the last read of another block's shared memory, by the number of the agent and that rank."""
        self.initialised: dict[int, tuple[tuple[Array, Array, Array], ...]] = {}
        """What a warp publishes at its next arrival at the cluster's barrier: cells, with their writers and times."""
        self.relaxed: set[int] = set()
        """The phases of the cluster's barrier at which a warp arrived without publishing its accesses."""
        self.causes_at: dict[int, Array] = {}
        """By phase of the cluster's barrier, what came before the arrivals there, as in `causes`."""
        self.first_arrival: dict[int, int] = {}
        """By warp, the time before which a lane of it first arrived at the current phase of the cluster's barrier."""
        self.met: Array = np.zeros(self.warps, dtype=np.int32)
        """The time of each warp after its last barrier of threads of its block, 0 for none."""
        self.ended_reads: dict[tuple[int, bytes], tuple[Array, int, bool]] = {}
        """Reads that end before what their threads do next: by warp and bytes of the cells, these cells, the time of
        the warp, and whether that holds only behind a barrier of threads of the block."""

    def copy(self) -> RaceDetector:
        """See `RaceDetector.copy`."""
        found = super().copy()
        assert isinstance(found, ClusterDetector)
        found.reached_by_agents, found.relaxed = dict(self.reached_by_agents), set(self.relaxed)
        found.initialised, found.first_arrival = dict(self.initialised), dict(self.first_arrival)
        found.causes_at, found.ended_reads = dict(self.causes_at), dict(self.ended_reads)
        found.waited, found.met = self.waited.copy(), self.met.copy()
        found.reached, found.reached_at = self.reached.copy(), self.reached_at.copy()
        return found

    def warps_of(self, rank: int) -> slice:
        """Return the warps of a block."""
        return slice(rank * self.block_warps, (rank + 1) * self.block_warps)

    def reach(self, actor: Array, ranks: Array, line: int, *, lasting: bool = True) -> None:
        """`actor` threads access the shared memory of the blocks of these ranks (flat arrays of one length).

        `lasting`: these blocks must not end before the access.  Raises Unsupported for one that may not have started.
        """
        for place in np.unique(actor // self.warp * self.size + ranks).tolist():
            warp, rank = divmod(place, self.size)
            if warp // self.block_warps != rank:
                self.check_started(warp, rank)
                if lasting:
                    self.reached[rank, warp] = self.order.clock[warp, warp]
                    self.reached_at[rank, warp] = line

    def reach_by_agent(self, access: AgentAccess, rank: int) -> None:
        """An agent accesses the shared memory of the block of a rank, which must not end before.

        Raises Unsupported if that block may not have started.
        """
        warp = access.thread // self.warp
        if warp // self.block_warps != rank:
            self.check_started(warp, rank)
            agent = self._agent(*access.agent)
            self.reached_by_agents[agent, rank] = int(self.order.clock[agent, agent])

    def counted_uses(self, cells: Array, actor: Array, barriers: Sequence[int]) -> None:
        """`actor` threads use a memory barrier in these cells in a way that its current phase counts.

        `barriers` are its keys.  Who waits for the phase comes after these uses, whatever they publish.  Raises Race
        for a use that is not ordered after the last write of the cells.
        """
        self._require(cells)
        if not self.accesses.come_after_write(cells, actor).all():
            raise race(Kind.SHARED, READ_RACE.replace("reads", "uses a memory barrier in", 1), None)
        agent = self._agent(_COUNTED_USES, *barriers)
        self.accesses.record_agent_read(cells, agent)
        for barrier in barriers:
            self._publish(barrier, agent)
        self.order.clock[agent, agent] += 1

    def check_started(self, warp: int, rank: int) -> None:
        """Raise Unsupported if a warp accesses the shared memory of a block that may not have started."""
        seen = self.order.clock[warp, : self.warps]
        if ((self.waited > 0) & (seen >= self.waited)).any() or (seen[self.warps_of(rank)] > 0).any():
            return
        raise Unsupported(
            "a thread accesses the shared memory of another block, which may not have started: no barrier of the "
            "cluster comes before it"
        )

    def arrive_at_cluster(self, phase: int, warps: Array, *, publishes: bool) -> None:
        """These warps arrive at a barrier of the cluster, and publish their accesses unless it is relaxed."""
        own = self.barriers.causes[warps].max(axis=0)
        before = self.causes_at.get(phase, np.zeros(0, dtype=np.int32))
        self.causes_at[phase] = np.maximum(own, np.pad(before, (0, own.size - before.size)))
        for warp in warps.tolist():
            self.first_arrival.setdefault(warp, int(self.order.clock[warp, warp]))
        if publishes:
            self.arrive(-1 - phase, warps)
        else:
            self.relaxed.add(phase)
            self._publish_complete_reads(phase, set(warps.tolist()))
            for warp in warps.tolist():
                for accesses in self.initialised.pop(warp, ()):
                    self._publish_initialisations(phase, warp, accesses)

    def barrier(self, warps: Array, number: int | None = None) -> None:
        """See `RaceDetector.barrier`."""
        super().barrier(warps, number)
        self.met[warps] = self.order.clock[warps, warps]

    def loads(self, cells: Array, actor: Array, line: int) -> None:
        """See `RaceDetector.loads`: those that are excused end at the next barrier of their block."""
        super().loads(cells, actor, line)
        excuses = None if self.unfenced is None else self.unfenced.excused
        if excuses is not None and excuses.size and cells.min() <= excuses[-1] and cells.max() >= excuses[0]:
            excused = np.isin(cells, excuses)
            for warp in np.unique(actor[excused] // self.warp).tolist():
                self._complete_reads(warp, np.unique(cells[excused & (actor // self.warp == warp)]), True)

    def reads(self, cells: Array, actor: Array, what: str = "reads") -> None:
        """See `RaceDetector.reads`: an arrival at a memory barrier has not ended because an earlier wait has."""
        super().reads(cells, actor, what)
        if self.ended_reads and what != "reads":
            used = np.unique(cells).tobytes()
            for warp in np.unique(actor // self.warp).tolist():
                self.ended_reads.pop((warp, used), None)

    def waited_at(self, cells: Array, warps: Array) -> None:
        """See `RaceDetector.waited_at`."""
        for warp in warps.tolist():
            self._complete_reads(warp, cells, False)

    def _complete_reads(self, warp: int, cells: Array, behind_barrier: bool) -> None:
        self.ended_reads[warp, cells.tobytes()] = cells, int(self.order.clock[warp, warp]), behind_barrier

    def _publish_complete_reads(self, phase: int, warps: set[int]) -> None:
        """These warps arrive at a relaxed barrier of the cluster, before which some of their reads have ended.

        They become those of an agent, whose clock holds nothing else that the warp has done.
        """
        self.accesses.record_deferred()
        for key, (cells, time, behind) in list(self.ended_reads.items()):
            warp = key[0]
            if warp not in warps or (behind and self.met[warp] <= time):
                continue
            del self.ended_reads[key]
            agent = self._agent(_ENDED_READS, warp)
            self.accesses.give_reads_to_agent(cells, warp, time, agent)
            self.order.clock[warp, agent] = self.order.clock[agent, agent]
            self._publish(-1 - phase, agent)

    def _publish(self, barrier: int, agent: int) -> None:
        """What an agent has done so far becomes visible to those that wait for the current phase of a barrier."""
        published = np.zeros_like(self.order.clock[agent])
        published[agent] = self.order.clock[agent, agent]
        self.barriers.publish(barrier, published)

    def fence_initialisations(self, cells: Array, threads: Array) -> None:
        """See `RaceDetector.fence_initialisations`; `threads` are their numbers."""
        self._require(cells)
        self.accesses.record_deferred()
        for thread in threads.tolist():
            writer, written = self.accesses.writer, self.accesses.written
            mine = cells[(writer[cells] == thread) & (written[cells] != PENDING)]
            warp = thread // self.warp
            accesses = mine, writer[mine], written[mine]
            self.initialised[warp] = (*self.initialised.get(warp, ()), accesses)

    def _publish_initialisations(self, phase: int, warp: int, accesses: tuple[Array, Array, Array]) -> None:
        """The writes with these cells, writers and times become visible to the threads that wait for the phase.

        They become those of an agent, whose clock holds nothing else that the warp has done.
        """
        cells, writer, written = accesses
        cells = cells[(self.accesses.writer[cells] == writer) & (self.accesses.written[cells] == written)]
        agent = self._agent(-1, warp)
        self.order.clock[agent, agent] += 1
        self.accesses.set_agent_as_writer(cells, agent)
        self._publish(-1 - phase, agent)

    def wait_for_cluster(self, phase: int, warps: Array) -> None:
        """These warps have waited for a phase of the cluster's barrier at which all its threads have arrived."""
        # Others have seen earlier times only, so that whoever sees this one comes after the wait.
        self.order.clock[warps, warps] += 1
        self.waited[warps] = np.where(self.waited[warps] > 0, self.waited[warps], self.order.clock[warps, warps])
        published = self.barriers.arrived_at.get(-1 - phase)
        if published is not None:
            self.order.clock[warps] = np.maximum(self.order.clock[warps], published)
        before = self.causes_at.get(phase, np.zeros(0, dtype=np.int32))
        self.barriers.causes[warps, : before.size] = np.maximum(self.barriers.causes[warps, : before.size], before)
        for warp in warps.tolist():
            arrival = self.first_arrival.pop(warp, None)
            if phase not in self.relaxed and arrival is not None and self._is_idle_since(warp, arrival):
                self.order.lockstep[warp] += 1

    def finish(self) -> None:
        """All blocks have ended.  Raises Unsupported if one may have ended before an access to its shared memory."""
        accesses = self.accesses
        foreign = np.flatnonzero((accesses.written == PENDING) & (accesses.writer >= 0))
        writers = accesses.writer[foreign] // self.warp // self.block_warps
        if (writers != foreign % self.size).any():
            raise Unsupported("a block may end before a copy to its shared memory that another block has started")
        for rank in range(self.size):
            own = self.warps_of(rank)
            seen = self.order.clock[own].max(axis=0)[: self.warps]
            late = self.reached[rank] > seen
            late[own] = False
            if late.any():
                raise Unsupported(
                    "a block may end before another block of its cluster accesses its shared memory: no barrier of the "
                    "cluster comes after the access",
                    int(self.reached_at[rank][late][0]),
                )
        for (agent, rank), time in self.reached_by_agents.items():
            if time > self.order.clock[self.warps_of(rank), agent].max():
                raise Unsupported(
                    "a block may end before asynchronous work of another block of its cluster reads its shared memory: "
                    "no thread of the block waits for that work"
                )


class BlockOfCluster(RaceDetector):
    """The races of one block of a cluster, with its own warps, threads and cells; the cluster's detector holds them."""

    def __init__(self, detector: ClusterDetector, rank: int) -> None:
        self.detector, self.rank = detector, rank
        self.warps = detector.block_warps

    def _cells(self, cells: Array) -> Array:
        return cells * self.detector.size + self.rank

    def _actors(self, actor: Array) -> Array:
        return actor + self.rank * self.detector.block_warps * self.detector.warp

    def _warps(self, warps: Array) -> Array:
        return warps + self.rank * self.detector.block_warps

    def _keys(self, barrier: int) -> tuple[int, int]:
        """The keys of a memory barrier: for what the cluster publishes to it, and for what its own block does."""
        key = 2 * (barrier * self.detector.size + self.rank)
        return key, key + 1

    def barrier(self, warps: Array, number: int | None = None) -> None:
        """See `RaceDetector.barrier`: blocks have barriers of their own."""
        self.detector.barrier(self._warps(warps), None if number is None else number * self.detector.size + self.rank)

    def warp_barrier(self, warps: Array) -> None:
        """See `RaceDetector.warp_barrier`."""
        self.detector.warp_barrier(self._warps(warps))

    def arrive(self, barrier: int, warps: Array, whole: Sequence[int] = ()) -> None:
        """See `RaceDetector.arrive`: threads of the block itself arrive."""
        for key in self._keys(barrier):
            self.detector.arrive(key, self._warps(warps), self._warps(np.array(whole, dtype=np.int64)).tolist())

    def counted_uses(self, barrier: int, cells: Array, actor: Array) -> None:
        """Threads of the cluster use a memory barrier of this block, see `ClusterDetector.counted_uses`.

        `cells` and `actor` are numbered as in the cluster.
        """
        self.detector.counted_uses(cells, actor, self._keys(barrier))

    def arrive_from_cluster(self, barrier: int, rank: int, warps: Array) -> None:
        """Warps of the block of that rank arrive, and publish their accesses to all blocks of the cluster."""
        self.detector.arrive(self._keys(barrier)[0], warps + rank * self.detector.block_warps)

    def enter_phase(self, barrier: int, warps: Array, counted: set[tuple[int, int]] | None = None) -> None:
        """See `RaceDetector.enter_phase`: threads of the block itself arrive."""
        self.enter_phase_from_cluster(barrier, self.rank, warps, set() if counted is None else counted)

    def enter_phase_from_cluster(self, barrier: int, rank: int, warps: Array, counted: set[tuple[int, int]]) -> None:
        """Warps of the block of that rank arrive, see `enter_phase`."""
        for key in self._keys(barrier):
            self.detector.enter_phase(key, warps + rank * self.detector.block_warps, counted)

    def expect_later(self, barrier: int) -> None:
        """See `RaceDetector.expect_later`."""
        for key in self._keys(barrier):
            self.detector.expect_later(key)

    def begin(self, barrier: int, cells: Array) -> None:
        """See `RaceDetector.begin`."""
        for key in self._keys(barrier):
            self.detector.begin(key, self._cells(cells))

    def track_copies(self, barrier: int, threads: Array) -> None:
        """See `RaceDetector.track_copies`."""
        self.detector.track_copies(self._keys(barrier)[0], self._every(threads))

    def arrive_after_copies(self, barrier: int, threads: Array) -> None:
        """See `RaceDetector.arrive_after_copies`: arrivals of other blocks do not count."""
        self.detector.arrive_after_copies(self._keys(barrier)[0], self._every(threads))

    def _every(self, threads: Array) -> Array:
        """Return these threads of the block (a boolean array) among the threads of the cluster."""
        found = np.zeros(self.detector.threads, dtype=bool)
        first = self._actors(np.zeros(1, dtype=np.int64))[0]
        found[first : first + threads.size] = threads
        return found

    def complete(self, barrier: int) -> None:
        """See `RaceDetector.complete`."""
        for key in self._keys(barrier):
            self.detector.complete(key)

    def acquire(
        self, barrier: int, warps: Array, parity: int, whole: Sequence[int] = (), *, of_cluster: bool = False
    ) -> None:
        """See `RaceDetector.acquire`; `of_cluster`: other blocks' accesses become visible as well."""
        keys, all_lanes = self._keys(barrier), self._warps(np.array(whole, dtype=np.int64)).tolist()
        self.detector.acquire_counted(keys[0 if of_cluster else 1], self._warps(warps), parity, all_lanes, keys)

    def reads(self, cells: Array, actor: Array, what: str = "reads") -> None:
        """See `RaceDetector.reads`."""
        self.detector.reads(self._cells(cells), self._actors(actor), what)

    def writes(self, cells: Array, actor: Array, *, pending: bool = False, copied_at: int = 0) -> None:
        """See `RaceDetector.writes`."""
        self.detector.writes(self._cells(cells), self._actors(actor), pending=pending, copied_at=copied_at)

    def loads(self, cells: Array, actor: Array, line: int) -> None:
        """See `RaceDetector.loads`."""
        self.detector.loads(self._cells(cells), self._actors(actor), line)

    def excuse_loads(self, cells: Array) -> None:
        """See `RaceDetector.excuse_loads`."""
        self.detector.excuse_loads(self._cells(cells))

    def waited_at(self, cells: Array, warps: Array) -> None:
        """See `RaceDetector.waited_at`."""
        self.detector.waited_at(self._cells(cells), self._warps(warps))

    def copies_over(self, cells: Array, thread: int | Array, line: int) -> None:
        """See `RaceDetector.copies_over`."""
        first = self._thread(0)
        self.detector.copies_over(self._cells(cells), thread + first, line)

    def written_by_others(self, cells: Array, actor: Array) -> bool:
        """See `RaceDetector.written_by_others`."""
        return self.detector.written_by_others(self._cells(cells), self._actors(actor))

    def fence(self, threads: Array, *, of_cluster: bool = True) -> None:
        """See `RaceDetector.fence`."""
        every, detector = self._every(threads), self.detector
        if of_cluster:
            detector.fence(every)
            return
        detector.fence_reads(every, slice(self.rank, None, detector.size))
        detector.fences.fence(every, (self.rank, detector.size))

    def fence_initialisations(self, cells: Array, threads: Array) -> None:
        """See `RaceDetector.fence_initialisations`."""
        self.detector.fence_initialisations(self._cells(cells), self._actors(threads))

    def finished(self, cells: Array, actor: Array) -> None:
        """See `RaceDetector.finished`."""
        self.detector.finished(self._cells(cells), self._actors(actor))

    def arrived(self, cells: Array, *barriers: int, engine: int = 0, ago: int = 1, copied_at: int = 0) -> None:
        """See `RaceDetector.arrived`; the copy engine is that of the block."""
        keys = [key for barrier in barriers for key in self._keys(barrier)]
        self.detector.arrived(self._cells(cells), *keys, engine=self.rank + engine, ago=ago, copied_at=copied_at)

    def pending_reads(
        self, cells: Array, actor: int, together: Sequence[int] = (), *, sees_copies: bool = True
    ) -> None:
        """See `RaceDetector.pending_reads`."""
        others = [self._thread(each) for each in together]
        self.detector.pending_reads(self._cells(cells), self._thread(actor), others, sees_copies=sees_copies)

    def finished_reads(self, cells: Array, actor: int) -> None:
        """See `RaceDetector.finished_reads`."""
        self.detector.finished_reads(self._cells(cells), self._thread(actor))

    def _access(self, access: AgentAccess) -> AgentAccess:
        """Return an access with the agent and the thread as the cluster's detector numbers them."""
        issuer = self if access.rank is None else BlockOfCluster(self.detector, access.rank)
        return replace(access, agent=issuer._agent_of_block(access.agent), thread=issuer._thread(access.thread))

    def _agent_of_block(self, agent: tuple[int, ...]) -> tuple[int, ...]:
        return *agent, self.rank

    def _thread(self, thread: int) -> int:
        return thread + self.rank * self.detector.block_warps * self.detector.warp

    def agent_reads(self, cells: Array, access: AgentAccess) -> None:
        """See `RaceDetector.agent_reads`."""
        of_cluster = self._access(access)
        self.detector.reach_by_agent(of_cluster, self.rank)
        self.detector.agent_reads(self._cells(cells), of_cluster)

    def agent_accesses(self, memory: str, cells: Array, access: AgentAccess) -> None:
        """See `RaceDetector.agent_accesses`: each block has a memory of its own."""
        self.detector.agent_accesses(memory, self._cells(cells), self._access(access))

    def begin_completion(self, thread: int) -> None:
        """See `RaceDetector.begin_completion`."""
        self.detector.begin_completion(self._thread(thread))

    def agent_arrives(self, agent: tuple[int, ...], thread: int, barrier: int, *, in_order: bool = False) -> None:
        """See `RaceDetector.agent_arrives`."""
        work, actor = self._agent_of_block(agent), self._thread(thread)
        for key in self._keys(barrier):
            self.detector.agent_arrives(work, actor, key, in_order=in_order)

    def agent_arrives_from_cluster(
        self, agent: tuple[int, ...], thread: int, rank: int, barrier: int, *, in_order: bool = False
    ) -> None:
        """All work of an agent of the block of that rank arrives at a memory barrier of this block once it is complete.

        Threads that wait for the barrier see this work.  Those that wait for what the cluster publishes also see what
        `thread`, of the block of that rank, has seen and published.
        """
        issuer = BlockOfCluster(self.detector, rank)
        of_cluster, own = self._keys(barrier)
        work, actor = issuer._agent_of_block(agent), issuer._thread(thread)
        self.detector.agent_arrives(work, actor, of_cluster, in_order=in_order)
        self.detector.agent_completes(work, actor, own, in_order=in_order)

    def copied_from_cluster(self, cells: Array, barrier: int, rank: int, ago: int) -> None:
        """A copy to these cells has completed at a memory barrier of the block of that rank.  See `arrived`."""
        keys = BlockOfCluster(self.detector, rank)._keys(barrier)
        self.detector.arrived(self._cells(cells), *keys, engine=self.rank, ago=ago)

    def read_until(self, barrier: int, agent: tuple[int, ...], rank: int) -> None:
        """What an agent has read of the block of a rank has been read when the phase of a memory barrier ends.

        The barrier is in this block.  The block of that rank must not end before.
        """
        detector = self.detector
        number = detector._agent(*agent)
        detector.reached_by_agents[number, rank] = int(detector.order.clock[number, number])
        for key in self._keys(barrier):
            detector._publish(key, number)
        detector.order.clock[number, number] += 1

    def stored_from_cluster(self, cells: Array, barrier: int, ago: int) -> None:
        """Asynchronous stores of threads of the cluster to these cells have completed at a memory barrier of the block.

        `cells` are numbered as in the cluster.  Asynchronous agents read them as what threads wrote.  See `arrived`.
        """
        self.detector.arrived(cells, *self._keys(barrier), engine=self.rank, ago=ago)
        self.detector.fences.written_by_threads(cells)

    def wait_for_agent(self, agent: tuple[int, ...], thread: int) -> None:
        """See `RaceDetector.wait_for_agent`."""
        self.detector.wait_for_agent(self._agent_of_block(agent), self._thread(thread))


class ClusterRaceDetectors(RaceDetectors):
    """The race detectors of a batch of whole clusters of `size` blocks, which are adjacent, by ascending rank.

    Clusters share a detector while they do the same.  Beyond MAXIMUM_HISTORIES, Unsupported is raised.
    """

    def __init__(
        self, cells: int, threads: int, warp: int, blocks: int, size: int, copies: VisibleCopies | None = None
    ) -> None:
        super().__init__(cells, threads, warp, blocks, copies)
        self.size, self.clusters, self.threads = size, blocks // size, threads
        self._padded = self.warps * warp
        detector = ClusterDetector(cells, threads, warp, size, copies)
        self._histories = [History(np.ones(self.clusters, dtype=bool), detector)]

    def of_blocks(self, rows: Array) -> Sequence[RaceDetector]:
        """See `RaceDetectors.of_blocks`."""
        return [block for _, block in self.ranks_of(rows)]

    def ranks_of(self, rows: Array) -> list[tuple[Array, BlockOfCluster]]:
        """Return the races of the blocks in a boolean array of shape (blocks,), each with its rows of the batch."""
        chosen = rows.reshape(self.clusters, self.size)
        if not (chosen == chosen[0]).all():
            for pattern in np.unique(chosen, axis=0):
                self._split_histories((chosen == pattern).all(axis=1))
        found = []
        for history in self._histories:
            pattern = chosen[int(np.argmax(history.blocks))]
            for rank in np.flatnonzero(pattern).tolist():
                own = np.zeros((self.clusters, self.size), dtype=bool)
                own[history.blocks, rank] = True
                found.append((own.reshape(-1), BlockOfCluster(_cluster(history.detector), rank)))
        return found

    def at(self, cells: Array, mask: Array) -> Sequence[tuple[RaceDetector, Array]]:
        """See `RaceDetectors.at`."""
        found = []
        where = np.where(mask, cells, -1).reshape(self.clusters, self.size * self.threads)
        for detector, together in self._by_history(where):
            for rank, own in enumerate(together.reshape(self.size, self.threads)):
                if (own >= 0).any():
                    found.append((BlockOfCluster(_cluster(detector), rank), own))
        return found

    def remote(self, cells: Array, ranks: Array, mask: Array) -> Iterator[tuple[ClusterDetector, Array, Array, Array]]:
        """Yield the detectors of accesses to the shared memory of the cluster, with cells, threads and ranks.

        `cells` and `ranks` (of the block whose memory is accessed) have the shape (blocks, threads), as `mask` has.
        The cells and threads are those of the whole cluster, one of each for an access of a thread.
        """
        where = np.where(mask, cells * self.size + ranks, -1).reshape(self.clusters, self.size * self.threads)
        for detector, together in self._by_history(where):
            lanes = np.flatnonzero(together >= 0)
            accessed = together[lanes]
            actors = lanes // self.threads * self._padded + lanes % self.threads
            yield _cluster(detector), accessed, actors, accessed % self.size

    def all(self) -> Sequence[RaceDetector]:
        """See `RaceDetectors.all`."""
        return self.of_blocks(np.ones(self.blocks, dtype=bool))

    def detectors(self, rows: Array) -> list[tuple[ClusterDetector, Array]]:
        """Return the detectors of these clusters, each with its own; `rows` and these have the shape (clusters,)."""
        self._split_histories(rows)
        return [(_cluster(each.detector), each.blocks) for each in self._histories if (each.blocks & rows).any()]

    def finish(self) -> None:
        """See `ClusterDetector.finish`."""
        for history in self._histories:
            _cluster(history.detector).finish()

    def with_alternatives(self, other: RaceDetectors, ways: Ways | None = None) -> RaceDetectors:
        """Raises Unsupported: the histories of a cluster are not compared, and whole blocks take no side by data."""
        raise Unsupported("data decides between histories of shared memory in a cluster of blocks")

    def forget_what_is_ordered(self) -> None:
        """See `RaceDetectors.forget_what_is_ordered`; histories of different clusters stay apart."""

    def _check_number(self) -> None:
        if len(self._histories) >= MAXIMUM_HISTORIES:
            raise Unsupported("the clusters of the launch diverge too often to detect races between their blocks")


def _cluster(detector: RaceDetector) -> ClusterDetector:
    assert isinstance(detector, ClusterDetector)
    return detector
