"""Matrix products on matrix units: one accumulator over a slice of k, and the sum of the slices.

Tiles, stages and warps decide no bits: every output element has an accumulator of its own, and the instructions reach
it in ascending k however the turns of the loop are cut.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _tile(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Rows and columns of a program's output tile, tiles in groups of GROUP rows of them."""
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    inside = program % (GROUP * across)
    rows = (group * GROUP + inside % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (inside // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows, columns


@triton.jit
def _turn(A, B, rows, columns, start, length, stride_ak, stride_bk, BLOCK_K: tl.constexpr, HALF: tl.constexpr,
          MASKED: tl.constexpr):  # fmt: skip
    """The operands of one turn of `length` k from `start` on, zeros behind them.

    With HALF every group of 16 k holds 8 and 8 zeros: an instruction of k 16 then adds what one of k 8 adds.
    """
    place = tl.arange(0, BLOCK_K)
    if HALF:
        inside = (place // 16) * 8 + place % 16
        real = (place % 16 < 8) & (inside < length)
    else:
        inside = place
        real = inside < length
    where = (start + inside).to(tl.int64)
    if MASKED or HALF:
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
    FIRST: tl.constexpr, HALF: tl.constexpr, BLOCKED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in an accumulator of fp32, rounded to C's type.

    Slice s holds slice_k values of k from s slice_k on, the last one what is left.  FIRST is the turn whose remainder
    runs first (0: the short turn runs last), HALF stands for instructions of k 8, BLOCKED closes an accumulator every
    BLOCK_K values and adds the totals in order.  EVEN: every slice is whole turns of BLOCK_K.
    """
    gdc_wait()
    gdc_launch_dependents()
    rows, columns = _tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    number = tl.program_id(1)
    # Rows and columns beyond the matrix are read from inside it, and stored nowhere.
    row_places = (rows % M).to(tl.int64) * stride_am
    column_places = (columns % N).to(tl.int64) * stride_bn
    start = number * slice_k
    length = min(slice_k, K - start)
    step: tl.constexpr = BLOCK_K // 2 if HALF else BLOCK_K
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if FIRST:
        first = length % FIRST
        if first > 0:
            a, b = _turn(A, B, row_places, column_places, start, first, stride_ak, stride_bk,
                         2 * FIRST if HALF else FIRST, HALF, True)  # fmt: skip
            accumulator = tl.dot(a, b, accumulator)
        start += first
        length -= first
    for done in range(0, length, step):
        a, b = _turn(A, B, row_places, column_places, start + done, length - done, stride_ak, stride_bk, BLOCK_K, HALF,
                     not EVEN)  # fmt: skip
        if BLOCKED:
            accumulator += tl.dot(a, b)
        else:
            accumulator = tl.dot(a, b, accumulator)
    out = C + number.to(tl.int64) * stride_cs
    out += rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(out, accumulator.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit(do_not_specialize=["slices"])
def merge(
    W, C, N, count, slices, stride_cm, stride_cn, ROUNDED: tl.constexpr, ZERO: tl.constexpr, FLAT: tl.constexpr,
    FEW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C[m, n] = W[0, m, n] + W[1, m, n] + ..., added in order in fp32 and rounded to C's type at the end.

    W is dense, `count` elements a slice.  With ROUNDED the running sum has C's type, with ZERO it starts from +0.
    FLAT: C is dense too.  FEW: the number of slices where they are few, else 0.
    """
    gdc_wait()
    gdc_launch_dependents()
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    total = tl.load(W + where, mask=inside, other=0.0).to(tl.float32)
    if ZERO:
        total += 0.0
    if ROUNDED:
        total = total.to(C.dtype.element_ty).to(tl.float32)
    part = W + where
    if FEW:
        for _ in tl.static_range(1, FEW):
            part += count
            total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
            if ROUNDED:
                total = total.to(C.dtype.element_ty).to(tl.float32)
    else:
        for _ in range(1, slices):
            part += count
            total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
            if ROUNDED:
                total = total.to(C.dtype.element_ty).to(tl.float32)
    out = C + where if FLAT else C + (where // N) * stride_cm + (where % N) * stride_cn
    tl.store(out, total.to(C.dtype.element_ty), mask=inside)
