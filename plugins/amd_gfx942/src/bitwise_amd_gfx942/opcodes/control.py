"""Branches, program ends, barriers, and instructions that compute nothing.

Source: AMD Instinct MI300 ISA, "Program flow control" (SOPP).
"""

from __future__ import annotations

from bitwise_amd_gfx942.analyses.skippable_regions import skippable_region_exit
from bitwise_amd_gfx942.analyses.wait_hazards import wait_hazards
from bitwise_amd_gfx942.modes import FP16_OVERFLOW_BIT
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import (
    CONDITION_CODE,
    EXECUTION_MASK,
    VCC,
    VCC_PAIR,
    with_implicit,
)
from bitwise_amd_gfx942.opcodes.scalar.scalar_integers import condition_code
from bitwise_amd_gfx942.opcodes.scalar.scalar_steps import any_lane
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC, make_undefined, read_lane_mask
from bitwise_core.assembly.module import Instruction, Symbol
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect
from bitwise_core.execution.machine import Barrier, Branch, Control, Exit, Machine, SkippableRegion, Step, invert

TABLE = Table()


def branch_target(instruction: Instruction, context: Context) -> int:
    """The index of the instruction that a branch jumps to.  Raises UnknownInstruction."""
    check_modifiers(instruction)
    target = instruction.operands[0] if len(instruction.operands) == 1 else None
    if not isinstance(target, Symbol) or target.name not in context.kernel.labels:
        raise UnknownInstruction(instruction, "takes a label")
    return context.kernel.labels[target.name]


_CONDITIONAL = Effect.BRANCH | Effect.CONDITIONAL
_ANY_LANE = _CONDITIONAL | Effect.CROSS_LANE
"""Effects of a branch on whether a lane mask has a lane."""


@TABLE.opcode("s_branch", operands=NO_DESTINATION, effects=Effect.BRANCH)
def branch(instruction: Instruction, context: Context) -> Step:
    """Jump to a label."""
    control = Branch(branch_target(instruction, context))
    return lambda machine: control


@TABLE.opcode(
    "s_cbranch_scc0", "s_cbranch_scc1", operands=with_implicit(NO_DESTINATION, _CONDITIONAL, reads=CONDITION_CODE)
)
def branch_on_scc(instruction: Instruction, context: Context) -> Step:
    """Branch in the waves whose condition code is 0 (scc0), or 1 (scc1)."""
    target = branch_target(instruction, context)
    opposite = instruction.opcode == "s_cbranch_scc0"

    def step(machine: Machine) -> Control:
        condition = condition_code(machine)
        return Branch(target, invert(machine.domain, condition) if opposite else condition)

    return step


@TABLE.opcode("s_cbranch_vccz", "s_cbranch_vccnz", operands=with_implicit(NO_DESTINATION, _ANY_LANE, reads=VCC))
def branch_on_vcc(instruction: Instruction, context: Context) -> Step:
    """Branch in the waves in which vcc has no lane (vccz), or some lane (vccnz)."""
    target = branch_target(instruction, context)
    opposite = instruction.opcode == "s_cbranch_vccz"

    def step(machine: Machine) -> Control:
        found = any_lane(machine, read_lane_mask(machine, VCC_PAIR))
        return Branch(target, invert(machine.domain, found) if opposite else found)

    return step


@TABLE.opcode(
    "s_cbranch_execz", "s_cbranch_execnz", operands=with_implicit(NO_DESTINATION, _ANY_LANE, reads=EXECUTION_MASK)
)
def branch_on_exec(instruction: Instruction, context: Context) -> Step:
    """Branch in the waves in which no lane is active (execz), or some lane (execnz).

    Where the execution mask depends on data, the skipped region is analysed under that mask if it has no effect while
    no lane is active.  Raises Unsupported for any other such branch.
    """
    target = branch_target(instruction, context)
    opposite = instruction.opcode == "s_cbranch_execz"
    line = instruction.line

    def step(machine: Machine) -> Control | None:
        lanes = machine.registers[EXEC]
        if lanes is ALL_LANES:
            return None if opposite else Branch(target)
        known = machine.known(lanes)
        if known is None:
            run, skip = (machine.pc + 1, target) if opposite else (target, machine.pc + 1)
            passed = skippable_region_exit(context, machine.pc, run, skip)
            if passed is not None:
                return SkippableRegion(passed.join, lambda inner: make_undefined(inner, passed.clobbered), run)
            raise DataDependent("whether any lane runs depends on data", line, (lanes,))
        found = any_lane(machine, known)
        return Branch(target, invert(machine.domain, found) if opposite else found)

    return step


@TABLE.opcode("s_endpgm", operands=NO_DESTINATION, effects=Effect.END)
def end(instruction: Instruction, context: Context) -> Step:
    """End the wave, regardless of the execution mask."""
    check_modifiers(instruction)
    control = Exit()
    return lambda machine: control


@TABLE.opcode("s_trap", operands=NO_DESTINATION, effects=Effect.END)
def trap(instruction: Instruction, context: Context) -> Step:
    """A trap, which ends the launch without a result; raises Unsupported when it runs."""

    def step(machine: Machine) -> Control | None:
        raise Unsupported("the kernel traps on this launch", instruction.line)

    return step


@TABLE.opcode("s_barrier", operands=NO_DESTINATION, effects=Effect.BARRIER)
def barrier(instruction: Instruction, context: Context) -> Step:
    """Synchronise all waves of the block, regardless of their execution masks."""
    check_modifiers(instruction)
    # Where stores to global memory are still in flight, the accesses after the barrier are not ordered after them.
    ordered = instruction.line not in wait_hazards(context.kernel, context.arch.opcodes).unordered_barriers
    return lambda machine: Barrier(0, orders_global=ordered)


@TABLE.opcode(
    "s_nop", "s_setprio", "s_sleep", "s_inst_prefetch", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "buffer_inv",
    "buffer_wbl2", "buffer_gl0_inv", "v_nop", "s_ttracedata", "s_incperflevel", "s_decperflevel",
    operands=NO_DESTINATION, effects=Effect.NONE,
)  # fmt: skip
def no_operation(instruction: Instruction, context: Context) -> Step:
    """Pauses, priorities and cache control, which compute nothing."""
    check_modifiers(instruction, "sc0", "sc1", "nt")
    return lambda machine: None


@TABLE.opcode("s_setreg_imm32_b32", "s_setreg_b32", operands=NO_DESTINATION, effects=Effect.NONE)
def set_mode(instruction: Instruction, context: Context) -> Step:
    """A write of FP16_OVFL in the mode register, whose value `modes.clamps_overflow` determines.

    Raises UnknownInstruction for any other field.
    """
    if len(instruction.operands) != 2 or instruction.operands[0] != FP16_OVERFLOW_BIT:
        raise UnknownInstruction(instruction, "changes the mode, which is not modelled")
    return lambda machine: None
