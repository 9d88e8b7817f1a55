"""Accesses of threads to the shared memory of all blocks of their cluster, and barriers of the cluster.

A batch holds whole clusters, whose blocks are adjacent and ordered by rank.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Blocked, ClusterState, Control, Machine, Predicated
from bitwise_core.execution.memory.access import read_shared, write_shared
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.races.cluster_races import BlockOfCluster, ClusterDetector, ClusterRaceDetectors
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.undetermined import SAME_STEP_RACE, Kind, race
from bitwise_core.execution.values.symbolic_vector import Array, Value, width

_COPIES = -5
"""What the key of an agent begins with that stands for the reads of bulk copies to other blocks."""

_BARRIER_BYTES = 8
"""The size of a memory barrier."""


def cluster_state(machine: Machine) -> tuple[ClusterState, ClusterRaceDetectors]:
    """Return the state of the clusters of a batch.  Raises Unsupported if the batch does not hold whole clusters."""
    state, races = machine.cluster, machine.races
    if state is None or not isinstance(races, ClusterRaceDetectors):
        raise Unsupported("the blocks of a cluster depend on each other, which is followed for a given launch only")
    return state, races


def own_ranks(machine: Machine) -> Array:
    """Return the rank of each block in its cluster, shape (blocks, 1).  Raises Unsupported."""
    state, _ = cluster_state(machine)
    return np.arange(machine.blocks, dtype=np.int64)[:, None] % state.size


def read_cluster(machine: Machine, address: Array, ranks: Array, bits: int) -> Value:
    """Return `bits` bits at each active thread's shared address in the block of the given rank in its cluster."""
    if _is_own(machine, ranks):
        return read_shared(machine, address, bits)
    shared = machine.shared
    cells, ranks = _places(machine, address, ranks)
    for detector, accessed, actors in _accesses(machine, cells, ranks, bits):
        detector.loads(accessed, actors, machine.line)
        detector.reads(accessed, actors)
    return shared.load(cells, bits, _rows(machine, ranks))


def write_cluster(machine: Machine, address: Array, ranks: Array, value: Value) -> None:
    """Store the value at each active thread's shared address in the block of the given rank in its cluster."""
    if _is_own(machine, ranks):
        write_shared(machine, address, value)
        return
    if machine.condition is not None:
        raise DataDependent("shared memory is written under a condition on data")
    shared = machine.shared
    cells, ranks = _places(machine, address, ranks)
    for detector, accessed, actors in _accesses(machine, cells, ranks, width(value)):
        detector.writes(accessed, actors)
    rows = _rows(machine, ranks)
    shared.store(cells, value, machine.mask, rows)
    if not shared.holds(cells, value, machine.mask, rows).all():
        raise race(Kind.SHARED, SAME_STEP_RACE, machine.line)


def use_in_cluster(machine: Machine, address: int, rank: int, *, lasting: bool = True) -> None:
    """The active threads use the memory barrier at a shared address of the block of a rank; its phase counts the use.

    `lasting`: the block must not end before the use.  Raises Unsupported if a use is not ordered after the last write.
    """
    shape = (machine.blocks, machine.threads)
    where, ranks = np.full(shape, address, dtype=np.uint64), np.full(shape, rank, dtype=np.int64)
    cells, ranks = _places(machine, where, ranks)
    for detector, accessed, actors in _accesses(machine, cells, ranks, 8 * _BARRIER_BYTES, lasting=lasting):
        BlockOfCluster(detector, rank).counted_uses(address, accessed, actors)


def arrive_from_cluster(machine: Machine, address: int, rank: int, *, of_cluster: bool) -> None:
    """The active threads arrive at a memory barrier of the block of a rank, and publish their accesses.

    They publish to that block's threads only if they are its own, or `of_cluster`.
    """
    _, races = cluster_state(machine)
    active = machine.active()
    for rows, block in races.ranks_of(np.any(active, axis=1)):
        warps = np.unique(np.flatnonzero(np.any(active[rows], axis=0)) // machine.warp)
        target = BlockOfCluster(block.detector, rank)
        if block.rank == rank:
            target.arrive_after_copies(address, np.all(active[rows], axis=0))
            target.arrive(address, warps, machine.active_whole_warps())
        elif of_cluster:
            target.arrive_from_cluster(address, block.rank, warps)


def expect_from_cluster(machine: Machine, address: int, rank: int) -> None:
    """The active threads expect bytes at a memory barrier of the block of a rank, and do not arrive there.

    Raises Unsupported where this is another block than theirs: nothing then says that its phase does not end before.
    """
    _, races = cluster_state(machine)
    active = machine.active()
    for rows, block in races.ranks_of(np.any(active, axis=1)):
        if block.rank != rank:
            raise Unsupported("a thread expects bytes at a memory barrier of another block, and does not arrive there")
        BlockOfCluster(block.detector, rank).track_copies(address, np.any(active[rows], axis=0))


def enter_phase_from_cluster(
    machine: Machine, address: int, rank: int, rows: Array, counted: set[tuple[int, int]]
) -> None:
    """The active threads of the blocks in `rows` arrive at a memory barrier of the block of a rank.

    `counted` is that of `RaceDetector.enter_phase`.  Raises Unsupported as `RaceDetector.enter_phase` does.
    """
    _, races = cluster_state(machine)
    active = machine.active()
    for own, block in races.ranks_of(rows):
        warps = np.unique(np.flatnonzero(np.any(active[own], axis=0)) // machine.warp)
        BlockOfCluster(block.detector, rank).enter_phase_from_cluster(address, block.rank, warps, counted)


def agent_detectors(
    machine: Machine, rows: Array, access: AgentAccess, *, of_pairs: bool
) -> list[tuple[RaceDetector, AgentAccess]]:
    """Return the races of the blocks whose memories an agent of the blocks in `rows` accesses, with the access there.

    `of_pairs`: these are the own block and the next one, else the own block.
    """
    if not of_pairs:
        return [(races, access) for races in machine.races.of_blocks(rows)]
    _, races = cluster_state(machine)
    return [
        (BlockOfCluster(issuer.detector, rank), replace(access, rank=issuer.rank))
        for _, issuer in races.ranks_of(rows)
        for rank in (issuer.rank, issuer.rank + 1)
    ]


def agent_arrives_in_cluster(
    machine: Machine, agent: tuple[int, ...], thread: int, place: tuple[int, int], rows: Array, *, in_order: bool
) -> None:
    """All work that a thread of the blocks in `rows` gave an agent arrives at a memory barrier once it is complete.

    The barrier is at a shared address of the block of a rank, which `place` gives; the blocks in `rows` have one rank.
    `in_order` is that of `RaceDetector.agent_arrives`.
    """
    _, races = cluster_state(machine)
    address, receiver = place
    for _, block in races.ranks_of(rows):
        if receiver == block.rank:
            block.agent_arrives(agent, thread, address, in_order=in_order)
        else:
            other = BlockOfCluster(block.detector, receiver)
            other.agent_arrives_from_cluster(agent, thread, block.rank, address, in_order=in_order)


def complete_copy(machine: Machine, cells: Array, address: int, shift: int, rows: Array, ago: int) -> None:
    """A copy to these cells completes on a memory barrier at a shared address of the blocks in `rows`.

    It has gone to the blocks `shift` ranks after them.  `ago` is that of `RaceDetector.arrived`.
    """
    if not shift:
        for races in machine.races.of_blocks(rows):
            races.arrived(cells, address, ago=ago)
        return
    _, detectors = cluster_state(machine)
    for _, block in detectors.ranks_of(rows):
        BlockOfCluster(block.detector, block.rank + shift).copied_from_cluster(cells, address, block.rank, ago)


def start_write(machine: Machine, cells: Array, rank: int, thread: int, rows: Array) -> None:
    """A copy engine starts to write these cells of the block of a rank for a thread of the blocks in `rows`.

    `rows` is a boolean array of shape (blocks,).  Raises Unsupported for a race.
    """
    _, races = cluster_state(machine)
    for _, block in races.ranks_of(rows):
        detector = block.detector
        actor = thread + block.rank * detector.block_warps * detector.warp
        if block.rank != rank:
            detector.check_started(actor // detector.warp, rank)
        detector.copies_over(cells * detector.size + rank, actor, machine.line)


def read_by_copy(machine: Machine, cells: Array, thread: int, barrier: tuple[int, int], rows: Array) -> None:
    """A copy that a thread of the blocks in `rows` starts reads these cells of their shared memory.

    It completes on the memory barrier at the shared address `barrier[0]` of the block of the rank `barrier[1]`.
    Raises Unsupported for a race.
    """
    _, races = cluster_state(machine)
    address, receiver = barrier
    for _, block in races.ranks_of(rows):
        block.agent_reads(cells, AgentAccess((_COPIES, thread, address, receiver), thread, writes=False))
        agent = _COPIES, thread, address, receiver, block.rank
        BlockOfCluster(block.detector, receiver).read_until(address, agent, block.rank)


def start_stores(machine: Machine, cells: Array, ranks: Array, bits: int) -> None:
    """The active threads start asynchronous stores of `bits` bits to these cells of the blocks of these ranks.

    `cells` and `ranks` have the shape (blocks, threads).  Raises Unsupported for a race.
    """
    for detector, accessed, actors in _accesses(machine, cells, _active_ranks(machine, ranks), bits, lasting=False):
        if np.unique(accessed).size != accessed.size:
            raise race(Kind.SHARED, SAME_STEP_RACE, machine.line)
        detector.copies_over(accessed, actors, machine.line)


def complete_stores(
    machine: Machine, cells: Array, ranks: Array, value: Value, mask: Array, ended: tuple[int, Array, int]
) -> None:
    """Asynchronous stores of the threads in `mask` to these cells of the blocks of these ranks have completed.

    They did in the blocks `ended[1]`, at the memory barriers at the shared address `ended[0]`; `ended[2]` is `ago` of
    `RaceDetector.arrived`.
    """
    address, arrived, ago = ended
    outer = machine.mask
    try:
        machine.mask = mask
        rows = _rows(machine, _active_ranks(machine, ranks))
        machine.mask = mask & arrived[rows]
        machine.shared.store(cells, value, machine.mask, rows)
        for detector, accessed, _ in _accesses(
            machine, cells, _active_ranks(machine, ranks), width(value), started=True
        ):
            rank = accessed % detector.size
            for each in np.unique(rank).tolist():
                BlockOfCluster(detector, each).stored_from_cluster(accessed[rank == each], address, ago)
    finally:
        machine.mask = outer


def _active_ranks(machine: Machine, ranks: Array) -> Array:
    """Return the ranks of an access of the active threads; those of inactive ones are their own."""
    found: Array = np.where(machine.active(), ranks, own_ranks(machine))
    return found


def _is_own(machine: Machine, ranks: Array) -> bool:
    other = ranks != own_ranks(machine)
    return not (other.any() if machine.mask is None else (other & machine.mask).any())


def _places(machine: Machine, address: Array, ranks: Array) -> tuple[Array, Array]:
    """Return the cells and the ranks of an access, shape (blocks, threads); those of inactive threads are their own."""
    shape = (machine.blocks, machine.threads)
    cells = machine.shared.cells(np.broadcast_to(address, shape), machine.mask)
    return cells, np.where(machine.active(), np.broadcast_to(ranks, shape), own_ranks(machine))


def _rows(machine: Machine, ranks: Array) -> Array:
    """Return the row of the batch that holds the block of each rank in a thread's cluster."""
    found: Array = np.arange(machine.blocks, dtype=np.int64)[:, None] - own_ranks(machine) + ranks
    return found


def _accesses(
    machine: Machine, cells: Array, ranks: Array, bits: int, *, lasting: bool = True, started: bool = False
) -> list[tuple[ClusterDetector, Array, Array]]:
    """Return the detectors of an access, each with the accessed cells and the thread of each.

    `started`: the access has started before.
    """
    state, races = cluster_state(machine)
    count = max(1, bits // 8 // machine.shared.granule)
    found = []
    for detector, accessed, actors, targets in races.remote(cells, ranks, machine.active()):
        if not started:
            detector.reach(actors, targets, machine.line, lasting=lasting)
        parts = (accessed[:, None] + np.arange(count) * state.size).ravel()
        found.append((detector, parts, np.repeat(actors, count)))
    return found


def arrive_at_cluster(machine: Machine, *, publishes: bool) -> None:
    """Arrive at the barrier of the cluster; the accesses before it are published unless it is relaxed.

    Raises Unsupported for a thread that has not waited for the barrier since it arrived the last time.
    """
    state, races = cluster_state(machine)
    if machine.condition is not None:
        raise DataDependent("a barrier of the cluster depends on data")
    active = machine.active()
    if (state.arrivals != state.waits)[active].any():
        raise Unsupported("a thread arrives at a barrier of the cluster twice and does not wait for it in between")
    state.arrivals = state.arrivals + active
    for detector, phase, warps in _phases(machine, races, active, state.arrivals):
        detector.arrive_at_cluster(phase, warps, publishes=publishes)


def wait_for_cluster(machine: Machine) -> Control | None:
    """Wait until all threads of the cluster that have not ended have arrived at its barrier.

    Raises Unsupported for a thread that has not arrived itself.
    """
    state, races = cluster_state(machine)
    if machine.condition is not None:
        raise DataDependent("a barrier of the cluster depends on data")
    active = machine.active()
    if (state.arrivals != state.waits + 1)[active].any():
        raise Unsupported("a thread waits for a barrier of the cluster at which it has not arrived")
    never = np.iinfo(np.int64).max
    complete = np.where(state.ended, never, state.arrivals).reshape(-1, state.size * machine.threads).min(axis=1)
    ready = active & (state.arrivals <= np.repeat(complete, state.size)[:, None])
    what = Blocked("a barrier of the cluster")
    if not ready.any():
        return what
    state.waits = state.waits + ready
    for detector, phase, warps in _phases(machine, races, ready, state.arrivals):
        detector.wait_for_cluster(phase, warps)
    waiting = active & ~ready
    return Predicated(what, waiting) if waiting.any() else None


def _phases(
    machine: Machine, races: ClusterRaceDetectors, lanes: Array, arrivals: Array
) -> list[tuple[ClusterDetector, int, Array]]:
    """Return the detectors of the clusters with one of these lanes, with its phase of the barrier and its warps."""
    found = []
    for rows, block in races.ranks_of(np.any(lanes, axis=1)):
        chosen = lanes[rows]
        phases = np.unique(arrivals[rows][chosen])
        if phases.size != 1:
            raise Unsupported("clusters with one history are in different phases of their barriers")
        if (lanes[rows] != lanes[rows][:1]).any():
            raise Unsupported("clusters with one history arrive at their barriers with different threads")
        warps = np.unique(np.flatnonzero(lanes[rows][0]) // machine.warp)
        found.append((block.detector, int(phases[0]), warps + block.rank * block.warps))
    return found
