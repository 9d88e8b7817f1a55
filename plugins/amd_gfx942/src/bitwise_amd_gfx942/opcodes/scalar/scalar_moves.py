"""Scalar comparisons, moves and selects.

Source: AMD Instinct MI300 ISA, "Scalar ALU operations" (SOP1, SOPC, SOPK).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.compute import integer_operation
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import CONDITION_CODE, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.opcodes.scalar.scalar_integers import condition_code
from bitwise_amd_gfx942.opcodes.scalar.scalar_steps import scalar_step, source_operation
from bitwise_amd_gfx942.possible_values import PossibleValues, apply_to_possible_values
from bitwise_amd_gfx942.registers import write_scc
from bitwise_core.assembly.module import Immediate, Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import (
    DESTINATION_FIRST,
    NO_DESTINATION,
    UPDATED_FIRST,
    Effect,
    InstructionInfo,
)
from bitwise_core.execution.machine import Machine, Step, invert, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.integers.comparisons import compare_as_integers
from bitwise_core.execution.values.packing import blend_values, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import operation

TABLE = Table()

_OPERATORS = {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}


@TABLE.opcode(
    *(f"s_cmp{k}_{operator}_{kind}" for k in ("", "k") for operator in _OPERATORS for kind in ("i32", "u32")),
    "s_cmp_eq_u64", "s_cmp_lg_u64", operands=with_implicit(NO_DESTINATION, writes=CONDITION_CODE)
)  # fmt: skip
def compare(instruction: Instruction, context: Context) -> Step:
    """The condition code is the result of a comparison; s_cmpk extends a constant of 16 bits by sign or by zeros."""
    check_modifiers(instruction)
    first, operator, kind = instruction.opcode.split("_")[1:]
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "compares two operands")
    bits = int(kind[1:])
    left, right = instruction.operands
    if first == "cmpk":
        right = immediate_16(right, instruction, is_signed=kind[0] == "i")
    readers = [reader(each, f"b{bits}", instruction) for each in (left, right)]
    name = _OPERATORS[operator]
    core_kind = f"{'s' if kind[0] == 'i' else 'u'}{bits}"

    def step(machine: Machine) -> None:
        values = [each(machine) for each in readers]
        write_scc(machine, compare_as_integers(machine, name, core_kind, values[0], values[1]))

    return step


def immediate_16(operand: object, instruction: Instruction, *, is_signed: bool = True) -> Immediate:
    """A constant of 16 bits, sign-extended or zero-extended.  Raises UnknownInstruction for any other operand."""
    if not isinstance(operand, Immediate) or operand.kind != "int" or not -(1 << 15) <= operand.value < 1 << 16:
        raise UnknownInstruction(instruction, "takes a constant of 16 bits")
    value = operand.value & 0xFFFF
    return Immediate(value - (1 << 16) if is_signed and value >> 15 else value)


@TABLE.opcode(
    "s_bitcmp0_b32",
    "s_bitcmp1_b32",
    "s_bitcmp0_b64",
    "s_bitcmp1_b64",
    operands=with_implicit(NO_DESTINATION, writes=CONDITION_CODE),
)
def compare_bit(instruction: Instruction, context: Context) -> Step:
    """The condition code is whether a bit is 0 (s_bitcmp0), or 1 (s_bitcmp1)."""
    check_modifiers(instruction)
    bits, wanted = int(instruction.opcode[-2:]), instruction.opcode[8] == "1"
    readers = [
        reader(each, kind, instruction) for each, kind in zip(instruction.operands, (f"b{bits}", "b32"), strict=True)
    ]

    def step(machine: Machine) -> None:
        value, position = (each(machine) for each in readers)
        size = bits
        if not isinstance(value, np.ndarray) and isinstance(position, np.ndarray) and position.size == 1:
            low = int(position.flat[0]) % bits & ~7  # the result depends on this byte only
            value, position, size = extract(value, low, 8), literal(int(position.flat[0]) & 7, 32), 8
        found = apply_integer(machine, operation(f"bittest.b{size}"), [value, position])
        write_scc(machine, found if wanted else invert(machine.domain, found))

    return step


def _constant_info(instruction: Instruction) -> InstructionInfo:
    """The declaration of moves and constants: s_addk and s_mulk update the destination, s_addk writes scc."""
    if instruction.opcode.startswith("s_addk"):
        return with_implicit(UPDATED_FIRST, writes=CONDITION_CODE)(instruction)
    operands = UPDATED_FIRST if instruction.opcode.startswith("s_mulk") else DESTINATION_FIRST
    return operands.info(instruction, Effect.NONE)


def select_info(instruction: Instruction) -> InstructionInfo:
    """The declaration of a select by the condition code; s_cmov may leave its destination unchanged."""
    operands = UPDATED_FIRST if instruction.opcode.startswith("s_cmov") else DESTINATION_FIRST
    return with_implicit(operands, reads=CONDITION_CODE)(instruction)


@TABLE.opcode("s_mov_b32", "s_movk_i32", "s_addk_i32", "s_mulk_i32", operands=_constant_info)
def move_or_add_constant(instruction: Instruction, context: Context) -> Step:
    """Moves, and addition or multiplication of the destination by a constant of 16 bits."""
    name = form(instruction.opcode).name
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    destination, source = instruction.operands
    if name == "s_mov_b32":
        return scalar_step(instruction, context, ("b32",), 32, lambda machine, value: value)
    source = immediate_16(source, instruction)
    if name == "s_movk_i32":
        moved = Instruction(instruction.opcode, (destination, source), None, instruction.line, instruction.source)
        return scalar_step(moved, context, ("b32",), 32, lambda machine, value: value)
    wider = (destination, destination, source)
    moved = Instruction(instruction.opcode, wider, None, instruction.line, instruction.source)
    if name == "s_mulk_i32":
        return scalar_step(moved, context, ("b32", "b32"), 32, integer_operation("mul.b32"))
    condition = source_operation("addoverflow.s32")
    return scalar_step(moved, context, ("b32", "b32"), 32, integer_operation("add.b32"), condition)


@TABLE.opcode("s_cselect_b32", "s_cmov_b32", operands=select_info)
def select(instruction: Instruction, context: Context) -> Step:
    """One of two sources by the condition code; s_cmov leaves the destination unchanged where it is 0."""
    check_modifiers(instruction)
    destination, *sources = instruction.operands
    if form(instruction.opcode).name == "s_cmov_b32":
        sources = [*sources, destination]
    if len(sources) != 2:
        raise UnknownInstruction(instruction, "selects between two operands")
    readers = [reader(each, "b32", instruction) for each in sources]
    write = writer(destination, 32, instruction)

    def step(machine: Machine) -> None:
        left, right = (each(machine) for each in readers)
        write(machine, select_value(machine, condition_code(machine), left, right))

    return step


def select_by_candidates(predicate: Value, if_true: Value, if_false: Value) -> Value | None:
    """A select by a predicate that depends on a reciprocal's candidates; None for any other predicate."""
    if not isinstance(predicate, PossibleValues):
        return None
    found: Value | None = apply_to_possible_values([predicate, if_true, if_false], np.where, predicate.fallback)
    return found


def decided_lanes(machine: Machine, predicate: Value) -> Array | None:
    """The lanes that a predicate selects, or None where the domain selects by it.

    The blocks of an address pass need not agree on an integer of its domain, which must not be decided for a select.
    """
    decided = isinstance(predicate, np.ndarray | SymbolicVector | PossibleValues)
    return machine.known(predicate) if decided else None


def select_value(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value:
    """Select between two values lane by lane."""
    known = decided_lanes(machine, predicate)
    if known is None:
        found = select_by_candidates(predicate, if_true, if_false)
        if found is not None:
            return found
        return machine.domain.select(predicate, if_true, if_false)
    return blend_values(known, if_true, if_false)
