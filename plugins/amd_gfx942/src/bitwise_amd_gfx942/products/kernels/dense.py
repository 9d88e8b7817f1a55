"""Dense matrix products with one accumulator per output element and ascending k."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N", "K", "used"])
def matrix_product(
    A, B, C, M, N, K, used, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """C[m, n] = sum over k < used of A[m, k] B[k, n] on matrix units, rounded to C's type; row-major, dense."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k_offsets = tl.arange(0, BLOCK_K)
    inside = (rows[:, None] < M), (columns[None, :] < N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if A.dtype.element_ty == tl.float64 else tl.float32)
    for start in range(0, used, BLOCK_K):
        k = start + k_offsets
        a = tl.load(A + rows[:, None] * K + k[None, :], mask=inside[0] & (k[None, :] < used), other=0.0)
        b = tl.load(B + k[:, None] * N + columns[None, :], mask=inside[1] & (k[:, None] < used), other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee", out_dtype=accumulator.dtype)
    tl.store(C + rows[:, None] * N + columns[None, :], accumulator.to(C.dtype.element_ty), mask=inside[0] & inside[1])


@triton.jit(do_not_specialize=["M", "N", "K", "used"])
def scalar_product(
    A, B, C, M, N, K, used, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """The same product with one fp32 fused multiply-add per k."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M), (columns[None, :] < N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(used):
        a = tl.load(A + rows[:, None] * K + k, mask=inside[0], other=0.0).to(tl.float32)
        b = tl.load(B + k * N + columns[None, :], mask=inside[1], other=0.0).to(tl.float32)
        accumulator = tl.fma(
            tl.broadcast_to(a, (BLOCK_M, BLOCK_N)), tl.broadcast_to(b, (BLOCK_M, BLOCK_N)), accumulator
        )
    tl.store(C + rows[:, None] * N + columns[None, :], accumulator.to(C.dtype.element_ty), mask=inside[0] & inside[1])
