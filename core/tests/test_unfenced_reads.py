"""Loads that a copy may overtake: which fences end them, and in which states they are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.undetermined import Race

CELLS = np.arange(8)
EVERY = np.ones(64, dtype=bool)


def loaded(thread: int = 0) -> RaceDetector:
    """Return a detector of two warps after a thread has loaded all cells, and after a barrier."""
    found = RaceDetector(64, 64, 32)
    found.follow_unfenced_reads()
    read(found, thread)
    return found


def read(detector: RaceDetector, thread: int) -> None:
    detector.reads(CELLS, np.full(8, thread))
    detector.loads(CELLS, np.full(8, thread), 7)
    detector.barrier(np.arange(2))


def is_overtaken(detector: RaceDetector) -> bool:
    try:
        detector.copy().copies_over(CELLS, 0, 9)
    except Race as error:
        return [(each.line, each.other) for each in error.causes] == [(7, 9)]
    return False


@pytest.mark.parametrize("thread", [0, 40])
def test_a_fence_of_all_lanes_of_the_loading_warp_ends_its_loads(thread: int) -> None:
    detector, other = loaded(thread), np.arange(64) // 32 != thread // 32
    assert is_overtaken(detector)
    for part in (other, ~other & (np.arange(64) != thread)):
        detector.fence(part)
        assert is_overtaken(detector)
    detector.fence(~other)
    assert is_overtaken(detector) == (thread >= 32)  # nothing orders the fence of another warp before the copy
    detector.barrier(np.arange(2))
    assert not is_overtaken(detector)
    read(detector, thread)
    assert is_overtaken(detector)


def test_lanes_that_do_not_exist_need_no_fence() -> None:
    detector = RaceDetector(64, 40, 32)
    detector.follow_unfenced_reads()
    read(detector, 39)
    detector.fence(np.ones(40, dtype=bool))
    detector.barrier(np.arange(2))
    assert not is_overtaken(detector)


def test_excused_cells_are_excused_until_they_are_written() -> None:
    detector = RaceDetector(64, 64, 32)
    detector.follow_unfenced_reads()
    detector.excuse_loads(CELLS)
    read(detector, 0)
    assert not is_overtaken(detector)
    detector.writes(CELLS[:1], np.zeros(1, dtype=np.int64))
    read(detector, 0)
    assert is_overtaken(detector)


def test_states_with_and_without_such_loads_differ() -> None:
    detector = loaded()
    before = detector.state()
    detector.fence(EVERY)
    assert before is not None
    assert detector.state() not in (None, before)
    detector.barrier(np.arange(2))
    assert detector.state() is None


def test_a_fence_after_what_orders_the_copy_ends_no_load() -> None:
    """Warp 1 loads, arrives at a memory barrier for which warp 0 waits, and executes the fence then."""
    for order in ("fence first", "arrival first"):
        detector = RaceDetector(64, 64, 32)
        detector.follow_unfenced_reads()
        detector.begin(3, np.array([60]))
        detector.reads(CELLS, np.full(8, 40))
        detector.loads(CELLS, np.full(8, 40), 7)
        if order == "fence first":
            detector.fence(np.arange(64) >= 32)
        detector.enter_phase(3, np.array([1]))
        detector.arrive(3, np.array([1]))
        if order == "arrival first":
            detector.fence(np.arange(64) >= 32)
        detector.complete(3)
        detector.acquire(3, np.array([0]), 0)
        assert is_overtaken(detector) == (order == "arrival first")


def test_copies_are_unknown_where_loads_are_not_followed() -> None:
    with pytest.raises(Unsupported, match="is not followed here"):
        RaceDetector(64, 64, 32).copies_over(CELLS, 0, 9)
