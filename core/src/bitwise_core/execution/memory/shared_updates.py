"""Atomic operations on shared memory that change cells without an order among each other.

Operations that are associative and commutative leave the same content in every order.  So two updates of a cell by one
such operation are no race, but every other access must be ordered after or before each of them.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array

_SEVERAL = -1
"""The number of cells that several operations have updated."""


class SharedUpdates:
    """When each warp last updated each cell since the last barrier of the block, and by which operation.

    `times` and `steps` have the shape (warps, cells); a time of 0 and a step of -1 stand for no update.
    """

    def __init__(self, warps: int, cells: int) -> None:
        self.times: Array = np.zeros((warps, cells), dtype=np.int32)
        self.steps: Array = np.full((warps, cells), -1, dtype=np.int32)
        self.operation: Array = np.zeros(cells, dtype=np.int64)
        self.names: tuple[str, ...] = ("",)

    @property
    def size_in_bytes(self) -> int:
        """The size of the arrays."""
        return self.times.nbytes + self.steps.nbytes + self.operation.nbytes

    def copy(self) -> SharedUpdates:
        """Return an independent copy."""
        found = copy(self)
        found.times, found.steps, found.operation = self.times.copy(), self.steps.copy(), self.operation.copy()
        return found

    def resize(self, cells: int) -> None:
        """Make room for more cells."""
        warps, before = self.times.shape
        grown = SharedUpdates(warps, cells)
        grown.times[:, :before], grown.steps[:, :before] = self.times, self.steps
        grown.operation[:before] = self.operation
        self.times, self.steps, self.operation = grown.times, grown.steps, grown.operation

    def ordered(self, cells: Array, warp: Array, clock: Array, lockstep: Array, operation: str | None) -> Array:
        """Return which accesses to cells are ordered after all updates of other operations than their own.

        `operation` is that of the accesses, None if they are no updates; `warp` has the warp of each.
        """
        warps = np.arange(len(self.times))
        seen = self.times.take(cells, axis=1) <= clock[warp][:, : warps.size].T
        in_step = lockstep.take(warp) > self.steps.take(cells, axis=1)
        found: Array = np.all(np.where(warps[:, None] == warp[None], in_step, seen), axis=0)
        return found if operation not in self.names else found | (self.operation.take(cells) == self._number(operation))

    def _number(self, operation: str | None) -> int:
        return self.names.index(operation or "")

    def record(self, cells: Array, warp: Array, time: Array, step: Array, operation: str) -> None:
        """Warps update cells by an operation at their times and steps."""
        if operation not in self.names:
            self.names = (*self.names, operation)
        number, before = self._number(operation), self.operation.take(cells)
        self.operation[cells] = np.where((before == 0) | (before == number), number, _SEVERAL)
        self.times[warp, cells], self.steps[warp, cells] = time, step

    def state(self) -> list[Array]:
        """Arrays that are equal for two objects only if all later accesses are ordered in both or in neither."""
        names = np.frombuffer("\n".join(self.names).encode(), dtype=np.uint8)
        return [names, self.times, self.steps, self.operation]
