"""Literals of 64 bits, which a decimal fraction and `0d` give, as operands of each type.

PTX ISA 8.7, "Floating-Point Constants": such a literal is a number of fp64.  An assembler rounds it where an operand
has the type f32.  Measured with ptxas 12.8: to nearest, ties to even; a number beyond the range becomes an infinity; a
NaN keeps its sign and the upper bits of its payload, and becomes quiet.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Immediate, Operand, Vector
from bitwise_nvidia_ptx.text.lexer import ParseError

_TYPES = frozenset(
    {"pred", "f16", "f16x2", "f32", "f32x2", "f64", "bf16", "bf16x2", "e4m3x2", "e5m2x2", "b128", "u16x2", "s16x2"}
    | {f"{kind}{bits}" for kind in "bsu" for bits in (8, 16, 32, 64)}
)


def of_operand_types(opcode: str, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Return the operands of an instruction, in which each literal of 64 bits is one of its operand's type.

    Raises ParseError for a literal of 64 bits that is an operand of another type than f32, f64 and b64.
    """
    if not any(_has_wide_literal(each) for each in operands):
        return operands
    types = [each for each in opcode.split(".") if each in _TYPES]
    last = len(operands) - 1
    return tuple(
        [
            _of_type(each, types[0 if opcode.startswith("slct") and place < last else -1] if types else "", opcode)
            for place, each in enumerate(operands)
        ]
    )


def _has_wide_literal(operand: Operand) -> bool:
    if type(operand) is Vector:
        return any(map(_has_wide_literal, operand.items))
    return type(operand) is Immediate and operand.kind == "f64"


def _of_type(operand: Operand, kind: str, opcode: str) -> Operand:
    if not _has_wide_literal(operand):
        return operand
    if isinstance(operand, Vector) and not opcode.startswith("mov"):
        return Vector(tuple([_of_type(each, kind, opcode) for each in operand.items]))
    if isinstance(operand, Immediate) and kind == "f32":
        return Immediate(rounded(operand.value), "f32")
    if isinstance(operand, Immediate) and kind in ("f64", "b64"):
        return operand
    raise ParseError(
        f"{opcode} takes no literal of fp64, which a decimal fraction is; write its bits, such as 0f3F800000"
    )


def rounded(bits: int) -> int:
    """Return the bits of fp32 to which those of fp64 are rounded; a NaN becomes quiet."""
    with np.errstate(over="ignore", invalid="ignore"):
        return int(np.array([bits], dtype=np.uint64).view(np.float64).astype(np.float32).view(np.uint32)[0])
