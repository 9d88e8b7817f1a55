"""Conversions of single bytes, as numbers with a sign, to floats: what ptxas makes of them returns the same numbers."""

from __future__ import annotations

import re

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Register
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_nvidia_ptx.assembler_choices.sources import LOAD, Sources

_CONVERTED = re.compile(r"cvt\.rn\.(f16|bf16|f32)\.s(16|32)")
_NARROWED = re.compile(r"cvt\.u16\.u32|cvt\.s16\.s32")
_EXTENSIONS = frozenset({0x8880, 0x9991, 0xAAA2, 0xBBB3})
"""Permutations that extend the sign of one byte."""


def conversions_of_bytes(kernel: Kernel, opcodes: OpcodeTable, sources: Sources) -> frozenset[int]:
    """Return the identities of conversions of one byte of a number, as one with a sign, to a float.

    A permutation or a conversion to 8 bits extends the sign.  The machine code of ptxas 12.8 converts a number with a
    sign, whatever precedes and follows (`python -m bitwise_bench.assembler.extended_bytes`).  Instructions between are
    among them where nothing else reads what they write.
    """
    chains = [(each, _chain_to_byte(each, sources)) for each in kernel.instructions]
    found = {id(each) for each, chain in chains if chain is not None}
    between = {id(each) for _, chain in chains if chain is not None for each in chain}
    if between:
        for each, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
            if id(each) not in found:
                for name in info.reads:
                    between -= {id(made) for made in sources.defined(Register(name), each)}
    return frozenset(found | between)


def _is_literal_move(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("mov.") and isinstance(instruction.operands[-1], Immediate)


def _chain_to_byte(instruction: Instruction, sources: Sources) -> list[Instruction] | None:
    """Return the instructions between a conversion to a float and the one that extends the sign of a byte, with that
    one if it is a conversion; None if the conversion is of anything else.
    """
    if _CONVERTED.fullmatch(instruction.opcode) is None or instruction.guard is not None:
        return None
    chain: list[Instruction] = []
    made, operand = instruction, instruction.operands[-1]
    while isinstance(operand, Register):
        found = list(sources.defined(operand, made))
        if len(found) != 1 or found[0].guard is not None:
            return None
        made = found[0]
        if made.opcode == "prmt.b32":
            selector = made.operands[-1]
            return chain if isinstance(selector, Immediate) and selector.value in _EXTENSIONS else None
        if made.opcode == "cvt.s8.s32":
            loads = (
                LOAD.match(each.opcode) or _is_literal_move(each) for each in sources.defined(made.operands[-1], made)
            )
            return [*chain, made] if all(loads) else None
        if _NARROWED.fullmatch(made.opcode) is None:
            return None
        chain.append(made)
        operand = made.operands[-1]
    return None
