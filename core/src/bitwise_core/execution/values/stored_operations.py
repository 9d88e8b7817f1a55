"""The operations that made values which were stored, by the hash of the value.

Memory keeps the hash of a value only. A sort of several warps exchanges the exclusive or of two elements through
shared memory, and takes one of them out of it again with the other: the rule for this needs the operation of a loaded
value.  Codes of a few bits are exchanged as bytes, and combined as the low bits of wider integers
(`values.integers.narrow_integers`): these need the integer of a loaded byte.  The partial sums of several warps are
exchanged too, of which one may have a counterpart but for the sign of a zero (`values.floats.zero_signs`).
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.zero_signs import COUNTERPART
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.integers.predicate_bits import PredicateBits
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, is_wide_term
from bitwise_core.execution.values.symbolic_vector import Array, Origin, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash

_NAMES = frozenset(f"xor.b{bits}" for bits in (8, 16, 32, 64))
"""The operations of two operands of the width of their result that are kept."""
_SLICES = frozenset(f"slice.0.{bits}" for bits in (8, 16))
"""The slices of terms of 32 bits that are kept."""


def _kept(value: Value) -> Origin | None:
    """Return the operation of `_NAMES` or `_SLICES` that made a value, or its counterpart."""
    origins = value.origins if isinstance(value, SymbolicVector) else ()
    return next((each for each in origins if _is_kept(each)), None)


def _is_kept(origin: Origin) -> bool:
    return origin.name in _NAMES or origin.name == COUNTERPART or _is_slice_of_term(origin)


def _is_slice_of_term(origin: Origin) -> bool:
    return origin.name in _SLICES and is_wide_term(origin.operands[0])


class StoredOperations:
    """The operands of the stored results of `_NAMES` and `_SLICES`, by operation and by the hash of the bits."""

    def __init__(self) -> None:
        self._known: dict[str, HashTable] = {}
        self._maxima: dict[str, int | None] = {}
        """A number that no integer of which a slice is kept exceeds, by the name of the slice."""

    def note(self, value: Value) -> None:
        """Keep the operations that made the parts of a stored value."""
        parts = value.parts if isinstance(value, PackedVector) else (value,)
        origins = [origin for part in parts if (origin := _kept(part)) is not None]
        if len(origins) < len(parts):
            return
        for part, origin in zip(parts, origins, strict=True):
            self._add(as_symbolic_vector(part), origin)
        name = f"xor.b{L.width(value)}"
        if len(parts) > 1 and name in _NAMES and all(origin.name in _NAMES for origin in origins):
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
        keys, *words = (np.broadcast_to(each, (2, *shape)).reshape(2, -1)[:, lanes] for each in columns)
        rows = [L.flags_of_lanes(each, shape).reshape(-1)[lanes] for each in flags]
        self._known.setdefault(origin.name, HashTable()).add(keys, *words, *rows)
        if origin.name in _SLICES:
            bounds = self._maxima.setdefault(origin.name, 0), origin.operands[0].maximum
            self._maxima[origin.name] = None if None in bounds else max(each for each in bounds if each is not None)

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
        origins = []
        for name, bits in (
            (f"xor.b{value.bits}", value.bits), (f"slice.0.{value.bits}", 32), (COUNTERPART, value.bits)
        ):  # fmt: skip
            entries = self._known[name].find(exact_hash(value)) if name in self._known else None
            if entries is None:
                continue
            found, columns = entries
            half = len(columns) // 2
            operands = tuple(SymbolicVector(bits, *each) for each in zip(columns[:half], columns[half:], strict=True))
            for each in operands:
                each.recorder = value.recorder
            if name in _SLICES:
                operands[0].maximum = self._maxima[name]
            origins.append(Origin(name, operands, True if found.all() else found))
        if not origins:
            return value
        result = SymbolicVector(value.bits, value.words, value.flags)
        result.recorder, result.cached_hash, result.maximum = value.recorder, value.cached_hash, value.maximum
        result.origins = tuple(origins)
        return result
