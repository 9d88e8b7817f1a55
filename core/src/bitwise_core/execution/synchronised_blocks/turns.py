"""Launches in which a block waits until another has set a flag or passed on its turn.

The blocks are executed one at a time: one that waits for what no block has done yet stops until another one has.
`TurnMemory` proves for each of these reads that every order of blocks returns the same content, after any number of
earlier reads without effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, lines_read
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import Cause
from bitwise_core.execution.synchronised_blocks.synchronised_launch import (
    SynchronisedLaunch,
    lines_with_infos,
    order_decides,
    synchronising_lines,
    unordered_lines,
)
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation, SynchronisingCode
from bitwise_core.execution.synchronised_blocks.turn_memory import TurnMemory
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_BLOCKS = 256
"""The largest number of blocks of a launch whose turns are followed."""


def outputs_by_turns(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """Return what a launch leaves in the caller's buffers, the same for every order of blocks, or None.

    `causes` left its result undetermined in an execution that follows no order between blocks.
    """
    if prepared.launch.blocks > MAXIMUM_BLOCKS or prepared.blocks_interact:
        return None
    pairs = lines_with_infos(prepared)
    lines = {line: Synchronisation(*kind) for line, kind in synchronising_lines(pairs).items()}
    if not order_decides(causes, lines):
        return None
    if lines_read(prepared).isdisjoint(lines):  # no block waits for another one
        return None
    launch, blocks = SynchronisedLaunch(prepared, assume, buffers), prepared.launch.blocks
    code = SynchronisingCode(blocks, lines, unordered_lines(pairs))

    def run(cells: Mapping[int, int] | None) -> tuple[TurnMemory, frozenset[int]]:
        def memory(domain: TermDomain, given: GivenContents) -> TurnMemory:
            return TurnMemory(domain, given, code, cells)

        every: Array = np.arange(blocks)
        return launch.run(memory, np.split(every, blocks), TurnMemory.run_blocks)

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
