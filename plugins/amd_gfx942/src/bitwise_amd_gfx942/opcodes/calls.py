"""s_getpc, s_swappc and s_setpc: addresses of functions, calls, returns (`text.calls` says what they are made of).

Source: AMD Instinct MI300 ISA, "Scalar ALU operations" (SOP1).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.opcodes.implicit import CONDITION_CODE, implicit
from bitwise_amd_gfx942.opcodes.sources import reader, writer
from bitwise_amd_gfx942.registers import write_scc
from bitwise_core.assembly.module import Immediate, Instruction, Operand, Symbol
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Branch, Control, Machine, Step, literal
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison

TABLE = Table()


@TABLE.opcode("s_getpc_b64", operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def address(instruction: Instruction, context: Context) -> Step:
    """The address of a function; the condition code is that of sums of addresses, which nobody knows."""
    check_modifiers(instruction)
    number = instruction.operands[1] if len(instruction.operands) == 2 else None
    if not isinstance(number, Immediate):
        raise UnknownInstruction(instruction, "takes an address in the text that is no function's, as of a table")
    write, constant = writer(instruction.operands[0], 64, instruction), literal(number.value, 64)

    def step(machine: Machine) -> None:
        write(machine, constant)
        write_scc(machine, poison(1))

    return step


def _place(instruction: Instruction, context: Context, operand: Operand) -> int:
    if not isinstance(operand, Symbol) or operand.name not in context.kernel.labels:
        raise UnknownInstruction(instruction, "goes to a place that is not known")
    return context.kernel.labels[operand.name]


def _check(machine: Machine, value: Value, number: int, line: int) -> None:
    """Raises Unsupported where a jump does not go where the text says."""
    known = machine.known(value)
    astray = None if known is None else known != np.uint64(number)
    if astray is not None and machine.mask is not None:
        astray = astray & machine.mask
    if astray is None or astray.any():
        raise Unsupported("a call or a return goes to an address that is not the one it was given", line)


@TABLE.opcode("s_swappc_b64", operands=implicit(DESTINATION_FIRST, Effect.BRANCH, reads=CONDITION_CODE))
def call(instruction: Instruction, context: Context) -> Step:
    """Goes to a function and leaves the address of the next instruction."""
    check_modifiers(instruction)
    if len(instruction.operands) != 5:
        raise UnknownInstruction(instruction, "calls what is not known")
    back, target, entry, expected, token = instruction.operands
    place = _place(instruction, context, entry)
    assert isinstance(expected, Immediate)
    assert isinstance(token, Immediate)
    read, write, constant = reader(target, "b64", instruction), writer(back, 64, instruction), literal(token.value, 64)
    number, line = expected.value, instruction.line

    def step(machine: Machine) -> Control:
        _check(machine, read(machine), number, line)
        write(machine, constant)
        return Branch(place)

    return step


@TABLE.opcode("s_setpc_b64", operands=implicit(NO_DESTINATION, Effect.BRANCH, reads=CONDITION_CODE))
def give_back(instruction: Instruction, context: Context) -> Step:
    """Goes back behind the call."""
    check_modifiers(instruction)
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "goes to a place that is not known")
    source, back, token = instruction.operands
    place, read = _place(instruction, context, back), reader(source, "b64", instruction)
    assert isinstance(token, Immediate)
    number, line = token.value, instruction.line

    def step(machine: Machine) -> Control:
        _check(machine, read(machine), number, line)
        return Branch(place)

    return step
