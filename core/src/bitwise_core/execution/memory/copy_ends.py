"""When the loads of copy engines were complete.

A copy engine may read global memory at any time between the issue of a copy and its end.  A thread that has waited for
the memory barrier of the copy knows that it has ended.  Where all threads of a block have waited, every access behind
their next barrier comes after the reads of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_core.execution.memory.store_forwarding import Access
from bitwise_core.execution.thread_numbers import block_of, is_agent
from bitwise_core.execution.values.symbolic_vector import Array

NEVER = np.iinfo(np.int64).max


class CopyEnds:
    """The epochs in which all threads of some blocks knew that one copy had ended."""

    def __init__(self) -> None:
        self._blocks: Array = np.zeros(0, dtype=np.int64)
        self._epochs: Array = np.zeros(0, dtype=np.int64)

    def add(self, thread: Array, epochs: Array) -> None:
        """Add the blocks of some threads; one that is known already keeps its epoch."""
        blocks = block_of(thread)
        fresh = ~np.isin(blocks, self._blocks)
        found, chosen = np.concatenate([self._blocks, blocks[fresh]]), np.concatenate([self._epochs, epochs[fresh]])
        order = np.argsort(found, kind="stable")
        self._blocks, self._epochs = found[order], chosen[order]

    def of(self, blocks: Array) -> Array:
        """Return the epoch for each of these blocks, `NEVER` for one in which nothing is known of the end."""
        if not self._blocks.size:
            return np.full(blocks.shape, NEVER, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._blocks, blocks), self._blocks.size - 1)
        return np.where(self._blocks[place] == blocks, self._epochs[place], NEVER)


def may_read_late(load: Access, place: Array, epoch: Array, ends: Mapping[int, CopyEnds]) -> Array:
    """Return which loads of copy engines, by their places in `load`, may read after an access of an epoch."""
    thread = load.thread[place]
    agents = is_agent(thread)
    known = ends.get(load.issue) if load.issue else None
    if known is None or not agents.any():
        return agents
    found: Array = agents & (epoch <= known.of(block_of(thread)))
    return found
