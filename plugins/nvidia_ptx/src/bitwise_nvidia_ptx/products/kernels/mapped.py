"""Matrix products whose operands arrive by tensor maps, by programs that take one output tile after another.

The bits are those of `kernels.matrix.product`: an accumulator for each output element, instructions in ascending k.
"""

# ruff: noqa: SIM108  (of an if on a constant Triton compiles one branch)
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N", "slices"])
def mapped_product(
    A, B, C, M, N, K, slice_k, slices, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, BLOCKED: tl.constexpr,
    A_COLUMNS: tl.constexpr, B_COLUMNS: tl.constexpr, C_MAPPED: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in an accumulator of fp32, rounded to C's type.

    A and B are tensor maps over K values of k, zeros behind them; with A_COLUMNS or B_COLUMNS of the transposed matrix.
    Slices are whole turns of BLOCK_K, but for the last one.  C_MAPPED: C is a tensor map too, and there is one slice.
    """
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    tiles = across * down
    for job in tl.range(tl.program_id(0), tiles * slices, PROGRAMS, flatten=True):
        number = job // tiles
        program = job % tiles
        group = program // (GROUP * across)
        height = min(down - group * GROUP, GROUP)
        inside = program % (GROUP * across)
        row = (group * GROUP + inside % height) * BLOCK_M
        column = (inside // height) * BLOCK_N
        start = number * slice_k
        length = min(slice_k, K - start)
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for turn in range(tl.cdiv(length, BLOCK_K)):
            k = start + turn * BLOCK_K
            if A_COLUMNS:
                a = A.load([k, row]).T
            else:
                a = A.load([row, k])
            if B_COLUMNS:
                b = B.load([column, k]).T
            else:
                b = B.load([k, column])
            if BLOCKED:
                accumulator += tl.dot(a, b)
            else:
                accumulator = tl.dot(a, b, accumulator)
        if C_MAPPED:
            C.store([row, column], accumulator.to(C.dtype))
        else:
            rows = row + tl.arange(0, BLOCK_M)
            columns = column + tl.arange(0, BLOCK_N)
            out = C + number.to(tl.int64) * stride_cs
            out += rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
            tl.store(out, accumulator.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))
