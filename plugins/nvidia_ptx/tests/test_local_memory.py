# ruff: noqa: E501 - a line of PTX is read as one
"""Local memory: accesses in any widths, also by generic addresses, against the bytes that each thread keeps."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, simulated

THREADS, SIZE = 32, 16
ARRAY = f".local .align 8 .b8 mine[{SIZE}];"
BEGIN = "mov.u64 %d5, mine; cvta.local.u64 %d6, %d5; mul.wide.u32 %d7, %r0, 128; add.s64 %d8, %d0, %d7; mul.wide.u32 %d9, %r0, 64; add.s64 %d9, %d1, %d9;"
REGISTER = {8: "%h", 16: "%h", 32: "%r", 64: "%d"}


def _program(draw: random.Random, space: str) -> tuple[str, list[tuple[str, int, int, int]]]:
    """Return a program of stores of input words and loads to the output, and its steps: kind, width, place, number."""
    base = "%d5" if space else "%d6"
    lines, steps, loads = [BEGIN], list[tuple[str, int, int, int]](), 0
    for place in range(0, SIZE, 8):
        steps.append(("st", 64, place, place // 8))
    for _ in range(14):
        bits = draw.choice((8, 16, 32, 64))
        place = draw.randrange(SIZE // (bits // 8)) * bits // 8
        steps.append((draw.choice(("st", "ld", "ld", "guarded")), bits, place, draw.randrange(8)))
    done = []
    for kind, bits, place, number in steps:
        register = f"{REGISTER[bits]}{40 + len(done)}"
        if kind == "ld":
            lines.append(
                f"ld{space}.b{bits} {register}, [{base}+{place}]; st.global.b{bits} [%d8+{8 * loads}], {register};"
            )
            done.append((kind, bits, place, loads))
            loads += 1
            continue
        guard = f"setp.lt.u32 %p1, %r0, {4 * number}; @%p1 " if kind == "guarded" else ""
        lines.append(
            f"ld.global.b{bits} {register}, [%d9+{8 * number}]; {guard}st{space}.b{bits} [{base}+{place}], {register};"
        )
        done.append((kind, bits, place, number))
    return " ".join(lines), done


@pytest.mark.parametrize("space", [".local", ""])
@pytest.mark.parametrize("seed", range(6))
def test_bytes_are_those_of_each_thread(space: str, seed: int) -> None:
    draw = random.Random(seed)
    body, steps = _program(draw, space)
    given = np.random.default_rng(seed).integers(0, 256, (THREADS, 64), dtype=np.uint8)
    (found,) = simulated(body, [{"out": np.zeros(128 * THREADS, np.uint8), "in": given.reshape(-1)}], shared=ARRAY)
    expected = np.zeros((THREADS, 128), np.uint8)
    for thread in range(THREADS):
        own = bytearray(SIZE)
        for kind, bits, place, number in steps:
            count = bits // 8
            if kind == "ld":
                expected[thread, 8 * number : 8 * number + count] = list(own[place : place + count])
            elif kind == "st" or thread < 4 * number:
                own[place : place + count] = given[thread, 8 * number : 8 * number + count].tobytes()
    assert found == expected.tobytes()


@pytest.mark.parametrize("seed", range(3))
def test_generic_addresses_are_those_of_local_memory(seed: int) -> None:
    local, generic = (_program(random.Random(seed), space)[0] for space in (".local", ""))
    assert hashes(local, threads=THREADS, shared=ARRAY) == hashes(generic, threads=THREADS, shared=ARRAY)


def test_one_instruction_on_two_memories_is_refused() -> None:
    mixed = "setp.lt.u32 %p1, %r0, 7; selp.b64 %d6, %d6, %d8, %p1;"
    for access in ("st.b32 [%d6], %r0;", "ld.b32 %r4, [%d6];"):
        with pytest.raises(Unsupported, match="local memory in some threads"):
            hashes(f"{BEGIN} {mixed} {access}", threads=THREADS, shared=ARRAY)


def test_sides_of_a_branch_on_data_with_other_widths_are_refused() -> None:
    """What one side stores lies beside what the other one finds at the same place."""
    body = f"""{BEGIN} ld.global.b32 %r4, [%d9]; st.local.b32 [%d5+4], %r4; setp.lt.f32 %p1, %r4, 0f00000000; @%p1 bra S;
st.local.b64 [%d5], %d8; S: ld.local.b32 %r5, [%d5+4]; st.global.b32 [%d8], %r5;"""
    with pytest.raises(Unsupported, match="in different widths under a condition on data"):
        hashes(body, threads=THREADS, shared=ARRAY)
