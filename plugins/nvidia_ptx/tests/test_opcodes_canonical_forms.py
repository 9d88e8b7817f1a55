# ruff: noqa: E501 - PTX and tables are easier to check without line breaks
"""Floating-point programs with equal canonical forms, and programs whose forms must differ."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.concrete import checked_outputs, prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from ptx_programs import ARCH, hashes, known, run, text

LOADS = """
    ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4]; ld.global.f32 %f3, [%d1+8]; ld.global.f32 %f4, [%d1+12];
    ld.global.b16 %h1, [%d1+16]; ld.global.b16 %h2, [%d1+18]; ld.global.b16 %h3, [%d1+20];
    cvt.f32.f16 %f11, %h1; cvt.f32.f16 %f12, %h2; cvt.f32.f16 %f13, %h3;
    cvt.f32.bf16 %f14, %h1; cvt.f32.bf16 %f15, %h2; cvt.f32.bf16 %f16, %h3;
    ld.global.b32 %r1, [%d1+24]; ld.global.b32 %r2, [%d1+28]; ld.global.b64 %d5, [%d1+32]; ld.global.b64 %d6, [%d1+40];
    setp.lt.f32 %p1, %f1, %f2;
"""
STORES = {
    "f": "st.global.f32 [%d0], %f40;",
    "h": "st.global.b16 [%d0], %h40;",
    "r": "st.global.b32 [%d0], %r40;",
    "d": "st.global.b64 [%d0], %d40;",
}


def form(body: str, dtype: str | None = None) -> object:
    """Return the canonical form of %f40, %h40, %r40 or %d40 after the body, in a buffer of this type."""
    letter = next(each for each in "fhrd" if f"%{each}40" in body)
    return hashes(LOADS + body + STORES[letter], threads=1, dtype=dtype)


ROW = "max.f32 %f20, %f1, %f2; max.f32 %f21, %f20, 0fFF800000; max.f32 %f22, %f3, 0fFF800000;"
"""The maximum of a row of two, that of the row and padding, and another one that has been padded."""


def exponential(to: int, value: str, peak: int) -> str:
    """Return the code of a term of a softmax."""
    return f"sub.f32 %f30, {value}, %f{peak}; mul.f32 %f30, %f30, 0f3FB8AA3B; ex2.approx.f32 %f{to}, %f30;"


PADDED = ROW + exponential(31, "%f1", 21) + exponential(32, "%f2", 21) + exponential(33, "0fFF800000", 21)
PADDED_LAST = PADDED + "add.f32 %f34, %f31, %f32; add.f32 %f40, %f34, %f33;"

MAGNITUDES = "abs.f32 %f5, %f1; abs.f32 %f6, %f2;"
LARGER = (
    "setp.gt.f32 %p2, {x}, {y}; setp.nan.f32 %p3, {x}, {x}; selp.f32 %f7, {x}, {y}, %p2; selp.f32 %f40, {x}, %f7, %p3;"
)
"""The code of the greater number or the one that is NaN, as selects."""
NESTED = "setp.lt.s32 %p2, %r1, %r2; selp.f32 %f5, %f3, %f4, %p2; selp.f32 %f40, %f3, %f5, %p1;"
HALVES = "mov.b32 %r5, {{%h1, %h2}}; mov.b32 %r6, {{%h3, %h3}}; setp.lt.bf16x2 %p2|%p3, %r5, %r6; selp.f32 %f40, %f3, %f4, {};"

TESTS = "setp.lt.f32 %p2, %f1, %f2; setp.lt.f32 %p3, %f2, %f3; setp.lt.f32 %p4, %f3, %f4; setp.nan.f32 %p5, %f1, %f4;"
PACKED = TESTS + (
    "selp.b16 %h5, 1, 0, %p2; shl.b16 %h5, %h5, 2; selp.b16 %h6, -1, 0, %p3; shl.b16 %h6, %h6, 3; or.b16 %h5, %h5, %h6;"
    "selp.b16 %h6, 1, 0, %p4; selp.b16 %h7, -1, 0, %p5; shl.b16 %h7, %h7, 1; or.b16 %h6, %h6, %h7; and.b16 %h6, %h6, 3;"
    "or.b16 %h5, %h6, %h5; and.b16 %h5, %h5, 15; shl.b16 %h5, %h5, 8; cvt.u32.u16 %r5, %h5;"
)
"""Four predicates in the bits 8 to 11 of %r5, as LLVM packs those of many elements."""


KEY = "shl.b32 %r5, %r1, 16;"
"""The code of a key of 16 bits in the upper half of %r5."""


def of_bit(place: int) -> str:
    """Return the code of a select by one bit of %r5."""
    return (
        PACKED
        + f"shr.u32 %r6, %r5, {place}; and.b32 %r6, %r6, 1; setp.ne.b32 %p6, %r6, 0; selp.f32 %f40, %f3, %f4, %p6;"
    )


EQUAL = {
    **{
        f"a predicate in bit {place}": (of_bit(place), TESTS + f"selp.f32 %f40, %f3, %f4, %p{predicate};")
        for place, predicate in ((8, 4), (9, 5), (10, 2), (11, 3))
    },
    "packed predicates of which none holds": (
        PACKED + "setp.eq.b32 %p6, %r5, 0; selp.f32 %f40, %f3, %f4, %p6;",
        TESTS + "or.pred %p6, %p2, %p3; or.pred %p7, %p4, %p5; or.pred %p6, %p6, %p7; selp.f32 %f40, %f4, %f3, %p6;",
    ),
    "a maximum of magnitudes that is selected with a test of the number": (
        MAGNITUDES + LARGER.format(x="%f5", y="%f6").replace("%p3, %f5, %f5", "%p3, %f1, %f1"),
        MAGNITUDES + "max.NaN.f32 %f40, %f5, %f6;",
    ),
    "a minimum of magnitudes that is selected with a test of the number": (
        MAGNITUDES + "setp.lt.f32 %p2, %f5, %f6; setp.nan.f32 %p3, %f1, %f1; or.pred %p4, %p2, %p3; selp.f32 %f40, %f5, %f6, %p4;",
        MAGNITUDES + "min.NaN.f32 %f40, %f5, %f6;",
    ),
    "a maximum of a magnitude and a number that is selected by a test of the number": (
        MAGNITUDES + "max.f32 %f7, %f5, 0f3F800000; setp.nan.f32 %p2, %f1, %f1; selp.f32 %f40, %f5, %f7, %p2;",
        MAGNITUDES + "max.NaN.f32 %f40, %f5, 0f3F800000;",
    ),
    "minus infinity that is selected for itself": (
        "mov.f32 %f5, 0fFF800000;" + LARGER.format(x="%f1", y="%f5"), "mov.f32 %f40, %f1;"
    ),
    "plus infinity beside a number": (
        "min.f32 %f5, %f1, 0f7F800000; setp.nan.f32 %p2, %f1, %f1; selp.f32 %f40, %f1, %f5, %p2;", "mov.f32 %f40, %f1;"
    ),
    "a number that is selected for itself": (
        "setp.eq.f32 %p2, %f1, 0fFF800000; selp.f32 %f40, 0fFF800000, %f1, %p2;", "mov.f32 %f40, %f1;"
    ),
    "a maximum of a magnitude and zero that keeps NaN": (MAGNITUDES + "max.NaN.f32 %f40, %f5, 0f00000000;", "abs.f32 %f40, %f1;"),
    "zero next to a magnitude in a maximum that keeps NaN": (
        MAGNITUDES + "max.NaN.f32 %f7, %f2, 0f00000000; max.NaN.f32 %f40, %f7, %f5;", MAGNITUDES + "max.NaN.f32 %f40, %f2, %f5;"
    ),
    "a maximum that is selected with a test for NaN": (
        MAGNITUDES + LARGER.format(x="%f5", y="%f6"), MAGNITUDES + "max.NaN.f32 %f40, %f5, %f6;"
    ),
    "a clamp at zero that keeps NaN": (
        "setp.le.f32 %p2, %f1, 0f00000000; selp.f32 %f40, 0f00000000, %f1, %p2;", "max.NaN.f32 %f40, %f1, 0f00000000;"
    ),
    "a select in a select": (NESTED, "setp.lt.s32 %p2, %r1, %r2; or.pred %p3, %p1, %p2; selp.f32 %f40, %f3, %f4, %p3;"),
    "a disjunction of negations": (
        "setp.geu.f32 %p2, %f1, %f2; setp.geu.f32 %p3, %f2, %f3; or.pred %p4, %p2, %p3; selp.f32 %f40, %f3, %f4, %p4;",
        "setp.lt.f32 %p3, %f2, %f3; and.pred %p4, %p1, %p3; selp.f32 %f40, %f4, %f3, %p4;",
    ),
    "a comparison of widened bf16 values": (
        "setp.lt.f32 %p2, %f14, %f15; selp.f32 %f40, %f3, %f4, %p2;", "setp.lt.bf16 %p2, %h1, %h2; selp.f32 %f40, %f3, %f4, %p2;"
    ),
    "comparisons of two halves": (HALVES.format("%p3"), "setp.lt.bf16 %p2, %h2, %h3; selp.f32 %f40, %f3, %f4, %p2;"),
    "bytes that a shift with its sign keeps": ("shr.s32 %r5, %r1, 16; cvt.u16.u32 %h40, %r5;", "mov.b32 {%h5, %h40}, %r1;"),
    "padding in a sum of exponentials": (
        PADDED + "add.f32 %f34, %f33, %f31; add.f32 %f35, %f33, %f33; add.f32 %f36, %f32, %f35; add.f32 %f40, %f34, %f36;",
        PADDED_LAST,
    ),
    "padding that is shuffled to another lane": (
        PADDED + "shfl.sync.bfly.b32 %f34, %f33, 0, 31, -1; add.f32 %f35, %f31, %f34; add.f32 %f40, %f35, %f32;",
        PADDED_LAST,
    ),
    "the first iteration of a running sum": (
        PADDED + "add.f32 %f34, %f31, %f32; fma.rn.f32 %f40, %f33, 0f00000000, %f34;", PADDED_LAST,
    ),
    "padding in a sum that is scaled": (
        PADDED + "add.f32 %f34, %f31, %f33; add.f32 %f35, %f34, %f32; mul.f32 %f40, %f35, %f3;",
        PADDED_LAST + "mul.f32 %f40, %f40, %f3;",
    ),
    "padding minus a loaded value": ("sub.f32 %f5, 0fFF800000, %f1; add.f32 %f40, %f5, %f2;", "sub.f32 %f5, 0fFF800000, %f1; add.f32 %f40, %f2, %f5;"),
    "a sum's operands": ("add.f32 %f40, %f1, %f2;", "add.f32 %f40, %f2, %f1;"),
    "a product's operands": ("mul.f32 %f40, %f1, %f2;", "mul.f32 %f40, %f2, %f1;"),
    "a fused product's factors": ("fma.rn.f32 %f40, %f1, %f2, %f3;", "fma.rn.f32 %f40, %f2, %f1, %f3;"),
    "the default rounding is to nearest": ("add.f32 %f40, %f1, %f2;", "add.rn.f32 %f40, %f1, %f2;"),
    "a difference": ("sub.f32 %f40, %f1, %f2;", "neg.f32 %f5, %f2; add.f32 %f40, %f5, %f1;"),
    "a negated product": ("neg.f32 %f5, %f1; mul.f32 %f40, %f5, %f2;", "mul.f32 %f5, %f1, %f2; neg.f32 %f40, %f5;"),
    "a product with one": ("mul.f32 %f40, %f1, 0f3F800000;", "mov.f32 %f40, %f1;"),
    "a product with minus one": ("mul.f32 %f40, %f1, 0fBF800000;", "neg.f32 %f40, %f1;"),
    "minus zero": ("add.f32 %f40, %f1, 0f80000000;", "mov.f32 %f40, %f1;"),
    "zero twice": ("add.f32 %f5, %f1, 0f00000000; add.f32 %f40, %f5, 0f00000000;", "add.f32 %f40, %f1, 0f00000000;"),
    "zero after a sum": (
        "add.f32 %f5, %f1, 0f00000000; add.f32 %f40, %f5, %f2;", "add.f32 %f5, %f1, %f2; add.f32 %f40, %f5, 0f00000000;"
    ),
    "a square plus zero": ("mul.f32 %f5, %f1, %f1; add.f32 %f40, %f5, 0f00000000;", "mul.f32 %f40, %f1, %f1;"),
    "an exponential plus zero": ("ex2.approx.f32 %f5, %f1; add.f32 %f40, %f5, 0f00000000;", "ex2.approx.f32 %f40, %f1;"),
    "a fused product of fp16 values": ("fma.rn.f32 %f40, %f11, %f12, %f3;", "mul.f32 %f5, %f11, %f12; add.f32 %f40, %f5, %f3;"),
    "a fused product of zeros": ("fma.rn.f32 %f40, 0f00000000, 0f80000000, %f3;", "add.f32 %f40, %f3, 0f80000000;"),
    "a fused product of an fp16 value and a constant that is exact in fp16": (
        "fma.rn.f32 %f40, %f11, 0fBE000000, %f3;", "mul.f32 %f5, %f11, 0fBE000000; add.f32 %f40, %f5, %f3;"
    ),
    "a maximum of equal maxima": (
        "max.f32 %f5, %f1, %f2; max.f32 %f6, %f2, %f1; max.f32 %f40, %f5, %f6;", "max.f32 %f40, %f1, %f2;"
    ),
    "a maximum of an fp16 value and a constant that is exact in fp16": (
        "max.f32 %f40, %f11, 0fBE000000;", "mov.b16 %h5, 0xB000; max.f16 %h6, %h1, %h5; cvt.f32.f16 %f40, %h6;"
    ),
    "the order of a maximum": ("max.f32 %f5, %f1, %f2; max.f32 %f40, %f5, %f3;", "max.f32 %f5, %f3, %f1; max.f32 %f40, %f2, %f5;"),
    "constants in maxima": (
        "max.f32 %f5, %f1, 0fBF800000; max.f32 %f6, %f2, 0f40000000; max.f32 %f40, %f5, %f6;",
        "max.f32 %f5, %f1, %f2; max.f32 %f40, %f5, 0f40000000;",
    ),
    "minus infinity next to a constant": (
        "max.f32 %f5, %f1, 0fFF800000; max.f32 %f40, %f5, 0fBF800000;", "max.f32 %f40, %f1, 0fBF800000;"
    ),
    "a constant that is not exact in fp16 next to fp16 values": (
        "max.f32 %f5, %f11, 0fF149F2CA; max.f32 %f6, %f12, 0fF149F2CA; max.f32 %f40, %f5, %f6;",
        "max.f32 %f5, %f11, %f12; max.f32 %f40, %f5, 0fF149F2CA;",
    ),
    "a clamp at zero plus zero": ("max.f32 %f5, %f1, 0f00000000; add.f32 %f40, %f5, 0f00000000;", "max.f32 %f40, %f1, 0f00000000;"),
    "constants in integer minima": (
        "min.s32 %r5, %r1, 7; min.s32 %r6, %r2, -3; min.s32 %r40, %r5, %r6;", "min.s32 %r5, %r1, %r2; min.s32 %r40, %r5, -3;"
    ),
    "constants in maxima of fp64": (
        "mov.b64 %g1, %d5; max.f64 %g2, %g1, 0d0000000000000000; max.f64 %g3, %g2, 0d3FF0000000000000; mov.b64 %d40, %g3;",
        "mov.b64 %g1, %d5; max.f64 %g3, %g1, 0d3FF0000000000000; mov.b64 %d40, %g3;",
    ),
    "the order of a minimum": ("min.f32 %f5, %f1, %f2; min.f32 %f40, %f5, %f3;", "min.f32 %f5, %f3, %f1; min.f32 %f40, %f2, %f5;"),
    "the order of a NaN-propagating maximum": (
        "max.NaN.f32 %f5, %f1, %f2; max.NaN.f32 %f40, %f5, %f3;", "max.NaN.f32 %f5, %f3, %f1; max.NaN.f32 %f40, %f2, %f5;"
    ),
    "a NaN-propagating maximum with minus infinity": ("max.NaN.f32 %f40, %f1, 0fFF800000;", "mov.f32 %f40, %f1;"),
    "maxima of widened fp16 values": ("max.f32 %f40, %f11, %f12;", "max.f16 %h5, %h1, %h2; cvt.f32.f16 %f40, %h5;"),
    "maxima of widened bf16 values": ("max.f32 %f40, %f14, %f15;", "max.bf16 %h5, %h1, %h2; cvt.f32.bf16 %f40, %h5;"),
    "widening and narrowing": ("cvt.rn.f16.f32 %h40, %f11;", "mov.b16 %h40, %h1;"),
    "widening and narrowing of bf16": ("cvt.rn.bf16.f32 %h40, %f14;", "mov.b16 %h40, %h1;"),
    "bf16 widened by its bits": ("mov.b32 %f40, {0, %h1};", "cvt.f32.bf16 %f40, %h1;"),
    "an absolute value": ("mov.b32 %r5, %f1; and.b32 %r40, %r5, 0x7fffffff;", "abs.f32 %f5, %f1; mov.b32 %r40, %f5;"),
    "an absolute value of a negation": ("neg.f32 %f5, %f1; abs.f32 %f40, %f5;", "abs.f32 %f40, %f1;"),
    "a select by the negated predicate": ("selp.f32 %f40, %f3, %f4, %p1;", "setp.geu.f32 %p2, %f1, %f2; selp.f32 %f40, %f4, %f3, %p2;"),
    "a select as a branch": (
        "selp.f32 %f40, %f3, %f4, %p1;", "mov.f32 %f40, %f4; @!%p1 bra J; mov.f32 %f40, %f3; J:"
    ),
    "sums in a packed register": (
        "mov.b32 %r5, {%h1, %h2}; mov.b32 %r6, {%h2, %h3}; add.f16x2 %r40, %r5, %r6;",
        "add.f16 %h5, %h2, %h1; add.f16 %h6, %h3, %h2; mov.b32 %r40, {%h5, %h6};",
    ),
    "halves swapped twice": ("mov.b32 %r5, {%h1, %h2}; prmt.b32 %r6, %r5, %r5, 0x1032; prmt.b32 %r40, %r6, %r6, 0x1032;", "mov.b32 %r40, {%h1, %h2};"),
    "a signed minimum that is selected": (
        "setp.lt.s32 %p2, %r1, %r2; selp.b32 %r40, %r1, %r2, %p2;", "min.s32 %r40, %r2, %r1;"
    ),
    "an unsigned maximum that is selected": (
        "setp.le.u32 %p2, %r2, %r1; selp.b32 %r40, %r1, %r2, %p2;", "max.u32 %r40, %r1, %r2;"
    ),
    "a clamped integer": (
        "max.s32 %r5, %r1, -128; min.s32 %r40, %r5, 127;",
        "setp.lt.s32 %p2, %r1, -128; selp.b32 %r5, -128, %r1, %p2; setp.gt.s32 %p3, %r5, 127; selp.b32 %r40, 127, %r5, %p3;",
    ),
    "a minimum that a predicate selects beside its operand": (
        "min.s32 %r5, %r1, %r2; selp.b32 %r40, %r5, %r2, %p1;",
        "setp.lt.s32 %p2, %r1, %r2; and.pred %p3, %p1, %p2; selp.b32 %r40, %r1, %r2, %p3;",
    ),
    "a maximum that a predicate selects beside its operand": (
        "max.u32 %r5, %r1, %r2; selp.b32 %r40, %r2, %r5, %p1;",
        "setp.gt.u32 %p2, %r1, %r2; not.pred %p3, %p1; and.pred %p3, %p3, %p2; selp.b32 %r40, %r1, %r2, %p3;",
    ),
    "a place below a key, by differences that leave the half": (
        KEY + "sub.s32 %r6, %r5, 5; add.s32 %r40, %r6, 32;", KEY + "or.b32 %r40, %r5, 27;"
    ),
    "a place below a key, in one register": (
        KEY + "add.s32 %r40, %r5, 27;", "cvt.u16.u32 %h5, %r1; mov.b16 %h6, 27; mov.b32 %r40, {%h6, %h5};"
    ),
    "a place below a key of 32 bits": (
        "shl.b64 %d7, %d5, 32; add.s64 %d40, %d7, 7;", "shl.b64 %d7, %d5, 32; or.b64 %d40, %d7, 7;"
    ),
    "an extremum of keys and places": (
        KEY + "add.s32 %r6, %r5, 27; min.u32 %r40, %r6, %r2;", KEY + "or.b32 %r6, %r5, 27; min.u32 %r40, %r2, %r6;"
    ),
    "a sum with a place below a key": (
        KEY + "or.b32 %r6, %r5, 27; add.s32 %r40, %r6, %r2;", KEY + "add.s32 %r6, %r5, %r2; add.s32 %r40, %r6, 27;"
    ),
    "the place below a key": (
        KEY + "sub.s32 %r6, %r5, 5; add.s32 %r6, %r6, 32; and.b32 %r40, %r6, 65535;", "mov.b32 %r40, 27;"
    ),
    "linear forms": ("add.s32 %r5, %r1, %r2; mul.lo.s32 %r5, %r5, 6; sub.s32 %r40, %r5, %r2;", "mul.lo.s32 %r5, %r2, 5; mad.lo.s32 %r40, %r1, 6, %r5;"),
    "a sign-extended byte in a wider register": (
        "cvt.u16.u32 %h6, %r1; cvt.s16.s8 %h5, %h6; cvt.rn.f32.s16 %f40, %h5;", "shl.b32 %r5, %r1, 0; cvt.u16.u32 %h6, %r5; cvt.s16.s8 %h5, %h6; cvt.s32.s16 %r6, %h5; cvt.rn.f32.s32 %f40, %r6;"
    ),
    "a zero-extended byte in a wider register": (
        "cvt.u16.u32 %h6, %r1; cvt.u16.u8 %h5, %h6; cvt.rn.f32.u16 %f40, %h5;", "cvt.u16.u32 %h6, %r1; cvt.u16.u8 %h5, %h6; cvt.u32.u16 %r6, %h5; cvt.rn.f32.u32 %f40, %r6;"
    ),
    "fp16 bits as a float and then as an integer": (
        "cvt.rzi.s32.f16 %r40, %h1;", "cvt.rzi.s32.f32 %r40, %f11;"
    ),
    "zeros in an or of bits": ("xor.b32 %r5, %r1, 0; xor.b32 %r40, %r5, %r2;", "xor.b32 %r40, %r2, %r1;"),
    "the high half of a product": ("mul.hi.u32 %r40, %r1, %r2;", "mul.hi.u32 %r40, %r2, %r1;"),
    "minus one in a linear form": ("add.s64 %d40, %d5, -1;", "sub.s64 %d40, %d5, 1;"),
    "a softmax of one number beside a fused sum": (
        "max.f32 %f20, %f1, 0fFF800000;" + exponential(31, "%f1", 20) + "fma.rn.f32 %f40, %f31, %f2, 0f00000000;",
        "max.f32 %f20, %f1, 0fFF800000;" + exponential(31, "%f1", 20) + "mul.rn.f32 %f32, %f31, %f2; add.rn.f32 %f40, %f32, 0f00000000;",
    ),
}  # fmt: skip

DIFFERENT = {
    "predicates in neighbouring bits": (of_bit(8), of_bit(9)),
    "a bit above the packed predicates": (of_bit(12), of_bit(11)),
    "packed predicates of which none or another one holds": tuple(
        PACKED + f"setp.eq.b32 %p6, %r5, {number}; selp.f32 %f40, %f3, %f4, %p6;" for number in (0x100, 0x200)
    ),
    "a zero that is selected for a zero": ("setp.eq.f32 %p2, %f1, 0f00000000; selp.f32 %f40, 0f00000000, %f1, %p2;", "mov.f32 %f40, %f1;"),
    "a maximum of magnitudes that is selected with a test of the other number": (
        MAGNITUDES + LARGER.format(x="%f5", y="%f6").replace("%p3, %f5, %f5", "%p3, %f2, %f2"),
        MAGNITUDES + "max.NaN.f32 %f40, %f5, %f6;",
    ),
    "plus infinity that is selected below it": ("mov.f32 %f5, 0f7F800000;" + LARGER.format(x="%f1", y="%f5"), "mov.f32 %f40, %f1;"),
    "minus infinity beside a number": (
        "min.f32 %f5, %f1, 0fFF800000; setp.nan.f32 %p2, %f1, %f1; selp.f32 %f40, %f1, %f5, %p2;", "mov.f32 %f40, %f1;"
    ),
    "a maximum with zero that keeps NaN": ("max.NaN.f32 %f40, %f1, 0f00000000;", "mov.f32 %f40, %f1;"),
    "zero next to a magnitude in a maximum that drops NaN": (
        MAGNITUDES + "max.f32 %f7, %f2, 0f00000000; max.f32 %f40, %f7, %f5;", MAGNITUDES + "max.f32 %f40, %f2, %f5;"
    ),
    "zero in a minimum of magnitudes": (MAGNITUDES + "min.NaN.f32 %f40, %f5, 0f00000000;", "abs.f32 %f40, %f1;"),
    "a sign-extended and a zero-extended byte": (
        "cvt.s8.s32 %h5, %r1; cvt.rn.f32.s16 %f40, %h5;", "cvt.u8.u32 %h5, %r1; cvt.rn.f32.u16 %f40, %h5;"
    ),
    "a sign-extended byte and a sign-extended half-word": (
        "cvt.s8.s32 %h5, %r1; cvt.rn.f32.s16 %f40, %h5;", "cvt.s16.s32 %h5, %r1; cvt.rn.f32.s16 %f40, %h5;"
    ),
    "the signed and the unsigned high half of a product": ("mul.hi.u32 %r40, %r1, %r2;", "mul.hi.s32 %r40, %r1, %r2;"),
    "padding of a different row": (
        PADDED + exponential(34, "0fFF800000", 22) + "add.f32 %f40, %f31, %f34;", PADDED + "add.f32 %f40, %f31, %f33;"
    ),
    "padding of two rows": (
        PADDED + exponential(34, "0fFF800000", 22) + "add.f32 %f35, %f31, %f34; add.f32 %f40, %f35, %f33;", PADDED + "add.f32 %f40, %f31, %f33;"
    ),
    "a sum without padding": (PADDED_LAST, PADDED + "add.f32 %f40, %f31, %f32;"),
    "padding of a sum that is not NaN for a NaN maximum": (
        PADDED + "add.f32 %f40, %f3, %f33;", PADDED + "add.f32 %f40, %f3, 0f00000000;"
    ),
    "padding with a negative factor": (
        PADDED + "sub.f32 %f34, 0fFF800000, %f21; mul.f32 %f34, %f34, 0fBF800000; ex2.approx.f32 %f35, %f34; add.f32 %f40, %f31, %f35;",
        PADDED + "add.f32 %f40, %f31, %f33;",
    ),
    "padding with +inf": (
        PADDED + "sub.f32 %f34, 0f7F800000, %f21; add.f32 %f40, %f34, %f1;", PADDED + "sub.f32 %f34, 0f7F800000, %f20; add.f32 %f40, %f34, %f1;"
    ),
    "an exponential times padding": (PADDED + "fma.rn.f32 %f40, %f31, %f33, %f32;", PADDED + "mov.f32 %f40, %f32;"),
    "a maximum with and without padding": (ROW + "mov.f32 %f40, %f20;", ROW + "mov.f32 %f40, %f21;"),
    "padding that is clamped": (
        "sub.f32 %f5, 0fFF800000, %f1; add.sat.f32 %f40, %f5, %f2;", "sub.f32 %f5, 0fFF800000, %f3; add.sat.f32 %f40, %f5, %f2;"
    ),
    "the order of sums": ("add.f32 %f5, %f1, %f2; add.f32 %f40, %f5, %f3;", "add.f32 %f5, %f2, %f3; add.f32 %f40, %f1, %f5;"),
    "the association of products": ("mul.f32 %f5, %f1, %f2; mul.f32 %f40, %f5, %f3;", "mul.f32 %f5, %f2, %f3; mul.f32 %f40, %f1, %f5;"),
    "fusing": ("fma.rn.f32 %f40, %f1, %f2, %f3;", "mul.f32 %f5, %f1, %f2; add.f32 %f40, %f5, %f3;"),
    "fusing with a factor of one half": ("fma.rn.f32 %f40, %f11, %f2, %f3;", "mul.f32 %f5, %f11, %f2; add.f32 %f40, %f5, %f3;"),
    "fusing products of bf16 values": ("fma.rn.f32 %f40, %f14, %f15, %f3;", "mul.f32 %f5, %f14, %f15; add.f32 %f40, %f5, %f3;"),
    "fusing an fp16 value and a constant that is not exact in fp16": (
        "fma.rn.f32 %f40, %f11, 0f3DCCCCCD, %f3;", "mul.f32 %f5, %f11, 0f3DCCCCCD; add.f32 %f40, %f5, %f3;"
    ),
    "the position of a fused product": ("fma.rn.f32 %f40, %f1, %f2, %f3;", "fma.rn.f32 %f40, %f1, %f3, %f2;"),
    "zero": ("add.f32 %f40, %f1, 0f00000000;", "mov.f32 %f40, %f1;"),
    "zero before a negation": (
        "add.f32 %f5, %f1, 0f00000000; neg.f32 %f40, %f5;", "neg.f32 %f5, %f1; add.f32 %f40, %f5, 0f00000000;"
    ),
    "subtraction from zero twice": ("sub.f32 %f5, 0f00000000, %f1; sub.f32 %f40, 0f00000000, %f5;", "mov.f32 %f40, %f1;"),
    "zero before a negated product": (
        "sub.f32 %f5, 0f00000000, %f1; mul.f32 %f40, %f5, %f2;",
        "add.f32 %f5, %f1, 0f00000000; mul.f32 %f6, %f5, %f2; neg.f32 %f40, %f6;",
    ),
    "zero before a widening": (
        "sub.f32 %f5, 0f00000000, %f1; cvt.f64.f32 %g1, %f5; mov.b64 %d40, %g1;",
        "add.f32 %f5, %f1, 0f00000000; cvt.f64.f32 %g1, %f5; neg.f64 %g1, %g1; mov.b64 %d40, %g1;",
    ),
    "a square in fp16": ("mul.f16 %h5, %h1, %h1; mul.f16 %h40, %h5, %h2;", "mul.f16 %h5, %h1, %h2; mul.f16 %h40, %h5, %h1;"),
    "a product with zero": ("mul.f32 %f40, %f1, 0f00000000;", "mov.f32 %f40, 0f00000000;"),
    "a value minus itself": ("sub.f32 %f40, %f1, %f1;", "mov.f32 %f40, 0f00000000;"),
    "a NaN-dropping maximum with minus infinity": ("max.f32 %f40, %f1, 0fFF800000;", "mov.f32 %f40, %f1;"),
    "maxima with different constants": ("max.f32 %f40, %f1, 0f3F800000;", "max.f32 %f40, %f1, 0f40000000;"),
    "a maximum with a constant and with a zero": ("max.f32 %f40, %f1, 0f80000000;", "max.f32 %f40, %f1, 0f00000000;"),
    "a clamp at minus zero plus zero": ("max.f32 %f5, %f1, 0f80000000; add.f32 %f40, %f5, 0f00000000;", "max.f32 %f40, %f1, 0f80000000;"),
    "a signed selection and an unsigned minimum": (
        "setp.lt.s32 %p2, %r1, %r2; selp.b32 %r40, %r1, %r2, %p2;", "min.u32 %r40, %r1, %r2;"
    ),
    "the greater integer of a comparison for a minimum": (
        "setp.lt.s32 %p2, %r1, %r2; selp.b32 %r40, %r2, %r1, %p2;", "min.s32 %r40, %r1, %r2;"
    ),
    "a minimum beside its other operand": (
        "min.s32 %r5, %r1, %r2; selp.b32 %r40, %r5, %r1, %p1;",
        "setp.lt.s32 %p2, %r1, %r2; and.pred %p3, %p1, %p2; selp.b32 %r40, %r1, %r2, %p3;",
    ),
    "a place that borrows from its key": (
        KEY + "sub.s32 %r40, %r5, 5;", KEY + "or.b32 %r40, %r5, 65531;"
    ),
    "a place beyond the half below a key": (
        KEY + "add.s32 %r6, %r5, 65535; add.s32 %r40, %r6, 28;", KEY + "or.b32 %r40, %r5, 27;"
    ),
    "two places below a key": (KEY + "add.s32 %r40, %r5, 27;", KEY + "or.b32 %r40, %r5, 26;"),
    "a number below fewer zeros": (
        "shl.b32 %r5, %r1, 4; add.s32 %r40, %r5, 27;", "shl.b32 %r5, %r1, 4; or.b32 %r40, %r5, 27;"
    ),
    "signed and unsigned minima with a constant": ("min.s32 %r40, %r1, 7;", "min.u32 %r40, %r1, 7;"),
    "maxima of different loads": ("max.f32 %f40, %f1, %f2;", "max.f32 %f40, %f1, %f3;"),
    "a maximum and a minimum": ("max.f32 %f40, %f1, %f2;", "min.f32 %f40, %f1, %f2;"),
    "NaN-propagating and NaN-dropping maxima": ("max.NaN.f32 %f40, %f1, %f2;", "max.f32 %f40, %f1, %f2;"),
    "a NaN-propagating inside a NaN-dropping maximum": (
        "max.NaN.f32 %f5, %f1, %f2; max.f32 %f40, %f5, %f3;", "max.f32 %f5, %f1, %f2; max.NaN.f32 %f40, %f5, %f3;"
    ),
    "flushing a sum": ("add.ftz.f32 %f40, %f1, %f2;", "add.f32 %f40, %f1, %f2;"),
    "flushing by zero": ("add.ftz.f32 %f40, %f1, 0f80000000;", "mov.f32 %f40, %f1;"),
    "flushing by one": ("mul.ftz.f32 %f40, %f1, 0f3F800000;", "mov.f32 %f40, %f1;"),
    "flushing a negation": ("neg.ftz.f32 %f40, %f1;", "neg.f32 %f40, %f1;"),
    "flushing an absolute value": ("abs.ftz.f32 %f40, %f1;", "abs.f32 %f40, %f1;"),
    "flushing a maximum": ("max.ftz.f32 %f40, %f1, %f2;", "max.f32 %f40, %f1, %f2;"),
    "rounding toward zero": ("add.rz.f32 %f40, %f1, %f2;", "add.rn.f32 %f40, %f1, %f2;"),
    "rounding up and down": ("add.rp.f32 %f40, %f1, %f2;", "add.rm.f32 %f40, %f1, %f2;"),
    "rounding up a difference": ("sub.rp.f32 %f40, %f1, %f2;", "sub.rp.f32 %f5, %f2, %f1; neg.f32 %f40, %f5;"),
    "rounding up a negated product": ("neg.f32 %f5, %f1; mul.rp.f32 %f40, %f5, %f2;", "mul.rp.f32 %f5, %f1, %f2; neg.f32 %f40, %f5;"),
    "rounding zero down": ("add.rm.f32 %f5, %f1, %f2; add.rm.f32 %f40, %f5, 0f00000000;", "add.rm.f32 %f40, %f1, %f2;"),
    "saturation": ("add.sat.f32 %f40, %f1, %f2;", "add.f32 %f40, %f1, %f2;"),
    "formats of a product": ("mul.f16 %h40, %h1, %h2;", "mul.bf16 %h40, %h1, %h2;"),
    "narrowing toward zero": ("cvt.rz.f16.f32 %h40, %f1;", "cvt.rn.f16.f32 %h40, %f1;"),
    "narrowing and widening": ("cvt.rn.f16.f32 %h5, %f1; cvt.f32.f16 %f40, %h5;", "mov.f32 %f40, %f1;"),
    "an approximation of a literal": ("mov.b32 %r5, 1077936128; mov.b32 %f5, %r5; ex2.approx.f32 %f40, %f5;", "ex2.approx.ftz.f32 %f40, 0f40400000;"),
    "a quotient by a literal": ("div.full.f32 %f40, %f1, 0f40400000;", "cvt.rn.f32.u32 %f5, %r0; add.f32 %f5, %f5, 0f40400000; div.full.f32 %f40, %f1, %f5;"),
    "quotients of three kinds": ("div.full.f32 %f40, %f1, %f2;", "div.approx.f32 %f40, %f1, %f2;"),
    "a softmax of two numbers beside a fused sum": (
        "max.f32 %f20, %f1, %f3;" + exponential(31, "%f1", 20) + "fma.rn.f32 %f40, %f31, %f2, 0f00000000;",
        "max.f32 %f20, %f1, %f3;" + exponential(31, "%f1", 20) + "mul.rn.f32 %f32, %f31, %f2; add.rn.f32 %f40, %f32, 0f00000000;",
    ),
    "a number minus its maximum with another constant": (
        "max.f32 %f20, %f1, 0fFF7FFFFF; sub.f32 %f40, %f1, %f20;", "sub.f32 %f40, %f1, %f1;",
    ),
    "an exact quotient": ("div.rn.f32 %f40, %f1, %f2;", "div.full.f32 %f40, %f1, %f2;"),
    "an exact root": ("sqrt.rn.f32 %f40, %f1;", "sqrt.approx.f32 %f40, %f1;"),
    "exchanged operands of a select": ("selp.f32 %f40, %f3, %f4, %p1;", "selp.f32 %f40, %f4, %f3, %p1;"),
    "a select and a maximum": ("setp.gt.f32 %p2, %f1, %f2; selp.f32 %f40, %f1, %f2, %p2;", "max.f32 %f40, %f1, %f2;"),
    "a minimum of magnitudes and a clamp": (
        "min.xorsign.abs.f32 %f40, %f1, 0f42FE0000;", "max.f32 %f5, %f1, 0fC2FE0000; min.f32 %f40, %f5, 0f42FE0000;"
    ),
    "a minimum and a maximum of magnitudes": ("min.xorsign.abs.f32 %f40, %f1, %f2;", "max.xorsign.abs.f32 %f40, %f1, %f2;"),
    "a minimum of magnitudes and its signs": ("min.xorsign.abs.f32 %f40, %f1, %f2;", "abs.f32 %f5, %f1; min.xorsign.abs.f32 %f40, %f5, %f2;"),
    "the constant of a maximum next to a guarded zero": tuple(
        f"max.f32 %f5, %f1, {number}; sub.f32 %f6, %f2, %f5; ex2.approx.ftz.f32 %f7, %f6;"
        "sub.f32 %f8, 0fFF800000, %f3; ex2.approx.ftz.f32 %f9, %f8; add.f32 %f40, %f7, %f9;"
        for number in ("0f3F800000", "0f40000000")
    ),
    "the constants of integer maxima next to a guarded zero": tuple(
        f"max.s32 %r5, %r1, {number}; cvt.rn.f32.s32 %f7, %r5;"
        "sub.f32 %f8, 0fFF800000, %f3; ex2.approx.ftz.f32 %f9, %f8; add.f32 %f40, %f7, %f9;"
        for number in (1, 2)
    ),
    "a guard inside a maximum next to a guarded zero": tuple(
        f"sub.f32 %f8, 0fFF800000, {guard}; ex2.approx.ftz.f32 %f9, %f8; add.f32 %f10, %f1, %f9; max.f32 %f11, %f10, %f2;"
        "sub.f32 %f12, 0fFF800000, %f4; ex2.approx.ftz.f32 %f13, %f12; add.f32 %f40, %f11, %f13;"
        for guard in ("%f2", "%f3")
    ),
    "an unordered comparison": ("setp.ltu.f32 %p2, %f1, %f2; selp.f32 %f40, %f3, %f4, %p2;", "selp.f32 %f40, %f3, %f4, %p1;"),
    "swapped halves": ("mov.b32 %r40, {%h1, %h2};", "mov.b32 %r40, {%h2, %h1};"),
    "a load and its low half packed with itself": (
        "mov.b32 {%h5, %h6}, %r1; mov.b32 %r5, {%h5, %h5}; cvt.rn.f32.s32 %f40, %r5;", "cvt.rn.f32.s32 %f40, %r1;"
    ),
    "the top bits of two values": ("shl.b64 %d40, %d5, 63;", "shl.b64 %d40, %d6, 63;"),
    "values whose low bits are shifted to the top": ("shl.b64 %d40, %d5, 57;", "shl.b64 %d40, %d6, 57;"),
    "factors modulo the width": ("mul.lo.s64 %d40, %d5, 0x8000000000000001;", "mov.b64 %d40, %d5;"),
    "an atomic sum and a sum": ("red.global.add.f32 [%d0], %f1; // %f40\n ret;", "ld.global.f32 %f5, [%d0]; add.f32 %f40, %f5, %f1;"),
    "a maximum of numbers of both signs that is selected": (LARGER.format(x="%f1", y="%f2"), "max.NaN.f32 %f40, %f1, %f2;"),
    "a minimum that is selected and a maximum": (MAGNITUDES + LARGER.format(x="%f5", y="%f6"), MAGNITUDES + "min.NaN.f32 %f40, %f5, %f6;"),
    "a negative zero that stays": ("setp.lt.f32 %p2, %f1, 0f00000000; selp.f32 %f40, 0f00000000, %f1, %p2;", "max.NaN.f32 %f40, %f1, 0f00000000;"),
    "selects where one or both hold": (NESTED, "setp.lt.s32 %p2, %r1, %r2; and.pred %p3, %p1, %p2; selp.f32 %f40, %f3, %f4, %p3;"),
    "comparisons of two formats of 16 bits": (
        "setp.lt.f32 %p2, %f14, %f15; selp.f32 %f40, %f3, %f4, %p2;", "setp.lt.f16 %p2, %h1, %h2; selp.f32 %f40, %f3, %f4, %p2;"
    ),
    "the predicates of two halves": (HALVES.format("%p2"), HALVES.format("%p3")),
    "bits of a shift by half a byte": ("shr.s32 %r5, %r1, 12; cvt.u16.u32 %h40, %r5;", "mov.b32 {%h5, %h40}, %r1;"),
}  # fmt: skip


EQUAL_EXCEPT_NANS = {
    "a product with minus one": "fp32",
    "an absolute value of a negation": "fp32",
    "a maximum of magnitudes that is selected with a test of the number": "fp32",
    "a minimum of magnitudes that is selected with a test of the number": "fp32",
    "a maximum of a magnitude and zero that keeps NaN": "fp32",
    "a maximum that is selected with a test for NaN": "fp32", "a clamp at zero that keeps NaN": "fp32",
    "a product with one": "fp32", "minus zero": "fp32", "a NaN-propagating maximum with minus infinity": "fp32",
    "maxima of widened bf16 values": "fp32", "widening and narrowing": "fp16", "widening and narrowing of bf16": "bf16",
    "an absolute value": "fp32", "a fused product of zeros": "fp32", "constants in maxima of fp64": "fp64",
}  # fmt: skip
"""The pairs that are equal only in a buffer of a type, in which all NaNs count as one value."""


@pytest.mark.parametrize(("left", "right"), EQUAL.values(), ids=EQUAL.keys())
def test_equal_canonical_forms(left: str, right: str) -> None:
    dtype = next((dtype for name, dtype in EQUAL_EXCEPT_NANS.items() if EQUAL[name] == (left, right)), None)
    assert form(left, dtype) == form(right, dtype)


@pytest.mark.parametrize("name", EQUAL_EXCEPT_NANS)
def test_forms_that_differ_in_the_bits_of_a_nan(name: str) -> None:
    left, right = EQUAL[name]
    others = {None, "fp16", "bf16", "fp32", "i32", "i16"} - {EQUAL_EXCEPT_NANS[name]}
    assert [dtype for dtype in others if form(left, dtype) == form(right, dtype)] == []


@pytest.mark.parametrize(("left", "right"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_different_canonical_forms(left: str, right: str) -> None:
    assert form(left) != form(right)
    assert all(form(left, dtype) != form(right, dtype) for dtype in ("fp16", "bf16", "fp32", "fp64"))


def test_two_hundred_shifts_have_two_hundred_forms() -> None:
    """A form with only a few bits of its operand's hash would collide with another."""
    body = "".join(
        f"ld.global.b64 %d5, [%d1+{8 * i}]; shl.b64 %d5, %d5, 63; st.global.b64 [%d0+{8 * i}], %d5;" for i in range(200)
    )
    found = hashes(body, threads=1)
    assert len(set(found.values())) == len(found) == 200


@pytest.mark.parametrize("value", ["%f1", "0f00000000"])
def test_a_maximum_minus_itself_is_rewritten_once(value: str) -> None:
    clamped = f"max.f32 %f20, %f2, {value}; max.f32 %f21, %f20, 0fFF800000;"
    again = "max.f32 %f22, %f21, 0fFF800000;"
    assert form(clamped + again + "sub.f32 %f40, %f22, %f22;") == form(clamped + "sub.f32 %f40, %f21, %f21;")


@pytest.mark.parametrize("half", ["%h1", "%h2"])
@pytest.mark.parametrize("use", ["mul.rn.f32 %f3, %f1, 0fBF800000;", "fma.rn.f32 %f3, 0fBF800000, %f1, 0f00000000;"])
def test_a_widened_bf16_beside_padding(use: str, half: str) -> None:
    found = []
    for active in (20, 32):
        body = (
            f"mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d1, %d2; setp.lt.u32 %p1, %r0, {active}; mov.b32 %r1, 0;"
            f"@%p1 ld.global.b32 %r1, [%d2]; mov.b32 {{%h1, %h2}}, %r1; cvt.f32.bf16 %f1, {half}; {use}"
            "mov.b32 %r5, %f3; mul.wide.u32 %d3, %r0, 4; add.s64 %d3, %d0, %d3; st.global.b32 [%d3], %r5;"
        )
        found.append(hashes(body, dtype="fp32"))
    assert [found[0][4 * lane] for lane in range(20)] == [found[1][4 * lane] for lane in range(20)]
    assert found[0][4 * 20] != found[1][4 * 20]


def test_a_square_of_lanes_with_different_nan_flags() -> None:
    body = """
        neg.f32 %f5, %f1; neg.f32 %f5, %f5; setp.lt.u32 %p3, %r0, 2; selp.f32 %f6, %f5, %f2, %p3;
        max.f32 %f7, %f6, %f6; fma.rn.f32 %f8, %f7, %f6, %f3; mul.f32 %f9, %f6, %f6;
        mul.wide.u32 %d5, %r0, 8; add.s64 %d5, %d5, %d0; st.global.f32 [%d5], %f8; st.global.f32 [%d5+4], %f9;
    """
    found = hashes(
        "ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4]; ld.global.f32 %f3, [%d1+8];" + body, threads=4
    )
    squares = [form(f"fma.rn.f32 %f40, {x}, {x}, %f3;") for x in ("%f1", "%f2")]
    assert [{0: found[8 * thread]} for thread in range(4)] == [squares[0]] * 2 + [squares[1]] * 2


@pytest.mark.parametrize(
    ("opcode", "left", "right", "result"),
    [
        ("min.xorsign.abs.f32", 0xC0600000, 0x40000000, 0xC0000000),
        ("min.xorsign.abs.f32", 0x40400000, 0xC0A00000, 0xC0400000),
        ("min.xorsign.abs.f32", 0xC0400000, 0xC0A00000, 0x40400000),
        ("min.xorsign.abs.f32", 0x80000000, 0x42FE0000, 0x80000000),
        ("min.xorsign.abs.f32", 0xC3480000, 0x42FE0000, 0xC2FE0000),
        ("min.xorsign.abs.f32", 0x7FC00000, 0xC0000000, 0xC0000000),
        ("max.xorsign.abs.f32", 0x40400000, 0xC0A00000, 0xC0A00000),
        ("min.ftz.xorsign.abs.f32", 0x80000001, 0x42FE0000, 0x80000000),
    ],
)
def test_an_extremum_of_magnitudes_has_the_exclusive_or_of_the_signs(
    opcode: str, left: int, right: int, result: int
) -> None:
    body = f"mov.b32 %f1, {left}; mov.b32 %f2, {right}; {opcode} %f3, %f1, %f2; st.global.b32 [%d0], %f3;"
    assert known(run(body, threads=1)[0]) == {0: (32, result)}


@pytest.mark.parametrize(
    ("opcode", "left", "right", "result"),
    [
        ("min.xorsign.abs.f16", 0xC200, 0x4000, 0xC000),
        ("min.xorsign.abs.f16", 0xFC00, 0x7BFF, 0xFBFF),
        ("min.xorsign.abs.f16", 0x8000, 0x7BFF, 0x8000),
        ("min.xorsign.abs.f16", 0xFE00, 0x7BFF, 0xFBFF),
        ("max.xorsign.abs.f16", 0x4200, 0xC500, 0xC500),
        ("min.ftz.xorsign.abs.f16", 0x8001, 0x7BFF, 0x8000),
        ("min.xorsign.abs.bf16", 0xFF80, 0x42FE, 0xC2FE),
        ("min.xorsign.abs.f16x2", 0xC200_FC00, 0x4000_7BFF, 0xC000_FBFF),
    ],
)
def test_an_extremum_of_magnitudes_of_half_precision(opcode: str, left: int, right: int, result: int) -> None:
    """The results are those of the pseudocode of PTX for min and max of half precision."""
    packed = opcode.endswith("x2")
    kind, register = ("b32", "%r") if packed else ("b16", "%h")
    names = [f"{register}{number}" for number in (1, 2, 3)]
    moves = f"mov.{kind} {names[0]}, {left}; mov.{kind} {names[1]}, {right};"
    body = f"{moves} {opcode} {names[2]}, {names[0]}, {names[1]}; st.global.{kind} [%d0], {names[2]};"
    assert known(run(body, threads=1)[0]) == {0: (32 if packed else 16, result)}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_extrema_of_magnitudes_are_those_of_their_elements(kind: str) -> None:
    loads = "ld.global.b32 %r1, [%d1]; ld.global.b32 %r2, [%d1+4]; mov.b32 {%h1, %h2}, %r1; mov.b32 {%h3, %h4}, %r2;"
    apart = f"min.xorsign.abs.{kind} %h5, %h1, %h3; min.xorsign.abs.{kind} %h6, %h2, %h4; mov.b32 %r3, {{%h5, %h6}};"
    stored, exchanged = "st.global.b32 [%d0], %r3;", apart.replace("%h2, %h4", "%h2, %h3")
    dtype = {"f16": "fp16", "bf16": "bf16"}[kind]
    packed = hashes(f"{loads} min.xorsign.abs.{kind}x2 %r3, %r1, %r2; {stored}", threads=1, dtype=dtype)
    assert packed == hashes(f"{loads} {apart} {stored}", threads=1, dtype=dtype)
    assert packed != hashes(f"{loads} {exchanged} {stored}", threads=1, dtype=dtype)


def test_finite_rules_apply_next_to_a_lane_with_a_known_zero() -> None:
    """A masked load returns zero in some lanes; in the others, products of fp16 values are exact, fused or not."""
    start = """
        ld.global.b16 %h1, [%d1]; ld.global.b16 %h2, [%d1+2]; ld.global.f32 %f3, [%d1+4]; setp.ne.u32 %p3, %r0, 1;
        cvt.f32.f16 %f1, %h1; cvt.f32.f16 %f2, %h2; selp.f32 %f1, %f1, 0f00000000, %p3; add.f32 %f3, %f3, 0f00000000;
    """
    end = "mul.wide.u32 %d5, %r0, 4; add.s64 %d5, %d5, %d0; st.global.f32 [%d5], %f9;"
    fused, apart = (
        checked_outputs(*run(start + body + end, threads=4, assume=frozenset({"finite"})))[1].words.tolist()
        for body in ("fma.rn.f32 %f9, %f1, %f2, %f3;", "mul.f32 %f8, %f1, %f2; add.f32 %f9, %f8, %f3;")
    )
    assert fused == apart
    assert [len(set(words)) for words in fused] == [2, 2]


def test_a_known_factor_that_differs_between_blocks() -> None:
    body = """
        mov.u32 %r1, %ctaid.x; add.u32 %r2, %r1, 3; cvt.rn.f32.u32 %f1, %r2; neg.f32 %f1, %f1; ld.global.f32 %f2, [%d1]; mul.f32 %f3, %f1, %f2;
        mul.lo.u32 %r3, %r1, 4; cvt.u64.u32 %d5, %r3; add.s64 %d5, %d5, %d0; st.global.f32 [%d5], %f3;
    """
    found = hashes(body, threads=1, blocks=3)
    single = [
        form(f"ld.global.f32 %f5, [%d1]; mul.f32 %f40, %f5, {literal};")
        for literal in ("0fC0400000", "0fC0800000", "0fC0A00000")
    ]
    assert [{0: found[4 * block]} for block in range(3)] == single


LOOP_COUNTER = """
    mov.f32 %f1, 0f3F000000; mov.b32 %r5, 0; HINT
    Q: ex2.approx.ftz.f32 %f2, %f1; add.f32 %f1, %f1, 0f3F000000; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 2; @%p2 bra Q;
    mov.u32 %r1, %ctaid.x; mul.wide.u32 %d5, %r1, 4; add.s64 %d5, %d0, %d5; st.global.f32 [%d5], %f2;
"""


def test_an_approximation_of_a_loop_counter_is_equal_in_the_same_text_only() -> None:
    plain, hinted = LOOP_COUNTER.replace("HINT", ""), LOOP_COUNTER.replace("HINT", '.pragma "nounroll";')
    first = hashes(plain, threads=1, blocks=2)
    assert first == hashes(plain, threads=1, blocks=2)
    assert first[0] != first[4], "the copies of a loop may differ between paths"
    for other in (
        hinted,
        plain.replace("%p2", "%p3"),
        plain.replace("Q: ex2", "ex2").replace("add.f32 %f1", "Q: add.f32 %f1"),
    ):
        assert hashes(other, threads=1, blocks=2)[0] != first[0]


def test_an_approximation_of_a_loop_counter_is_not_executed_on_bit_patterns() -> None:
    module = ARCH.parse(text(LOOP_COUNTER.replace("HINT", ""), threads=1), "k.ptx")
    buffers = tuple(Argument(kind="buffer", buffer=name) for name in ("out", "in"))
    prepared = prepare_launch(module, ARCH, Launch(file="k.ptx", entry="k", grid=(1, 1, 1), args=buffers))
    with pytest.raises(Unsupported, match="may or may not know"):
        simulate(prepared, {name: np.zeros(8, dtype=np.uint8) for name in ("out", "in")})


def finite_form(body: str) -> object:
    """Return the canonical form of %f40 under the assumption `finite`."""
    launched = run(LOADS + body + STORES["f"], threads=1, assume=frozenset({"finite"}), loaded="fp32")
    return checked_outputs(*launched)[1].words.tolist()


PLUS_ZERO = "add.f32 %f40, %f1, 0f00000000;"


@pytest.mark.parametrize(
    "body",
    [
        "sub.f32 %f5, 0f00000000, %f1; fma.rn.f32 %f40, %f5, 0f00000000, %f1;",
        "sub.f32 %f5, 0f00000000, %f1; fma.rn.f32 %f40, 0f00000000, %f5, %f1;",
        "mul.f32 %f5, %f2, %f2; fma.rn.f32 %f40, %f5, 0f00000000, %f1;",
        "sub.f32 %f5, 0f00000000, %f2; mul.f32 %f6, %f5, %f5; fma.rn.f32 %f40, %f6, 0f00000000, %f1;",
    ],
)
def test_products_that_are_plus_zero_under_finite(body: str) -> None:
    assert finite_form(body) == finite_form(PLUS_ZERO)
    assert form(body) != form(PLUS_ZERO)


@pytest.mark.parametrize(
    "body",
    [
        "sub.f32 %f5, 0f00000000, %f2; fma.rn.f32 %f40, %f5, 0f00000000, %f1;",
        "mul.f32 %f5, %f2, %f2; fma.rn.f32 %f40, %f5, 0f80000000, %f1;",
        "mul.f32 %f5, %f2, %f3; fma.rn.f32 %f40, %f5, 0f00000000, %f1;",
        "sub.f32 %f5, 0f00000000, %f1; fma.rn.f32 %f40, %f5, 0f80000000, %f1;",
    ],
)
def test_products_that_are_a_zero_of_either_sign(body: str) -> None:
    assert finite_form(body) != finite_form(PLUS_ZERO)


@pytest.mark.parametrize("divisor", ["0f20000000", "0f3F800000", "0f5F000000"])
def test_zero_divided_by_a_known_number(divisor: str) -> None:
    assert form(f"div.full.f32 %f5, 0f00000000, {divisor}; add.f32 %f40, %f1, %f5;") == form(PLUS_ZERO)
    assert form(f"div.full.f32 %f5, 0f80000000, {divisor}; add.f32 %f40, %f1, %f5;") != form(PLUS_ZERO)


@pytest.mark.parametrize(
    "divisor", ["0f1FFFFFFF", "0f5F000001", "0f00000000", "0f7F800000", "0f7FC00000", "0fBF800000", "%f2"]
)
def test_zero_divided_by_other_numbers(divisor: str) -> None:
    assert form(f"div.full.f32 %f5, 0f00000000, {divisor}; add.f32 %f40, %f1, %f5;") != form(PLUS_ZERO)


@pytest.mark.parametrize("same", ["mul.rn.f32 %f20, %f1, 0f3F800000;", "max.f32 %f20, %f1, 0fFF800000;"])
def test_rounding_to_tf32_with_ties_away_reads_the_bits_of_a_nan(same: str) -> None:
    """An H100 makes an infinity of the NaN 0x7f800001, and a NaN of the canonical one."""
    moved = form("cvt.f32.f32 %f20, %f1; cvt.rna.tf32.f32 %r40, %f20;")
    assert moved == form("cvt.rna.tf32.f32 %r40, %f1;")
    assert moved != form(same + "cvt.rna.tf32.f32 %r40, %f20;")
