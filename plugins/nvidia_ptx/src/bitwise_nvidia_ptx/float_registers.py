"""Registers that floating-point instructions write.

PTX registers of type .b32 have no number type.  ptxas (CUDA 12.8 to 13.0, with and without optimisation) takes the type
of the instruction that writes a register all the same: it converts the amount of a 64-bit shift to an integer where
that is the result of a floating-point instruction, also of a move, a load or an atomic operation with such a type.
"""

from __future__ import annotations

import re

from bitwise_core.assembly.module import Instruction, Kernel, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import Effect
from bitwise_nvidia_ptx.opcodes.common import FORMATS

_KEEPING = re.compile(
    r"(and|or|xor|not|shl|shr|bfe|bfi|lop3|prmt|shf\.\w+\.\w+|add|sub|neg|min|max|sad|(mul|mad)\.lo)\.[subf]\d+"
    r"|cvt\.[su]\d+\.[su]\d+"
)
"""Operations on integers that may return an operand, which ptxas then takes for a move."""


@once_a_kernel
def float_registers(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[str]:
    """Return the registers that some floating-point instruction writes, and those to which others may move them."""
    found: set[str] = set()
    moves: list[tuple[frozenset[str], frozenset[str]]] = []
    for instruction, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
        if _writes_float(instruction):
            found.update(info.writes)
        elif info.effects.overlaps(Effect.MOVE) or _KEEPING.fullmatch(instruction.opcode) is not None:
            moves.append((info.writes, info.reads))
    changed = True
    while changed:
        changed = False
        for written, read in moves:
            if read & found and not written <= found:
                found.update(written)
                changed = True
    return frozenset(found)


def _writes_float(instruction: Instruction) -> bool:
    """Return whether the type of the destination is a floating-point format."""
    root, *parts = instruction.opcode.split(".")
    if not parts or root in ("setp", "st", "red"):
        return False
    kind = parts[-2] if root in ("cvt", "set", "slct") and len(parts) > 1 else parts[-1]
    return kind in FORMATS or (kind.endswith("x2") and kind[:-2] in FORMATS)
