"""The operations that made values which were stored, by the hash of the value.

Memory keeps the hash of a value only. A sort of several warps exchanges the exclusive or of two elements through
shared memory, and takes one of them out of it again with the other: the rule for this needs the operation of a loaded
value.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.packing import as_symbolic_vector, concat
from bitwise_core.execution.values.predicate_bits import PredicateBits
from bitwise_core.execution.values.symbolic_vector import Array, Origin, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash

_NAMES = frozenset(f"xor.b{bits}" for bits in (8, 16, 32, 64))
"""The operations of two operands of the width of their result that are kept."""


def _kept(value: Value) -> Origin | None:
    """Return the operation of `_NAMES` that made a value."""
    origins = value.origins if isinstance(value, SymbolicVector) else ()
    return next((each for each in origins if each.name in _NAMES), None)


class StoredOperations:
    """The operands of the stored results of `_NAMES`, by operation and by the hash of the result's bits."""

    def __init__(self) -> None:
        self._known: dict[str, HashTable] = {}

    def note(self, value: Value) -> None:
        """A value is stored."""
        parts = value.parts if isinstance(value, PackedVector) else (value,)
        origins = [origin for part in parts if (origin := _kept(part)) is not None]
        if len(origins) < len(parts):
            return
        for part, origin in zip(parts, origins, strict=True):
            self._add(as_symbolic_vector(part), origin)
        name = f"xor.b{L.width(value)}"
        if len(parts) > 1 and name in _NAMES:
            pairs = zip(*(one.operands for one in origins), strict=True)
            operands = (as_symbolic_vector(concat(each)) for each in pairs)
            lanes = np.logical_and.reduce(np.broadcast_arrays(*(np.atleast_2d(each.lanes) for each in origins)))
            self._add(as_symbolic_vector(value), Origin(name, tuple(operands), lanes))

    def _add(self, value: SymbolicVector, origin: Origin) -> None:
        columns = [exact_hash(value), *(each.words for each in origin.operands)]
        flags = [each.flags for each in origin.operands]
        shape = np.broadcast_shapes(
            *(each.shape[1:] for each in columns), *(np.shape(each) for each in flags), np.shape(origin.lanes)
        )
        lanes = np.broadcast_to(origin.lanes, shape).reshape(-1)
        keys, left, right = (np.broadcast_to(each, (2, *shape)).reshape(2, -1)[:, lanes] for each in columns)
        of_left, of_right = (L.flags_of_lanes(each, shape).reshape(-1)[lanes] for each in flags)
        self._known.setdefault(origin.name, HashTable()).add(keys, left, of_left, right, of_right)

    def recalled(self, value: Value) -> Value:
        """Return a loaded value with the operations that made what was stored."""
        if not self._known or isinstance(value, np.ndarray) or L.lazy_integers(value) is not None:
            return value
        if isinstance(value, SymbolicVector):
            return self._recalled(value)
        parts = tuple(self._recalled(each) for each in value.parts)
        if all(one is another for one, another in zip(parts, value.parts, strict=True)):
            return value
        found = PackedVector(parts)
        found.whole, found.joined = value.whole, value.joined
        return found

    def _recalled(self, value: Array | SymbolicVector) -> Array | SymbolicVector:
        if not isinstance(value, SymbolicVector) or isinstance(value, PredicateBits) or value.origins:
            return value
        name = f"xor.b{value.bits}"
        entries = self._known[name].find(exact_hash(value)) if name in self._known else None
        if entries is None:
            return value
        found, (left, of_left, right, of_right) = entries
        operands = tuple(SymbolicVector(value.bits, *each) for each in ((left, of_left), (right, of_right)))
        result = SymbolicVector(value.bits, value.words, value.flags)
        result.recorder, result.cached_hash, result.maximum = value.recorder, value.cached_hash, value.maximum
        result.origins = (Origin(name, operands, True if found.all() else found),)
        return result
