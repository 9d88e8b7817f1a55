# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Lanes of a warp that store different values to one address: the lowest lane's remains, or the result is open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.counterexamples.search import search_verdict
from bitwise_core.checker.determinism import Determinism, determinism
from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, Verdict
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import ANY_LANE, CONDITIONS, LOWEST_LANE
from bitwise_core.execution.determined_runs import simulate_in_one_order
from bitwise_core.execution.interleavings import ORDERS, run_in_order
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90

THREADS = 64
HEAD = f""".version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
.reqntid {THREADS}
{{
.reg .pred %p<9>; .reg .b64 %d<20>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b16 %h<5>; .shared .align 16 .b8 room[1024];
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5;
mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3; mul.wide.u32 %d6, %r3, 4; add.s64 %d7, %d2, %d6;
mov.u32 %r4, room; mad.lo.u32 %r5, %r3, 16, %r4; and.b32 %r6, %r1, 3; mad.lo.u32 %r7, %r6, 4, %r5;
setp.ge.u32 %p1, %r2, 5; setp.eq.u32 %p2, %r2, 0; setp.eq.u32 %p3, %r2, 5; setp.lt.u32 %p4, %r2, 4; setp.eq.u32 %p5, %r2, 31;
setp.lt.u32 %p6, %r2, 16; ld.global.f32 %f1, [%d4]; mov.f32 %f3, 0f40000000; st.shared.f32 [%r7], 0f00000000; bar.sync 0;
"""
"""%f1: the thread's element of a; %r5 and %r7: the place of its warp, and one of four; %p1: its lane is 5 or more."""
OF_WARP = "bar.sync 0; ld.shared.f32 %f2, [%r5]; st.global.f32 [%d5], %f2;"
KEEP = "mad.lo.u32 %r8, %r1, 4, %r4; st.shared.f32 [%r8+512], %f2;"
"""%f2 is needed."""
ON_DATA = "ld.global.f32 %f5, [%d1]; setp.gt.f32 %p7, %f5, %f3;"
SECOND = "bar.sync 0; ld.shared.f32 %f2, [%r5+4]; st.global.f32 [%d5], %f2;"
OF_LANE = "setp.eq.u32 %p7, %r2, {};"
OF_FOUR = "bar.sync 0; ld.shared.f32 %f2, [%r7]; st.global.f32 [%d5], %f2;"

CASES = {
    "all lanes": ("st.shared.f32 [%r5], %f1;" + OF_WARP, "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP, "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP),
    "lanes from 5 on": ("@%p1 st.shared.f32 [%r5], %f1;" + OF_WARP, "@%p3 st.shared.f32 [%r5], %f1;" + OF_WARP, "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP),
    "four places": ("st.shared.f32 [%r7], %f1;" + OF_FOUR, "@%p4 st.shared.f32 [%r7], %f1;" + OF_FOUR, "@%p2 st.shared.f32 [%r7], %f1;" + OF_FOUR),
    "global memory": ("st.global.f32 [%d7], %f1;", "@%p2 st.global.f32 [%d7], %f1;", "@%p5 st.global.f32 [%d7], %f1;"),
    "replicas in two warps": (
        "mul.wide.u32 %d8, %r2, 4; add.s64 %d8, %d1, %d8; ld.global.f32 %f1, [%d8]; st.shared.f32 [%r4], %f1; bar.sync 0; ld.shared.f32 %f2, [%r4]; st.global.f32 [%d5], %f2;",
        "setp.eq.u32 %p7, %r1, 0; @%p7 st.shared.f32 [%r4], %f1; bar.sync 0; ld.shared.f32 %f2, [%r4]; st.global.f32 [%d5], %f2;",
        "setp.eq.u32 %p7, %r1, 32; @%p7 st.shared.f32 [%r4], %f1; bar.sync 0; ld.shared.f32 %f2, [%r4]; st.global.f32 [%d5], %f2;",
    ),
    "a store beside it behind a barrier": (
        "st.shared.f32 [%r5], %f1; bar.sync 0; @%p1 st.shared.f32 [%r5+4], %f3; bar.sync 0; ld.shared.f32 %f2, [%r5]; st.global.f32 [%d5], %f2;",
        "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p3 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "stores whose distance differs between lanes": (
        "shr.u32 %r8, %r2, 4; mad.lo.u32 %r8, %r8, 4, %r5; xor.b32 %r9, %r8, 4; st.shared.f32 [%r8], %f1; st.shared.f32 [%r9+8], %f3;" + OF_WARP,
        "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "a barrier of the warp": (
        "st.shared.f32 [%r5], %f1; bar.warp.sync -1; ld.shared.f32 %f2, [%r5]; st.global.f32 [%d5], %f2;",
        "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "behind a barrier after a branch that parted lanes": (
        "@%p6 bra S; mov.f32 %f3, %f3; S: bar.sync 0; st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "a load beside it": (
        "st.shared.f32 [%r5], %f1; ld.shared.f32 %f2, [%r5+4];" + OF_WARP,
        "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "a word of two halves": (
        "mov.b32 {%h1, %h2}, %f1; mov.b32 %r8, {%h2, %h1}; st.shared.b32 [%r5], %r8;" + OF_WARP,
        "mov.b32 {%h1, %h2}, %f1; mov.b32 %r8, {%h2, %h1}; @%p2 st.shared.b32 [%r5], %r8;" + OF_WARP,
        "mov.b32 {%h1, %h2}, %f1; mov.b32 %r8, {%h1, %h2}; @%p2 st.shared.b32 [%r5], %r8;" + OF_WARP,
    ),
    "vectors of two": (
        "st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
        OF_LANE.format(16) + "@%p7 st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
        "@%p2 st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
    ),
    "vectors of two in the lower half of a warp": (
        "@%p6 st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
        "@%p2 st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
        OF_LANE.format(15) + "@%p7 st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
    ),
    "vectors of four": (
        "st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3};" + SECOND,
        OF_LANE.format(24) + "@%p7 st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3};" + SECOND,
        OF_LANE.format(16) + "@%p7 st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3};" + SECOND,
    ),
    "vectors of four in the lower half of a warp": (
        "@%p6 st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3};" + SECOND,
        OF_LANE.format(8) + "@%p7 st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3};" + SECOND,
        "@%p2 st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3};" + SECOND,
    ),
    "vectors of four at two places": (
        "and.b32 %r8, %r1, 1; mad.lo.u32 %r8, %r8, 32, %r5; st.shared.v4.f32 [%r8+128], {%f1, %f3, %f3, %f3}; bar.sync 0; ld.shared.f32 %f2, [%r8+128]; st.global.f32 [%d5], %f2;",
        "and.b32 %r8, %r1, 1; mad.lo.u32 %r8, %r8, 32, %r5; or.b32 %r9, %r2, 1; setp.eq.u32 %p7, %r9, 25; @%p7 st.shared.v4.f32 [%r8+128], {%f1, %f3, %f3, %f3}; bar.sync 0; ld.shared.f32 %f2, [%r8+128]; st.global.f32 [%d5], %f2;",
        "and.b32 %r8, %r1, 1; mad.lo.u32 %r8, %r8, 32, %r5; setp.lt.u32 %p7, %r2, 2; @%p7 st.shared.v4.f32 [%r8+128], {%f1, %f3, %f3, %f3}; bar.sync 0; ld.shared.f32 %f2, [%r8+128]; st.global.f32 [%d5], %f2;",
    ),
    "vectors in global memory": (
        "mul.wide.u32 %d8, %r3, 8; add.s64 %d8, %d2, %d8; st.global.v2.f32 [%d8], {%f1, %f3};",
        OF_LANE.format(16) + "mul.wide.u32 %d8, %r3, 8; add.s64 %d8, %d2, %d8; @%p7 st.global.v2.f32 [%d8], {%f1, %f3};",
        "mul.wide.u32 %d8, %r3, 8; add.s64 %d8, %d2, %d8; @%p2 st.global.v2.f32 [%d8], {%f1, %f3};",
    ),
    "64 bits": (
        "mov.b64 %d8, {%f1, %f3}; st.shared.b64 [%r5], %d8;" + OF_WARP,
        OF_LANE.format(16) + "mov.b64 %d8, {%f1, %f3}; @%p7 st.shared.b64 [%r5], %d8;" + OF_WARP,
        "mov.b64 %d8, {%f1, %f3}; @%p5 st.shared.b64 [%r5], %d8;" + OF_WARP,
    ),
    "behind a barrier after a quotient": (
        "div.rn.f32 %f1, %f1, %f3; bar.sync 0; st.shared.f32 [%r5], %f1;" + OF_WARP,
        "div.rn.f32 %f1, %f1, %f3; @%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "div.rn.f32 %f1, %f1, %f3; @%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "behind a shuffle after a branch that parted lanes": (
        "@%p6 bra S; mov.f32 %f3, %f3; S: shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; st.shared.f32 [%r5], %f1;" + KEEP + OF_WARP,
        "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "behind a shuffle of a quotient": (
        "div.rn.f32 %f1, %f1, %f3; shfl.sync.idx.b32 %f2, %f1, 3, 31, -1; mul.f32 %f2, %f2, %f2; st.shared.f32 [%r5], %f1;" + KEEP + OF_WARP,
        "div.rn.f32 %f1, %f1, %f3; @%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "div.rn.f32 %f1, %f1, %f3; @%p5 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
    "sums in another order of the lanes": (
        "shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; mul.f32 %f2, %f2, %f3; fma.rn.f32 %f1, %f1, %f1, %f2; st.shared.f32 [%r5], %f1;" + OF_WARP,
        "shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; mul.f32 %f2, %f2, %f3; fma.rn.f32 %f1, %f1, %f1, %f2; @%p2 st.shared.f32 [%r5], %f1;" + OF_WARP,
        "shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; mul.f32 %f2, %f2, %f3; fma.rn.f32 %f1, %f1, %f1, %f2; setp.eq.u32 %p7, %r2, 1; @%p7 st.shared.f32 [%r5], %f1;" + OF_WARP,
    ),
}  # fmt: skip
"""For each case the colliding stores, the same by the lanes that remain, and a mutant of these that keeps others."""

UNDETERMINED = {
    "two warps": "st.shared.f32 [%r4], %f1; bar.sync 0; ld.shared.f32 %f2, [%r4]; st.global.f32 [%d5], %f2;",
    "two warps in global memory": "st.global.f32 [%d2], %f1;",
    "vectors of two warps": "st.shared.v2.f32 [%r4], {%f1, %f3}; bar.sync 0; ld.shared.f32 %f2, [%r4]; st.global.f32 [%d5], %f2;",
    "vectors beside each other, which an assembler may join": "st.shared.v2.f32 [%r5], {%f1, %f3}; st.shared.v2.f32 [%r5+8], {%f3, %f3};"
    + OF_WARP,
    "a word beside a vector": "@%p2 st.shared.f32 [%r5+8], %f3; st.shared.v2.f32 [%r5], {%f1, %f3};" + OF_WARP,
    "vectors that a branch parted": "@%p6 bra S; mov.f32 %f1, %f3; S: st.shared.v4.f32 [%r5], {%f1, %f3, %f3, %f3};"
    + OF_WARP,
    "a lane that reads a word of its vector": "st.shared.v4.f32 [%r5], {%f3, %f1, %f3, %f3}; @%p5 ld.shared.f32 %f2, [%r5+4]; @%p5 st.global.f32 [%d5], %f2;",
    "stores beside each other, which an assembler may join": "mov.f32 %f2, %f1; st.shared.f32 [%r5], %f1; st.shared.f32 [%r5+4], %f3;"
    + OF_WARP,
    "the second of two stores beside each other": "st.shared.f32 [%r5+4], %f3; st.shared.f32 [%r5], %f1;" + OF_WARP,
    "a lowest lane that has stored beside it": "@%p2 st.shared.f32 [%r5+4], %f3; st.shared.f32 [%r5], %f1;" + OF_WARP,
    "a lowest lane that stores beside it": "st.shared.f32 [%r5], %f1; @%p2 st.shared.f32 [%r5+4], %f3;" + OF_WARP,
    "stores beside each other in global memory": "st.global.f32 [%d7], %f1; st.global.f32 [%d7+4], %f3;",
    "a lane that reads what it has stored": "st.shared.f32 [%r5], %f1; @%p5 ld.shared.f32 %f2, [%r5]; @%p5 st.global.f32 [%d5], %f2;",
    "a lane that reads what it has stored in global memory": "st.global.f32 [%d7], %f1; @%p5 ld.global.f32 %f2, [%d7]; @%p5 st.global.f32 [%d7+1024], %f2;",
    "a load of no stated memory": "st.global.f32 [%d7], %f1; @%p5 ld.f32 %f2, [%d7]; @%p5 st.global.f32 [%d7+1024], %f2;",
    "a store of no stated memory": "st.f32 [%d7], %f1;",
    "a store after many": "".join(f"@%p2 st.shared.f32 [%r5+{16 * place + 64}], %f3;" for place in range(30)) * 3
    + "st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "a barrier of a part of the warp": "st.shared.f32 [%r5], %f1; bar.warp.sync 1; @%p5 ld.shared.f32 %f2, [%r5]; @%p5 st.global.f32 [%d5], %f2;",
    "a strong store": "st.volatile.shared.f32 [%r5], %f1;" + OF_WARP,
    "two instructions": "@%p6 st.shared.f32 [%r5], %f1; @!%p6 st.shared.f32 [%r5], %f3;" + OF_WARP,
    "lanes that a branch parted": "@%p6 bra S; mov.f32 %f1, %f3; S: st.shared.f32 [%r5], %f1;" + OF_WARP,
    "lanes that have waited, each until it succeeded": "setp.eq.u32 %p7, %r1, 0; @%p7 mbarrier.init.shared.b64 [room+512], 64; bar.sync 0;"
    "mbarrier.arrive.shared.b64 _, [room+512]; W: mbarrier.try_wait.parity.shared.b64 %p8, [room+512], 0; @!%p8 bra W; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a barrier that need not be aligned": "@%p6 bra S; mov.f32 %f3, %f3; S: barrier.sync 0; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a barrier that a branch follows": "bar.sync 0; @%p6 bra S; mov.f32 %f3, %f3; S: st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a barrier of a warp": "@%p6 bra S; mov.f32 %f3, %f3; S: bar.warp.sync -1; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a barrier of some threads": "@%p6 bra S; mov.f32 %f3, %f3; S: bar.sync 1, 64; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a shuffle whose result nothing needs": "@%p6 bra S; mov.f32 %f3, %f3; S: shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a shuffle whose result only a sum takes that nothing needs": "div.rn.f32 %f1, %f1, %f3; shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1;"
    "add.f32 %f4, %f2, %f2; st.shared.f32 [%r5], %f1;" + OF_WARP,
    "behind a shuffle whose result a branch replaces": "@%p6 bra S; mov.f32 %f3, %f3; S: shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; st.shared.f32 [%r5], %f1;"
    "@%p6 bra T; mov.f32 %f2, %f3; T: @%p6 mov.f32 %f2, %f1; mov.f32 %f2, %f1;" + KEEP + OF_WARP,
    **{
        f"behind a shuffle of which {name} leaves nothing": "@%p6 bra S; mov.f32 %f3, %f3; S: shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; "
        f"st.shared.f32 [%r5], %f1; {{ .reg .b32 %x, %y, %z; mov.b32 %x, %f2; mov.b32 %y, %f1; {use} mov.b32 %f2, %z; }}"
        + KEEP
        + OF_WARP
        for name, use in {
            "a mask": "and.b32 %z, %x, 0;",
            "a difference from itself": "sub.u32 %z, %x, %x;",
            "its difference from a sum": "add.u32 %z, %y, %x; sub.u32 %z, %z, %x;",
            "a product with 0": "mad.lo.u32 %z, %x, 0, %y;",
            "a choice of bytes": "prmt.b32 %z, %y, %x, 0x3210;",
            "a function of other bits": "lop3.b32 %z, %y, %x, %x, 0xf0;",
            "a known side": "setp.eq.u32 %p7, %r1, %r1; selp.b32 %z, 7, %x, %p7;",
        }.items()
    },
    "behind a shuffle of a number": "@%p6 bra S; mov.f32 %f3, %f3; S: shfl.sync.bfly.b32 %f2, %f3, 1, 31, -1; st.shared.f32 [%r5], %f1;"
    + KEEP
    + OF_WARP,
    "behind a shuffle from the own lane": "@%p6 bra S; mov.f32 %f3, %f3; S: shfl.sync.bfly.b32 %f2, %f1, 0, 31, -1; st.shared.f32 [%r5], %f1;"
    + KEEP
    + OF_WARP,
    "behind a shuffle of half of the lanes": "@%p6 bra S; shfl.sync.bfly.b32 %f2, %f1, 1, 31, 0xffff0000; S: st.shared.f32 [%r5], %f1;"
    + KEEP
    + OF_WARP,
    "behind a shuffle that a branch follows": "shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; @%p6 bra S; mov.f32 %f3, %f2; S: st.shared.f32 [%r5], %f1;"
    + KEEP
    + OF_WARP,
    "behind a quotient, which an assembler may branch for": "div.rn.f32 %f1, %f1, %f3; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a root that another barrier precedes": "bar.sync 0; sqrt.rn.f32 %f1, %f1; st.shared.f32 [%r5], %f1;"
    + OF_WARP,
    "behind a quotient of 64 bits": "cvt.u64.u32 %d8, %r1; div.u64 %d8, %d4, %d8; st.shared.f32 [%r5], %f1;" + OF_WARP,
    "behind an atomic operation": "atom.shared.add.u32 %r8, [%r4+512], 1; st.shared.f32 [%r5], %f1;" + OF_WARP,
    "lanes inside a branch": "@%p6 bra S; st.shared.f32 [%r5], %f1; S:" + OF_WARP,
    "a condition on data": "setp.gt.f32 %p7, %f1, %f3; @%p7 st.shared.f32 [%r5], %f1;" + OF_WARP,
    "a read before the barrier": "st.shared.f32 [%r5], %f1; ld.shared.f32 %f2, [%r5]; st.global.f32 [%d5], %f2;",
    "a read before the barrier, on one side of a branch that blocks take": ON_DATA
    + "st.shared.f32 [%r5], %f1; @%p7 bra A; @%p5 ld.shared.f32 %f2, [%r5]; @%p5 st.global.f32 [%d5], %f2; bra J; A: bar.sync 0; ld.shared.f32 %f2, [%r5]; J: ret;",
    "stores on one side of a branch that blocks take, and a store beside them": ON_DATA
    + "@%p7 bra J; st.shared.f32 [%r5], %f1; J: @%p2 st.shared.f32 [%r5+4], %f3;"
    + OF_WARP,
    "two warps of which each has a lowest lane": "st.shared.f32 [%r4+128], %f1; bar.sync 0; ld.shared.f32 %f2, [%r4+128]; st.global.f32 [%d5], %f2;",
}

EQUAL_VALUES = "st.shared.f32 [%r5], %f3; st.shared.f32 [%r5+4], %f3;" + OF_WARP

MEASURED = Options(audit_contraction=False)
REQUESTED = Options(assume=frozenset({LOWEST_LANE}), audit_contraction=False)
DOCUMENTED = Options(assume=frozenset({ANY_LANE}), audit_contraction=False)
UNMEASURED = replace(SM90, lowest_lane=None)
"""An architecture of which it is not known which lane's value remains."""


def one_block(body: str, name: str = "k", blocks: int = 1) -> Source:
    arguments = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in "ab")
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=arguments)
    return Source(name, HEAD + body + "\nret;\n}\n", launch)


def verdict(left: str, right: str, options: Options, arch: Arch = SM90) -> Verdict:
    sources = one_block(left, "left"), one_block(right, "right")
    return search_verdict(*sources, arch, options, compare(*sources, arch, options), 5)


@pytest.mark.parametrize("case", CASES)
def test_the_lowest_lane_remains_where_it_was_measured_or_requested(case: str) -> None:
    collides, lowest, _ = CASES[case]
    assert SM90.lowest_lane is not None
    found = verdict(collides, lowest, MEASURED)
    assert (found.outcome, found.conditions) == (Outcome.EQUAL, ())
    assert SM90.lowest_lane in found.notes
    assert SM90.lowest_lane not in verdict(lowest, lowest, MEASURED).notes
    for arch in (SM90, UNMEASURED):
        found = verdict(collides, lowest, REQUESTED, arch)
        assert (found.outcome, found.conditions) == (Outcome.EQUAL, (LOWEST_LANE,))
        assert SM90.lowest_lane not in found.notes
        assert CONDITIONS[LOWEST_LANE] in str(found)
    assert verdict(collides, lowest, DOCUMENTED).outcome is Outcome.UNKNOWN
    assert verdict(collides, lowest, MEASURED, UNMEASURED).outcome is Outcome.UNKNOWN


def test_one_of_both_assumptions() -> None:
    with pytest.raises(ValueError, match="any-lane and lowest-lane exclude each other"):
        Options(assume=frozenset({ANY_LANE, LOWEST_LANE}))


@pytest.mark.parametrize("case", CASES)
def test_another_lane_is_different(case: str) -> None:
    collides, _, mutant = CASES[case]
    found = verdict(collides, mutant, MEASURED)
    assert found.outcome is Outcome.DIFFERENT
    assert found.counterexample is not None
    assert SM90.lowest_lane in found.counterexample.notes


def test_classes_and_determinism() -> None:
    sources = [one_block(each, f"{case} {place}") for case, three in CASES.items() for place, each in enumerate(three)]
    colliding = [each.name for each in sources if each.name.endswith("0")]
    plain, measured = (partition(sources, "sm_90", options, workers=1) for options in (DOCUMENTED, MEASURED))
    assert set(plain.unknown) == set(colliding)
    assert not measured.unknown
    assert SM90.lowest_lane in measured.notes
    report = determinism(sources[::3], "sm_90", DOCUMENTED, workers=1)
    for each in report.kernels:
        assert each.outcome is Determinism.NONDETERMINISTIC
        assert "--assume lowest-lane" in each.reason
    assert determinism(sources[::3], "sm_90", MEASURED, workers=1).count(Determinism.DETERMINISTIC) == len(CASES)


@pytest.mark.parametrize("case", UNDETERMINED)
def test_nothing_else_is_assumed(case: str) -> None:
    kernel = one_block(UNDETERMINED[case])
    for options in (DOCUMENTED, REQUESTED, MEASURED):
        (found,) = determinism([kernel], "sm_90", options, workers=1).kernels
        assert found.outcome is not Determinism.DETERMINISTIC
    assert "lowest-lane" not in found.reason


def test_equal_values_need_no_assumption_and_lose_nothing_by_it() -> None:
    for options in (DOCUMENTED, MEASURED):
        (found,) = determinism([one_block(EQUAL_VALUES)], "sm_90", options, workers=1).kernels
        assert found.outcome is Determinism.DETERMINISTIC


@pytest.mark.parametrize("case", CASES)
def test_executions_on_bit_patterns_keep_the_lowest_lane(case: str) -> None:
    given = np.random.default_rng(2).normal(size=THREADS).astype(np.float32).view(np.uint8)
    contents = {"a": given, "b": np.zeros(4 * THREADS, np.uint8)}
    collides, lowest, other = (prepare(one_block(each), SM90, MEASURED) for each in CASES[case])
    expected = simulate(lowest, contents).after["b"].tobytes()
    assert simulate(collides, contents).after["b"].tobytes() == expected
    assert simulate_in_one_order(collides, contents).after["b"].tobytes() == expected
    assert simulate(other, contents).after["b"].tobytes() != expected


def test_a_barrier_of_the_block_joins_lanes_in_every_order() -> None:
    """Lanes that a loop has parted are together again behind it, also where the warps run one after another."""
    parted = "and.b32 %r8, %r1, 7; TURN: sub.u32 %r8, %r8, 1; setp.gt.s32 %p7, %r8, 0; @%p7 bra TURN;"
    given = np.random.default_rng(3).normal(size=THREADS).astype(np.float32).view(np.uint8)
    contents = {"a": given, "b": np.zeros(4 * THREADS, np.uint8)}
    collides, lowest, _ = CASES["all lanes"]
    expected = simulate(prepare(one_block(lowest), SM90, MEASURED), contents).after["b"].tobytes()
    joined = prepare(one_block(f"{parted} bar.sync 0; {collides}"), SM90, MEASURED)
    assert [run_in_order(joined, contents, each).after["b"].tobytes() == expected for each in ORDERS] == [True] * 4
    apart = prepare(one_block(f"{parted} bar.warp.sync -1; {collides}"), SM90, MEASURED)
    assert len({run_in_order(apart, contents, each).after["b"].tobytes() for each in ORDERS}) > 1


def test_nothing_is_promised_for_every_launch() -> None:
    text = (HEAD + CASES["all lanes"][0] + "\nret;\n}\n").replace(".param .u64 ", ".param .u64 .ptr .global .align 16 ")
    every = Options(every_launch=True, audit_contraction=False)
    found = [
        compare(Source("k", text), Source("k", text), SM90, each).verdict
        for each in (every, Options(every_launch=True, assume=frozenset({LOWEST_LANE}), audit_contraction=False))
    ]
    assert [each.outcome for each in found] == [Outcome.UNKNOWN] * 2
    assert "different values to one address" in found[0].reason
    assert "--assume lowest-lane" not in found[0].reason + found[1].reason


def test_what_has_no_effect_may_collide() -> None:
    """Lanes collide beside another store, and nothing reads what they leave."""
    body = "st.shared.f32 [%r5], %f1; st.shared.f32 [%r5+4], %f3; bar.sync 0; st.global.f32 [%d5], %f1;"
    for options in (DOCUMENTED, MEASURED):
        (found,) = determinism([one_block(body)], "sm_90", options, workers=1).kernels
        assert found.outcome is Determinism.DETERMINISTIC
    assert SM90.lowest_lane not in compare(one_block(body), one_block(body), SM90, MEASURED).verdict.notes


def test_a_block_that_ends_early_keeps_no_store_of_others_from_passing_a_barrier() -> None:
    ends = "mov.u32 %r9, %ctaid.x; setp.eq.u32 %p7, %r9, {}; @%p7 bra E; "
    end = "\nE: mov.u32 %r9, 0;"

    def outcome(first: str, second: str) -> Outcome:
        sources = one_block(first, "a.ptx", 3), one_block(second, "b.ptx", 3)
        return compare(*sources, SM90, MEASURED).verdict.outcome

    for block in (0, 1, 2):
        before = ends.format(block)
        colliding = before + "st.shared.f32 [%r5], %f1;" + OF_WARP + end
        assert outcome(colliding, before + "@%p2 st.shared.f32 [%r5], %f1;" + OF_WARP + end) is Outcome.EQUAL
        assert outcome(colliding, before + "@%p5 st.shared.f32 [%r5], %f1;" + OF_WARP + end) is not Outcome.EQUAL
        unordered = before + "st.shared.f32 [%r5], %f1;" + OF_WARP.replace("bar.sync 0;", "") + end
        assert outcome(unordered, unordered) is not Outcome.EQUAL
