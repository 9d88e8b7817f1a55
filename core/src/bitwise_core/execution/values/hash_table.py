"""Tables of arrays by hash: what is known of values that memory keeps only as hashes."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Array


class HashTable:
    """Columns by the hash of a value; of two entries with one hash, the first is kept.

    Entries are sorted when they are looked up for the first time after an addition.  Keys are hashes, so their highest
    bits divide them into buckets of few entries.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Array, ...]] = []
        self._is_sorted = True
        self._shift = np.uint64(63)
        self._starts: Array = np.zeros(2, dtype=np.int64)
        """The position of the first entry of each bucket."""
        self._ordered: Array = np.zeros(1, dtype=np.uint64)
        """The first words of the sorted keys, and the greatest word."""

    def add(self, keys: hashing.Words, *columns: Array) -> None:
        """Add entries: keys of shape (2, n), and columns whose last axis has length n.  The arrays must not change."""
        if keys.shape[1]:
            self._entries.append((keys, *columns))
            self._is_sorted = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._entries

    def find(self, keys: hashing.Words) -> tuple[Array, list[Array]] | None:
        """Return which keys of shape (2, ...) have an entry, and the columns; None if no key has one.

        The columns have the shape of the keys in the place of their last axis, and are arbitrary without an entry.
        """
        if not self._entries:
            return None
        if not self._is_sorted:
            joined = [np.concatenate(each, axis=-1) for each in zip(*self._entries, strict=True)]
            first = np.unique(joined[0][0], return_index=True)[1]
            self._entries, self._is_sorted = [tuple(each[..., first] for each in joined)], True
            self._divide(self._entries[0][0][0])
        known, *columns = self._entries[0]
        flat = keys.reshape(2, -1)
        place = self._starts.take(flat[0] >> self._shift)
        # The keys are sorted: from the first one of its bucket on, none that is less than the one looked up is its own.
        rest = np.flatnonzero(self._ordered.take(place) < flat[0])
        while rest.size:
            place[rest] += 1
            rest = rest[self._ordered.take(place.take(rest)) < flat[0].take(rest)]
        same = (self._ordered.take(place) == flat[0]) & (place < known.shape[1])
        np.minimum(place, known.shape[1] - 1, out=place)
        found = np.flatnonzero(same)
        same[found] = known[1].take(place.take(found)) == flat[1].take(found)
        if not same.any():
            return None
        shape = keys.shape[1:]
        return same.reshape(shape), [each[..., place].reshape(*each.shape[:-1], *shape) for each in columns]

    def _divide(self, keys: Array) -> None:
        """Divide sorted keys into at least as many buckets as there are keys."""
        bits = max(1, int(keys.size - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((keys >> self._shift).astype(np.intp), minlength=1 << bits)
        self._starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._ordered = np.append(keys, ~np.uint64(0))
