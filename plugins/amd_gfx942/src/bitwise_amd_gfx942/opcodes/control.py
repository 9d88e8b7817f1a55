"""Branches, ends, barriers, waits, and what computes nothing.

Source: AMD Instinct MI300 ISA, "Program flow control" (SOPP).
"""

from __future__ import annotations

from bitwise_amd_gfx942.modes import FP16_OVERFLOW_BIT
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.opcodes.implicit import CONDITION_CODE, EXECUTION_MASK, VCC, implicit
from bitwise_amd_gfx942.opcodes.scalar_integers import condition_code
from bitwise_amd_gfx942.opcodes.scalar_values import some_lane
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC, make_undefined, read_lane_mask
from bitwise_amd_gfx942.skippable_regions import skippable_region_exit
from bitwise_amd_gfx942.wait_hazards import wait_hazards
from bitwise_core.assembly.module import Instruction, Register, Symbol, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect
from bitwise_core.execution.machine import Barrier, Branch, Control, Exit, Machine, SkippableRegion, Step, invert

TABLE = Table()
_HELD = "the epoch that a barrier does not end"
_VCC = Vector((Register("vcc_lo"), Register("vcc_hi")))


def target_of(instruction: Instruction, context: Context) -> int:
    """The instruction that a branch goes to.  Raises UnknownInstruction."""
    check_modifiers(instruction)
    target = instruction.operands[0] if len(instruction.operands) == 1 else None
    if not isinstance(target, Symbol) or target.name not in context.kernel.labels:
        raise UnknownInstruction(instruction, "takes a label")
    return context.kernel.labels[target.name]


_CONDITIONAL = Effect.BRANCH | Effect.CONDITIONAL


@TABLE.opcode("s_branch", operands=NO_DESTINATION, effects=Effect.BRANCH)
def branch(instruction: Instruction, context: Context) -> Step:
    """Goes on at a label."""
    control = Branch(target_of(instruction, context))
    return lambda machine: control


@TABLE.opcode("s_cbranch_scc0", "s_cbranch_scc1", operands=implicit(NO_DESTINATION, _CONDITIONAL, reads=CONDITION_CODE))
def branch_on_condition(instruction: Instruction, context: Context) -> Step:
    """A wave branches where the condition code is 0, or 1."""
    place = target_of(instruction, context)
    opposite = instruction.opcode == "s_cbranch_scc0"

    def step(machine: Machine) -> Control:
        condition = condition_code(machine)
        return Branch(place, invert(machine.domain, condition) if opposite else condition)

    return step


@TABLE.opcode("s_cbranch_vccz", "s_cbranch_vccnz", operands=implicit(NO_DESTINATION, _CONDITIONAL, reads=VCC))
def branch_on_set(instruction: Instruction, context: Context) -> Step:
    """A wave branches where vcc holds no lane, or some."""
    place = target_of(instruction, context)
    opposite = instruction.opcode == "s_cbranch_vccz"

    def step(machine: Machine) -> Control:
        found = some_lane(machine, read_lane_mask(machine, _VCC))
        return Branch(place, invert(machine.domain, found) if opposite else found)

    return step


@TABLE.opcode(
    "s_cbranch_execz", "s_cbranch_execnz", operands=implicit(NO_DESTINATION, _CONDITIONAL, reads=EXECUTION_MASK)
)
def branch_on_execution(instruction: Instruction, context: Context) -> Step:
    """A wave branches where none of its lanes runs, or some."""
    place = target_of(instruction, context)
    opposite = instruction.opcode == "s_cbranch_execz"
    line = instruction.line

    def step(machine: Machine) -> Control | None:
        lanes = machine.registers[EXEC]
        if lanes is ALL_LANES:
            return None if opposite else Branch(place)
        known = machine.known(lanes)
        if known is None:
            run, skip = (machine.pc + 1, place) if opposite else (place, machine.pc + 1)
            passed = skippable_region_exit(context, machine.pc, run, skip)
            if passed is not None:
                return SkippableRegion(passed.join, lambda inner: make_undefined(inner, passed.clobbered), run)
            raise Unsupported("whether any lane runs depends on data", line)
        found = some_lane(machine, known)
        return Branch(place, invert(machine.domain, found) if opposite else found)

    return step


@TABLE.opcode("s_endpgm", operands=NO_DESTINATION, effects=Effect.END)
def end(instruction: Instruction, context: Context) -> Step:
    """The wave is done, whatever the execution mask."""
    check_modifiers(instruction)
    control = Exit()
    return lambda machine: control


@TABLE.opcode("s_trap", operands=NO_DESTINATION, effects=Effect.END)
def trap(instruction: Instruction, context: Context) -> Step:
    """A trap ends the launch without a result."""

    def step(machine: Machine) -> Control | None:
        raise Unsupported("the kernel traps on this launch", instruction.line)

    return step


@TABLE.opcode("s_barrier", operands=NO_DESTINATION, effects=Effect.BARRIER)
def barrier(instruction: Instruction, context: Context) -> Step:
    """All waves of the block meet, whatever their execution masks."""
    check_modifiers(instruction)
    if instruction.line not in wait_hazards(context.kernel, context.arch.opcodes).unordered_barriers:
        return lambda machine: Barrier(0)

    def step(machine: Machine) -> Control:
        # Writes of global memory are still under way: what comes after is no later than what came before.
        if machine.extra.get(_HELD) != machine.epoch:
            machine.epoch -= 1
            machine.extra[_HELD] = machine.epoch
        return Barrier(0)

    return step


@TABLE.opcode(
    "s_nop", "s_setprio", "s_sleep", "s_inst_prefetch", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "buffer_inv",
    "buffer_wbl2", "buffer_gl0_inv", "v_nop", "s_ttracedata", "s_incperflevel", "s_decperflevel",
    operands=NO_DESTINATION, effects=Effect.NONE,
)  # fmt: skip
def nothing(instruction: Instruction, context: Context) -> Step:
    """Pauses, priorities and caches: nothing is computed."""
    check_modifiers(instruction, "sc0", "sc1", "nt")
    return lambda machine: None


@TABLE.opcode("s_setreg_imm32_b32", "s_setreg_b32", operands=NO_DESTINATION, effects=Effect.NONE)
def set_mode(instruction: Instruction, context: Context) -> Step:
    """Of the mode register one bit may change: the instructions that look at it are not modelled in such a kernel."""
    if len(instruction.operands) != 2 or instruction.operands[0] != FP16_OVERFLOW_BIT:
        raise UnknownInstruction(instruction, "changes the mode, which is not modelled")
    return lambda machine: None
