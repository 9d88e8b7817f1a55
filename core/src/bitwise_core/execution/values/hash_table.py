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
        self._starts: Array = np.zeros(3, dtype=np.int64)
        """The position of the first entry of each bucket, and the number of entries."""

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
        bucket = (flat[0] >> self._shift).astype(np.intp)
        place, end = self._starts[bucket], self._starts[bucket + 1]
        same = np.zeros(place.shape, dtype=bool)
        rest = np.flatnonzero(place < end)
        if not rest.size:
            return None
        while rest.size:
            here = place[rest]
            equal = (known[0][here] == flat[0][rest]) & (known[1][here] == flat[1][rest])
            same[rest[equal]] = True
            rest = rest[~equal & (here + 1 < end[rest])]
            place[rest] += 1
        if not same.any():
            return None
        np.minimum(place, known.shape[1] - 1, out=place)
        shape = keys.shape[1:]
        return same.reshape(shape), [each[..., place].reshape(*each.shape[:-1], *shape) for each in columns]

    def _divide(self, keys: Array) -> None:
        """Divide sorted keys into at least as many buckets as there are keys."""
        bits = max(1, int(keys.size - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((keys >> self._shift).astype(np.intp), minlength=1 << bits)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
