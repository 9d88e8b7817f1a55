"""Memory barriers: their phases, and what a thread sees that waits for one.

A wait names the parity of a phase.  It ends as soon as a phase of this parity has ended and the next one has not, or if
none has begun.  A thread that knows that some phases have ended waits at most for the second one after these, whatever
else has ended when it runs.  A thread that arrives knows that all earlier phases have ended: otherwise it could arrive
at one of them, in the place of another thread.

A thread knows that a phase has ended if it has waited for it, or if all that has arrived there has come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.undetermined import UNTRACKED_COPIES, Kind, race
from bitwise_core.execution.races.vector_clocks import VectorClocks, with_further_agent
from bitwise_core.execution.values.symbolic_vector import Array, some

_MOST_KEPT = 4
"""How many ended phases are kept: a wait for an earlier one acquires nothing."""


@dataclass(frozen=True, slots=True)
class EndedPhase:
    """An ended phase.

    `published`: what was published up to its end.  `causes`: the arrivals that came before its end, as
    `MemoryBarriers.causes` counts them.  `arrivals`: those at this phase, None if other work has arrived.  `whole`: the
    warps all of whose lanes arrived together, with the time before.
    """

    published: Array
    causes: Array
    arrivals: Array | None
    whole: Mapping[int, int]

    def resized(self) -> EndedPhase:
        """Return the phase where clocks have a further agent."""
        arrivals = None if self.arrivals is None else with_further_agent(self.arrivals)
        return EndedPhase(with_further_agent(self.published), with_further_agent(self.causes), arrivals, self.whole)

    def state(self, seen: Array, counted: Array, idle: Sequence[int], *, is_known: bool) -> list[bytes]:
        """See `Phases.state`; `idle` are those of the warps in `whole`.  Where all warps know that it has ended, its
        arrivals have no effect.
        """
        arrivals = b""
        if not is_known and self.arrivals is not None:
            arrivals = np.maximum(self.arrivals - counted, 0).tobytes() + (self.arrivals > 0).tobytes()
        published, causes = np.maximum(self.published - seen, 0), np.maximum(self.causes - counted, 0)
        return [published.tobytes(), causes.tobytes(), arrivals, repr(idle).encode()]


class Phases:
    """The phases of a memory barrier in some cells, counted from an even number `first` on.

    `ended` is the number of the phase that has not ended.  `agent` is the column of the counts that says how many a
    warp knows to have ended.
    """

    def __init__(self, agent: int, first: int, cells: Array, agents: int) -> None:
        self.agent, self.first, self.ended, self.cells = agent, first, first, cells
        self._last: tuple[EndedPhase, ...] = ()
        self._open = self._nothing(agents)

    @staticmethod
    def _nothing(agents: int) -> EndedPhase:
        zero = np.zeros(agents, dtype=np.int32)
        return EndedPhase(zero, zero, zero, {})

    def copy(self) -> Phases:
        """Return an independent copy."""
        found = Phases(self.agent, self.first, self.cells, 0)
        found.ended, found._last, found._open = self.ended, self._last, self._open
        return found

    def resize(self) -> None:
        """Clocks have a further agent."""
        self._last, self._open = tuple([each.resized() for each in self._last]), self._open.resized()

    def arrive(self, arrivals: Array, causes: Array) -> None:
        """Warps arrive: their counts, 0 for all others, and what came before them."""
        now = self._open
        own = None if now.arrivals is None else np.maximum(now.arrivals, arrivals)
        self._open = EndedPhase(now.published, np.maximum(now.causes, causes), own, now.whole)

    def arrive_together(self, whole: Mapping[int, int]) -> None:
        """All lanes of these warps arrive together; with the time before."""
        now = self._open
        self._open = EndedPhase(now.published, now.causes, now.arrivals, {**now.whole, **whole})

    def expect_later(self) -> None:
        """Work that ends later arrives at the current phase."""
        self._open = EndedPhase(self._open.published, self._open.causes, None, self._open.whole)

    def end(self, published: Array | None) -> None:
        """The current phase ends, with what its arrivals have published."""
        self.ended += 1
        now, last = self._open, self._last[-1] if self._last else self._nothing(self._open.causes.size)
        total = last.published if published is None else np.maximum(last.published, published)
        ended = EndedPhase(total, np.maximum(last.causes, now.causes), now.arrivals, now.whole)
        self._last = (*self._last[1 - _MOST_KEPT :], ended)
        self._open = self._nothing(now.causes.size)

    def publish(self, clock: Array, ago: int) -> None:
        """What an agent has done was published to the last but `ago` - 1 phase that has ended."""
        first = max(0, len(self._last) - ago)
        later = [
            EndedPhase(np.maximum(each.published, clock), each.causes, each.arrivals, each.whole)
            for each in self._last[first:]
        ]
        self._last = (*self._last[:first], *later)

    def known(self, counts: Array) -> int:
        """Return how many phases a warp knows to have ended, from what it has waited for and what came before it."""
        found = max(int(counts[self.agent]), self.first)
        while found < self.ended and self.ended - found <= len(self._last):
            arrivals = self._last[found - self.ended].arrivals
            if arrivals is None or (counts < arrivals).any():
                break
            found += 1
        return found

    def first_wait(self, known: int, parity: int) -> tuple[int, EndedPhase | None]:
        """Return how many phases have ended when a wait for a parity ends, and the last one; None stands for no phase.

        The waiting thread knows that `known` have ended.
        """
        ended = known + (known & 1 == parity & 1)
        ago = self.ended - ended + 1
        return ended, self._last[-ago] if ended > self.first and 0 < ago <= len(self._last) else None

    def arrival(self, warp: int, ended: int) -> int | None:
        """Return the time before which all lanes of a warp last arrived together at one of the first `ended` phases.

        None if they did not.
        """
        kept = self._last[: max(0, len(self._last) - (self.ended - ended))]
        return max((each.whole[warp] for each in kept if warp in each.whole), default=None)

    def state(self, seen: Array, counted: Array, is_idle: Callable[[int, int], bool]) -> list[bytes]:
        """Return bytes that are equal for phases that later waits treat alike.

        All warps have seen the times `seen`, and all of the arrivals `counted` have come before all of them.
        `is_idle` says whether a warp has made no access since a time.
        """
        known = max(int(counted[self.agent]), self.first)  # all warps know that so many have ended
        # No wait acquires a phase before the last one of these.
        older = max(0, len(self._last) - (self.ended - known) - 1)

        def idle(phase: EndedPhase) -> list[int]:
            return sorted(warp for warp, time in phase.whole.items() if is_idle(warp, time))

        numbers = self.ended & 1, self.ended - known, len(self._last) - older
        found = [
            np.array(numbers, dtype=np.int64).tobytes(),
            repr(sorted({warp for each in self._last[:older] for warp in idle(each)})).encode(),
        ]
        first = self.ended - len(self._last)
        for number, each in enumerate((*self._last[older:], self._open), first + older):
            found += each.state(seen, counted, idle(each), is_known=number < known)
        return found


class MemoryBarriers:
    """The memory barriers of a block: what has been published to each, and which arrivals came before which.

    A barrier has a number.  `order` are the clocks of the block.
    """

    def __init__(self, order: VectorClocks) -> None:
        self.order = order
        self.arrived_at: dict[int, Array] = {}
        """What the arrivals at each memory barrier have published so far."""
        self.phases: dict[int, Phases] = {}
        """The phases of each memory barrier."""
        self.causes: Array = np.zeros((order.warps, order.warps), dtype=np.int32)
        """For each warp how many arrivals of each warp have come before, in the columns of the clocks.

        The columns of memory barriers hold how many of their phases the warp knows to have ended.
        """
        self.tracked: dict[int, dict[int, tuple[int, int]]] = {}
        """For memory barriers whose phase tracks copies by threads: by warp the time, and its lanes as bits."""

    def copy(self, order: VectorClocks) -> MemoryBarriers:
        """Return an independent copy, for a copy of the clocks."""
        found = copy(self)
        found.order, found.arrived_at, found.causes = order, dict(self.arrived_at), self.causes.copy()
        found.phases = {barrier: each.copy() for barrier, each in self.phases.items()}
        found.tracked = {barrier: dict(warps) for barrier, warps in self.tracked.items()}
        return found

    def resize(self) -> None:
        """Make room for the agents that were added to the clocks."""
        while self.causes.shape[1] < len(self.order.clock):
            self.causes = with_further_agent(self.causes)
            self.arrived_at = {barrier: with_further_agent(clock) for barrier, clock in self.arrived_at.items()}
            for phases in self.phases.values():
                phases.resize()

    def begin(self, barrier: int, column: int, cells: Array) -> None:
        """Initialise a memory barrier in some cells: nothing has been published to it.

        `column` is the number of the agent whose clock counts the ended phases of this barrier.
        """
        self.arrived_at.pop(barrier, None)
        self.tracked.pop(barrier, None)
        before = self.phases.get(barrier)
        # Phases are counted on from an even number: what a warp knows of the earlier ones is less than that.
        first = 0 if before is None else before.ended + before.ended % 2
        self.phases[barrier] = Phases(column, first, cells, len(self.order.clock))

    def join(self, warps: Array) -> None:
        """These warps pass a barrier of threads: what came before one of them came before all."""
        self.causes[warps] = self.causes[warps].max(axis=0)

    def arrive(self, barrier: int, warps: Array, whole: Sequence[int]) -> None:
        """These warps publish their accesses to the threads that wait for the current phase of a memory barrier.

        `whole` are those all of whose lanes arrive.
        """
        clock = self.order.clock
        if whole:
            self.phases[barrier].arrive_together({each: int(clock[each, each]) for each in whole})
        self.publish(barrier, clock[warps].max(axis=0))
        clock[warps, warps] += 1

    def publish(self, barrier: int, clock: Array) -> None:
        """What a clock has seen becomes visible to the threads that wait for the current phase of a memory barrier."""
        before = self.arrived_at.get(barrier)
        self.arrived_at[barrier] = clock if before is None else np.maximum(before, clock)

    def arrive_by_agent(self, barrier: int, warp: int, column: int, published: Array, *, in_order: bool) -> None:
        """The work of an agent, issued by a thread of a warp, arrives once it is complete, and publishes a clock.

        `column` counts the instructions of the warp whose arrivals come when its work is complete.  `in_order`: see
        `RaceDetector.agent_arrives`.  Raises Unsupported if it may do so in an earlier phase.
        """
        self._check_phase(barrier, warp, column)
        arrivals, causes = np.zeros(self.causes.shape[1], dtype=np.int32), self.causes[warp].copy()
        arrivals[column] = self.order.clock[column, column]
        if in_order:
            causes[column] = arrivals[column]
        self.phases[barrier].arrive(arrivals, causes)
        self.publish(barrier, published)

    def enter_phase(self, barrier: int, warps: Array, counted: set[tuple[int, int]] | None) -> None:
        """These warps arrive at a memory barrier, or start what arrives there.

        `counted` are the warps that have arrived at others by the same instruction: all of these are one arrival.
        Raises Unsupported if one of them may do so in an earlier phase.
        """
        for warp in warps.tolist():
            self._check_phase(barrier, warp)
        done = set() if counted is None else counted
        fresh = [warp for warp in warps.tolist() if (id(self), warp) not in done]
        done.update((id(self), warp) for warp in fresh)
        self.causes[fresh, fresh] += 1
        arrivals = np.zeros(self.causes.shape[1], dtype=np.int32)
        arrivals[warps] = self.causes[warps, warps]
        self.phases[barrier].arrive(arrivals, self.causes[warps].max(axis=0))

    def _check_phase(self, barrier: int, warp: int, *columns: int) -> None:
        """Raise Unsupported if a warp may arrive at an earlier phase of a memory barrier.

        What was counted before in `columns` of the counts comes before this arrival.
        """
        phases, counts = self.phases[barrier], self.causes[warp]
        if columns:
            counts = counts.copy()
            counts[list(columns)] = self.order.clock.diagonal()[list(columns)] - 1
        if phases.known(counts) < phases.ended:
            reason = "at which phase of a memory barrier a thread arrives depends on the order in which threads run"
            raise Unsupported(reason)

    def track_copies(self, barrier: int, threads: Array) -> None:
        """The current phase of a memory barrier tracks the copies of these threads (a boolean array), and no arrivals.

        Another arrival of the phase must be ordered after this, see `complete`.
        """
        warps = self.tracked.setdefault(barrier, {})
        for warp in np.unique(np.flatnonzero(threads) // self.order.warp).tolist():
            _, lanes = warps.get(warp, (0, 0))
            warps[warp] = int(self.order.clock[warp, warp]), lanes | self._lanes_of(threads, warp)

    def arrive_after_copies(self, barrier: int, threads: Array) -> None:
        """These threads (a boolean array) arrive at a memory barrier.

        Its phase ends after the tracked copies of these threads, and of those that a barrier orders before one of them.
        """
        tracked, clock = self.tracked.get(barrier, {}), self.order.clock
        arriving = np.unique(np.flatnonzero(threads) // self.order.warp)
        for warp, (time, lanes) in list(tracked.items()):
            seen = (clock[arriving, warp] >= time) & (arriving != warp)
            if some(seen) or (clock[warp, warp] > time and warp in arriving):
                lanes = 0
            tracked[warp] = time, lanes & ~self._lanes_of(threads, warp)

    def _lanes_of(self, threads: Array, warp: int) -> int:
        lanes = threads[warp * self.order.warp : (warp + 1) * self.order.warp]
        return sum(1 << lane for lane in np.flatnonzero(lanes).tolist())

    def complete(self, barrier: int) -> None:
        """Complete the memory barrier's phase; what was published to it becomes visible to waiting threads.

        Raises Race where the phase may have completed before it tracked the copies of a thread.
        """
        if any(lanes for _, lanes in self.tracked.pop(barrier, {}).values()):
            raise race(Kind.SHARED, UNTRACKED_COPIES, None)
        self.phases[barrier].end(self.arrived_at.get(barrier))

    def acquire(
        self,
        barrier: int,
        warps: Array,
        parity: int,
        whole: Sequence[int],
        counted: Sequence[int],
        is_idle_since: Callable[[int, int], bool],
    ) -> None:
        """These warps have waited for a phase of a parity of a memory barrier, which has ended.

        They see what was published to the first phase after which such a wait may end.  `whole` are those all of whose
        lanes have waited.  `counted` are the barriers whose phases end together with those of `barrier`.
        `is_idle_since` says whether a warp has made no access since a time.
        """
        columns, order = [self.phases[each].agent for each in counted], self.order
        for warp in warps.tolist():
            known = max(self.phases[each].known(self.causes[warp]) for each in counted)
            ended, phase = self.phases[barrier].first_wait(known, parity)
            if phase is not None:
                order.clock[warp] = np.maximum(order.clock[warp], phase.published)
                # That it has ended says what came before, whatever its arrivals have published.
                self.causes[warp] = np.maximum(self.causes[warp], phase.causes)
            self.causes[warp, columns] = np.maximum(self.causes[warp, columns], ended)
            arrival = self.phases[barrier].arrival(warp, ended) if warp in whole else None
            if arrival is not None and is_idle_since(warp, arrival):
                order.lockstep[warp] += 1

    def state(self, seen: Array, completions: Sequence[int], is_idle: Callable[[int, int], bool]) -> Iterator[bytes]:
        """Yield bytes that are equal for two blocks only if later arrivals and waits order the same in both.

        All warps have seen the times `seen`.  `completions` are the columns that count instructions whose arrivals come
        when work is complete.  `is_idle` says whether a warp has made no access since a time.
        """
        yield len(self.arrived_at).to_bytes(8, "little")
        for barrier in sorted(self.arrived_at):
            yield from (
                barrier.to_bytes(8, "little", signed=True),
                np.maximum(self.arrived_at[barrier] - seen, 0).tobytes(),
            )
        clock = self.order.clock
        if self.phases:
            counted = self.causes.min(axis=0)
            counted[completions] = clock.diagonal()[completions]  # a warp that can know of them knows of all
            yield (self.causes - counted).tobytes()
            for barrier in sorted(self.phases):
                yield barrier.to_bytes(8, "little")
                yield from self.phases[barrier].state(seen, counted, is_idle)
        if self.tracked:  # their times count from the start, and so do the clocks next to them
            yield clock.tobytes()
            yield repr(sorted((key, *each.items()) for key, each in self.tracked.items())).encode()
