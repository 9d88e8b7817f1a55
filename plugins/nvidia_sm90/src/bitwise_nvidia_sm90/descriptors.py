"""Shared-memory matrix descriptors of wgmma.

Source: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor Format".
"""

from __future__ import annotations

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_nvidia_ptx.opcodes.matrices.matrix_tiles import TileLayout

_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}


def tile_layout(descriptor: int) -> TileLayout:
    """Return what a descriptor states.

    Its bits: 0-13 address / 16; 16-29 leading byte offset / 16; 32-45 stride byte offset / 16; 49-51 base offset; 62-63
    swizzle mode (0 none, 1 of 128, 2 of 64, 3 of 32 bytes).  Raises Unsupported for a base offset.
    """
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    if descriptor >> 49 & 7:
        raise Unsupported("a matrix descriptor with a base offset is not modelled")
    return TileLayout(start, leading, stride, _SWIZZLES[descriptor >> 62 & 3])
