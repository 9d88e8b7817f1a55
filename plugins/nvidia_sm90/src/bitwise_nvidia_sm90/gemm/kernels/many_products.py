"""Many products in one launch: the matrices of a batch, and groups whose bounds are in memory.

Each element is one sum over k in ascending order: by matrix instructions of k 16 on 16-bit operands, or by fused
multiply-adds on fp32.  The tiles have 64 rows, so that Triton multiplies by wgmma and never by mma.sync, whose sums
differ.  Tile shapes do not affect the bits.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(A, B, rows, columns, rows_inside, columns_inside, start, end, stride_am, stride_ak, stride_bk, stride_bn,
          BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FMA: tl.constexpr,
          WHOLE_BLOCKS: tl.constexpr):  # fmt: skip
    """Return the sums of A[rows, k] B[k, columns] over start <= k < end, in fp32 from +0.

    With WHOLE_BLOCKS, there are so many k that every block of BLOCK_K is whole.
    """
    left = A + rows.to(tl.int64)[:, None] * stride_am
    right = B + columns.to(tl.int64)[None, :] * stride_bn
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if FMA:
        for k in range(start, end):
            a = tl.load(left + k.to(tl.int64) * stride_ak, mask=rows_inside[:, None], other=0.0)
            b = tl.load(right + k.to(tl.int64) * stride_bk, mask=columns_inside[None, :], other=0.0)
            sums = tl.fma(tl.broadcast_to(a, (BLOCK_M, BLOCK_N)), tl.broadcast_to(b, (BLOCK_M, BLOCK_N)), sums)
    else:
        for first in range(start, end, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            where = k.to(tl.int64)
            a_inside, b_inside = rows_inside[:, None], columns_inside[None, :]
            if not WHOLE_BLOCKS:  # a mask along the k that follow each other in memory divides loads into single ones
                a_inside &= (k < end)[None, :]
                b_inside &= (k < end)[:, None]
            a = tl.load(left + where[None, :] * stride_ak, mask=a_inside, other=0.0)
            b = tl.load(right + where[:, None] * stride_bk, mask=b_inside, other=0.0)
            sums = tl.dot(a, b, sums)
    return sums


@triton.jit(do_not_specialize=["M", "K"])
def batched(
    A, B, C, M, N, K, stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FMA: tl.constexpr, WHOLE_BLOCKS: tl.constexpr,
):  # fmt: skip
    """C[i, m, n] = sum over k of A[i, m, k] B[i, k, n]; the programs are tiles and matrices."""
    across = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    matrix = (tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)).to(tl.int64)
    sums = _tile(A + matrix * stride_ab, B + matrix * stride_bb, rows, columns, rows < M, columns < N, 0, K, stride_am,
                 stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, FMA, WHOLE_BLOCKS)  # fmt: skip
    out = C + matrix * stride_cb + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, sums.to(C.dtype.element_ty), mask=(rows < M)[:, None] & (columns < N)[None, :])


@triton.jit(do_not_specialize=["M", "K", "groups"])
def groups_of_rows(
    A, B, C, ends, groups, M, N, K, stride_am, stride_ak, stride_bg, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FMA: tl.constexpr, WHOLE_BLOCKS: tl.constexpr,
):  # fmt: skip
    """C[m, n] = sum over k of A[m, k] B[g, k, n] for the group g of row m, and 0 for rows behind the last group.

    There are at most cdiv(M, BLOCK_M) + groups tiles of rows, since a group begins with a tile of its own.
    """
    across = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0) // across
    columns = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    first, last, group, begin, seen = 0, 0, -1, 0, 0
    for each in range(groups):
        end = tl.minimum(tl.load(ends + each), M)
        tiles = tl.cdiv(tl.maximum(end - begin, 0), BLOCK_M)
        if (tile >= seen) & (tile < seen + tiles):
            first = begin + (tile - seen) * BLOCK_M
            last = end
            group = each
        seen += tiles
        begin = tl.maximum(begin, end)
    if (group < 0) & (tile >= seen):
        first = begin + (tile - seen) * BLOCK_M
        last = M
    rows = first + tl.arange(0, BLOCK_M)
    inside = rows < last
    sums = _tile(A, B + tl.maximum(group, 0).to(tl.int64) * stride_bg, rows, columns, inside, columns < N, 0,
                 tl.where(group < 0, 0, K), stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K,
                 FMA, WHOLE_BLOCKS)  # fmt: skip
    out = C + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, sums.to(C.dtype.element_ty), mask=inside[:, None] & (columns < N)[None, :])


@triton.jit(do_not_specialize=["K"])
def groups_of_k(
    A, B, C, ends, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cg, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FMA: tl.constexpr,
):  # fmt: skip
    """C[g, m, n] = sum over the k of group g of A[m, k] B[k, n]; the programs are tiles and groups."""
    across = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    group = tl.program_id(1)
    begin = tl.load(ends + group - 1, mask=group > 0, other=0)
    end = tl.minimum(tl.load(ends + group), K)
    sums = _tile(A, B, rows, columns, rows < M, columns < N, begin, end, stride_am, stride_ak, stride_bk, stride_bn,
                 BLOCK_M, BLOCK_N, BLOCK_K, FMA, False)  # fmt: skip
    out = C + group.to(tl.int64) * stride_cg
    out += rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, sums.to(C.dtype.element_ty), mask=(rows < M)[:, None] & (columns < N)[None, :])
