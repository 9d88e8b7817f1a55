"""How matrices lie in memory: whether tensor maps have them, and how kernels without maps take them.

Of a matrix only `shape`, `stride()`, `dtype` and `data_ptr()` are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import STAGE_BYTES
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM

ALIGNMENT = 16
"""Bytes.  Triton specialises a kernel on whether an address is a multiple of this, and tensor maps need it."""
TORCH_NAMES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
"""PyTorch's name of a format."""
_FORMATS = {name: each for each, name in TORCH_NAMES.items()}


@dataclass(frozen=True, slots=True)
class MatrixMap:
    """A tensor map over a matrix with dense rows: `shape`, `strides` and the `block` of one copy, in elements.

    `swizzle` is the width of the swizzle in bytes, 0 for none; for a Triton function its compiler chooses it.
    """

    matrix: Any
    shape: tuple[int, int]
    strides: tuple[int, int]
    block: tuple[int, int]
    swizzle: int = 0


def has_map(matrix: Any) -> bool:
    """Return whether there is a tensor map of a matrix: whether its strides and its address allow one."""
    rows, columns = (int(each) for each in matrix.shape)
    size = 1 if type_of(matrix) in ("e4m3", "e5m2") else 2
    try:
        is_transposed((rows, columns), tuple(matrix.stride()), size)
    except UnsupportedGEMM:
        return False
    return int(matrix.data_ptr()) % ALIGNMENT == 0


def alignment_of_lines(matrix: Any) -> int:
    """Return the greatest part of a line of the cache, in bytes, of which the leading dimension is a multiple."""
    size = 1 if type_of(matrix) in ("e4m3", "e5m2") else 2
    return math.gcd(max(int(each) for each in matrix.stride()) * size, STAGE_BYTES)


def type_of(matrix: Any) -> str:
    """Return the name of the format of a matrix, or of its type where no format has that."""
    name = str(matrix.dtype).removeprefix("torch.")
    return _FORMATS.get(name, name)


def matrix_map(
    matrix: Any,
    shape: tuple[int, int],
    strides: tuple[int, int],
    block: tuple[int, int],
    size: int,
    swizzle: int = 0,
) -> tuple[MatrixMap, bool]:
    """Return the map of a matrix, and whether it maps the transposed matrix.

    `block` is a block of the matrix, or with a swizzle, of what is mapped.  Raises UnsupportedGEMM for other strides.
    """
    transposed = is_transposed(shape, strides, size)
    i, j = (1, 0) if transposed else (0, 1)
    box = block if swizzle else (block[i], block[j])
    return MatrixMap(matrix, (shape[i], shape[j]), (strides[i], 1), box, swizzle), transposed


def is_transposed(shape: tuple[int, int], strides: tuple[int, int], size: int) -> bool:
    """Return whether the columns of a matrix are contiguous, and not its rows.

    Raises UnsupportedGEMM if no tensor map has these strides.
    """
    for transposed, (i, j) in ((False, (0, 1)), (True, (1, 0))):
        if strides[j] == 1 and strides[i] * size % 16 == 0 and strides[i] >= shape[j]:
            return transposed
    raise UnsupportedGEMM(f"strides {strides}: tensor maps need contiguous rows or columns at a stride of 16 n bytes")


def is_k_major(shape: tuple[int, int], strides: tuple[int, int]) -> bool:
    """Return whether the values of k of a row are contiguous, otherwise the rows of one k.  Raises UnsupportedGEMM."""
    rows, k = shape
    if strides[1] == 1 or k == 1:
        return True
    if strides[0] == 1 or rows == 1:
        return False
    raise UnsupportedGEMM(f"strides {strides}: to gather an operand needs contiguous rows or columns")
