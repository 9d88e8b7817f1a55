"""A fence of the thread that wrote counts only for agents whose start it comes before."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.race_detector import RaceDetector

WARP, WARPS = 4, 2
CELLS = np.arange(4)


def lanes(warp: int) -> np.ndarray:
    """Return which threads of the block are those of a warp."""
    return np.arange(WARP * WARPS) // WARP == warp


def run(steps: str, reader: int) -> None:
    """Warp 0 writes and then makes each step: F, a fence of its own, or B, a barrier of all; an agent then reads.

    The agent is started by a thread of the warp `reader`.  Raises Unsupported.
    """
    detector = RaceDetector(CELLS.size, WARP * WARPS, WARP)
    detector.writes(CELLS, CELLS)
    for step in steps:
        if step == "F":
            detector.fence(lanes(0))
        else:
            detector.barrier(np.arange(WARPS))
    detector.pending_reads(CELLS, reader * WARP)


@pytest.mark.parametrize("steps", ["FB", "FBB", "BFB", "FBFB", "BBFB"])
def test_a_fence_before_a_barrier_shows_the_writes_to_the_agents_of_other_warps(steps: str) -> None:
    run(steps, 1)


@pytest.mark.parametrize("steps", ["BF", "BBF", "B", "BB"])
def test_a_fence_that_no_barrier_orders_before_the_agent_of_another_warp_shows_nothing(steps: str) -> None:
    with pytest.raises(Unsupported, match="no proxy fence after it"):
        run(steps, 1)


@pytest.mark.parametrize("steps", ["BF", "BBF", "FB", "BFB"])
def test_a_fence_shows_the_writes_to_the_agents_of_its_own_warp(steps: str) -> None:
    run(steps, 0)
