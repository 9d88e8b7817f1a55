"""Masks of lanes, where None masks no lane off, and the values in active lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


def whole_mask(mask: Array | None, shape: tuple[int, ...]) -> Array:
    """Return the mask of all lanes of a shape."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    return mask if mask.shape == shape else np.broadcast_to(mask, shape)


@dataclass(frozen=True, slots=True)
class WholeBlocks:
    """Some blocks of a batch: `numbers`, shape (n,), and for each block of the batch the `place` of one among them.

    It is its own place for these blocks, and 0 for all others, in which any value is as good.
    """

    numbers: Array
    place: Array

    @staticmethod
    def of(mask: Array) -> WholeBlocks:
        """Return the blocks of a mask that has all or no lanes of each block."""
        rows = mask[:, 0]
        return WholeBlocks(np.flatnonzero(rows), (np.cumsum(rows) - 1) * rows)

    @property
    def sources(self) -> Array:
        """The number of the block from which each block takes a value."""
        found: Array = self.numbers[self.place]
        return found


def has_whole_blocks(mask: Array) -> bool:
    """Return whether a mask has all or no lanes of each block."""
    return bool(mask.shape[1] == 1 or (mask == mask[:, :1]).all())


def active_lanes(mask: Array | None, *values: Array) -> Array:
    """Return the mask of all lanes of the common shape of the mask and the values."""
    shapes = {(1, 1) if mask is None else mask.shape, *(each.shape for each in values)}
    return whole_mask(mask, shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes))


def active_values(values: Array, mask: Array | None) -> Array:
    """Return the values in the active lanes as a flat array; without a mask, all values in their shape."""
    if mask is None:
        return values
    if values.shape == mask.shape:
        found: Array = values[mask]
        return found
    shape = np.broadcast_shapes(values.shape, mask.shape)
    found = np.broadcast_to(values, shape)[np.broadcast_to(mask, shape)]
    return found
