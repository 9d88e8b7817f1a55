# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels that compute with a launch argument, which the analysis for every launch takes for a symbol.

No index is negative or wraps around in 32 bits for the sizes of the launches, which that analysis assumes.  Narrower
integers wrap, and each slot has texts that return the same number for small sizes only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES

SIZES = (100, 0, 1, 5, 31, 33, 127, 129, 255, 261, 4096, 32771, 65541, 1 << 20)
"""Arguments of launches, some of which become small numbers where they are narrowed."""

_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global .align 16 in_{kind}, .param .u64 .ptr .global .align 16 out_fp32, .param .u32 n) .reqntid {threads}
{{ .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<100>; .reg .b64 %d<50>;
ld.param.u64 %d0, [out_fp32]; ld.param.u64 %d1, [in_{kind}]; ld.param.u32 %r2, [n]; mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x;
mad.lo.u32 %r1, %r9, {threads}, %r0; mul.wide.u32 %d5, %r1, 16; add.s64 %d7, %d0, %d5; add.s64 %d6, %d1, %d5;
ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d6];
mov.b32 %r20, %r2; mov.b32 %r21, %r9; mov.b32 %r22, %r1; mov.b32 %r23, %r0;
"""
_END = """setp.lt.s32 %p9, %r20, %r21; selp.b32 %r24, %r10, %r11, %p9; setp.lt.s32 %p10, %r22, %r23; selp.b32 %r25, %r12, %r13, %p10;
st.global.v4.b32 [%d7], {%r20, %r22, %r24, %r25};
ret; }
"""
_FRAME = Frame(LANGUAGES["ptx"], _HEAD, _END, sizes=SIZES)
_NUMBERS = ("%r20", "%r21", "%r22", "%r23")
"""The size, the block, the index, and the thread, which the slots change."""


def _narrowed(dice: random.Random) -> Slot:
    """A number that is moved, narrowed and widened."""
    one, to = dice.choice(("%r2", "%r2", "%r20", "%r22")), dice.choice(_NUMBERS)
    return pick(dice, *(
        f"mov.b32 {to}, {one};", f"mov.b32 {{%h0, %h1}}, {one}; mov.b32 {to}, {{%h0, %h1}};",
        f"cvt.s64.s32 %d9, {one}; cvt.u32.u64 {to}, %d9;", f"cvt.u64.u32 %d9, {one}; cvt.u32.u64 {to}, %d9;",
        f"mul.lo.s32 {to}, {one}, 8; div.s32 {to}, {to}, 8;", f"shl.b32 {to}, {one}, 3; shr.s32 {to}, {to}, 3;",
        f"shl.b32 {to}, {one}, 16; shr.s32 {to}, {to}, 16;", f"shl.b32 {to}, {one}, 24; shr.u32 {to}, {to}, 24;",
        f"cvt.s64.s32 %d9, {one}; shl.b64 %d9, %d9, 48; shr.s64 %d9, %d9, 48; cvt.u32.u64 {to}, %d9;",
        f"cvt.u16.u32 %h0, {one}; cvt.u32.u16 {to}, %h0;", f"cvt.u16.u32 %h0, {one}; cvt.s32.s16 {to}, %h0;", f"cvt.s32.s8 {to}, {one};", f"cvt.u32.u8 {to}, {one};",
        f"and.b32 {to}, {one}, 0xffff;", f"bfe.u32 {to}, {one}, 0, 16;", f"bfe.s32 {to}, {one}, 0, 16;", f"prmt.b32 {to}, {one}, 0, 0x4410;",
        f"mov.b32 {{%h0, %h1}}, {one}; mov.b16 %h2, 0; mov.b32 {to}, {{%h0, %h2}};", f"cvt.u16.u32 %h0, {one}; mov.b16 %h2, 3; mul.wide.u16 {to}, %h0, %h2; div.u32 {to}, {to}, 3;",
        f"cvt.u16.u32 %h0, {one}; shl.b16 %h0, %h0, 2; shr.u16 %h0, %h0, 2; cvt.u32.u16 {to}, %h0;",
    ))  # fmt: skip


def _divided(dice: random.Random) -> Slot:
    """Quotients and remainders of a number that is not negative."""
    one, to, shift = dice.choice(("%r2", "%r1", "%r9", "%r20")), dice.choice(_NUMBERS), dice.choice((2, 5))
    by = 1 << shift
    signed = f"shr.s32 %r30, {one}, 31; shr.u32 %r30, %r30, {32 - shift}; add.s32 %r30, {one}, %r30;"
    return pick(dice, *(
        f"div.s32 {to}, {one}, {by};", f"div.u32 {to}, {one}, {by};", f"shr.u32 {to}, {one}, {shift};", f"shr.s32 {to}, {one}, {shift};", f"{signed} shr.s32 {to}, %r30, {shift};",
        f"add.s32 %r31, {one}, {by - 1}; div.s32 {to}, %r31, {by};", f"add.s32 %r31, {one}, {by - 1}; shr.s32 {to}, %r31, {shift};", f"{signed} and.b32 %r30, %r30, {-by}; sub.s32 {to}, {one}, %r30;",
        f"rem.s32 {to}, {one}, {by};", f"rem.u32 {to}, {one}, {by};", f"and.b32 {to}, {one}, {by - 1};", f"div.s32 %r31, {one}, {by}; mul.lo.s32 %r31, %r31, {by}; sub.s32 {to}, {one}, %r31;",
        f"cvt.u16.u32 %h0, {one}; div.u16 %h0, %h0, {by}; cvt.u32.u16 {to}, %h0;", f"cvt.u16.u32 %h0, {one}; shr.u16 %h0, %h0, {shift}; cvt.u32.u16 {to}, %h0;",
    ))  # fmt: skip


def _combined(dice: random.Random) -> Slot:
    """Sums, products by constants and extrema of two numbers."""
    one, other, to = (dice.choice(_NUMBERS) for _ in range(3))
    return pick(dice, *(
        f"add.s32 {to}, {one}, {other};", f"add.s32 {to}, {other}, {one};", f"cvt.s64.s32 %d9, {one}; cvt.s64.s32 %d10, {other}; add.s64 %d9, %d9, %d10; cvt.u32.u64 {to}, %d9;",
        f"mad.lo.s32 {to}, {one}, 2, {other};", f"shl.b32 %r31, {one}, 1; add.s32 {to}, %r31, {other};", f"add.s32 %r31, {one}, {one}; add.s32 {to}, {other}, %r31;", f"or.b32 {to}, {one}, {other};",
        f"min.s32 {to}, {one}, {other};", f"min.u32 {to}, {one}, {other};", f"min.s32 {to}, {other}, {one};", f"max.s32 {to}, {one}, {other};", f"setp.lt.s32 %p3, {one}, {other}; selp.b32 {to}, {one}, {other}, %p3;",
        f"setp.lt.u32 %p3, {one}, {other}; selp.b32 {to}, {one}, {other}, %p3;", f"setp.le.s32 %p3, {one}, {other}; selp.b32 {to}, {one}, {other}, %p3;", f"setp.ge.s32 %p3, {one}, {other}; selp.b32 {to}, {other}, {one}, %p3;",
        f"cvt.u16.u32 %h0, {one}; cvt.u16.u32 %h1, {other}; min.u16 %h0, %h0, %h1; cvt.u32.u16 {to}, %h0;", f"cvt.u16.u32 %h0, {one}; cvt.u16.u32 %h1, {other}; setp.lt.s16 %p3, %h0, %h1; selp.b32 {to}, {one}, {other}, %p3;",
        f"cvt.u16.u32 %h0, {one}; cvt.u16.u32 %h1, {other}; setp.eq.b16 %p3, %h0, %h1; selp.b32 {to}, {one}, {other}, %p3;", f"setp.eq.s32 %p3, {one}, {other}; selp.b32 {to}, {one}, {other}, %p3;",
    ))  # fmt: skip


def _arguments(dice: random.Random) -> Shape:
    makers: tuple[Callable[[random.Random], Slot], ...] = _narrowed, _narrowed, _divided, _combined
    return Shape([dice.choice(makers)(dice) for _ in range(dice.choice((1, 1, 2, 3)))], 64, "f32", (0, 0))


FAMILIES: Mapping[str, Family] = MappingProxyType({"launch arguments": Family(_FRAME, _arguments)})
"""The families by name."""
