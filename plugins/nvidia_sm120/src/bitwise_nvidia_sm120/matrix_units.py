"""The rows of mma.sync on sm_120, from public models that their authors validated on an RTX PRO 6000.

An instruction is one step of 16 products of fp16 and bf16, 8 of tf32 or 32 of fp8, aligned and truncated at 25 fraction
bits.  There are no public vectors.  The machine has one instruction for fp8, with and without .kind::f8f6f4.
"""

from __future__ import annotations

from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_nvidia_ptx.matrix_rows import FP8, PUBLISHED, fp64, fused, integers

NAME, FAMILY = "sm_120", "mma.sync"
PRODUCTS = {"fp16": (8, 16), "bf16": (8, 16), "tf32": (4, 8)}


def _rows() -> list[MmaSpec]:
    pairs = [(form, form, k) for form, ks in PRODUCTS.items() for k in ks]
    pairs += [(left, right, k) for left, right in FP8 for k in (16, 32)]
    rows = [
        fused(NAME, FAMILY, left, result, k, FusedSum(k, 25, 23, "rz"), PUBLISHED, right)
        for left, right, k in pairs
        for result in ("fp32", "fp16")
        if result == "fp32" or left not in ("bf16", "tf32")
    ]
    return rows + fp64(NAME, (4,)) + integers(NAME, FAMILY, (16, 32))


ROWS: tuple[MmaSpec, ...] = tuple(_rows())
