"""What a constant in the text means to an operand of a type: inline constants and literals of 32 bits.

Source: AMD Instinct MI300 ISA, "Scalar and vector operands: inline constants"; LLVM's AMDGPU operand syntax.
"""

from __future__ import annotations

import struct

from bitwise_core.assembly.module import Immediate, Instruction
from bitwise_core.execution.architecture import UnknownInstruction

BITS = {"b1": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64}
"""The width of an operand's type."""

_TURN = 0x3FC45F306DC9C882
_NARROW_TURN = {16: 0x3118, 32: 0x3E22F983}
_PACKING = {16: "<e", 32: "<f", 64: "<d"}


def pattern(immediate: Immediate, kind: str, instruction: Instruction) -> int:
    """The bits that a constant gives an operand of that type (fp32, b64, ...).  Raises UnknownInstruction."""
    bits = BITS[kind]
    if immediate.kind == "f64":
        if kind in ("b8", "b16"):
            raise UnknownInstruction(instruction, "has a number with a point for an integer of 16 bits")
        if immediate.value == _TURN:
            return _TURN if bits == 64 else _NARROW_TURN[bits]
        number = struct.unpack("<d", immediate.value.to_bytes(8, "little"))[0]
        return int.from_bytes(struct.pack(_PACKING[bits], number), "little")
    value = immediate.value
    inline = -16 <= value <= 64
    if kind == "fp64" and not inline and -(1 << 31) <= value < 1 << 32:
        return (value & 0xFFFFFFFF) << 32  # a literal is the high half of such a number
    if bits == 64 and not inline and not 0 <= value < 1 << 31:
        raise UnknownInstruction(instruction, f"has the literal {value:#x} for 64 bits, which is not modelled")
    if not inline and not -(1 << 31) <= value < 1 << 32:
        raise UnknownInstruction(instruction, f"has the literal {value:#x}, which is wider than 32 bits")
    if bits == 16 and not inline and value >> 16 not in (0, -1) and value >> 16 != 0xFFFF:
        raise UnknownInstruction(instruction, f"has the literal {value:#x} for 16 bits, which is not modelled")
    return value & ((1 << bits) - 1)
