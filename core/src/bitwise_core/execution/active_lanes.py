"""Masks of lanes, where None masks no lane off, and the values in active lanes."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


def whole_mask(mask: Array | None, shape: tuple[int, ...]) -> Array:
    """Return the mask of all lanes of a shape."""
    return np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)


def active_lanes(mask: Array | None, *values: Array) -> Array:
    """Return the mask of all lanes of the common shape of the mask and the values."""
    shapes = (each.shape for each in values)
    return whole_mask(mask, np.broadcast_shapes((1, 1) if mask is None else mask.shape, *shapes))


def active_values(values: Array, mask: Array | None) -> Array:
    """Return the values in the active lanes as a flat array; without a mask, all values in their shape."""
    if mask is None:
        return values
    shape = np.broadcast_shapes(values.shape, mask.shape)
    found: Array = np.broadcast_to(values, shape)[np.broadcast_to(mask, shape)]
    return found
