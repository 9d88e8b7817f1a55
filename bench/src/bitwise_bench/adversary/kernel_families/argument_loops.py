# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels with a loop whose length is a launch argument, which the analysis for every launch summarises as a fold.

Some forms of a loop and of its body return the same for every length, and others for some lengths only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES

SIZES = (100, 0, 1, 5, 31, 32, 33, 63, 64, 65, 127, 128, 200, 224)
"""Lengths of loops; a block has 256 words of the input."""

_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global .align 16 in_{kind}, .param .u64 .ptr .global .align 16 out_fp32, .param .u32 n) .reqntid {threads}
{{ .reg .pred %p<20>; .reg .b32 %r<100>; .reg .b64 %d<50>;
ld.param.u64 %d0, [out_fp32]; ld.param.u64 %d1, [in_{kind}]; ld.param.u32 %r2, [n]; mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x;
mad.lo.s32 %r1, %r9, {threads}, %r0; mul.wide.s32 %d5, %r1, 16; add.s64 %d7, %d0, %d5; mul.wide.s32 %d4, %r9, {block}; add.s64 %d2, %d1, %d4;
mov.b32 %r22, 0; mov.b32 %r23, 0;
"""
"""%r2: the argument; %d2: the input of the block; %d7: the output of the thread."""
_FRAME = Frame(LANGUAGES["ptx"], _HEAD, "st.global.v4.b32 [%d7], {%r20, %r21, %r22, %r23};\nret; }\n", sizes=SIZES)

_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "start": ("0", "0", "32", "1"),
        "step": ("32", "32", "64", "31", "33"),
        "form": ("rotated", "rotated", "rotated late", "once", "closed", "counted", "counted down", "counted whole", "counted by shift", "unequal"),
        "initial": ("0x00000000", "0x80000000", "0xff800000", "0x3f800000"),
        "second": ("0x00000000", "0x80000000", "0xff800000"),
        "other": ("0x00000000", "0x80000000", "0xff800000", "0x3f800000"),
        "index": ("add.s32 %r31, %r30, %r0;", "add.s32 %r31, %r0, %r30;", "sub.s32 %r31, %r30, %r0; add.s32 %r31, %r31, %r0; add.s32 %r31, %r31, %r0;", "add.s32 %r31, %r30, 1; add.s32 %r31, %r31, %r0; sub.s32 %r31, %r31, 1;"),
        "mask": ("setp.lt.s32 %p1, %r31, %r2;", "setp.gt.s32 %p1, %r2, %r31;", "setp.lt.u32 %p1, %r31, %r2;", "sub.s32 %r32, %r2, %r30; setp.lt.s32 %p1, %r0, %r32;", "add.s32 %r32, %r31, 1; setp.le.s32 %p1, %r32, %r2;", "setp.le.s32 %p1, %r31, %r2;", "setp.lt.s32 %p1, %r30, %r2;", "add.s32 %r32, %r30, 31; setp.lt.s32 %p1, %r32, %r2;", "setp.ge.s32 %p3, %r31, %r2; not.pred %p1, %p3;"),
        "address": ("mul.wide.s32 %d6, %r31, 4; add.s64 %d6, %d2, %d6;", "mul.wide.u32 %d6, %r31, 4; add.s64 %d6, %d2, %d6;", "cvt.s64.s32 %d6, %r31; shl.b64 %d6, %d6, 2; add.s64 %d6, %d2, %d6;", "mul.wide.s32 %d8, %r0, 4; add.s64 %d6, %d2, %d8; mul.wide.s32 %d8, %r30, 4; add.s64 %d6, %d6, %d8;", "mul.wide.s32 %d6, %r31, 4; add.s64 %d6, %d2, %d6; add.s64 %d6, %d6, 4;"),
        "load": ("mov.b32 %r33, {other}; @%p1 ld.global.b32 %r33, [%d6];", "mov.b32 %r33, {other}; @%p1 ld.global.b32 %r33, [%d6]; @!%p1 mov.b32 %r33, {other};", "mov.b32 %r33, 0; @%p1 ld.global.b32 %r33, [%d6]; selp.b32 %r33, %r33, {other}, %p1;", "ld.global.b32 %r33, [%d6]; selp.b32 %r33, %r33, {other}, %p1;", "ld.global.b32 %r33, [%d6];"),
        "fold": ("add.rn.f32 %r20, %r20, %r33;", "add.rn.f32 %r20, %r33, %r20;", "max.f32 %r20, %r20, %r33;", "max.f32 %r20, %r33, %r20;", "fma.rn.f32 %r20, %r33, %r33, %r20;", "sub.rn.f32 %r20, %r33, %r20;", "add.rn.f32 %r34, %r20, %r33; selp.b32 %r20, %r34, %r20, %p1;", "min.f32 %r20, %r20, %r33;", "mov.b32 %r20, %r33;"),
        "also": ("", "add.rn.f32 %r21, %r21, %r20;", "add.rn.f32 %r21, %r21, %r33;", "max.f32 %r21, %r21, %r33;", "cvt.rn.f32.s32 %r35, %r30; add.rn.f32 %r21, %r21, %r35;", "selp.b32 %r21, %r33, %r21, %p1;", "cvt.rn.f32.s32 %r35, %r31; max.f32 %r21, %r21, %r35;", "fma.rn.f32 %r21, %r33, %r20, %r21;", "mul.rn.f32 %r35, %r33, %r20; add.rn.f32 %r21, %r21, %r35;"),
        "end": ("", "add.rn.f32 %r22, %r20, %r21;", "add.rn.f32 %r22, %r21, %r20;", "cvt.rn.f32.s32 %r36, %r2; add.rn.f32 %r22, %r20, %r36;", "shfl.sync.bfly.b32 %r36, %r20, 1, 31, -1; add.rn.f32 %r22, %r20, %r36;", "setp.lt.s32 %p5, %r0, %r2; selp.b32 %r22, %r20, %r21, %p5;", "setp.lt.s32 %p5, %r9, %r2; selp.b32 %r22, %r20, %r21, %p5;"),
    }
)  # fmt: skip
"""The texts of each part of a kernel."""


def _text(made: Mapping[str, str]) -> str:
    """Return a kernel of chosen parts."""
    step, load = made["step"], made["load"].format(other=made["other"])
    body = " ".join((made["index"], made["mask"], made["address"], load, made["fold"], made["also"]))
    begin = f"mov.b32 %r20, {made['initial']}; mov.b32 %r21, {made['second']}; mov.b32 %r30, {made['start']};"
    following, whole = (
        f"add.s32 %r30, %r30, {step};",
        f"add.s32 %r40, %r2, {int(step) - 1}; div.s32 %r40, %r40, {step};",
    )
    turn = "add.s32 %r41, %r41, 1; setp.lt.s32 %p2, %r41, %r40; @%p2 bra AGAIN; DONE:"
    counted = f"mov.b32 %r41, 0; setp.lt.s32 %p2, %r40, 1; @%p2 bra DONE; AGAIN: {body} {following} {turn}"
    loop = {
        "rotated": f"setp.ge.s32 %p2, %r30, %r2; @%p2 bra DONE; AGAIN: {body} {following} setp.lt.s32 %p2, %r30, %r2; @%p2 bra AGAIN; DONE:",
        "rotated late": f"setp.lt.s32 %p2, %r2, 1; @%p2 bra DONE; AGAIN: {body} {following} setp.lt.s32 %p2, %r30, %r2; @%p2 bra AGAIN; DONE:",
        "once": f"AGAIN: {body} {following} setp.lt.s32 %p2, %r30, %r2; @%p2 bra AGAIN;",
        "closed": f"setp.gt.s32 %p2, %r30, %r2; @%p2 bra DONE; AGAIN: {body} {following} setp.le.s32 %p2, %r30, %r2; @%p2 bra AGAIN; DONE:",
        "counted": f"{whole} {counted}",
        "counted whole": f"div.s32 %r40, %r2, {step}; {counted}",
        "counted by shift": f"add.s32 %r40, %r2, 31; shr.s32 %r40, %r40, 5; {counted}",
        "counted down": f"{whole} setp.lt.s32 %p2, %r40, 1; @%p2 bra DONE; AGAIN: {body} {following} sub.s32 %r40, %r40, 1; setp.gt.s32 %p2, %r40, 0; @%p2 bra AGAIN; DONE:",
        "unequal": f"{whole} mul.lo.s32 %r40, %r40, {step}; setp.lt.s32 %p2, %r2, 1; @%p2 bra DONE; AGAIN: {body} {following} setp.ne.s32 %p2, %r30, %r40; @%p2 bra AGAIN; DONE:",
    }[made["form"]]  # fmt: skip
    return f"{begin} {loop} {made['end']}"


def _loops(dice: random.Random) -> Shape:
    """A loop and changes of some of its parts."""
    first = {name: texts[0] for name, texts in _CHOICES.items()}
    for name in ("form", "initial", "other", "load", "fold", "also", "end"):
        if dice.random() < 0.5:
            first[name] = dice.choice(_CHOICES[name])
    texts = dict.fromkeys([_text(first)])
    for _ in range(60):
        other = dict(first)
        for _ in range(dice.choice((1, 1, 1, 2))):
            name = dice.choice(tuple(_CHOICES))
            other[name] = dice.choice(_CHOICES[name])
        if other["form"] != "unequal" or other["start"] == "0":  # any other start never meets the end
            texts[_text(other)] = None
        if len(texts) == 16:
            break
    slot: Slot = tuple(texts)
    return Shape([slot], 64, "f32", (0, 0), repeats=2, first=True)


FAMILIES: Mapping[str, Family] = MappingProxyType({"loops of a launch argument": Family(_FRAME, _loops)})
"""The family by name."""
