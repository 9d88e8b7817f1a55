"""scratch_ loads and stores: private memory of each lane, which holds spilled registers.

Source: AMD Instinct MI300 ISA, "Scratch memory instructions".  Every access is split into 32-bit words.
"""

from __future__ import annotations

import re

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form, immediate_offset
from bitwise_amd_gfx942.opcodes.memory.flat import CACHE, tuple_reader, zero_extend
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, reader, writer
from bitwise_core.assembly.module import Instruction, Operand, Symbol
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.memory import local_memory
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

TABLE = Table()

_COUNTS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
_NAME = re.compile(r"scratch_(?:load|store)_(dword(?:x[234])?)")
_OFF = Symbol("off")


def scratch_address_reader(instruction: Instruction, varying: Operand, base: Operand) -> Reader:
    """The reader of the 64-bit address in a lane's private memory.  Raises UnknownInstruction."""
    fixed = immediate_offset(instruction, check_modifiers(instruction, "offset", *CACHE), 13, signed=True)
    offset = literal(local_memory.LOCAL_BASE + fixed, 64)
    summands = [reader(each, "b32", instruction) for each in (varying, base) if each != _OFF]

    def read(machine: Machine) -> Value:
        total: Value = offset
        for each in summands:
            total = apply_integer(machine, operation("add.b64"), [total, zero_extend(each(machine))])
        return total

    return read


def _count(instruction: Instruction) -> int:
    found = _NAME.fullmatch(form(instruction.opcode).name)
    if found is None or len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "does not take these operands")
    return _COUNTS[found[1]]


@vector_opcode(TABLE, *(f"scratch_load_{kind}" for kind in _COUNTS), operands=DESTINATION_FIRST, effects=Effect.LOAD)
def load(instruction: Instruction, context: Context) -> Step:
    """Load words of private memory."""
    count = _count(instruction)
    target, offset, base = instruction.operands
    read_address, write = scratch_address_reader(instruction, offset, base), writer(target, 32 * count, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        address = read_address(machine)
        write(machine, concat([local_memory.load(machine, address, 4 * each, 32, line) for each in range(count)]))

    return step


@vector_opcode(TABLE, *(f"scratch_store_{kind}" for kind in _COUNTS), operands=NO_DESTINATION, effects=Effect.STORE)
def store(instruction: Instruction, context: Context) -> Step:
    """Store words to private memory.  Raises Unsupported at an address that depends on data."""
    count = _count(instruction)
    offset, source, base = instruction.operands
    read_address = scratch_address_reader(instruction, offset, base)
    value_of = tuple_reader(source, instruction) if count > 1 else reader(source, "b32", instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        address = machine.known(read_address(machine))
        if address is None:
            raise DataDependent("private memory is written at an address that depends on data", line)
        value = value_of(machine)
        local_memory.store(machine, address, [extract(value, 32 * each, 32) for each in range(count)], 32, line)

    return step
