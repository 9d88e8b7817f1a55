# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Comparisons that ptxas decides by the range of their numbers, without regard to NaNs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.concrete import checked_outputs
from ptx_programs import hashes, run, store, text
from sass_listings import mnemonics

LOAD = (
    "mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d1, %d2; ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2];"
    "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 {%h1, %h2}, %r1;"
)
HIDE = "mov.b32 %r20, %f3; shfl.sync.bfly.b32 %r20, %r20, 0, 31, -1; mov.b32 %f3, %r20; "
CHOICE = "selp.b32 %r9, 17, 18, %p1;"
NUMBERS = {
    "-3": "0fC0400000",
    "-1": "0fBF800000",
    "0": "0f00000000",
    "0.5": "0f3F000000",
    "1": "0f3F800000",
    "3": "0f40400000",
    "inf": "0f7F800000",
}

DECIDED = {
    "magnitude": ("abs.f32 %f3, %f1;", "ge 0", "gt -1"),
    "negated magnitude": ("abs.f32 %f4, %f1; neg.f32 %f3, %f4;", "lt 1"),
    "power": ("ex2.approx.ftz.f32 %f3, %f1;", "ge 0", "gt -1"),
    "power and 1": ("ex2.approx.ftz.f32 %f4, %f1; add.f32 %f3, %f4, 0f3F800000;", "gt 0", "ge 1"),
    "sine": ("sin.approx.f32 %f3, %f1;", "lt 3", "ge -1"),
    "cosine": ("cos.approx.ftz.f32 %f3, %f1;", "gt -3"),
    "hyperbolic tangent": ("tanh.approx.f32 %f3, %f1;", "lt 3", "ge -1"),
    "square": ("mul.f32 %f3, %f1, %f1;", "ge 0"),
    "sum of magnitudes": ("abs.f32 %f4, %f1; mul.f32 %f5, %f2, %f2; add.f32 %f3, %f4, %f5;", "gt -1"),
    "product of sines": ("sin.approx.f32 %f4, %f1; sin.approx.f32 %f5, %f2; mul.f32 %f3, %f4, %f5;", "ge -1"),
    "1 without a tangent": ("tanh.approx.f32 %f4, %f1; sub.f32 %f3, 0f3F800000, %f4;", "ge 0"),
    "selection": ("abs.f32 %f4, %f1; setp.gt.s32 %p3, %r5, 5; selp.f32 %f3, %f4, 0f3F800000, %p3;", "gt -1"),
    "move under a guard": ("abs.f32 %f4, %f1; setp.gt.s32 %p3, %r5, 5; mov.f32 %f3, 0f3F800000; @%p3 mov.f32 %f3, %f4;", "gt -1"),
    "extremum": ("sin.approx.f32 %f4, %f1; max.f32 %f3, %f4, 0f3F000000;", "gt 0"),
    "bits": ("abs.f32 %f4, %f1; mov.b32 %r8, %f4; add.s32 %r8, %r8, 0; mov.b32 %f3, %r8;", "ge 0"),
    "bits of a field": ("abs.f32 %f4, %f1; mov.b32 %r8, %f4; bfe.u32 %r8, %r8, 0, 32; mov.b32 %f3, %r8;", "ge 0"),
    "bits in a sum of products": ("abs.f32 %f4, %f1; mov.b32 %r8, %f4; mad.lo.u32 %r8, %r5, 0, %r8; mov.b32 %f3, %r8;", "ge 0"),
    "bits of two words": ("abs.f32 %f4, %f1; mov.b32 %r8, %f4; shf.l.wrap.b32 %r8, %r5, %r8, 0; mov.b32 %f3, %r8;", "ge 0"),
    "negated twice as an integer": ("abs.f32 %f4, %f1; mov.b32 %r8, %f4; neg.s32 %r8, %r8; neg.s32 %r8, %r8; mov.b32 %f3, %r8;", "ge 0"),
    "selection of a known side": ("abs.f32 %f4, %f1; setp.eq.s32 %p3, %r5, %r5; selp.f32 %f3, %f4, %f2, %p3;", "ge 0"),
}  # fmt: skip
"""Instructions that leave a number in %f3, and comparisons of it that ptxas makes true."""

OPEN = {
    "magnitude": ("abs.f32 %f3, %f1;", "gt 0", "lt 1", "lt 0", "leu 0", "ge 1", "le inf", "gtu inf"),
    "sine": ("sin.approx.f32 %f3, %f1;", "lt 1", "gt -1", "lt 0.5", "lt inf"),
    "number": ("mov.f32 %f3, %f1;", "ge 0", "lt 3"),
    "root": ("sqrt.rn.f32 %f3, %f1;", "ge 0"),
    "saturated number": ("cvt.sat.f32.f32 %f3, %f1;", "ge 0", "lt 3"),
    "integer": ("and.b32 %r8, %r1, 255; cvt.rn.f32.u32 %f3, %r8;", "ge 0"),
    "loop": ("abs.f32 %f4, %f1; mov.f32 %f3, %f1; mov.u32 %r8, 0; L1: add.f32 %f3, %f3, %f4; add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 3; @%p2 bra L1;", "ge 0"),
}  # fmt: skip
"""Comparisons that some number decides otherwise, or whose number is no NaN."""


def comparison(text_of: str) -> str:
    verb, number = text_of.split()
    return f"setp.{verb}.f32 %p1, %f3, {NUMBERS[number]}; {CHOICE}"


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(first, comparison(each)) for first, *compared in table.values() for each in compared]


def form(body: str) -> object:
    return hashes(LOAD + body + store("%r9", 32), dtype="u32")


@pytest.mark.parametrize(("first", "compared"), cases(DECIDED))
def test_a_comparison_that_every_number_fulfils_is_one_of_its_text(first: str, compared: str) -> None:
    assert form(first + compared) != form(first + HIDE + compared)
    assert form(first + compared) == form(first + compared)


@pytest.mark.parametrize(("first", "compared"), cases(OPEN))
def test_other_comparisons_are_equal_to_those_that_are_hidden(first: str, compared: str) -> None:
    assert form(first + compared) == form(first + HIDE + compared)


def test_operands_may_be_swapped_and_comparisons_unordered() -> None:
    first = "abs.f32 %f3, %f1;"
    for compared in ("setp.le.f32 %p1, 0f00000000, %f3;", "setp.ltu.f32 %p1, %f3, 0f00000000;",
                     "mov.f32 %f7, 0fBF800000; setp.gt.f32 %p1, %f3, %f7;"):  # fmt: skip
        assert form(first + compared + CHOICE) != form(first + HIDE + compared + CHOICE)


def test_finite_numbers_are_compared_as_they_are() -> None:
    def finite(body: str) -> list[list[int]]:
        kernel = LOAD + body + store("%r9", 32)
        memory, scratch = run(kernel, assume=frozenset({FINITE}), dtype="u32", loaded="fp32")
        return checked_outputs(memory, scratch)[1].words.tolist()

    compared = comparison("ge 0")
    assert finite("abs.f32 %f3, %f1;" + compared) == finite("abs.f32 %f3, %f1; mov.f32 %f4, %f3;" + compared)


def test_the_installed_assembler_decides_them(tmp_path: Path) -> None:
    bodies = [first + compared for first, compared in cases(DECIDED)]
    kernels = [text(LOAD + body + store("%r9", 32)) for body in bodies]
    for body, code in zip(bodies, mnemonics(kernels, tmp_path), strict=True):
        assert not re.search("FSETP|FSET", " ".join(code)), body
