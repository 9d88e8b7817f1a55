"""Launches in which blocks count their arrivals, and wait until all have arrived: barriers of the whole grid.

All blocks are executed together, once for each number of arrivals that the first read of a wait may find.
`BarrierMemory` proves that a read which finds too few arrivals has no effect but another read.  If all runs go on in
the same states and leave the same contents, every order of blocks does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, lines_read
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.races.undetermined import Cause
from bitwise_core.execution.synchronised_blocks.barrier_memory import BarrierMemory
from bitwise_core.execution.synchronised_blocks.synchronised_launch import (
    SynchronisedLaunch,
    equal_outputs,
    lines_with_infos,
    order_decides,
    synchronising_lines,
    unordered_lines,
)
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation, SynchronisingCode

MAXIMUM_BLOCKS = 32
"""The largest number of blocks whose barriers are followed; there are about as many runs."""

MAXIMUM_THREADS = 1 << 15
"""The largest number of threads that are executed together."""


def outputs_by_barriers(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """Return what a launch leaves in the caller's buffers, the same for every order of blocks, or None.

    `causes` left its result undetermined in an execution that follows no order between blocks.
    """
    blocks = prepared.launch.blocks
    if blocks > MAXIMUM_BLOCKS or blocks * prepared.threads > MAXIMUM_THREADS:
        return None
    if prepared.blocks_interact or prepared.program.functions:
        return None
    pairs = lines_with_infos(prepared)
    lines = {line: Synchronisation(*kind) for line, kind in synchronising_lines(pairs).items()}
    if not order_decides(causes, lines):
        return None
    if lines_read(prepared).isdisjoint(lines):  # no block waits for another one
        return None
    launch = SynchronisedLaunch(prepared, assume, buffers)
    code = SynchronisingCode(blocks, lines, unordered_lines(pairs))

    def run(variant: int | None, cells: Mapping[int, int] | None) -> tuple[BarrierMemory, frozenset[int]]:
        def memory(domain: TermDomain, given: GivenContents) -> BarrierMemory:
            return BarrierMemory(domain, given, code, cells, partial(live_at, prepared.program), variant)

        return launch.run(memory, [np.arange(blocks)])

    try:
        first = run(None, None)[0]
        cells, states = first.cells(), first.states
        found: dict[int, Output] | None = None
        if not cells:  # no access orders blocks
            return None
        # Where the order of arrivals matters, the fewest arrivals show it soonest.
        for variant in (first.most_open, *range(first.most_open)):
            memory, scratch = run(variant, cells)
            if memory.cells() != cells or memory.states != states or memory.most_open != first.most_open:
                return None
            memory.store_counters()
            outputs = checked_outputs(memory, scratch)
            if found is not None and not equal_outputs(outputs, found):
                return None
            found = outputs
        return found
    except Unsupported:
        return None
