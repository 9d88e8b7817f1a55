"""Races on shared memory in a symbolic block, whose accesses depend on the launch only by the branches that it takes.

The addresses of shared memory and the threads that access them are numbers, so a block accesses the same cells in every
launch that takes the same branches.  Each history of branches and trip counts has a detector, and every access is
checked in all of them.  A loop is checked with every number of iterations up to a few periods: a conflict of later
iterations with other accesses is ordered as that of the last iterations before it, by the program order of each thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.proxy_fences import VisibleCopies
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.race_histories import RaceDetectors
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_HISTORIES = 48
"""The largest number of histories of a kernel."""


class SymbolicRaces(RaceDetectors):
    """The race detectors of a symbolic block, one for each history.

    The rows of masks and cells are instances of the launch, of which row 0 is the launch itself.
    """

    def __init__(self, cells: int, threads: int, warp: int, rows: int, copies: VisibleCopies | None = None) -> None:
        super().__init__(cells, threads, warp, rows, copies)
        self.follows_updates = False
        self.detectors = [RaceDetector(cells, threads, warp, copies)]
        self.uses = 0
        """How often detectors were returned."""

    def acting(self, mask: Array | None) -> list[RaceDetector]:
        """See `RaceDetectors.acting`."""
        self.uses += 1
        return list(self.detectors) if mask is None or mask[0].any() else []

    def of_blocks(self, rows: Array) -> list[RaceDetector]:
        """See `RaceDetectors.of_blocks`."""
        self.uses += 1
        return list(self.detectors) if rows[0] else []

    def at(self, cells: Array, mask: Array) -> list[tuple[RaceDetector, Array]]:
        """See `RaceDetectors.at`."""
        self.uses += 1
        where = np.where(mask[0], cells[0], -1)
        return [(each, where) for each in self.detectors] if mask[0].any() else []

    def all(self) -> list[RaceDetector]:
        """See `RaceDetectors.all`."""
        self.uses += 1
        return list(self.detectors)

    def copy(self) -> SymbolicRaces:
        """An independent copy."""
        found = copy(self)
        found.detectors = [each.copy() for each in self.detectors]
        return found

    def with_histories(self, others: Iterable[SymbolicRaces]) -> SymbolicRaces:
        """The histories of this object and of others, which lose theirs.  Raises Unsupported for too many."""
        found = copy(self)
        found.detectors = [*self.detectors, *(each for other in others for each in other.detectors)]
        found.compact()
        return found

    def states(self) -> set[bytes | None]:
        """The states of all histories, see `RaceDetector.state`."""
        return {each.state() for each in self.detectors}

    def compact(self) -> None:
        """Drop histories that cannot have a race unless another has it.  Raises Unsupported for too many.

        After a history whose accesses all happened before the next access of any thread, only later accesses can race.
        """
        if len(self.detectors) == 1:
            return
        kept = {each.state(): each for each in self.detectors}
        settled = kept.pop(None, None)
        self.detectors = list(kept.values()) if settled is None or kept else [settled]
        if len(self.detectors) > MAXIMUM_HISTORIES:
            raise Unsupported("too many histories of branches access shared memory between two barriers")
