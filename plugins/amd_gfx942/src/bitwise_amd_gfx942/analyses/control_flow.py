"""Successors of each instruction, and liveness of the scalar condition code."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

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
    found = list(program.successors(kernel, infos))
    for index, places in enumerate(found):
        if places == (index + 1,):
            continue
        ends = infos[index].effects.overlaps(Effect.END)
        found[index] = () if ends else tuple(end if each == EXIT else each for each in places)
    return found


@once_a_kernel
def condition_code_live_after(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """The lines of the instructions that read or write the scalar condition code where it is live after them."""
    infos, following = infos_of(kernel, opcodes), successors(kernel, opcodes)
    count = len(infos)
    known = {id(info): (not info.reads.isdisjoint(CONDITION_CODE), "scc" in info.writes) for info in infos}
    touching = [index for index, info in enumerate(infos) if True in known[id(info)]]
    starts = {0}
    for index, targets in enumerate(following):
        if targets != (index + 1,):
            starts.update((index + 1, *targets))
    runs = list(pairwise([*sorted(each for each in starts if each < count), count]))
    inside = [touching[bisect_left(touching, first) : bisect_left(touching, end)] for first, end in runs]
    entering = dict.fromkeys((*starts, count), False)
    live_after: dict[int, bool] = {}
    changed = True
    while changed:
        changed = False
        for (first, end), places in zip(reversed(runs), reversed(inside), strict=True):
            live = any(entering[each] for each in following[end - 1])
            for index in reversed(places):
                reads, writes = known[id(infos[index])]
                live_after[index] = live
                live = reads or (live and not writes)
            if live != entering[first]:
                entering[first] = changed = live
    return frozenset(kernel.instructions[index].line for index, live in live_after.items() if live)
