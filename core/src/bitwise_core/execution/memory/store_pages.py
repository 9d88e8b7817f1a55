"""The stores of a buffer by the pages of memory that they reach, so that a load is not compared with every store.

Where many stores reach a page, only those rows of them are kept that may still decide what a load of whole elements
returns, and which races it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bitwise_core.execution.memory.store_forwarding import Access, StoredRows, differing
from bitwise_core.execution.thread_numbers import block_of, is_agent
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash

_PAGE_SHIFT = 12
_MAXIMUM_PAGES = 256
"""An access of more pages is near every store."""

_MANY_STORES = 16
"""The number of stores near a load from which on their rows are reduced."""


@dataclass(slots=True)
class _Page:
    """The stores of one page by their numbers: all of them, and those that `rows` does not hold.

    `rows` holds the elements that begin in the page of the stores below `done`, reduced.
    """

    numbers: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    done: int = 0
    rows: StoredRows | None = None


class StorePages:
    """The stores to a buffer, in program order.

    `between_blocks`: whether accesses of different blocks may be ordered.  Otherwise a store is also dropped where
    barriers order it before later stores of its block.
    """

    def __init__(self, *, between_blocks: bool = False) -> None:
        self._stores: list[Access] = []
        self._reach: list[tuple[int, int]] = []
        """The addresses between which the bytes of each store are."""
        self._pages: dict[int, _Page] = {}
        self._scattered: list[int] = []
        self._widest = 1
        self._by_epoch = not between_blocks
        self._latest: Array = np.zeros(0, dtype=np.int64)
        """The latest epoch of each block so far."""

    def update(self, stores: Sequence[Access]) -> None:
        """Set the stores.  Those so far must begin with the same ones, after which others may have been removed."""
        count = min(len(stores), len(self._stores))
        while count and self._stores[count - 1] is not stores[count - 1]:
            count -= 1
        if count < len(self._stores):
            self._forget(count)
        for each in stores[count:]:
            self._add(each)

    def near(self, load: Access) -> StoredRows | None:
        """Return stored elements among which are all that decide what a load returns, None if there are none.

        `StoredRows.everything` returns every element that shares a byte with a loaded one.
        """
        self._note_epoch(load)
        span = self._widest - 1
        numbers = _pages(load.address - np.uint64(span), span + load.bits // 8)
        if numbers is None:
            return self._rows_of(range(len(self._stores)), load)
        found = [(number, self._pages[number]) for number in numbers if number in self._pages]
        pending = self._unreduced(found)
        if len(pending) >= _MANY_STORES:
            self._reduce(found, pending)
            pending = []
        parts = [page.rows for _, page in found if page.rows is not None]
        if not parts:
            return self._rows_of(pending, load)
        fresh = None if not pending else self._rows_of(pending, load, found)
        joined = StoredRows.joined(parts if fresh is None else [*parts, fresh])

        def everything() -> StoredRows:
            every = {*self._scattered, *(number for _, page in found for number in page.numbers)}
            rows = self._rows_of(sorted(every), load)
            assert rows is not None
            return rows

        return replace(joined, everything=everything)

    def _add(self, store: Access) -> None:
        number = len(self._stores)
        self._stores.append(store)
        low, high = (int(store.address.min()), int(store.address.max())) if store.address.size else (0, 0)
        self._reach.append((low, high + store.bits // 8 if high else 0))
        self._note_epoch(store)
        self._widest = max(self._widest, store.bits // 8)
        pages = _pages(store.address, 1)
        if pages is None:
            self._scattered.append(number)
            return
        for each in pages:
            page = self._pages.get(each)
            if page is None:
                page = self._pages[each] = _Page()
            page.numbers.append(number)
            page.pending.append(number)

    def _forget(self, count: int) -> None:
        """Forget all stores but the first `count`."""
        del self._stores[count:], self._reach[count:]
        del self._scattered[bisect_left(self._scattered, count) :]
        for page in self._pages.values():
            del page.numbers[bisect_left(page.numbers, count) :]
            if page.done > count:
                page.done, page.rows, page.pending = 0, None, list(page.numbers)
            else:
                del page.pending[bisect_left(page.pending, count) :]

    def _note_epoch(self, access: Access) -> None:
        """Note that blocks have reached an epoch; no row is dropped by epochs once they have returned to one."""
        if not self._by_epoch or not access.thread.size:
            return
        blocks = block_of(access.thread)
        last = int(blocks.max())
        if last >= self._latest.size:
            self._latest = np.concatenate([self._latest, np.zeros(last + 1, dtype=np.int64)])
        if (self._latest.take(blocks) <= access.epoch).all():
            self._latest[blocks] = access.epoch
            return
        self._by_epoch = False
        for page in self._pages.values():
            page.done, page.rows, page.pending = 0, None, list(page.numbers)

    def _unreduced(self, pages: Sequence[tuple[int, _Page]]) -> list[int]:
        """Return the numbers of the stores that may have rows in these pages which the pages do not hold."""
        found = {number for _, page in pages for number in page.pending}
        if self._scattered:
            first = min((page.done for _, page in pages), default=0)
            found.update(self._scattered[bisect_left(self._scattered, first) :])
        return sorted(found)

    def _rows_of(
        self, numbers: Sequence[int], load: Access, pages: Sequence[tuple[int, _Page]] = ()
    ) -> StoredRows | None:
        """Return the elements of some stores that are near a load, without those that `pages` hold; None for none."""
        if not load.address.size:
            return None
        low, high = int(load.address.min()), int(load.address.max()) + load.bits // 8
        reach = self._reach
        near = [number for number in numbers if reach[number][0] < high and reach[number][1] > low]
        return self._rows_in(near, pages) if near else None

    def _rows_in(self, numbers: Sequence[int], pages: Sequence[tuple[int, _Page]]) -> StoredRows:
        """Return the elements of some stores, of `pages` only if there are any, without those that the pages hold."""
        stores = [self._stores[number] for number in numbers]
        rows = StoredRows.of(stores)
        if not pages:
            return rows
        keys, done = np.array([number for number, _ in pages]), np.array([page.done for _, page in pages])
        page = (rows.address >> np.uint64(_PAGE_SHIFT)).astype(np.int64)
        index = np.minimum(np.searchsorted(keys, page), keys.size - 1)
        own = np.repeat(np.array(numbers), [each.address.size for each in stores])
        return rows.taken((keys[index] == page) & (own >= done[index]))

    def _reduce(self, pages: Sequence[tuple[int, _Page]], pending: Sequence[int]) -> None:
        """Let pages hold the rows of all stores."""
        parts = [page.rows for _, page in pages if page.rows is not None]
        rows = StoredRows.joined([*parts, self._rows_in(pending, pages)])
        rows = _reduced(rows, by_epoch=self._by_epoch)
        page_of_row = (rows.address >> np.uint64(_PAGE_SHIFT)).astype(np.int64)
        for number, page in pages:
            low, high = np.searchsorted(page_of_row, [number, number + 1])
            page.rows = rows.taken(np.arange(low, high)) if high > low else None
            page.done, page.pending = len(self._stores), []


def _reduced(rows: StoredRows, *, by_epoch: bool) -> StoredRows:
    """Return the rows, by address, that decide what loads of whole elements return, with the first cause of each race.

    The stores of one thread to one element in one epoch have the same order with every other access.  The last of them
    is the one that may be read, and if any differs from what is read, so does the first or the first that differs from
    it.  With `by_epoch` no block returns to an earlier epoch and no access of another block is ordered: then this
    holds for the stores of a block before its last two epochs with a store to the element, of which none is read, if
    all of them are executed.
    """
    hashes = np.empty((2, rows.address.size), dtype=np.uint64)
    for bits in np.unique(rows.bits).tolist():
        chosen = np.flatnonzero(rows.bits == bits)
        hashes[:, chosen] = exact_hash(SymbolicVector(bits, rows.words[:, None, chosen], rows.flags[None, chosen]))[
            :, 0
        ]
    order = np.lexsort((rows.epoch, rows.thread, rows.bits, rows.address))
    kept = _decisive(rows.taken(order), hashes[:, order], ("address", "bits", "thread", "epoch"))
    order = np.sort(order[kept])
    order = order[np.lexsort((rows.thread[order] >> 20, rows.bits[order], rows.address[order]))]
    if by_epoch and not rows.chosen.any() and not is_agent(rows.thread).any():
        order = order[_decisive_of_blocks(rows.taken(order), hashes[:, order])]
    order = np.sort(order)
    return rows.taken(order[np.argsort(rows.address[order], kind="stable")])


def _decisive(rows: StoredRows, hashes: hashing.Words, keys: Sequence[str]) -> Array:
    """Return which rows of each group of equal `keys` are decisive: its ends, and the first that differs.

    The rows of a group are adjacent.
    """
    begins = np.ones(rows.address.size, dtype=bool)
    begins[1:] = False
    for key in keys:
        column = getattr(rows, key)
        begins[1:] |= column[1:] != column[:-1]
    kept = begins | _first_others(rows.chosen, hashes, begins)
    kept |= np.append(begins[1:], True)
    return kept


def _first_others(chosen: Array, hashes: hashing.Words, begins: Array) -> Array:
    """Return the first row of each group that differs from the group's first row, and the first chosen one."""
    starts = np.flatnonzero(begins)
    first = starts[np.cumsum(begins) - 1]
    found: Array = np.zeros(begins.size, dtype=bool)
    numbers = np.arange(begins.size)
    for marked in (differing(hashes, hashes[:, first]), chosen):
        earliest = np.minimum.reduceat(np.where(marked, numbers, begins.size), starts)
        found[earliest[earliest < begins.size]] = True
    return found


def _decisive_of_blocks(rows: StoredRows, hashes: hashing.Words) -> Array:
    """Return which rows are decisive among those of a block, which are adjacent for each element."""
    block = rows.thread >> 20
    begins = np.ones(rows.address.size, dtype=bool)
    begins[1:] = (rows.address[1:] != rows.address[:-1]) | (rows.bits[1:] != rows.bits[:-1]) | (block[1:] != block[:-1])
    starts, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    last = np.maximum.reduceat(rows.epoch, starts)
    before = np.maximum.reduceat(np.where(rows.epoch < last[group], rows.epoch, -1), starts)
    kept: Array = begins | _first_others(rows.chosen, hashes, begins) | (rows.epoch >= before[group])
    return kept


def decisive(address: Array, group: Array, chosen: Array, hashes: hashing.Words) -> Array:
    """Return the numbers of the stores that decide whether loads race, in ascending order.

    The stores are in program order, and all have one width.  Those to one element of one `group` have the same order
    with every load.  If one of them differs from what is loaded, so does the first or the first that differs from it.
    """
    order = np.lexsort((group, address))
    address, group = address[order], group[order]
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = (address[1:] != address[:-1]) | (group[1:] != group[:-1])
    found: Array = np.sort(order[begins | _first_others(chosen[order], hashes[:, order], begins)])
    return found


def _pages(address: Array, size: int) -> list[int] | None:
    """Return the pages that elements of `size` bytes reach, None if there are too many."""
    if not address.size:
        return []
    shift, last = np.uint64(_PAGE_SHIFT), np.uint64(size - 1)
    start = address.astype(np.uint64, copy=False)
    first = start >> shift
    changes = np.flatnonzero(first[1:] != first[:-1]) + 1
    if changes.size > 16 * _MAXIMUM_PAGES:
        return None
    # The ends of elements are on the next page at most.
    found = {int(first[0]), *first[changes].tolist()}
    if size > 1:
        found.update(sorted_distinct((start + last) >> shift).tolist())
    return None if len(found) > _MAXIMUM_PAGES else sorted(found)
