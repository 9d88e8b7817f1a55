"""Launches in which what a block reads of flags decides which way it takes, as a decoupled look-back does.

Each block sums what blocks before it have published: the prefix of one that is done, or the parts of those that are
not.  Both are the same number where the sum has one form, as one of integers.  `WayMemory` executes each block once for
each of its ways, and proves that all of them leave the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, lines_read
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.races.undetermined import Cause
from bitwise_core.execution.synchronised_blocks.synchronised_launch import (
    SynchronisedLaunch,
    lines_with_infos,
    order_decides,
    unordered_lines,
)
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation, SynchronisingCode
from bitwise_core.execution.synchronised_blocks.way_memory import WayMemory
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_BLOCKS = 64
"""The largest number of blocks of a launch whose ways are followed."""


def outputs_by_look_back(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """Return what a launch leaves in the caller's buffers, the same for every order of blocks, or None.

    `causes` left its result undetermined in an execution that follows no order between blocks.
    """
    blocks = prepared.launch.blocks
    if blocks > MAXIMUM_BLOCKS or prepared.blocks_interact or prepared.program.functions:
        return None
    pairs = lines_with_infos(prepared)
    lines = _lines_of_flags(pairs)
    if not order_decides(causes, lines):
        return None
    if lines_read(prepared).isdisjoint(lines):  # no block waits for another one
        return None
    launch = SynchronisedLaunch(prepared, assume, buffers)
    code = SynchronisingCode(blocks, lines, unordered_lines(pairs))

    def run(cells: Mapping[int, int] | None) -> tuple[WayMemory, frozenset[int]]:
        def memory(domain: TermDomain, given: GivenContents) -> WayMemory:
            return WayMemory(domain, given, code, cells, partial(live_at, prepared.program))

        order: Array = np.arange(blocks)
        return launch.run(memory, np.split(order, blocks), WayMemory.run_blocks)

    try:
        cells = run(None)[0].cells()
        if not cells:  # no access orders blocks
            return None
        memory, scratch = run(cells)
        if memory.cells() != cells:
            return None
        memory.store_cells()
        return checked_outputs(memory, scratch)
    except Unsupported:
        return None


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
