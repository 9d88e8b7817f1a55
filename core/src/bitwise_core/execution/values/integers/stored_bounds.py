"""Greatest numbers of integers that were stored, by the hash of the integer.

Memory keeps the hash of a value only.  The place of an element that warps exchange is a small number after it, too, so
that its extension to 64 bits has one form in every kernel (`values.integers.bounds`).
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.integers.bounds import maximum_of
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash


class StoredBounds:
    """A number that each stored integer does not exceed, by the hash of its bits, for each width."""

    def __init__(self) -> None:
        self._known: dict[int, HashTable] = {}

    def note(self, value: Value) -> None:
        """Keep the bound of a stored value."""
        if not isinstance(value, SymbolicVector) or value.bits < 16:
            return
        bound = maximum_of(value)
        if bound is None or L.constant_mask(value) is True or L.any_flag(value.flags & L.POISON):
            return
        keys = np.unique(exact_hash(value).reshape(2, -1), axis=1)
        self._known.setdefault(value.bits, HashTable()).add(keys, np.full(keys.shape[1], bound, dtype=np.uint64))

    def recalled(self, value: Value) -> Value:
        """Return a loaded value with the bound of what was stored, where every lane has one."""
        if not isinstance(value, SymbolicVector) or value.maximum is not None or value.bits not in self._known:
            return value
        entries = self._known[value.bits].find(exact_hash(value))
        if entries is None:
            return value
        found, (bounds,) = entries
        known = L.constant_mask(value)
        if not np.all(found | known) or L.any_flag(value.flags & L.POISON):
            return value
        numbers = np.where(found, bounds, value.words[0])
        value.maximum = int(numbers.max())
        return value
