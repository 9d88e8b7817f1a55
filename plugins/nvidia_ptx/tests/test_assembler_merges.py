# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Sequences that ptxas merges into instructions with other results: no kernel is equal to one that hides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.concrete import checked_outputs, prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_ptx.assembler_choices.roots import extrema_of_one_number
from bitwise_nvidia_ptx.assembler_choices.sources import Sources
from ptx_programs import ARCH, hashes, run, store, text
from sass_listings import listing, mnemonics

LOAD = (
    "mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d1, %d2; ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2];"
    "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 {%h1, %h2}, %r1; mov.b64 %g1, {%r1, %r2};"
)
HIDE = "shfl.sync.bfly.b32 {0}, {0}, 0, 31, -1;"
WORD = f"mov.b32 %r20, %f3; {HIDE.format('%r20')} mov.b32 %f3, %r20;"
HALF = f"mov.b32 %r20, {{%h3, %h3}}; {HIDE.format('%r20')} mov.b32 {{%h3, %h4}}, %r20;"
PAIR = HIDE.format("%r3")
DOUBLE = f"mov.b64 {{%r20, %r21}}, %g3; {HIDE.format('%r20')} {HIDE.format('%r21')} mov.b64 %g3, {{%r20, %r21}};"
LONG = f"mov.b64 {{%r20, %r21}}, %d3; {HIDE.format('%r20')} {HIDE.format('%r21')} mov.b64 %d3, {{%r20, %r21}};"

MERGED = {
    "reciprocal of a power": ("ex2.approx.ftz.f32 %f3, %f1;", WORD, "rcp.approx.ftz.f32 %f9, %f3; mov.b32 %r9, %f9;"),
    "reciprocal of a reciprocal": (
        "rcp.approx.ftz.f32 %f3, %f1;", WORD, "rcp.approx.ftz.f32 %f9, %f3; mov.b32 %r9, %f9;"),
    "quotient by a power": (
        "ex2.approx.ftz.f32 %f3, %f1; abs.f32 %f3, %f3;", WORD, "div.approx.ftz.f32 %f9, %f2, %f3; mov.b32 %r9, %f9;"),
    "scaled quotient": ("div.approx.ftz.f32 %f3, %f1, %f2;", WORD, "mul.rn.ftz.f32 %f9, %f3, 0f40000000; mov.b32 %r9, %f9;"),
    "halved quotient": ("div.approx.f32 %f3, %f1, %f2;", WORD, "div.full.f32 %f9, %f3, 0f40000000; mov.b32 %r9, %f9;"),
    "clamp": ("min.f32 %f3, %f1, 0f3F800000;", WORD, "max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp with literals in registers": (
        "mov.f32 %f7, 0f3F800000; mov.f32 %f8, 0f00000000; min.ftz.f32 %f3, %f7, %f1;", WORD,
        "max.f32 %f9, %f8, %f3; mov.b32 %r9, %f9;"),
    "clamp by selection": (
        "setp.lt.f32 %p1, %f1, 0f3F800000; selp.f32 %f3, %f1, 0f3F800000, %p1;", WORD,
        "setp.gt.f32 %p2, %f3, 0f00000000; selp.f32 %f9, %f3, 0f00000000, %p2; mov.b32 %r9, %f9;"),
    "clamp by a move under a guard": (
        "mov.f32 %f3, %f1; setp.lt.f32 %p1, %f1, 0f3F800000; @!%p1 mov.f32 %f3, 0f3F800000;", WORD,
        "max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp by a move of bits under a guard": (
        "mov.b32 %r3, 0x3f800000; setp.lt.f32 %p1, %f1, 0f3F800000; @%p1 mov.b32 %r3, %r1;", PAIR,
        "mov.b32 %f3, %r3; max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp by a negated comparison": (
        "setp.lt.f32 %p1, %f1, 0f3F800000; not.pred %p2, %p1; selp.f32 %f3, 0f3F800000, %f1, %p2;", WORD,
        "max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp with literals in registers that held others": (
        "mov.f32 %f7, %f2; add.f32 %f8, %f7, %f7; mov.b32 %r4, %f8; mov.f32 %f7, 0f3F800000; min.f32 %f3, %f7, %f1; mov.f32 %f7, 0f00000000;",
        f"{WORD} mov.b32 %r4, %r4;", "max.f32 %f9, %f7, %f3; mov.b32 %r9, %f9;"),
    "clamp with -0": ("max.f32 %f3, %f1, 0f80000000;", WORD, "min.f32 %f9, %f3, 0f3F800000; mov.b32 %r9, %f9;"),
    "clamp of fp16": (
        "mov.b16 %h7, 0x3C00; mov.b16 %h8, 0; min.f16 %h3, %h1, %h7;", HALF,
        "max.f16 %h9, %h3, %h8; mov.b32 %r9, {%h9, %h9};"),
    "clamp of fp64": (
        "min.f64 %g3, %g1, 0d3FF0000000000000;", DOUBLE,
        "max.f64 %g9, %g3, 0d0000000000000000; mov.b64 {%r9, %r19}, %g9;"),
    "maximum of a saturated number": (
        "mov.b16 %h8, 0; add.rn.sat.f16 %h3, %h1, %h2;", HALF, "max.NaN.f16 %h9, %h3, %h8; mov.b32 %r9, {%h9, %h9};"),
    "minimum of a saturated integer of 16 bits": (
        "mov.b16 %h8, 0x4000; cvt.sat.u16.s32 %h3, %r1;", HALF, "min.f16 %h9, %h3, %h8; mov.b32 %r9, {%h9, %h9};"),
    "flushing maximum of a saturated integer of 16 bits": (
        "mov.b16 %h8, 0; cvt.sat.s16.u16 %h3, %h1;", HALF, "max.ftz.f16 %h9, %h3, %h8; mov.b32 %r9, {%h9, %h9};"),
    "minimum of a saturated integer": (
        "cvt.sat.u32.s32 %r3, %r1;", PAIR, "mov.b32 %f6, %r3; min.f32 %f9, %f6, 0f40000000; mov.b32 %r9, %f9;"),
    "maximum of a saturated integer of 64 bits": (
        "mov.b64 %d4, {%r1, %r2}; cvt.sat.u64.s64 %d5, %d4; mov.b64 %g3, %d5;", DOUBLE,
        "max.f64 %g9, %g3, 0d0000000000000000; mov.b64 {%r19, %r9}, %g9;"),
    "saturating product with 1 of a saturated integer": (
        "cvt.sat.s32.u32 %r3, %r1;", PAIR, "mov.b32 %f6, %r3; mul.sat.f32 %f9, %f6, 0f3F800000; mov.b32 %r9, %f9;"),
    "minimum of a half of a saturated number": (
        "mov.b16 %h8, 0x4000; add.sat.f32 %f3, %f1, %f2;", WORD,
        "mov.b32 %r7, %f3; mov.b32 {%h5, %h6}, %r7; min.f16 %h9, %h6, %h8; mov.b32 %r9, {%h9, %h9};"),
    "rectified sum of pairs of integers": (
        "mov.b32 %r4, 0; add.s16x2 %r3, %r1, %r2;", PAIR, "max.NaN.f16x2 %r9, %r3, %r4;"),
    "shift of a negated half": ("neg.s16 %h3, %h1;", HALF, "shr.s16 %h9, %h3, 1; mov.b32 %r9, {%h9, %h9};"),
    "extension of a magnitude": ("abs.s16 %h3, %h1;", HALF, "cvt.s32.s16 %r9, %h3;"),
    "conversion of a magnitude without a sign": ("abs.s16 %h3, %h1;", HALF, "cvt.rm.f32.u16 %f9, %h3; mov.b32 %r9, %f9;"),
    "comparison of a difference from 0": (
        "sub.s16 %h3, 0, %h1;", HALF, "setp.lt.s16 %p1, %h3, 0; selp.b32 %r9, 1, 2, %p1;"),
    "shift of a widened number": ("cvt.s64.u32 %d3, %r1;", LONG, "shl.b64 %d9, %d3, 8; mov.b64 {%r19, %r9}, %d9;"),
    "field of a field": ("bfe.s32 %r3, %r1, 8, 8;", PAIR, "bfe.s32 %r9, %r3, 8, 8;"),
    "pair with a negative literal": (
        "mov.b16 %h7, 0xbf80; mov.b32 %r3, {%h1, %h7};", PAIR, "fma.rn.bf16x2 %r9, %r3, %r2, %r3;"),
    "number of a comparison": ("set.eq.u32.s32 %r3, %r1, %r2;", PAIR, "setp.eq.s32 %p1, %r3, 1; selp.b32 %r9, 5, 6, %p1;"),
    "halves of a load": ("ld.global.u16 %r3, [%d2];", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h8};"),
    "clamp by an extremum of signed integers": ("mov.b32 %r3, %r1; max.s32 %r3, %r3, 0;", PAIR, "mov.b32 %f6, %r3; min.f32 %f9, %f6, 0f3F800000; mov.b32 %r9, %f9;"),
    "clamp by an extremum of unsigned integers": ("min.u32 %r3, %r1, 0x3f800000;", PAIR, "mov.b32 %f6, %r3; max.f32 %f9, %f6, 0f00000000; mov.b32 %r9, %f9;"),
    "halves of extrema that treat NaNs otherwise": (
        "mov.b32 %r4, 0xff80ff80; max.NaN.bf16x2 %r3, %r1, %r4;", PAIR, "mov.b32 {%h5, %h6}, %r3; max.bf16 %h9, %h1, %h5; mov.b32 %r9, {%h9, %h9};"),
    "maximum of a saturated integer": ("cvt.sat.u32.s32 %r3, %r1;", PAIR, "mov.b32 %f6, %r3; max.f32 %f9, %f6, 0fFF800000; mov.b32 %r9, %f9;"),
    "sign of a moved number": ("mov.f64 %g3, %g1;", DOUBLE, "copysign.f64 %g9, %g1, %g3; mov.b64 {%r19, %r9}, %g9;"),
    "rounding of a rounded pair": ("cvt.rn.relu.satfinite.bf16x2.f32 %r3, %f1, %f2;", PAIR, "cvt.rn.relu.tf32.f32 %r9, %r3;"),
    "magnitude as an unsigned number": ("abs.s32 %r3, %r1;", PAIR, "cvt.rn.f32.u32 %f9, %r3; mov.b32 %r9, %f9;"),
    "sign of an upper half": (
        "mov.b16 %h7, 0x7fff; mad.hi.u16 %h3, %h1, %h7, %h2;", HALF, "shr.s16 %h9, %h3, 15; mov.b32 %r9, {%h9, %h9};"),
    "maximum of a negated number of another format": (
        "neg.bf16x2 %r3, %r1;", PAIR, "mov.b32 %r8, 0; max.ftz.NaN.f16x2 %r9, %r8, %r3;"),
    "pair of integers of literals": (
        "mov.b32 %r4, 0; mov.b32 %r7, 0x3c003c00; add.u16x2 %r3, %r4, %r7;", PAIR, "shf.l.wrap.b32 %r5, %r1, %r3, 0; bfi.b32 %r9, %r5, %r1, 16, 16;"),
    "magnitude of a literal NaN": ("cvt.ftz.f32.f32 %f3, 0f7FC00000;", WORD, "abs.ftz.f32 %f9, %f3; mov.b32 %r4, %f9; mul.lo.s32 %r9, %r4, 0x40;"),
    "clamp through a maximum with another literal": (
        "min.f32 %f3, %f1, 0f3F800000;", WORD, "max.f32 %f4, %f3, 0fBF800000; max.f32 %f9, %f4, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp through a conversion within a format": (
        "min.f32 %f3, %f1, 0f3F800000;", WORD, "cvt.f32.f32 %f4, %f3; max.f32 %f9, %f4, 0f00000000; mov.b32 %r9, %f9;"),
    "magnitude through a difference that is taken back": (
        "abs.s32 %r3, %r1;", PAIR, "sub.s32 %r4, %r3, %r2; add.s32 %r4, %r4, %r2; cvt.rn.f32.u32 %f9, %r4; mov.b32 %r9, %f9;"),
    "magnitude with an upper half of a product with 1": (
        "abs.s32 %r3, %r1;", PAIR, "mul.hi.u32 %r7, %r2, 1; add.u32 %r4, %r3, %r7; cvt.rn.f32.u32 %f9, %r4; mov.b32 %r9, %f9;"),
    "minimum of two negated halves, one of a literal": (
        "mov.b16 %h7, 5; neg.s16 %h5, %h7; neg.s16 %h3, %h1;", HALF, "min.s16 %h9, %h5, %h3; mov.b32 %r9, {%h9, %h9};"),
    "minimum of two magnitudes, one of a literal": (
        "mov.b32 %r7, -5; abs.s32 %r7, %r7; abs.s32 %r3, %r1;", PAIR, "min.s32 %r9, %r7, %r3;"),
    "pair of integers of a product that is taken back": (
        "mul.lo.s32 %r4, %r1, 3; mul.lo.s32 %r4, %r4, 0xaaaaaaab; sub.u32 %r4, %r4, %r1; add.u16x2 %r3, %r4, 0x3c003c00;", PAIR,
        "shf.l.wrap.b32 %r5, %r1, %r3, 0; bfi.b32 %r9, %r5, %r1, 16, 16;"),
    "choice of -0 or -1": ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", PAIR, "setp.ne.s32 %p2, %r3, 0; selp.f32 %f9, 0f80000000, 0fBF800000, %p2; mov.b32 %r9, %f9;"),
    "choice of -0 or -1 by a guard": ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", PAIR, "setp.ne.s32 %p2, %r3, 0; mov.f32 %f9, 0fBF800000; @%p2 mov.f32 %f9, 0f80000000; mov.b32 %r9, %f9;"),
    "halves of a rounding": ("cvt.rni.u8.f16 %r3, %h1;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "halves of a rounding of fp32": ("cvt.rzi.s16.f32 %r3, %f1;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "short shift by a signed field": ("bfe.s32 %r3, %r2, 0, 8;", PAIR, "shr.u16 %h9, %h2, %r3; mov.b32 %r9, {%h9, %h9};"),
    "rounding of a flushed sign": ("neg.ftz.f16 %h3, %h1;", HALF, "cvt.rzi.s32.f16 %r9, %h3;"),
    "number of a comparison as fp32": ("set.lt.f32.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", PAIR, "setp.eq.s32 %p1, %r3, 1; selp.b32 %r9, 5, 6, %p1;"),
    "long shift": ("mul.wide.u32 %d3, %r1, 33;", LONG, "mov.b32 %r4, 0x80000000; shl.b64 %d9, %d3, %r4; mov.b64 {%r19, %r9}, %d9;"),
    "bounded function": ("cos.approx.f32 %f3, %f1;", WORD, "setp.lt.f32 %p1, %f3, 0f40000000; selp.f32 %f9, %f3, 0f40000000, %p1; mov.b32 %r9, %f9;"),
    "unsigned rounding to a signed half": ("cvt.rzi.u32.f32 %r3, %f1;", PAIR, "cvt.sat.s16.u32 %r9, %r3;"),
    "signed field as an unsigned number": ("bfe.s32 %r3, %r1, 0, 16;", PAIR, "cvt.rn.f32.u32 %f9, %r3; mov.b32 %r9, %f9;"),
    "signed field to an unsigned half": ("bfe.s32 %r3, %r1, 0, 16;", PAIR, "cvt.sat.u16.u32 %r9, %r3;"),
    "magnitude to a signed half": ("abs.s32 %r3, %r1;", PAIR, "cvt.sat.s16.s32 %r9, %r3;"),
    "extremum that flushes": ("fma.rn.f16x2 %r3, %r1, %r2, %r5;", PAIR, "mov.b32 %r8, 0; max.ftz.NaN.f16x2 %r9, %r3, %r8;"),
    "extremum after a flush": ("max.ftz.f16x2 %r3, %r1, %r2;", PAIR, "max.f16x2 %r9, %r3, %r5;"),
    "rounding of a pair": ("mul.rn.f16x2 %r3, %r1, %r2;", PAIR, "cvt.rn.tf32.f32 %r9, %r3;"),
    "maximum of a number of another format": (
        "mul.rn.bf16 %h3, %h1, %h2;", HALF, "mov.b16 %h8, 0; max.NaN.f16 %h9, %h8, %h3; mov.b32 %r9, {%h9, %h9};"),
    "saturation of a saturated integer": (
        "mov.b64 %d4, {%r1, %r2}; cvt.sat.u32.u64 %r3, %d4; mov.b32 %f3, %r3;", WORD, "cvt.rn.sat.f16.f32 %h9, %f3; mov.b32 %r9, {%h9, %h9};"),
    "pair with a literal in a register that is used again": (
        "mov.b32 %r4, %r5; st.global.b32 [%d2], %r4; mov.b32 %r4, 0x80008000; add.u16x2 %r3, %r1, %r4;", PAIR, "mov.b32 {%h3, %h4}, %r3; cvt.rzi.u16.bf16 %h9, %h3; mov.b32 %r9, {%h9, %h9};"),
    "rounding behind a conversion in one format": ("cvt.f16.f16 %h3, %h1;", HALF, "cvt.rzi.s32.f16 %r9, %h3;"),
    "rounding behind one of another format": ("cvt.rmi.bf16.bf16 %h3, %h1;", HALF, "cvt.rzi.s32.f16 %r9, %h3;"),
    "rounding behind a conversion to another format": ("cvt.rn.f16.bf16 %h3, %h1;", HALF, "cvt.rzi.u8.f16 %r9, %h3;"),
    "saturation of a negated number": ("neg.s32 %r3, %r1;", PAIR, "cvt.sat.u32.s32 %r9, %r3;"),
    "saturation of a difference from 0": ("sub.s32 %r3, 0, %r1;", PAIR, "cvt.sat.u16.s32 %r9, %r3;"),
    "saturation of a product with -1": ("mul.lo.u32 %r3, %r1, 0xffffffff;", PAIR, "cvt.sat.u64.s32 %d9, %r3; mov.b64 {%r9, %r19}, %d9;"),
    "signed short shift by an unsigned rounding": ("cvt.rzi.u32.f32 %r3, %f1;", PAIR, "shr.s16 %h9, %h2, %r3; mov.b32 %r9, {%h9, %h9};"),
    "short shift by a rounding that flushes": ("cvt.rpi.ftz.u32.f32 %r3, %f1;", PAIR, "shr.u16 %h9, %h2, %r3; mov.b32 %r9, {%h9, %h9};"),
    "saturation of a rounding that flushes": ("cvt.rmi.ftz.s32.f32 %r3, %f1;", PAIR, "cvt.sat.s16.s32 %r9, %r3;"),
    "pair of a literal that is computed": ("mov.b32 %r4, 0xffff0000; mov.b32 %r7, 0x80008000; mul.lo.s32 %r3, %r4, %r7;", PAIR, "mul.rn.bf16x2 %r9, %r3, %r3;"),
    "pair of a computed literal, or of a load in some lanes": ("setp.lt.u32 %p1, %r0, 7; mov.b32 %r4, 0xffff0000; mov.b32 %r7, 0x80008000; mov.b32 %r3, 0; @%p1 mul.lo.s32 %r3, %r4, %r7; setp.gt.u32 %p2, %r0, 9; @%p2 ld.global.b32 %r3, [%d2+8];", PAIR, "mul.rn.bf16x2 %r9, %r3, %r2;"),
    "pair of a computed literal in a register that held a load": ("mov.b32 %r3, %r2; add.u32 %r4, %r3, %r1; not.b32 %r3, 0x7fffffff;", PAIR, "fma.rn.bf16x2 %r9, %r3, %r3, %r3;"),
    "pair of what a computed literal makes": ("mov.b32 %r7, %r2; add.u32 %r4, %r7, %r1; not.b32 %r7, 0x7fffffff; xor.b32 %r3, %r7, 0x40;", PAIR, "fma.rn.bf16x2 %r9, %r3, %r3, %r3;"),
    "one pair twice, of halves that are negated one by one": (
        "neg.f16 %h5, %h1; xor.b16 %h6, %h2, 0x8000; mov.b32 %r3, {%h5, %h6};", PAIR, "sub.rn.f16x2 %r9, %r3, %r3;"),
    "magnitude of an upper half": (
        "mov.b16 %h7, 1; mov.b16 %h8, 0; mad.hi.u16 %h3, %h7, %h1, %h8;", HALF, "abs.ftz.f16 %h9, %h3; mov.b32 %r9, {%h9, %h9};"),
    "root of a comparison": (
        "set.leu.u32.f32 %r3, %f1, %f2;", PAIR, "mov.b32 %f3, %r3; sqrt.rn.ftz.f32 %f9, %f3; mov.b32 %r9, %f9;"),
    "pair of a literal that is taken apart": (
        "mov.b64 %d4, 0x8000000000000000; mov.b64 {%r4, %r3}, %d4;", PAIR, "fma.rn.bf16x2 %r9, %r3, %r3, %r3;"),
    "maximum without a sign of a minimum": ("min.s32 %r3, %r1, 0;", PAIR, "max.u32 %r9, %r3, 0;"),
    "minimum of a maximum without a sign": (
        "mov.b64 %d4, {%r1, %r2}; max.u64 %d3, %d4, 0;", LONG, "min.s64 %d9, %d3, 0; mov.b64 {%r9, %r19}, %d9;"),
    "maximum without a sign of a minimum of floats": (
        "min.f32 %f3, %f1, 0f00000000;", WORD, "mov.b32 %r3, %f3; add.u32 %r3, %r3, 0; max.u32 %r9, %r3, 0;"),
    "minimum of a maximum of floats": ("max.ftz.f32 %f3, %f1, 0f00000000;", WORD, "mov.b32 %r3, %f3; min.s32 %r9, %r3, 0;"),
    "minimum without a sign of a rectified minimum": ("min.relu.s32 %r3, %r1, %r2;", PAIR, "min.u32 %r9, %r3, 0;"),
    "maximum without a sign of a selection": (
        "setp.lt.s32 %p1, %r1, 0; selp.b32 %r3, %r1, 0, %p1;", PAIR, "max.u32 %r9, %r3, 0;"),
    "selection without a sign of a minimum": (
        "min.s32 %r3, %r1, 0;", PAIR, "setp.gt.u32 %p1, %r3, 0; selp.b32 %r9, %r3, 0, %p1;"),
    "move under a guard without a sign of a minimum": (
        "min.s32 %r3, %r1, 0;", PAIR, "setp.gt.u32 %p1, %r3, 0; mov.b32 %r9, 0; @%p1 mov.b32 %r9, %r3;"),
    "upper half of an extension": (
        "ld.global.u16 %h1, [%d2]; cvt.u32.u16 %r3, %h1;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "upper half of an extension, behind moves": (
        "cvt.u16.u8 %h1, %h1; cvt.u64.u16 %d3, %h1;", LONG, "cvt.u32.u64 %r3, %d3; mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "upper half of a product with 1": (
        "ld.global.u16 %h1, [%d2]; mul.wide.u16 %r3, %h1, 1;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "upper half of a masked extension": (
        "ld.global.u16 %h1, [%d2]; cvt.u32.u16 %r3, %h1;", PAIR, "and.b32 %r3, %r3, 0x1ffff; mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "upper half of a long pair": (
        "ld.global.u16 %h1, [%d2]; cvt.u32.u16 %r3, %h1;", PAIR, "mov.b64 %d9, {%r3, %r2}; mov.b64 {%h6, %h7, %h8, %h9}, %d9; mov.b32 %r9, {%h7, %h8};"),
    "second half of a long extension": (
        "ld.global.u16 %h1, [%d2]; cvt.u64.u16 %d3, %h1;", LONG, "mov.b64 {%h6, %h7, %h8, %h9}, %d3; mov.b32 %r9, {%h7, %h8};"),
    "magnitudes of a saturated number": (
        "fma.rn.sat.f32 %f3, %f1, %f2, %f1;", WORD, "mov.b32 %r3, %f3; abs.bf16x2 %r9, %r3;"),
    "remainder of a magnitude": ("abs.s32 %r3, %r1;", PAIR, "rem.s32 %r9, %r3, 3;"),
    "minimum of a long magnitude": (
        "mov.b64 %d4, {%r1, %r2}; abs.s64 %d3, %d4;", LONG, "min.s64 %d9, %d3, 0; mov.b64 {%r19, %r9}, %d9;"),
    "extension of a magnitude of 32 bits": ("abs.s32 %r3, %r1;", PAIR, "cvt.s64.s32 %d9, %r3; mov.b64 {%r19, %r9}, %d9;"),
    "sign of a magnitude that is moved": ("abs.s32 %r3, %r1;", PAIR, "sub.u32 %r4, %r2, %r3; sub.u32 %r3, %r2, %r4; shr.s32 %r9, %r3, 31;"),
    "pair of integers of two literals": (
        "add.s16x2 %r3, 0x80008000, 0;", PAIR, "add.s32 %r3, 0, %r3; bfi.b32 %r9, %r3, %r1, 16, 16;"),
    "long shift of a literal": (
        "mov.b64 %d3, 0x7fff; bfi.b64 %d3, %d3, 1, 0, 8;", LONG, "mov.b32 %r4, 0x7fffffff; shl.b64 %d9, %d3, %r4; mov.b64 {%r19, %r4}, %d9; xor.b32 %r9, %r19, %r1;"),
    "mask of copied signs": ("prmt.b32 %r3, %r1, %r2, 0xba98;", PAIR, "and.b32 %r9, %r3, 255;"),
    "conversion of signs alone": ("prmt.b32 %r3, %r1, %r2, 0xba98;", PAIR, "cvt.u16.u32 %h3, %r3; cvt.rn.f32.s16 %f9, %h3; mov.b32 %r9, %f9;"),
    "conversion of an extended byte as one without a sign": (
        "prmt.b32 %r3, %r1, 0, 0x9991;", PAIR, "cvt.u16.u32 %h3, %r3; cvt.rn.f32.u16 %f9, %h3; mov.b32 %r9, %f9;"),
    "mask of an extended byte beside its conversion": (
        "prmt.b32 %r3, %r1, 0, 0x9991;", PAIR, "cvt.u16.u32 %h3, %r3; cvt.rn.f32.s16 %f9, %h3; and.b16 %h4, %h3, 255; cvt.u32.u16 %r9, %h4;"),
    "mask of one copied sign, behind operations that return it": (
        "prmt.b32 %r3, %r1, %r1, 0x4c5b; bfi.b32 %r3, %r3, %r2, 0, 32;", PAIR, "or.b32 %r3, %r3, 0; cvt.u32.u8 %r9, %r3;"),
    "choice of -1 or a maximum of literals by a guard": (
        "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", PAIR,
        "setp.ne.s32 %p2, %r3, 0; mov.f32 %f9, 0fBF800000; @%p2 max.f32 %f9, %f9, 0f80000000; mov.b32 %r9, %f9;"),
    "maximum of fp16 of a number with itself": (
        "mov.b16 %h3, %h1;", HALF, "max.f16 %h9, %h3, %h1; mov.b32 %r9, {%h9, %h9};"),
    "maximum of a number with itself": ("mov.b32 %f3, %r1;", WORD, "max.f32 %f9, %f3, %f1; mov.b32 %r4, %f9; shr.u32 %r9, %r4, 1;"),
    "extremum with the sign of a NaN that was converted": (
        "cvt.ftz.f32.f32 %f3, %f1;", WORD, "max.ftz.xorsign.abs.f32 %f9, %f3, 0f7F800000; mov.b32 %r9, %f9;"),
}  # fmt: skip
"""Instructions, what hides their result in %f3, %h3, %r3, %g3 or %d3 from ptxas, and the instructions that it merges."""


ARGUMENTS = (Argument(kind="buffer", buffer="out"), Argument(kind="buffer", buffer="in"))


def canonical(body: str) -> object:
    return hashes(LOAD + body + store("%r9", 32), dtype="u32")


@pytest.mark.parametrize(("first", "hidden", "second"), MERGED.values(), ids=MERGED)
def test_what_is_hidden_from_the_assembler_is_not_equal(first: str, hidden: str, second: str) -> None:
    merged = canonical(first + second)
    assert merged != canonical(first + hidden + second)
    assert merged == canonical(first + second)


GUARDED_CLAMPS = (
    "mov.f32 %f9, %f3; setp.gt.f32 %p2, %f3, 0f00000000; @!%p2 mov.f32 %f9, 0f00000000;",
    "mov.f32 %f9, 0f00000000; setp.gt.f32 %p2, %f3, 0f00000000; @%p2 mov.f32 %f9, %f3;",
    "mov.b32 %r3, %f3; mov.b32 %r4, 0; setp.gt.f32 %p2, %f3, 0f00000000; @%p2 add.u32 %r4, %r3, 0; mov.b32 %f9, %r4;",
    "mov.b32 %r4, %f3; mov.b32 %r3, 0; setp.gt.f32 %p2, %f3, 0f00000000; @!%p2 or.b32 %r4, %r3, 0; mov.b32 %f9, %r4;",
)
BOUNDED = ("tanh.approx.f32", "sin.approx.f32", "cos.approx.ftz.f32")
GUARDED_BOUNDS = (
    "mov.f32 %f9, %f3; setp.lt.f32 %p2, %f3, 0f40000000; @!%p2 mov.f32 %f9, 0f40000000;",
    "mov.f32 %f9, 0f40000000; setp.lt.f32 %p2, %f3, 0f40000000; @%p2 mov.f32 %f9, %f3;",
)


@pytest.mark.parametrize("choice", GUARDED_CLAMPS)
def test_a_clamp_that_ends_with_a_move_under_a_guard_is_one_of_its_text(choice: str) -> None:
    """ptxas makes it a saturation, also in the threads that do not execute the move."""
    first, second = "min.f32 %f3, %f1, {};", f"{choice} mov.b32 %r9, %f9;"
    one, half = first.format("0f3F800000"), first.format("0f3F000000")
    assert canonical(one + second) != canonical(one + WORD + second)
    assert canonical(one + second) == canonical(one + second)
    assert canonical(half + second) == canonical(half + WORD + second)


@pytest.mark.parametrize("choice", GUARDED_BOUNDS)
@pytest.mark.parametrize("function", BOUNDED)
def test_a_bounded_function_before_a_move_under_a_guard_is_one_of_its_text(function: str, choice: str) -> None:
    """ptxas leaves out the comparison of tanh(x) with 2, and the number for a NaN with it."""
    first, second = f"{function} %f3, %f1;", f"{choice} mov.b32 %r9, %f9;"
    assert canonical(first + second) != canonical(first + WORD + second)
    assert canonical(first + second) == canonical(first + second)
    other = "ex2.approx.f32 %f3, %f1;"
    assert canonical(other + second) == canonical(other + WORD + second)


@pytest.mark.parametrize("choice", GUARDED_CLAMPS)
def test_threads_that_do_not_move_take_part_in_a_merge(choice: str) -> None:
    """A guard that is known to be false in all threads makes the move no less a part of a selection."""
    first, second = (
        "mov.b32 %r3, 0x7fc00001; add.u32 %r3, %r3, %r0; mov.b32 %f1, %r3; min.f32 %f3, %f1, 0f3F800000;",
        f"{choice} mov.b32 %r9, %f9;",
    )
    assert canonical(first + second) != canonical(first + WORD + second)


def test_a_literal_in_a_shuffle_is_known_to_the_assembler() -> None:
    use = " max.f16x2 %r9, %r3, %r2;"
    shuffled = canonical(f"mov.b32 %r3, 0x00008000; {PAIR}" + use)
    assert shuffled != canonical("mov.b32 %r3, 0x00008000;" + use)


def test_what_a_thread_stores_in_its_own_memory_is_known_to_the_assembler() -> None:
    kept = (
        "mov.u32 %r18, room; mad.lo.u32 %r18, %r0, 4, %r18; ex2.approx.ftz.f32 %f3, %f1; st.shared.f32 [%r18], %f3;"
        " {} ld.shared.f32 %f3, [{}]; {} rcp.approx.ftz.f32 %f9, %f3; mov.b32 %r9, %f9;"
    )

    def form(barrier: str, place: str, hidden: str) -> object:
        body = LOAD + kept.format(barrier, place, hidden) + store("%r9", 32)
        return hashes(body, dtype="u32", shared=".shared .align 16 .b8 room[128];")

    for barrier in ("", "bar.sync 0;"):
        assert form(barrier, "%r18", "") != form(barrier, "%r18", WORD)
    other = "bar.sync 0; xor.b32 %r19, %r18, 4;"
    assert form(other, "%r19", "") == form(other, "%r19", WORD)


SAME_BITS = (
    "mov.b32 %r4, %r3;", "bfe.u32 %r4, %r3, 0, 32;", "bfi.b32 %r4, %r3, %r2, 0, 32;", "shf.l.wrap.b32 %r4, %r2, %r3, 0;",
    "shf.r.wrap.b32 %r4, %r3, %r2, 0;", "cvt.u32.u32 %r4, %r3;", "cvt.s32.u32 %r4, %r3;", "mul.lo.u32 %r4, %r3, 1;",
    "mad.lo.s32 %r4, %r3, 1, 0;", "mad.lo.u32 %r4, %r2, 0, %r3;", "neg.s32 %r8, %r3; neg.s32 %r4, %r8;",
    "add.u32 %r8, %r3, %r2; sub.u32 %r4, %r8, %r2;", "sub.u32 %r8, 0, %r3; sub.u32 %r4, 0, %r8;",
    "add.u32 %r8, %r3, 7; mov.b32 %r18, %r8; add.u32 %r4, %r18, -7;", "dp4a.u32.u32 %r4, %r2, 0, %r3;",
    "add.cc.u32 %r4, %r3, 0; addc.u32 %r8, %r2, 0;", "add.cc.u32 %r8, 0, 0; addc.u32 %r4, %r3, 0;",
    "sub.u32 %r8, %r2, %r3; sub.u32 %r4, %r2, %r8;", "and.b32 %r8, %r2, 0; or.b32 %r4, %r8, %r3;", "and.b32 %r4, %r3, %r3;",
    "setp.eq.u32 %p5, %r3, %r3; selp.b32 %r4, %r3, %r2, %p5;",
    "mov.u32 %r8, 0; mov.b32 %r4, %r2; L: mov.b32 %r4, %r3; add.u32 %r8, %r8, 1; setp.lt.u32 %p6, %r8, 3; @%p6 bra L;",
)  # fmt: skip
"""Instructions that return %r3 in %r4, which ptxas 12.8, 12.9 and 13.0 leave out."""
KEPT_BITS = (
    "max.u32 %r4, %r3, 0;", "min.s32 %r4, %r3, 0x7fffffff;", "xor.b32 %r8, %r3, %r2; xor.b32 %r4, %r8, %r2;",
    "not.b32 %r8, %r3; not.b32 %r4, %r8;", "sad.u32 %r4, %r2, %r2, %r3;", "lop3.b32 %r4, %r3, %r2, %r5, 0xf0;",
    "div.u32 %r4, %r3, 1;",
)  # fmt: skip
"""Others, through which some versions follow some sequences, or none."""
OTHER_BITS = (
    "add.u32 %r4, %r3, 1;", "add.u32 %r4, %r3, %r2;", "mul.lo.u32 %r4, %r3, 3;", "shr.u32 %r4, %r3, 1;",
    "add.u32 %r4, %r3, 7; shr.u32 %r4, %r4, 1;", "mad.lo.u32 %r4, %r3, 5, %r2;", "min.u32 %r4, %r3, 1000;",
)  # fmt: skip
CARRIED = {
    "reciprocal of a power": ("ex2.approx.ftz.f32 %f3, %f1; mov.b32 %r3, %f3;", "mov.b32 %f6, %r4; rcp.approx.ftz.f32 %f9, %f6; mov.b32 %r9, %f9;", "MUFU.RCP"),
    "clamp": ("min.f32 %f3, %f1, 0f3F800000; mov.b32 %r3, %f3;", "mov.b32 %f6, %r4; max.f32 %f9, %f6, 0f00000000; mov.b32 %r9, %f9;", "FMNMX"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "opcode"), CARRIED.values(), ids=CARRIED)
def test_instructions_that_return_their_operand_hide_nothing(first: str, second: str, opcode: str) -> None:
    for carrier in (*SAME_BITS, *KEPT_BITS):
        shown = canonical(first + carrier + second)
        assert shown != canonical(first + PAIR + carrier + PAIR.replace("%r3", "%r4") + second), carrier
        assert shown == canonical(first + carrier + second)
    for other in OTHER_BITS:
        assert canonical(first + other + second) == canonical(first + PAIR + other + second), other


def test_the_installed_assembler_leaves_them_out(tmp_path: Path) -> None:
    for first, second, opcode in CARRIED.values():
        texts = [text(LOAD + first + carrier + second + store("%r9", 32)) for carrier in SAME_BITS]
        for carrier, code in zip(SAME_BITS, mnemonics(texts, tmp_path), strict=True):
            assert opcode not in code, carrier


ONE = "0x3f800000"
FOUND = {
    "no bits": f"xor.b32 %r3, %r2, %r2; add.u32 %r4, %r3, {ONE};",
    "bits of 0": f"and.b32 %r3, %r2, 0; add.u32 %r4, %r3, {ONE};",
    "a product with 0": f"mul.lo.u32 %r3, %r2, 0; or.b32 %r4, %r3, {ONE};",
    "a sum and its difference": f"add.u32 %r3, %r2, {ONE}; sub.u32 %r4, %r3, %r2;",
    "a number of the launch": f"and.b32 %r3, %r0, 0; add.u32 %r4, %r3, {ONE};",
    "a known side": f"setp.eq.u32 %p3, %r2, %r2; selp.b32 %r4, {ONE}, %r5, %p3;",
    "all bits": f"or.b32 %r3, %r2, -1; and.b32 %r4, %r3, {ONE};",
    "equal numbers": "set.eq.f32.u32 %r4, %r2, %r2;",
    "an empty field": f"bfe.u32 %r3, %r2, 3, 0; add.u32 %r4, %r3, {ONE};",
    "no common bits": f"not.b32 %r3, %r2; and.b32 %r3, %r3, %r2; add.u32 %r4, %r3, {ONE};",
}
"""Instructions that return 1 in %r4, as ptxas 12.8 and 13.0 find, whatever they read."""
ALSO_NUMBERS = {
    "shifts": f"shl.b32 %r3, %r2, 16; shl.b32 %r8, %r3, 16; add.u32 %r4, %r8, {ONE};",
    "a shift of a mask": f"and.b32 %r3, %r2, 0xff; shr.u32 %r8, %r3, 8; add.u32 %r4, %r8, {ONE};",
    "a mask of a shift": f"shl.b32 %r3, %r2, 16; and.b32 %r8, %r3, 0xff; add.u32 %r4, %r8, {ONE};",
    "products": f"mul.lo.u32 %r3, %r2, 65536; mul.lo.u32 %r8, %r3, 65536; add.u32 %r4, %r8, {ONE};",
    "the least number": f"min.u32 %r3, %r2, 0; add.u32 %r4, %r3, {ONE};",
    "the second axis": f"mov.u32 %r3, %tid.y; add.u32 %r4, %r3, {ONE};",
    "local memory": f"mov.b32 %r3, {ONE}; st.local.b32 [mine], %r3; ld.local.b32 %r4, [mine];",
    "a function of no bits": f"lop3.b32 %r3, %r2, %r5, %r6, 0; add.u32 %r4, %r3, {ONE};",
}
OTHER_NUMBERS = {
    "a loaded number": "mov.b32 %r4, %r2;",
    "other bits": f"and.b32 %r3, %r2, 1; add.u32 %r4, %r3, {ONE};",
    "a shift of other bits": f"shl.b32 %r3, %r2, 16; shr.u32 %r8, %r3, 17; add.u32 %r4, %r8, {ONE};",
    "an unknown side": "setp.eq.u32 %p3, %r2, %r6; selp.b32 %r4, 0x40000000, %r5, %p3;",
    "a relu": f"max.s32 %r3, %r2, 0; add.u32 %r4, %r3, {ONE};",
    "a field": f"bfe.u32 %r3, %r2, 0, 8; add.u32 %r4, %r3, {ONE};",
    "a sum of products": f"mad.lo.u32 %r3, %r2, %r5, 0; add.u32 %r4, %r3, {ONE};",
}  # fmt: skip
BOUNDED_BY_FOUND = "mov.b32 %f7, %r4; min.f32 %f3, %f1, %f7; {} max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"


@pytest.mark.parametrize("number", {**FOUND, **ALSO_NUMBERS}.values(), ids=[*FOUND, *ALSO_NUMBERS])
def test_a_number_that_the_assembler_finds_is_a_literal(number: str) -> None:
    def form(hidden: str) -> object:
        body = LOAD + number + BOUNDED_BY_FOUND.format(hidden) + store("%r9", 32)
        return hashes(body, dtype="u32", shared=".local .align 4 .b8 mine[4];")

    assert form("") != form(WORD)
    assert form("") == form("")


CHOICE = (
    "mov.b32 %f3, %r4; {} setp.lt.s32 %p1, %r1, %r5; selp.f32 %f9, 0f80000000, %f3, %p1; mov.b32 %r9, %f9;"
    + store("%r9", 32)
)


def choice(number: str, hidden: str) -> object:
    """Return the hashes of a selection between -0 and a number that is written as 1 in `number`, and is -1 here."""
    body = LOAD + number.replace(ONE, "0xbf800000") + CHOICE.format(hidden)
    return hashes(body, dtype="u32", shared=".local .align 4 .b8 mine[4];")


@pytest.mark.parametrize("number", {**FOUND, **ALSO_NUMBERS}.values(), ids=[*FOUND, *ALSO_NUMBERS])
def test_a_choice_between_minus_zero_and_a_found_number(number: str) -> None:
    assert choice(number, "") != choice(number, WORD)
    assert choice(number, "") == choice(number, "")


SUM = (
    "mov.b32 %r4, 0; mov.b32 %f3, %r4; mov.u32 %r3, 0; L: add.f32 %f3, %f3, %f1; sub.u32 %r3, 2, %r3;"
    "setp.ne.u32 %p2, %r3, 0; @%p2 bra L; mov.b32 %r4, %f3;"
)


@pytest.mark.parametrize("number", [*OTHER_NUMBERS.values(), SUM], ids=[*OTHER_NUMBERS, "a sum"])
def test_a_choice_between_minus_zero_and_another_number(number: str) -> None:
    assert choice(number, "") == choice(number, WORD)


@pytest.mark.parametrize("number", OTHER_NUMBERS.values(), ids=OTHER_NUMBERS)
def test_other_numbers_are_none_that_the_assembler_finds(number: str) -> None:
    assert canonical(number + BOUNDED_BY_FOUND.format("")) == canonical(number + BOUNDED_BY_FOUND.format(WORD))


def test_the_installed_assembler_finds_them(tmp_path: Path) -> None:
    texts = [text(LOAD + each + BOUNDED_BY_FOUND.format("") + store("%r9", 32)) for each in FOUND.values()]
    for name, code in zip(FOUND, mnemonics(texts, tmp_path), strict=True):
        assert "FADD.SAT" in code, name


def test_what_local_memory_keeps_is_known_by_any_address() -> None:
    kept = (
        "mov.u64 %d5, mine; div.approx.f32 %f3, %f1, %f2; st.local.f32 [%d5+4], %f3; ld.local.f32 %f4, [mine+4]; {}"
        "mul.rn.f32 %f9, %f4, 0f40000000; mov.b32 %r9, %f9;"
    )

    def form(hidden: str) -> object:
        body = LOAD + kept.format(hidden.replace("%f3", "%f4")) + store("%r9", 32)
        return hashes(body, dtype="u32", shared=".local .align 8 .b8 mine[8];")

    assert form("") != form(WORD)


LOOP = "mov.b32 %r3, {start}; mov.u32 %r8, 0; L: {update} {hidden} add.u32 %r8, %r8, 1; setp.lt.u32 %p6, %r8, 3; @%p6 bra L; mov.b32 %r9, %r3;"


@pytest.mark.parametrize(
    "update", ["xor.b32 %r3, %r3, 0xffffffff;", "not.b32 %r4, %r3; mov.b32 %r3, %r4;", "mad.lo.s32 %r3, %r3, -1, 0;"]
)
def test_a_number_that_a_loop_negates_is_one_of_its_text(update: str) -> None:
    """ptxas 12.8 takes `x = ~x` from 0x7fffffff for a loop that changes nothing."""

    def form(start: str, change: str, hidden: str) -> object:
        return canonical(LOOP.format(start=start, update=change, hidden=hidden))

    assert form("0x7fffffff", update, "") != form("0x7fffffff", update, PAIR)
    assert form("0x7fffffff", update, "") == form("0x7fffffff", update, "")
    assert form("%r1", update, "") == form("%r1", update, PAIR)
    toggled = "xor.b32 %r3, %r3, 1;"
    assert form("0x7fffffff", toggled, "") == form("0x7fffffff", toggled, PAIR)


def test_a_field_behind_its_register_is_one_of_its_text_also_of_a_number_of_the_launch() -> None:
    """ptxas does not know the number of a thread: it takes one bit of it for a sign."""
    field = "bfe.u32 %r3, %r0, 1, 1; {} bfe.s32 %r9, %r3, 32, 15;"
    assert canonical(field.format("")) != canonical(field.format(PAIR))
    inside = "bfe.u32 %r3, %r0, 1, 3; {} bfe.s32 %r9, %r3, 1, 2;"
    assert canonical(inside.format("")) == canonical(inside.format(PAIR))
    literal = "mov.b32 %r3, 5; bfe.s32 %r9, %r3, 32, 15;"
    assert canonical(literal) == canonical(f"mov.b32 %r19, 5; {literal}")


def test_an_operation_on_one_value_twice_is_one_of_its_text() -> None:
    first = "lop3.b32 %r3, %r1, %r1, %r2, 0xc0;"
    assert canonical(first + "xor.b32 %r9, %r3, %r1;") != canonical(first + PAIR + "xor.b32 %r9, %r3, %r1;")
    copied = "mov.b32 %r4, %r1; lop3.b32 %r3, %r1, %r4, %r2, 0xc0;"
    assert canonical(copied + "xor.b32 %r9, %r3, %r1;") != canonical(copied + PAIR + "xor.b32 %r9, %r3, %r1;")


def test_an_operation_on_pairs_of_integers_and_a_literal_is_one_of_its_text() -> None:
    body = "mov.b32 %r4, 0xfc00fc00; add.s16x2 %r3, %r1, %r4;"
    assert canonical(body + "mov.b32 %r9, %r3;") != canonical(body + PAIR + "mov.b32 %r9, %r3; mov.b32 %r9, %r9;")


UNMERGED = {
    "logistic function": ("ex2.approx.ftz.f32 %f4, %f1; add.f32 %f3, %f4, 0f3F800000;", WORD,
                          "rcp.approx.ftz.f32 %f9, %f3; mov.b32 %r9, %f9;"),
    "quotient times a third": ("div.approx.ftz.f32 %f3, %f1, %f2;", WORD, "mul.rn.ftz.f32 %f9, %f3, 0f3EAAAAAB; mov.b32 %r9, %f9;"),
    "clamp from below first": ("max.f32 %f3, %f1, 0f00000000;", WORD, "min.f32 %f9, %f3, 0f3F800000; mov.b32 %r9, %f9;"),
    "clamp to other bounds": ("min.f32 %f3, %f1, 0f40C00000;", WORD, "max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp that keeps NaNs": ("min.NaN.f32 %f3, %f1, 0f3F800000;", WORD,
                              "max.NaN.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "clamp to a number at run time": ("min.f32 %f3, %f1, %f2;", WORD, "max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "rounding of a word to fp16": ("cvt.rn.f16.f32 %h3, %f1;", HALF, "cvt.rzi.s32.f16 %r9, %h3;"),
    "shift of a word by a rounding": ("cvt.rzi.u32.f32 %r3, %f1;", PAIR, "shr.s32 %r9, %r2, %r3;"),
    "rounding of a rounded number": ("cvt.rmi.f16.f16 %h3, %h1;", HALF, "cvt.rzi.s32.f16 %r9, %h3;"),
    "mask of bytes in another order": ("prmt.b32 %r3, %r1, %r2, 0x3210;", PAIR, "and.b32 %r9, %r3, 255;"),
    "unsigned remainder of a magnitude": ("abs.s32 %r3, %r1;", PAIR, "rem.u32 %r9, %r3, 3;"),
    "remainder of a magnitude of a small number": (
        "and.b32 %r4, %r0, 63; abs.s32 %r3, %r4;", PAIR, "rem.s32 %r9, %r3, 3; add.u32 %r9, %r9, %r1;"),
    "extremum with the signs of loaded numbers": (
        "mov.b32 %f3, %r1;", WORD, "max.xorsign.abs.f32 %f9, %f3, %f2; mov.b32 %r9, %f9;"),
    "negated word": ("neg.s32 %r3, %r1;", PAIR, "shr.s32 %r9, %r3, 1;"),
    "sum of halves": ("add.s16 %h3, %h1, %h2;", HALF, "cvt.s32.s16 %r9, %h3;"),
    "clamp of integers of two types": ("max.s32 %r3, %r1, 0;", PAIR, "min.u32 %r9, %r3, 100;"),
    "minimum and maximum with 0 of one type": ("min.s32 %r3, %r1, 0;", PAIR, "max.s32 %r9, %r3, 0;"),
    "maxima with 0 of two types": ("max.s32 %r3, %r1, 0;", PAIR, "max.u32 %r9, %r3, 0;"),
    "selection of a rectified number by another one": (
        "max.f32 %f3, %f1, 0f00000000;", WORD, "setp.gt.s32 %p1, %r2, 0; selp.f32 %f9, %f3, 0f00000000, %p1; mov.b32 %r9, %f9;"),
    "upper half of a signed extension": ("cvt.s32.s16 %r3, %h1;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "field of an extension": ("cvt.u32.u16 %r3, %h1;", PAIR, "shr.u32 %r9, %r3, 16; add.u32 %r9, %r9, %r2;"),
    "halves of a sum with an extension": ("cvt.u32.u16 %r4, %h1; add.u32 %r3, %r4, %r2;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "halves of a pair with a part of an extension": (
        "cvt.u32.u16 %r4, %h1; cvt.u16.u32 %h5, %r4; mov.b32 %r3, {%h2, %h5};", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "shift of a word by a signed field": ("bfe.s32 %r3, %r2, 0, 8;", PAIR, "shr.u32 %r9, %r1, %r3;"),
    "short shift by an unsigned field": ("bfe.u32 %r3, %r2, 0, 8;", PAIR, "shr.u16 %h9, %h2, %r3; mov.b32 %r9, {%h9, %h9};"),
    "clamp of integers to other bounds": ("min.u32 %r3, %r1, 1000;", PAIR, "mov.b32 %f6, %r3; max.f32 %f9, %f6, 0f00000000; mov.b32 %r9, %f9;"),
    "extrema that treat NaNs alike": ("max.bf16 %h3, %h1, %h2;", HALF, "max.bf16 %h9, %h1, %h3; mov.b32 %r9, {%h9, %h9};"),
    "sign of another number": ("mov.f64 %g3, %g1; mov.b64 %g2, {%r5, %r6};", DOUBLE, "copysign.f64 %g9, %g2, %g3; mov.b64 {%r19, %r9}, %g9;"),
    "choice of 0 or -1": ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", PAIR, "setp.ne.s32 %p2, %r3, 0; selp.f32 %f9, 0f00000000, 0fBF800000, %p2; mov.b32 %r9, %f9;"),
    "unsigned extension": ("cvt.u64.u32 %d3, %r1;", LONG, "shl.b64 %d9, %d3, 8; mov.b64 {%r19, %r9}, %d9;"),
    "pair with a positive literal": ("mov.b16 %h7, 0x3f80; mov.b32 %r3, {%h1, %h7};", PAIR,
                                     "fma.rn.bf16x2 %r9, %r3, %r2, %r3;"),
    "literal of one sign": ("mov.b32 %r3, 0xbf80bf80;", PAIR, "fma.rn.bf16x2 %r9, %r1, %r3, %r2;"),
    "pair of a sum with a computed literal": ("mov.b32 %r7, %r2; add.u32 %r4, %r7, %r1; not.b32 %r7, 0x7fffffff; xor.b32 %r3, %r7, %r5;", PAIR, "fma.rn.bf16x2 %r9, %r3, %r3, %r3;"),
    "move under another comparison": (
        "mov.f32 %f3, %f1; setp.lt.f32 %p1, %f1, 0f3F000000; @!%p1 mov.f32 %f3, 0f3F000000;", WORD,
        "max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"),
    "conversion of a negation without a sign": (
        "neg.s16 %h3, %h1;", HALF, "cvt.rm.f32.u16 %f9, %h3; mov.b32 %r9, %f9;"),
    "logic operation on three values": ("lop3.b32 %r3, %r1, %r2, %r5, 0xc0;", PAIR, "xor.b32 %r9, %r3, %r1;"),
    "maximum of two numbers that one predicate selects": (
        "setp.lt.s32 %p1, %r5, 7; selp.f32 %f3, %f1, 0fFF800000, %p1; selp.f32 %f4, %f2, 0fFF800000, %p1;", WORD,
        "max.f32 %f9, %f3, %f4; mov.b32 %r9, %f9;"),
    "conversion of an extended byte": (
        "prmt.b32 %r3, %r1, 0, 0x9991;", PAIR, "cvt.u16.u32 %h3, %r3; cvt.rn.f32.s16 %f9, %h3; mov.b32 %r9, %f9;"),
    "conversion of an extended byte of 32 bits": (
        "prmt.b32 %r3, %r1, 0, 0xbbb3;", PAIR, "cvt.rn.f32.s32 %f9, %r3; mov.b32 %r9, %f9;"),
    "conversion of the lowest byte": ("cvt.s8.s32 %h3, %r1;", HALF, "cvt.rn.f32.s16 %f9, %h3; mov.b32 %r9, %f9;"),
    "pair that some lanes load": ("setp.lt.u32 %p1, %r0, 7; mov.b32 %r3, 0; @%p1 ld.global.b32 %r3, [%d2+8];", PAIR,
                                  "mul.rn.bf16x2 %r9, %r3, %r2;"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "hidden", "second"), UNMERGED.values(), ids=UNMERGED)
def test_other_sequences_are_equal_to_those_that_are_hidden(first: str, hidden: str, second: str) -> None:
    assert canonical(first + second) == canonical(first + hidden + second)


UNUSUAL = {
    "signed rounding to a signed half": ("cvt.rzi.s32.f32 %r3, %f1;", PAIR, "cvt.sat.s16.s32 %r9, %r3;"),
    "flushed rounding to the nearest, saturated": ("cvt.rni.ftz.s32.f32 %r3, %f1;", PAIR, "cvt.sat.s16.s32 %r9, %r3;"),
    "saturation of a difference": ("sub.s32 %r3, %r2, %r1;", PAIR, "cvt.sat.u32.s32 %r9, %r3;"),
    "saturation of a product": ("mul.lo.s32 %r3, %r1, 3;", PAIR, "cvt.sat.u32.s32 %r9, %r3;"),
    "extrema that flush": ("max.ftz.f16x2 %r3, %r1, %r2;", PAIR, "max.ftz.f16x2 %r9, %r3, %r5;"),
    "upper half of a rounding by a shift": ("cvt.rni.u8.f16 %r3, %h1;", PAIR, "shr.u32 %r9, %r3, 16;"),
    "minimum of a saturated number": ("add.sat.f32 %f3, %f1, %f2;", WORD, "min.f32 %f9, %f3, 0f40000000; mov.b32 %r9, %f9;"),
    "minimum of a saturated fp16": (
        "mov.b16 %h8, 0x4000; cvt.rn.sat.f16.f32 %h3, %f1;", HALF, "min.f16 %h9, %h3, %h8; mov.b32 %r9, {%h9, %h9};"),
    "minimum of a converted saturated integer": (
        "cvt.sat.u16.s32 %h3, %r1;", HALF, "cvt.rn.f32.u16 %f6, %h3; min.f32 %f9, %f6, 0f40000000; mov.b32 %r9, %f9;"),
    "extremum of integers of a saturated one": ("cvt.sat.u32.s32 %r3, %r1;", PAIR, "min.u32 %r9, %r3, 7;"),
    "extension of a long number to 8 bits": (
        "cvt.u16.u32 %h5, %r1; cvt.s64.s8 %d4, %h5; cvt.s8.u64 %h3, %d4;", HALF, "cvt.u32.u16 %r9, %h3;"),
    "lowest byte of a sum": ("add.s32 %r3, %r1, %r2;", PAIR, "cvt.s8.s32 %h3, %r3; cvt.rn.f32.s16 %f9, %h3; mov.b32 %r9, %f9;"),
    "byte of copied signs": ("prmt.b32 %r3, %r1, %r2, 0xba98;", PAIR, "cvt.u8.s32 %h9, %r3; mov.b32 %r9, {%h9, %h9};"),
    "halves of a conversion of integers": ("cvt.u8.u32 %r3, %r1;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h9};"),
    "square of a rectified sum": ("fma.rn.relu.f16x2 %r3, %r1, %r2, %r5;", PAIR, "mul.rn.f16x2 %r9, %r3, %r3;"),
    "sum of a number that a comparison returns": ("set.lt.u32.f32 %r3, %f1, %f2;", PAIR, "add.u32 %r9, %r3, %r1;"),
    "sum of a product": ("mul.rn.f32 %f3, %f1, %f2;", WORD, "add.sat.f32 %f9, %f3, %f1; mov.b32 %r9, %f9;"),
    "halves of a sum of differences": ("sad.u32 %r3, %r1, %r2, %r5;", PAIR, "mov.b32 {%h8, %h9}, %r3; mov.b32 %r9, {%h9, %h8};"),
    "choice by a saturated sum": (
        "add.sat.f32 %f3, %f1, %f2;", WORD, "mov.b32 %r3, %f3; mov.b32 %r9, %r2; setp.lt.s32 %p1, %r5, %r6; @%p1 mov.b32 %r9, %r3;"),
}  # fmt: skip
"""An operation that compilers do not use, and another one that it reads or that reads it."""


@pytest.mark.parametrize(("first", "hidden", "second"), UNUSUAL.values(), ids=UNUSUAL)
def test_operations_that_compilers_do_not_use_are_of_their_text(first: str, hidden: str, second: str) -> None:
    assert canonical(first + second) != canonical(first + hidden + second)
    assert canonical(first + second) == canonical(first + second)


ALONE = (
    "fma.rn.relu.f16x2 %r9, %r1, %r2, %r5;", "sad.u32 %r9, %r1, %r2, %r5;", "mad.hi.u32 %r9, %r1, %r2, %r5;",
    "cvt.sat.u16.s32 %h9, %r1; mov.b32 %r9, {%h9, %h9};", "set.lt.u32.f32 %r9, %f1, %f2;",
    "mov.b32 %r4, %r1; shfl.sync.bfly.b32 %r4, %r4, 1, 31, -1; dp4a.u32.u32 %r9, %r4, %r2, %r5;",
)  # fmt: skip


@pytest.mark.parametrize("body", ALONE)
def test_such_an_operation_on_what_is_loaded_is_the_one_of_the_isa(body: str) -> None:
    """The number of the line is no part of its term, unlike that of an operation of its text."""
    assert canonical(body) == canonical("\n" + body)


def test_an_operation_under_a_guard_reads_what_it_keeps() -> None:
    def form(first: str, hidden: str, guard: str) -> object:
        return canonical(
            f"{first} {hidden} setp.eq.u32 %p1, %r0, 5; {guard} sad.u32 %r3, %r1, %r2, %r5; mov.b32 %r9, %r3;"
        )

    first = "add.u32 %r3, %r1, %r2;"
    assert form(first, "", "@%p1") != form(first, PAIR, "@%p1")
    assert form(first, "", "") == form(first, PAIR, "")


def test_only_a_nan_is_clamped_otherwise() -> None:
    clamp = "min.f32 %f3, %f1, 0f3F800000; {} max.f32 %f9, %f3, 0f00000000; mov.b32 %r9, %f9;"

    def finite(body: str) -> list[list[int]]:
        kernel = LOAD + body + store("%r9", 32)
        memory, scratch = run(kernel, assume=frozenset({FINITE}), dtype="fp32", loaded="fp32")
        return checked_outputs(memory, scratch)[1].words.tolist()

    assert finite(clamp.format("")) == finite(clamp.format(WORD))


def test_an_execution_on_bit_patterns_says_where_hardware_may_return_other_bits() -> None:
    first, _, second = MERGED["shift of a negated half"]

    def notes(number: int) -> str:
        body = LOAD + first + second + store("%r9", 32)
        launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=ARGUMENTS)
        prepared = prepare_launch(ARCH.parse(text(body), "k.ptx"), ARCH, launch)
        given = np.full(128, number, dtype=np.uint32).view(np.uint8)
        return " ".join(simulate(prepared, {"in": given, "out": np.zeros(128, dtype=np.uint8)}).notes)

    assert "ptxas may merge an operation on 16 bits" in notes(0x8000)
    assert "ptxas may merge" not in notes(2)


def test_a_register_that_was_written_again_holds_nothing_from_before() -> None:
    """Within a basic block, only its last definition is followed."""
    again = "mov.f32 %f3, %f2;"
    first, second = "ex2.approx.ftz.f32 %f3, %f1;", "rcp.approx.ftz.f32 %f9, %f3; mov.b32 %r9, %f9;"
    assert canonical(first + again + second) == canonical(first + again + WORD + second)
    guarded = "setp.eq.u32 %p1, %r5, 0; @%p1 mov.f32 %f3, %f2;"
    assert canonical(first + guarded + second) != canonical(first + guarded + WORD + second)
    joined = "setp.eq.u32 %p1, %r5, 0; @%p1 bra L; mov.f32 %f3, %f2; L:"
    assert canonical(first + joined + second) != canonical(first + joined + WORD + second)
    of_another = "setp.gt.f32 %p1, %f2, %f1;"
    clamp = MERGED["clamp by selection"]
    assert canonical(clamp[0] + of_another + clamp[2]) != canonical(clamp[0] + WORD + of_another + clamp[2])


@pytest.mark.parametrize(
    ("name", "found", "missing"), [("reciprocal of a power", "MUFU.EX2", "MUFU.RCP"), ("clamp", "FADD.SAT", "FMNMX")]
)
def test_the_installed_assembler_merges_them(name: str, found: str, missing: str, tmp_path: Path) -> None:
    first, hidden, second = MERGED[name]
    for body, merged in ((first + second, True), (first + hidden + second, False)):
        code = listing(text(LOAD + body + store("%r9", 32)), tmp_path)
        assert (found in code and missing not in code) == merged


@pytest.mark.parametrize(
    "write",
    ["mov.f32 %r3, %r1;", "ld.global.f32 %r3, [%d2];", "set.lt.f32.s32 %r3, %r1, %r2;"],
)
def test_a_long_shift_by_a_register_that_a_type_of_floats_writes_is_unknown(write: str) -> None:
    """ptxas converts the number to an integer, also without optimisation."""
    with pytest.raises(Unsupported, match="a register that a floating-point instruction writes"):
        canonical(f"mov.b64 %d4, {{%r1, %r2}}; {write} shr.u64 %d4, %d4, %r3; mov.b64 {{%r9, %r19}}, %d4;")
    canonical("mov.b64 %d4, {%r1, %r2}; mov.b32 %r3, %r1; shr.u64 %d4, %d4, %r3; mov.b64 {%r9, %r19}, %d4;")


ROOM = ".shared .align 16 .b8 room[2048];"
READ = (
    "mov.u32 %r2, room; mul.lo.u32 %r3, %r0, 16; add.u32 %r3, %r2, %r3; xor.b32 %r4, %r3, 32; div.approx.f32 %f3, %f1, %f2;"
    "st.shared.f32 [%r3], %f3; bar.sync 0; {} max.f32 %f9, %f4, %f5; mov.b32 %r9, %f9;"
)
FIRST, SECOND, CHANGED = "ld.shared.f32 %f4, [%r4];", "ld.shared.f32 %f5, [%r4];", "st.shared.f32 [%r3], %f1;"
"""Two loads of one text, and a store between them."""


@pytest.mark.parametrize(
    ("between", "is_one"),
    [
        (f"{FIRST} {SECOND}", True),
        (f"{FIRST} bar.sync 0; {SECOND}", True),  # ptxas keeps both, but no thread stores between them
        (f"{FIRST} {CHANGED} {SECOND}", True),
        (f"{FIRST} bar.sync 0; {CHANGED} bar.sync 0; {SECOND}", False),
        (f"{FIRST} bar.sync 0; {CHANGED} bar.warp.sync -1; {SECOND}", True),
        (f"{FIRST} bar.sync 0; {CHANGED} setp.gt.u32 %p9, %r0, 99; @%p9 bra E; bar.sync 0; E: {SECOND}", True),
        (f"L: bar.sync 0; {CHANGED} bar.sync 0; {FIRST} bar.sync 0; {CHANGED} bar.sync 0; {SECOND}"
         " add.u32 %r8, %r8, 1; setp.lt.u32 %p9, %r8, 3; @%p9 bra L;", False),
        (f"L: {FIRST} bar.sync 0; {CHANGED} bar.sync 0; {SECOND}"
         " add.u32 %r8, %r8, 1; setp.lt.u32 %p9, %r8, 3; @%p9 bra L;", True),
    ],
)  # fmt: skip
def test_loads_of_one_text_are_one_number_up_to_a_barrier_behind_a_store(between: str, is_one: bool) -> None:
    module = ARCH.parse(text(LOAD + "mov.u32 %r8, 0;" + READ.format(between) + store("%r9", 32), shared=ROOM), "k.ptx")
    (kernel,) = module.kernels
    sources = Sources(kernel, ARCH.opcodes)
    (extremum,) = [each for each in kernel.instructions if each.opcode == "max.f32"]
    assert (id(extremum) in extrema_of_one_number(sources)) is is_one


def test_the_installed_assembler_loads_again_behind_a_store_or_a_barrier(tmp_path: Path) -> None:
    """It passes on what a load returns to another one of its text where nothing is between them, and nowhere else."""
    far = "and.b32 %r6, %r0, 63; shl.b32 %r6, %r6, 2; add.u32 %r7, %r2, %r6; st.shared.f32 [%r7+1600], %f1;"
    cases = {
        f"{FIRST} {SECOND}": 1, f"{FIRST} bar.sync 0; {SECOND}": 2, f"{FIRST} {CHANGED} {SECOND}": 2,
        f"{FIRST} {far} {SECOND}": 2, f"{FIRST} {far} bar.sync 0; {SECOND}": 2,
    }  # fmt: skip
    texts = [text(LOAD + READ.format(each) + store("%r9", 32), shared=ROOM) for each in cases]
    for expected, code in zip(cases.values(), mnemonics(texts, tmp_path), strict=True):
        assert sum(each.startswith("LDS") for each in code) == expected
        assert any(each.startswith("FMNMX") for each in code) is (expected == 2)
