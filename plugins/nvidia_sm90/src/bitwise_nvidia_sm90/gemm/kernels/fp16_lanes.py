"""Sums of fused multiply-adds of fp16, in accumulators of fp16, for the few products that a library computes so."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.epilogues import quotient


@triton.jit(do_not_specialize=["M", "N", "K", "count", "slice_k", "tile", "chunk"])
def lanes_in_fp16(
    A, B, C, M, N, K, count, slice_k, tile, chunk, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm,
    stride_cn, LANES: tl.constexpr, STRIDED: tl.constexpr, FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in LANES accumulators of fp16, one after the other.

    With STRIDED, tiles of `tile` k are distributed round-robin to the lanes; without it, each lane has `tile`
    consecutive k.  A lane starts a new accumulator every `chunk` of its own k and adds the totals in order, and so are
    the lanes added.  With FROM_ZERO, the sum of the lanes starts from +0.  A program computes BLOCK elements, counted
    along rows.
    """
    gdc_wait()
    gdc_launch_dependents()
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    row, column = quotient(tl.minimum(element, count - 1), N, count)
    row, column = row.to(tl.int64), column.to(tl.int64)
    slice_index = tl.program_id(1)
    start = slice_index * slice_k
    length = min(slice_k, K - start)
    left, right = A + row * stride_am, B + column * stride_bn
    whole = length // (tile * LANES) * tile if STRIDED else 0
    total = tl.zeros((BLOCK,), dtype=tl.float16)
    for lane in range(LANES):
        own = whole + min(max(length - whole * LANES - lane * tile, 0), tile)
        lane_total = tl.zeros((BLOCK,), dtype=tl.float16)
        for begin in range(0, own, chunk):
            accumulator = tl.zeros((BLOCK,), dtype=tl.float16)
            for step in range(begin, min(begin + chunk, own)):
                k = start + ((step // tile * LANES + lane) * tile + step % tile if STRIDED else lane * tile + step)
                a = tl.load(left + k.to(tl.int64) * stride_ak)
                b = tl.load(right + k.to(tl.int64) * stride_bk)
                accumulator = tl.fma(a, b, accumulator)
            lane_total = tl.where(begin == 0, accumulator, lane_total + accumulator)
        total = tl.where(lane == 0, lane_total, total + lane_total)
    if FROM_ZERO:
        total += 0.0  # starting from +0 changes a sum only where it is -0
    out = C + slice_index.to(tl.int64) * stride_cs + row * stride_cm + column * stride_cn
    tl.store(out, total, mask=inside)
