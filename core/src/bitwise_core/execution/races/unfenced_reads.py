"""Reads of shared memory by threads that a later asynchronous write may overtake.

A barrier, or an arrival at a memory barrier, orders the instructions of threads, but does not wait for their loads.  An
asynchronous write that is issued after it may be performed before a load.  A proxy fence of the loading threads, after
the load and before what orders the write after it, waits for the load.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(slots=True)
class UnfencedReads:
    """The lines of the last reads of each cell by each warp, and the time of its first fence of all lanes after them.

    0 stands for no read, and for no fence.  `excused` are cells whose reads are assumed to be complete, until they are
    written again.
    """

    warps: int
    lines: Array = field(init=False)
    fenced: Array = field(init=False)
    excused: Array = field(init=False)
    loaded: Array = field(init=False)
    """Which cells some warp has read."""

    def __post_init__(self) -> None:
        self.lines = np.zeros((self.warps, 64), dtype=np.int32)
        self.fenced = np.zeros_like(self.lines)
        self.loaded = np.zeros(self.lines.shape[1], dtype=bool)
        self.excused = np.zeros(0, dtype=np.int64)

    def copy(self) -> UnfencedReads:
        """Return an independent copy."""
        found = UnfencedReads(self.warps)
        found.lines, found.fenced, found.excused = self.lines.copy(), self.fenced.copy(), self.excused
        found.loaded = self.loaded.copy()
        return found

    def _require(self, cells: Array) -> None:
        more = int(cells.max(initial=-1)) + 1 - self.lines.shape[1]
        if more > 0:
            width = ((0, 0), (0, max(more, self.lines.shape[1])))
            self.lines, self.fenced = np.pad(self.lines, width), np.pad(self.fenced, width)
            self.loaded = np.pad(self.loaded, width[1])

    def read(self, cells: Array, warps: Array, line: int) -> None:
        """Threads of these warps read these cells (flat arrays of one length) by the instruction of a line."""
        self._require(cells)
        if self.excused.size:
            kept = ~np.isin(cells, self.excused)
            cells, warps = cells[kept], warps[kept]
        self.lines[warps, cells] = line
        self.fenced[warps, cells] = 0
        self.loaded[cells] = True

    def excuse(self, cells: Array) -> None:
        """The reads of the current content of these cells are assumed to be complete before any later write."""
        self.excused = np.union1d(self.excused, cells)

    def written(self, cells: Array) -> None:
        """These cells are written."""
        if self.excused.size:
            self.excused = np.setdiff1d(self.excused, cells)

    def fence(self, threads: Array, warp: int, cells: slice, times: Array) -> None:
        """These threads (a boolean array) execute a fence for some cells, at the times of their warps."""
        for each in np.flatnonzero(threads.reshape(self.warps, warp).all(axis=1)).tolist():
            fenced = self.fenced[each, cells]
            fenced[(self.lines[each, cells] != 0) & (fenced == 0)] = times[each]

    def line_of(self, cells: Array, warp: int, seen: Array) -> int | None:
        """Return the line of a read of one of these cells that a write of a warp may overtake, None for none.

        It may overtake those with no fence of the reading warp that comes before it: `seen` is the clock of the warp.
        """
        self._require(cells)
        if not self.loaded.take(cells).any():
            return None
        times = self.fenced[:, cells]
        ordered = (times > 0) & (times <= seen[: self.warps, None])
        ordered[warp] = times[warp] > 0
        return int(self.lines[:, cells].max(initial=0, where=~ordered)) or None

    def state(self, seen: Array) -> Iterator[Array]:
        """Yield arrays that are equal for two histories only if a later write overtakes reads in both or in neither.

        All warps have seen the times `seen`, shape (warps,).
        """
        late = (self.lines != 0) & ((self.fenced == 0) | (self.fenced > seen[:, None]))
        places = np.nonzero(late)
        yield from places
        yield np.maximum(self.fenced[places] - seen[places[0]], 0) * (self.fenced[places] > 0)
        yield self.excused
