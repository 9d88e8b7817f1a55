"""Which writes and copies of threads an agent sees: fences come before its start, by the right thread."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.races.proxy_fences import VisibleCopies
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.undetermined import Kind, Race

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


def copied(copies: VisibleCopies | None) -> RaceDetector:
    """Return a detector of threads that have copied to cells, waited for it, and met."""
    detector = RaceDetector(CELLS.size, WARP * WARPS, WARP, copies)
    detector.writes(CELLS, CELLS, pending=True, copied_at=7)
    detector.finished(CELLS, CELLS)
    detector.barrier(np.arange(WARPS))
    return detector


AGENT = AgentAccess((0, 0), WARP, writes=False)


def test_a_copy_needs_a_fence() -> None:
    with pytest.raises(Race, match="copied to with no proxy fence after it") as caught:
        copied(None).pending_reads(CELLS, WARP)
    assert [(each.kind, each.other) for each in caught.value.causes] == [(Kind.PROXY, 7)]


def test_a_measurement_holds_for_the_agents_that_were_measured_and_is_noted() -> None:
    copies = VisibleCopies("measured", set())
    detector = copied(copies)
    assert not copies.used
    with pytest.raises(Race, match="no proxy fence"):
        detector.pending_reads(CELLS, WARP, sees_copies=False)
    with pytest.raises(Race, match="no proxy fence"):
        detector.agent_reads(CELLS, AGENT)
    assert not copies.used
    detector.pending_reads(CELLS, WARP)
    assert copies.used == {"measured"}


def test_a_request_holds_for_all_agents_and_needs_no_note() -> None:
    copies = VisibleCopies("", set())
    detector = copied(copies)
    detector.agent_reads(CELLS, AGENT)
    detector.pending_reads(CELLS, WARP, sees_copies=False)
    assert not copies.used


@pytest.mark.parametrize("copies", [None, VisibleCopies("measured", set()), VisibleCopies("", set())])
def test_a_store_over_a_copy_needs_a_fence_in_any_case(copies: VisibleCopies | None) -> None:
    detector = copied(copies)
    detector.writes(CELLS[1:2], CELLS[1:2])
    detector.barrier(np.arange(WARPS))
    with pytest.raises(Race, match="no proxy fence"):
        detector.pending_reads(CELLS, WARP)
    detector.fence(lanes(0))
    detector.barrier(np.arange(WARPS))
    detector.pending_reads(CELLS, WARP)


def test_histories_that_differ_in_what_is_copied_are_kept_apart() -> None:
    """Where copies are visible, a later read is a race after a store, and none after a copy."""
    states = []
    for stored in (False, True):
        detector = copied(VisibleCopies("", set()))
        if stored:
            detector.writes(CELLS, CELLS)
            detector.barrier(np.arange(WARPS))
        states.append(detector.state())
    assert states[0] != states[1]
