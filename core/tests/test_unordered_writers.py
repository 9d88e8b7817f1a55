"""Writes of several threads to one cell: each cell's later accesses are compared with its own writers only."""

import numpy as np
import pytest

from bitwise_core.execution.races.race_detector import RaceDetector

CELLS, THREADS, WARP = 6, 16, 4


def accesses(detector: RaceDetector, name: str, cells: np.ndarray, actor: np.ndarray, kept: bool) -> list[bool]:
    """Read or write; return for each cell whether a thread's access is a race."""
    if name == "read":
        races = detector.unordered_reads(cells, actor)
    else:
        of_readers, of_writers = detector.unordered_writes(cells, actor)
        detector.record_writes(cells, actor, of_writers, np.full(cells.shape, kept))
        races = of_readers | of_writers
    return races.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_a_cell_has_the_races_that_it_has_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    together = RaceDetector(CELLS, THREADS, WARP)
    alone = [RaceDetector(CELLS, THREADS, WARP) for _ in range(CELLS)]
    races = 0
    for _ in range(40):
        warps = np.unique(random.integers(0, THREADS // WARP, 3))
        match name := random.choice(["read", "write", "write", "warp barrier", "barrier of some", "barrier"]):
            case "warp barrier":
                for each in (together, *alone):
                    each.warp_barrier(warps)
            case "barrier of some":
                for each in (together, *alone):
                    each.barrier(warps)
            case "barrier":
                for each in (together, *alone):
                    each.barrier(np.arange(THREADS // WARP))
            case _:
                actor = np.sort(random.choice(THREADS, random.integers(1, 9), replace=False))
                cells = random.integers(0, CELLS, actor.size)
                kept = bool(random.integers(0, 2))
                found = accesses(together, name, cells, actor, kept)
                races += sum(found)
                for cell in np.unique(cells).tolist():
                    mine = cells == cell
                    assert np.array(found)[mine].tolist() == accesses(alone[cell], name, cells[mine], actor[mine], kept)
    assert races


def test_lanes_of_several_warps_that_repeat_each_others_writes_need_barriers_of_their_warps_only() -> None:
    detector = RaceDetector(8, 16, 4)
    actor, cells = np.arange(16), np.arange(16) // 4
    assert not any(accesses(detector, "write", cells, actor, False))
    detector.warp_barrier(np.arange(4))
    assert not any(accesses(detector, "write", cells, actor, False))
    assert all(accesses(detector, "write", cells[::-1], actor, False))
