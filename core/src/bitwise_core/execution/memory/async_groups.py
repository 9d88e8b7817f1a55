"""Groups of asynchronous work, completed oldest first, in a batch whose blocks and threads may have diverged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from bitwise_core.execution.alternatives import NotJoined, Ways
from bitwise_core.execution.races.race_histories import RaceDetectors
from bitwise_core.execution.values.symbolic_vector import Array

Work = TypeVar("Work")


NOT_THE_SAME_GROUPS = "the ways of a branch on data leave different asynchronous copies or reads in flight"


@dataclass(slots=True)
class AsyncGroup(Generic[Work]):
    """Pieces of work that were committed together, and the blocks for which they are incomplete."""

    work: list[Work]
    blocks: Array


class AsyncGroups(Generic[Work]):
    """The groups in flight, oldest first."""

    def __init__(self) -> None:
        self.groups: list[AsyncGroup[Work]] = []

    def copy(self) -> AsyncGroups[Work]:
        """Return independent groups with the same pieces of work."""
        found: AsyncGroups[Work] = AsyncGroups()
        found.groups = [AsyncGroup(list(each.work), each.blocks) for each in self.groups]
        return found

    def joined(
        self,
        other: AsyncGroups[Work],
        ways: Ways,
        alike: Callable[[Sequence[Work], Sequence[Work], Array], bool],
        has_ended: Callable[[Work, Array, int], bool],
    ) -> AsyncGroups[Work]:
        """Return the groups after both ways of a branch, which left these and others.  Raises NotJoined.

        `alike` returns whether two lists of work are the same in some blocks (a boolean array).  Where one way has
        waited for the oldest groups of the other one, they stay in flight for both: a wait that completes them later
        changes nothing in the way in which they are complete, as `has_ended` returns for work, blocks and a way.
        """
        mine, others = self._in_blocks(ways.open), other._in_blocks(ways.open)
        more = len(mine) - len(others)
        longer, shorter = (mine, others) if more >= 0 else (others, mine)
        if not all(
            np.array_equal(one.blocks, another.blocks) and alike(one.work, another.work, one.blocks)
            for one, another in zip(longer[abs(more) :], shorter, strict=True)
        ) or not all(
            has_ended(work, group.blocks, int(more > 0)) for group in longer[: abs(more)] for work in group.work
        ):
            raise NotJoined(NOT_THE_SAME_GROUPS)
        found: AsyncGroups[Work] = AsyncGroups()
        found.groups = [*longer, *self._in_blocks(ways.first), *other._in_blocks(ways.second)]
        return found

    def _in_blocks(self, blocks: Array) -> list[AsyncGroup[Work]]:
        groups = [AsyncGroup(list(each.work), each.blocks & blocks) for each in self.groups]
        return [each for each in groups if each.blocks.any()]

    def commit(self, work: list[Work], blocks: Array) -> None:
        """Commit a group of work for the given blocks (a boolean array)."""
        self.groups.append(AsyncGroup(work, blocks.copy()))

    def wait(self, keep: int, blocks: Array) -> Iterator[tuple[list[Work], Array]]:
        """Complete all but the newest `keep` groups of each of these blocks.

        Yields the work of a group and the blocks for which it is complete.
        """
        newer = np.zeros(blocks.shape, dtype=np.int64)
        finished: list[tuple[list[Work], Array]] = []
        for group in reversed(self.groups):
            mine = group.blocks & blocks
            done = mine & (newer >= keep)
            newer += mine
            if done.any():
                group.blocks = group.blocks & ~done
                finished.append((group.work, done))
        self.groups = [group for group in self.groups if group.blocks.any()]
        yield from reversed(finished)


@dataclass(frozen=True, slots=True)
class AsynchronousRead:
    """The cells of shared memory that a read takes, and the blocks in which it was started (a boolean array)."""

    cells: Array
    blocks: Array


def _same_reads(left: Sequence[AsynchronousRead], right: Sequence[AsynchronousRead], blocks: Array) -> bool:
    """Return whether the reads that take part in some of these blocks have the same cells and blocks."""
    one, other = _reads_in(left, blocks), _reads_in(right, blocks)
    return len(one) == len(other) and all(
        np.array_equal(each.blocks, another.blocks) and np.array_equal(each.cells, another.cells)
        for each, another in zip(one, other, strict=True)
    )


def _reads_in(reads: Sequence[AsynchronousRead], blocks: Array) -> list[AsynchronousRead]:
    found = [replace(each, blocks=each.blocks & blocks) for each in reads]
    return [each for each in found if each.blocks.any()]


@dataclass(slots=True)
class ReadQueue:
    """The reads of one kind that one thread started: uncommitted ones, and committed groups."""

    open: list[AsynchronousRead] = field(default_factory=list)
    groups: AsyncGroups[AsynchronousRead] = field(default_factory=AsyncGroups)

    def copy(self) -> ReadQueue:
        """Return an independent copy."""
        return ReadQueue(list(self.open), self.groups.copy())

    def joined(self, other: ReadQueue, ways: Ways) -> ReadQueue:
        """See `AsyncGroups.joined`.  A read that has ended has changed nothing."""
        if not _same_reads(self.open, other.open, ways.open):
            raise NotJoined(NOT_THE_SAME_GROUPS)
        started = [*_reads_in(self.open, ~ways.second), *_reads_in(other.open, ways.second)]
        return ReadQueue(started, self.groups.joined(other.groups, ways, _same_reads, lambda *_: True))

    def in_flight(self, blocks: Array) -> Iterator[Array]:
        """Yield the cells that reads of some of these blocks still take."""
        for each in self.open:
            if (each.blocks & blocks).any():
                yield each.cells
        for group in self.groups.groups:
            for each in group.work:
                if (each.blocks & group.blocks & blocks).any():
                    yield each.cells


@dataclass(slots=True)
class AsynchronousReads:
    """Reads of shared memory that continue after their instruction, by their kind and the thread that started them.

    Groups belong to threads: a thread commits and waits for what it started itself.  Until the group of a read is
    waited for, a write to its cells is a race.
    """

    queues: dict[tuple[str, int], ReadQueue] = field(default_factory=dict)

    def copy(self) -> AsynchronousReads:
        """Return an independent copy."""
        return AsynchronousReads({key: queue.copy() for key, queue in self.queues.items()})

    def some(self) -> bool:
        """Return whether reads are in flight."""
        return any(queue.open or queue.groups.groups for queue in self.queues.values())

    def joined(self, other: AsynchronousReads, ways: Ways) -> AsynchronousReads:
        """Return the reads after both ways of a branch, which left these and others.  Raises NotJoined."""
        keys = {**self.queues, **other.queues}
        return AsynchronousReads(
            {key: self.queues.get(key, ReadQueue()).joined(other.queues.get(key, ReadQueue()), ways) for key in keys}
        )

    def issue(
        self,
        work: str,
        cells: Array,
        thread: int,
        blocks: Array,
        races: RaceDetectors,
        together: Sequence[int] = (),
        *,
        sees_copies: bool = True,
    ) -> None:
        """Start a thread's read of cells in the given blocks (a boolean array).

        `together` and `sees_copies` as in `RaceDetector.pending_reads`.
        """
        for each in races.of_blocks(blocks):
            each.pending_reads(cells, thread, together, sees_copies=sees_copies)
        self.queues.setdefault((work, thread), ReadQueue()).open.append(AsynchronousRead(cells, blocks))

    def commit(self, work: str, active: Array) -> None:
        """Commit the reads that the active threads have started; `active` has the shape (blocks, threads).

        A thread that has started none has no group: nothing waits for an empty group older than all others.
        """
        for _, queue, blocks in self._queues_of(work, active):
            mine, left = [], []
            for each in queue.open:
                if (each.blocks & blocks).any():
                    mine.append(AsynchronousRead(each.cells, each.blocks & blocks))
                if (each.blocks & ~blocks).any():
                    left.append(AsynchronousRead(each.cells, each.blocks & ~blocks))
            queue.open = left
            queue.groups.commit(mine, blocks)

    def wait(self, work: str, keep: int, active: Array, races: RaceDetectors, warp: int) -> None:
        """Complete the reads of all but the newest `keep` groups of each active thread.

        `warp` is the number of threads of a warp.  Cells that the thread's warp takes by another read, too, remain in
        flight until that is complete.
        """
        for thread, queue, blocks in self._queues_of(work, active):
            for reads, done in queue.groups.wait(keep, blocks):
                for cells, finished in _together(reads, done):
                    complete = self._not_in_flight(cells, thread // warp, warp, finished)
                    for each in races.of_blocks(finished):
                        each.finished_reads(complete, thread)

    def _not_in_flight(self, cells: Sequence[Array], number: int, warp: int, blocks: Array) -> Array:
        """Return those of these cells that no read of a warp of some of these blocks takes, each once, ascending."""
        size = 1 + max(int(each.max(initial=-1)) for each in cells)
        complete = np.zeros(size, dtype=bool)
        for each in cells:
            complete[each] = True
        for (_, thread), queue in self.queues.items():
            if thread // warp == number:
                for taken in queue.in_flight(blocks):
                    complete[taken if int(taken.max(initial=-1)) < size else taken[taken < size]] = False
        return np.flatnonzero(complete)

    def _queues_of(self, work: str, active: Array) -> Iterator[tuple[int, ReadQueue, Array]]:
        """Yield the active threads with a queue, and the blocks in which each is active."""
        for (kind, thread), queue in self.queues.items():
            blocks = active[:, thread].copy()
            if kind == work and blocks.any():
                yield thread, queue, blocks


def _together(reads: Sequence[AsynchronousRead], done: Array) -> Iterator[tuple[list[Array], Array]]:
    """Yield the cells of the reads that are complete in the same of these blocks, and the blocks."""
    found: dict[bytes, tuple[list[Array], Array]] = {}
    for each in reads:
        finished = done & each.blocks
        if finished.any():
            found.setdefault(finished.tobytes(), ([], finished))[0].append(each.cells)
    yield from found.values()
