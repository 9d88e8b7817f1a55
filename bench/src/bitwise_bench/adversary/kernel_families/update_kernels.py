# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels whose threads update cells of shared memory by atomic operations, and leave loops early."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, mixing

_NAMES = ("%r20", "%r21", "%r22", "%r23")
_BEGIN = (
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; and.b32 %r60, %r0, 7; shr.u32 %r61, %r0, 3;"
    "mul.wide.u32 %d20, %r60, 8; add.s64 %d20, %d20, %d8; mul.wide.u32 %d21, %r61, 8; add.s64 %d21, %d21, %d8;"
    "setp.lt.u32 %p4, %r0, 9; setp.lt.f32 %p5, %r10, %r11; setp.lt.u32 %p6, %r0, 32;"
)
"""%d20 and %d21: one of eight cells of 8 bytes, by the lower and the upper bits of the thread."""
_STARTS = ("0", "-1", "7", "%r12")
_VERBS = ("add.u32", "add.s32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32")


def _updates(dice: random.Random) -> Shape:
    """Updates of cells that several threads share, between barriers, with loads and stores of the same cells."""

    def update() -> Slot:
        verb, cell = dice.choice(_VERBS), dice.choice(("%d20", "%d21"))
        one, other = dice.sample(("%r10", "%r11", "%r12", "1", "0", "%r0"), 2)
        wide = dice.choice(("add.u64", "min.s64", "max.u64", "and.b64", "xor.b64"))
        form = dice.choice(("red.shared", "red.relaxed.cta.shared::cta"))
        texts = [
            f"{form}.{verb} [{cell}], {one}; {form}.{verb} [{cell}], {other};",
            f"{form}.{verb} [{cell}], {other}; {form}.{verb} [{cell}], {one};",
            f"{verb} %r63, {one}, {other}; {form}.{verb} [{cell}], %r63;",
            f"atom.shared.{verb} %r64, [{cell}], {one}; {form}.{verb} [{cell}], {other};",
            f"{form}.{verb} [{cell}], {one};",
            f"@%p4 {form}.{verb} [{cell}], {one};", f"@%p5 {form}.{verb} [{cell}], {one};",
            f"@%p6 {form}.{verb} [{cell}], {one}; @!%p6 {form}.{verb} [{cell}], {one};",
            f"@%p5 {form}.{verb} [{cell}], {one}; @!%p5 {form}.{verb} [{cell}], {one};",
            f"{form}.{dice.choice(_VERBS)} [{cell}], {one};", f"{form}.{verb} [{cell}+4], {one};",
            f"mov.b64 %d23, {{%r10, %r11}}; {form}.{wide} [{cell}], %d23;",
            f"mov.u32 %r65, {one}; atom.shared.exch.b32 %r64, [{cell}], %r65;", f"ld.shared.b32 %r20, [{cell}];", f"st.shared.b32 [{cell}], {one};",
        ]  # fmt: skip
        return tuple(dice.sample(texts if dice.random() < 0.3 else texts[:10], 5))

    start = dice.sample(_STARTS, 2)
    slots: list[Slot] = [
        (_BEGIN,),
        tuple(f"mov.b32 %r62, {each}; @%p4 st.shared.v2.b32 [%d20], {{%r62, %r62}};" for each in start),
        ("bar.sync 0;",),
    ]
    for _ in range(dice.randint(1, 3)):
        slots += [update(), ("bar.sync 0;",) * 6 + ("", "bar.warp.sync -1;")]
    slots += [
        pick(
            dice,
            "ld.shared.v2.b32 {%r20, %r21}, [%d20];", "ld.shared.v2.b32 {%r21, %r20}, [%d20];", "ld.shared.b32 %r20, [%d21]; ld.shared.b32 %r21, [%d21+4];",
            "ld.shared.b64 %d24, [%d20]; mov.b64 {%r20, %r21}, %d24;", "ld.shared.v2.b32 {%r20, %r21}, [%d21];",
        ),
        mixing(dice, _NAMES),
    ]  # fmt: skip
    return Shape(slots, dice.choice((32, 64)), fixed=(3, 1))


_LOOP_BEGIN = _BEGIN + (
    "and.b32 %r50, %r10, 15; add.u32 %r51, %r60, 3; mov.b32 %r31, 0; setp.ne.u32 %p7, %r0, %r0; setp.ne.u32 %p3, %r0, %r0;"
)
"""%r50: a number of data below 16; %r51: one of the thread; %r31: the iterations."""


def _early_exits(dice: random.Random) -> Shape:
    """Loops under predicates that threads leave at several places, by their number or by data."""
    limit = dice.choice(("%r50", "%r51", "%r51", "9"))
    leaves = dice.choice(("setp.gt.f32 %p7, %r20, 0f41000000;", "setp.ge.u32 %p7, %r31, %r51;", "setp.eq.u32 %p7, %r31, %r60;"))  # fmt: skip
    step = "add.u32 %r31, %r31, 1;"
    last = f"setp.lt.u32 %p2, %r31, {limit};"
    slots: list[Slot] = [
        (_LOOP_BEGIN + "AGAIN:",),
        mixing(dice, _NAMES),
        (f"{leaves} @%p7 bra OUT;", f"@!%p7 bra ON; bra OUT; ON: {leaves}", f"{leaves} @%p7 mov.b32 %r22, %r21; @%p7 bra OUT;"),
        pick(
            dice,
            "@!%p7 add.rn.f32 %r21, %r21, %r11;", "add.rn.f32 %r21, %r21, %r11;", "add.rn.f32 %r40, %r21, %r11; selp.b32 %r21, %r21, %r40, %p7;",
            "@%p4 add.rn.f32 %r21, %r21, %r11;", "@%p4 mov.b32 %r22, %r20;", "@%p5 max.f32 %r23, %r23, %r21;", "selp.b32 %r23, %r21, %r23, %p5;",
            "setp.lt.and.f32 %p8, %r21, %r11, %p4; @%p8 mov.b32 %r21, %r11;", "@%p4 bra OVER; add.rn.f32 %r22, %r22, %r20; OVER:",
        ),
        mixing(dice, _NAMES),
        (
            f"{step} {last} @%p2 bra AGAIN; OUT:", f"{step} {last} @!%p2 bra OUT; bra AGAIN; OUT:",
            f"{last} {step} @%p2 bra AGAIN; OUT:", f"{step} setp.ge.u32 %p2, %r31, {limit}; @!%p2 bra AGAIN; OUT:",
        ),
        ("mov.b32 %r81, 0;", "cvt.rn.f32.u32 %r23, %r31;", "@%p7 mov.b32 %r23, %r12;", "selp.b32 %r23, %r12, %r23, %p7;"),
    ]  # fmt: skip
    return Shape(slots, dice.choice((32, 64)), fixed=(1, 1))


_FRAME = Frame(LANGUAGES["ptx"], HEAD, END)
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"updates of shared memory": Family(_FRAME, _updates), "loops that threads leave": Family(_FRAME, _early_exits)}
)
"""The families by name."""
