"""Kernels that ask the matrix units what their fused steps return: one product tile on a given accumulator."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fused_steps(left, right, start, target, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """target = start + left @ right for one tile; left (M, K), right (K, N), start and target (M, N), row-major."""
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(left + rows[:, None] * K + depth[None, :])
    b = tl.load(right + depth[:, None] * N + columns[None, :])
    c = tl.load(start + rows[:, None] * N + columns[None, :])
    out = tl.dot(a, b, c, input_precision="tf32", out_dtype=tl.float32)
    tl.store(target + rows[:, None] * N + columns[None, :], out)
