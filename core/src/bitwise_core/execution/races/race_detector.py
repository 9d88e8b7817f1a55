"""Race detection for shared memory: what the threads and asynchronous agents of a block do, in the order of execution.

Two accesses of different threads to one cell, of which at least one writes, are a race unless vector clocks order them
(`vector_clocks`).  An access is compared with the last ones of its cell (`last_accesses`).  A memory barrier is waited
for by the parity of a phase (`memory_barriers`).  Asynchronous agents see what threads wrote after a fence only
(`proxy_fences`), and they may overtake earlier reads (`unfenced_reads`).

`reads` and `writes` raise for a race.  `unordered_reads` and `unordered_writes` return which accesses are races, and
the caller decides which values they leave undetermined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.memory.shared_updates import SharedUpdates
from bitwise_core.execution.races.agent_accesses import AgentAccess, AgentMemory
from bitwise_core.execution.races.last_accesses import LastAccesses, grown
from bitwise_core.execution.races.memory_barriers import MemoryBarriers
from bitwise_core.execution.races.proxy_fences import ProxyFences, VisibleCopies
from bitwise_core.execution.races.undetermined import (
    AGENT_RACE,
    OVERTAKEN_READ,
    OVERWRITE_RACE,
    READ_RACE,
    UNFENCED_COPY,
    UNFENCED_WRITE,
    WRITE_RACE,
    Kind,
    race,
)
from bitwise_core.execution.races.unfenced_reads import UnfencedReads
from bitwise_core.execution.races.vector_clocks import PENDING, VectorClocks
from bitwise_core.execution.values.symbolic_vector import Array, some

_PHASES = -2
"""The kind of the agents whose clocks count the ended phases of memory barriers."""

_COMPLETIONS = -7
"""The kind of the agents whose clocks count the instructions of a warp that arrive when its work is complete."""

_FIRST_CELLS = 64
"""The number of cells of a detector before its first access: most kernels use few, and many detectors are made."""


class RaceDetector:
    """Clocks and last accesses of blocks that have the same history of accesses and barriers."""

    def __init__(self, cells: int, threads: int, warp: int, copies: VisibleCopies | None = None) -> None:
        cells = min(cells, _FIRST_CELLS)
        self.order = VectorClocks(threads, warp)
        self.barriers = MemoryBarriers(self.order)
        self.accesses = LastAccesses(cells, self.order)
        self.fences = ProxyFences(cells, self.accesses, copies)
        self.threads, self.warp, self.warps = threads, warp, self.order.warps
        self.agent_memories: dict[str, AgentMemory] = {}
        """The accesses of memories that only agents access, by the name of the memory."""
        self.generation: Array = np.zeros(cells, dtype=np.int64)
        """How often the content of each cell was replaced by an access that may be a race."""
        self.settled: Array = np.zeros(cells, dtype=np.int64)
        """The generation of each cell at the last barrier of all warps: every earlier read is ordered before it."""
        self.updates: SharedUpdates | None = None
        """The atomic operations since the last barrier of all warps, None if there are none."""
        self.updated: Array = np.zeros(cells, dtype=bool)
        """Which cells atomic operations have changed since they were last written."""
        self.unfenced: UnfencedReads | None = None
        """The reads that an asynchronous write may overtake; None where they are not followed."""

    @property
    def size_in_bytes(self) -> int:
        """The size of the arrays."""
        parts = self, self.order, self.barriers, self.accesses, self.fences
        arrays = (value for part in parts for value in vars(part).values() if isinstance(value, np.ndarray))
        return sum(each.nbytes for each in arrays) + (0 if self.updates is None else self.updates.size_in_bytes)

    @property
    def cells(self) -> int:
        """The number of cells so far; an access to others makes room for them."""
        return self.accesses.cells

    def copy(self) -> RaceDetector:
        """Return an independent copy."""
        found = copy(self)
        found.order = self.order.copy()
        found.barriers = self.barriers.copy(found.order)
        found.accesses = self.accesses.copy(found.order)
        found.fences = self.fences.copy(found.accesses)
        found.agent_memories = {name: memory.copy() for name, memory in self.agent_memories.items()}
        found.generation, found.settled = self.generation.copy(), self.settled.copy()
        found.updates = None if self.updates is None else self.updates.copy()
        found.updated = self.updated.copy()
        found.unfenced = None if self.unfenced is None else self.unfenced.copy()
        return found

    def _require(self, cells: Array) -> None:
        """Make room for these cells."""
        last = int(cells.max()) if cells.size else 0
        if last >= self.cells:
            # The first access is often to memory barriers at the end: what lies beyond them is little.
            self._resize(max(last + last // 8 + 64, 2 * self.cells))

    def _resize(self, cells: int) -> None:
        self.accesses.resize(cells)
        self.fences.resize(cells)
        self.generation, self.settled = grown(self.generation, cells, 0), grown(self.settled, cells, 0)
        self.updated = grown(self.updated, cells, 0)
        if self.updates is not None:
            self.updates.resize(cells)

    def _agent(self, *key: int) -> int:
        """Return the number of an agent, see `VectorClocks.agent`."""
        found = self.order.agent(key)
        self.barriers.resize()
        return found

    def barrier(self, warps: Array, number: int | None = None) -> None:
        """All threads of these warps arrive at a barrier, the one with a number where some warps meet.

        Raises Unsupported if one of them may have arrived before, in the place of a warp that met there last.
        """
        self.order.barrier(warps, number)
        self.barriers.join(warps)
        if len(warps) == self.warps:
            self.accesses.begin_round()
            self.settled = self.generation.copy()
            self.updates = None

    def warp_barrier(self, warps: Array) -> None:
        """The lanes of each of these warps arrive at a warp barrier."""
        self.order.warp_barrier(warps)

    def arrive(self, barrier: int, warps: Array, whole: Sequence[int] = ()) -> None:
        """See `MemoryBarriers.arrive`."""
        self.barriers.arrive(barrier, warps, whole)

    def enter_phase(self, barrier: int, warps: Array, counted: set[tuple[int, int]] | None = None) -> None:
        """See `MemoryBarriers.enter_phase`."""
        self.barriers.enter_phase(barrier, warps, counted)

    def expect_later(self, barrier: int) -> None:
        """Work that ends later arrives at the current phase of a memory barrier."""
        self.barriers.phases[barrier].expect_later()

    def begin(self, barrier: int, cells: Array) -> None:
        """Initialise a memory barrier in some cells: nothing has been published to it."""
        self.barriers.begin(barrier, self._agent(_PHASES, barrier), cells)

    def track_copies(self, barrier: int, threads: Array) -> None:
        """See `MemoryBarriers.track_copies`."""
        self.barriers.track_copies(barrier, threads)

    def arrive_after_copies(self, barrier: int, threads: Array) -> None:
        """See `MemoryBarriers.arrive_after_copies`."""
        self.barriers.arrive_after_copies(barrier, threads)

    def complete(self, barrier: int) -> None:
        """See `MemoryBarriers.complete`."""
        self.barriers.complete(barrier)

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
        """See `MemoryBarriers.acquire`."""
        self.barriers.acquire(barrier, warps, parity, whole, counted, self._is_idle_since)

    def _is_idle_since(self, warp: int, time: int) -> bool:
        """Return whether no lane of a warp has made an access after a time, except to memory barriers."""
        late = self.accesses.made_since(warp, time)
        if self.updates is not None:
            late |= self.updates.times[warp] > time
        for each in self.barriers.phases.values():
            late[each.cells[each.cells < late.size]] = False
        return not late.any() and not self.accesses.has_other_writes_since(warp, time)

    def has_seen_writes(self, cells: Array, warps: Array) -> bool:
        """Return whether the last writes of all these cells are complete, and ordered before what these warps do."""
        self._require(cells)
        return self.accesses.are_seen(cells, warps)

    def reads(self, cells: Array, actor: Array, what: str = "reads") -> None:
        """`actor` threads read these cells (flat arrays of one length).  Raises Race."""
        if some(self.unordered_reads(cells, actor)):
            raise race(Kind.SHARED, READ_RACE.replace("reads", what, 1), None)

    def unordered_reads(self, cells: Array, actor: Array) -> Array:
        """`actor` threads read these cells.  Return which reads are not ordered after the last write."""
        self._require(cells)
        accesses, unordered = self.accesses, _no_lanes(cells.size)
        if accesses.of_this_round(accesses.write_round, cells):
            unordered = ~accesses.come_after_write(cells, actor)
            unordered |= ~self._after_updates(cells, actor, None)
        accesses.record_reads(cells, actor)
        return unordered

    def follow_unfenced_reads(self) -> None:
        """From this call on, follow the reads that `copies_over` checks."""
        self.unfenced = UnfencedReads(self.warps)

    def loads(self, cells: Array, actor: Array, line: int) -> None:
        """`actor` threads read these cells by the instruction of a line, which may end late."""
        if self.unfenced is not None:
            self.unfenced.read(cells, self.order.warp_of.take(actor), line)

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
        self.fences.written_by_agents(cells)
        if self.unfenced is None:
            raise Unsupported("which reads end before an asynchronous write is not followed here", line)
        warps = np.broadcast_to(thread, cells.shape) // self.warp
        for warp in np.unique(warps).tolist():
            read = self.unfenced.line_of(cells[warps == warp], warp, self.order.clock[warp])
            if read is not None:
                raise race(Kind.SHARED, OVERTAKEN_READ, read, line)

    def writes(self, cells: Array, actor: Array, *, pending: bool = False, copied_at: int = 0) -> None:
        """`actor` threads write these cells; `pending` marks a write that completes at a later wait.  Raises Race.

        `copied_at` is the line of an asynchronous copy by the threads, 0 for another write.
        """
        of_readers, of_writers = self.unordered_writes(cells, actor)
        if some(of_readers):
            raise race(Kind.SHARED, OVERWRITE_RACE, None)
        if some(of_writers):
            raise race(Kind.SHARED, WRITE_RACE, None)
        self.accesses.record_write(cells, actor, pending=pending)
        self.accesses.other_writers[cells] = -1
        self._replace(cells)
        self.fences.written_by_threads(cells, copied_at)

    def _replace(self, cells: Array) -> None:
        """A write replaces the content of these cells, with what atomic operations left there."""
        self.updated[cells] = False
        if self.unfenced is not None:
            self.unfenced.written(cells)

    def unordered_writes(self, cells: Array, actor: Array, operation: str | None = None) -> tuple[Array, Array]:
        """Return which writes of these cells are not ordered after the reads, and which not after earlier writes.

        `operation` is that of atomic operations, which are not ordered among each other, None for plain writes.
        """
        self._require(cells)
        accesses = self.accesses
        if accesses.deferred and some(accesses.has_deferred.take(cells)):
            accesses.record_deferred()
        written = accesses.of_this_round(accesses.write_round, cells)
        if not written and not accesses.of_this_round(accesses.read_round, cells):
            late = ~accesses.come_after_agents(cells, actor) if accesses.reads_by_agent else _no_lanes(cells.size)
            return late, _no_lanes(cells.size)
        after = accesses.come_after_writes(cells, actor)
        return ~accesses.come_after_reads(cells, actor), ~(after & self._after_updates(cells, actor, operation))

    def _after_updates(self, cells: Array, actor: Array, operation: str | None) -> Array:
        """Return whether accesses are ordered after the atomic operations on their cells, except those of their own."""
        if self.updates is None:
            return np.ones(cells.shape, dtype=bool)
        order = self.order
        return self.updates.ordered(cells, order.warp_of.take(actor), order.clock, order.lockstep, operation)

    def record_updates(self, cells: Array, actor: Array, operation: str) -> None:
        """`actor` threads change these cells by an atomic operation that is associative and commutative."""
        if self.updates is None:
            self.updates = SharedUpdates(self.warps, self.cells)
        order, warp = self.order, self.order.warp_of.take(actor)
        self.updates.record(cells, warp, order.clock.diagonal().take(warp), order.lockstep.take(warp), operation)
        if self.unfenced is not None:
            self.unfenced.written(cells)
        self.generation[cells] += 1
        self.fences.written_by_threads(cells)
        self.updated[cells] = True
        self.accesses.note_written_in_this_round(cells)

    def has_pending(self, cells: Array) -> bool:
        """Return whether a warp may not have waited for an asynchronous access to one of these cells."""
        return self.accesses.has_pending(cells)

    def record_writes(self, cells: Array, actor: Array, unordered: Array, kept: Array) -> None:
        """`actor` threads write these cells, some of them after no order with earlier writes.

        `kept` marks writes of the very content that the cell already has.
        """
        replaced = ~kept | ~unordered
        self.accesses.record_writes(cells, actor, unordered, replaced)
        self._replace(cells[replaced])
        self.generation[cells[~kept]] += 1
        self.fences.written_by_threads(cells)

    def written_by_others(self, cells: Array, actor: Array) -> bool:
        """Return whether the last write of one of these cells is not that of the `actor` thread at its position."""
        return some(self.accesses.writer.take(cells) != actor)

    def fence(self, threads: Array, *, of_cluster: bool = True) -> None:
        """Make the writes of these threads (a boolean array) visible to asynchronous agents.

        The writes of other threads that are ordered before the fence are visible to work that is ordered after it.
        `of_cluster`: their writes to the shared memory of other blocks as well.  Their earlier reads end before it.
        """
        self.fence_reads(threads, slice(None))
        self.fences.fence(threads, None)

    def fence_reads(self, threads: Array, cells: slice) -> None:
        """The reads of these threads (a boolean array) of some cells end before what they do next."""
        if self.unfenced is not None:
            lanes = np.arange(self.warps * self.warp) >= self.threads  # those that do not exist
            lanes[: threads.size] |= threads
            self.unfenced.fence(lanes, self.warp, cells, self.order.clock.diagonal())

    def fence_initialisations(self, cells: Array, threads: Array) -> None:
        """These threads publish their initialisations of memory barriers in these cells at a barrier of the cluster.

        It has no effect on blocks without access to the shared memory of others.
        """

    def finished(self, cells: Array, actor: Array) -> None:
        """The pending writes of `actor` threads to these cells are complete and visible to them."""
        self._require(cells)
        accesses = self.accesses
        still = (accesses.writer[cells] == actor) & (accesses.written[cells] == PENDING)
        accesses.record_write(cells[still], actor[still], pending=False)
        self._replace(cells[still])

    def arrived(self, cells: Array, *barriers: int, engine: int = 0, ago: int = 1, copied_at: int = 0) -> None:
        """A copy engine's write is complete and visible to threads that wait for the phases of the memory barriers.

        The phases are the last but `ago` - 1 that have ended.  `copied_at` is the line of a copy by threads that wait
        for it so, which asynchronous agents read as what threads wrote; 0 for a write that they see.
        `engine` numbers the copy engines.  Copies that complete on different barriers are not ordered among each other.
        """
        self._require(cells)
        agent, clock = self._agent(engine, *barriers), self.order.clock
        clock[agent, agent] += 1
        self.accesses.record_agent_write(cells, agent)
        if copied_at:
            self.fences.written_by_threads(cells, copied_at)
        else:
            self.fences.written_by_agents(cells)
        for barrier in barriers:
            self.barriers.phases[barrier].publish(clock[agent].copy(), ago)

    def pending_reads(
        self, cells: Array, actor: int, together: Sequence[int] = (), *, sees_copies: bool = True
    ) -> None:
        """An asynchronous agent started by thread `actor` reads these cells until `finished_reads`.

        Threads `together` with it start the agent, of which each must see what is read.  `sees_copies`: what was
        measured of copies by threads (`VisibleCopies`) holds for the agent.
        Raises Race, also for bytes that threads wrote without a proxy fence after it, and Unsupported.
        """
        self._check_asynchronous_read(cells, (actor, *together), sees_copies)
        self.accesses.start_reads(cells, actor)

    def finished_reads(self, cells: Array, actor: int) -> None:
        """All reads of these cells that the warp of `actor` started are complete, ordered for that warp.

        Each cell occurs once; they ascend.
        """
        self._require(cells)
        self.accesses.finished_reads(cells, actor)

    def _check_asynchronous_read(self, cells: Array, actors: Sequence[int], sees_copies: bool) -> None:
        self._require(cells)
        accesses = self.accesses
        recent = accesses.of_this_round(accesses.write_round, cells)
        updated = some(self.updated.take(cells))
        unfenced = self.fences.unfenced(cells)
        for actor in actors:
            if recent:
                who = np.full(cells.shape, actor, dtype=np.int64)
                if not accesses.come_after_write(cells, who).all():
                    reason = (
                        "a matrix instruction reads shared memory that another thread wrote with no barrier between (a "
                        "race)"
                    )
                    raise race(Kind.SHARED, reason, None)
            if updated:
                raise Unsupported("an asynchronous instruction reads shared memory that atomic operations have changed")
            unseen = self.fences.not_visible(unfenced, actor, sees_copies)
            if unseen.size:
                lines = self.fences.copied_at.take(unseen)
                copied = int(lines.max())
                raise race(Kind.PROXY, UNFENCED_COPY if copied else UNFENCED_WRITE, None, copied or None)

    def agent_reads(self, cells: Array, access: AgentAccess) -> None:
        """An agent reads these cells of shared memory.

        Raises Race, also for bytes that threads wrote without a proxy fence after it, and Unsupported.
        """
        self._check_asynchronous_read(cells, (access.thread,), False)
        self.accesses.record_agent_read(cells, self._agent(*access.agent))

    def agent_accesses(self, memory: str, cells: Array, access: AgentAccess) -> None:
        """An agent accesses these cells of a memory that only agents access.  Raises Race."""
        agent, clock = self._agent(*access.agent), self.order.clock
        accesses = self.agent_memories.setdefault(memory, AgentMemory())
        if accesses.record(cells, access, agent, int(clock[agent, agent]), clock[access.thread // self.warp]).any():
            raise race(Kind.AGENTS, AGENT_RACE.format(memory=memory), None)

    def begin_completion(self, thread: int) -> None:
        """A thread issues an instruction whose arrivals at memory barriers come when all its earlier work is complete.

        `agent_arrives` and `agent_completes` make the arrivals of the last such instruction.
        """
        column = self._agent(_COMPLETIONS, thread // self.warp)
        self.order.clock[column, column] += 1

    def agent_arrives(self, agent: tuple[int, ...], thread: int, barrier: int, *, in_order: bool = False) -> None:
        """All work of an agent that a thread has issued so far arrives at a memory barrier once it is complete.

        Threads that wait for the barrier also see what the thread has seen, and what it has published itself.

        It does not matter which of several arrivals of a thread ends a phase, since the later one implies the earlier.
        So an earlier one at the same barrier counts as having come before.  `in_order`: it has come before at other
        barriers too, and the arrivals of one instruction come together.
        """
        published = self.order.clock[thread // self.warp].copy()
        published[thread // self.warp] -= 1
        self._agent_publishes(agent, thread, published, barrier, in_order)

    def agent_completes(self, agent: tuple[int, ...], thread: int, barrier: int, *, in_order: bool = False) -> None:
        """As `agent_arrives`, but threads that wait for the barrier see the work of the agent only.

        From the end of the phase they know which other phases had ended before, as far as the thread did.
        """
        self._agent_publishes(agent, thread, np.zeros_like(self.order.clock[0]), barrier, in_order)

    def _agent_publishes(
        self, agent: tuple[int, ...], thread: int, published: Array, barrier: int, in_order: bool
    ) -> None:
        warp = thread // self.warp
        number, column = self._agent(*agent), self._agent(_COMPLETIONS, warp)
        clock = self.order.clock
        published = np.pad(published, (0, len(clock) - published.size))
        published[number] = clock[number, number]
        self.barriers.arrive_by_agent(barrier, warp, column, published, in_order=in_order)
        clock[number, number] += 1

    def wait_for_agent(self, agent: tuple[int, ...], thread: int) -> None:
        """The warp of a thread waits until all work of an agent is complete."""
        number = self._agent(*agent)
        clock = self.order.clock
        clock[thread // self.warp, number] = clock[number, number]
        clock[number, number] += 1

    def state_key(self) -> bytes:
        """Bytes that are equal for two detectors of one `state`, and that take less time."""
        order = self.order
        return np.maximum(order.clock - order.seen_by_all(), 0).tobytes() if self._has_agents() else b""

    def _has_agents(self) -> bool:
        return bool(self.accesses.reads_by_agent or self.agent_memories or self.fences.fences)

    def state(self) -> bytes | None:
        """Bytes that are equal for two detectors only if every later access is a race in both or in neither.

        None if every access so far is complete and ordered before the next access of each thread.  Only the order of
        earlier accesses and the next accesses matters, so that times which all warps have seen are equal, and other
        times count from these.  The numbers of generations are names, and not a part of the state (see `absorb`).
        """
        order, accesses, barriers = self.order, self.accesses, self.barriers
        accesses.record_deferred()
        seen = order.seen_by_all()
        cells = accesses.late_cells(seen, self.fences.generic)
        several, writers = accesses.late_writers(seen)
        tracked = barriers.arrived_at or barriers.phases or barriers.tracked or order.meetings
        pending = bool(tracked) or self.updates is not None or bool(self.updated.any())
        unfenced = () if self.unfenced is None else tuple(self.unfenced.state(seen[: self.warps]))
        agents = self._has_agents()
        if not cells.size and not pending and not several.size and not agents and not any(map(len, unfenced)):
            return None
        parts: list[Array] = [cells, np.maximum(order.clock - seen[None], 0), *accesses.state(cells, seen)]
        parts += [self.fences.kinds(cells), several, *writers, np.flatnonzero(self.updated), *unfenced]
        if self.updates is not None:
            parts += [order.clock, order.lockstep, *self.updates.state()]
        if agents:
            parts += self._state_of_agents(cells, seen)
        parts += order.state_of_meetings(seen)
        completions = [number for key, number in order.agents.items() if key[0] == _COMPLETIONS]
        found = [repr([*order.agents.items()]).encode()]  # what the clocks are of
        found += barriers.state(seen, completions, self._is_idle_since)
        pieces = [*(part.tobytes() for part in parts), *found]
        return b"".join(each for piece in pieces for each in (len(piece).to_bytes(8, "little"), piece))

    def _state_of_agents(self, cells: Array, seen: Array) -> Iterator[Array]:
        """Yield what `state` holds of the accesses of agents, and of fences; `cells` are those that it holds."""
        yield from self.accesses.state_of_agents(cells, seen)
        yield from self.fences.state(cells, seen)
        for name, memory in sorted(self.agent_memories.items()):
            yield np.frombuffer(name.encode(), dtype=np.uint8)
            yield from memory.state(seen)

    def absorb(self, other: RaceDetector) -> None:
        """Represent another detector of the same state too.

        Generations are numbered again from the higher number on.  A write that comes too late contests all from the
        older of the settled ones on, whichever of the two numbered what was read.
        """
        size = max(self.cells, other.cells)
        if self.cells < size:
            self._resize(size)
        here = slice(0, other.cells)
        self.settled[here] = np.minimum(self.settled[here], other.settled)
        self.settled[other.cells :] = 0
        self.generation[here] = np.maximum(self.generation[here], other.generation)


@lru_cache(maxsize=256)
def _no_lanes(count: int) -> Array:
    found = np.zeros(count, dtype=bool)
    found.setflags(write=False)
    return found
