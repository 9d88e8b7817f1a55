"""Races of asynchronous agents: with each other, with threads, and what waiting for them orders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.undetermined import Race

CELLS = np.arange(4)
PIPELINE, OTHER = (1, 0), (2, 32)
Step = Callable[[RaceDetector], None]


def access(
    agent: tuple[int, int],
    *,
    writes: bool,
    thread: int = 0,
    kind: int = 0,
    after: tuple[int, ...] = (),
    repeats: bool = False,
) -> Step:
    found = AgentAccess(agent, thread, writes, kind, frozenset(after), repeats)
    return lambda races: races.agent_accesses("m", CELLS, found)


def reads_shared(thread: int = 0) -> Step:
    return lambda races: races.agent_reads(CELLS, AgentAccess(PIPELINE, thread, writes=False))


def waits(agent: tuple[int, int], thread: int) -> Step:
    return lambda races: races.wait_for_agent(agent, thread)


def arrives(barrier: int = 9) -> Step:
    def act(races: RaceDetector) -> None:
        races.begin(barrier, np.zeros(0, dtype=np.int64))
        races.agent_arrives(PIPELINE, 0, barrier)

    return act


def completes(*warps: int, barrier: int = 9) -> Step:
    def act(races: RaceDetector) -> None:
        races.complete(barrier)
        races.acquire(barrier, np.array(warps), 0)

    return act


def block_barrier(races: RaceDetector) -> None:
    races.barrier(np.arange(races.warps))


def writes(thread: int) -> Step:
    def act(races: RaceDetector) -> None:
        races.writes(CELLS, np.full(4, thread))
        races.fence(np.arange(64) == thread)

    return act


WRITE, READ = access(PIPELINE, writes=True), access(PIPELINE, writes=False)
REPEAT, THIRD = access(OTHER, writes=True, thread=32, repeats=True), (3, 0)
ORDERED = {
    "reads of two agents": [READ, access(OTHER, writes=False, thread=32)],
    "a write after a wait for its agent": [WRITE, waits(PIPELINE, 0), WRITE],
    "a write of another warp after a wait and a barrier": [
        WRITE, waits(PIPELINE, 0), block_barrier, access(OTHER, writes=True, thread=32),
    ],
    "a write of another warp after a memory barrier": [
        WRITE, arrives(), completes(1), access(OTHER, writes=True, thread=32),
    ],
    "a write that repeats another agent's": [WRITE, REPEAT],
    "a write after both of two equal writes": [
        WRITE, REPEAT, waits(PIPELINE, 0), waits(OTHER, 32), block_barrier, access(THIRD, writes=True),
    ],
    "a read after the first of two equal writes": [
        WRITE, REPEAT, waits(PIPELINE, 0), access(THIRD, writes=False),
    ],
    "work in a pipeline": [
        access(PIPELINE, writes=True, kind=5), access(PIPELINE, writes=True, kind=5, after=(5,)),
    ],
    "a write of shared memory after a memory barrier": [reads_shared(), arrives(), completes(1), writes(32)],
    "a read of what a thread wrote before a barrier": [writes(32), block_barrier, reads_shared()],
    "what the issuing warp had seen of another agent": [
        access(OTHER, writes=False, thread=32), waits(OTHER, 32), block_barrier, WRITE, arrives(), completes(1),
        access((3, 32), writes=True, thread=32),
    ],
}  # fmt: skip
RACES = {
    "two writes of one agent": [WRITE, WRITE],
    "two writes after a barrier of the block": [WRITE, block_barrier, access(OTHER, writes=True, thread=32)],
    "a write that reads are not known to precede": [READ, block_barrier, WRITE],
    "a read of what is being written": [WRITE, access(OTHER, writes=False, thread=32)],
    "a write of another warp after a wait without a barrier": [
        WRITE, waits(PIPELINE, 0), access(OTHER, writes=True, thread=32),
    ],
    "a write of a warp that has not waited for the memory barrier": [
        WRITE, arrives(), completes(0), access(OTHER, writes=True, thread=32),
    ],
    "work that was issued after the arrival": [
        WRITE, arrives(), completes(0), WRITE, completes(1), access(OTHER, writes=True, thread=32),
    ],
    "work of another kind in a pipeline": [
        access(PIPELINE, writes=True, kind=5), access(PIPELINE, writes=True, kind=6, after=(6,)),
    ],
    "an earlier read of another kind": [
        access(PIPELINE, writes=False, kind=1), access(PIPELINE, writes=False, kind=5),
        access(PIPELINE, writes=True, kind=5, after=(5,)),
    ],
    "another agent's work of the same kind": [
        access(OTHER, writes=True, thread=32, kind=5), access(PIPELINE, writes=True, kind=5, after=(5,)),
    ],
    "a write after the first of two equal writes": [
        WRITE, REPEAT, waits(PIPELINE, 0), block_barrier, access(THIRD, writes=True),
    ],
    "a write after the second of two equal writes": [
        WRITE, REPEAT, waits(OTHER, 32), block_barrier, access(THIRD, writes=True),
    ],
    "a write that repeats another after a read that it does not know": [
        access(THIRD, writes=False), waits(THIRD, 0), WRITE, REPEAT,
    ],
    "a write of shared memory that is being read": [reads_shared(), block_barrier, writes(32)],
    "a write of shared memory by the issuing thread": [reads_shared(), writes(0)],
    "a write before the phase completes": [reads_shared(), arrives(), block_barrier, writes(32)],
    "a read of what another thread writes": [writes(32), reads_shared()],
}  # fmt: skip


def run(steps: list[Step]) -> None:
    races = RaceDetector(64, 64, 32)
    for step in steps:
        step(races)


@pytest.mark.parametrize("steps", ORDERED.values(), ids=ORDERED)
def test_ordered_accesses(steps: list[Step]) -> None:
    run(steps)


@pytest.mark.parametrize("steps", RACES.values(), ids=RACES)
def test_races(steps: list[Step]) -> None:
    run(steps[:-1])
    with pytest.raises(Race):
        run(steps)


def test_a_copy_of_a_history_is_independent() -> None:
    first = RaceDetector(64, 64, 32)
    WRITE(first)
    second = first.copy()
    waits(PIPELINE, 0)(first)
    WRITE(first)
    with pytest.raises(Race):
        WRITE(second)


def test_histories_with_other_accesses_have_other_states() -> None:
    def state(*steps: Step) -> bytes | None:
        races = RaceDetector(64, 64, 32)
        for step in steps:
            step(races)
        return races.state()

    alike = [state(WRITE), state(WRITE)]
    others = [state(), state(READ), state(reads_shared()), state(WRITE, arrives()), state(WRITE, waits(PIPELINE, 0))]
    assert alike[0] == alike[1]
    assert len({alike[0], *others}) == 6


def test_an_agent_reads_what_a_fence_has_made_visible() -> None:
    races = RaceDetector(64, 64, 32)
    races.writes(CELLS, np.zeros(4, dtype=np.int64))
    block_barrier(races)
    with pytest.raises(Unsupported, match="no proxy fence"):
        reads_shared(32)(races)


def stores(thread: int) -> Step:
    return lambda races: races.writes(CELLS, np.full(4, thread))


def fence(*threads: int) -> Step:
    return lambda races: races.fence(np.isin(np.arange(races.threads), threads))


VISIBLE = {
    "a fence of the writer": [stores(32), fence(32), block_barrier, reads_shared(64)],
    "a fence of the reader": [stores(32), block_barrier, fence(64), reads_shared(64)],
    "a fence of a third warp": [stores(32), block_barrier, fence(0), block_barrier, reads_shared(64)],
    "fences of several warps": [stores(32), block_barrier, fence(0, 64), reads_shared(64)],
    "a later fence of the reader": [stores(32), block_barrier, fence(0), fence(64), reads_shared(64)],
    "an earlier fence of the reader": [stores(32), block_barrier, fence(64), fence(0), reads_shared(64)],
}
INVISIBLE = {
    "no fence": [stores(32), block_barrier, reads_shared(64)],
    "a fence that has not seen the write": [stores(32), fence(64), block_barrier, reads_shared(64)],
    "a fence that the reader has not seen": [stores(32), block_barrier, fence(0), reads_shared(64)],
    "a write after the fence": [
        stores(32), block_barrier, fence(64), block_barrier, stores(32), block_barrier, reads_shared(64),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", VISIBLE.values(), ids=VISIBLE)
def test_writes_before_a_fence_are_visible_to_work_after_it(steps: list[Step]) -> None:
    races = RaceDetector(64, 96, 32)
    for step in steps:
        step(races)


@pytest.mark.parametrize("steps", INVISIBLE.values(), ids=INVISIBLE)
def test_writes_without_a_fence_on_the_way_are_not_visible(steps: list[Step]) -> None:
    races = RaceDetector(64, 96, 32)
    for step in steps[:-1]:
        step(races)
    with pytest.raises(Unsupported, match="no proxy fence"):
        steps[-1](races)
