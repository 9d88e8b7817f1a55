"""Threads that arrive at memory barriers and wait for their phases, against all orders of their operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes

Program: TypeAlias = Sequence[str]
"""The operations of a thread: `s1=5` stores, `l1` loads, `a` arrives, `w0` waits for the phase of a parity."""

ROOM = ".shared .align 16 .b8 room[64];"
SEVERAL: list[tuple[int, list[Program]]] = [
    (3, [["a", "s1=2", "a"], ["a", "l0", "l0", "w0", "l1"], ["a"]]),
    (1, [["a", "a", "w0", "w1"], ["l0", "w0", "s1=4", "s1=5", "a"], ["l1", "l1", "s1=3", "a"]]),
    (1, [["l0", "a", "s1=6", "w0", "a"], ["a"], ["a", "a", "w0", "l1", "l1"]]),
    (1, [["l1", "a", "s1=2"], ["a", "a", "w0", "s1=9"], ["l0", "w0", "a"]]),
    (1, [["s1=1", "a", "s1=2", "a", "s1=3", "a"], ["w0", "l1"], []]),
]
"""How many arrivals a phase waits for, and three threads whose loads return other numbers in another order."""
ONE: list[tuple[int, list[Program]]] = [
    (2, [["w0", "l1", "l1", "a", "l1"], ["l0", "s1=1", "a"], ["a", "w0"]]),
    (2, [["l0", "a", "s1=9", "a", "w0"], ["s1=8", "l0", "s1=3"], ["w0"]]),
    (1, [["w0", "a", "a", "l1"], ["w0"], ["a"]]),
    (2, [["s1=4", "a", "w0", "a", "w1"], ["a", "w0", "l1", "a", "w1"], []]),
    (1, [["s1=4", "a", "w0", "a", "w1", "l1", "s1=5", "a"], ["w0"], []]),
]
"""The same, of threads whose loads return the same numbers in every order."""


def outcomes(count: int, programs: Sequence[Program]) -> set[tuple[tuple[int, ...], ...]]:
    """Return what the loads of each thread return, in each order of all operations in which all threads end."""
    found: set[tuple[tuple[int, ...], ...]] = set()
    start = ((0,) * len(programs), (0, 0), (count, 0), ((),) * len(programs))
    work: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[tuple[int, ...], ...]]] = [start]
    seen = set(work)
    while work:
        places, cells, (missing, phase), loads = work.pop()
        if all(place == len(program) for place, program in zip(places, programs, strict=True)):
            found.add(loads)
        for thread, program in enumerate(programs):
            if places[thread] == len(program):
                continue
            each = program[places[thread]]
            after, barrier, returned = list(cells), (missing, phase), list(loads)
            if each[0] == "s":
                after[int(each[1])] = int(each[3:])
            elif each[0] == "l":
                returned[thread] = (*loads[thread], cells[int(each[1])])
            elif each[0] == "a":
                barrier = (missing - 1, phase) if missing > 1 else (count, phase + 1)
            elif phase & 1 == int(each[1]):
                continue
            state = (
                tuple(place + (other == thread) for other, place in enumerate(places)), tuple(after), barrier,
                tuple(returned),
            )  # fmt: skip
            if state not in seen:
                seen.add(state)
                work.append(state)
    return found


def text(count: int, programs: Sequence[Program]) -> str:
    """Return the body of a kernel: the first lane of each warp executes a program."""
    lines = [
        "mov.u64 %d8, room; add.s64 %d15, %d8, 32; mov.b32 %r9, 0; setp.eq.u32 %p1, %r0, 0;",
        f"@%p1 mbarrier.init.shared.b64 [%d15], {count};",
        "@%p1 st.shared.b32 [%d8], %r9; @%p1 st.shared.b32 [%d8+4], %r9; bar.sync 0;",
        *(f"setp.eq.u32 %p6, %r0, {32 * thread}; @%p6 bra W{thread};" for thread in range(len(programs))),
        "bra JOIN;",
    ]
    for thread, program in enumerate(programs):
        lines.append(f"W{thread}:")
        for place, each in enumerate(program):
            if each[0] == "s":
                lines.append(f"mov.b32 %r4, {each[3:]}; st.shared.b32 [%d8+{4 * int(each[1])}], %r4;")
            elif each[0] == "l":
                to = 64 * thread + 4 * place
                lines.append(f"ld.shared.b32 %r2, [%d8+{4 * int(each[1])}]; st.global.b32 [%d0+{to}], %r2;")
            elif each[0] == "a":
                lines.append("mbarrier.arrive.shared.b64 _, [%d15];")
            else:
                label = f"L{thread}N{place}"
                lines.append(f"{label}: mbarrier.try_wait.parity.shared.b64 %p5, [%d15], {each[1]}; @!%p5 bra {label};")
        lines.append("bra JOIN;")
    return "\n".join([*lines, "JOIN: bar.sync 0;"])


@pytest.mark.parametrize(("count", "programs"), SEVERAL)
def test_what_depends_on_the_order_of_threads_is_not_determined(count: int, programs: list[Program]) -> None:
    assert len(outcomes(count, programs)) > 1
    with pytest.raises(Unsupported, match=r"race|order in which threads run"):
        hashes(text(count, programs), threads=96, shared=ROOM)


@pytest.mark.parametrize(("count", "programs"), ONE)
def test_what_is_the_same_in_every_order_is_determined(count: int, programs: list[Program]) -> None:
    assert len(outcomes(count, programs)) == 1
    hashes(text(count, programs), threads=96, shared=ROOM)
