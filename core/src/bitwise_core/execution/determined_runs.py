"""Simulation of a launch whose result is proved to be determined, also where accesses of its threads race.

Kernels in place, tickets, turns and barriers of the grid have races that change no result.  Every order of the threads
then leaves the same bytes, so one order is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bitwise_core.execution.concrete import PreparedLaunch, lines_that_synchronise
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.interleavings import ORDERS, run_in_order
from bitwise_core.execution.races.undetermined import Nondeterministic
from bitwise_core.execution.simulation import SimulationResult, simulate
from bitwise_core.execution.values.symbolic_vector import Array


def may_wait(prepared: PreparedLaunch) -> bool:
    """Return whether threads may wait for others: a simulation without an order may then not end."""
    return not prepared.blocks_interact and bool(lines_that_synchronise(prepared))


def stops_at_order(prepared: PreparedLaunch, error: Unsupported) -> bool:
    """Return whether `error` ended a simulation because it follows no order of the threads."""
    if prepared.blocks_interact:
        return False
    return isinstance(error, Nondeterministic) or bool(lines_that_synchronise(prepared, old_values=True))


def simulate_in_one_order(
    prepared: PreparedLaunch, contents: Mapping[str, Array], *, open_ended: bool = False, finite: bool = False
) -> SimulationResult:
    """Run all blocks in one order of the threads; see `simulate`.

    The bytes are those of the launch only if its result is proved to be determined.  Raises Unsupported where no order
    that is tried completes: threads may wait for others that come later in it.
    """
    waits = bool(lines_that_synchronise(prepared, old_values=True))
    failure = Unsupported("no order of the threads was run")
    # All threads in step are fastest, where none of them waits.
    for order in sorted(ORDERS, key=lambda each: each.together == waits):
        try:
            done = run_in_order(prepared, contents, order, open_ended=open_ended, finite=finite)
        except Unsupported as error:
            failure = error
            continue
        return SimulationResult(done.after, done.notes)
    raise failure


def simulate_determined(
    prepared: PreparedLaunch,
    contents: Mapping[str, Array],
    *,
    open_ended: bool = False,
    finite: bool = False,
    blocks: Sequence[int] | None = None,
) -> SimulationResult:
    """Run a launch whose result is proved to be determined; see `simulate`.  Raises Unsupported.

    All blocks are run where threads wait or race, whatever `blocks` are.
    """
    if not may_wait(prepared):
        try:
            return simulate(prepared, contents, open_ended=open_ended, finite=finite, blocks=blocks)
        except Unsupported as error:
            if not stops_at_order(prepared, error):
                raise
    return simulate_in_one_order(prepared, contents, open_ended=open_ended, finite=finite)
