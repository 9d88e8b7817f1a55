"""Registers that tcgen05.ld writes: the PTX ISA says that they hold their values after tcgen05.wait::ld.

Source: PTX ISA 8.8, "tcgen05.ld" and "tcgen05.wait".
Compilers join such registers to pairs before the wait, and Triton 3.7 and later read them without one.  ptxas waits for
a loaded register before the first instruction that reads it, as for registers of other loads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bitwise_core.assembly.module import Instruction, Kernel, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import successors

_MOVES = frozenset({"mov", "shl", "or", "cvt"})
"""The instructions that move bits; of cvt, only those between integers do."""
_FLOATS = frozenset(
    {"f16", "f32", "f64", "bf16", "tf32", "f16x2", "bf16x2"}
    | {"e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2"}
)


def _moves_bits(instruction: Instruction) -> bool:
    name, *parts = instruction.opcode.split(".")
    return name in _MOVES and instruction.guard is None and _FLOATS.isdisjoint(parts)


@once_a_kernel
def _early_uses(kernel: Kernel, opcodes: OpcodeTable) -> dict[int, int]:
    """Map the position of each load whose registers some path uses too early to the line of that use."""
    infos = infos_of(kernel, opcodes)
    following = successors(kernel, infos)
    found: dict[int, int] = {}
    waits = frozenset(
        place
        for place, each in enumerate(kernel.instructions)
        if each.opcode.startswith("tcgen05.wait::ld.") and each.guard is None
    )
    for index, instruction in enumerate(kernel.instructions):
        if not instruction.opcode.startswith("tcgen05.ld."):
            continue
        loaded = infos[index].writes
        work = dict.fromkeys(following[index], loaded)
        pending: dict[int, frozenset[str]] = {}
        while work and index not in found:
            place, after = work.popitem()
            # One step after another up to a branch.
            while place != EXIT:
                before = pending.get(place)
                if before is not None:
                    if after <= before:
                        break
                    after = after | before
                pending[place] = after
                info = infos[place]
                if place in waits:
                    break
                if Effect.CALL in info.effects or not loaded.isdisjoint(info.writes):
                    found[index] = kernel.instructions[place].line
                    break
                if not after.isdisjoint(info.reads):
                    if not _moves_bits(kernel.instructions[place]):
                        found[index] = kernel.instructions[place].line
                        break
                    after = after | info.writes
                *others, place = following[place] or (EXIT,)
                for each in others:
                    work[each] = work.get(each, frozenset()) | after
    return found


def first_early_use(kernel: Kernel, opcodes: OpcodeTable) -> int | None:
    """Return a line that may use a register of a load before tcgen05.wait::ld, None if no path has one."""
    return next(iter(_early_uses(kernel, opcodes).values()), None)


def is_after_loads(instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable) -> bool:
    """Return whether a tcgen05.st stores results of every load of its warp that may not have been waited for."""
    index = next(place for place, each in enumerate(kernel.instructions) if each is instruction)
    return index in _stores_after_loads(kernel, opcodes)


@once_a_kernel
def _stores_after_loads(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the positions of the stores that are executed after all earlier loads.

    A store reads its registers first.  Where they depend on a register of a load, as for every load between the last
    tcgen05.wait::ld and the store here, the assembler has waited for this load.  The loads are in the basic block of
    the store: others would need an analysis of paths.
    """
    infos = infos_of(kernel, opcodes)
    following = successors(kernel, infos)
    before: dict[int, set[int]] = {}
    for index, instruction in enumerate(kernel.instructions):
        if instruction.opcode.startswith("tcgen05.ld."):
            for store in _reached_stores(kernel, following, index):
                before.setdefault(store, set()).add(index)
    entries = {*kernel.labels.values(), *(place for places in following for place in places if len(places) > 1)}
    found = set()
    for store, loads in before.items():
        start = max((place for place in entries if place <= store), default=0)
        inside = all(start <= load < store for load in loads)
        if inside and all(_depends(kernel, opcodes, load, store) for load in loads):
            found.add(store)
    return frozenset(found)


def _reached_stores(kernel: Kernel, following: Sequence[Collection[int]], load: int) -> set[int]:
    """Return the positions of the stores that some path from a load reaches without waiting for loads."""
    seen: set[int] = set()
    work, found = list(following[load]), set()
    while work:
        place = work.pop()
        if place == EXIT or place in seen:
            continue
        seen.add(place)
        instruction = kernel.instructions[place]
        if instruction.opcode.startswith("tcgen05.wait::ld.") and instruction.guard is None:
            continue
        if instruction.opcode.startswith("tcgen05.st."):
            found.add(place)
        work += following[place]
    return found


def _depends(kernel: Kernel, opcodes: OpcodeTable, load: int, store: int) -> bool:
    """Return whether the registers of a store depend on a load before it in its basic block."""
    infos = infos_of(kernel, opcodes)
    tainted = set(infos[load].writes)
    for place in range(load + 1, store):
        info = infos[place]
        if kernel.instructions[place].guard is None and not tainted.isdisjoint(info.reads):
            tainted |= set(info.writes)
        else:
            tainted -= set(info.writes)
    return not tainted.isdisjoint(infos[store].reads)
