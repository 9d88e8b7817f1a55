"""Launches in which what a block reads of flags decides which way it takes, as a decoupled look-back does.

Each block sums what blocks before it have published: the prefix of one that is done, or the parts of those that are
not.  Both are the same number where the sum has one form, as one of integers.  `WayMemory` executes each block once for
each of its ways, and proves that all of them leave the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.races.undetermined import Cause
from bitwise_core.execution.synchronised_blocks.flagged_launch import outputs_in_every_order
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation
from bitwise_core.execution.synchronised_blocks.way_memory import WayMemory

MAXIMUM_BLOCKS = 64
"""The largest number of blocks of a launch whose ways are followed."""


def outputs_by_look_back(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """See `outputs_in_every_order`."""
    if prepared.launch.blocks > MAXIMUM_BLOCKS or prepared.blocks_interact or prepared.program.functions:
        return None
    memory = partial(WayMemory, live_at=partial(live_at, prepared.program))
    return outputs_in_every_order(prepared, assume, buffers, causes, _lines_of_flags, memory)


def _lines_of_flags(pairs: Collection[tuple[int, InstructionInfo]]) -> dict[int, Synchronisation]:
    """Return the lines of atomic operations, and of accesses that acquire or release.

    Lines with other accesses beside them are left out, since an access is identified by its line.
    """
    found: dict[int, set[Synchronisation | None]] = {}
    for line, info in pairs:
        if info.effects.overlaps(Effect.LOAD | Effect.STORE):
            reads = info.acquires or info.releases or info.nondeterministic_result is not None
            found.setdefault(line, set()).add(Synchronisation(info.acquires, info.releases) if reads else None)
    alike = {line: next(iter(kinds)) for line, kinds in found.items() if len(kinds) == 1}
    return {line: kind for line, kind in alike.items() if kind is not None}
