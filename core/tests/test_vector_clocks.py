"""Vector clocks against a graph of what comes before what, searched from each access."""

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.vector_clocks import PENDING, VectorClocks

THREADS, WARP = 12, 4
WARPS = THREADS // WARP


class Graph:
    """Events of threads: each comes after the last one of its thread, and a barrier after the last ones of its threads.

    `before[e]` are all events before e, and `last[t]` is the last event of thread t.
    """

    def __init__(self) -> None:
        self.before: list[frozenset[int]] = [frozenset() for _ in range(THREADS)]
        self.last = list(range(THREADS))

    def add(self, threads: list[int]) -> None:
        """Add an event in which these threads take part."""
        found = frozenset.union(*(self.before[self.last[each]] | {self.last[each]} for each in threads))
        for each in threads:
            self.last[each] = len(self.before)
        self.before.append(found)

    def comes_after(self, thread: int, event: int) -> bool:
        """Return whether what a thread does next comes after an event."""
        return event in self.before[self.last[thread]] | {self.last[thread]}


def lanes(warps: np.ndarray) -> list[int]:
    return [thread for thread in range(THREADS) if thread // WARP in warps]


@pytest.mark.parametrize("seed", range(12))
def test_an_access_comes_after_those_that_barriers_order_before_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order, graph = VectorClocks(THREADS, WARP), Graph()
    accesses: list[tuple[int, int, np.int32, np.int32]] = []  # the thread, the event, the time and the step
    answers = set[bool]()
    for _ in range(60):
        warps = np.unique(rng.integers(0, WARPS, 2))
        match rng.integers(4):
            case 0:
                order.barrier(warps, None)
                graph.add(lanes(warps))
            case 1:
                order.warp_barrier(warps)
                for warp in warps:
                    graph.add(lanes(np.array([warp])))
            case _:
                thread = int(rng.integers(THREADS))
                graph.add([thread])
                warp = thread // WARP
                accesses.append((thread, graph.last[thread], order.clock[warp, warp], order.lockstep[warp]))
        for thread in range(THREADS):
            columns = [np.array(column) for column in zip(*accesses, strict=True)]
            if not columns:
                continue
            other, events, time, step = columns
            found = order.comes_after(np.full(other.size, thread), other, time, step).tolist()
            assert found == [graph.comes_after(thread, event) for event in events.tolist()]
            answers.update(found)
    assert answers == {False, True}


def test_nothing_comes_after_an_access_that_is_pending_and_everything_after_none() -> None:
    order = VectorClocks(THREADS, WARP)
    order.barrier(np.arange(WARPS), None)
    threads, zero = np.arange(THREADS), np.zeros(THREADS, dtype=np.int32)
    assert not order.comes_after(threads, np.zeros_like(threads), np.full(THREADS, PENDING), zero).any()
    assert order.comes_after(threads, np.full(THREADS, -1), zero, zero).all()


def test_a_copy_keeps_its_clocks_and_its_agents() -> None:
    order = VectorClocks(THREADS, WARP)
    agent = order.agent((1, 9))
    kept = order.copy()
    order.barrier(np.arange(WARPS), None)
    assert (order.agent((1, 9)), order.agent((1, 8)), kept.agents) == (agent, agent + 1, {(1, 9): agent})
    assert kept.clock.tolist() == np.eye(WARPS + 1).tolist()
    assert kept.lockstep.tolist() == [0] * (WARPS + 1)


def test_a_warp_that_may_arrive_before_the_last_meeting_is_no_order() -> None:
    order = VectorClocks(THREADS, WARP)
    order.barrier(np.array([0, 1]), 1)
    order.copy().barrier(np.array([0, 1]), 1)
    with pytest.raises(Unsupported, match="which warps meet at a barrier depends on the order"):
        order.copy().barrier(np.array([1, 2]), 1)
    order.barrier(np.array([1, 2]), 2)
    order.barrier(np.array([1, 2]), 1)
