# ruff: noqa: E501 - a line of PTX is read as one
"""Warps that meet at barriers of some threads, and at phases of memory barriers, in every order in which they run.

Random programs of warps are held against all interleavings; forms that are named once went unnoticed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from bitwise_core.execution.concrete import checked_outputs
from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import run, text

CELLS = 2
ROOM = ".shared .align 16 .b8 room[4096]; .shared .align 8 .b64 bars[2];"
START = """
    shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; mov.u32 %r3, %ctaid.x; mov.u32 %r5, room; mov.u32 %r20, bars;
    setp.eq.b32 %p8, %r2, 0; setp.eq.b32 %p9, %r0, 0; @%p9 mbarrier.init.shared.b64 [%r20], {count};
    mul.wide.u32 %d2, %r0, 8; mul.wide.u32 %d4, %r3, 1024; add.s64 %d2, %d2, %d4; add.s64 %d3, %d1, %d2;
    ld.global.b32 %r10, [%d3]; ld.global.b32 %r11, [%d3+4]; shl.b32 %r6, %r2, 2; add.u32 %r7, %r5, %r6; mov.b32 %r9, 0;
    setp.eq.b32 %p7, %r1, 0; @%p7 st.shared.b32 [%r7], %r9; @%p7 st.shared.b32 [%r7+128], %r9; bar.sync 0;
"""
"""%r1: the warp; %r2: the lane; %r3: the block; %r7: the lane's cell; %r20: the mbarrier; %p8: lane 0."""
END = "END: add.s64 %d4, %d0, %d2; st.global.b32 [%d4], %r10; st.global.b32 [%d4+4], %r11;"
ARRIVE = "mbarrier.arrive.shared.b64 %d9, [%r20];"


def wait(label: str, parity: int) -> str:
    return f"{label}: mbarrier.try_wait.parity.shared.b64 %p3, [%r20], {parity}; @!%p3 bra {label};"


def reason(body: str, warps: int, count: int = 1, blocks: int = 1) -> str | None:
    """Return why the kernel has no determined result, None if it has one."""
    try:
        memory, written = run(START.format(count=count) + body + END, threads=32 * warps, blocks=blocks, shared=ROOM)
        checked_outputs(memory, written)
    except Unsupported as error:
        return str(error)
    return None


class Step(NamedTuple):
    """One step of a warp on each lane's own cell; `number` and `other` are operands."""

    verb: str
    number: int
    other: int = 0


def program(draw: random.Random, warps: int) -> list[list[Step]]:
    """Return the steps of each warp: stores, loads, barriers of all and of two warps, arrivals and waits."""

    def step() -> Step:
        chance = draw.random()
        if chance < 0.4:
            return Step("st" if chance < 0.2 else "ld", draw.randrange(CELLS), draw.randrange(2))
        if chance < 0.75:
            return Step("bar", 0) if chance < 0.42 else Step("bar", 1 + (chance < 0.5), 2)
        return Step("arrive", 0) if chance < 0.92 else Step("wait", draw.randrange(2))

    return [[step() for _ in range(draw.randrange(1, 5))] for _ in range(warps)]


def body_of(steps: Sequence[Sequence[Step]]) -> str:
    """Return the text of a program."""
    lines = [f"setp.eq.b32 %p6, %r1, {warp}; @%p6 bra WARP{warp};" for warp in range(len(steps))]
    for warp, own in enumerate(steps):
        lines.append(f"bra END; WARP{warp}:")
        for place, each in enumerate(own):
            counted = f", {32 * each.other}" if each.other else ""
            lines.append(
                {
                    "st": f"st.shared.b32 [%r7+{128 * each.number}], %r1{each.other};",
                    "ld": f"ld.shared.b32 %r1{each.other}, [%r7+{128 * each.number}];",
                    "bar": f"bar.sync {each.number}{counted};",
                    "arrive": f"@%p8 {ARRIVE}",
                    "wait": wait(f"W{warp}P{place}", each.number),
                }[each.verb]
            )
    return "\n".join(lines)


@dataclass(frozen=True)
class State:
    """The next step, the registers and the barrier (-1: none) of each warp; the cells; the phase and what it lacks."""

    places: tuple[int, ...]
    registers: tuple[tuple[str, str], ...]
    waiting: tuple[int, ...]
    cells: tuple[str, ...]
    phase: tuple[int, int]


def results(steps: Sequence[Sequence[Step]], count: int) -> set[tuple[tuple[str, str], ...]]:
    """Return the registers at the end of every interleaving that ends."""
    warps = range(len(steps))
    named = tuple((f"{warp} 0", f"{warp} 1") for warp in warps)
    first = State((0,) * len(steps), named, (-1,) * len(steps), ("0",) * CELLS, (0, count))
    seen, left, found = {first}, [first], set()
    while left:
        state = left.pop()
        if all(place == len(own) for place, own in zip(state.places, steps, strict=True)):
            found.add(state.registers)
        for warp in warps:
            after = moved(state, warp, steps, count)
            if after is not None and after not in seen:
                seen.add(after)
                left.append(after)
    return found


def moved(state: State, warp: int, steps: Sequence[Sequence[Step]], count: int) -> State | None:
    """Return the state after the next step of a warp, None if it cannot run."""
    if state.waiting[warp] >= 0 or state.places[warp] == len(steps[warp]):
        return None
    step = steps[warp][state.places[warp]]
    places, waiting, cells, phase = list(state.places), list(state.waiting), list(state.cells), state.phase
    registers = [list(each) for each in state.registers]
    places[warp] += 1
    if step.verb == "st":
        cells[step.number] = registers[warp][step.other]
    elif step.verb == "ld":
        registers[warp][step.other] = cells[step.number]
    elif step.verb == "arrive":
        phase = (phase[0], phase[1] - 1) if phase[1] > 1 else (phase[0] + 1, count)
    elif step.verb == "wait" and phase[0] % 2 == step.number:
        return None
    elif step.verb == "bar":
        waiting[warp] = step.number
    for number in range(3):
        there = [each for each, own in enumerate(waiting) if own == number]
        alive = [each for each, own in enumerate(steps) if places[each] < len(own) or waiting[each] >= 0]
        if there and len(there) >= (2 if number else len(alive)):
            waiting = [-1 if each == number else each for each in waiting]
    return State(tuple(places), tuple((one, other) for one, other in registers), tuple(waiting), tuple(cells), phase)


def test_determined_programs_have_one_result_in_all_interleavings() -> None:
    draw, determined, several = random.Random(1), 0, 0
    for _ in range(200):
        warps, count = draw.choice((2, 3, 3, 4)), draw.choice((1, 1, 2))
        steps = program(draw, warps)
        ends = results(steps, count)
        if not ends:
            continue
        several += len(ends) > 1
        if reason(body_of(steps), warps, count) is None:
            determined += 1
            assert len(ends) == 1, text(body_of(steps))
    assert determined > 12
    assert several > 15


MEET = "st.shared.b32 [%r8], %r10; {} xor.b32 %r9, %r0, {}; shl.b32 %r9, %r9, 2; add.u32 %r9, %r5, %r9; ld.shared.b32 %r10, [%r9];"
OWN = "bar.sync 0; shl.b32 %r8, %r0, 2; add.u32 %r8, %r5, %r8;"
PAIRS = "setp.lt.u32 %p2, %r0, 64; @%p2 bra LOW; bar.sync {}, 64; bra BOTH; LOW: bar.sync 1, 64; BOTH:"
OTHER_WARPS = "setp.lt.u32 %p2, %r0, 64; setp.eq.u32 %p3, %r3, 0; xor.pred %p4, %p2, %p3; @!%p4 bar.sync 1, 64;"
HANDED = "setp.eq.b32 %p5, %r1, 0; @!%p5 bra SECOND; {} bra END; SECOND: {} ld.shared.b32 %r10, [%r5];"


@pytest.mark.parametrize(
    ("body", "warps", "blocks", "determined"),
    [
        # Which pairs of four warps meet is open where all of them use one barrier.
        (OWN + MEET.format("bar.sync 1, 64;", 32), 4, 1, False),
        (OWN + MEET.format("bar.sync 1, 128;", 32), 4, 1, True),
        (OWN + MEET.format(PAIRS.format(1), 32), 4, 1, False),
        (OWN + MEET.format(PAIRS.format(2), 32), 4, 1, True),
        # Half of the warps of each block meet, other ones in each block: the others read without an order.
        (OWN + MEET.format(OTHER_WARPS, 64), 4, 2, False),
        # A wait for phase 0 may end before the store that comes before phase 1.
        (HANDED.format(f"@!%p8 bra END; {ARRIVE} st.shared.b32 [%r5], %r10; {ARRIVE} {ARRIVE}", wait("A", 0)), 2, 1, False),
        (HANDED.format(f"@!%p8 bra END; st.shared.b32 [%r5], %r10; {ARRIVE}", wait("A", 0)), 2, 1, True),
        (HANDED.format(f"@!%p8 bra END; {ARRIVE} st.shared.b32 [%r5], %r10; {ARRIVE}", wait("A", 1)), 2, 1, False),
        # Nothing orders the store of lane 7 before the load of lane 0, which alone has arrived and waits.
        (f"@%p8 {ARRIVE} setp.eq.b32 %p5, %r2, 7; @%p5 st.shared.b32 [%r5], %r10; @!%p8 bra END; {wait('A', 0)} ld.shared.b32 %r10, [%r5];", 1, 1, False),
        # Warp 0 arrives in block 0, and warp 1 in block 1.
        (OWN + f"setp.lt.u32 %p5, %r1, 2; @!%p5 bra SECOND; setp.eq.b32 %p4, %r1, %r3; st.shared.b32 [%r8], %r10; and.pred %p4, %p4, %p8; @%p4 {ARRIVE} bra END; SECOND: {wait('A', 0)} xor.b32 %r8, %r3, 1; shl.b32 %r8, %r8, 7; add.u32 %r8, %r7, %r8; ld.shared.b32 %r10, [%r8];", 3, 2, False),
    ],
)  # fmt: skip
def test_meetings(body: str, warps: int, blocks: int, *, determined: bool) -> None:
    assert (reason(body, warps, blocks=blocks) is None) == determined


def test_all_lanes_that_arrive_and_wait_are_ordered() -> None:
    ordered = f"st.shared.b32 [%r7], %r10; {ARRIVE} {wait('A', 0)} xor.b32 %r8, %r7, 4; ld.shared.b32 %r10, [%r8];"
    late = f"{ARRIVE} st.shared.b32 [%r7], %r10; {wait('A', 0)} xor.b32 %r8, %r7, 4; ld.shared.b32 %r10, [%r8];"
    assert reason(ordered, 1, count=32) is None
    alone = ordered.replace("A: mb", "setp.lt.u32 %p4, %r2, 8; @!%p4 bra END; A: mb")
    assert alone != ordered
    assert reason(alone, 1, count=32) is not None
    assert reason(late, 1, count=32) is not None
