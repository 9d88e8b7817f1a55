"""What instructions read and write beside their operands: the execution mask, the condition code, vcc."""

from __future__ import annotations

from dataclasses import replace

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.instruction_info import Describe, Effect, InstructionInfo, Operands

EXECUTION_MASK = frozenset({"exec_lo", "exec_hi"})
CONDITION_CODE = frozenset({"scc"})
VCC = frozenset({"vcc_lo", "vcc_hi"})
RESULT_AND_SET = Operands(writes=(1,), updates=(0,))
"""A result in the lanes that act, which keeps the other lanes, and a set of lanes."""
_NONE: frozenset[str] = frozenset()


def implicit(
    operands: Operands, effects: Effect = Effect.NONE, *, reads: frozenset[str] = _NONE, writes: frozenset[str] = _NONE
) -> Describe:
    """What instructions do that read and write these registers too."""

    def describe(instruction: Instruction) -> InstructionInfo:
        info = operands.info(instruction, effects)
        return replace(info, reads=info.reads | reads, writes=info.writes | writes)

    return describe
