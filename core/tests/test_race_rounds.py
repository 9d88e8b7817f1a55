"""Barriers of all warps settle earlier accesses: the race detector need not look at these, and its answers stay."""

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.last_accesses import LastAccesses
from bitwise_core.execution.races.proxy_fences import ProxyFences
from bitwise_core.execution.races.race_detector import RaceDetector
from covering import drawn_params

CELLS, THREADS, WARP = 24, 16, 4


class WithoutRounds(LastAccesses):
    """Accesses that are recorded at once, and whose clocks are compared at every later access."""

    def of_this_round(self, rounds: np.ndarray, cells: np.ndarray) -> bool:
        return True

    def record_reads(self, cells: np.ndarray, actor: np.ndarray) -> None:
        super().record_reads(cells, actor)
        self.record_deferred()


def answer(detector: RaceDetector, name: str, cells: np.ndarray, actor: np.ndarray, choice: int) -> list[object]:
    """Make one access or wait, and return what the detector says about it."""
    warps = np.unique(actor // WARP)
    try:
        match name:
            case "read":
                return detector.unordered_reads(cells, actor).tolist()
            case "write":
                of_readers, of_writers = detector.unordered_writes(cells, actor)
                if (of_readers | of_writers).any() and detector.has_pending(cells[of_readers | of_writers]):
                    return ["an asynchronous access has not been waited for"]
                detector.record_writes(cells, actor, of_writers, np.full(cells.shape, choice % 2 == 0))
                return [of_readers.tolist(), of_writers.tolist()]
            case "copy":
                detector.writes(cells, actor, pending=True)
            case "copied":
                detector.finished(cells, actor)
            case "matrix":
                detector.pending_reads(cells, int(actor[0]))
            case "matrix done":
                detector.finished_reads(np.unique(cells), int(actor[0]))
            case "fence":
                detector.fence(np.ones(THREADS, dtype=bool))
            case "engine":
                detector.complete(choice)
                detector.arrived(cells, choice)
            case "acquire":
                detector.acquire(choice, warps, 1 - detector.barriers.phases[choice].ended % 2)
            case "publish":
                detector.arrive(choice, warps)
                detector.complete(choice)
            case "barrier":
                detector.barrier(np.arange(THREADS // WARP))
            case "barrier of some":
                detector.barrier(warps)
            case "warp barrier":
                detector.warp_barrier(warps)
    except Unsupported as error:
        return [str(error)]
    return []


def detectors() -> tuple[RaceDetector, RaceDetector]:
    """Return detectors with two memory barriers, the second one without rounds."""
    found = RaceDetector(CELLS, THREADS, WARP), RaceDetector(CELLS, THREADS, WARP)
    found[1].accesses = WithoutRounds(found[1].cells, found[1].order)
    found[1].fences = ProxyFences(found[1].cells, found[1].accesses)
    for each in found:
        for barrier in range(2):
            each.begin(barrier, np.zeros(0, dtype=np.int64))
    return found


NAMES = [
    *("read", "write", "copy", "copied", "matrix", "matrix done", "fence", "engine", "acquire", "publish"),
    *("barrier", "barrier", "barrier", "barrier of some", "warp barrier", "read", "write", "write", "read"),
]


@pytest.mark.parametrize("seed", drawn_params(range(30), lambda seed: seed < 10))
def test_settled_accesses_need_no_comparison_of_clocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fast, slow = detectors()
    said: set[str] = set()
    for _ in range(200):
        name = NAMES[rng.integers(len(NAMES))]
        actor = np.sort(rng.choice(THREADS, int(rng.integers(1, 5)), replace=False))
        cells = rng.integers(0, CELLS + 8 * (seed % 2), actor.size)
        choice = int(rng.integers(2))
        expected = answer(slow, name, cells, actor, choice)
        assert answer(fast, name, cells, actor, choice) == expected
        assert fast.state() == slow.state()
        said.update(str(each) for each in expected)
    assert len(said) > 3


@pytest.mark.parametrize("seed", drawn_params(range(60), lambda seed: seed < 16))
@pytest.mark.parametrize("asynchronous", [False, True])
def test_reads_are_recorded_before_what_may_race_with_them(seed: int, asynchronous: bool) -> None:
    rng = np.random.default_rng(1000 + seed)
    fast, slow = detectors()
    names = [name for name in NAMES if asynchronous or not name.startswith("matrix")]
    deferred, said = 0, set[str]()
    for step in range(300):
        name = names[rng.integers(len(names))] if step % 3 else "read"
        actor = np.sort(rng.choice(THREADS, int(rng.integers(1, 5)), replace=False))
        cells, choice = rng.integers(0, CELLS, actor.size), int(rng.integers(2))
        expected = answer(slow, name, cells, actor, choice)
        assert answer(fast, name, cells, actor, choice) == expected
        said.update(str(each) for each in expected)
        deferred = max(deferred, len(fast.accesses.deferred))
        if step % 70 == 69:
            # A copy has all reads, and what follows has no effect on it.
            assert fast.copy().state() == slow.state()
    assert len(said) > 3
    assert asynchronous or deferred > 1
