"""Tables of arrays by hash: what is known of values that memory keeps only as hashes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Array


class HashTable:
    """Columns by the hash of a value; of two entries with one hash, the first is kept.

    Entries are sorted when they are looked up for the first time after an addition, those that were added since the
    last time as a table of their own.  A table is joined with the one before it that has at most twice its size, so
    that an entry is sorted a few times only, and there are few tables.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Array, ...]] = []
        self._sorted: list[_SortedEntries] = []

    def add(self, keys: hashing.Words, *columns: Array) -> None:
        """Add entries: keys of shape (2, n), and columns whose last axis has length n.  The arrays must not change."""
        if keys.shape[1]:
            self._entries.append((keys, *columns))

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._entries and not self._sorted

    def find(self, keys: hashing.Words) -> tuple[Array, list[Array]] | None:
        """Return which keys of shape (2, ...) have an entry, and the columns; None if no key has one.

        The columns have the shape of the keys in the place of their last axis, and are arbitrary without an entry.
        """
        if self._entries:
            newest = _SortedEntries(self._entries)
            self._entries = []
            while self._sorted and self._sorted[-1].size <= 2 * newest.size:
                newest = _SortedEntries([self._sorted.pop().entries, newest.entries])
            self._sorted.append(newest)
        found: tuple[Array, list[Array]] | None = None
        begun: Array | None = None
        for table in self._sorted:
            other = table.find(keys)
            if other is None:
                continue
            begins, same, columns = other
            if begun is not None:
                same, begins = same & ~begun, begins | begun
            begun = begins
            if found is not None:
                same, columns = (
                    found[0] | same,
                    [np.where(found[0], *both) for both in zip(found[1], columns, strict=True)],
                )
            found = same, columns
        return None if found is None or not found[0].any() else found


class _SortedEntries:
    """Entries sorted by their keys, of which the highest bits divide them into buckets of few entries.

    Of two entries with one first word, the first is kept.
    """

    def __init__(self, entries: Sequence[tuple[Array, ...]]) -> None:
        joined = [np.concatenate(each, axis=-1) for each in zip(*entries, strict=True)]
        first = np.unique(joined[0][0], return_index=True)[1]
        self.entries = tuple(each[..., first] for each in joined)
        keys = self.entries[0][0]
        self.size: int = keys.size
        bits = max(1, int(keys.size - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((keys >> self._shift).astype(np.intp), minlength=1 << bits)
        self._starts: Array = np.concatenate([[0], np.cumsum(counts)[:-1]])
        """The position of the first entry of each bucket."""
        self._ordered: Array = np.append(keys, ~np.uint64(0))
        """The first words of the sorted keys, and the greatest word."""

    def find(self, keys: hashing.Words) -> tuple[Array, Array, list[Array]] | None:
        """Return which keys begin as an entry does, which of them have it, and the columns; None for no key."""
        known, *columns = self.entries
        flat = keys.reshape(2, -1)
        place = self._starts.take(flat[0] >> self._shift)
        # The keys are sorted: from the first one of its bucket on, none that is less than the one looked up is its own.
        rest = np.flatnonzero(self._ordered.take(place) < flat[0])
        while rest.size:
            place[rest] += 1
            rest = rest[self._ordered.take(place.take(rest)) < flat[0].take(rest)]
        begins = (self._ordered.take(place) == flat[0]) & (place < known.shape[1])
        same = begins.copy()
        np.minimum(place, known.shape[1] - 1, out=place)
        found = np.flatnonzero(same)
        same[found] = known[1].take(place.take(found)) == flat[1].take(found)
        if not begins.any():
            return None
        shape = keys.shape[1:]
        taken = [each[..., place].reshape(*each.shape[:-1], *shape) for each in columns]
        return begins.reshape(shape), same.reshape(shape), taken
