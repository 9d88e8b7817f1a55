"""Which writes of shared memory by threads a fence has made visible to asynchronous agents.

An agent sees what a thread has written only after a proxy fence: of that thread, or of another one for which the write
comes before the fence.  The agent's work must come after the fence.  Copies by threads (`cp.async`) are such writes.
Where copies are visible without a fence (`VisibleCopies`), an agent sees them as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.races.last_accesses import LastAccesses, distinct, grown
from bitwise_core.execution.races.vector_clocks import PENDING
from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(frozen=True, slots=True)
class VisibleCopies:
    """Agents see what threads have copied, also without a proxy fence.

    `note` says by which measurement, and is empty where it was requested; `used` collects it where an agent reads such
    a copy.  A measurement holds for the kinds of agents that were measured, a request for all of them.
    """

    note: str
    used: set[str]


@dataclass(frozen=True, slots=True)
class Fence:
    """The lanes of a warp that have executed a fence, as bits of `lanes`; -1 for all of them."""

    warp: int
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class Unfenced:
    """Cells that threads wrote, the number of the fences after the write of each, and the different numbers."""

    cells: Array
    fenced: Array
    fences: tuple[int, ...]


class ProxyFences:
    """The cells that threads have written, and the fences after these writes; `accesses` holds the writes.

    `copies`: copies by threads need no fence; None if they do.
    """

    def __init__(self, cells: int, accesses: LastAccesses, copies: VisibleCopies | None = None) -> None:
        self.accesses, self.copies = accesses, copies
        self.generic: Array = np.zeros(cells, dtype=bool)
        """Which cells hold a write of a thread that not every agent sees."""
        self.copied_at: Array = np.zeros(cells, dtype=np.int64)
        """The line of the copy by a thread that wrote a generic cell last, 0 for another write."""
        self.fenced: Array = np.full(cells, -1, dtype=np.int64)
        """For each generic cell that threads other than its writer have fenced an index of `fences`, else -1."""
        self.fences: list[Mapping[Fence, tuple[int, int]]] = []
        """Fences for asynchronous agents, with the time of the warp at the first one of these lanes, and its step."""

    def copy(self, accesses: LastAccesses) -> ProxyFences:
        """Return an independent copy, for a copy of the accesses."""
        found = copy(self)
        found.accesses, found.generic, found.fenced = accesses, self.generic.copy(), self.fenced.copy()
        found.copied_at = self.copied_at.copy()
        found.fences = list(self.fences)
        return found

    def resize(self, cells: int) -> None:
        """Make room for more cells."""
        self.generic, self.fenced = grown(self.generic, cells, 0), grown(self.fenced, cells, -1)
        self.copied_at = grown(self.copied_at, cells, 0)

    def written_by_threads(self, cells: Array, copied_at: int = 0) -> None:
        """These cells have been written by threads, with no fence since.

        `copied_at` is the line of a copy, 0 for another write.
        """
        self.generic[cells], self.copied_at[cells] = True, copied_at
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
        warps = np.unique(np.flatnonzero(threads) // order.warp)
        actors = warps * order.warp
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
                **{
                    Fence(warp, self._lanes(threads, warp)): (int(order.clock[warp, warp]), int(order.lockstep[warp]))
                    for warp in warps[of_warps].tolist()
                },
                **before,
            }
            if merged.keys() != before.keys():
                self.fenced[cells[alike[number[place] : number[place + 1]]]] = len(self.fences)
                self.fences.append(merged)

    def _lanes(self, threads: Array, warp: int) -> int:
        """Return which lanes of a warp these threads are, as `Fence.lanes`."""
        lanes = threads[warp * self.accesses.order.warp :][: self.accesses.order.warp]
        return -1 if lanes.all() else sum(1 << lane for lane in np.flatnonzero(lanes).tolist())

    def _is_seen(self, fence: Fence, at: tuple[int, int], actor: int) -> bool:
        """Return whether a fence at a time and a step of its warp comes before what thread `actor` does now."""
        order, (time, step) = self.accesses.order, at
        warp, lane = divmod(actor, order.warp)
        if fence.warp != warp:
            return bool(order.clock[warp, fence.warp] >= time)
        return bool(fence.lanes >> lane & 1) or bool(order.lockstep[warp] > step)

    def unfenced(self, cells: Array) -> Unfenced:
        """Return those of these cells that threads wrote, with the fences after that."""
        written: Array = cells[self.generic.take(cells)]
        fenced = self.fenced[written]
        return Unfenced(written, fenced, tuple(distinct(fenced)) if written.size else ())

    def not_visible(self, cells: Unfenced, actor: int, measured: bool) -> Array:
        """Return of which of these cells asynchronous work that thread `actor` starts may not see the content.

        `measured`: the work is of a kind of which `VisibleCopies` were measured.
        """
        unfenced, fenced = cells.cells, cells.fenced
        for index in cells.fences:
            fences = {} if index < 0 else self.fences[index]
            if any(self._is_seen(fence, at, actor) for fence, at in fences.items()):
                unfenced, fenced = unfenced[fenced != index], fenced[fenced != index]
        if not unfenced.size:
            return unfenced
        if self.copies is not None and (measured or not self.copies.note):
            stored: Array = unfenced[self.copied_at.take(unfenced) == 0]
            if stored.size < unfenced.size and self.copies.note:
                self.copies.used.add(self.copies.note)
            return stored
        return unfenced

    def kinds(self, cells: Array) -> Array:
        """Return of cells whether they are generic, with 2 for copies where these are visible."""
        generic = self.generic[cells].astype(np.int8)
        return generic if self.copies is None else generic << (self.copied_at[cells] > 0)

    def state(self, cells: Array, seen: Array) -> Iterator[Array]:
        """Yield arrays that are equal for two blocks only if later work of agents sees the same cells in both.

        `cells` are all that are generic, and maybe others.  All warps have seen the times `seen`.
        """
        fenced = np.where(self.generic[cells], self.fenced[cells], -1)
        lockstep = self.accesses.order.lockstep
        alike: dict[str, list[int]] = {}
        for index in distinct(fenced):
            times = {
                (each.warp, -1 if lockstep[each.warp] > step else each.lanes): max(time - int(seen[each.warp]), 0)
                for each, (time, step) in self.fences[index].items()
            }
            # All warps have seen a fence of all lanes whose time counts as 0.
            all_see = any(lanes == -1 and not time for (_, lanes), time in times.items())
            alike.setdefault("all" if all_see else repr(sorted(times.items())), []).append(index)
        for known, indices in sorted(alike.items()):
            yield from (np.flatnonzero(np.isin(fenced, indices)), np.frombuffer(known.encode(), dtype=np.uint8))


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
