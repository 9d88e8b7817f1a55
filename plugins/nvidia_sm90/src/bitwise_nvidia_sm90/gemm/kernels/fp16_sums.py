"""Matrix products of fp16 in accumulators of fp16, one for each output element and slice."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.tiles import _load_operands, _tile_offsets


@triton.jit
def product_in_fp16(
    A, B, C, M, N, K, slice_k, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SHORT_FIRST: tl.constexpr, INSTRUCTION_K8: tl.constexpr, WHOLE_ITERATIONS: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in an fp16 accumulator.

    The parameters are those of `kernels.tiles.product`.
    """
    gdc_wait()
    gdc_launch_dependents()
    rows, columns = _tile_offsets(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    slice_index = tl.program_id(1)
    # Rows and columns outside the matrix wrap to valid addresses; their results are not stored.
    row_offsets = (rows % M).to(tl.int64) * stride_am
    column_offsets = (columns % N).to(tl.int64) * stride_bn
    start = slice_index * slice_k
    length = min(slice_k, K - start)
    step: tl.constexpr = BLOCK_K // 2 if INSTRUCTION_K8 else BLOCK_K
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    if SHORT_FIRST:
        short = length % SHORT_FIRST
        if short > 0:
            a, b = _load_operands(A, B, row_offsets, column_offsets, start, short, stride_ak, stride_bk,
                                  2 * SHORT_FIRST if INSTRUCTION_K8 else SHORT_FIRST, INSTRUCTION_K8,
                                  True)  # fmt: skip
            accumulator = tl.dot(a, b, accumulator, out_dtype=tl.float16)
        start += short
        length -= short
    for done in range(0, length, step):
        a, b = _load_operands(A, B, row_offsets, column_offsets, start + done, length - done, stride_ak, stride_bk,
                              BLOCK_K, INSTRUCTION_K8, not WHOLE_ITERATIONS)  # fmt: skip
        accumulator = tl.dot(a, b, accumulator, out_dtype=tl.float16)
    out = C + slice_index.to(tl.int64) * stride_cs
    out += rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, accumulator, mask=(rows[:, None] < M) & (columns[None, :] < N))
