"""A plain Triton GEMM with common tile sizes, as a baseline for `schedule_timing`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

CONFIGURATIONS = (
    (128, 256, 64, 8, 3), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4), (64, 32, 32, 2, 5), (32, 64, 32, 2, 5), (128, 128, 64, 8, 3), (64, 64, 64, 4, 4),
    (16, 64, 64, 4, 5), (16, 128, 64, 4, 4),
)  # fmt: skip
"""Rows, columns and k of a tile, warps and stages."""


@triton.jit
def product(
    A, B, C, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """C = A B, one program for each tile, with tiles grouped by GROUP rows."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    inside = tl.program_id(0) % (GROUP * across)
    row, column = (group * GROUP + inside % height) * BLOCK_M, (inside // height) * BLOCK_N
    rows, columns = (row + tl.arange(0, BLOCK_M)) % M, (column + tl.arange(0, BLOCK_N)) % N
    places = tl.arange(0, BLOCK_K)
    left = A + rows[:, None] * stride_am + places[None, :] * stride_ak
    right = B + places[:, None] * stride_bk + columns[None, :] * stride_bn
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        a = tl.load(left, mask=places[None, :] < K - done, other=0.0)
        b = tl.load(right, mask=places[:, None] < K - done, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        left += BLOCK_K * stride_ak
        right += BLOCK_K * stride_bk
    rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    out = C + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(out, accumulator.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def run(configuration: tuple[int, ...], a: Any, b: Any, out: Any) -> None:
    """Compute out = a b under one of CONFIGURATIONS."""
    block_m, block_n, block_k, warps, stages = configuration
    m, n = out.shape
    product[(-(-m // block_m) * -(-n // block_n),)](
        a, b, out, m, n, a.shape[1], *a.stride(), *b.stride(), *out.stride(), BLOCK_M=block_m, BLOCK_N=block_n,
        BLOCK_K=block_k, GROUP=8, num_warps=warps, num_stages=stages,
    )  # fmt: skip
