# ruff: noqa: E501 - a line of PTX is read as one
"""Compare what the checker proves for every launch, and by the symmetry of blocks, with the execution of all blocks.

    python -m bitwise_bench.scope_agreement --seconds 600 --seed 1

Pairs of random PTX kernels that differ in a few instructions are judged three times: for every launch, for a launch
whose blocks are proved to be translations of each other, and for the same launch with all blocks executed.  Two kernels
that are Equal in one of the first two ways must be so in the last one.  The exit status is 1 where they are not.

One kind of disagreement is no fault: a launch shows a number that the text has only in some blocks, such as -0 in a sum,
and the bits of a NaN that the assembler decides only if it knows this number are taken as open for the launch alone.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bitwise_bench.command_line import command_parser
from bitwise_core.checker import analysis
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, Verdict
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_sm90.architecture import SM90

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 out, .param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b, .param .u32 n)
.reqntid 32
{ .reg .pred %p<20>; .reg .b16 %h<4>; .reg .b32 %i<12>; .reg .b32 %c<10>; .reg .b32 %f<10>; .reg .b32 %t, %bx, %by, %n; .reg .b64 %d<12>;
.shared .align 16 .b8 room[128];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u32 %n, [n];
mov.u32 %t, %tid.x; mov.u32 %bx, %ctaid.x; mov.u32 %by, %ctaid.y; mov.u32 %i9, room; mad.lo.s32 %i9, %t, 4, %i9;
mov.b32 %i0, %bx; mov.b32 %i1, %by; mov.b32 %i2, %t; mov.b32 %i3, %n; mad.lo.s32 %i4, %bx, 32, %t; mad.lo.s32 %i5, %by, GX, %bx;
mov.b32 %f0, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0;
"""
END = "mul.wide.s32 %d10, %i8, 4; add.s64 %d10, %d0, %d10; {store} st.global.b32 [%d10], %f0;\nret;\n}}\n"
GRIDS = ((5, 3), (8, 2), (16, 1), (33, 1), (7, 5), (4, 4), (64, 1))
NUMBERS = (0, 1, 7, 32, 100, -1, 1000, 0x7FFFFFFF, -0x80000000)
SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127)
LARGE = (*SMALL, 255, 1023, 65535, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0, 0x55555555)
INTEGERS, FLOATS = tuple(f"%i{each}" for each in range(6)), tuple(f"%f{each}" for each in range(4))
TESTS = ("lt.s32", "lt.u32", "eq.s32", "ne.s32", "ge.s32", "gt.u32", "le.s32")
PLACES = (
    "mad.lo.s32 %i8, %by, {x}, %bx; mad.lo.s32 %i8, %i8, 32, %t;",
    "mul.lo.s32 %i8, %by, {x}; add.s32 %i8, %i8, %bx; shl.b32 %i8, %i8, 5; or.b32 %i8, %i8, %t;",
    "mad.lo.s32 %i8, %bx, {y}, %by; mad.lo.s32 %i8, %i8, 32, %t;",
    "mad.lo.s32 %i8, %by, {x}, %bx; mad.lo.s32 %i8, %i8, 32, %t; xor.b32 %i8, %i8, 3;",
    "sub.s32 %i8, {last}, %by; mad.lo.s32 %i8, %i8, {x}, %bx; mad.lo.s32 %i8, %i8, 32, %t;",
)
"""The own element of each thread, %i8."""
STORES = (
    "",
    "add.rn.f32 %f0, %f0, %f1;",
    "xor.b32 %f0, %f1, %i3;",
    "add.rn.f32 %f0, %f0, %f1; add.rn.f32 %f0, %f0, %f2; add.s32 %i3, %i3, %i4; xor.b32 %f0, %f0, %i3; xor.b32 %f0, %f0, %i2;",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel: the texts of its slots, the place of each thread's element, what it stores, its grid and its scalar."""

    slots: tuple[str, ...]
    place: str
    store: str
    grid: tuple[int, int]
    number: int

    def source(self, name: str) -> Source:
        """Return the kernel with its launch."""
        lines = (HEAD.replace("GX", str(self.grid[0])), *self.slots, self.place, END.format(store=self.store))
        buffers = (Argument(kind="buffer", buffer=each, dtype="fp32") for each in ("out", "a", "b"))
        arguments = (*buffers, Argument(kind="i32", value=self.number))
        launch = Launch(file="k.ptx", entry="k", grid=(*self.grid, 1), block=(32, 1, 1), args=arguments)
        return Source(name, "\n".join(lines), launch)


def _integer(dice: random.Random, place: int) -> str:
    to, one, two = (dice.choice(INTEGERS) for _ in range(3))
    other = dice.choice((two, str(dice.choice(LARGE))))
    sign, predicate = dice.choice("us"), f"%p{place % 8}"
    return dice.choice(
        (
            f"add.s32 {to}, {one}, {other};", f"sub.s32 {to}, {one}, {other};", f"mul.lo.s32 {to}, {one}, {other};",
            f"mad.lo.s32 {to}, {one}, {other}, {two};", f"shl.b32 {to}, {one}, {dice.randrange(8)};",
            f"shr.{sign}32 {to}, {one}, {dice.randrange(8)};", f"{dice.choice(('and', 'or', 'xor'))}.b32 {to}, {one}, {other};",
            f"and.b32 {to}, {one}, {dice.choice((1, 3, 7, 15, 31, 63, 4, 8, 16, 0xFFFFFFFC))};",
            f"div.{sign}32 {to}, {one}, {dice.choice((2, 3, 4, 5, 7, 8, 16, 33))};", f"rem.{sign}32 {to}, {one}, {dice.choice((2, 3, 4, 5, 7, 8, 16, 33))};",
            f"{dice.choice(('min', 'max'))}.{sign}32 {to}, {one}, {other};",
            f"setp.{dice.choice(TESTS)} {predicate}, {one}, {other}; selp.b32 {to}, {two}, {one}, {predicate};",
            f"cvt.s64.s32 %d8, {one}; add.s64 %d8, %d8, {dice.choice((1, 5, -3, 1 << 31, 1 << 33))}; cvt.u32.u64 {to}, %d8;",
            f"mul.hi.{sign}32 {to}, {one}, {dice.choice(LARGE)};", f"bfe.{sign}32 {to}, {one}, {dice.randrange(8)}, {dice.randrange(1, 9)};",
            f"cvt.{dice.choice(('s16', 'u16', 's8', 'u8'))}.s32 %h0, {one}; cvt.{dice.choice(('s32.s16', 'u32.u16'))} {to}, %h0;",
        )
    )  # fmt: skip


def _load(dice: random.Random, place: int) -> str:
    to, index, buffer = dice.choice(FLOATS), dice.choice(INTEGERS), dice.choice(("%d1", "%d2"))
    bounded = dice.choice(
        (f"and.b32 %i7, {index}, 1023;", f"rem.u32 %i7, {index}, {dice.choice((100, 513, 1000))};", f"min.u32 %i7, {index}, 1023;",
         f"and.b32 %i7, {index}, 1023; xor.b32 %i7, %i7, {dice.choice((1, 2, 5, 64))};")
    )  # fmt: skip
    wide = dice.choice(
        ("mul.wide.s32 %d9, %i7, 4;", "mul.wide.u32 %d9, %i7, 4;", "cvt.u64.u32 %d9, %i7; shl.b64 %d9, %d9, 2;", "shl.b32 %i7, %i7, 2; cvt.s64.s32 %d9, %i7;")
    )  # fmt: skip
    before = guard = ""
    if dice.random() < 0.3:
        predicate = f"%p{place % 8}"
        before = f"setp.{dice.choice(TESTS)} {predicate}, {dice.choice(INTEGERS)}, {dice.choice(SMALL)};"
        guard = f"@{dice.choice(('', '!'))}{predicate} "
        if dice.random() < 0.5:
            before += f" mov.b32 {to}, {dice.choice(('0', '0xff800000', '0x7fc00000', '0x80000000'))};"
    return f"{before} {bounded} {wide} add.s64 %d9, {buffer}, %d9; {guard}ld.global.b32 {to}, [%d9];"


def _float(dice: random.Random, place: int) -> str:
    to, one, two, three = (dice.choice(FLOATS) for _ in range(4))
    predicate = f"%p{place % 8}"
    return dice.choice(
        (
            f"add.rn.f32 {to}, {one}, {two};", f"add.rn.f32 {to}, {two}, {one};", f"mul.rn.f32 {to}, {one}, {two};",
            f"fma.rn.f32 {to}, {one}, {two}, {three};", f"max.f32 {to}, {one}, {two};",
            f"cvt.rn.f32.{dice.choice('us')}32 %f7, {dice.choice(INTEGERS)}; add.rn.f32 {to}, {one}, %f7;",
            f"setp.{dice.choice(TESTS)} {predicate}, {dice.choice((*INTEGERS, *FLOATS))}, {dice.choice(INTEGERS)}; selp.b32 {to}, {one}, {two}, {predicate};",
        )
    )  # fmt: skip


def _exchange(dice: random.Random) -> str:
    to, one = dice.choice(FLOATS), dice.choice(FLOATS)
    lanes = dice.choice((1, 2, 4, 8, 16))
    return dice.choice(
        (
            f"st.shared.b32 [%i9], {one}; bar.sync 0; xor.b32 %i10, %i9, {4 * lanes}; ld.shared.b32 {to}, [%i10]; bar.sync 0;",
            f"shfl.sync.{dice.choice(('bfly', 'idx'))}.b32 {to}, {one}, {lanes}, 31, -1;",
        )
    )


def _simple(dice: random.Random, place: int) -> str:
    return dice.choice((_integer, _integer, _load, _float))(dice, place)


def _statement(dice: random.Random, place: int) -> str:
    chosen = dice.random()
    if chosen < 0.1:
        return _exchange(dice)
    if chosen > 0.2:
        return _simple(dice, place)
    body = " ".join(_simple(dice, place * 10 + each) for each in range(dice.randint(1, 3)))
    by, predicate = dice.choice(("%bx", "%by", *INTEGERS)), f"%p{8 + place % 8}"
    if chosen < 0.15:
        return f"setp.{dice.choice(TESTS)} {predicate}, {by}, {dice.choice(SMALL)}; @{predicate} bra L{place}; {body} L{place}:"
    count = f"%c{place % 8}"
    return f"and.b32 {count}, {by}, {dice.choice((1, 3))}; M{place}: {body} sub.s32 {count}, {count}, 1; setp.ge.s32 {predicate}, {count}, 0; @{predicate} bra M{place};"


def program(dice: random.Random) -> Program:
    """Return a random kernel."""
    grid = dice.choice(GRIDS)
    slots = [_load(dice, 90), _load(dice, 91), *(_statement(dice, each) for each in range(1, dice.randint(5, 13)))]
    return Program(tuple(slots), _place(dice, grid), dice.choice(STORES), grid, dice.choice(NUMBERS))


def _place(dice: random.Random, grid: tuple[int, int]) -> str:
    return dice.choice(PLACES).format(x=grid[0], y=grid[1], last=grid[1] - 1)


def changed(made: Program, dice: random.Random) -> Program:
    """Return a kernel with one or two changes, which may have no effect."""
    slots = list(made.slots)
    for _ in range(dice.randint(1, 2)):
        at, what, register = dice.randrange(len(slots)), dice.random(), dice.choice(INTEGERS)
        numbers = [] if "%d9" in slots[at] else list(re.finditer(r"(?<=[ ,])\d+(?=[;,])", slots[at]))
        if what < 0.35 and numbers:
            found = dice.choice(numbers)
            slots[at] = f"{slots[at][: found.start()]}{dice.choice(SMALL)}{slots[at][found.end() :]}"
        elif what < 0.5:
            slots[at] = slots[at].replace("div.u32", "div.s32").replace("rem.s32", "rem.u32")
        elif what < 0.6:
            slots[at] = ""
        elif what < 0.75:
            slots[at] += f" xor.b32 {register}, {register}, {dice.choice((0, 0, 64, 1 << 20))};"
        elif what < 0.9:
            bits = dice.choice((0, 8, 16))
            slots[at] += (
                f" shl.b32 {register}, {register}, {bits}; shr.{dice.choice('us')}32 {register}, {register}, {bits};"
            )
        else:
            made = replace(made, place=_place(dice, made.grid))
    return replace(made, slots=tuple(slots))


@contextmanager
def _by_symmetry() -> Iterator[None]:
    """Every launch counts as too large to be executed in full."""
    before = analysis.MAXIMUM_LANES, analysis.MANY_CLASSES
    analysis.MAXIMUM_LANES = analysis.MANY_CLASSES = 0
    try:
        yield
    finally:
        analysis.MAXIMUM_LANES, analysis.MANY_CLASSES = before


def verdicts(left: Source, right: Source) -> tuple[Verdict, Verdict, Verdict]:
    """Return the verdicts with all blocks executed, by the symmetry of blocks, and for every launch."""
    options = Options(audit_contraction=False)
    full = compare(left, right, SM90, options).verdict
    with _by_symmetry():
        symmetric = compare(left, right, SM90, options).verdict
    return full, symmetric, compare(left, right, SM90, replace(options, every_launch=True)).verdict


def disagree(full: Verdict, *others: Verdict) -> bool:
    """Return whether one of the others is Equal and the execution of all blocks is not.

    A launch with an access that is not aligned, or at a barrier that no block has, has no result to compare.
    """
    invalid = full.outcome is Outcome.UNKNOWN and re.search(r"not aligned|has no barrier", full.reason) is not None
    return full.outcome is not Outcome.EQUAL and not invalid and any(each.outcome is Outcome.EQUAL for each in others)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare for a time."""
    parser = command_parser("scope_agreement", __doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to run (default 600)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the kernels (default 0)")
    chosen = parser.parse_args(arguments)
    if chosen.seconds <= 0:
        parser.error("--seconds must be positive")
    dice, end = random.Random(chosen.seed), time.monotonic() + chosen.seconds
    counts: Counter[str] = Counter()
    while time.monotonic() < end:
        first = program(dice)
        for _ in range(4):
            left, right = first.source("left"), changed(first, dice).source("right")
            found = verdicts(left, right)
            counts[", ".join(each.outcome.value for each in found)] += 1
            if disagree(*found):
                counts["disagreements"] += 1
                print(f"{found}\n{left.text}\n{right.text}", flush=True)
    print("all blocks, symmetry, every launch:", dict(counts.most_common()))
    return int(bool(counts["disagreements"]))


if __name__ == "__main__":
    sys.exit(main())
