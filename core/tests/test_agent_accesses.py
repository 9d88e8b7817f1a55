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


def stores(thread: int) -> Step:
    return lambda races: races.writes(CELLS, np.full(4, thread))


def reads(thread: int) -> Step:
    return lambda races: races.reads(CELLS, np.full(4, thread))


def warp_barrier(warp: int) -> Step:
    return lambda races: races.warp_barrier(np.array([warp]))


def fence(*threads: int) -> Step:
    return lambda races: races.fence(np.isin(np.arange(races.threads), threads))


def with_a_barrier() -> RaceDetector:
    races = RaceDetector(64, 64, 32)
    races.begin(9, np.array([60]))
    return races


def publishes(races: RaceDetector) -> None:
    """The agent arrives at the memory barrier, whose phase ends."""
    races.agent_arrives(PIPELINE, 0, 9)
    races.complete(9)


def acquires(warp: int) -> Step:
    """A warp waits for the last phase that has ended."""
    return lambda races: races.acquire(9, np.array([warp]), 1 - races.barriers.phases[9].ended % 2)


def rounds(count: int, *more: Step) -> bytes | None:
    """Return the state after iterations in which an agent reads and writes, and all warps wait for it."""
    races = with_a_barrier()
    iteration = stores(32), fence(32), block_barrier, reads_shared(), WRITE, publishes, acquires(0), acquires(1)
    for _ in range(2 * count):  # the parity of the phases is a part of the state
        for step in (*iteration, block_barrier):
            step(races)
    for step in more:
        step(races)
    return races.state()


def test_iterations_whose_work_has_ended_leave_one_state() -> None:
    assert rounds(1) == rounds(2) == rounds(5)


@pytest.mark.parametrize("number", range(5))
def test_later_accesses_leave_a_state_of_their_own(number: int) -> None:
    step = [READ, WRITE, reads_shared(), stores(0), stores(32)][number]
    assert rounds(1, step) == rounds(3, step) != rounds(1)


def test_a_fence_that_some_warps_have_not_seen_is_part_of_the_state() -> None:
    steps = stores(32), block_barrier
    seen = (*steps, fence(0), block_barrier)
    assert rounds(1, *seen) == rounds(2, *seen)
    assert len({rounds(1, *steps), rounds(1, *steps, fence(0)), rounds(1, *seen), rounds(1, *steps, fence(32))}) == 4


def outcome(races: RaceDetector, step: Step) -> str:
    try:
        step(races)
    except Unsupported as error:
        return str(error)
    return ""


def test_histories_of_one_state_treat_later_accesses_alike() -> None:
    """Random histories are grouped by state, and pairs of each group are continued in the same random way."""
    other = access(OTHER, writes=True, thread=32, kind=5, after=(5,))
    pool = [
        READ, WRITE, REPEAT, other, reads_shared(), reads_shared(32), stores(0), stores(32), fence(0), fence(32),
        block_barrier, block_barrier, publishes, acquires(0), acquires(1), waits(PIPELINE, 0), waits(OTHER, 32),
        reads(0), reads(32),
    ]  # fmt: skip
    draw = np.random.default_rng(5)
    groups: dict[bytes | None, list[RaceDetector]] = {}
    for _ in range(1500):
        races = with_a_barrier()
        steps = [pool[each] for each in draw.integers(len(pool), size=int(draw.integers(1, 9)))]
        if not any(outcome(races, step) for step in steps):
            groups.setdefault(races.state(), []).append(races)
    pairs = [(members[0], each) for members in groups.values() for each in members[1:4]]
    assert len(pairs) > 80
    assert len(groups) > 200
    for first, second in pairs:
        for _ in range(8):
            one, two = first.copy(), second.copy()
            for step in [pool[each] for each in draw.integers(len(pool), size=6)]:
                found = outcome(one, step)
                assert found == outcome(two, step)
                if found:
                    break


def test_an_agent_reads_what_a_fence_has_made_visible() -> None:
    races = RaceDetector(64, 64, 32)
    races.writes(CELLS, np.zeros(4, dtype=np.int64))
    block_barrier(races)
    with pytest.raises(Unsupported, match="no proxy fence"):
        reads_shared(32)(races)


VISIBLE = {
    "a fence of the writer": [stores(32), fence(32), block_barrier, reads_shared(64)],
    "a fence of the reader": [stores(32), block_barrier, fence(64), reads_shared(64)],
    "a fence of a third warp": [stores(32), block_barrier, fence(0), block_barrier, reads_shared(64)],
    "fences of several warps": [stores(32), block_barrier, fence(0, 64), reads_shared(64)],
    "a later fence of the reader": [stores(32), block_barrier, fence(0), fence(64), reads_shared(64)],
    "a fence of the lane that reads": [stores(32), block_barrier, fence(64), reads_shared(64)],
    "a fence of another lane before a barrier": [stores(32), block_barrier, fence(65), block_barrier, reads_shared(64)],
    "a fence of another lane before a barrier of its warp": [
        stores(32),
        block_barrier,
        fence(65),
        warp_barrier(2),
        reads_shared(64),
    ],
    "fences of both lanes": [stores(32), block_barrier, fence(65), fence(64), reads_shared(64)],
    "a fence of a lane of a third warp": [stores(32), block_barrier, fence(3), block_barrier, reads_shared(64)],
    "an earlier fence of the reader": [stores(32), block_barrier, fence(64), fence(0), reads_shared(64)],
}
INVISIBLE = {
    "no fence": [stores(32), block_barrier, reads_shared(64)],
    "a fence that has not seen the write": [stores(32), fence(64), block_barrier, reads_shared(64)],
    "a fence of another lane of the reader's warp": [stores(32), block_barrier, fence(65, 66), reads_shared(64)],
    "a fence of another lane before a barrier of another warp": [
        stores(32), block_barrier, fence(65), warp_barrier(1), reads_shared(64),
    ],
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


AT_WHICH_PHASE = "at which phase of a memory barrier a thread arrives depends on the order"


def two_arrivals(barriers: tuple[int, int], *, in_order: bool) -> RaceDetector:
    """The work of one thread arrives at two memory barriers by one instruction, and both phases end."""
    races = RaceDetector(64, 64, 32)
    for barrier in barriers:
        races.begin(barrier, np.array([barrier]))
    races.begin_completion(0)
    for barrier in barriers:
        races.agent_arrives(PIPELINE, 0, barrier, in_order=in_order)
        races.complete(barrier)
    return races


@pytest.mark.parametrize("in_order", [False, True])
def test_an_earlier_arrival_of_a_thread_has_come_before_at_the_same_barrier(in_order: bool) -> None:
    races = two_arrivals((9, 11), in_order=in_order)
    for _ in range(3):
        races.begin_completion(0)
        races.agent_arrives(PIPELINE, 0, 9, in_order=in_order)
        races.complete(9)
    with pytest.raises(Unsupported, match=AT_WHICH_PHASE):
        races.agent_arrives(OTHER, 32, 9, in_order=in_order)


@pytest.mark.parametrize("in_order", [False, True])
def test_who_has_seen_an_arrival_knows_of_the_others_of_its_instruction_if_they_are_together(in_order: bool) -> None:
    races = two_arrivals((9, 11), in_order=in_order)
    races.acquire(9, np.array([1]), 0)
    if in_order:
        races.enter_phase(11, np.array([1]))
    else:
        with pytest.raises(Unsupported, match=AT_WHICH_PHASE):
            races.enter_phase(11, np.array([1]))


def test_who_has_seen_an_arrival_knows_nothing_of_later_ones() -> None:
    races = two_arrivals((9, 11), in_order=True)
    races.begin_completion(0)
    races.agent_arrives(PIPELINE, 0, 11, in_order=True)
    races.complete(11)
    races.acquire(9, np.array([1]), 0)
    with pytest.raises(Unsupported, match=AT_WHICH_PHASE):
        races.enter_phase(11, np.array([1]))


def test_states_of_barriers_after_other_numbers_of_arrivals_are_equal() -> None:
    assert rounds(1, publishes, acquires(0), acquires(1)) == rounds(3, publishes, acquires(0), acquires(1))
