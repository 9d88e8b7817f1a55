"""Registers whose values the assembler may know: those computed only from literals of the text.

The assembler folds an approximate instruction of constants, and its result can differ from the machine's: a division by
a literal becomes a product with the correctly rounded reciprocal.  So an approximation of such a register is a
different operation from one of a register that holds the same number at run time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    once_a_kernel,
    program_digest,
    registers_of,
)
from bitwise_core.execution.architecture import Context, OpcodeTable, infos_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.term_hash import term
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS

_UNCLEAR = "approximates a number that the assembler may or may not know"

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


def literal_suffix(known: bool | None) -> str:
    """Return the part of an approximation's name that says whether its operand is a literal: ".literal" or "".

    `known` is what `is_assembler_constant` returns of the operand.
    """
    return ".literal" if known else ""


def of_this_text(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return a step whose result is equal to none but that of the same execution of the same text.

    It is for an approximation of a number that the assembler may or may not know: whether it evaluates the instruction
    itself may differ between the copies that it makes of a loop, so the result of each execution in each thread is a
    number of its own.  The same text is assembled to the same copies.
    """
    destination = instruction.operands[0]
    assert isinstance(destination, Register)
    program = program_digest(context.module, context.kernel)
    name = f"{instruction.opcode} at line {instruction.line} of {program}"

    def run(machine: Machine) -> None:
        if machine.domain.name not in ("terms", "addresses"):
            raise Unsupported(f"the instruction {instruction.opcode} {_UNCLEAR}", instruction.line)
        step(machine)
        if machine.domain.name != "terms":
            return
        count = machine.memory.executions[instruction.line] = machine.memory.executions.get(instruction.line, 0) + 1
        found = as_symbolic_vector(machine.read(destination))
        parts = [found, as_symbolic_vector(machine.thread.astype(np.uint64))]
        machine.write(
            destination, term(found.bits, f"{name}, execution {count}", parts, recorder=machine.domain.recorder)
        )

    return run
