"""Instructions with missing, additional and foreign suffixes and operands: Unknown, never another error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import ARCH, run, text

BODY = """
    mov.b32 %r1, %r0; mov.b32 %r1, {%h1, %h2}; mov.b64 {%r1, %r2}, %d5; add.s32 %r1, %r0, %r0;
    mad.lo.u32 %r1, %r0, %r0, %r0; add.cc.u32 %r1, %r0, %r0; madc.hi.u32 %r1, %r0, %r0, %r0; div.u32 %r1, %r0, %r0;
    min.s32 %r1, %r0, %r0; shl.b32 %r1, %r0, %r0; shr.s64 %d6, %d5, %r0; bfe.u32 %r1, %r0, %r0, %r0;
    bfi.b64 %d6, %d5, %d5, %r0, %r0; shf.l.wrap.b32 %r1, %r0, %r0, %r0; popc.b32 %r1, %r0;
    bfind.shiftamt.u32 %r1, %r0; copysign.f32 %f1, %f2, %f3; sad.u32 %r1, %r0, %r0, %r0;
    dp4a.u32.s32 %r1, %r0, %r0, %r0; and.b32 %r1, %r0, %r0; not.pred %p1, %p2; lop3.b32 %r1, %r0, %r0, %r0, 0x96;
    prmt.b32 %r1, %r0, %r0, %r0; add.rn.f32 %f1, %f2, %f3; fma.rn.relu.f16x2 %r1, %r2, %r3, %r4;
    div.full.f32 %f1, %f2, %f3; rcp.rn.f64 %g1, %g2; ex2.approx.ftz.f32 %f1, %f2; max.NaN.f32 %f1, %f2, %f3;
    neg.f16 %h1, %h2; min.xorsign.abs.f32 %f1, %f2, %f3; testp.normal.f32 %p1, %f1;
    setp.lt.and.f32 %p1|%p2, %f1, %f2, %p3; set.lt.u32.f32 %r1, %f1, %f2; selp.b32 %r1, %r2, %r3, %p1;
    cvt.rzi.s32.f32 %r1, %f1; cvt.u64.u32 %d5, %r1; cvt.rn.f16x2.f32 %r1, %f1, %f2;
    cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r4; redux.sync.add.s32 %r1, %r0, 0xffffffff;
    shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 31, 0xffffffff; vote.sync.any.pred %p1, %p2, 0xffffffff;
    elect.sync %r1|%p1, 0xffffffff;
"""
MODULE = ARCH.parse(text(BODY), "k.ptx")
INSTRUCTIONS = MODULE.kernels[0].instructions[3:-1]
CONTEXT = Context(MODULE, MODULE.kernels[0], ARCH)
SUFFIXES = sorted({part for each in INSTRUCTIONS for part in each.opcode.split(".")[1:]})
FOREIGN = (*SUFFIXES, "", "foo", "s7", "u128", "b8", "x2", "f8", "rz", "lo", "xor")


def changed(instruction: Instruction, random: Random) -> Iterator[Instruction]:
    name, *suffixes = instruction.opcode.split(".")
    operands = instruction.operands
    for place in range(len(suffixes)):
        for other in ((), (random.choice(FOREIGN),), (random.choice(FOREIGN),), (suffixes[place],) * 2):
            opcode = ".".join((name, *suffixes[:place], *other, *suffixes[place + 1 :]))
            yield replace(instruction, opcode=opcode)
    yield replace(instruction, opcode=name)
    for place in range(len(operands)):
        yield replace(instruction, operands=operands[:place] + operands[place + 1 :])
        yield replace(instruction, operands=operands[: place + 1] + operands[place:])
    yield replace(instruction, operands=())


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=[each.opcode for each in INSTRUCTIONS])
def test_a_changed_instruction_is_built_or_unknown(instruction: Instruction, monkeypatch: pytest.MonkeyPatch) -> None:
    # The search for the nearest name of an unknown operation takes most of the time of this test.
    monkeypatch.setattr("bitwise_core.numerics.operations.get_close_matches", lambda *_: [])
    ARCH.opcodes.build(instruction, CONTEXT)
    refused = 0
    for each in changed(instruction, Random(instruction.opcode)):
        try:
            ARCH.opcodes.build(each, CONTEXT)
        except UnknownInstruction:
            refused += 1
    assert refused >= 3


@pytest.mark.parametrize(
    "line",
    [
        "shl.f32 %r1, %r0, 1;",
        "shl.wrap.b32 %r1, %r0, 1;",
        "shr.b8 %r1, %r0, 1;",
        "and.f32 %r1, %r0, %r0;",
        "and.b32 %r1, %r0;",
        "selp.pred %p1, %p1, %p1, %p1;",
        "setp.eq.or.and.u32 %p1, %r0, %r0, %p1;",
        "setp.lo.s32 %p1, %r0, %r0;",
        "mov.b32 {%h1, %h2, %h3}, %r0;",
        "mov.foo %r1, %r0;",
        "fma.rz.bf16 %h1, %h2, %h3, %h4;",
        "fma.f32 %f1, %f2, %f3, %f4;",
        "rcp.rn.ftz.f64 %g1, %g2;",
        "cvt.rn.s32.s64 %r1, %d5;",
        "redux.sync.and.u32 %r1, %r0, 0xffffffff;",
        "neg.u32 %r1, %r0;",
        "st.global.b2 [%d5], %r0;",
        "st.global.b12 [%d5], %r0;",
        "ld.global.u4 %r1, [%d5];",
        "mov.b0 %r1, %r0;",
        "setp.eq.s24 %p1, %r0, %r0;",
    ],
)
def test_a_form_that_ptx_does_not_define_is_unknown(line: str) -> None:
    with pytest.raises(Unsupported, match=line.split()[0]):
        run(line)
