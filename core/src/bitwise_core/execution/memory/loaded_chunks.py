"""Chunks of 8 bytes of shared memory that hold a load or zeros as a whole.

Copies from global to shared memory move whole chunks, each a load at one address.  To keep the address of a chunk
instead of its cells takes one number where cells of 2 bytes take twelve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.mma_steps import distinct_rows
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

CHUNK = 8
"""The size of a chunk in bytes."""

ZERO, CELLS = np.uint64(2**64 - 2), np.uint64(2**64 - 1)
"""What stands for the address of a chunk of zeros, and of one whose content is that of its cells."""

_LARGEST = 1 << 63
"""No buffer of a launch has addresses from here on."""


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
        start = _addresses(part)
        if start is not None and _bits(part) == 32:
            start = _both(start, rest.pop()) if rest and _bits(rest[-1]) == 32 else None
        if start is None:
            return None
        found.append(start)
    return found


def _bits(part: object) -> int:
    """Return the width of known numbers or of a vector, 0 of anything else."""
    return L.width(part) if isinstance(part, (np.ndarray, SymbolicVector)) else 0


def _both(start: Array, other: object) -> Array | None:
    """Return the addresses of chunks, of which `start` holds those of the low halves; None if they are none."""
    high = _addresses(other)
    if high is None:
        return None
    together = np.where(start == ZERO, high == ZERO, high == start + np.uint64(CHUNK // 2))
    return start if L.every(together) else None


_ZEROS = np.full((1, 1), ZERO)


def _addresses(value: object) -> Array | None:
    """Return the addresses of loads of 32 or 64 bits, and `ZERO` for zeros; None if there is any other value."""
    if _bits(value) not in (32, 64):
        return None
    if isinstance(value, np.ndarray):
        return None if value.any() else _ZEROS
    assert isinstance(value, SymbolicVector)
    flags, first = value.flags, L.load_addresses(value)
    if first is not None:
        return first if int(first.max(initial=0)) < _LARGEST else None
    if isinstance(flags, int) or not np.array_equal(value.words[0], value.words[1]):
        return None
    first = value.words[0]
    load = flags == L.LOAD
    zero = ((flags & np.uint32(L.FORM | L.ABSORBED | L.STICKY)) == L.CONST) & (first == 0)
    if not L.every(load | zero) or int(first.max(initial=0)) >= _LARGEST:
        return None
    return np.where(zero, ZERO, first)


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
    """The chunks of the shared memories of a batch of blocks, whose cells have `granule` bytes.

    `addresses`, of shape (blocks, chunks), holds the address that each chunk is loaded from, `ZERO` or `CELLS`.
    """

    def __init__(self, blocks: int, cells: int, granule: int) -> None:
        self.granule, self.cells_per_chunk = granule, CHUNK // granule
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
        if not L.some(self.held.take(chunks)):
            return words, flags
        addresses = self.addresses[rows, chunks]
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
        self.addresses[:, columns] = CELLS
        self.held[columns] = False
        return ((columns << self.shift)[:, None] + more).ravel(), contents.reshape(len(addresses), -1)
