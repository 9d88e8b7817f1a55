"""s_getpc, s_swappc and s_setpc: function addresses, calls and returns, as `text.calls` rewrites them.

Source: AMD Instinct MI300 ISA, "Scalar ALU operations" (SOP1).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import CONDITION_CODE, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.registers import write_scc
from bitwise_core.assembly.module import Immediate, Instruction, Operand, Symbol
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Branch, Control, Machine, Step, literal
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison

TABLE = Table()


@TABLE.opcode("s_getpc_b64", operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def program_counter(instruction: Instruction, context: Context) -> Step:
    """The address of a function; the condition code is the carry of an address sum, which is unknown."""
    check_modifiers(instruction)
    address = instruction.operands[1] if len(instruction.operands) == 2 else None
    if not isinstance(address, Immediate):
        raise UnknownInstruction(instruction, "takes an address in the text that is not a function's, as of a table")
    write, constant = writer(instruction.operands[0], 64, instruction), literal(address.value, 64)

    def step(machine: Machine) -> None:
        write(machine, constant)
        write_scc(machine, poison(1))

    return step


def _label_target(instruction: Instruction, context: Context, operand: Operand) -> int:
    if not isinstance(operand, Symbol) or operand.name not in context.kernel.labels:
        raise UnknownInstruction(instruction, "jumps to an unknown target")
    return context.kernel.labels[operand.name]


def _check_target(machine: Machine, value: Value, expected: int, line: int) -> None:
    """Raises Unsupported where the target of a jump is not the address that the text implies."""
    known = machine.known(value)
    mismatch = None if known is None else known != np.uint64(expected)
    if mismatch is not None and machine.mask is not None:
        mismatch = mismatch & machine.mask
    if mismatch is None or mismatch.any():
        raise Unsupported("a call or a return jumps to an address other than that of its function or its call", line)


@TABLE.opcode("s_swappc_b64", operands=with_implicit(DESTINATION_FIRST, Effect.BRANCH, reads=CONDITION_CODE))
def call(instruction: Instruction, context: Context) -> Step:
    """Jump to a function and write the address of the next instruction."""
    check_modifiers(instruction)
    if len(instruction.operands) != 5:
        raise UnknownInstruction(instruction, "calls an unknown function")
    return_register, target, entry, entry_address, token = instruction.operands
    entry_index = _label_target(instruction, context, entry)
    assert isinstance(entry_address, Immediate)
    assert isinstance(token, Immediate)
    read, write, constant = (
        reader(target, "b64", instruction),
        writer(return_register, 64, instruction),
        literal(token.value, 64),
    )
    expected, line = entry_address.value, instruction.line

    def step(machine: Machine) -> Control:
        _check_target(machine, read(machine), expected, line)
        write(machine, constant)
        return Branch(entry_index)

    return step


@TABLE.opcode("s_setpc_b64", operands=with_implicit(NO_DESTINATION, Effect.BRANCH, reads=CONDITION_CODE))
def return_to_caller(instruction: Instruction, context: Context) -> Step:
    """Return to the instruction after the call."""
    check_modifiers(instruction)
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "jumps to an unknown target")
    source, return_label, token = instruction.operands
    return_index, read = _label_target(instruction, context, return_label), reader(source, "b64", instruction)
    assert isinstance(token, Immediate)
    expected, line = token.value, instruction.line

    def step(machine: Machine) -> Control:
        _check_target(machine, read(machine), expected, line)
        return Branch(return_index)

    return step
