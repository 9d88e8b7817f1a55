"""Which stores of a buffer are near the addresses of a load, so that a load is not compared with every store."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.symbolic_vector import Array

_PAGE_SHIFT = 12
_MAXIMUM_PAGES = 64
"""An access of more pages is near every store."""


class StorePages:
    """The numbers of stores by the pages of memory that they reach; stores are numbered from 0 as they are added."""

    def __init__(self) -> None:
        self.count = 0
        self.last: object = None
        """The last store that was added, for a caller whose stores may be removed again."""
        self._by_page: dict[int, list[int]] = {}
        self._scattered: list[int] = []

    def add(self, address: Array, bits: int) -> None:
        """Add the next store, of elements of some bits at flat addresses."""
        pages = _pages(address, bits)
        if pages is None:
            self._scattered.append(self.count)
        else:
            for page in pages:
                self._by_page.setdefault(page, []).append(self.count)
        self.count += 1

    def near(self, address: Array, bits: int) -> list[int]:
        """Return the stores, in order, that may share a byte with elements of some bits at flat addresses.

        Every store that does is among them.
        """
        pages = _pages(address, bits)
        if pages is None:
            return list(range(self.count))
        found = set(self._scattered)
        for page in pages:
            found.update(self._by_page.get(page, ()))
        return sorted(found)


def _pages(address: Array, bits: int) -> list[int] | None:
    """Return the pages that the elements reach, None if there are too many."""
    if not address.size:
        return []
    shift, last = np.uint64(_PAGE_SHIFT), np.uint64(bits // 8 - 1)
    start = address.astype(np.uint64, copy=False)
    first = start >> shift
    changes = np.flatnonzero(first[1:] != first[:-1]) + 1
    if changes.size > 16 * _MAXIMUM_PAGES:
        return None
    # The ends of elements are on the next page at most.
    found = {int(first[0]), *first[changes].tolist(), *sorted_distinct((start + last) >> shift).tolist()}
    return None if len(found) > _MAXIMUM_PAGES else sorted(found)
