"""Which accesses come before which: vector clocks of the warps of a block and of its asynchronous agents.

The clock of a warp holds, for each warp and each agent, the time up to which it has seen its accesses.  A barrier joins
the clocks of the warps that arrive at it.  The lanes of one warp are ordered by a warp barrier only, which ends a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values.symbolic_vector import Array

PENDING = np.int32(2**31 - 1)
"""The time of an asynchronous access that has not been waited for."""


def with_further_agent(clocks: Array) -> Array:
    """Return clocks, whose last axis numbers the agents, with one more agent, of which nothing is known."""
    found = np.zeros((*clocks.shape[:-1], clocks.shape[-1] + 1), dtype=clocks.dtype)
    found[..., :-1] = clocks
    return found


class VectorClocks:
    """The clocks of `threads` threads in warps of `warp` lanes, and of the agents that `agent` has numbered.

    A thread is an actor by its number.  An agent with the number n is the actor n * `warp`.
    """

    def __init__(self, threads: int, warp: int) -> None:
        self.threads, self.warp = threads, warp
        self.warps = -(-threads // warp)
        self.agents: dict[tuple[int, ...], int] = {}
        """The numbers of asynchronous agents by their keys, which follow those of the warps."""
        self.clock: Array = np.eye(self.warps, dtype=np.int32)
        """Row by row the clock of each warp and agent; its own time is on the diagonal."""
        self.lockstep: Array = np.zeros(self.warps, dtype=np.int32)
        """The current step of each warp: how many barriers have ordered its lanes."""
        self.warp_of: Array = np.arange(self.warps * warp) // warp
        """The number of the warp or the agent of each actor."""
        self.meetings: dict[int, tuple[Array, Array]] = {}
        """By number of a barrier of some warps, those that met there last, with the time of each after it."""

    def copy(self) -> VectorClocks:
        """Return an independent copy."""
        found = copy(self)
        found.agents, found.meetings = dict(self.agents), dict(self.meetings)
        found.clock, found.lockstep, found.warp_of = self.clock.copy(), self.lockstep.copy(), self.warp_of.copy()
        return found

    def agent(self, key: tuple[int, ...]) -> int:
        """Return the number of an agent, such as the copies of an engine that complete on the same barriers."""
        found = self.agents.get(key)
        if found is None:
            found = self.agents[key] = len(self.clock)
            self.clock = with_further_agent(np.append(self.clock, np.zeros_like(self.clock[:1]), axis=0))
            self.clock[found, found] = 1
            self.lockstep = with_further_agent(self.lockstep)
            self.warp_of = np.append(self.warp_of, np.full(self.warp, found))
        return found

    def barrier(self, warps: Array, number: int | None) -> None:
        """All threads of these warps arrive at a barrier, the one with a number where some warps meet.

        Raises Unsupported if one of them may have arrived before, in the place of a warp that met there last.
        """
        if number is not None:
            self._check_meeting(number, warps)
        if len(warps) == self.warps:
            self.meetings = {}
        self.clock[warps] = self.clock[warps].max(axis=0)
        self.clock[warps, warps] += 1
        self.lockstep[warps] += 1
        if number is not None and len(warps) < self.warps:
            self.meetings[number] = warps, self.clock[warps, warps]

    def warp_barrier(self, warps: Array) -> None:
        """The lanes of each of these warps arrive at a warp barrier."""
        self.lockstep[warps] += 1

    def _check_meeting(self, number: int, warps: Array) -> None:
        """Check that warps which did not meet last at a barrier arrive after those that did."""
        if number not in self.meetings:
            return
        last, times = self.meetings[number]
        others = np.setdiff1d(warps, last)
        if not (self.clock[others][:, last] >= times).any(axis=1).all():
            raise Unsupported("which warps meet at a barrier depends on the order in which they arrive")

    def comes_after(self, actor: Array, other: Array, time: Array, step: Array) -> Array:
        """Return whether what each `actor` does now comes after the accesses of `other` at these times and steps.

        An actor of -1 has made no access.  The arrays are flat and of one length.
        """
        warp, other_warp = self.warp_of.take(actor), self.warp_of.take(other)  # that of no actor, -1, is not used
        complete = time != PENDING
        in_step = self.lockstep.take(warp) > step
        in_step &= complete
        seen = self.clock.take(warp * len(self.clock) + other_warp) >= time
        found: Array = np.where(warp == other_warp, in_step, seen)
        found |= (actor == other) & complete
        found |= other < 0
        return found

    def seen_by_all(self) -> Array:
        """Return for each warp and agent the time that all warps have seen."""
        found: Array = self.clock[: self.warps].min(axis=0)
        return found

    def state_of_meetings(self, seen: Array) -> Iterator[Array]:
        """Yield what decides which warps may meet next; all warps have seen the times `seen`."""
        for number, (warps, times) in sorted(self.meetings.items()):
            yield from (np.full(1, number, dtype=np.int64), warps, times - seen[warps])
