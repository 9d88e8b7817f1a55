"""Instructions that an assembler may expand to branches between the lanes of a warp, and what is executed behind them.

ptxas gives exactly rounded quotients and roots, divisions of 64 bits, atomic operations that it builds from exchanges,
and copies by one lane a way of their own for some lanes.  The lanes join behind it by a convergence barrier, but no
document says so.
"""

from __future__ import annotations

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Register, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.program import successors

_ROUNDINGS = frozenset(["rn", "rz", "rm", "rp"])


def may_branch(instruction: Instruction) -> bool:
    """Return whether an assembler may expand an instruction to branches between lanes."""
    root, *modifiers = instruction.opcode.split(".")
    if root in ("div", "rem", "sqrt", "rcp"):
        return not _ROUNDINGS.isdisjoint(modifiers) or modifiers[-1:] in (["u64"], ["s64"])
    return root in ("atom", "red", "call", "fns", "multimem") or instruction.opcode.startswith("cp.async.bulk")


def joins_warps(instruction: Instruction) -> bool:
    """Return whether the lanes of each warp execute an instruction together: a barrier of the block, or an exchange."""
    root, *modifiers = instruction.opcode.split(".")
    if instruction.guard is not None:
        return False
    if root == "shfl":
        source, members = instruction.operands[1], instruction.operands[-1]
        everyone = isinstance(members, Immediate) and members.value & 0xFFFFFFFF == 0xFFFFFFFF
        return everyone and isinstance(source, Register)
    aligned = (root == "bar" and modifiers[:1] == ["sync"]) or (root == "barrier" and "aligned" in modifiers)
    return aligned and "warp" not in modifiers and len(instruction.operands) == 1


@once_a_kernel
def behind_expanded_branches(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the instructions that may follow one that `may_branch` with none between that `joins_warps`.

    They are identified by `id`, since a line of the text may hold several.
    """
    following = successors(kernel, infos_of(kernel, opcodes))
    work = [index for index, each in enumerate(kernel.instructions) if may_branch(each)]
    found: set[int] = set()
    while work:
        for place in following[work.pop()]:
            if 0 <= place < len(kernel.instructions) and place not in found:
                found.add(place)
                if not joins_warps(kernel.instructions[place]):
                    work.append(place)
    return frozenset(id(kernel.instructions[place]) for place in found)
