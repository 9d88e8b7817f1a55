"""Groups of lanes that hold the same: what is computed of them is computed once.

The blocks of a matrix product that share rows or columns load equal tiles, and so do the waves of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector

GROUP = 64
"""The lanes of a group, which are consecutive threads."""

_FEWEST_GROUPS = 8
"""Fewer groups are not compared."""


@dataclass(frozen=True, slots=True)
class RepeatedLanes:
    """The groups of lanes of the shape (blocks, threads), in order: `place` is that of each among the `chosen` ones."""

    shape: tuple[int, int]
    chosen: Array
    place: Array

    def reduced(self, value: SymbolicVector) -> SymbolicVector:
        """Return the chosen groups of a value of this shape, as blocks."""
        flags = value.flags
        if not isinstance(flags, int):
            flags = L.uniform_flags(_groups(np.broadcast_to(flags, self.shape))[self.chosen])
        first = L.load_addresses(value)
        if first is not None:
            return SymbolicVector(value.bits, L.both_words(_groups(first)[self.chosen]), flags)
        return SymbolicVector(value.bits, np.stack([_groups(each)[self.chosen] for each in value.words]), flags)

    def whole(self, value: SymbolicVector) -> SymbolicVector:
        """Return the value of all lanes from that of the chosen groups."""
        groups = len(self.chosen), GROUP
        flags = value.flags
        if not isinstance(flags, int):
            flags = np.broadcast_to(flags, groups)[self.place].reshape(self.shape)
        words = np.broadcast_to(value.words, (2, *groups))[:, self.place].reshape(2, *self.shape)
        return SymbolicVector(value.bits, words, flags)


def repeated_lanes(values: Sequence[SymbolicVector]) -> RepeatedLanes | None:
    """Return the groups of lanes in which values hold the same; None where few do, or the values differ in shape.

    Groups whose first and last lanes hold the same must be the same, as tiles are.
    """
    shape: tuple[int, int] = values[0].words.shape[1:]
    if any(each.words.shape[1:] != shape for each in values) or shape[1] % GROUP:
        return None
    planes = [_groups(plane) for each in values for plane in _planes(each, shape)]
    count = len(planes[0])
    if count < _FEWEST_GROUPS:
        return None
    places: dict[tuple[int, ...], int] = {}
    ends = [plane[:, lane].tolist() for plane in planes for lane in (0, -1)]
    firsts = np.array([places.setdefault(each, group) for group, each in enumerate(zip(*ends, strict=True))])
    if 2 * len(places) > count:
        return None
    others = np.flatnonzero(firsts != np.arange(count))
    if not all(np.array_equal(plane[others], plane[firsts[others]]) for plane in planes):
        return None
    chosen = np.array(list(places.values()))
    return RepeatedLanes(shape, chosen, np.searchsorted(chosen, firsts))


def _planes(value: SymbolicVector, shape: tuple[int, int]) -> list[Array]:
    """Return arrays of a shape that distinguish the lanes of a value."""
    flags = value.flags
    first = L.load_addresses(value)
    found: list[Array] = list(value.words) if first is None else [first]
    return found if isinstance(flags, int) else [*found, np.broadcast_to(flags, shape)]


def _groups(lanes: Array) -> Array:
    found: Array = lanes.reshape(-1, GROUP)
    return found
