"""Sets of byte ranges, and the blocks that own them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(frozen=True, slots=True)
class ByteRanges:
    """Disjoint byte ranges [start, end), sorted, no two adjacent; int64 arrays of equal length."""

    start: Array
    end: Array

    @property
    def bytes(self) -> int:
        """The total number of bytes."""
        return int((self.end - self.start).sum())

    def shifted(self, by: int) -> ByteRanges:
        """The ranges with `by` bytes added to their addresses."""
        return ByteRanges(self.start + by, self.end + by)


def union(start: Array, end: Array) -> ByteRanges:
    """The union of byte ranges, which may overlap and be unsorted."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    if not start.size:
        return ByteRanges(start, end)
    reach = np.maximum.accumulate(end)
    gap = start[1:] > reach[:-1]
    return ByteRanges(start[np.append(True, gap)], reach[np.append(gap, True)])


def intersection(left: ByteRanges, right: ByteRanges) -> ByteRanges:
    """The intersection of two sets of byte ranges."""
    points = sorted_distinct(np.concatenate([left.start, left.end, right.start, right.end]))
    start, end = points[:-1], points[1:]
    inside = covers(left, start) & covers(right, start)
    return union(start[inside], end[inside])


def covers(ranges: ByteRanges, address: Array) -> Array:
    """Which addresses are in the ranges."""
    if not ranges.start.size:
        return np.zeros(address.shape, dtype=bool)
    position = np.searchsorted(ranges.start, address, side="right") - 1
    return (position >= 0) & (ranges.end[np.maximum(position, 0)] > address)


@dataclass(frozen=True, slots=True)
class Owners:
    """Byte ranges of one buffer with the block that stores each, sorted by start."""

    start: Array
    end: Array
    block: Array

    def overlap(self) -> int | None:
        """The first byte that two ranges have in common, None where the ranges are disjoint."""
        overlaps = np.flatnonzero(self.end[:-1] > self.start[1:])
        return int(self.start[1:][overlaps[0]]) if overlaps.size else None

    def of(self, address: Array) -> Array:
        """The block that owns each address; every address must be owned."""
        return self.block[np.searchsorted(self.start, address, side="right") - 1]

    def overlaps_other_block(self, start: Array, end: Array, block: Array) -> Array:
        """Which of the ranges of these blocks overlap a range of another block; the owned ranges must be disjoint."""
        low = np.searchsorted(self.end, start, side="right")
        high = np.searchsorted(self.start, end, side="left")
        block_changes = np.concatenate([[0], np.cumsum(self.block[1:] != self.block[:-1])])
        overlapping = low < high
        first, last = np.minimum(low, self.start.size - 1), np.maximum(high - 1, 0)
        other: Array = overlapping & ((self.block[first] != block) | (block_changes[first] != block_changes[last]))
        return other


def owners(start: Array, end: Array, block: Array) -> Owners:
    """Sort ranges by start."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end, block = start[order], end[order], block[order]
    return Owners(start, end, block)
