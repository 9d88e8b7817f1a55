"""Registers whose values the assembler may know: those computed only from literals of the text.

The assembler folds an approximate instruction of constants, and its result can differ from the machine's: a division by
a literal becomes a product with the correctly rounded reciprocal.  So an approximation of such a register is a
different operation from one of a register that holds the same number at run time.
"""

from __future__ import annotations

from collections import Counter

from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    once_a_kernel,
    registers_of,
)
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, infos_of
from bitwise_core.execution.instruction_info import Effect
from bitwise_nvidia_ptx.special_registers import SPECIAL_REGISTERS

_RUN_TIME = Effect.LOAD | Effect.CROSS_LANE | Effect.CALL
"""The effects of instructions whose results the assembler cannot know."""


@once_a_kernel
def _classified_registers(kernel: Kernel, opcodes: OpcodeTable) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers whose values are unknown before run time, and those that the assembler may or may not know.

    The latter are computed from literals only, but are written more than once or depend on such a register.
    """
    edges: list[tuple[frozenset[str], frozenset[str]]] = []
    found: set[str] = set()
    for instruction, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
        if not info.writes:
            continue
        read = info.reads - info.writes
        symbols = any(not isinstance(each, Immediate) and not registers_of(each) for each in instruction.operands[1:])
        run_time = info.effects.overlaps(_RUN_TIME) or info.accumulation is not None
        if run_time or symbols or not SPECIAL_REGISTERS.isdisjoint(read):
            found.update(info.writes)
        edges.append((info.writes, read))
    _propagate(edges, found)
    count = Counter(name for written, _ in edges for name in written)
    several = {name for name, times in count.items() if times > 1 and name not in found}
    _propagate(edges, several)
    return frozenset(found), frozenset(several - found)


def _propagate(edges: list[tuple[frozenset[str], frozenset[str]]], found: set[str]) -> None:
    """Add to `found` every register that is computed from a register in it."""
    changed = True
    while changed:
        changed = False
        for written, read in edges:
            if read & found and not written <= found:
                found.update(written)
                changed = True


def is_assembler_constant(operand: Operand, kernel: Kernel, opcodes: OpcodeTable) -> bool | None:
    """Return whether the assembler knows the operand's value.

    None if that is unknown: a register that is computed from literals and written several times, as in a loop that the
    assembler may or may not unroll.
    """
    if isinstance(operand, Immediate):
        return True
    if not isinstance(operand, Register):
        return False
    run_time, unclear = _classified_registers(kernel, opcodes)
    return None if operand.name in unclear else operand.name not in run_time


def literal_suffix(operand: Operand, context: Context, instruction: Instruction) -> str:
    """Return the part of an approximation's name that says whether its operand is a literal: ".literal" or "".

    Raises UnknownInstruction if it is unknown whether the assembler knows the operand.
    """
    known = is_assembler_constant(operand, context.kernel, context.arch.opcodes)
    if known is None:
        raise UnknownInstruction(instruction, "approximates a number that the assembler may or may not know")
    return ".literal" if known else ""
