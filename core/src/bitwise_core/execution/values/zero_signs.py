"""Pairs of 16-bit values that are equal except for the sign of a zero, as operands of matrix steps.

If a step's zeros have no sign (`MmaStep.signed_zeros` is False), the sign of a zero operand does not affect the result:
each of its products is a zero or NaN with either sign, and adding a zero of either sign changes a sum only if the sum
is itself a zero.  A fused a b + (+0) is the product a b rounded once, except that an exact zero becomes +0.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash


class ZeroSigns:
    """Hashes of values, and the hashes of the values that they equal except for the sign of a zero."""

    def __init__(self) -> None:
        self._noted: list[tuple[Array, Array]] = []
        self._sorted: tuple[Array, Array] | None = None

    def note(self, value: SymbolicVector, other: SymbolicVector) -> None:
        """Record that each lane of `value` equals that of `other`, or that both are zeros."""
        shape = (2, *np.broadcast_shapes(value.words.shape[1:], other.words.shape[1:]))
        pair = [np.broadcast_to(full_hash(each), shape).reshape(2, -1) for each in (value, other)]
        self._noted.append((pair[0].copy(), pair[1].copy()))
        self._sorted = None

    def without(self, hashed: hashing.Words) -> hashing.Words:
        """Return the hashes with that of every recorded value replaced by that of its counterpart."""
        if not self._noted:
            return hashed
        if self._sorted is None:
            keys, others = (np.concatenate([each[side] for each in self._noted], axis=1) for side in (0, 1))
            first = np.unique(keys[0], return_index=True)[1]
            self._noted = [(keys[:, first], others[:, first])]
            self._sorted = self._noted[0]
        keys, others = self._sorted
        flat = hashed.reshape(2, -1)
        place = np.minimum(np.searchsorted(keys[0], flat[0]), keys.shape[1] - 1)
        found = (keys[:, place] == flat).all(axis=0)
        if not found.any():
            return hashed
        return np.where(found, others[:, place], flat).reshape(hashed.shape)
