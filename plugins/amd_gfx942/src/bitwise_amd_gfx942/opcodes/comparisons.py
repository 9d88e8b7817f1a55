"""v_cmp, v_cmpx and v_cndmask: sets of lanes by comparison, and choices by a set.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOPC).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.lane_masks import intersection
from bitwise_amd_gfx942.modes import flushes, mode_of
from bitwise_amd_gfx942.opcodes import selected_parts
from bitwise_amd_gfx942.opcodes.acting import acting, values_seen, vector
from bitwise_amd_gfx942.opcodes.classes import of_class
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.opcodes.implicit import EXECUTION_MASK, implicit
from bitwise_amd_gfx942.opcodes.lanewise import lanewise
from bitwise_amd_gfx942.opcodes.roots import chosen_root
from bitwise_amd_gfx942.opcodes.roundings import chosen_number, note_numbers
from bitwise_amd_gfx942.opcodes.scalar_logic import as_set, pair
from bitwise_amd_gfx942.opcodes.scalar_moves import by_candidates
from bitwise_amd_gfx942.opcodes.selections import remember
from bitwise_amd_gfx942.opcodes.sources import Reader, reader
from bitwise_amd_gfx942.opcodes.wide_extremes import chosen_extreme, note_order
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC, NO_LANES, write_exec, write_lane_mask
from bitwise_core.assembly.module import Instruction, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.comparisons import compare_as_floats, compare_as_integers
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Value

TABLE = Table()

_INTEGERS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOATS = {
    "lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "lg": "ne", "ge": "ge", "o": "num", "u": "nan", "nge": "ltu",
    "nlg": "equ", "ngt": "leu", "nle": "gtu", "neq": "neu", "nlt": "geu",
}  # fmt: skip
_INTEGER_KINDS = {
    f"{letter}{bits}": f"{core}{bits}" for letter, core in (("i", "s"), ("u", "u")) for bits in (16, 32, 64)
}
_FLOAT_KINDS = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}


def put_set(machine: Machine, operand: Vector, lanes: Value) -> None:
    """Writes a set that an instruction found: the lanes that do not run are not in it.

    `Machine.mask` is that of the waves, not of the execution mask.
    """
    running = machine.registers[EXEC]
    write_lane_mask(machine, operand, lanes if running is ALL_LANES else intersection(machine, lanes, running))


def _names() -> list[str]:
    names = [f"{operator}_{kind}" for operator in (*_INTEGERS, "t", "f") for kind in _INTEGER_KINDS]
    return names + [f"{operator}_{kind}" for operator in (*_FLOATS, "tru", "f") for kind in _FLOAT_KINDS]


def _compare_info(instruction: Instruction) -> InstructionInfo:
    writes = EXECUTION_MASK if instruction.opcode.startswith("v_cmpx") else frozenset()
    return implicit(DESTINATION_FIRST, reads=EXECUTION_MASK, writes=writes)(instruction)


@TABLE.opcode(*(f"v_cmp{x}_{name}" for x in ("", "x") for name in _names()), operands=_compare_info)
def compare(instruction: Instruction, context: Context) -> Step:
    """The set of active lanes in which a comparison holds; v_cmpx makes it the execution mask too."""
    found = check_modifiers(instruction, "src0_sel", "src1_sel")
    verb, operator, kind = found.name.split("_")[1:]
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    target = pair(instruction.operands[0], instruction)
    form_of = _FLOAT_KINDS.get(kind)
    given = form_of or f"b{kind[1:]}"
    readers: list[Reader] = []
    for index, operand in enumerate(instruction.operands[1:]):
        if found.encoding == "sdwa":
            selector = found.modifiers.get(f"src{index}_sel", "DWORD")
            readers.append(selected_parts.part_reader(operand, selector, given, instruction))
        else:
            readers.append(reader(operand, given, instruction))
    flush = form_of is not None and flushes(mode_of(context.kernel), form_of, instruction)

    def holds(machine: Machine, left: Value, right: Value) -> Value:
        if operator in ("t", "tru", "f"):
            return NO_LANES if operator == "f" else ALL_LANES
        if form_of is not None:
            return compare_as_floats(machine, _FLOATS[operator], form_of, left, right, flush=flush)
        return compare_as_integers(machine, _INTEGERS[operator], _INTEGER_KINDS[kind], left, right)

    def step(machine: Machine) -> None:
        values = values_seen(machine, readers, instruction.operands)
        lanes = holds(machine, *values)
        put_set(machine, target, lanes)
        if form_of is not None and operator in ("o", "u") and machine.known(machine.registers[EXEC]) is not None:
            written = as_set(machine, target)
            note_numbers(machine, written, form_of, (values[0], values[1]), operator == "u", acting(machine))
        if kind in ("i64", "u64") and machine.registers[EXEC] is ALL_LANES and machine.mask is None:
            note_order(machine, as_set(machine, target), operator, _INTEGER_KINDS[kind], *values)
        if verb == "cmpx":
            write_exec(machine, intersection(machine, lanes, machine.registers[EXEC]))

    return step


@TABLE.opcode(*(f"v_cmp{x}_class_{kind}" for x in ("", "x") for kind in _FLOAT_KINDS), operands=_compare_info)
def compare_class(instruction: Instruction, context: Context) -> Step:
    """The set of active lanes whose number is of one of the classes that the second source's bits name."""
    found = check_modifiers(instruction)
    verb, kind = found.name.split("_")[1], _FLOAT_KINDS[found.name.split("_")[-1]]
    target = pair(instruction.operands[0], instruction)
    readers = (
        reader(instruction.operands[1], kind, instruction),
        reader(instruction.operands[2], "b32", instruction),
    )
    if flushes(mode_of(context.kernel), kind, instruction):
        raise UnknownInstruction(instruction, "tells subnormal numbers where these are flushed, which is not modelled")

    def step(machine: Machine) -> None:
        lanes = of_class(machine, kind, *values_seen(machine, readers, instruction.operands))
        put_set(machine, target, lanes)
        if verb == "cmpx":
            write_exec(machine, intersection(machine, lanes, machine.registers[EXEC]))

    return step


@vector(TABLE, "v_cndmask_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def select(instruction: Instruction, context: Context) -> Step:
    """The second source in the lanes of the set, the first in the others."""
    operands = instruction.operands
    if len(operands) != 4:
        raise UnknownInstruction(instruction, "takes four operands")
    lanes = pair(operands[3], instruction)
    kind = "fp32" if any(type(each).__name__ == "Modified" for each in operands) else "b32"

    def compute(machine: Machine, if_false: Value, if_true: Value) -> Value:
        predicate = as_set(machine, lanes)
        if isinstance(predicate, np.ndarray):
            return blend_values(predicate, if_true, if_false)
        known = machine.known(predicate)
        if known is not None:
            return blend_values(known, if_true, if_false)
        followed = by_candidates(predicate, if_true, if_false)
        if followed is not None:
            return followed
        whole = chosen_number(machine, predicate, if_true, if_false)
        if whole is None:
            whole = chosen_extreme(machine, predicate, if_true, if_false)
        if whole is None:
            whole = chosen_root(machine, predicate, if_true, if_false, context.arch.name)
        if whole is not None:
            return whole
        result = machine.domain.select(predicate, if_true, if_false)
        remember(machine, result, predicate, if_true, if_false)
        return result

    shorter = Instruction(instruction.opcode, operands[:3], None, instruction.line, instruction.source)
    return lanewise(shorter, (kind, kind), 32, compute)
