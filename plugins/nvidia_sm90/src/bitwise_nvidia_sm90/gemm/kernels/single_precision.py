"""Products of matrices of fp32, or widened to it.

Each element and slice has one chain of fused multiply-adds, or of tf32 instructions.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.scalar import _negative_zero
from bitwise_nvidia_sm90.gemm.kernels.tiles import _tile_offsets


@triton.jit
def _rounded_to_tf32(x):
    """Round fp32 to tf32, to nearest even.  A NaN stays one."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, rounded).to(tl.float32, bitcast=True)


@triton.jit
def _add_products(A, B, accumulator, row_offsets, column_offsets, begin, length, start, apart, K, stride_ak, stride_bk,
                  BLOCK_K: tl.constexpr, DEALT: tl.constexpr, TF32: tl.constexpr):  # fmt: skip
    """Add the products of one iteration: the values `begin` to `length` - 1 of the slice, at most BLOCK_K of them."""
    position = begin + tl.arange(0, BLOCK_K)
    k = start + ((position // DEALT) * apart + position % DEALT if DEALT else position)
    real = (position < length) & (k < K)
    where = k.to(tl.int64)
    a = tl.load(A + row_offsets[:, None] + where[None, :] * stride_ak, mask=real[None, :], other=0.0).to(tl.float32)
    b = tl.load(B + where[:, None] * stride_bk + column_offsets[None, :], mask=real[:, None], other=0.0).to(tl.float32)
    if TF32:
        return tl.dot(_rounded_to_tf32(a), _rounded_to_tf32(b), accumulator, input_precision="tf32")
    # The product of +0 and -0 is -0, which changes no accumulator.
    return tl.dot(a, tl.where(real[:, None], b, _negative_zero()), accumulator, input_precision="ieee")


@triton.jit(do_not_specialize=["M", "N", "K", "slice_k", "apart", "stride_cs"])
def product_of_fp32(
    A, B, C, M, N, K, slice_k, apart, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SHORT_FIRST: tl.constexpr, DEALT: tl.constexpr, TF32: tl.constexpr, FROM_ZERO: tl.constexpr,
    FROM_NEGATIVE_ZERO: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in ascending k and in one fp32 accumulator.

    Slice s holds slice_k values of k from s * slice_k, the last slice the remainder.  With DEALT, tiles of DEALT values
    of k are distributed round-robin to the slices, tiles of a slice are `apart` values apart, and slice_k is at least
    the number of its values.  With TF32, operands are rounded to tf32 and multiplied by matrix instructions, otherwise
    by fused multiply-adds.  SHORT_FIRST: the remainder of the slice modulo SHORT_FIRST runs first (0: it runs last).
    With FROM_ZERO, the sum is added to +0.  With FROM_NEGATIVE_ZERO, the accumulator starts from -0.
    """
    gdc_wait()
    gdc_launch_dependents()
    rows, columns = _tile_offsets(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    slice_index = tl.program_id(1)
    # Rows and columns outside the matrix wrap to valid addresses; their results are not stored.
    row_offsets = (rows % M).to(tl.int64) * stride_am
    column_offsets = (columns % N).to(tl.int64) * stride_bn
    start = slice_index * (DEALT if DEALT else slice_k)
    length = slice_k if DEALT else min(slice_k, K - start)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if FROM_NEGATIVE_ZERO:
        accumulator = tl.full((BLOCK_M, BLOCK_N), 0x80000000, tl.uint32).to(tl.float32, bitcast=True)
    first = 0
    if SHORT_FIRST:
        first = length % SHORT_FIRST
        if first > 0:
            accumulator = _add_products(A, B, accumulator, row_offsets, column_offsets, 0, first, start, apart, K,
                                        stride_ak, stride_bk, SHORT_FIRST, DEALT, TF32)  # fmt: skip
    for begin in range(first, length, BLOCK_K):
        accumulator = _add_products(A, B, accumulator, row_offsets, column_offsets, begin, length, start, apart, K,
                                    stride_ak, stride_bk, BLOCK_K, DEALT, TF32)  # fmt: skip
    if FROM_ZERO:
        accumulator += 0.0
    out = C + slice_index.to(tl.int64) * stride_cs
    out += rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, accumulator.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit(do_not_specialize=["N", "count", "slices"])
def merge_pairs(W, C, N, count, slices, stride_cm, stride_cn, FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr):
    """C[m, n] = the sum of W[slice, m, n] over at least two slices, in the merge order `paired`.

    W is dense, `count` elements per slice.  With FROM_ZERO, the sum is added to +0.
    """
    gdc_wait()
    gdc_launch_dependents()
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    half = (slices + 1) // 2
    last = slices - 1
    total = tl.load(W + where, mask=inside, other=0.0)
    if half < last:
        total += tl.load(W + half.to(tl.int64) * count + where, mask=inside, other=0.0)
    total += tl.load(W + last.to(tl.int64) * count + where, mask=inside, other=0.0)
    for part in range(1, half):
        pair = tl.load(W + part.to(tl.int64) * count + where, mask=inside, other=0.0)
        if part + half < last:
            pair += tl.load(W + (part + half).to(tl.int64) * count + where, mask=inside, other=0.0)
        total += pair
    if FROM_ZERO:
        total += 0.0
    out = C + (where // N) * stride_cm + (where % N) * stride_cn
    tl.store(out, total.to(C.dtype.element_ty), mask=inside)
