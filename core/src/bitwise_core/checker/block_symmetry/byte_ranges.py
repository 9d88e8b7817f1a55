"""Byte ranges of memory: merged runs, and who owns which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(frozen=True, slots=True)
class Runs:
    """Disjoint byte ranges [start, end), sorted, no two touching; int64 arrays of one length."""

    start: Array
    end: Array

    @property
    def bytes(self) -> int:
        """How many bytes they hold."""
        return int((self.end - self.start).sum())

    def moved(self, by: int) -> Runs:
        """The runs `by` bytes further."""
        return Runs(self.start + by, self.end + by)


def merged(start: Array, end: Array) -> Runs:
    """The union of byte ranges that may overlap and come in any order."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    if not start.size:
        return Runs(start, end)
    reach = np.maximum.accumulate(end)
    gap = start[1:] > reach[:-1]
    return Runs(start[np.append(True, gap)], reach[np.append(gap, True)])


def intersection(left: Runs, right: Runs) -> Runs:
    """The bytes in both."""
    points = np.unique(np.concatenate([left.start, left.end, right.start, right.end]))
    start, end = points[:-1], points[1:]
    inside = covers(left, start) & covers(right, start)
    return merged(start[inside], end[inside])


def covers(runs: Runs, address: Array) -> Array:
    """Which addresses lie in the runs."""
    if not runs.start.size:
        return np.zeros(address.shape, dtype=bool)
    place = np.searchsorted(runs.start, address, side="right") - 1
    return (place >= 0) & (runs.end[np.maximum(place, 0)] > address)


@dataclass(frozen=True, slots=True)
class Owners:
    """Byte ranges of one buffer with the block that each belongs to, sorted by start."""

    start: Array
    end: Array
    block: Array

    def overlap(self) -> int | None:
        """The first byte that two ranges hold."""
        clash = np.flatnonzero(self.end[:-1] > self.start[1:])
        return int(self.start[1:][clash[0]]) if clash.size else None

    def of(self, address: Array) -> Array:
        """The block that owns each address, all of which are owned."""
        return self.block[np.searchsorted(self.start, address, side="right") - 1]

    def foreign(self, start: Array, end: Array, block: Array) -> Array:
        """Which of the ranges meet a range of another block; the owners' ranges are disjoint."""
        low = np.searchsorted(self.end, start, side="right")
        high = np.searchsorted(self.start, end, side="left")
        turns = np.concatenate([[0], np.cumsum(self.block[1:] != self.block[:-1])])
        met = low < high
        first, last = np.minimum(low, self.start.size - 1), np.maximum(high - 1, 0)
        other: Array = met & ((self.block[first] != block) | (turns[first] != turns[last]))
        return other


def owners(start: Array, end: Array, block: Array) -> Owners:
    """Sorts ranges by their start."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end, block = start[order], end[order], block[order]
    return Owners(start, end, block)
