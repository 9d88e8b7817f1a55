"""Epochs: how many barriers of all its threads a block has passed.

Accesses of two threads of a block are ordered by a barrier if their epochs differ.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array

Epoch: TypeAlias = int | Array
"""The epoch of all blocks of a batch, or that of each: shape (blocks, 1) in a batch, (accesses,) in a flat array.

An array of epochs is never changed: accesses keep it.
"""


def next_epoch(epoch: Epoch, passed: Array) -> Epoch:
    """Return the epochs after a barrier that some blocks have passed; `passed` has the shape (blocks,)."""
    return epoch + 1 if passed.all() else simplest(epoch + passed[:, None])


def earlier_epoch(one: Epoch, other: Epoch) -> Epoch:
    """Return the earlier one of two epochs of each block."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return simplest(np.minimum(one, other))


def later_epoch(one: Epoch, other: Epoch) -> Epoch:
    """Return the later one of two epochs of each block."""
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return simplest(np.maximum(one, other))


def epochs_of_lanes(epoch: Epoch, active: Array) -> Epoch:
    """Return the epochs of the active lanes as a flat array; `active` has the shape (blocks, threads)."""
    return epoch if isinstance(epoch, int) else simplest(np.broadcast_to(epoch, active.shape)[active])


def epochs_at(epoch: Epoch, places: Array) -> Epoch:
    """Return the epochs at places of a flat array, by a mask or by their numbers."""
    return epoch if isinstance(epoch, int) else simplest(epoch[places])


def epoch_of_all(epoch: Epoch) -> int:
    """Return the epoch of a launch whose blocks pass barriers together."""
    assert isinstance(epoch, int)
    return epoch


def simplest(epoch: Array) -> Epoch:
    """Return one number if all epochs are equal."""
    if not epoch.size:
        return 0
    first = int(epoch.flat[0])
    return first if (epoch == first).all() else epoch
