"""The ended phases of a memory barrier, and which of them a wait for a parity acquires.

A wait names the parity of a phase.  It ends as soon as a phase of this parity has ended and the next one has not, or if
none has begun.  A thread that knows that some phases have ended waits at most for the second one after these, whatever
else has ended when it runs.  A thread that arrives knows that all earlier phases have ended: otherwise it could arrive
at one of them, in the place of another thread.

A thread knows that a phase has ended if it has waited for it, or if all that has arrived there has come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array

_MOST_KEPT = 4
"""How many ended phases are kept: a wait for an earlier one acquires nothing."""


def with_further_agent(clocks: Array) -> Array:
    """Return clocks, whose last axis numbers the agents, with one more agent, of which nothing is known."""
    found = np.zeros((*clocks.shape[:-1], clocks.shape[-1] + 1), dtype=clocks.dtype)
    found[..., :-1] = clocks
    return found


@dataclass(frozen=True, slots=True)
class EndedPhase:
    """An ended phase.

    `published`: what was published up to its end.  `causes`: the arrivals that came before its end, as the detector
    counts them.  `arrivals`: those at this phase, None if other work has arrived.  `whole`: the warps all of whose
    lanes arrived together, with the time before.
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
        arrivals tell nothing.
        """
        arrivals = b""
        if not is_known and self.arrivals is not None:
            arrivals = np.maximum(self.arrivals - counted, 0).tobytes() + (self.arrivals > 0).tobytes()
        published, causes = np.maximum(self.published - seen, 0), np.maximum(self.causes - counted, 0)
        return [published.tobytes(), causes.tobytes(), arrivals, repr(idle).encode()]


class Phases:
    """The phases of a memory barrier in some cells, counted from an even number `first` on.

    `ended` is the number of the phase that has not ended.  `agent` is the column of the detector's counts that says how
    many a warp knows to have ended.
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
        """Return bytes that are equal for phases that later waits treat alike; see `RaceDetector.state`.

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
