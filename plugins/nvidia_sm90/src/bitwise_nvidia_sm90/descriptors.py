"""Shared-memory matrix descriptors of wgmma: from the 64-bit descriptor to the addresses of a tile's elements.

Source: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor Format" and
"Shared Memory Matrix Layout".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values.symbolic_vector import Array


@lru_cache(maxsize=512)
def tile_addresses(descriptor: int, rows: int, k: int, size: int, k_major: bool) -> Array:
    """Return the byte addresses of elements (row, k) of `size` bytes, shape (rows, k); `rows` is the extent of M or N.

    Bits of the descriptor: 0-13 address / 16; 16-29 leading byte offset / 16; 32-45 stride byte offset / 16; 49-51 base
    offset; 62-63 swizzle mode (0 none, 1 of 128, 2 of 64, 3 of 32 bytes), applied to the final address.  Raises
    Unsupported for a base offset.
    """
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    mode = descriptor >> 62 & 3
    if descriptor >> 49 & 7:
        raise Unsupported("a matrix descriptor with a base offset is not modelled")
    pitch = {0: 16, 1: 128, 2: 64, 3: 32}[mode]
    row, column = np.arange(rows, dtype=np.int64)[:, None], np.arange(k, dtype=np.int64)[None]
    if k_major:
        byte = column * size
        if mode == 0:
            offset = stride * (row // 8) + leading * (byte // 16) + row % 8 * 16 + byte % 16
        else:
            offset = stride * (row // 8) + row % 8 * pitch + byte
    else:
        per_row = pitch // size
        if mode == 0:
            offset = leading * (column // 8) + stride * (row // per_row) + column % 8 * pitch + row % per_row * size
        else:
            offset = leading * (row // per_row) + stride * (column // 8) + column % 8 * pitch + row % per_row * size
    address = start + offset
    mask = {0: 0, 1: 7, 2: 3, 3: 1}[mode]
    return address ^ (((address >> 7) & mask) << 4)
