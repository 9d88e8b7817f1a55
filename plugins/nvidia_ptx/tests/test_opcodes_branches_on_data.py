# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Branches, ends and loops on data: the select of both sides, also where whole blocks take one side.

Every program is also executed on bit patterns, on random words and special numbers.  Two programs with equal forms must
return the same bytes on all of them, and two programs of a near miss must return different bytes on some.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from bitwise_core.execution import program as program_module
from bitwise_core.execution import sides
from bitwise_core.execution.concrete import checked_outputs
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.memory.outputs import COMPUTED_ADDRESSES
from bitwise_core.execution.values.symbolic_vector import Value
from ptx_programs import hashes, run, simulated

SHARED = ".shared .align 16 .b8 room[1024]; .local .align 4 .b8 depot[16];"
PLACES = """
    mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %d5, %r1; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5;
    mov.u64 %d8, room; add.s64 %d9, %d8, %d5; xor.b32 %r60, %r1, 128; cvt.u64.u32 %d10, %r60; add.s64 %d11, %d8, %d10;
    xor.b32 %r61, %r1, 4; cvt.u64.u32 %d12, %r61; add.s64 %d13, %d0, %d12; add.s64 %d16, %d0, %d10;
    shr.u32 %r62, %r0, 5; shl.b32 %r62, %r62, 2; cvt.u64.u32 %d14, %r62; add.s64 %d15, %d1, %d14; mov.u64 %d20, depot;
    ld.global.b32 %r2, [%d6]; ld.global.b32 %r3, [%d6+1024]; ld.global.b32 %r4, [%d6+2048]; mov.b32 %r9, %r3;
    ld.global.b32 %r10, [%d1+3072]; ld.global.b32 %r11, [%d1+3076]; ld.global.b32 %r12, [%d15+3080];
"""
"""%r2 to %r4: words of this thread, %r10 and %r11: of the block, %r12: of the warp; %r9: %r3.

%d7, %d13 and %d16: the results of this thread, of its neighbour and of the same lane of the other warp; %d9 and %d11:
the cells of this thread and of that lane.
"""
VARYING = "setp.lt.f32 %p1, %r2, %r3;"
UNIFORM = "setp.lt.f32 %p1, %r10, %r11;"
OF_WARP = "setp.lt.f32 %p1, %r12, %r10;"
OTHER = "setp.gt.f32 %p2, %r4, %r3;"
END = "st.global.b32 [%d7], %r9;"
EXCHANGE = "st.shared.b32 [%d9], %r2; bar.sync 0; ld.shared.b32 %r9, [%d11];"
SWAP = "shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1;"
COPY = "mov.b32 %r20, %r2;"


def iterations(count: int, step: str = "mul.f32 %r5, %r5, %r3;") -> str:
    """Return a loop of at most `count` iterations that ends when its number is at most 1 or no number."""
    return f"mov.b32 %r5, %r2; mov.b32 %r6, 0; AGAIN: {step} add.u32 %r6, %r6, 1; setp.gt.f32 %p3, %r5, 0f3F800000; setp.lt.u32 %p4, %r6, {count}; and.pred %p5, %p3, %p4; @%p5 bra AGAIN; mov.b32 %r9, %r5;"


def unrolled(count: int) -> str:
    """Return the same without a loop: the number after each iteration, and the choice of the last."""
    body = "mul.f32 %r31, %r2, %r3;"
    for place in range(1, count):
        body += f"setp.gt.f32 %p1{place}, %r3{place}, 0f3F800000; mul.f32 %r3{place + 1}, %r3{place}, %r3;"
    body += f"mov.b32 %r9, %r3{count};"
    return body + "".join(f"selp.b32 %r9, %r9, %r3{place}, %p1{place};" for place in range(count - 1, 0, -1))


CLAMPED = "min.f32 %r5, %r2, 0f41A00000; max.f32 %r5, %r5, 0f00000000; abs.f32 %r7, %r3;"


def countdown(number: str, total: str, label: str, *, step: str = "0fBF800000", limit: str = "0f3FC00000") -> str:
    """Return a loop that counts a number down and multiplies what it passes."""
    return f"{label}: add.f32 {number}, {number}, {step}; mul.f32 {total}, {total}, {number}; setp.gt.f32 %p3, {number}, {limit}; @%p3 bra {label};"


def nested(added: str) -> str:
    """Return a loop inside of a loop."""
    return f"""{CLAMPED} max.f32 %r5, %r5, 0f40400000; mov.b32 %r9, %r7;
        OUTER: mov.b32 %r23, %r5; add.f32 %r5, %r5, 0fBF800000; mov.b32 %r22, %r23;
        INNER: add.f32 %r24, %r22, 0f3F800000; fma.rn.f32 %r22, {added}, 0f3F000000, %r24; setp.lt.f32 %p4, %r22, 0f41800000; @%p4 bra INNER;
        add.f32 %r9, %r9, %r22; setp.gt.f32 %p3, %r5, 0f3FC00000; @%p3 bra OUTER;"""


LATE = "mov.b32 %r41, %r3; mov.b32 %r42, %r3; mov.b32 %r43, {begin}; mov.b32 %r44, %r3; mov.b32 %r45, %r3; AGAIN: mov.b32 %r44, %r41; mov.b32 %r45, %r42; add.f32 %r41, %r43, 0f3F800000; add.f32 %r42, %r43, 0f40000000; add.f32 %r43, %r43, 0f3F000000; add.f32 %r5, %r5, 0fBF800000; max.f32 %r46, {limit}, 0f3F800000; setp.gt.f32 %p3, %r5, %r46; @%p3 bra AGAIN; mov.b32 %r9, {last}; st.global.b32 [%d7+1024], {other};"
"""A loop of registers that are equal after the first iteration, and not after the second."""


def late(begin: str = "%r4", limit: str = "%r44", last: str = "%r44", other: str = "%r45") -> str:
    """Return the loop, with the begin of a register, the register that ends it, and the two that are results."""
    return CLAMPED + LATE.format(begin=begin, limit=limit, last=last, other=other) + END


INDEXED = "st.local.b32 [%d20], %r2; st.local.b32 [%d20+4], {second}; and.b32 %r20, %r4, 4; cvt.u64.u32 %d21, %r20; add.s64 %d21, %d20, %d21; ld.local.b32 %r9, [%d21];"


def rounds(count: int, skipped: bool) -> str:
    """Return rounds that exchange %r9 through shared memory, or leave it, each by a word of the block.

    `skipped`: the block branches past the exchange; otherwise it exchanges and selects.
    """
    body = ""
    for place in range(count):
        body += f"ld.global.b32 %r63, [%d1+{2048 + 4 * place}]; setp.lt.f32 %p1, %r63, %r11;"
        exchange = "bar.sync 0; st.shared.b32 [%d9], %r9; bar.sync 0; ld.shared.b32 {}, [%d11];"
        body += f"@%p1 bra S{place};" if skipped else ""
        body += exchange.format("%r9" if skipped else "%r64")
        body += f"S{place}:" if skipped else "selp.b32 %r9, %r9, %r64, %p1;"
    return body


LATE_STORE = "st.shared.b32 [%d9], %r3;"

EQUAL = {
    "many rounds that a block may skip": (rounds(16, True) + END, rounds(16, False) + END),
    "a store after many rounds and a barrier": (
        rounds(14, True) + "bar.sync 0;" + LATE_STORE + END, rounds(14, False) + "bar.sync 0;" + LATE_STORE + END
    ),
    "diamond": (
        VARYING + "@%p1 bra A; add.f32 %r9, %r2, %r4; bra B; A: mul.f32 %r9, %r2, %r3; B:" + END,
        VARYING + "add.f32 %r5, %r2, %r4; mul.f32 %r6, %r2, %r3; selp.b32 %r9, %r6, %r5, %p1;" + END,
    ),
    "triangle": (
        VARYING + "@!%p1 bra B; mul.f32 %r9, %r2, %r3; B:" + END,
        VARYING + "@%p1 mul.f32 %r9, %r2, %r3;" + END,
    ),
    "each side loads what it has stored, on pages of its own": (
        UNIFORM + "@%p1 bra A; st.global.b32 [%d7+4096], %r2; ld.global.b32 %r9, [%d7+4096]; bra B; A: st.global.b32 [%d7+8192], %r4; ld.global.b32 %r9, [%d7+8192]; B:" + END,
        UNIFORM + "@!%p1 st.global.b32 [%d7+4096], %r2; @%p1 st.global.b32 [%d7+8192], %r4; selp.b32 %r9, %r4, %r2, %p1;" + END,
    ),
    "opposite comparison": (
        VARYING + "@!%p1 bra B; mul.f32 %r9, %r2, %r3; B:" + END,
        "setp.geu.f32 %p1, %r2, %r3; @%p1 bra B; mul.f32 %r9, %r2, %r3; B:" + END,
    ),
    "nested branches": (
        VARYING + OTHER + "@!%p1 bra B; @!%p2 bra B; add.f32 %r9, %r4, %r2; B:" + END,
        VARYING + OTHER + "and.pred %p3, %p1, %p2; @%p3 add.f32 %r9, %r4, %r2;" + END,
    ),
    "one of two conditions": (
        VARYING + OTHER + "@%p1 bra A; @!%p2 bra B; A: add.f32 %r9, %r4, %r2; B:" + END,
        VARYING + OTHER + "or.pred %p3, %p1, %p2; @%p3 add.f32 %r9, %r4, %r2;" + END,
    ),
    "early exit": (VARYING + "@%p1 exit; add.f32 %r9, %r2, %r4;" + END, VARYING + "add.f32 %r9, %r2, %r4; @!%p1 " + END),
    "early return": (VARYING + "@%p1 ret; add.f32 %r9, %r2, %r4;" + END, VARYING + "add.f32 %r9, %r2, %r4; @!%p1 " + END),
    "branch to the end": (
        VARYING + "@%p1 bra DONE; add.f32 %r9, %r2, %r4;" + END + "DONE:", VARYING + "add.f32 %r9, %r2, %r4; @!%p1 " + END
    ),
    "two early ends": (
        VARYING + OTHER + "@%p1 exit; @%p2 exit;" + END, VARYING + OTHER + "or.pred %p3, %p1, %p2; not.pred %p3, %p3; @%p3 " + END
    ),
    "exchange of a block": (
        UNIFORM + "@%p1 bra S;" + EXCHANGE + "S:" + END, UNIFORM + EXCHANGE + "selp.b32 %r9, %r3, %r9, %p1;" + END
    ),
    "exchange of a block, nested": (
        UNIFORM + "setp.gt.f32 %p2, %r10, 0f00000000; @%p1 bra S; @%p2 bra S;" + EXCHANGE + "S:" + END,
        UNIFORM + "setp.gt.f32 %p2, %r10, 0f00000000; or.pred %p3, %p1, %p2;" + EXCHANGE + "selp.b32 %r9, %r3, %r9, %p3;" + END,
    ),
    "end of a block before an exchange": (
        UNIFORM + "@%p1 ret;" + EXCHANGE + END, UNIFORM + EXCHANGE + "@!%p1 " + END
    ),
    "end of a block with stores of other threads": (
        UNIFORM + "@%p1 bra S; mov.b32 %r5, 0; st.global.b32 [%d13], %r5; ret; S:" + END,
        UNIFORM + "selp.b32 %r9, %r9, 0, %p1;" + END,
    ),
    "stores of both sides": (
        UNIFORM + "@%p1 bra A; st.global.b32 [%d7], %r2; bra B; A: st.global.b32 [%d7], %r4; B: ret;",
        UNIFORM + "selp.b32 %r9, %r4, %r2, %p1;" + END,
    ),
    "stores over an earlier store": (
        END + UNIFORM + "@%p1 bra B; st.global.b32 [%d7], %r2; bar.sync 0; B: ret;",
        UNIFORM + "selp.b32 %r9, %r9, %r2, %p1;" + END,
    ),
    "barriers on both sides": (
        "st.shared.b32 [%d9], %r2;" + UNIFORM + "@%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B: ld.shared.b32 %r9, [%d11];" + END,
        EXCHANGE + END,
    ),
    "shared memory after the sides": (
        "st.shared.b32 [%d9], %r2; bar.sync 0;" + UNIFORM + "@%p1 bra B; st.shared.b32 [%d9], %r4; B: bar.sync 0; ld.shared.b32 %r9, [%d11];" + END,
        UNIFORM + "selp.b32 %r2, %r2, %r4, %p1;" + EXCHANGE + END,
    ),
    "shuffle of a block": (UNIFORM + "@%p1 bra S;" + SWAP + "S:" + END, UNIFORM + SWAP + "selp.b32 %r9, %r3, %r9, %p1;" + END),
    "vote of a warp": (
        OF_WARP + "@%p1 bra S; setp.lt.u32 %p6, %r0, 7; vote.sync.ballot.b32 %r9, %p6, -1; S:" + END,
        OF_WARP + "setp.lt.u32 %p6, %r0, 7; vote.sync.ballot.b32 %r20, %p6, -1; selp.b32 %r9, %r9, %r20, %p1;" + END,
    ),
    "shuffle of a warp": (OF_WARP + "@%p1 bra S;" + SWAP + "S:" + END, OF_WARP + SWAP + "selp.b32 %r9, %r3, %r9, %p1;" + END),
    "guarded store to shared memory": (
        VARYING + "st.shared.b32 [%d9], %r4; @%p1 st.shared.b32 [%d9], %r2; bar.sync 0; ld.shared.b32 %r9, [%d11];" + END,
        VARYING + "selp.b32 %r2, %r2, %r4, %p1;" + EXCHANGE + END,
    ),
    "store to shared memory in a branch": (
        VARYING + "st.shared.b32 [%d9], %r4; @!%p1 bra B; st.shared.b32 [%d9], %r2; B: bar.sync 0; ld.shared.b32 %r9, [%d11];" + END,
        VARYING + "selp.b32 %r2, %r2, %r4, %p1;" + EXCHANGE + END,
    ),
    "loop until a number settles": (iterations(4) + END, unrolled(4) + END),
    "loop until a number settles, in a branch": (
        VARYING + "@%p1 bra S;" + iterations(3) + "S:" + END, VARYING + unrolled(3) + "selp.b32 %r9, %r3, %r9, %p1;" + END
    ),
    "loop of a block with an exchange": (
        COPY + "mov.b32 %r6, 0; AGAIN: st.shared.b32 [%d9], %r20; bar.sync 0; ld.shared.b32 %r20, [%d11]; ld.shared.b32 %r21, [%d8]; bar.sync 0; add.u32 %r6, %r6, 1; setp.gt.f32 %p3, %r21, 0f00000000; setp.lt.u32 %p4, %r6, 2; and.pred %p5, %p3, %p4; @%p5 bra AGAIN; mov.b32 %r9, %r20;" + END,
        "st.shared.b32 [%d9], %r2; bar.sync 0; ld.shared.b32 %r20, [%d11]; ld.shared.b32 %r21, [%d8]; setp.gt.f32 %p3, %r21, 0f00000000; selp.b32 %r9, %r2, %r20, %p3;" + END,
    ),
    "known loop in a branch": (
        VARYING + "@%p1 bra S; mov.b32 %r6, 0; AGAIN: mul.f32 %r9, %r9, %r2; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3; @%p3 bra AGAIN; S:" + END,
        VARYING + "mul.f32 %r5, %r9, %r2; mul.f32 %r5, %r5, %r2; mul.f32 %r5, %r5, %r2; selp.b32 %r9, %r9, %r5, %p1;" + END,
    ),
    "loop as a function of its registers": (
        CLAMPED + countdown("%r5", "%r7", "LOOP") + "mov.b32 %r9, %r7;" + END,
        CLAMPED + "mov.b32 %r40, %r7; mov.b32 %r8, %r5;" + countdown("%r8", "%r40", "L") + "mov.b32 %r9, %r40;" + END,
    ),
    "loop as a function, in a branch": (
        CLAMPED + VARYING + "@%p1 bra S;" + countdown("%r5", "%r7", "LOOP") + "mov.b32 %r9, %r7; S:" + END,
        CLAMPED + VARYING + countdown("%r5", "%r7", "LOOP") + "selp.b32 %r9, %r9, %r7, %p1;" + END,
    ),
    "loop in a loop": (nested("%r23") + END, nested("%r23").replace("%r22", "%r52") + END),
    "array at an index from data, in a branch": (
        VARYING + "mov.b32 %r9, 0; @%p1 bra S;" + INDEXED.format(second="%r3") + "S:" + END,
        VARYING + INDEXED.format(second="%r3") + "selp.b32 %r9, 0, %r9, %p1;" + END,
    ),
}  # fmt: skip

NEAR_MISSES = {
    "a round more": (rounds(5, True) + END, rounds(6, True) + END),
    "comparison that is false for NaN": (
        EQUAL["opposite comparison"][0], "setp.ge.f32 %p1, %r2, %r3; @%p1 bra B; mul.f32 %r9, %r2, %r3; B:" + END
    ),
    "early exit that is false for NaN": (EQUAL["early exit"][0], "setp.ge.f32 %p1, %r2, %r3; add.f32 %r9, %r2, %r4; @%p1 " + END),
    "sides exchanged": (EQUAL["diamond"][0], EQUAL["diamond"][1].replace("%r6, %r5", "%r5, %r6")),
    "the other condition": (EQUAL["nested branches"][0], EQUAL["one of two conditions"][1]),
    "the outer condition only": (EQUAL["nested branches"][0], VARYING + "@%p1 add.f32 %r9, %r4, %r2;" + END),
    "an end inside of a branch": (
        VARYING + OTHER + "@!%p1 bra B; @%p2 exit; B:" + END, VARYING + OTHER + "@!%p1 bra B; @!%p2 exit; B:" + END
    ),
    "own cell": (EQUAL["exchange of a block"][0], EQUAL["exchange of a block"][0].replace("%d11]", "%d9]")),
    "exchange in every case": (EQUAL["exchange of a block"][0], EXCHANGE + END),
    "store before the end of a block": (EQUAL["end of a block before an exchange"][0], UNIFORM + EXCHANGE + END),
    "zeros in the other case": (
        EQUAL["end of a block with stores of other threads"][0], UNIFORM + "selp.b32 %r9, 0, %r9, %p1;" + END
    ),
    "an earlier store that is overwritten": (
        EQUAL["stores over an earlier store"][0], "mov.b32 %r9, %r4;" + EQUAL["stores over an earlier store"][0]
    ),
    "shared memory of the other side": (
        EQUAL["shared memory after the sides"][0], UNIFORM + "selp.b32 %r2, %r4, %r2, %p1;" + EXCHANGE + END
    ),
    "condition of the block instead of the warp": (EQUAL["shuffle of a warp"][0], EQUAL["shuffle of a block"][0]),
    "store to shared memory in every lane": (
        EQUAL["guarded store to shared memory"][0], EQUAL["guarded store to shared memory"][0].replace("@%p1 ", "")
    ),
    "one iteration more": (EQUAL["loop until a number settles"][0], iterations(5) + END),
    "another step": (EQUAL["loop as a function of its registers"][0], CLAMPED + countdown("%r5", "%r7", "LOOP", step="0fBF000000") + "mov.b32 %r9, %r7;" + END),
    "another limit": (EQUAL["loop as a function of its registers"][0], CLAMPED + countdown("%r5", "%r7", "LOOP", limit="0f40200000") + "mov.b32 %r9, %r7;" + END),
    "another begin": (EQUAL["loop as a function of its registers"][0], CLAMPED + "add.f32 %r7, %r7, 0f3F800000;" + countdown("%r5", "%r7", "LOOP") + "mov.b32 %r9, %r7;" + END),
    "the other register of a loop": (EQUAL["loop as a function of its registers"][0], CLAMPED + countdown("%r5", "%r7", "LOOP") + "mov.b32 %r9, %r5;" + END),
    "a variable of the inner loop for one of the outer": (nested("%r23") + END, nested("%r22") + END),
    "a register whose begin matters late": (late(), late(begin="%r2")),
    "a limit that differs late": (late(), late(limit="%r45")),
    "a result that differs late": (late(), late(last="%r45", other="%r44")),
    "another array": (
        EQUAL["array at an index from data, in a branch"][0], VARYING + "mov.b32 %r9, 0; @%p1 bra S;" + INDEXED.format(second="%r4") + "S:" + END
    ),
}  # fmt: skip

SPECIAL = np.array(
    [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x3F800000, 0xBF800000, 1, 0x41A00000],
    dtype=np.uint32,
)  # fmt: skip
DRAWS = 24
THREADS = 64


def contents() -> list[dict[str, np.ndarray]]:
    """Return the buffers of each draw: words of which half are special, small numbers, and arbitrary patterns."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(DRAWS):
        count = 776
        small = (generator.standard_normal(count) * 3).astype(np.float32).view(np.uint32)
        words = np.where(generator.random(count) < 0.3, generator.choice(SPECIAL, count), small)
        words = np.where(generator.random(count) < 0.1, generator.integers(0, 1 << 32, count, dtype=np.uint32), words)
        given = words.astype(np.uint32).view(np.uint8)
        before = np.resize(generator.integers(0, 256, 2048, dtype=np.uint8), 3 * 4096)
        found.append({"out": before, "in": given})
    return found


CONTENTS = contents()


@cache
def returned(body: str) -> list[bytes]:
    """Return the output of each draw."""
    return simulated(PLACES + body, CONTENTS, threads=THREADS, shared=SHARED)


@cache
def form(body: str) -> dict[int, tuple[int, int, int]]:
    """Return the canonical forms of the output."""
    return hashes(PLACES + body, threads=THREADS, shared=SHARED)


@pytest.mark.parametrize("name", EQUAL)
def test_both_programs_have_one_form_and_return_the_same_bytes(name: str) -> None:
    left, right = EQUAL[name]
    assert form(left) == form(right)
    assert returned(left) == returned(right)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_have_other_forms_and_return_other_bytes(name: str) -> None:
    left, right = NEAR_MISSES[name]
    assert form(left) != form(right)
    assert returned(left) != returned(right)


def test_no_two_programs_of_one_form_return_different_bytes() -> None:
    found: dict[str, list[bytes]] = {}
    for body in {each for pair in (*EQUAL.values(), *NEAR_MISSES.values()) for each in pair}:
        key = str(sorted(form(body).items()))
        assert found.setdefault(key, returned(body)) == returned(body)


NONDETERMINISTIC = "add.s64 %d30, %d0, 4096; atom.global.add.u32 %r13, [%d30], 1; setp.lt.u32 %p1, %r13, 5;"

UNKNOWN = {
    "a barrier in lanes that data selects": (VARYING + "@%p1 bra S; bar.sync 0; S:" + END, "a barrier depends on data"),
    "a barrier in warps that data selects": (OF_WARP + "@%p1 bra S; bar.sync 0; S:" + END, "a barrier depends on data"),
    "a guarded barrier": (VARYING + "@%p1 bar.sync 0;" + END, "a barrier depends on data"),
    "a barrier of a warp in lanes that data selects": (
        VARYING + "st.shared.b32 [%d9], %r2; @%p1 bra S; bar.warp.sync -1; S: xor.b32 %r20, %r1, 4; cvt.u64.u32 %d30, %r20; add.s64 %d30, %d8, %d30; ld.shared.b32 %r9, [%d30];" + END,
        "a barrier depends on data",
    ),
    "a barrier after lanes have ended": (VARYING + "@%p1 exit; bar.sync 0;" + END, "a barrier depends on data"),
    "a shuffle in lanes that data selects": (VARYING + "@%p1 bra S;" + SWAP + "S:" + END, "take part in a shuffle depends on data"),
    "a shuffle after lanes have ended": (VARYING + "@%p1 exit;" + SWAP + END, "take part in a shuffle depends on data"),
    "a vote in lanes that data selects": (
        VARYING + "@%p1 bra S; setp.lt.u32 %p6, %r0, 7; vote.sync.ballot.b32 %r9, %p6, -1; S:" + END, "lanes that vote depends on data"
    ),
    "an asynchronous copy in a branch": (
        VARYING + "@%p1 bra S; cp.async.ca.shared.global [%d9], [%d6], 4; cp.async.wait_all; S:" + END,
        "an asynchronous copy depends on data",
    ),
    "a barrier on one side only": (
        "st.shared.b32 [%d9], %r2;" + UNIFORM + "@%p1 bra S; bar.sync 0; S: ld.shared.b32 %r9, [%d11];" + END, "no barrier between"
    ),
    "a store with no barrier after many rounds that a block may skip": (rounds(14, True) + LATE_STORE + END, "no barrier between"),
    "a load with no barrier after many rounds that a block may skip": (
        "mov.b32 %r5, %r2;" + rounds(14, True) + "setp.gt.f32 %p2, %r10, 0f00000000; @%p2 bra T; bar.sync 0; T: st.shared.b32 [%d9], %r2; ld.shared.b32 %r9, [%d11];" + END,
        "no barrier between",
    ),
    "a barrier on one side only, for global memory": (
        END + UNIFORM + "@%p1 bra S; bar.sync 0; S: ld.global.b32 %r5, [%d16]; st.global.b32 [%d7+1024], %r5;", "a race"
    ),
    "a barrier inside of one side, for its stores": (
        UNIFORM + "@%p1 bra S; bar.sync 0; st.global.b32 [%d7], %r2; S: ld.global.b32 %r5, [%d16]; st.global.b32 [%d7+1024], %r5;", "a race"
    ),
    "a barrier on the other side only": (
        "st.shared.b32 [%d9], %r2;" + UNIFORM + "@!%p1 bra S; bar.sync 0; S: ld.shared.b32 %r9, [%d11];" + END, "no barrier between"
    ),
    "a barrier on the taken side only": (
        "st.shared.b32 [%d9], %r2;" + UNIFORM + "@%p1 bra A; bra S; A: bar.sync 0; S: ld.shared.b32 %r9, [%d11];" + END, "no barrier between"
    ),
    "a load after a barrier on one side only, and a store": (
        UNIFORM + "@%p1 bra S; bar.sync 0; ld.global.b32 %r9, [%d7]; S: st.global.b32 [%d13], %r2; st.global.b32 [%d7+1024], %r9;", "a race"
    ),
    "a load and a store after a barrier on one side only": (
        UNIFORM + "@%p1 bra S; bar.sync 0; ld.global.b32 %r9, [%d7]; st.global.b32 [%d13], %r2; st.global.b32 [%d7+1024], %r9; S: ret;", "a race"
    ),
    "a barrier of a part of the block": (
        "setp.lt.u32 %p6, %r0, 32; @%p6 bra S;" + UNIFORM + "@%p1 bra S;" + EXCHANGE + "S:" + END, "a barrier depends on data"
    ),
    "threads that store to one place on one side": (UNIFORM + "@%p1 bra S; st.global.b32 [%d0], %r2; S: ret;", "a race"),
    "threads of both sides that store to one place, which one reads": (
        UNIFORM + "@%p1 bra S; st.global.b32 [%d7], %r2; bra J; S: st.global.b32 [%d13], %r2; J: ld.global.b32 %r5, [%d7]; st.global.b32 [%d7+1024], %r5;",
        "a race",
    ),
    "a condition that depends on the order of threads": (
        NONDETERMINISTIC + "@%p1 bra S;" + EXCHANGE + "S:" + END, "a barrier depends on data"
    ),
    "cells that one side only wrote": (
        UNIFORM + "@%p1 bra S; st.shared.b32 [%d9], %r2; S: bar.sync 0; ld.shared.b32 %r9, [%d11];" + END, "nothing wrote"
    ),
    "cells that only some lanes wrote": (
        VARYING + "@%p1 st.shared.b32 [%d9], %r2; bar.sync 0; ld.shared.b32 %r9, [%d11];" + END, "nothing wrote"
    ),
    "a register that one side only wrote": (VARYING + "@%p1 bra S; mov.b32 %r30, %r2; S: st.global.b32 [%d7], %r30;", "nothing wrote"),
    "a register that the other side only wrote": (
        VARYING + "@!%p1 bra S; mov.b32 %r30, %r2; S: st.global.b32 [%d7], %r30;", "nothing wrote"
    ),
    "lanes that write different values to one cell": (
        VARYING + "mov.b32 %r5, 0; st.shared.b32 [%d8], %r5; bar.sync 0; @%p1 st.shared.b32 [%d8], %r2; bar.sync 0; ld.shared.b32 %r9, [%d8];" + END,
        "different values to one address",
    ),
    "a loop without a bound that stores": (
        "mov.b64 %d30, %d6; mov.b32 %r9, 0; AGAIN: ld.global.b32 %r5, [%d30]; st.global.b32 [%d7], %r5; add.s64 %d30, %d30, 4; add.u32 %r9, %r9, 1; setp.gt.f32 %p3, %r5, 0f00000000; @%p3 bra AGAIN;" + END,
        "may take more than 64 iterations",
    ),
    "a float sum in a branch": (UNIFORM + "@%p1 bra S; red.global.add.f32 [%d7], %r2; S: ret;", "data decides whether threads add"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_data_may_not_decide_raises(name: str) -> None:
    body, reason = UNKNOWN[name]
    with pytest.raises(Unsupported, match=reason):
        form(body)


def contributions(body: str) -> tuple[int, int]:
    """Return the form of the contributions to atomic operations under conditions on data."""
    found = checked_outputs(*run(PLACES + body, threads=THREADS, shared=SHARED))[COMPUTED_ADDRESSES]
    return int(found.words[0, 0]), int(found.words[1, 0])


def test_contributions_of_blocks_that_data_selects() -> None:
    place = "and.b32 %r63, %r3, 28; cvt.u64.u32 %d17, %r63; add.s64 %d17, %d0, %d17;"
    branch = contributions(place + UNIFORM + "@%p1 bra S; red.global.add.u32 [%d17], %r2; S: ret;")
    assert branch == contributions(place + UNIFORM + "@!%p1 red.global.add.u32 [%d17], %r2;")
    assert branch != contributions(place + UNIFORM + "@%p1 red.global.add.u32 [%d17], %r2;")
    inner = contributions(
        place
        + UNIFORM
        + VARYING.replace("%p1", "%p2")
        + "@%p1 bra S; @%p2 bra S; red.global.add.u32 [%d17], %r2; S: ret;"
    )
    both = (
        place
        + UNIFORM
        + VARYING.replace("%p1", "%p2")
        + "or.pred %p3, %p1, %p2; not.pred %p3, %p3; @%p3 red.global.add.u32 [%d17], %r2;"
    )
    assert inner != branch
    assert inner != contributions(both.replace("or.pred", "and.pred"))


RETURNS_BY_DATA = """.func (.param .b32 out) f(.param .b32 a) { .reg .pred %q; .reg .b32 %x<4>; ld.param.b32 %x0, [a]; setp.lt.u32 %q, %x0, 5;
@%q bra A; st.param.b32 [out], 1; ret; A: st.param.b32 [out], 2; ret; }
"""


def test_a_function_that_returns_early_by_data() -> None:
    call = "{ .param .b32 a; .param .b32 o; st.param.b32 [a], %r2; call (o), f, (a); ld.param.b32 %r9, [o]; }"
    chosen = "setp.lt.u32 %p1, %r2, 5; selp.b32 %r9, 2, 1, %p1;"
    called = hashes(PLACES + call + END, threads=THREADS, shared=SHARED, before=RETURNS_BY_DATA)
    assert called == form(chosen + END)
    in_branch = hashes(
        PLACES + VARYING + "@%p1 bra S;" + call + "S:" + END, threads=THREADS, shared=SHARED, before=RETURNS_BY_DATA
    )
    assert in_branch == form(
        VARYING + chosen.replace("%p1", "%p2").replace("%r9,", "%r5,") + "selp.b32 %r9, %r3, %r5, %p1;" + END
    )


def _local_program(seed: int) -> str:
    """Nested branches on data, in a loop or not, whose sides store words of local memory and load what is stored."""
    draw = random.Random(seed)
    count = 0

    def part(depth: int) -> str:
        nonlocal count
        lines = []
        for _ in range(draw.randrange(1, 5)):
            place, one, other = 4 * draw.randrange(4), f"%r{draw.randrange(2, 10)}", f"%r{draw.randrange(2, 10)}"
            kind = draw.randrange(6 if depth else 4)
            if kind < 2:
                lines.append(f"st.local.b32 [%d20+{place}], {one};")
            elif kind == 2:
                lines.append(f"ld.local.b32 {one}, [%d20+{place}];")
            elif kind == 3:
                lines.append(f"add.f32 {one}, {one}, {other};")
            else:
                count += 1
                label = f"L{count}"
                lines += [f"setp.lt.f32 %p{count + 5}, {one}, {other};", f"@%p{count + 5} bra {label};"]
                lines += [part(depth - 1), f"{label}:"]
        return " ".join(lines)

    start = " ".join(f"st.local.b32 [%d20+{place}], %r4;" for place in (0, 4, 8, 12))
    values = " ".join(f"mov.b32 %r{number}, %r{number - 3};" for number in range(5, 9))
    body = part(3)
    if draw.random() < 0.5:
        body = f"mov.b32 %r30, 0; AGAIN: {body} add.u32 %r30, %r30, 1; setp.lt.u32 %p5, %r30, 9; @%p5 bra AGAIN;"
    ends = " ".join(f"st.global.b32 [%d7+{256 * (at + 1)}], %r{at + 5};" for at in range(4))
    return f"{PLACES} {values} {start} {body} ld.local.b32 %r20, [%d20+4]; {ends} st.global.b32 [%d7], %r20;"


@pytest.mark.parametrize("seed", range(12))
def test_selects_of_local_memory_do_not_depend_on_when_they_are_computed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        body = _local_program(10 * seed + number)
        found = hashes(body, threads=64, shared=SHARED)
        with monkeypatch.context() as patched:
            patched.setattr(program_module, "_DEFERRED_LANES", 0)
            assert found == hashes(body, threads=64, shared=SHARED)
        with monkeypatch.context() as patched:
            patched.setattr(
                program_module, "deferred_select", lambda machine, *operands: machine.domain.select(*operands[:3])
            )
            assert found == hashes(body, threads=64, shared=SHARED)


def test_selects_of_local_memory_that_nothing_reads_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the reduction of an argument of a sine: what a branch stores is read in it."""
    side = " ".join(
        f"st.local.b32 [%d20+{4 * place}], %r{place + 2}; ld.local.b32 %r4, [%d20+{4 * place}];" for place in range(3)
    )
    body = f"mov.b32 %r30, 0; AGAIN: {VARYING} @%p1 bra JOIN; {side} JOIN: add.f32 %r3, %r3, %r4; add.u32 %r30, %r30, 1; setp.lt.u32 %p5, %r30, 9; @%p5 bra AGAIN; mov.b32 %r9, %r3;"
    selects = []
    select = TermDomain.select

    def counted(self: TermDomain, predicate: Value, if_true: Value, if_false: Value) -> Value:
        selects.append(predicate)
        return select(self, predicate, if_true, if_false)

    monkeypatch.setattr(TermDomain, "select", counted)
    run(f"{PLACES} {body} {END}", threads=64, shared=SHARED)
    few = len(selects)
    monkeypatch.setattr(program_module, "_DEFERRED_LANES", 0)
    run(f"{PLACES} {body} {END}", threads=64, shared=SHARED)
    # Two of the places hold another word in each round; the first round finds nothing there.
    assert len(selects) - few == few + 2 * 8


def test_registers_after_a_branch_are_those_of_both_sides_in_order() -> None:
    """What only one side wrote, and names that the sides wrote in other orders, are found as by a step for each name."""
    draw = random.Random(3)
    values = [np.full((1, 1), number, dtype=np.uint32) for number in range(40)]
    for _ in range(300):
        before = {f"r{number}": values[number] for number in range(draw.randrange(6))}
        left, right = dict(before), dict(before)
        for side in (left, right):
            for _ in range(draw.randrange(4)):
                side[f"r{draw.randrange(9)}"] = draw.choice(values)
            for name in list(side):
                if draw.random() < 0.05:
                    del side[name]
        expected = [name for name in {**right, **left} if left.get(name) is not right.get(name)]
        assert sides._different(left, right) == expected
