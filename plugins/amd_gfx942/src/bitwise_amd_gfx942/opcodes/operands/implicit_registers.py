"""Registers that instructions read and write without naming them: the execution mask, the condition code, vcc."""

from __future__ import annotations

from bitwise_core.assembly.module import Instruction, Register, Vector
from bitwise_core.execution.instruction_info import Describe, Effect, InstructionInfo, Operands

EXECUTION_MASK = frozenset({"exec_lo", "exec_hi"})
CONDITION_CODE = frozenset({"scc"})
VCC = frozenset({"vcc_lo", "vcc_hi"})
VCC_PAIR = Vector((Register("vcc_lo"), Register("vcc_hi")))
"""vcc as an operand."""
RESULT_AND_LANE_MASK = Operands(writes=(1,), updates=(0,))
"""A result in the active lanes, which leaves the other lanes unchanged, and a lane mask."""
_NONE: frozenset[str] = frozenset()


def with_implicit(
    operands: Operands, effects: Effect = Effect.NONE, *, reads: frozenset[str] = _NONE, writes: frozenset[str] = _NONE
) -> Describe:
    """The declaration of instructions with these operands that also read and write the implicit registers given."""

    def describe(instruction: Instruction) -> InstructionInfo:
        info = operands.info(instruction, effects)
        return info.extended(reads, writes)

    return describe
