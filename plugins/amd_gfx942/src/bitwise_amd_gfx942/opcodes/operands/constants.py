"""Widths of operand types, formats, and the bits of constants: inline constants and literals of 32 bits.

Source: AMD Instinct MI300 ISA, "Scalar and vector operands: inline constants"; LLVM's AMDGPU operand syntax.
"""

from __future__ import annotations

import struct

from bitwise_core.assembly.module import Immediate, Instruction
from bitwise_core.execution.architecture import UnknownInstruction

BITS = {"b1": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64}
"""The width of an operand's type in bits."""

FLOAT_FORMATS = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
"""The names of floating-point formats in mnemonics and in core."""

MANTISSA_BITS = {16: 10, 32: 23, 64: 52}
"""The explicit significand bits of fp16, fp32 and fp64, by width."""

_INVERSE_TWO_PI = 0x3FC45F306DC9C882
_INVERSE_TWO_PI_BITS = {16: 0x3118, 32: 0x3E22F983}
_STRUCT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


def immediate_bits(immediate: Immediate, kind: str, instruction: Instruction) -> int:
    """The bits of a constant as an operand of the type `kind` (fp32, b64, ...).

    Inline constants are the integers from -16 to 64 and some floating-point numbers, among them 1 / (2 pi), which has
    its own pattern in each width.  Raises UnknownInstruction for a literal that does not fit.
    """
    bits = BITS[kind]
    if immediate.kind == "f64":
        if kind in ("b8", "b16"):
            raise UnknownInstruction(instruction, "has a floating-point constant for an integer of 8 or 16 bits")
        if immediate.value == _INVERSE_TWO_PI:
            return _INVERSE_TWO_PI if bits == 64 else _INVERSE_TWO_PI_BITS[bits]
        number = struct.unpack("<d", immediate.value.to_bytes(8, "little"))[0]
        return int.from_bytes(struct.pack(_STRUCT_FORMATS[bits], number), "little")
    value = immediate.value
    inline = -16 <= value <= 64
    if kind == "fp64" and not inline and -(1 << 31) <= value < 1 << 32:
        return (value & 0xFFFFFFFF) << 32  # a literal is the high half of an fp64
    if bits == 64 and not inline and not 0 <= value < 1 << 31:
        raise UnknownInstruction(instruction, f"has the literal {value:#x} for 64 bits, which is not modelled")
    if not inline and not -(1 << 31) <= value < 1 << 32:
        raise UnknownInstruction(instruction, f"has the literal {value:#x}, which is wider than 32 bits")
    if bits == 16 and not inline and value >> 16 not in (0, -1) and value >> 16 != 0xFFFF:
        raise UnknownInstruction(instruction, f"has the literal {value:#x} for 16 bits, which is not modelled")
    return value & ((1 << bits) - 1)
