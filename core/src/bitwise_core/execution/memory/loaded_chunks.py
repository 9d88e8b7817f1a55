"""Chunks of shared memory that hold a load or zeros as a whole: of 8 bytes, or of one cell.

Copies from global to shared memory move whole chunks of 8 bytes, each a load at one address.  To keep the address of a
chunk instead of its cells takes one number where cells of 2 bytes take twelve.  Elements that a kernel has put in
another order are loads of one cell, for each of which one number is kept where a cell takes three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeGuard

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.loads_and_zeros import ZERO, loads_and_zeros
from bitwise_core.execution.values.matrix_steps.mma_steps import distinct_rows
from bitwise_core.execution.values.packing import concat
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

CHUNK = 8
"""The size of a chunk in bytes."""

CELLS = np.uint64(2**64 - 1)
"""The address of a chunk whose content is that of its cells; that of a chunk of zeros is `ZERO`."""


def addresses_of(value: Value) -> list[Array] | None:
    """Return for each chunk of a value the address that it is loaded from, or `ZERO`; None for any other value."""
    parts: tuple[object, ...] = (value,)
    if isinstance(value, PackedVector):
        parts = value.parts if value.whole is None else ()
    if not parts or L.width(value) % (8 * CHUNK):
        return None
    found: list[Array] = []
    rest = list(reversed(parts))
    while rest:
        part = rest.pop()
        if not _has_width(part, 32, 64):
            return None
        known = loads_and_zeros(part)
        start = None if known is None or not known.is_apart else known.addresses
        if start is not None and _has_width(part, 32):
            other = rest.pop() if rest else None
            start = _both(start, other) if _has_width(other, 32) else None
        if start is None:
            return None
        found.append(start)
    return found


def _has_width(part: object, *bits: int) -> TypeGuard[Array | SymbolicVector]:
    return isinstance(part, np.ndarray | SymbolicVector) and L.width(part) in bits


def _both(start: Array, other: Array | SymbolicVector) -> Array | None:
    """Return the addresses of chunks, of which `start` holds those of the low halves; None if they are none."""
    known = loads_and_zeros(other)
    if known is None or not known.is_apart:
        return None
    high = known.addresses
    together = np.where(start == ZERO, high == ZERO, high == start + np.uint64(CHUNK // 2))
    return start if L.every(together) else None


def addresses_of_cells(value: Value, granule: int) -> list[Array] | None:
    """Return for each cell of a value the address that it is loaded from, or `ZERO`; None for any other value."""
    parts: tuple[Value, ...] = (value,)
    if isinstance(value, PackedVector):
        parts = value.parts if value.whole is None else ()
    found: list[Array] = []
    for part in parts:
        known = loads_and_zeros(part) if L.width(part) % (8 * granule) == 0 else None
        if known is None or not known.is_apart:
            return None
        for place in range(0, L.width(part) // 8, granule):
            own = known.addresses
            if place:
                own = np.where(own == ZERO, ZERO, own + np.uint64(place)) if known.zeros else own + np.uint64(place)
            found.append(own)
    return found or None


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """Places in some chunks: the `index` of each one's chunk, and how many bytes it is `inside` of it."""

    chunks: Array
    index: Array
    inside: Array


def chunk_places(cells: Array, count: int, granule: int) -> ChunkPlaces | None:
    """Return where `count` cells of `granule` bytes at each of `cells` (flat) are; None if some leave their chunk."""
    per_chunk = CHUNK // granule
    inside = cells & (per_chunk - 1) if per_chunk else cells
    if not per_chunk or int(inside.max(initial=0)) + count > per_chunk:
        return None
    chunks, index = np.unique(cells // per_chunk, return_inverse=True)
    return ChunkPlaces(chunks, index, (inside * granule).astype(np.uint64))


class LoadedChunks:
    """The chunks of `size` bytes of the shared memories of a batch of blocks, whose cells have `granule` bytes.

    `addresses`, of shape (blocks, chunks), holds the address that each chunk is loaded from, `ZERO` or `CELLS`.  Those
    of chunks that are not `held` are not used.
    """

    def __init__(self, blocks: int, cells: int, granule: int, size: int = CHUNK) -> None:
        self.granule, self.cells_per_chunk = granule, size // granule
        self.shift = self.cells_per_chunk.bit_length() - 1
        self.addresses: Array = np.full((blocks, -(-cells // self.cells_per_chunk)), CELLS, dtype=np.uint64)
        self.held: Array = np.zeros(self.addresses.shape[1], dtype=bool)
        """Which chunks may be other than `CELLS` in some block."""

    def resize(self, cells: int) -> None:
        """Make room for this number of cells."""
        before = self.addresses
        self.addresses = np.full((len(before), -(-cells // self.cells_per_chunk)), CELLS, dtype=np.uint64)
        self.addresses[:, : before.shape[1]] = before
        held = self.held
        self.held = np.zeros(self.addresses.shape[1], dtype=bool)
        self.held[: held.size] = held

    def put(self, blocks: Array, chunks: Array, addresses: Array) -> None:
        """Write one chunk for each block (shape (blocks, 1)) and lane (shape (lanes,))."""
        if len(blocks) < len(self.addresses):
            self.addresses[:, chunks[~self.held.take(chunks)]] = CELLS
        self.addresses.reshape(-1)[blocks * self.addresses.shape[1] + chunks] = addresses
        self.held[chunks] = True

    def load(self, cells: Array, count: int, blocks: Array | None) -> SymbolicVector | Literal[False] | None:
        """Return `count` cells at each of `cells` (flat) in all blocks or in `blocks`, if all of them are in loads.

        False if all of them are in no chunk that is held; None if they differ.
        """
        chunks = cells >> self.shift
        held = self.held.take(chunks)
        if not L.every(held):
            return None if L.some(held) else False
        inside = cells & (self.cells_per_chunk - 1)
        if int(inside.max(initial=0)) + count > self.cells_per_chunk:
            return None
        addresses = self.addresses.take(chunks, axis=1)
        if blocks is not None:
            addresses = addresses[blocks]
        if int(addresses.max(initial=0)) >= ZERO:
            return None
        addresses += (inside * self.granule).astype(np.uint64)
        return SymbolicVector(8 * self.granule * count, L.both_words(addresses), L.LOAD)

    def load_several(self, cells: Array, count: int, blocks: Array | None) -> Value | None:
        """Return `count` chunks at each of `cells` (flat), as `load`, if all of them are loads; else None.

        The chunks are those of one cell.
        """
        found = []
        for columns in (cells + part if part else cells for part in range(count)):
            if not L.every(self.held.take(columns)):
                return None
            addresses = self.addresses.take(columns, axis=1)
            found.append(addresses if blocks is None else addresses[blocks])
            if int(found[-1].max(initial=0)) >= ZERO:
                return None
        return _joined(found, self.granule)

    def hold(self, cells: Array, contents: Array) -> None:
        """Hold the contents of cells (flat) that another representation released; the chunks are those of one cell."""
        kept = contents == CELLS
        if L.some(kept):
            before = np.where(self.held.take(cells), self.addresses.take(cells, axis=1), CELLS)
            contents = np.where(kept, before, contents)
        self.addresses[:, cells] = contents
        self.held[cells] = True

    def drop(self, cells: Array) -> None:
        """Forget the chunks of cells (flat) that are overwritten in all blocks; the chunks are those of one cell."""
        self.held[cells] = False

    def loads(self, places: ChunkPlaces) -> tuple[Array, Array] | None:
        """Return the addresses that are loaded at some places, for some blocks, and each block's number among these.

        None if some chunk holds no load.
        """
        if int(places.chunks.max(initial=-1)) >= self.held.size or not L.every(self.held.take(places.chunks)):
            return None
        addresses = self.addresses.take(places.chunks, axis=1)
        if int(addresses.max(initial=0)) >= ZERO:
            return None
        first, number = distinct_rows(addresses)
        return addresses[first].take(places.index, axis=1) + places.inside, number

    def cells_with_chunks(
        self, rows: Array, cells: Array, words: hashing.Words, flags: Array
    ) -> tuple[hashing.Words, Array]:
        """Return the contents of cells, of which `words` and `flags` are those outside of the chunks that are held."""
        chunks = cells >> self.shift
        held = self.held.take(chunks)
        if not L.some(held):
            return words, flags
        addresses = np.where(held, self.addresses[rows, chunks], CELLS)
        load, zero = addresses < ZERO, addresses == ZERO
        inside = (cells & (self.cells_per_chunk - 1)) * self.granule
        content = np.where(load, addresses + inside.astype(np.uint64), np.uint64(0))
        words = np.where(load | zero, content, words)
        return words, np.where(load, np.uint32(L.LOAD), np.where(zero, np.uint32(L.CONST), flags))

    def release(self, chunks: Array) -> tuple[Array, Array] | None:
        """Make chunks (flat) hold their cells; return these cells, flat, and their contents, None if there are none.

        The contents are, for each block and cell, the address of a load, `ZERO`, or `CELLS` for a cell that keeps its.
        """
        held = chunks[self.held.take(chunks)]
        if not held.size:
            return None
        columns = np.unique(held)
        more = np.arange(self.cells_per_chunk)
        addresses = self.addresses[:, columns, None]
        contents = np.where(addresses < ZERO, addresses + (more * self.granule).astype(np.uint64), addresses)
        self.held[columns] = False
        return ((columns << self.shift)[:, None] + more).ravel(), contents.reshape(len(addresses), -1)


def _joined(addresses: list[Array], granule: int) -> Value:
    """Return consecutive loads of `granule` bytes as one load if they are one, else as its halves."""
    first, count = addresses[0], len(addresses)
    bits = 8 * granule * count
    following = enumerate(addresses[1:], 1)
    if count == 1 or (bits <= 64 and all(L.every(each == first + np.uint64(n * granule)) for n, each in following)):
        return SymbolicVector(bits, L.both_words(first), L.LOAD)
    half = count // 2
    return concat([_joined(addresses[:half], granule), _joined(addresses[half:], granule)])
