"""Pairs of 16-bit values that are equal except for the sign of a zero, as operands of matrix steps.

If a step's zeros have no sign (`MmaStep.signed_zeros` is False), the sign of a zero operand does not affect the result:
each of its products is a zero or NaN with either sign, and adding a zero of either sign changes a sum only if the sum
is itself a zero.  A fused a b + (+0) is the product a b rounded once, except that an exact zero becomes +0.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash


class ZeroSigns:
    """Hashes of values, and the hashes of the values that they equal except for the sign of a zero."""

    def __init__(self) -> None:
        self._others = HashTable()

    def note(self, value: SymbolicVector, other: SymbolicVector) -> None:
        """Record that each lane of `value` equals that of `other`, or that both are zeros."""
        shape = (2, *np.broadcast_shapes(value.words.shape[1:], other.words.shape[1:]))
        self._others.add(*(np.broadcast_to(full_hash(each), shape).reshape(2, -1).copy() for each in (value, other)))

    def without(self, hashed: hashing.Words) -> hashing.Words:
        """Return the hashes with that of every recorded value replaced by that of its counterpart."""
        found = self._others.find(hashed)
        return hashed if found is None else np.where(found[0], found[1][0], hashed)
