"""s_waitcnt: what was asked of memory has arrived."""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers
from bitwise_core.asm import Instruction
from bitwise_core.machine.arch import Context
from bitwise_core.machine.state import Step

TABLE = Table()


@TABLE.opcode("s_waitcnt", "s_waitcnt_vscnt")
def wait(instruction: Instruction, context: Context) -> Step:
    """Values are there as soon as they are asked for in this reading."""
    check_modifiers(instruction)
    return lambda machine: None
