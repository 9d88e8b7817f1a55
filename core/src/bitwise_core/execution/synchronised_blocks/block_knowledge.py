"""What the blocks of a run know of each other through accesses that synchronise them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(slots=True, eq=False)
class AccessesOfBlock:
    """The synchronising accesses of a block: acquired and released knowledge with epoch and thread."""

    count: int = 0
    last: tuple[int, int] = (-1, -1)
    acquired: list[tuple[int, int, Array]] = field(default_factory=list)
    released: list[tuple[int, int]] = field(default_factory=list)
    """The epoch and the number of each releasing access."""


class BlockKnowledge:
    """The synchronising accesses of each block, by number, and which of them the accesses of other blocks know.

    Knowledge is an array: for each block the number of its last access that is ordered before.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = [AccessesOfBlock() for _ in range(blocks)]

    def enter(self, block: int, thread: int, epoch: int, line: int) -> None:
        """A thread is about to synchronise.  Raises Unsupported if no barrier orders it after another thread."""
        last = self._blocks[block].last
        if last[0] not in (-1, thread) and last[1] >= epoch:
            raise Unsupported("several threads of a block synchronise with no barrier between", line)
        self._blocks[block].last = (thread, epoch)

    def count(self, block: int) -> int:
        """Count an access of a block.  Return its number."""
        self._blocks[block].count += 1
        return self._blocks[block].count

    def acquire(self, block: int, thread: int, epoch: int, knows: Array) -> None:
        """A thread acquires knowledge."""
        self._blocks[block].acquired.append((epoch, thread, knows))

    def release(self, block: int, number: int, epoch: int, knows: Array) -> Array:
        """An access releases what its thread knows.  Return what a thread knows that acquires it."""
        released = knows.copy()
        released[block] = number
        self._blocks[block].released.append((epoch, number))
        return released

    def at(self, block: int, epoch: int, thread: int | None = None) -> Array:
        """Return what is known at an access of a block; `thread` executes it (None: any of the block's threads)."""
        found = np.zeros(len(self._blocks), dtype=np.int64)
        for when, who, knows in self._blocks[block].acquired:
            if when < epoch or who == thread:
                found = np.maximum(found, knows)
        return found

    def forget_last_acquired(self, block: int) -> None:
        """The last acquisition of a block is made again."""
        self._blocks[block].acquired.pop()

    def take(self, block: int) -> AccessesOfBlock:
        """Forget the accesses of a block, and return them."""
        found, self._blocks[block] = self._blocks[block], AccessesOfBlock()
        return found

    def put(self, block: int, accesses: AccessesOfBlock) -> None:
        """Remember the accesses of a block, which were taken."""
        self._blocks[block] = accesses

    def ordered(self, thread: Array, epoch: Array, later_thread: Array, later_epoch: Array) -> Array:
        """See `BlockOrder`: a release after the first access is known at the second."""
        columns = np.stack([block_of(thread), epoch, block_of(later_thread), later_epoch])
        keys, inverse = np.unique(columns, axis=1, return_inverse=True)
        found = np.zeros(keys.shape[1], dtype=bool)
        for place, (block, at, later, later_at) in enumerate(keys.T.tolist()):
            released = [number for when, number in self._blocks[block].released if when > at]
            if block != later and released:
                found[place] = self.at(later, later_at)[block] >= released[0]
        result: Array = found[inverse.reshape(-1)]
        return result
