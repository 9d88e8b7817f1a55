"""and, or, xor, not, lop3 and prmt, on integers and predicates.

Source: PTX ISA 8.7, sections "Logic and Shift Instructions" and "Data Movement: prmt".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Immediate, Instruction
from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, named
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, invert
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.opcodes.common import (
    check_kind,
    check_modifiers,
    integer_step,
    operands_of,
    parts_of,
    type_bits,
)

TABLE = OpcodeTable()

_BITS = ("pred", "b16", "b32", "b64")


@TABLE.opcode("and", "or", "xor", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=3)
def bitwise(instruction: Instruction, context: Context) -> Step:
    """Bitwise operations of two operands, predicates included."""
    root, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    check_kind(instruction, kind, _BITS)
    bits = type_bits(kind)
    destination, left, right = operands_of(instruction, 3)

    def step(machine: Machine) -> None:
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        machine.write(destination, combine(machine, root, values[0], values[1], bits))

    return step


@TABLE.opcode("not", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=2)
@TABLE.opcode("cnot", operands=DESTINATION_FIRST, effects=Effect.NONE, least=2)
def complement(instruction: Instruction, context: Context) -> Step:
    """not of an integer or of a predicate.  cnot is not modelled."""
    root, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    check_kind(instruction, kind, _BITS)
    if root != "not":
        raise UnknownInstruction(instruction)
    destination, source = operands_of(instruction, 2)
    if kind == "pred":

        def step(machine: Machine) -> None:
            machine.write(destination, invert(machine.domain, machine.read_bits(source, 1)))

        return step
    return integer_step(instruction, named(instruction, f"not.{kind}"))


@TABLE.opcode("lop3", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=5)
def ternary_logic(instruction: Instruction, context: Context) -> Step:
    """lop3.b32: any function of three bits by its truth table."""
    if instruction.opcode != "lop3.b32" or len(instruction.operands) != 5:
        raise UnknownInstruction(instruction)
    table = instruction.operands[4]
    if not isinstance(table, Immediate):
        raise UnknownInstruction(instruction, "has a truth table that is no literal")
    destination, *sources = instruction.operands[:4]
    shorter = Instruction(
        instruction.opcode, (destination, *sources), instruction.guard, instruction.line, instruction.source
    )
    return integer_step(shorter, named(instruction, f"lop3.{table.value & 255:#04x}.b32"))


_PERMUTE = operation("prmt.b32")


@TABLE.opcode("prmt", operands=DESTINATION_FIRST, effects=Effect.NONE, least=4)
def permute_bytes(instruction: Instruction, context: Context) -> Step:
    """prmt.b32 in its generic mode: four bytes chosen from eight, or the sign of one."""
    if instruction.opcode != "prmt.b32":
        raise UnknownInstruction(instruction)
    destination, left, right, selector = operands_of(instruction, 4)

    def step(machine: Machine) -> None:
        values = [machine.read_bits(each, 32) for each in (left, right, selector)]
        control = values[2]
        if not isinstance(control, np.ndarray) or all(isinstance(each, np.ndarray) for each in values):
            machine.write(destination, apply_integer(machine, _PERMUTE, values))
            return
        numbers = np.unique(active_values(control, machine.mask) & np.uint32(0xFFFF))  # other lanes are arbitrary
        result: Value | None = None
        for number in numbers:
            if int(number) & 0x8888:
                result = apply_integer(machine, _PERMUTE, values)
                break
            chosen = _selected_bytes(values[0], values[1], int(number))
            result = chosen if result is None else blend_values((control & np.uint32(0xFFFF)) == number, chosen, result)
        machine.write(destination, apply_integer(machine, _PERMUTE, values) if result is None else result)

    return step


def _selected_bytes(left: Value, right: Value, selector: int) -> Value:
    """Return the four selected bytes; two bytes of one aligned half-word are extracted as one part."""
    chosen = [selector >> 4 * byte_index & 7 for byte_index in range(4)]
    parts: list[Value] = []
    for low, high in ((chosen[0], chosen[1]), (chosen[2], chosen[3])):
        if high == low + 1 and low % 2 == 0:
            parts.append(extract(left if low < 4 else right, 8 * (low % 4), 16))
        else:
            parts.extend(extract(left if byte < 4 else right, 8 * (byte % 4), 8) for byte in (low, high))
    return concat(parts)
