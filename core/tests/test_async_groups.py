"""Asynchronous reads of shared memory in groups, against a model of single reads."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from bitwise_core.execution.memory.async_groups import AsynchronousReads
from bitwise_core.execution.races.race_histories import RaceDetectors

WARP, THREADS, BLOCKS, CELLS = 4, 16, 3, 12
KINDS = ("matrix", "bulk")


@dataclass
class Thread:
    """The reads of one kind that one thread of one block has started, as sets of cells, and its groups in order."""

    started: list[set[int]] = field(default_factory=list)
    groups: list[list[set[int]]] = field(default_factory=list)

    def commit(self) -> None:
        self.groups.append(self.started)
        self.started = []

    def wait(self, keep: int) -> None:
        del self.groups[: max(0, len(self.groups) - keep)]

    def cells(self) -> set[int]:
        return {cell for read in [*self.started, *(read for group in self.groups for read in group)] for cell in read}


def in_flight(model: dict[tuple[str, int, int], Thread], block: int) -> set[int]:
    return {cell for (_, _, where), thread in model.items() if where == block for cell in thread.cells()}


def pending(races: RaceDetectors, block: int) -> set[int]:
    rows = np.arange(BLOCKS) == block
    (detector,) = races.of_blocks(rows)
    return {cell for cell in range(CELLS) if cell < detector.cells and detector.has_pending(np.array([cell]))}


@pytest.mark.parametrize("seed", range(60))
def test_reads_are_in_flight_until_their_thread_waits_for_their_group(seed: int) -> None:
    dice = random.Random(seed)
    together = seed % 2 == 0  # all blocks do the same
    races, reads = RaceDetectors(CELLS, THREADS, WARP, BLOCKS), AsynchronousReads()
    model = {(kind, thread, block): Thread() for kind in KINDS for thread in range(THREADS) for block in range(BLOCKS)}
    for _ in range(40):
        kind = dice.choice(KINDS)
        blocks = [True] * BLOCKS if together else [dice.random() < 0.8 for _ in range(BLOCKS)]
        threads = dice.sample(range(THREADS), dice.choice((1, 2, THREADS)))
        active = np.zeros((BLOCKS, THREADS), dtype=bool)
        active[np.ix_(np.flatnonzero(blocks), threads)] = True
        acting = [model[kind, thread, block] for thread in threads for block in range(BLOCKS) if blocks[block]]
        action = dice.randrange(3)
        if action == 0 and any(blocks):
            cells = dice.sample(range(CELLS), dice.randint(1, 4))
            reads.issue(kind, np.array(cells), threads[0], np.array(blocks), races)
            for block in np.flatnonzero(blocks):
                model[kind, threads[0], int(block)].started.append(set(cells))
        elif action == 1:
            reads.commit(kind, active)
            for each in acting:
                each.commit()
        else:
            keep = dice.randrange(3)
            reads.wait(kind, keep, active, races, WARP)
            for each in acting:
                each.wait(keep)
        for block in range(BLOCKS):
            found, wanted = pending(races, block), in_flight(model, block)
            assert wanted <= found
            if together:
                assert found == wanted
