"""Fences of the shared memory of a cluster, which make a relaxed arrival publish, and a relaxed wait acquire.

Source: PTX ISA 8.7, "membar, fence": with .sync_restrict::shared::cta, a release fence orders accesses to the shared
memory of the own block; with .sync_restrict::shared::cluster, an acquire fence orders accesses to that of all blocks.
"""

from __future__ import annotations

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context

RELEASE_FENCE = "fence.release.sync_restrict::shared::cta.cluster"
ACQUIRE_FENCE = "fence.acquire.sync_restrict::shared::cluster.cluster"


def is_released_by_a_fence(instruction: Instruction, context: Context) -> bool:
    """Return whether a relaxed arrival of the scope of the cluster publishes what its thread did in shared memory.

    The fence before it, which no branch may skip, covers the shared memory of the own block: the kernel must not
    access that of other blocks, except by copies, for which threads wait at mbarriers.
    """
    instructions = context.kernel.instructions
    if not _is_at_distance(instruction, context, RELEASE_FENCE, -1):
        return False
    if any(instructions[index] is instruction for index in context.kernel.labels.values() if index < len(instructions)):
        return False
    return not any(_accesses_other_blocks(each) for each in instructions)


def is_followed_by_a_fence(instruction: Instruction, context: Context) -> bool:
    """Return whether an acquire fence follows a wait and the branch that repeats the wait."""
    return _is_at_distance(instruction, context, ACQUIRE_FENCE, 2)


def _is_at_distance(instruction: Instruction, context: Context, opcode: str, distance: int) -> bool:
    """Return whether an unguarded instruction of this opcode is `distance` places after (negative: before) this one."""
    instructions = context.kernel.instructions
    index = next((index for index, each in enumerate(instructions) if each is instruction), None)
    if index is None or not 0 <= index + distance < len(instructions):
        return False
    found = instructions[index + distance]
    return found.opcode == opcode and found.guard is None


def _accesses_other_blocks(instruction: Instruction) -> bool:
    """Return whether an instruction may access the shared memory of other blocks otherwise than by a tensor copy."""
    root, *parts = instruction.opcode.split(".")
    if root in ("mapa", "call"):
        return "shared::cluster" not in parts  # a generic address, or another function
    return root not in ("mbarrier", "fence", "getctarank") and "tensor" not in parts and "shared::cluster" in parts
