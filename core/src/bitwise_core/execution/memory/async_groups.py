"""Groups of asynchronous work, completed oldest first, in a batch whose blocks may have diverged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from bitwise_core.execution.memory.race_detector import RaceDetectors
from bitwise_core.execution.values.symbolic_vector import Array

Work = TypeVar("Work")
Issuer: TypeAlias = tuple[str, int]
"""A kind of work, and the number of the thread or warpgroup that issues it, whose groups are counted by themselves."""


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


@dataclass(slots=True)
class AsynchronousReads:
    """Reads of shared memory that continue after their instruction: uncommitted ones, and committed groups.

    A read is the cells that it takes and the thread that issued it.  Until its group is waited for, a write to these
    cells is a race.
    """

    open: list[tuple[Array, int]] = field(default_factory=list)
    groups: AsyncGroups[tuple[Array, int]] = field(default_factory=AsyncGroups)

    def copy(self) -> AsynchronousReads:
        """Return an independent copy."""
        return AsynchronousReads(list(self.open), self.groups.copy())

    def issue(self, cells: Array, thread: int, races: RaceDetectors, mask: Array | None) -> None:
        """Start a thread's read of cells in the blocks with an active lane."""
        for each in races.acting(mask):
            each.pending_reads(cells, thread)
        self.open.append((cells, thread))

    def commit(self, blocks: Array) -> None:
        """Commit the reads issued so far as a group of the given blocks (a boolean array)."""
        self.groups.commit(self.open, blocks)
        self.open = []

    def wait(self, keep: int, blocks: Array, races: RaceDetectors) -> None:
        """Complete the reads of all but the newest `keep` groups of these blocks."""
        for reads, done in self.groups.wait(keep, blocks):
            for cells, thread in reads:
                for each in races.of_blocks(done):
                    each.finished_reads(cells, thread)
