"""Execution on bit patterns of warps that diverge: registers that only some of them write."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Value
from ptx_programs import simulated

THREADS = 96
BEGIN = """mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2; add.s64 %d4, %d0, %d2;
setp.lt.u32 %p1, %r0, 32; setp.lt.u32 %p2, %r0, 64; and.b32 %r1, %r0, 1; setp.eq.u32 %p3, %r1, 0;
ld.global.b32 %r2, [%d3]; mov.b32 %r3, %r0; mov.b32 %r4, 7;
"""
"""%p1: the first warp, %p2: the first two, %p3: threads of an even number; %r2, %r3 and %r4 are written everywhere."""
END = "st.global.b32 [%d4], %r2; st.global.b32 [%d4+384], %r3; st.global.b32 [%d4+768], %r4;"
CONTENTS = [
    {
        "out": np.zeros(12 * THREADS, np.uint8),
        "in": np.random.default_rng(0).integers(0, 256, 4 * THREADS, dtype=np.uint8),
    }
]


def after(body: str) -> list[bytes] | str:
    """Return the output, or the reason why there is none."""
    try:
        return simulated(BEGIN + body + END, CONTENTS, threads=THREADS)
    except Unsupported as error:
        return str(error)


def test_what_one_warp_loads_is_used_by_it() -> None:
    body = "@!%p1 bra S; @%p3 ld.global.b32 %r9, [%d3]; @!%p3 mov.b32 %r9, 5; add.u32 %r2, %r9, 1; S:"
    words = CONTENTS[0]["in"].view(np.uint32)
    thread = np.arange(THREADS)
    expected = np.where(thread < 32, np.where(thread % 2 == 0, words, 5) + 1, words).astype(np.uint32)
    found = after(body)
    assert isinstance(found, list)
    assert (np.frombuffer(found[0], np.uint32)[:THREADS] == expected).all()


@pytest.mark.parametrize(
    "body",
    [
        "@!%p1 bra S; add.u32 %r9, %r2, 1; S: mov.b32 %r3, %r9;",
        "@!%p1 bra S; @%p3 add.u32 %r9, %r2, 1; mov.b32 %r3, %r9; S:",
        "@!%p1 bra S; add.u32 %r9, %r2, 1; bra T; S: mov.b32 %r4, %r9; T:",
        "@!%p1 bra S; add.u32 %r9, %r2, 1; S: bar.sync 0; @%p2 mov.b32 %r3, %r9;",
    ],
)
def test_what_a_warp_did_not_write_is_not_read(body: str) -> None:
    assert "nothing" in str(after(body)) or "before it is written" in str(after(body))


def program(seed: int) -> str:
    """Return nested branches of warps, and of threads of a warp, that write and read few registers."""
    draw = random.Random(seed)
    count = 0

    def register() -> str:
        return f"%r{draw.choice((2, 2, 2, 3, 3, 3, 4, 4, 4, 9))}"

    def part(depth: int) -> str:
        nonlocal count
        lines = []
        for _ in range(draw.randrange(1, 6)):
            guard = draw.choice(("", "", "@%p3 ", "@!%p2 "))
            if depth and draw.random() < 0.4:
                count += 1
                label, other = f"S{count}", f"T{count}"
                lines.append(f"@{draw.choice(('', '!'))}{draw.choice(('%p1', '%p2', '%p3'))} bra {label};")
                lines.append(f"{part(depth - 1)} bra {other}; {label}: {part(depth - 1)} {other}:")
            elif draw.random() < 0.3:
                lines.append(f"{guard}ld.global.b32 {register()}, [%d3];")
            else:
                lines.append(f"{guard}add.u32 {register()}, {register()}, {register()};")
        return " ".join(lines)

    return part(3)


def as_it_is(machine: Machine, value: Value) -> Value:
    return value


@pytest.mark.parametrize("seed", range(40))
def test_the_bytes_do_not_depend_on_how_a_register_is_held(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = program(seed)
    found = after(body)
    monkeypatch.setattr(Machine, "_of_active_lanes", as_it_is)
    assert found == after(body)


def test_most_random_programs_are_executed() -> None:
    assert sum(isinstance(after(program(seed)), list) for seed in range(40)) >= 10
