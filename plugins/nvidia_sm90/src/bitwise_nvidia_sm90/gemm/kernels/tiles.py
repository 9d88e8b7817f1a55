"""Matrix products on matrix units: one accumulator over a slice of k, and the sum of the slices.

Tile shapes, stages and warps do not affect the bits: each output element has its own accumulator, and the matrix
instructions update it in ascending k, whatever the loop's BLOCK_K.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.epilogues import finished, load_operand, quotient, rounded


@triton.jit
def _tile_offsets(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the row and column indices of a program's output tile.  Programs are grouped by GROUP rows of tiles."""
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    inside = program % (GROUP * across)
    rows = (group * GROUP + inside % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (inside // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows, columns


@triton.jit
def _load_operands(A, B, rows, columns, start, length, stride_ak, stride_bk, BLOCK_K: tl.constexpr,
                   INSTRUCTION_K8: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Load the operands of one iteration: `length` k from `start`, padded with zeros to BLOCK_K.

    With INSTRUCTION_K8, each group of 16 k holds 8 values and 8 zeros: a k16 instruction then adds what a k8
    instruction adds.
    """
    position = tl.arange(0, BLOCK_K)
    if INSTRUCTION_K8:
        inside = (position // 16) * 8 + position % 16
        real = (position % 16 < 8) & (inside < length)
    else:
        inside = position
        real = inside < length
    where = (start + inside).to(tl.int64)
    if MASKED or INSTRUCTION_K8:
        a = tl.load(A + rows[:, None] + where[None, :] * stride_ak, mask=real[None, :], other=0.0)
        b = tl.load(B + where[:, None] * stride_bk + columns[None, :], mask=real[:, None], other=0.0)
    else:
        a = tl.load(A + rows[:, None] + where[None, :] * stride_ak)
        b = tl.load(B + where[:, None] * stride_bk + columns[None, :])
    return a, b


@triton.jit
def product(
    A, B, C, M, N, K, slice_k, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SHORT_FIRST: tl.constexpr, INSTRUCTION_K8: tl.constexpr, NEW_ACCUMULATOR: tl.constexpr,
    WHOLE_ITERATIONS: tl.constexpr,
    O0=None, o0_row=None, o0_column=None, O1=None, o1_row=None, o1_column=None, O2=None, o2_row=None, o2_column=None,
    EPILOGUE: tl.constexpr = "", CONSTRAINTS: tl.constexpr = "", PRODUCT: tl.constexpr = "",
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in an fp32 accumulator, rounded to C's type.

    Slice s holds slice_k values of k from s * slice_k, the last slice the remainder.  SHORT_FIRST: the remainder of the
    slice modulo SHORT_FIRST runs first (0: the short iteration runs last).  INSTRUCTION_K8 emulates k8 instructions.
    NEW_ACCUMULATOR: a new accumulator every BLOCK_K values; the totals are added in order.  WHOLE_ITERATIONS: each
    slice is a whole number of iterations of BLOCK_K.
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
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if SHORT_FIRST:
        short = length % SHORT_FIRST
        if short > 0:
            a, b = _load_operands(A, B, row_offsets, column_offsets, start, short, stride_ak, stride_bk,
                                  2 * SHORT_FIRST if INSTRUCTION_K8 else SHORT_FIRST, INSTRUCTION_K8,
                                  True)  # fmt: skip
            accumulator = tl.dot(a, b, accumulator)
        start += short
        length -= short
    for done in range(0, length, step):
        a, b = _load_operands(A, B, row_offsets, column_offsets, start + done, length - done, stride_ak, stride_bk,
                              BLOCK_K, INSTRUCTION_K8, not WHOLE_ITERATIONS)  # fmt: skip
        if NEW_ACCUMULATOR:
            accumulator += tl.dot(a, b)
        else:
            accumulator = tl.dot(a, b, accumulator)
    out = C + slice_index.to(tl.int64) * stride_cs
    out += rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    first = load_operand(
        O0, o0_row, o0_column, rows[:, None], columns[None, :], rows[:, None] < M, columns[None, :] < N
    )
    second = load_operand(
        O1, o1_row, o1_column, rows[:, None], columns[None, :], rows[:, None] < M, columns[None, :] < N
    )
    third = load_operand(
        O2, o2_row, o2_column, rows[:, None], columns[None, :], rows[:, None] < M, columns[None, :] < N
    )
    found = finished(accumulator, O0, O1, O2, first, second, third, C.dtype.element_ty, EPILOGUE, CONSTRAINTS)
    tl.store(out, found, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit(do_not_specialize=["slices"])
def merge(
    W, C, N, count, line, slices, stride_cm, stride_cn, ROUND_EACH: tl.constexpr, FROM_ZERO: tl.constexpr,
    DENSE: tl.constexpr, STATIC_SLICES: tl.constexpr, BLOCK: tl.constexpr,
    O0=None, o0_row=None, o0_column=None, O1=None, o1_row=None, o1_column=None, O2=None, o2_row=None, o2_column=None,
    EPILOGUE: tl.constexpr = "", CONSTRAINTS: tl.constexpr = "", PRODUCT: tl.constexpr = "", DOWN: tl.constexpr = False,
):  # fmt: skip
    """C[m, n] = W[0, m, n] + W[1, m, n] + ..., added in order in fp32 and rounded to C's type at the end.

    With DOWN, the last slice comes first.  W is dense, `count` elements per slice, `line` per row, of which C has N.
    With ROUND_EACH, the running sum has C's type; with FROM_ZERO, it starts from +0.  DENSE: C is dense as well, and
    `line` is N.  STATIC_SLICES: the number of slices if the loop is unrolled, else 0.
    """
    gdc_wait()
    gdc_launch_dependents()
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    row, column = quotient(where, line, count)
    # The values after those of a row are loaded with it, so that a thread loads several at once.
    stored = inside if DENSE else inside & (column < N)
    first = load_operand(O0, o0_row, o0_column, row, column, stored, stored)
    second = load_operand(O1, o1_row, o1_column, row, column, stored, stored)
    third = load_operand(O2, o2_row, o2_column, row, column, stored, stored)
    part = W + where
    step = count
    if DOWN:
        part += (slices - 1).to(tl.int64) * count
        step = -count
    total = tl.load(part, mask=inside, other=0.0).to(tl.float32)
    if FROM_ZERO:
        total += 0.0
    if ROUND_EACH:
        total = rounded(total, C.dtype.element_ty, PRODUCT)
    if STATIC_SLICES:
        for _ in tl.static_range(1, STATIC_SLICES):
            part += step
            total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
            if ROUND_EACH:
                total = rounded(total, C.dtype.element_ty, PRODUCT)
    else:
        for _ in tl.range(1, slices, loop_unroll_factor=8):
            part += step
            total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
            if ROUND_EACH:
                total = rounded(total, C.dtype.element_ty, PRODUCT)
    out = C + where if DENSE else C + row.to(tl.int64) * stride_cm + column.to(tl.int64) * stride_cn
    found = finished(total, O0, O1, O2, first, second, third, C.dtype.element_ty, EPILOGUE, CONSTRAINTS)
    tl.store(out, found, mask=stored)
