"""Registers that tcgen05.ld writes: the PTX ISA says that they hold their values after tcgen05.wait::ld.

Source: PTX ISA 8.8, "tcgen05.ld" and "tcgen05.wait".
Compilers join such registers to pairs before the wait, and Triton 3.7 and later read them without one.  ptxas waits for
a loaded register before the first instruction that reads it, as for registers of other loads.
"""

from __future__ import annotations

from bitwise_core.assembly.module import Instruction, Kernel, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import successors

_MOVES = frozenset({"mov", "shl", "or", "cvt"})
"""The instructions that move bits; of cvt, only those between integers do."""
_FLOATS = frozenset({"f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2", "tf32"})


def _moves_bits(instruction: Instruction) -> bool:
    name, *parts = instruction.opcode.split(".")
    return name in _MOVES and instruction.guard is None and _FLOATS.isdisjoint(parts)


@once_a_kernel
def _early_uses(kernel: Kernel, opcodes: OpcodeTable) -> dict[int, int]:
    """Map the position of each load whose registers some path uses too early to the line of that use."""
    infos = infos_of(kernel, opcodes)
    following = successors(kernel, infos)
    found: dict[int, int] = {}
    for index, instruction in enumerate(kernel.instructions):
        if not instruction.opcode.startswith("tcgen05.ld."):
            continue
        loaded = infos[index].writes
        work = dict.fromkeys(following[index], loaded)
        pending: dict[int, frozenset[str]] = {}
        while work:
            place, more = work.popitem()
            before = pending.get(place)
            if place == EXIT or (before is not None and more <= before):
                continue
            after = pending[place] = more if before is None else more | before
            other, info = kernel.instructions[place], infos[place]
            if other.opcode.startswith("tcgen05.wait::ld.") and other.guard is None:
                continue
            if Effect.CALL in info.effects or not loaded.isdisjoint(info.writes):
                found[index] = other.line
                break
            if not after.isdisjoint(info.reads):
                if not _moves_bits(other):
                    found[index] = other.line
                    break
                after = after | info.writes
            for each in following[place]:
                work[each] = work.get(each, frozenset()) | after
    return found


def first_early_use(kernel: Kernel, opcodes: OpcodeTable) -> int | None:
    """Return a line that may use a register of a load before tcgen05.wait::ld, None if no path has one."""
    return next(iter(_early_uses(kernel, opcodes).values()), None)
