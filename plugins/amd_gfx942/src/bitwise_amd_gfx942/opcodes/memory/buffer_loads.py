"""buffer_load_: loads into registers, and into shared memory, through a resource descriptor."""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.forms import Table
from bitwise_amd_gfx942.opcodes.memory.buffers import access_reader, loaded, zero
from bitwise_amd_gfx942.opcodes.memory.flat import LOADS
from bitwise_amd_gfx942.opcodes.memory.loads_to_shared import info_of_load, load_to_shared, loads_to_shared
from bitwise_amd_gfx942.opcodes.memory.memory_access import AccessWidth
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step

TABLE = Table()


def _info(instruction: Instruction) -> InstructionInfo:
    if loads_to_shared(instruction):
        return info_of_load(instruction)
    return DESTINATION_FIRST.info(instruction, Effect.LOAD)


@vector_opcode(TABLE, *(f"buffer_load_{kind}" for kind in LOADS), operands=_info)
def load(instruction: Instruction, context: Context) -> Step:
    """Loads of 8 to 128 bits; 0 out of bounds."""
    if loads_to_shared(instruction):
        return load_to_shared(instruction, context)
    width = AccessWidth(instruction)
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "does not take these operands")
    target = instruction.operands[0]
    find = access_reader(instruction, instruction.operands[1:], by_data=True)
    line = instruction.line
    write = width.register_writer(target, instruction)

    def step(machine: Machine) -> None:
        access = find(machine)
        value = loaded(machine, access, width.bits, line)
        if access.condition is not None:
            value = machine.domain.select(access.condition, value, zero(width.bits))
        write(machine, width.to_register(machine, value))

    return step
