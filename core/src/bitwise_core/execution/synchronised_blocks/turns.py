"""Launches in which a block waits until another has set a flag or passed on its turn.

The blocks are executed one at a time: one that waits for what no block has done yet stops until another one has.
`TurnMemory` proves for each of these reads that every order of blocks returns the same content, after any number of
earlier reads without effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.instruction_info import InstructionInfo
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import Cause
from bitwise_core.execution.synchronised_blocks.flagged_launch import outputs_in_every_order
from bitwise_core.execution.synchronised_blocks.synchronised_launch import synchronising_lines
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation
from bitwise_core.execution.synchronised_blocks.turn_memory import TurnMemory

MAXIMUM_BLOCKS = 256
"""The largest number of blocks of a launch whose turns are followed."""


def outputs_by_turns(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """See `outputs_in_every_order`."""
    if prepared.launch.blocks > MAXIMUM_BLOCKS or prepared.blocks_interact:
        return None
    return outputs_in_every_order(prepared, assume, buffers, causes, _lines_of_flags, TurnMemory)


def _lines_of_flags(pairs: Collection[tuple[int, InstructionInfo]]) -> dict[int, Synchronisation]:
    """Return the lines of accesses that synchronise."""
    return {line: Synchronisation(*kind) for line, kind in synchronising_lines(pairs).items()}
