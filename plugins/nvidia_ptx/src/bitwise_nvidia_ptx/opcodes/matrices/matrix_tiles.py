"""Operand tiles of matrix instructions in shared memory: the addresses of their elements, and operand vectors.

Source: PTX ISA 8.7, "Shared Memory Matrix Layout" of wgmma, and "Canonical Layouts" of tcgen05, which agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.loaded_chunks import ChunkPlaces, chunk_places
from bitwise_core.execution.values.matrix_steps.mma_steps import OperandVectors, of_blocks
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector

_MASKS = {0: 0, 32: 1, 64: 3, 128: 7}
"""The masks of the swizzles in units of 16 bytes, by their widths in bytes; 0 stands for none."""


@dataclass(frozen=True, slots=True)
class TileLayout:
    """What a matrix descriptor states: addresses and offsets in bytes, and the width of the swizzle.

    `unit` is the number of bytes that a swizzle moves together, 16 or 32.
    """

    start: int
    leading: int
    stride: int
    swizzle: int
    unit: int = 16


@lru_cache(maxsize=512)
def tile_addresses(layout: TileLayout, rows: int, k: int, size: int, k_major: bool) -> Array:
    """Return the byte addresses of elements (row, k) of `size` bytes, shape (rows, k); `rows` is the extent of M or N.

    The swizzle is applied to the final address.  With units of 32 bytes, which only tiles along M or N have, an atom
    holds 4 of k instead of 8.
    """
    leading, stride = layout.leading, layout.stride
    pitch = layout.swizzle or 16
    row, column = np.arange(rows, dtype=np.int64)[:, None], np.arange(k, dtype=np.int64)[None]
    if k_major:
        byte = column * size
        if not layout.swizzle:
            offset = stride * (row // 8) + leading * (byte // 16) + row % 8 * 16 + byte % 16
        else:
            offset = stride * (row // 8) + row % 8 * pitch + byte
    else:
        per_row = pitch // size
        if not layout.swizzle:
            offset = leading * (column // 8) + stride * (row // per_row) + column % 8 * pitch + row % per_row * size
        else:
            depth = 8 * 16 // layout.unit
            offset = leading * (row // per_row) + stride * (column // depth)
            offset += column % depth * pitch + row % per_row * size
    address = layout.start + offset
    units = (address >> 7) & _MASKS[layout.swizzle] // (layout.unit // 16)
    found: Array = address ^ units * layout.unit
    found.setflags(write=False)
    return found


@dataclass(frozen=True, slots=True)
class TileCells:
    """The cells of shared memory that hold a tile, whose elements have these byte `addresses`, shape (rows, k).

    `first` holds the first cell of each element, shape (1, elements), and `touched` all cells, flat, all below `end`.
    `places` are the elements in chunks, None if some element is not in one chunk.
    """

    addresses: Array
    size: int
    first: Array
    touched: Array
    end: int
    places: ChunkPlaces | None


def tile_cells(machine: Machine, addresses: Array, size: int) -> TileCells:
    """Return the cells of a tile with elements of `size` bytes."""
    cache: dict[tuple[int, int], TileCells] = machine.extra.setdefault("cells of tiles", {})
    key = id(addresses), size
    found = cache.get(key)
    if found is None or found.addresses is not addresses:
        first = machine.shared.cells(addresses.reshape(1, -1), None)
        step = max(1, size // machine.shared.granule)
        touched = first[0] if step == 1 else (first[0][:, None] + np.arange(step)).ravel()
        places = chunk_places(first[0], step, machine.shared.granule)
        found = TileCells(addresses, size, first, touched, int(touched.max(initial=0)) + 1, places)
        if len(cache) > 512:
            cache.clear()
        cache[key] = found
    machine.shared.reserve_cells(found.end)
    return found


def tile_vectors(machine: Machine, tile: TileCells, form: str) -> OperandVectors:
    """Return the operand vectors of a tile of a format."""
    cache: dict[object, tuple[int, TileCells, OperandVectors, object]] = machine.extra.setdefault("tiles", {})
    blocks = machine.active_whole_blocks()
    key, version = (id(tile), form, id(blocks)), machine.shared.version
    found = cache.get(key)
    if found is not None and found[0] == version and found[1] is tile:
        return found[2]
    loads = None if tile.places is None or blocks is not None else machine.shared.loads(tile.places, 8 * tile.size)
    if loads is not None:
        values, numbers = loads
        values = SymbolicVector(values.bits, values.words.reshape(2, -1, *tile.addresses.shape), values.flags)
        result = machine.domain.operand_vectors(values, form).of_blocks(numbers)
    else:
        values = tile_values(machine, tile)
        if blocks is None:
            result = machine.domain.operand_vectors(values, form)
        else:
            result = machine.domain.operand_vectors(of_blocks(values, blocks.numbers), form).of_blocks(blocks.place)
    if len(cache) > 64:
        cache.clear()
    cache[key] = (version, tile, result, blocks)
    return result


def tile_values(machine: Machine, tile: TileCells) -> SymbolicVector:
    """Return the elements of a tile, words of shape (2, blocks, rows, k)."""
    value = as_symbolic_vector(machine.shared.load(tile.first, tile.size * 8))
    (rows, k), blocks = tile.addresses.shape, value.words.shape[1]
    flags = value.flags if isinstance(value.flags, int) else value.flags.reshape(value.flags.shape[0], rows, k)
    words = np.broadcast_to(value.words, (2, blocks, rows * k)).reshape(2, blocks, rows, k)
    return SymbolicVector(tile.size * 8, words, flags)
