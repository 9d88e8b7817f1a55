"""Tables of arrays by hash: what is known of values that memory keeps only as hashes."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Array


class HashTable:
    """Columns by the hash of a value; of two entries with one hash, the first is kept.

    Entries are sorted when they are looked up for the first time after an addition.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Array, ...]] = []
        self._is_sorted = True

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
        known, *columns = self._entries[0]
        flat = keys.reshape(2, -1)
        place = np.minimum(np.searchsorted(known[0], flat[0]), known.shape[1] - 1)
        same = (known[:, place] == flat).all(axis=0)
        if not same.any():
            return None
        shape = keys.shape[1:]
        return same.reshape(shape), [each[..., place].reshape(*each.shape[:-1], *shape) for each in columns]
