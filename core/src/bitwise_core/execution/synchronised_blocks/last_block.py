"""Launches in which the block with the last ticket of a counter finishes the work of all.

Which block takes which ticket depends on the order of arrival.  The launch is executed once for each shift of the
tickets, so that every block takes every ticket of its counter once.  A block with another ticket than the last stores
nothing after it, and the last one sees what all the others stored before their tickets.  So a launch leaves what the
blocks store before their tickets, and what the last block of each counter stores after it.  If the elements that the
last block of each counter stores, and the contents of all elements, are the same whichever block is the last, they are
the same in every order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from bitwise_core.execution.assumptions import ANY_LANE, LOWEST_LANE
from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, lines_read
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import Cause, Kind
from bitwise_core.execution.synchronised_blocks.synchronised_launch import (
    SynchronisedLaunch,
    equal_outputs,
    lines_with_infos,
    synchronising_lines,
    unordered_lines,
)
from bitwise_core.execution.synchronised_blocks.ticket_memory import Counter, TicketLines, TicketMemory
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_TICKETS = 1024
"""The largest number of tickets of one counter."""


def ticket_lines(prepared: PreparedLaunch, causes: Collection[Cause]) -> TicketLines | None:
    """Return the lines of a launch whose result these causes leave undetermined; None if no ticket is among them."""
    pairs = lines_with_infos(prepared)
    arrivals = {each.line for each in causes if each.kind is Kind.ARRIVAL}
    tickets = frozenset(line for line, kind in synchronising_lines(pairs).items() if all(kind)) & arrivals
    if not tickets or prepared.blocks_interact or lines_read(prepared).isdisjoint(tickets):
        return None
    return TicketLines(tickets, unordered_lines(pairs))


def outputs_by_tickets(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """Return what a launch leaves in the caller's buffers, the same for every order of tickets, or None.

    `causes` left its result undetermined in an execution without tickets.
    """
    lines = ticket_lines(prepared, causes)
    if lines is None:
        return None
    try:
        return _outputs_of_all_shifts(SynchronisedLaunch(prepared, assume, buffers), lines)
    except Unsupported:
        return None


def _outputs_of_all_shifts(launch: SynchronisedLaunch, lines: TicketLines) -> dict[int, Output] | None:
    """Run the launch once for each shift of the tickets.  Return the outputs if all agree.  Raises Unsupported."""
    every = np.arange(launch.prepared.launch.blocks)
    blocks = every.size

    def run(
        order: Array, expected: Mapping[int, Counter] | None, launch: SynchronisedLaunch = launch
    ) -> tuple[TicketMemory, frozenset[int]]:
        def memory(domain: TermDomain, given: GivenContents) -> TicketMemory:
            return TicketMemory(domain, given, blocks=blocks, lines=lines, expected=expected)

        return launch.run(memory, launch.prepared.batches(order))

    first = run(every, None, _of_any_lane(launch))[0].counters()
    most = max((len(counter.blocks) for counter in first.values()), default=0)
    if not 1 <= most <= MAXIMUM_TICKETS:
        return None
    found: dict[int, Output] | None = None
    stored: set[tuple[int, int]] = set()
    for shift in range(most):
        memory, scratch = run(_order(every, first, shift), first)
        if not _is_shift(memory.counters(), first, shift):
            return None
        outputs = checked_outputs(memory, scratch)
        if found is None:
            found, stored = outputs, memory.stored_by_last()
        elif not equal_outputs(outputs, found) or memory.stored_by_last() != stored:
            return None
    return found


def _of_any_lane(launch: SynchronisedLaunch) -> SynchronisedLaunch:
    """Return the launch for the run that only counts tickets.

    Nothing is ordered there, so that lanes which store one content may seem to store different ones.
    """
    assume = launch.prepared.assume - {LOWEST_LANE} | {ANY_LANE}
    return replace(launch, prepared=replace(launch.prepared, assume=assume))


def _order(blocks: Array, counters: Mapping[int, Counter], shift: int) -> Array:
    """Return the blocks in an order in which those of each counter are shifted by `shift` places."""
    place = np.zeros(blocks.size, dtype=np.int64)
    for counter in counters.values():
        count = len(counter.blocks)
        place[list(counter.blocks)] = (np.arange(count) - shift) % count
    return blocks[np.argsort(place, kind="stable")]


def _is_shift(found: Mapping[int, Counter], first: Mapping[int, Counter], shift: int) -> bool:
    """Return whether the tickets are those of the first run, shifted among the blocks of each counter."""
    if found.keys() != first.keys():
        return False
    for address, counter in first.items():
        count = shift % len(counter.blocks)
        shifted = replace(counter, blocks=counter.blocks[count:] + counter.blocks[:count])
        if found[address] != shifted:
            return False
    return True
