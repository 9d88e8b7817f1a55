"""v_cmp, v_cmpx and v_cndmask: comparisons into lane masks, and selects by a lane mask.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOPC).
"""

from __future__ import annotations

from bitwise_amd_gfx942.lane_masks import intersection
from bitwise_amd_gfx942.modes import flushes, mode_of
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.memory.select_provenance import record_select
from bitwise_amd_gfx942.opcodes.memory.selected_offsets import selected
from bitwise_amd_gfx942.opcodes.operands import sdwa
from bitwise_amd_gfx942.opcodes.operands.constants import FLOAT_FORMATS
from bitwise_amd_gfx942.opcodes.operands.execution_mask import read_operands, vector_opcode
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, reader, unread_reader, writer
from bitwise_amd_gfx942.opcodes.scalar.scalar_logic import as_lane_mask, register_pair
from bitwise_amd_gfx942.opcodes.scalar.scalar_moves import decided_lanes, select_by_candidates
from bitwise_amd_gfx942.opcodes.vector.float_classes import in_float_class
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC, NO_LANES, write_exec, write_lane_mask
from bitwise_core.assembly.module import Instruction, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.deferred_selects import selected_by_parts
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.integers.comparisons import compare_as_floats, compare_as_integers
from bitwise_core.execution.values.symbolic_vector import Value, settled

TABLE = Table()

_INTEGERS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOATS = {
    "lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "lg": "ne", "ge": "ge", "o": "num", "u": "nan", "nge": "ltu",
    "nlg": "equ", "ngt": "leu", "nle": "gtu", "neq": "neu", "nlt": "geu",
}  # fmt: skip
_INTEGER_KINDS = {
    f"{letter}{bits}": f"{core}{bits}" for letter, core in (("i", "s"), ("u", "u")) for bits in (16, 32, 64)
}


def write_active_lane_mask(machine: Machine, operand: Vector, lanes: Value) -> None:
    """Write a lane mask with the bits of inactive lanes cleared.

    `Machine.mask` is here the mask of active waves, without the execution mask.
    """
    active = machine.registers[EXEC]
    write_lane_mask(machine, operand, lanes if active is ALL_LANES else intersection(machine, lanes, active))


def _names() -> list[str]:
    names = [f"{operator}_{kind}" for operator in (*_INTEGERS, "t", "f") for kind in _INTEGER_KINDS]
    return names + [f"{operator}_{kind}" for operator in (*_FLOATS, "tru", "f") for kind in FLOAT_FORMATS]


def _compare_info(instruction: Instruction) -> InstructionInfo:
    if instruction.opcode.startswith("v_cmpx"):
        return with_implicit(DESTINATION_FIRST, reads=EXECUTION_MASK, writes=EXECUTION_MASK)(instruction)
    # A comparison of numbers also depends on the mode of the kernel.
    integers = form(instruction.opcode).name.split("_")[-1] in _INTEGER_KINDS
    effects = Effect.LANEWISE if integers else Effect.NONE
    return with_implicit(DESTINATION_FIRST, effects, reads=EXECUTION_MASK)(instruction)


@TABLE.opcode(*(f"v_cmp{x}_{name}" for x in ("", "x") for name in _names()), operands=_compare_info)
def compare(instruction: Instruction, context: Context) -> Step:
    """The mask of active lanes in which a comparison holds; v_cmpx also writes it to the execution mask."""
    found = check_modifiers(instruction, "src0_sel", "src1_sel")
    verb, operator, kind = found.name.split("_")[1:]
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    target = register_pair(instruction.operands[0], instruction)
    float_format = FLOAT_FORMATS.get(kind)
    source_kind = float_format or f"b{kind[1:]}"
    readers: list[Reader] = []
    for index, operand in enumerate(instruction.operands[1:]):
        if found.encoding == "sdwa":
            selector = found.modifiers.get(f"src{index}_sel", "DWORD")
            readers.append(sdwa.part_reader(operand, selector, source_kind, instruction))
        else:
            readers.append(reader(operand, source_kind, instruction))
    flush = float_format is not None and flushes(mode_of(context.kernel), float_format, instruction)

    def holds(machine: Machine, left: Value, right: Value) -> Value:
        if operator in ("t", "tru", "f"):
            return NO_LANES if operator == "f" else ALL_LANES
        if float_format is not None:
            return compare_as_floats(machine, _FLOATS[operator], float_format, left, right, flush=flush)
        return compare_as_integers(machine, _INTEGERS[operator], _INTEGER_KINDS[kind], left, right)

    def step(machine: Machine) -> None:
        values = read_operands(machine, readers, instruction.operands)
        lanes = holds(machine, *values)
        write_active_lane_mask(machine, target, lanes)
        if verb == "cmpx":
            write_exec(machine, intersection(machine, lanes, machine.registers[EXEC]))

    return step


@TABLE.opcode(*(f"v_cmp{x}_class_{kind}" for x in ("", "x") for kind in FLOAT_FORMATS), operands=_compare_info)
def compare_class(instruction: Instruction, context: Context) -> Step:
    """The mask of active lanes whose number is in one of the classes given by the bits of the second source."""
    found = check_modifiers(instruction)
    verb, kind = found.name.split("_")[1], FLOAT_FORMATS[found.name.split("_")[-1]]
    target = register_pair(instruction.operands[0], instruction)
    readers = (
        reader(instruction.operands[1], kind, instruction),
        reader(instruction.operands[2], "b32", instruction),
    )
    if flushes(mode_of(context.kernel), kind, instruction):
        raise UnknownInstruction(
            instruction, "tests the class of subnormal numbers where these are flushed, which is not modelled"
        )

    def step(machine: Machine) -> None:
        value, mask = read_operands(machine, readers, instruction.operands)
        lanes = in_float_class(machine, kind, value, mask, context.arch.name)
        write_active_lane_mask(machine, target, lanes)
        if verb == "cmpx":
            write_exec(machine, intersection(machine, lanes, machine.registers[EXEC]))

    return step


@vector_opcode(TABLE, "v_cndmask_b32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def select(instruction: Instruction, context: Context) -> Step:
    """The second source in the lanes of the mask, the first in the others."""
    operands = instruction.operands
    if len(operands) != 4:
        raise UnknownInstruction(instruction, "takes four operands")
    lanes = register_pair(operands[3], instruction)
    kind = "fp32" if any(type(each).__name__ == "Modified" for each in operands) else "b32"

    def compute(machine: Machine, if_false: Value, if_true: Value) -> Value:
        predicate = as_lane_mask(machine, lanes)
        known = decided_lanes(machine, predicate)
        if known is not None:
            return selected(known, settled(if_true), settled(if_false))
        matched = select_by_candidates(predicate, if_true, if_false)
        if matched is not None:
            return matched
        result = selected_by_parts(machine, predicate, if_true, if_false)
        record_select(machine, result, predicate, if_true, if_false)
        return result

    shorter = Instruction(instruction.opcode, operands[:3], None, instruction.line, instruction.source)
    found = form(instruction.opcode)
    if kind == "fp32" or found.modifiers or found.encoding == "sdwa":
        return lanewise(shorter, (kind, kind), 32, compute)
    check_modifiers(instruction)
    if_false, if_true = (unread_reader(each, instruction) for each in operands[1:3])
    write = writer(operands[0], 32, instruction)
    return lambda machine: write(machine, compute(machine, if_false(machine), if_true(machine)))
