"""s_waitcnt, and the table that refuses an instruction which does not wait for what it uses."""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.wait_hazards import hazards_by_line
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect
from bitwise_core.execution.machine import Step

TABLE = Table()


class WaitingTable(Table):
    """A table of instructions that come when what they use is there."""

    def build(self, instruction: Instruction, context: Context) -> Step:
        """See `OpcodeTable.build`.  Raises UnknownInstruction where the kernel does not wait."""
        early = hazards_by_line(context.kernel, context.arch.opcodes).get(instruction.line)
        if early is not None:
            raise UnknownInstruction(instruction, early)
        return super().build(instruction, context)


@TABLE.opcode("s_waitcnt", operands=NO_DESTINATION, effects=Effect.NONE)
def wait(instruction: Instruction, context: Context) -> Step:
    """Values are there as soon as they are asked for in this reading."""
    check_modifiers(instruction)
    return lambda machine: None
