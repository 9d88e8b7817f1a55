"""Tile addresses of wgmma against the layout of Triton's local_store (vectors, phases, pitch)."""

from __future__ import annotations

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_nvidia_ptx.opcodes.matrices.matrix_tiles import tile_addresses
from bitwise_nvidia_sm90.descriptors import tile_layout

MODES = {128: 1, 64: 2, 32: 3}
PHASES = {128: (1, 8), 64: (2, 4), 32: (4, 2)}
"""By bytes of a swizzled row: the number of rows that share a phase, and the number of phases."""


def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    mode = MODES.get(swizzle, 0)
    return (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62


def stored(base: int, row: int, byte: int, pitch: int) -> int:
    """Return the address of a byte of a row in a swizzled tile whose rows have `pitch` bytes."""
    shared, count = PHASES[pitch]
    chunk = byte // 16 ^ row // shared % count
    return base + row * pitch + chunk * 16 + byte % 16


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("pitch", [128, 64, 32])
def test_rows_along_k(pitch: int, size: int) -> None:
    base, k = 4096, 32 // size
    for first in range(0, pitch, 32):
        found = tile_addresses(tile_layout(descriptor(base + first, 16, 8 * pitch, pitch)), 64, k, size, True)
        expected = [[stored(base, row, first + column * size, pitch) for column in range(k)] for row in range(64)]
        assert found.tolist() == expected


@pytest.mark.parametrize("size", [2])
@pytest.mark.parametrize("pitch", [128, 64, 32])
def test_columns_along_k(pitch: int, size: int) -> None:
    """The tile is stored as rows of k, each of `pitch` bytes of M or N; tiles of one pitch follow each other."""
    base, k, depth, across = 8192, 16, 64, pitch // size
    for first in range(0, depth, k):
        found = tile_addresses(
            tile_layout(descriptor(base + first * pitch, depth * pitch, 8 * pitch, pitch)), 128, k, size, False
        )
        expected = [
            [
                stored(base + row // across * depth * pitch, first + column, row % across * size, pitch)
                for column in range(k)
            ]
            for row in range(128)
        ]
        assert found.tolist() == expected


def test_rows_along_k_without_a_swizzle() -> None:
    """Core matrices of 8 rows of 16 bytes: `leading` from one to the next along k, `stride` along the rows."""
    found = tile_addresses(tile_layout(descriptor(2048, 128, 512, 0)), 64, 16, 2, True)
    expected = [
        [2048 + row // 8 * 512 + column // 8 * 128 + row % 8 * 16 + column % 8 * 2 for column in range(16)]
        for row in range(64)
    ]
    assert found.tolist() == expected


def test_no_two_elements_of_a_tile_share_a_byte() -> None:
    for pitch in MODES:
        found = tile_addresses(tile_layout(descriptor(1024, 16, 8 * pitch, pitch)), 256, 16, 2, True)
        assert len(set(found.ravel().tolist())) == found.size


def test_a_base_offset_raises() -> None:
    with pytest.raises(Unsupported, match="base offset"):
        tile_addresses(tile_layout(descriptor(1024, 16, 1024, 128) | 1 << 49), 64, 16, 2, True)
