# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Comparisons of extrema of integers with their operands, which ptxas takes from the extrema."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptx_programs import hashes, store, text
from sass_listings import mnemonics

LOAD = (
    "mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d1, %d2; ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2];"
    "mov.b32 {%h1, %h2}, %r1; mov.b64 %d5, {%r1, %r2};"
)
CHOICE = "selp.b32 %r9, 17, 18, %p1;"
HIDE = {
    "%h3": "cvt.u32.u16 %r20, %h3; shfl.sync.bfly.b32 %r20, %r20, 0, 31, -1; cvt.u16.u32 %h3, %r20;",
    "%r3": "shfl.sync.bfly.b32 %r3, %r3, 0, 31, -1;",
    "%d3": "mov.b64 {%r20, %r21}, %d3; shfl.sync.bfly.b32 %r20, %r20, 0, 31, -1; shfl.sync.bfly.b32 %r21, %r21, 0, 31, -1; mov.b64 %d3, {%r20, %r21};",
}
CLAMP = "min.s32 %r7, %r1, 15; max.s32 %r3, %r7, 0;"

TAKEN = {
    "minimum": ("min.u16 %h3, %h1, 15;", "setp.eq.s16 %p1, 15, %h3;"),
    "maximum": ("max.u16 %h3, %h1, 0;", "setp.eq.s16 %p1, %h3, 0;"),
    "signed minimum": ("min.s16 %h3, %h1, -1;", "setp.eq.s16 %p1, %h3, -1;"),
    "number": ("max.s16 %h3, %h1, 15;", "setp.eq.u16 %p1, %h3, %h1;"),
    "two registers": ("max.s16 %h3, %h1, %h2;", "setp.eq.u16 %p1, %h3, %h1;"),
    "literal in a register": ("mov.b16 %h7, 15; min.u16 %h3, %h1, %h7;", "setp.eq.u16 %p1, %h3, %h7;"),
    "clamp of 16 bits": ("min.s16 %h7, %h1, 15; max.s16 %h3, %h7, 0;", "setp.eq.b16 %p1, %h3, 15;"),
    "word": ("min.u16 %h3, %h1, 15;", "cvt.u32.u16 %r8, %h3; setp.eq.s32 %p1, %r8, 15;"),
    "word without a type": ("max.u16 %h3, %h1, 15;", "cvt.u32.u16 %r8, %h3; setp.eq.b32 %p1, %r8, 15;"),
    "signed word": ("min.s16 %h3, %h1, 15;", "cvt.s32.s16 %r8, %h3; setp.eq.s32 %p1, %r8, 15;"),
    "mask": ("min.u16 %h3, %h1, 15;", "cvt.u32.u16 %r8, %h3; and.b32 %r8, %r8, 65535; setp.eq.s32 %p1, %r8, 15;"),
    "half of a word": ("min.u16 %h3, %h1, 15;", "mov.b32 %r8, {%h3, %h2}; mov.b32 {%h5, %h6}, %r8; setp.eq.s16 %p1, %h5, 15;"),
    "half of a pair": ("mov.b32 %r4, 0xf000f; min.u16x2 %r3, %r1, %r4;", "mov.b32 {%h5, %h6}, %r3; setp.eq.s16 %p1, %h6, 15;"),
    "clamp": (CLAMP, "setp.eq.s32 %p1, %r3, 15;"),
    "number of a clamp": (CLAMP, "setp.eq.s32 %p1, %r3, %r1;"),
    "maximum of a maximum": ("max.s32 %r7, %r1, %r2; max.s32 %r3, %r7, 0;", "setp.eq.s32 %p1, %r3, %r2;"),
    "clamp by selections": ("setp.lt.s32 %p2, %r1, 15; selp.b32 %r7, %r1, 15, %p2; setp.gt.s32 %p3, %r7, 0; selp.b32 %r3, %r7, 0, %p3;", "setp.eq.s32 %p1, %r3, 15;"),
    "clamp to a register": ("min.s32 %r7, %r1, %r2; max.s32 %r3, 0, %r7;", "setp.eq.s32 %p1, %r3, %r2;"),
    "clamp behind a sum with 0": (CLAMP, "add.s32 %r8, %r3, 0; setp.eq.s32 %p1, %r8, 15;"),
    "narrow clamp": (CLAMP, "cvt.u16.u32 %h5, %r3; setp.eq.s16 %p1, %h5, 15;"),
    "selected minimum": ("setp.lt.s32 %p2, %r1, 15; selp.b32 %r7, %r1, 15, %p2; max.s32 %r3, %r7, 0;", "setp.eq.s32 %p1, %r3, 15;"),
    "selected maximum": ("min.s32 %r7, %r1, 15; setp.gt.s32 %p2, %r7, 0; selp.b32 %r3, %r7, 0, %p2;", "setp.eq.s32 %p1, %r3, 15;"),
    "minimum by a move under a guard": ("mov.b32 %r7, 15; setp.lt.s32 %p2, %r1, 15; @%p2 mov.b32 %r7, %r1; max.s32 %r3, %r7, 0;", "setp.eq.s32 %p1, %r3, 15;"),
}  # fmt: skip
"""Instructions that leave an extremum, and comparisons that ptxas takes from it."""

OPEN = {
    "another literal": ("min.u16 %h3, %h1, 15;", "setp.eq.u16 %p1, %h3, 14;"),
    "another number": ("min.u16 %h3, %h1, 15;", "cvt.u16.u32 %h5, %r5; setp.eq.u16 %p1, %h3, %h5;"),
    "other truth": ("min.u16 %h3, %h1, 15;", "setp.ne.u16 %p1, %h3, 15;"),
    "order": ("min.u16 %h3, %h1, 15;", "setp.lt.u16 %p1, %h3, 15;"),
    "minimum of 32 bits": ("min.s32 %r3, %r1, 15;", "setp.eq.s32 %p1, %r3, 15;"),
    "clamp without a type": (CLAMP, "setp.eq.b32 %p1, %r3, 15;"),
    "clamp without a sign": (CLAMP, "setp.eq.u32 %p1, %r3, %r1;"),
    "unsigned clamp": ("min.u32 %r7, %r1, 15; max.u32 %r3, %r7, 0;", "setp.eq.u32 %p1, %r3, 15;"),
    "minimum of a maximum": ("max.s32 %r7, %r1, 0; min.s32 %r3, %r7, 15;", "setp.eq.s32 %p1, %r3, 15;"),
    "clamp to other bounds": ("min.s32 %r7, %r1, 15; max.s32 %r3, %r7, 1;", "setp.eq.s32 %p1, %r3, 15;"),
    "number of classes": (CLAMP, "setp.eq.s32 %p1, %r3, 7;"),
    "lower bound": (CLAMP, "setp.eq.s32 %p1, %r3, 0;"),
    "loaded number": (CLAMP, "setp.eq.s32 %p1, %r3, %r2;"),
    "order of a clamp": (CLAMP, "setp.lt.s32 %p1, %r3, 15;"),
    "other truth of a clamp": (CLAMP, "setp.ne.s32 %p1, %r3, %r1;"),
    "masked number": ("setp.lt.s32 %p2, %r5, 100; selp.b32 %r3, %r1, 0, %p2;", "setp.eq.s32 %p1, %r3, %r1;"),
    "minimum of 64 bits": ("min.s64 %d7, %d5, 15; max.s64 %d3, %d7, 0;", "setp.eq.s64 %p1, %d3, 15;"),
}  # fmt: skip
"""Comparisons that ptxas keeps."""


def form(body: str) -> object:
    return hashes(LOAD + body + CHOICE + store("%r9", 32), dtype="u32")


def hidden(first: str) -> str:
    """Return instructions with the number that they leave, in register 3 of a width, hidden from the assembler."""
    return first + next(hide for name, hide in HIDE.items() if name in first)


@pytest.mark.parametrize(("first", "compared"), TAKEN.values(), ids=TAKEN)
def test_a_comparison_with_an_operand_of_the_extremum_is_one_of_its_text(first: str, compared: str) -> None:
    assert form(first + compared) != form(hidden(first) + compared)
    assert form(first + compared) == form(first + compared)


@pytest.mark.parametrize(("first", "compared"), OPEN.values(), ids=OPEN)
def test_other_comparisons_are_equal_to_those_that_are_hidden(first: str, compared: str) -> None:
    assert form(first + compared) == form(hidden(first) + compared)


def test_the_installed_assembler_takes_them_from_the_extremum(tmp_path: Path) -> None:
    bodies = [first + compared for first, compared in TAKEN.values()]
    kernels = [text(LOAD + body + CHOICE + store("%r9", 32)) for body in bodies]
    for body, code in zip(bodies, mnemonics(kernels, tmp_path), strict=True):
        assert not any(each.startswith("ISETP") for each in code), body


def test_the_installed_assembler_keeps_the_others(tmp_path: Path) -> None:
    bodies = [first + compared for first, compared in OPEN.values()]
    kernels = [text(LOAD + body + CHOICE + store("%r9", 32)) for body in bodies]
    for body, code in zip(bodies, mnemonics(kernels, tmp_path), strict=True):
        assert any(each.startswith("ISETP") for each in code), body
