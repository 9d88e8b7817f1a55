"""Successors of each instruction, and liveness of the scalar condition code."""

from __future__ import annotations

from bitwise_core.assembly.module import Kernel, once_a_kernel
from bitwise_core.execution import program
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.instruction_info import Effect

CONDITION_CODE = frozenset({"scc", "src_scc"})
"""The names of the scalar condition code: as a register, and as a source operand."""


@once_a_kernel
def successors(kernel: Kernel, opcodes: OpcodeTable) -> list[tuple[int, ...]]:
    """The successors of each instruction; the index after the last instruction is the kernel's end."""
    infos, end = infos_of(kernel, opcodes), len(kernel.instructions)
    return [
        () if info.effects.overlaps(Effect.END) else tuple(end if each == EXIT else each for each in following)
        for info, following in zip(infos, program.successors(kernel, infos), strict=True)
    ]


@once_a_kernel
def condition_code_live_after(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """The lines of the instructions after which the scalar condition code is live."""
    count = len(kernel.instructions)
    infos = infos_of(kernel, opcodes)
    reads = [not info.reads.isdisjoint(CONDITION_CODE) for info in infos]
    writes = ["scc" in info.writes for info in infos]
    before = [False] * (count + 1)
    after = [False] * count
    following = successors(kernel, opcodes)
    changed = True
    while changed:
        changed = False
        for index in range(count - 1, -1, -1):
            live = False
            for each in following[index]:
                live = live or before[each]
            entering = reads[index] or (live and not writes[index])
            if live != after[index] or entering != before[index]:
                after[index], before[index], changed = live, entering, True
    return frozenset(each.line for each, live in zip(kernel.instructions, after, strict=True) if live)
