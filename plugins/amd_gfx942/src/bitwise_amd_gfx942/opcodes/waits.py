"""s_waitcnt, and the opcode table that rejects an instruction whose sources have not arrived."""

from __future__ import annotations

from collections.abc import Mapping

from bitwise_amd_gfx942.addresses.address_words import reading_words
from bitwise_amd_gfx942.analyses.wait_hazards import hazards_by_line
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_amd_gfx942.opcodes.memory.loads_to_shared import followed
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_core.assembly.module import Instruction, Kernel
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import NO_DESTINATION
from bitwise_core.execution.machine import Step

TABLE = Table()


class WaitingTable(Table):
    """An opcode table that rejects an instruction which uses a value without waiting for it."""

    _latest: tuple[Kernel, Mapping[int, str]] | None = None
    """The hazards of the kernel whose steps are built."""

    def known_refusals(self, kernel: Kernel) -> Mapping[int, str]:
        """See `OpcodeTable.known_refusals`: those of instructions with a hazard."""
        hazards = hazards_by_line(kernel, self)
        places = enumerate(kernel.instructions) if hazards else ()
        return {
            index: str(UnknownInstruction(each, hazards[each.line])) for index, each in places if each.line in hazards
        }

    def build(self, instruction: Instruction, context: Context) -> Step:
        """See `OpcodeTable.build`.  Raises UnknownInstruction for an instruction with a hazard."""
        latest = self._latest
        if latest is None or latest[0] is not context.kernel:
            latest = self._latest = context.kernel, hazards_by_line(context.kernel, context.arch.opcodes)
        hazard = latest[1].get(instruction.line)
        if hazard is not None:
            raise UnknownInstruction(instruction, hazard)
        step = followed(super().build(instruction, context), instruction, context)
        return reading_words(step, instruction, context.kernel, context.arch.opcodes)


@TABLE.opcode("s_waitcnt", operands=with_implicit(NO_DESTINATION, reads=EXECUTION_MASK))
def wait(instruction: Instruction, context: Context) -> Step:
    """No effect but on loads into shared memory: others complete at once, and `WaitingTable` checks the waits."""
    check_modifiers(instruction)
    return lambda machine: None
