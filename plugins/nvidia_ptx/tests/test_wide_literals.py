# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Literals of 64 bits as operands of fp32: the assembler rounds them, and so does the parser."""

from __future__ import annotations

import random

import pytest

from bitwise_core.assembly.module import AssemblyError, Immediate, Vector
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.text.parser import parse
from bitwise_nvidia_ptx.text.wide_literals import rounded
from ptx_programs import hashes, store, text

PTXAS = Ptxas.locate("sm_90a")
LOADS = "mul.wide.u32 %d4, %r0, 8; add.s64 %d4, %d0, %d4; ld.global.b32 %r1, [%d1]; mov.b32 %f1, %r1; ld.global.b64 %d2, [%d1+8]; mov.b64 %g1, %d2; setp.eq.u32 %p1, %r1, 5;"
ROUNDED = {
    "add": "add.rn.f32 %f2, %f1, {};", "comparison": "setp.gt.f32 %p2, %f1, {}; selp.f32 %f2, %f1, 0f00000000, %p2;",
    "choice": "selp.f32 %f2, %f1, {}, %p1;", "choice by a sign": "slct.f32.s32 %f2, %f1, {}, %r1;",
    "sign of a choice": "slct.f64.f32 %g2, %g1, %g1, {}; cvt.rn.f32.f64 %f2, %g2;", "store": "mov.f32 %f2, %f1; st.global.f32 [%d4+256], {};",
    "stores": "mov.f32 %f2, %f1; st.global.v2.f32 [%d4+256], {{{}, %f1}};", "conversion": "cvt.rn.f16.f32 %h1, {}; cvt.f32.f16 %f2, %h1;",
    "conversion to fp64": "cvt.f64.f32 %g2, {}; cvt.rn.f32.f64 %f2, %g2;", "pair": "cvt.rn.bf16x2.f32 %r2, %f1, {}; mov.b32 %f2, %r2;",
    "approximation": "ex2.approx.f32 %f2, {};", "update": "mov.f32 %f2, %f1; red.global.add.f32 [%d0+64], {};",
    "move": "mov.f32 %f2, {};", "other comparison": "set.gt.u32.f32 %r2, %f1, {}; mov.b32 %f2, %r2;",
}  # fmt: skip
KEPT = {
    "add": "add.rn.f64 %g2, %g1, {}; cvt.rn.f32.f64 %f2, %g2;", "choice by a sign": "slct.f64.f32 %g2, %g1, {}, %f1; cvt.rn.f32.f64 %f2, %g2;",
    "conversion": "cvt.rn.f32.f64 %f2, {};", "comparison": "set.gt.f32.f64 %f2, %g1, {};", "move of bits": "mov.b64 %d3, {}; mov.b64 {{%r2, %r3}}, %d3; xor.b32 %r2, %r2, %r3; mov.b32 %f2, %r2;",
}  # fmt: skip
REFUSED = (
    "add.rn.f16 %h1, %h1, 1.5;", "mov.b32 %r2, 1.5;", "add.s32 %r2, %r1, 1.5;", "mov.b32 %r2, {%h1, 1.5};",
    "mov.b64 %d3, {%r1, 0d3FF8000000000000};", "cvt.rn.f32.s32 %f2, 1.5;", "st.global.b32 [%d0], 1.5;",
)  # fmt: skip


def kernel(body: str, literal: str) -> str:
    return text(LOADS + body.format(literal) + store("%f2", 32))


@pytest.mark.parametrize("name", ROUNDED)
def test_a_literal_of_64_bits_is_rounded_where_the_operand_is_fp32(name: str) -> None:
    """1.2 is 0f3F99999A, and its lower half as fp64 is 0x33333333."""
    body = LOADS + ROUNDED[name] + store("%f2", 32)
    decimal, pattern = body.format("1.2"), body.format("0f3F99999A")
    if not name.startswith(("update", "choice by", "sign of")):  # atomic sums and slct have no result here
        assert (
            hashes(decimal)
            == hashes(body.format("0d3FF3333333333333"))
            == hashes(pattern)
            != hashes(body.format("2.2"))
        )
    assert PTXAS.digest(text(decimal)) == PTXAS.digest(text(pattern))
    assert [each.operands for each in parse(text(decimal), "a").kernels[0].instructions] == [
        each.operands for each in parse(text(pattern), "b").kernels[0].instructions
    ]


@pytest.mark.parametrize("name", KEPT)
def test_a_literal_of_64_bits_is_kept_where_the_operand_has_64_bits(name: str) -> None:
    decimal, pattern = kernel(KEPT[name], "1.2"), kernel(KEPT[name], "0d3FF3333333333333")
    assert PTXAS.digest(decimal) == PTXAS.digest(pattern)
    assert Immediate(0x3FF3333333333333, "f64") in {
        operand for each in parse(decimal, "a").kernels[0].instructions for operand in each.operands
    }


@pytest.mark.parametrize("instruction", REFUSED)
def test_a_literal_of_64_bits_of_another_type_is_an_error(instruction: str) -> None:
    with pytest.raises(AssemblyError, match="takes no literal of fp64"):
        parse(text(instruction), "k.ptx")


def test_literals_are_rounded_as_the_assembler_rounds_them() -> None:
    dice = random.Random(11)
    edges = (
        0x36A0000000000000, 0x3690000000000000, 0x3690000000000001, 0x380FFFFFFFFFFFFF, 0x47EFFFFFEFFFFFFF, 0x47EFFFFFF0000000,
        0x7FF0000000000001, 0xFFF8000000000001, 0x7FFC000000000000, 0x7FF0000020000000, 0x3FF0000010000000, 0x3FF0000030000000,
    )  # fmt: skip
    for bits in (*edges, *(dice.choice((0x36, 0x3F, 0x47)) << 56 | dice.getrandbits(56) for _ in range(4))):
        body = "selp.f32 %f2, %f1, {}, %p1;"
        assert PTXAS.digest(kernel(body, f"0d{bits:016X}")) == PTXAS.digest(kernel(body, f"0f{rounded(bits):08X}")), (
            hex(bits)
        )


def test_a_vector_that_is_stored_keeps_its_registers() -> None:
    (*_, stored, _) = parse(text("st.global.v2.f32 [%d0], {1.5, %f1};"), "k.ptx").kernels[0].instructions
    vector = stored.operands[1]
    assert isinstance(vector, Vector)
    assert vector.items[0] == Immediate(0x3FC00000, "f32")
