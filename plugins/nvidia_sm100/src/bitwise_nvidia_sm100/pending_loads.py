"""Registers that tcgen05.ld writes: they hold their values only after tcgen05.wait::ld.

Source: PTX ISA 8.8, "tcgen05.ld" and "tcgen05.wait".
"""

from __future__ import annotations

from bitwise_core.assembly.module import Instruction, Kernel, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import successors


@once_a_kernel
def _early_uses(kernel: Kernel, opcodes: OpcodeTable) -> dict[int, int]:
    """Map the position of each load whose registers some path uses too early to the line of that use."""
    infos = infos_of(kernel, opcodes)
    following = successors(kernel, infos)
    found: dict[int, int] = {}
    for index, instruction in enumerate(kernel.instructions):
        if not instruction.opcode.startswith("tcgen05.ld."):
            continue
        pending = infos[index].writes
        seen: set[int] = set()
        work = list(following[index])
        while work:
            place = work.pop()
            if place == EXIT or place in seen:
                continue
            seen.add(place)
            other, info = kernel.instructions[place], infos[place]
            if other.opcode.startswith("tcgen05.wait::ld.") and other.guard is None:
                continue
            if not pending.isdisjoint(info.reads | info.writes) or Effect.CALL in info.effects:
                found[index] = other.line
                break
            work += following[place]
    return found


def early_use(instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable) -> int | None:
    """Return the line that may use a register of this load before tcgen05.wait::ld, None if no path does."""
    index = next(place for place, each in enumerate(kernel.instructions) if each is instruction)
    return _early_uses(kernel, opcodes).get(index)
