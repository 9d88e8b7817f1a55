"""Scalar logic: of integers, and of lane masks, which control flow uses.

Source: AMD Instinct MI300 ISA, "Scalar ALU operations" and "Program control: the execution mask".
"""

from __future__ import annotations

from bitwise_amd_gfx942.analyses.control_flow import condition_code_live_after
from bitwise_amd_gfx942.lane_masks import complement_mask, logic
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.constants import immediate_bits
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import CONDITION_CODE, EXECUTION_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.opcodes.scalar.scalar_integers import condition_code
from bitwise_amd_gfx942.opcodes.scalar.scalar_moves import select_info, select_value
from bitwise_amd_gfx942.opcodes.scalar.scalar_steps import any_lane, is_nonzero, scalar_step
from bitwise_amd_gfx942.registers import (
    ALL_LANES,
    EXEC,
    NO_LANES,
    lane_mask_key,
    lanes_of_bits,
    read_lane_mask,
    write_exec,
    write_lane_mask,
    write_scc,
)
from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

TABLE = Table()

_VERBS = ("and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor")


def _word_logic(machine: Machine, verb: str, left: Value, right: Value, bits: int) -> Value:
    if verb.endswith("n2"):
        right, verb = _complement(machine, right, bits), verb[:-2]
    opposite = verb in ("nand", "nor", "xnor")
    if opposite:
        verb = {"nand": "and", "nor": "or", "xnor": "xor"}[verb]
    found = combine(machine, verb, left, right, bits)
    return _complement(machine, found, bits) if opposite else found


def _complement(machine: Machine, value: Value, bits: int) -> Value:
    return apply_integer(machine, operation(f"not.b{bits}"), [value])


@TABLE.opcode(*(f"s_{verb}_b32" for verb in _VERBS), operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def logic_32(instruction: Instruction, context: Context) -> Step:
    """Logic of two words; the condition code is whether the result is nonzero."""
    verb = instruction.opcode.split("_")[1]

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return _word_logic(machine, verb, left, right, 32)

    return scalar_step(instruction, context, ("b32", "b32"), 32, compute, is_nonzero)


@TABLE.opcode("s_not_b32", operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def complement(instruction: Instruction, context: Context) -> Step:
    """The complement of a word."""
    return scalar_step(
        instruction, context, ("b32",), 32, lambda machine, value: _complement(machine, value, 32), is_nonzero
    )


def holds_lane_mask(machine: Machine, operand: Operand) -> bool:
    """Whether a register pair currently holds a lane mask."""
    if not isinstance(operand, Vector):
        return False
    first = operand.items[0]
    assert isinstance(first, Register)
    key = lane_mask_key(first.name)
    return first.name == "exec_lo" or (key is not None and key in machine.registers)


def is_exec(operand: Operand) -> bool:
    """Whether an operand is the execution mask."""
    return isinstance(operand, Vector) and operand.items[0] == Register("exec_lo")


def as_lane_mask(machine: Machine, operand: Operand) -> Value:
    """A register pair or a constant as a lane mask."""
    if isinstance(operand, Vector):
        return read_lane_mask(machine, operand)
    assert isinstance(operand, Immediate)
    if operand.value in (0, -1):
        return NO_LANES if operand.value == 0 else ALL_LANES
    return lanes_of_bits(literal(operand.value, 64), machine.threads)


def register_pair(operand: Operand, instruction: Instruction) -> Vector:
    """The operand, which must be a pair of registers.  Raises UnknownInstruction for any other."""
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        raise UnknownInstruction(instruction, "takes a pair of scalar registers")
    return operand


def _check_pair_or_constant(operand: Operand, instruction: Instruction) -> None:
    if isinstance(operand, Immediate) and operand.kind == "int":
        immediate_bits(operand, "b64", instruction)
        return
    register_pair(operand, instruction)


def _logic_64_info(instruction: Instruction) -> InstructionInfo:
    """The declaration of `logic_64`: all but a move write the condition code, whether any lane of a mask is set."""
    if instruction.opcode.startswith("s_mov"):
        return DESTINATION_FIRST.info(instruction, Effect.NONE)
    return with_implicit(DESTINATION_FIRST, Effect.CROSS_LANE, writes=CONDITION_CODE)(instruction)


@TABLE.opcode(*(f"s_{verb}_b64" for verb in _VERBS), "s_not_b64", "s_mov_b64", operands=_logic_64_info)
def logic_64(instruction: Instruction, context: Context) -> Step:
    """Logic of register pairs: of lane masks where a source or the destination is one, else of integers."""
    check_modifiers(instruction)
    verb = instruction.opcode.split("_")[1]
    destination, *sources = instruction.operands
    target = register_pair(destination, instruction)
    if len(sources) != (1 if verb in ("not", "mov") else 2):
        raise UnknownInstruction(instruction, "does not take these operands")
    readers = [reader(each, "b64", instruction) for each in sources]
    write = writer(destination, 64, instruction) if not is_exec(destination) else None
    conditional = verb != "mov" and instruction.line in condition_code_live_after(context.kernel, context.arch.opcodes)
    pairs = all(isinstance(each, Vector) or (isinstance(each, Immediate) and each.kind == "int") for each in sources)

    def step_on_masks(machine: Machine) -> None:
        values = [as_lane_mask(machine, each) for each in sources]
        found = values[0] if verb == "mov" else complement_mask(machine, values[0]) if verb == "not" else None
        if found is None:
            found = logic(machine, verb, values[0], values[1])
        if conditional:
            write_scc(machine, any_lane(machine, found))
        write_lane_mask(machine, target, found)

    def step(machine: Machine) -> None:
        if pairs and (write is None or any(holds_lane_mask(machine, each) for each in sources)):
            step_on_masks(machine)
            return
        values = [each(machine) for each in readers]
        if verb == "mov":
            found = values[0]
        elif verb == "not":
            found = _complement(machine, values[0], 64)
        else:
            found = _word_logic(machine, verb, values[0], values[1], 64)
        if conditional:
            write_scc(machine, is_nonzero(machine, found))
        assert write is not None
        write(machine, found)

    if write is None and not pairs:
        raise UnknownInstruction(instruction, "sets the execution mask to an operand that is no lane mask")
    return step


@TABLE.opcode("s_cselect_b64", "s_cmov_b64", operands=select_info)
def select(instruction: Instruction, context: Context) -> Step:
    """One of two register pairs by the condition code.

    A select between all lanes and none by a condition that depends on data is a lane mask.
    """
    check_modifiers(instruction)
    destination, *sources = instruction.operands
    target = register_pair(destination, instruction)
    if form(instruction.opcode).name == "s_cmov_b64":
        sources = [*sources, destination]
    if len(sources) != 2:
        raise UnknownInstruction(instruction, "selects between two operands")
    for each in sources:
        _check_pair_or_constant(each, instruction)
    readers = [reader(each, "b64", instruction) for each in sources]
    write = writer(destination, 64, instruction) if not is_exec(destination) else None
    all_or_none = all(isinstance(each, Immediate) and each.value in (0, -1) for each in sources)

    def step(machine: Machine) -> None:
        condition = condition_code(machine)
        depends_on_data = machine.known(condition) is None
        if (
            write is None
            or any(holds_lane_mask(machine, each) for each in sources)
            or (depends_on_data and all_or_none)
        ):
            left, right = (as_lane_mask(machine, each) for each in sources)
            write_lane_mask(machine, target, select_value(machine, condition, left, right))
            return
        values = [each(machine) for each in readers]
        write(machine, select_value(machine, condition, values[0], values[1]))

    return step


@TABLE.opcode(
    *(f"s_{verb}_saveexec_b64" for verb in (*_VERBS, "andn1", "orn1")),
    operands=with_implicit(
        DESTINATION_FIRST, Effect.CROSS_LANE, reads=EXECUTION_MASK, writes=EXECUTION_MASK | CONDITION_CODE
    ),
)
def save_exec(instruction: Instruction, context: Context) -> Step:
    """Save the execution mask, and set it to a function of the source and its old value."""
    check_modifiers(instruction)
    verb = instruction.opcode.split("_")[1]
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    target, source = instruction.operands
    saved = register_pair(target, instruction)
    _check_pair_or_constant(source, instruction)
    conditional = instruction.line in condition_code_live_after(context.kernel, context.arch.opcodes)

    def step(machine: Machine) -> None:
        operand, before = as_lane_mask(machine, source), machine.registers[EXEC]
        after = logic(machine, verb, operand, before)
        if conditional:
            write_scc(machine, any_lane(machine, after))
        write_exec(machine, after)
        write_lane_mask(machine, saved, before)

    return step
