"""Which writes of shared memory by threads a fence has made visible to asynchronous agents.

An agent sees what a thread has written only after a proxy fence: of that thread, or of another one for which the write
comes before the fence.  The agent's work must come after the fence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy

import numpy as np

from bitwise_core.execution.races.last_accesses import LastAccesses, distinct, grown
from bitwise_core.execution.races.vector_clocks import PENDING
from bitwise_core.execution.values.symbolic_vector import Array


class ProxyFences:
    """The cells that threads have written, and the fences after these writes; `accesses` holds the writes."""

    def __init__(self, cells: int, accesses: LastAccesses) -> None:
        self.accesses = accesses
        self.generic: Array = np.zeros(cells, dtype=bool)
        """Which cells hold a write of a thread that not every agent sees."""
        self.fenced: Array = np.full(cells, -1, dtype=np.int64)
        """For each generic cell that threads other than its writer have fenced an index of `fences`, else -1."""
        self.fences: list[Mapping[int, int]] = []
        """Warps that have executed a fence for asynchronous agents, with the time of the first one."""

    def copy(self, accesses: LastAccesses) -> ProxyFences:
        """Return an independent copy, for a copy of the accesses."""
        found = copy(self)
        found.accesses, found.generic, found.fenced = accesses, self.generic.copy(), self.fenced.copy()
        found.fences = list(self.fences)
        return found

    def resize(self, cells: int) -> None:
        """Make room for more cells."""
        self.generic, self.fenced = grown(self.generic, cells, 0), grown(self.fenced, cells, -1)

    def written_by_threads(self, cells: Array) -> None:
        """These cells have been written by threads, with no fence since."""
        self.generic[cells] = True
        if self.fences:
            self.fenced[cells] = -1

    def written_by_agents(self, cells: Array) -> None:
        """These cells have been written by asynchronous agents, whose writes others of them see."""
        self.generic[cells] = False

    def fence(self, threads: Array, kept: tuple[int, int] | None) -> None:
        """These threads (a boolean array) execute a fence.

        It is one for all cells, or for those with a remainder `kept[0]` modulo `kept[1]`.
        """
        accesses, order = self.accesses, self.accesses.order
        mine = np.flatnonzero((accesses.writer >= 0) & (accesses.writer < threads.size))
        writer = accesses.writer[mine]
        # Who sees such a write sees this fence, since nothing published the write in between.
        now = order.clock.diagonal().take(order.warp_of.take(writer))
        current = threads[writer] & (accesses.written[mine] == now)
        if kept is not None:
            current &= mine % kept[1] == kept[0]
        self.generic[mine[current]] = False
        rest = np.flatnonzero(self.generic if kept is None else self.generic[kept[0] :: kept[1]])
        if kept is not None:
            rest = rest * kept[1] + kept[0]
        if rest.size:
            self._fence_published(rest, threads)

    def _fence_published(self, cells: Array, threads: Array) -> None:
        """These threads execute a fence after these cells were written by other threads, or by them and published."""
        accesses, order = self.accesses, self.accesses.order
        actors = np.unique(np.flatnonzero(threads) // order.warp) * order.warp
        writer, written = accesses.writer[cells], accesses.written[cells]
        step = accesses.written_step[cells]
        own = (writer >= 0) & (writer < threads.size) & (written != PENDING)
        own[own] = threads[writer[own]]
        seen = np.array(
            [
                order.comes_after(np.full(cells.shape, actor), writer, written, step)
                | (own & (writer // order.warp == actor // order.warp))
                for actor in actors.tolist()
            ]
        )
        earlier = self.fenced[cells]
        # Cells that are alike follow each other, also where they are not neighbours.
        alike, first, number = _alike(np.vstack([earlier, seen]))
        for place in range(len(first)):
            index, of_warps = int(earlier[first[place]]), seen[:, first[place]]
            before = self.fences[index] if index >= 0 else {}
            merged = {
                **{warp: int(order.clock[warp, warp]) for warp in (actors[of_warps] // order.warp).tolist()},
                **before,
            }
            if merged.keys() != before.keys():
                self.fenced[cells[alike[number[place] : number[place + 1]]]] = len(self.fences)
                self.fences.append(merged)

    def are_visible(self, cells: Array, actor: int) -> bool:
        """Return whether asynchronous work that thread `actor` starts sees the content of all these cells."""
        unfenced = cells[self.generic.take(cells)]
        if not unfenced.size:
            return True
        order = self.accesses.order
        warp = actor // order.warp
        fenced = self.fenced[unfenced]
        if fenced.min() < 0:
            return False
        for index in distinct(fenced):
            fences = self.fences[index]
            if not any(other == warp or order.clock[warp, other] >= time for other, time in fences.items()):
                return False
        return True

    def state(self, cells: Array, seen: Array) -> Iterator[Array]:
        """Yield arrays that are equal for two blocks only if later work of agents sees the same cells in both.

        `cells` are all that are generic, and maybe others.  All warps have seen the times `seen`.
        """
        fenced = np.where(self.generic[cells], self.fenced[cells], -1)
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for index in distinct(fenced):
            # All warps have seen a fence whose time counts as 0.
            times = {warp: max(time - int(seen[warp]), 0) for warp, time in self.fences[index].items()}
            known = ((-1, 0),) if 0 in times.values() else tuple(sorted(times.items()))
            alike.setdefault(known, []).append(index)
        for known, indices in sorted(alike.items()):
            yield from (np.flatnonzero(np.isin(fenced, indices)), np.array(known, dtype=np.int64))


def _alike(columns: Array) -> tuple[Array, Array, Array]:
    """Return the columns of a table of integers, sorted, the first one of each set of equal ones, and where it begins.

    The last array has one more element: the number of columns.
    """
    changes = np.flatnonzero((columns[:, 1:] != columns[:, :-1]).any(axis=0)) + 1
    runs = np.append(0, changes)  # neighbours are mostly equal
    _, inverse = np.unique(columns[:, runs], axis=1, return_inverse=True)
    length = np.diff(np.append(runs, columns.shape[1]))
    of_column = np.repeat(np.ravel(inverse), length)
    order = np.argsort(of_column, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(of_column[order]) != 0))
    return order, order[begins], np.append(begins, columns.shape[1])
