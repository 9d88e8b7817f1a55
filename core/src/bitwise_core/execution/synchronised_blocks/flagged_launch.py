"""The execution of a launch whose blocks wait for flags, with a memory that proves that it stands for every order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, lines_read
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import InstructionInfo
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import Cause
from bitwise_core.execution.synchronised_blocks.flag_memory import FlagMemory
from bitwise_core.execution.synchronised_blocks.synchronised_launch import (
    SynchronisedLaunch,
    lines_with_infos,
    order_decides,
    unordered_lines,
)
from bitwise_core.execution.synchronised_blocks.synchronised_memory import Synchronisation, SynchronisingCode
from bitwise_core.execution.values.symbolic_vector import Array

Flags: TypeAlias = FlagMemory[Any]


class NewMemory(Protocol):
    """Makes the memory of a run; `cells` are the contents of the flags before it, None where they are not known."""

    def __call__(
        self, domain: Domain, given: GivenContents, code: SynchronisingCode, cells: Mapping[int, int] | None
    ) -> Flags:
        """Return the memory."""


def outputs_in_every_order(
    prepared: PreparedLaunch,
    assume: frozenset[str],
    buffers: Mapping[str, int],
    causes: Collection[Cause],
    lines_of_flags: Callable[[Collection[tuple[int, InstructionInfo]]], Mapping[int, Synchronisation]],
    new_memory: NewMemory,
) -> dict[int, Output] | None:
    """Return what a launch leaves in the caller's buffers, the same for every order of blocks, or None.

    `causes` left its result undetermined in an execution that follows no order between blocks.  `lines_of_flags`
    returns the lines that synchronise among those of a kernel.
    """
    pairs = lines_with_infos(prepared)
    lines = lines_of_flags(pairs)
    if not order_decides(causes, lines):
        return None
    if lines_read(prepared).isdisjoint(lines):  # no block waits for another one
        return None
    launch, blocks = SynchronisedLaunch(prepared, assume, buffers), prepared.launch.blocks
    code = SynchronisingCode(blocks, lines, unordered_lines(pairs))

    def run(cells: Mapping[int, int] | None) -> tuple[Flags, frozenset[int]]:
        def memory(domain: TermDomain, given: GivenContents) -> Flags:
            return new_memory(domain, given, code, cells)

        def run_blocks(memory: Flags, executions: Sequence[Callable[[], None]]) -> None:
            memory.run_blocks(executions)

        every: Array = np.arange(blocks)
        return launch.run(memory, np.split(every, blocks), run_blocks)

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
