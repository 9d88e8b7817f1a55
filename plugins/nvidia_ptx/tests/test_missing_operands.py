"""An instruction without some of its operands is not modelled, in a sentence, and no internal error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import bitwise_core as bitwise
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.plugins import registry
from ptx_programs import text as text_of

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

SAMPLES = Path(__file__).parents[2] / "nvidia_sm90" / "tests" / "samples" / "sm_90"
FILES = ("row_sum/row_sum_1.ptx", "paged_sum/paged_sum_2.ptx", "rotate/rotate_1.ptx")


def shortened(text: str) -> list[str]:
    """The text with the first instruction of each form, once without its last operand and once without any."""
    lines, seen = text.split("\n"), set()
    found: list[str] = []
    for number, line in enumerate(lines):
        words = line.strip().rstrip(";").split(None, 1)
        if not line.strip().endswith(";") or len(words) < 2 or words[0].startswith((".", "@", "{", "//")):
            continue
        opcode, operands = words
        if opcode in seen:
            continue
        seen.add(opcode)
        fewer = {operands.rpartition(",")[0], ""}
        found += ["\n".join([*lines[:number], f"{opcode} {kept};", *lines[number + 1 :]]) for kept in sorted(fewer)]
    return found


@pytest.mark.parametrize("file", FILES)
def test_missing_operands(file: str) -> None:
    source = read_kernel(str(SAMPLES / file))
    texts = shortened(source.text)
    assert len(texts) > 20
    for text in texts:
        with suppress(bitwise.BitwiseError):
            found = bitwise.partition([bitwise.Source(source.name, text, source.launch)], cache=False, workers=1)
            assert "internal error" not in "".join(found.unknown.values())


SHORTEST = """
    mov.b32 %r1, %r2; add.s32 %r1, %r2, %r3; sub.f32 %r1, %r2, %r3; mul.lo.s32 %r1, %r2, %r3; div.s32 %r1, %r2, %r3;
    rem.s32 %r1, %r2, %r3; mad.lo.s32 %r1, %r2, %r3, %r4; fma.rn.f32 %r1, %r2, %r3, %r4; sad.s32 %r1, %r2, %r3, %r4;
    addc.u32 %r1, %r2, %r3; madc.lo.u32 %r1, %r2, %r3, %r4; dp4a.s32.s32 %r1, %r2, %r3, %r4;
    neg.s32 %r1, %r2; abs.s32 %r1, %r2; min.s32 %r1, %r2, %r3; max.f32 %r1, %r2, %r3; copysign.f32 %r1, %r2, %r3;
    and.b32 %r1, %r2, %r3; or.b32 %r1, %r2, %r3; xor.b32 %r1, %r2, %r3; not.b32 %r1, %r2; cnot.b32 %r1, %r2;
    shl.b32 %r1, %r2, %r3; shr.u32 %r1, %r2, %r3; shf.l.wrap.b32 %r1, %r2, %r3, %r4; prmt.b32 %r1, %r2, %r3, %r4;
    lop3.b32 %r1, %r2, %r3, %r4, 1; bfe.u32 %r1, %r2, %r3, %r4; bfi.b32 %r1, %r2, %r3, %r4, %r5;
    popc.b32 %r1, %r2; clz.b32 %r1, %r2; brev.b32 %r1, %r2; bfind.u32 %r1, %r2; fns.b32 %r1, %r2, %r3, %r4;
    cvt.rn.f32.s32 %r1, %r2; setp.lt.s32 %p1, %r2, %r3; set.lt.u32.s32 %r1, %r2, %r3; selp.b32 %r1, %r2, %r3, %p1;
    ex2.approx.f32 %r1, %r2; lg2.approx.f32 %r1, %r2; rcp.rn.f32 %r1, %r2; rsqrt.approx.f32 %r1, %r2;
    sqrt.rn.f32 %r1, %r2; sin.approx.f32 %r1, %r2; cos.approx.f32 %r1, %r2; tanh.approx.f32 %r1, %r2;
    testp.finite.f32 %p1, %r2; shfl.sync.idx.b32 %r1, %r2, 0, 31, -1; mul24.lo.s32 %r1, %r2, %r3;
    mad24.lo.s32 %r1, %r2, %r3, %r4; dp2a.lo.s32.s32 %r1, %r2, %r3, %r4;
    ld.global.b32 %r1, [%d5]; ldu.global.b32 %r1, [%d5]; st.global.b32 [%d5], %r1;
"""
"""One instruction of each opcode that states its least number of operands."""
NOT_MODELLED = {"cnot", "mul24", "mad24", "dp2a"}


def test_the_least_numbers_of_operands_are_those_of_the_semantics() -> None:
    arch = registry.default().arch("sm_90")
    module = arch.parse(text_of(SHORTEST), "shortest.ptx")
    kernel, opcodes = module.kernels[0], arch.opcodes.opcodes
    context, stated = Context(module, kernel, arch), {name for name, each in opcodes.items() if each.least}
    for instruction in kernel.instructions:
        name = instruction.opcode.partition(".")[0]
        if name not in stated:
            continue
        stated.discard(name)
        least, build = opcodes[name].least, opcodes[name].build
        if name in NOT_MODELLED:
            continue
        build(replace(instruction, operands=instruction.operands[:least]), context)
        with pytest.raises((UnknownInstruction, IndexError, ValueError)):
            build(replace(instruction, operands=instruction.operands[: least - 1]), context)
        with pytest.raises(UnknownInstruction, match=f"{least - 1} operands instead of {least} or more"):
            arch.opcodes.build(replace(instruction, operands=instruction.operands[: least - 1]), context)
    assert not stated
