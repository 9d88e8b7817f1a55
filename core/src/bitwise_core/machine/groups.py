"""Groups of asynchronous work, completed oldest first, where blocks of a batch may have parted ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from bitwise_core.machine.lanes import Array

Work = TypeVar("Work")


@dataclass(slots=True)
class Group(Generic[Work]):
    """Pieces of work committed together, and the blocks for which they are not complete."""

    work: list[Work]
    blocks: Array


class Groups(Generic[Work]):
    """The groups in flight, oldest first."""

    def __init__(self) -> None:
        self.groups: list[Group[Work]] = []

    def commit(self, work: list[Work], blocks: Array) -> None:
        """The given blocks (a boolean array) close a group."""
        self.groups.append(Group(work, blocks.copy()))

    def wait(self, keep: int, blocks: Array) -> Iterator[tuple[list[Work], Array]]:
        """Completes all but the newest `keep` groups of each of these blocks.

        Gives the work and the blocks that it is done for.
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
