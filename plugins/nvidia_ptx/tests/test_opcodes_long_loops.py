# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Loops that data ends after more iterations than are followed: each is one function of what it begins with.

Every program is also executed on bit patterns.  Programs with equal forms must return the same bytes, and those of a
near miss different ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from bitwise_core.execution.data_loops import iterations
from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, simulated

THREADS = 64
SHARED = ".shared .align 16 .b8 room[1024]; .local .align 4 .b8 stack[16];"
PLACES = """
    mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %d5, %r1; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5; mov.u64 %d8, room;
    add.s64 %d9, %d8, %d5; xor.b32 %r60, %r1, 128; cvt.u64.u32 %d10, %r60; add.s64 %d11, %d8, %d10;
    shr.u32 %r62, %r0, 5; shl.b32 %r62, %r62, 2; cvt.u64.u32 %d14, %r62; add.s64 %d15, %d8, %d14;
    ld.global.b32 %r2, [%d6]; ld.global.b32 %r3, [%d6+256]; ld.global.b32 %r4, [%d6+512]; mov.b32 %r41, %r3; mov.b32 %r42, 0;
"""
"""%r2 to %r4: words of this thread; %d7: its result; %d9 and %d11: its cell and that of the other warp; %d15: its warp's.

%r5 is the number that a loop passes on, %r6 its counter, %r41 and %r42 are further registers of it.
"""
END = "st.global.b32 [%d7], %r5; st.global.b32 [%d7+256], %r6; st.global.b32 [%d7+512], %r41; st.global.b32 [%d7+768], %r42;"

STEP = "fma.rn.f32 %r5, %r5, 0f3F780000, 0f3C800000;"
ABOVE = "setp.gt.f32 %p3, %r5, {limit};"
OF_WARP = "selp.b32 %r54, 1, 0, %p3;" + "".join(
    f"shfl.sync.bfly.b32 %r55, %r54, {1 << place}, 31, -1; or.b32 %r54, %r54, %r55;" for place in range(5)
) + "setp.ne.u32 %p3, %r54, 0;"  # fmt: skip
OF_BLOCK = (
    "vote.sync.any.pred %p3, %p3, -1;"
    "selp.b32 %r50, 1, 0, %p3; bar.sync 0; st.shared.b32 [%d15], %r50; bar.sync 0; ld.shared.b32 %r51, [room]; ld.shared.b32 %r52, [room+4]; or.b32 %r53, %r51, %r52; setp.ne.u32 %p3, %r53, 0;"
)
SHUFFLE = "shfl.sync.bfly.b32 %r43, %r5, {lanes}, 31, -1; max.f32 %r5, %r5, %r43;"
EXCHANGE = "bar.sync 0; st.shared.b32 [%d9+{place}], %r5; bar.sync 0; ld.shared.b32 %r43, [%d11+{place}]; add.f32 %r41, %r41, %r43;"
TABLE = "add.u32 %r44, %r6, {first}; mul.wide.u32 %d30, %r44, 4; add.s64 %d31, %d6, %d30; ld.global.b32 %r45, [%d31]; add.f32 %r41, %r41, %r45;"


def loop(
    body: str = STEP,
    *,
    end: str = "",
    limit: str = "0f3F800000",
    count: int = 100,
    begin: str = "0",
    step: int = 1,
    order: bool = True,
) -> str:
    """Return a loop that ends where no number is above a limit, or after `count` iterations."""
    conditions = [f"setp.lt.u32 %p4, %r6, {count};", ABOVE.format(limit=limit) + end]
    ends = "".join(conditions if order else conditions[::-1])
    both = "and.pred %p5, %p3, %p4;" if order else "and.pred %p5, %p4, %p3;"
    return f"mov.b32 %r5, %r2; mov.b32 %r6, {begin}; AGAIN: {body} add.u32 %r6, %r6, {step}; {ends} {both} @%p5 bra AGAIN;{END}"


def checked_first(limit: str = "0f3F800000", count: int = 100) -> str:
    """Return a loop with its condition before its body."""
    return f"mov.b32 %r5, %r2; mov.b32 %r6, 0; AGAIN: setp.leu.f32 %p3, %r5, {limit}; setp.ge.u32 %p4, %r6, {count}; or.pred %p5, %p3, %p4; @%p5 bra DONE; {STEP} add.u32 %r6, %r6, 1; bra AGAIN; DONE:{END}"


def followed_by(body: str) -> str:
    """Return a loop with its condition before its body."""
    return checked_first().replace(STEP, body + STEP)


OTHER_ELEMENT = """
    xor.b32 %r61, %r1, 128; cvt.u64.u32 %d20, %r61; add.s64 %d6, %d1, %d20; {stored}
    ld.global.b32 %r2, [%d6]; ld.global.b32 %r3, [%d6+256]; ld.global.b32 %r4, [%d6+512]; mov.b32 %r41, %r3;
"""
"""Each thread takes the words of the same thread in the other warp."""
THERE = "add.s64 %d7, %d0, %d20;"
TWO = "mov.b32 %r41, %r2; mov.b32 %r42, %r2;"
LARGEST = (
    "max.f32 %r46, %r5, %r41; max.f32 %r47, {second}; max.f32 %r48, %r46, %r47; fma.rn.f32 %r41, %r48, 0f3F000000, %r3;"
    + STEP
)
LATER = "setp.gt.u32 %p6, %r6, {count}; selp.b32 %r42, %r41, %r42, %p6;" + STEP
GUARDED = "@%p7 mov.b32 %r46, %r5; add.f32 %r41, %r41, %r46;" + STEP
SOMETIMES = "add.f32 %r41, %r41, %r46; setp.gt.u32 %p6, %r6, 3; @%p6 mov.b32 %r46, {source};"
FIRST_LANES = "setp.lt.u32 %p7, %r0, 8; mov.b32 %r46, {start};"
VOTED = "vote.sync.any.pred %p3, %p3, -1;"
OWN_CELL = "st.shared.b32 [%d9+512], %r5; ld.shared.b32 %r43, [%d9+512]; add.f32 %r41, %r41, %r43;"

SHUFFLED = SHUFFLE.format(lanes=1) + STEP
EXCHANGED = EXCHANGE.format(place=512) + STEP
LOADED = TABLE.format(first=1) + STEP

FASTER = STEP.replace("0f3F780000, 0f3C800000", "0f3F666666, 0f3D4CCCCD")
ALONG = "and.b32 %r56, %r0, 31; setp.eq.u32 %p8, %r56, 0; selp.b32 %r41, %r2, 0, %p8;" + loop(
    "shfl.sync.up.b32 %r43, %r41, 1, 0, -1; fma.rn.f32 %r41, %r43, 0f3F780000, 0f3C800000;" + FASTER,
    end="setp.lt.and.f32 %p3, %r5, 0f70000000, %p3;" + OF_WARP,
).replace("@%p5 bra", "@%p3 bra").replace(END, "{exchanged}" + END)
"""The number of the first lane goes from lane to lane, one in each iteration: more than names are told apart by results."""
EXCHANGED_PAIRS = "shfl.sync.bfly.b32 %r43, %r41, 1, 31, -1; setp.ge.u32 %p8, %r56, 10; selp.b32 %r41, %r43, %r41, %p8;"

EQUAL = {
    "conditions in another order": (loop(), loop(order=False)),
    "factors in another order": (loop(), loop("fma.rn.f32 %r5, 0f3F780000, %r5, 0f3C800000;")),
    "a sum of what the body loads": (loop(LOADED), loop(LOADED.replace("%r41, %r45;", "%r45, %r41;"))),
    "warps": (loop(SHUFFLED, end=OF_WARP), loop(SHUFFLED.replace("%r5, %r5, %r43", "%r5, %r43, %r5"), end=OF_WARP)),
    "blocks": (loop(end=OF_BLOCK), loop(end=OF_BLOCK.replace("%r53, %r51, %r52", "%r53, %r52, %r51"))),
    "an exchange in other cells": (loop(EXCHANGED, end=OF_BLOCK), loop(EXCHANGE.format(place=516) + STEP, end=OF_BLOCK)),
    "a condition before the body": (checked_first(), checked_first().replace("%p3, %p4", "%p4, %p3")),
    "elements of other threads": (loop(end=OF_BLOCK), OTHER_ELEMENT.format(stored=THERE) + loop(end=OF_BLOCK)),
    "registers in another order": (
        TWO + loop("add.f32 %r41, %r41, %r5; add.f32 %r42, %r42, %r4;" + STEP),
        TWO + loop("add.f32 %r42, %r42, %r5; add.f32 %r41, %r41, %r4;" + STEP).replace(
            END, "mov.b32 %r43, %r41; mov.b32 %r41, %r42; mov.b32 %r42, %r43;" + END
        ),
    ),
    "a member that occurs twice": (
        checked_first().replace(STEP, LARGEST.format(second="%r41, %r4")),
        checked_first().replace(STEP, LARGEST.format(second="%r4, %r5")),
    ),
    "votes": (loop(SHUFFLED, end=VOTED), loop(SHUFFLED.replace("%r5, %r5, %r43", "%r5, %r43, %r5"), end=VOTED)),
    "a register that is read by no lane before it is written": (
        "setp.lt.u32 %p7, %r0, 64;" + FIRST_LANES.format(start="%r3").partition(";")[2] + loop(GUARDED),
        "setp.lt.u32 %p7, %r0, 64;" + FIRST_LANES.format(start="%r4").partition(";")[2] + loop(GUARDED),
    ),
}  # fmt: skip

NEAR_MISSES = {
    "another limit": (loop(), loop(limit="0f3F400000")),
    "another step": (loop(), loop(STEP.replace("0f3C80", "0f3CC0"))),
    "fewer iterations": (loop(), loop(count=90)),
    "a counter that begins later": (loop(), loop(begin="3")),
    "a larger step of the counter": (loop(), loop(step=2)),
    "the next elements": (loop(LOADED), loop(TABLE.format(first=2) + STEP)),
    "a load before the other registers change": (loop(LOADED), loop(STEP + "mov.b32 %r41, %r5;" + TABLE.format(first=1))),
    "another lane": (loop(SHUFFLED, end=OF_WARP), loop(SHUFFLE.format(lanes=2) + STEP, end=OF_WARP)),
    "the end of a warp and of a block": (loop(end=OF_WARP), loop(end=OF_BLOCK)),
    "the end of a thread and of a warp": (loop(), loop(end=OF_WARP)),
    "an exchange before and after the step": (loop(EXCHANGED, end=OF_BLOCK), loop(STEP + EXCHANGE.format(place=512), end=OF_BLOCK)),
    "a condition before the body with another limit": (checked_first(), checked_first("0f3F400000")),
    "the condition before and after the body": (loop(), checked_first()),
    "lanes that begin with the first lane's number": (
        loop(SHUFFLED, end=OF_WARP), "shfl.sync.idx.b32 %r2, %r2, 0, 31, -1;" + loop(SHUFFLED, end=OF_WARP)
    ),
    "the number of a lane, and of its warp's first lane": (
        "shfl.sync.idx.b32 %r41, %r41, 0, 31, -1;" + loop(STEP + "add.f32 %r41, %r41, %r5;", end=OF_BLOCK),
        "shfl.sync.idx.b32 %r41, %r41, 0, 31, -1;" + loop(STEP + "add.f32 %r41, %r41, %r5; shfl.sync.idx.b32 %r41, %r41, 0, 31, -1;", end=OF_BLOCK),
    ),
    "an element of another thread": (loop(end=OF_BLOCK), OTHER_ELEMENT.format(stored="") + loop(end=OF_BLOCK)),
    "registers of one start with other steps": (
        TWO + followed_by("add.f32 %r41, %r41, %r5; add.f32 %r42, %r42, %r4;"),
        TWO + followed_by("add.f32 %r42, %r42, %r5; add.f32 %r41, %r41, %r4;"),
    ),
    "registers of one start, and one register": (
        TWO + followed_by("add.f32 %r41, %r41, %r5; add.f32 %r42, %r42, %r41;"),
        TWO + followed_by("add.f32 %r41, %r41, %r5; add.f32 %r42, %r42, %r5;"),
    ),
    "sums in another order": (
        loop("add.f32 %r41, %r41, %r5; add.f32 %r41, %r41, %r4;" + STEP),
        loop("add.f32 %r41, %r41, %r4; add.f32 %r41, %r41, %r5;" + STEP),
    ),
    "a register that changes after many iterations": (loop(LATER.format(count=40)), loop()),
    "a register that changes after more iterations": (loop(LATER.format(count=40)), loop(LATER.format(count=80))),
    "another largest member": (loop(LARGEST.format(second="%r41, %r4")), loop(LARGEST.format(second="%r41, %r42"))),
    "a register that lanes read before it is written": (
        FIRST_LANES.format(start="%r3") + loop(GUARDED), FIRST_LANES.format(start="%r4") + loop(GUARDED)
    ),
    "a register that some iterations write, which the next ones read": (
        "mov.b32 %r46, 0f40000000;" + followed_by(SOMETIMES.format(source="%r5")),
        "mov.b32 %r46, 0f40000000;" + followed_by(SOMETIMES.format(source="%r4")),
    ),
    "a vote of all lanes": (loop(SHUFFLED, end=VOTED), loop(SHUFFLED, end=VOTED.replace("any", "all"))),
    "lanes that a number reaches after many iterations": (ALONG.format(exchanged=""), ALONG.format(exchanged=EXCHANGED_PAIRS)),
    "registers that change places": (
        loop(STEP + "mov.b32 %r43, %r41; mov.b32 %r41, %r42; mov.b32 %r42, %r43;"), loop(STEP + "mov.b32 %r43, %r42; mov.b32 %r42, %r41; mov.b32 %r41, %r42;")
    ),
}  # fmt: skip

BREAK = "setp.lt.f32 %p6, %r5, 0f3F820000; @%p6 bra LEFT;"
AGREED = f"""
    ld.global.b32 %r57, [%d1]; setp.gt.f32 %p3, {{first}}, 0f3F800000; mov.b32 %r5, %r2; mov.b32 %r6, 0; AGAIN: @!%p3 bra DONE;
    {SHUFFLED} add.u32 %r6, %r6, 1; cvt.rn.f32.u32 %r58, %r6; setp.gt.f32 %p3, {{later}}, %r58; bra AGAIN; DONE: {END}
"""
RACE = "st.shared.b32 [room], %r2; bar.sync 0;"
READ = "ld.shared.b32 %r5, [room];"

UNKNOWN = {
    "a number of iterations that a race decides": (RACE + checked_first().replace(STEP, READ).replace(END, "st.global.b32 [%d7], %r6;"), "depends on the order in which threads run"),
    "a number of iterations that an undefined cell decides": (checked_first().replace(STEP, READ).replace(END, "st.global.b32 [%d7], %r6;"), "nothing wrote"),
    "a store in every iteration": (loop(STEP + "st.global.b32 [%d7+1024], %r5;", end=OF_BLOCK), "more than 64 iterations"),
    "a cell that passes on what the last iteration stored": (
        "st.shared.b32 [%d9+512], %r3; bar.sync 0;" + loop("ld.shared.b32 %r43, [%d9+512]; add.f32 %r41, %r41, %r43; st.shared.b32 [%d9+512], %r5;" + STEP, end=OF_BLOCK),
        "nothing wrote",
    ),
    "a cell that is read after the loop": (
        "st.shared.b32 [%d9+512], %r3; bar.sync 0;" + loop(EXCHANGED, end=OF_BLOCK).replace(END, "ld.shared.b32 %r5, [%d9+512];" + END),
        "nothing wrote",
    ),
    "cells that the next iteration overwrites": (loop(end=OF_BLOCK.replace("bar.sync 0;", "", 1)), "more than 64 iterations"),
    "a computed cell of those that an iteration stores": (
        loop(EXCHANGED + "and.b32 %r46, %r4, 252; cvt.u64.u32 %d32, %r46; add.s64 %d32, %d8, %d32; ld.shared.b32 %r43, [%d32+512]; add.f32 %r42, %r42, %r43; bar.sync 0; st.shared.b32 [%d9+512], %r42;", end=OF_BLOCK),
        "more than 64 iterations",
    ),
    "a computed cell of those that a loop stores": (
        "and.b32 %r46, %r4, 252; cvt.u64.u32 %d32, %r46; add.s64 %d32, %d8, %d32;" + loop(EXCHANGED, end=OF_BLOCK).replace(END, "bar.sync 0; ld.shared.b32 %r5, [%d32+512];" + END),
        "read at a computed address",
    ),
    "a cell in which an iteration makes a NaN canonical": (
        "ld.global.b32 %r2, [%d1]; st.shared.b32 [%d9+512], %r3;" + followed_by("ld.shared.b32 %r43, [%d9+512]; add.f32 %r43, %r43, 0f80000000; st.shared.b32 [%d9+512], %r43;").replace(END, "ld.shared.b32 %r5, [%d9+512];" + END),
        "nothing wrote",
    ),
    "local memory that passes on what the last iteration stored": (
        "st.local.b32 [stack], %r3;" + loop("ld.local.b32 %r43, [stack]; add.f32 %r41, %r41, %r43; st.local.b32 [stack], %r5;" + STEP, end=OF_BLOCK), "more than 64 iterations",
    ),
    "shared memory in a loop of some threads": (
        "ld.global.b32 %r2, [%d1]; mov.b32 %r5, %r3; mov.b32 %r6, 0; setp.lt.f32 %p9, %r3, %r4; @%p9 bra OVER;" + loop(OWN_CELL + STEP).replace(END, "OVER:" + END),
        "more than 64 iterations",
    ),
    "a loop that is left at two places": (loop(STEP + BREAK).replace(END, "LEFT:" + END), "nest too deeply"),
    "threads that end within a loop": (loop(STEP + BREAK.replace("bra LEFT", "ret")), "nest too deeply"),
    "a condition that is one of the warp from the second iteration on": (AGREED.format(first="%r2", later="%r57"), "shuffle depends on data"),
    "a condition that is one of the warp in the first 70 iterations": (
        AGREED.format(first="%r57", later="%r59").replace("cvt.rn", "setp.gt.u32 %p6, %r6, 70; selp.b32 %r59, %r2, %r57, %p6; cvt.rn"),
        "more than 64 iterations",
    ),
    "a condition that is one of the warp in the first iteration": (AGREED.format(first="%r57", later="%r2"), "shuffle depends on data"),
    "an asynchronous copy": (loop(STEP + "cp.async.ca.shared.global [%d9+512], [%d6], 4; cp.async.wait_all;", end=OF_BLOCK), "a loop that data ends may take more than 64 iterations"),
    "an update of global memory": (loop(STEP + "red.global.add.u32 [%d7+1024], 1;", end=OF_BLOCK), "more than 64 iterations"),
    "a barrier where threads end": (loop(EXCHANGED), "a barrier depends on data"),
    "a shuffle where threads end": (loop(SHUFFLED), "shuffle depends on data"),
}  # fmt: skip

DRAWS = 32


def contents() -> list[dict[str, np.ndarray]]:
    """Return the buffers of each draw: numbers that take no, a few, many or all iterations."""
    generator = np.random.default_rng(7)
    found = []
    for _ in range(DRAWS):
        words = (generator.standard_normal(512) * generator.choice([0.5, 2, 30])).astype(np.float32).view(np.uint32)
        odd = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 1], dtype=np.uint32)
        words = np.where(generator.random(512) < 0.03, generator.choice(odd, 512), words)
        found.append({"out": np.zeros(4096, dtype=np.uint8), "in": words.astype(np.uint32).view(np.uint8)})
    return found


CONTENTS = contents()


@cache
def returned(body: str) -> list[bytes]:
    """Return the output of each draw."""
    return simulated(PLACES + body, CONTENTS, threads=THREADS, shared=SHARED)


FOLLOWED = iterations.MAXIMUM_ITERATIONS


@pytest.fixture(autouse=True)
def few_followed_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lower number of iterations that are followed before a loop is one function: each takes milliseconds."""
    monkeypatch.setattr(iterations, "MAXIMUM_ITERATIONS", 12)


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


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_no_function_describes_raises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterations, "MAXIMUM_ITERATIONS", FOLLOWED)
    body, reason = UNKNOWN[name]
    with pytest.raises(Unsupported, match=reason):
        form(body)


# Random loops in families of small changes of one loop.  Numbers are drawn from few registers and constants, so that
# registers with equal starts, constant registers and repeated members of maxima are frequent.

REGISTERS = ("%r5", "%r41", "%r42")
STARTS = ("%r2", "%r3", "%r4", "%r2", "0f00000000", "0f3F800000")
CONSTANTS = ("0f3F780000", "0f3C800000", "0f3F000000", "0f3F800000", "0f00000000")
ENDS = {"thread": "", "warp": OF_WARP, "vote": VOTED, "block": OF_BLOCK}


@dataclass(frozen=True, slots=True)
class RandomLoop:
    """A loop drawn at random: the start of each register, the instructions of its body, its end, limit and largest count."""

    starts: tuple[str, ...]
    body: tuple[str, ...]
    end: str
    limit: str
    count: int
    first: bool

    def text(self) -> str:
        """Return the PTX of the loop with its stores."""
        begin = "".join(f"mov.b32 %r{80 + place}, {start};" for place, start in enumerate(self.starts)) + "".join(
            f"mov.b32 {name}, %r{80 + place};" for place, name in enumerate(REGISTERS)
        )
        begin += "mov.b32 %r6, 0; setp.lt.u32 %p7, %r0, 8;"
        step = "".join(self.body) + "add.u32 %r6, %r6, 1;"
        test = f"setp.lt.u32 %p4, %r6, {self.count}; setp.gt.f32 %p3, %r5, {self.limit};{ENDS[self.end]} and.pred %p5, %p3, %p4;"
        stores = "".join(
            f"st.global.b32 [%d7+{256 * place}], {name};" for place, name in enumerate((*REGISTERS, "%r6"))
        )
        if self.first:
            return f"{begin} AGAIN: {test} not.pred %p5, %p5; @%p5 bra DONE; {step} bra AGAIN; DONE:{stores}"
        return f"{begin} AGAIN: {step} {test} @%p5 bra AGAIN;{stores}"


def _instruction(dice: random.Random, end: str) -> str:
    one, other, third = (dice.choice(REGISTERS) for _ in range(3))
    number, further = dice.choice(CONSTANTS), dice.choice(CONSTANTS)
    kinds = [
        f"fma.rn.f32 {one}, {one}, {number}, {further};",
        f"add.f32 {one}, {one}, {other};",
        f"add.f32 {one}, {other}, {dice.choice(('%r2', '%r3', '%r4'))};",
        f"max.f32 %r46, {one}, {other}; max.f32 %r47, {other}, {third}; max.f32 %r48, %r46, %r47; mul.f32 {one}, %r48, {number};",
        f"setp.gt.u32 %p6, %r6, {dice.choice((0, 30, 75))}; selp.b32 {one}, {other}, {one}, %p6;",
        f"setp.lt.f32 %p6, {one}, {other}; selp.b32 {third}, {one}, {third}, %p6;",
        f"@%p7 mov.b32 {one}, {other};",
        f"@%p7 mov.b32 %r49, {one};",
        f"mov.b32 {one}, {other};",
        f"mul.wide.u32 %d30, %r6, 4; add.s64 %d31, %d1, %d30; ld.global.b32 %r45, [%d31]; add.f32 {one}, {one}, %r45;",
    ]
    if end != "thread":
        lanes = dice.choice((1, 2, 16))
        kinds += 3 * [
            f"shfl.sync.bfly.b32 %r43, {one}, {lanes}, 31, -1; {dice.choice(('add', 'max'))}.f32 {other}, {third}, %r43;"
        ]
    if end == "block":
        kinds += 3 * [
            f"bar.sync 0; st.shared.b32 [%d9+512], {one}; bar.sync 0; ld.shared.b32 %r43, [%d11+512]; add.f32 {other}, {other}, %r43;"
        ]
    return dice.choice(kinds)


def random_loop(dice: random.Random) -> RandomLoop:
    """Return a loop."""
    end = dice.choice(tuple(ENDS))
    body = tuple(_instruction(dice, end) for _ in range(dice.randint(1, 4)))
    if dice.random() < 0.7:
        body = (*body, "fma.rn.f32 %r5, %r5, 0f3F780000, 0f3C800000;")
    if any("%r49" in each for each in body) and dice.random() < 0.5:
        body = (*body, dice.choice(("@%p7 ", "")) + "add.f32 %r42, %r42, %r49;")
    starts = tuple(dice.choice(STARTS) for _ in REGISTERS)
    return RandomLoop(
        ("%r2", *starts[1:]),
        body,
        end,
        dice.choice(("0f3F800000", "0f3F400000")),
        dice.choice((80, 100)),
        dice.random() < 0.5,
    )


def changed(loop: RandomLoop, dice: random.Random) -> RandomLoop:
    """Return a loop with one change, after which it may return the same bytes or others."""
    body, place = list(loop.body), dice.randrange(len(loop.body))
    what = dice.randrange(8)
    if what == 0:
        return replace(loop, starts=tuple(dice.sample(loop.starts, len(loop.starts))))
    if what == 1:
        body[place] = _instruction(dice, loop.end)
    elif what == 2:
        other = dice.randrange(len(body))
        body[place], body[other] = body[other], body[place]
    elif what == 3:
        return replace(loop, count=loop.count + dice.choice((-10, 1)))
    elif what == 4 and body[place].startswith(("add", "fma")):
        opcode, one, *others = body[place].rstrip(";").replace(",", "").split()
        body[place] = f"{opcode} {', '.join((one, *reversed(others)))};"
    elif what == 5:
        one, other = dice.sample(REGISTERS, 2)
        body[place] = body[place].replace(one, "%r_").replace(other, one).replace("%r_", other)
    elif what == 6:
        body[place] = body[place].replace(", 1, 31", ", 2, 31").replace("%d11", "%d9").replace("max", "min")
    else:
        end = "vote" if loop.end == "warp" else loop.end
        return replace(loop, end=end, starts=(*loop.starts[:1], dice.choice(STARTS), *loop.starts[2:]))
    return replace(loop, body=tuple(body))


def family(seed: int, size: int) -> Iterator[RandomLoop]:
    """Yield a loop and changes of it."""
    dice = random.Random(seed)
    root = random_loop(dice)
    members = [root]
    yield root
    for _ in range(size - 1):
        found = changed(dice.choice(members), dice)
        members.append(found)
        yield found


SEEDS = range(4, 7)


def classes(seed: int, size: int) -> list[list[RandomLoop]]:
    """Return loops in classes of one form; those that are Unknown are left out."""
    found: dict[str, list[RandomLoop]] = {}
    for loop in dict.fromkeys(family(seed, size)):
        try:
            found.setdefault(str(sorted(form(loop.text()).items())), []).append(loop)
        except Unsupported:
            continue
    return list(found.values())


@cache
def merged() -> list[list[RandomLoop]]:
    """Return the classes of several loops."""
    return [each for seed in SEEDS for each in classes(seed, 8) if len(each) > 1]


def test_loops_of_one_form_return_the_same_bytes() -> None:
    for members in merged():
        assert len({tuple(returned(each.text())) for each in members}) == 1, members


def test_some_loops_have_one_form() -> None:
    assert merged()
