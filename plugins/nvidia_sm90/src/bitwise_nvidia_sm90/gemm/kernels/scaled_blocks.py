"""Products of fp8 matrices whose blocks of 128 values of k have scales, added by fused multiply-adds.

The tiles have at least 64 rows, so that Triton multiplies by wgmma and never by mma.sync, whose sums differ.  Tile
shapes do not affect the bits.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N", "K", "SPAN"])
def scaled_blocks(
    A, B, C, SA, SB, M, N, K, SPAN, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_sam,
    stride_sak, stride_sbk, stride_sbn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, WHOLE_BLOCKS: tl.constexpr, LEFT_FIRST: tl.constexpr, SLICED: tl.constexpr,
    SHARED_ROWS: tl.constexpr, SHARED_COLUMNS: tl.constexpr,
):  # fmt: skip
    """C[m, n] = the sum of slices of SPAN values of k, each the total of fma(P, s, total) from +0 over its blocks.

    P is the sum of A[m, k] B[k, n] over a block of BLOCK_K values of k in an accumulator of its own, s is the product
    of SA[m, block] and SB[block, n].  LEFT_FIRST: fma(P SA, SB, total) instead.  WHOLE_BLOCKS: K is a multiple of
    BLOCK_K.  SLICED: there are several slices.  SHARED_ROWS rows of A share a scale, and SHARED_COLUMNS columns of B.
    """
    across, down = tl.cdiv(N, BLOCK_N), tl.cdiv(M, BLOCK_M)
    program = tl.program_id(0)
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    inside = program % (GROUP * across)
    rows = (group * GROUP + inside % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (inside // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    # Rows and columns outside the matrix wrap to valid addresses; their results are not stored.
    row, column = (rows % M).to(tl.int64), (columns % N).to(tl.int64)
    position = tl.arange(0, BLOCK_K)
    left = A + row[:, None] * stride_am + position[None, :] * stride_ak
    right = B + column[None, :] * stride_bn + position[:, None] * stride_bk
    scale_a, scale_b = SA + row // SHARED_ROWS * stride_sam, SB + column // SHARED_COLUMNS * stride_sbn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    slices = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        if WHOLE_BLOCKS:
            a = tl.load(left)
            b = tl.load(right)
        else:
            real = first + position < K
            a = tl.load(left, mask=real[None, :], other=0.0)
            b = tl.load(right, mask=real[:, None], other=0.0)
        down_scale = tl.load(scale_a)[:, None]
        across_scale = tl.load(scale_b)[None, :]
        if SLICED:  # noqa: SIM102 - the inner condition is one of the program
            if (first > 0) & (first % SPAN == 0):
                slices = tl.where(first == SPAN, total, slices + total)
                total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if LEFT_FIRST:
            total = tl.fma(tl.dot(a, b) * down_scale, tl.broadcast_to(across_scale, (BLOCK_M, BLOCK_N)), total)
        else:
            total = tl.fma(tl.dot(a, b), down_scale * across_scale, total)
        left += BLOCK_K * stride_ak
        right += BLOCK_K * stride_bk
        scale_a += stride_sak
        scale_b += stride_sbk
    if SLICED:
        total = slices + total
    out = C + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, total.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))
