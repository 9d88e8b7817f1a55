"""The lanes of an access that are active, and their values."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


def active_lanes(mask: Array | None, *values: Array) -> Array:
    """Return which lanes of the common shape of the mask and the values are active; None masks no lane off."""
    shape = np.broadcast_shapes((1, 1) if mask is None else mask.shape, *(each.shape for each in values))
    return np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)


def active_values(values: Array, mask: Array | None) -> Array:
    """Return the values in the active lanes as a flat array; all values in their shape where no lane is masked off."""
    if mask is None:
        return values
    shape = np.broadcast_shapes(values.shape, mask.shape)
    return np.broadcast_to(values, shape)[np.broadcast_to(mask, shape)]
