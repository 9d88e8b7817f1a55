"""Matrix products whose operands are loaded through tensor maps (TMA).

The bits are those of `kernels.tiles.product`: one accumulator for each output element, instructions in ascending k.
"""

# ruff: noqa: SIM108  (Triton compiles only the taken branch of an if on a constant)
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _load(X, row, column, TRANSPOSED: tl.constexpr):
    """Load a block through the tensor map X.  With TRANSPOSED, X maps the transposed matrix."""
    if TRANSPOSED:
        return X.load([column, row]).T
    else:
        return X.load([row, column])


@triton.jit
def _store(C, x, row, column, M, N, stride_cm, stride_cn, C_TMA: tl.constexpr, C_TRANSPOSED: tl.constexpr):
    """Store x, a tile or a part of one, at (row, column) of C."""
    if C_TMA:
        if C_TRANSPOSED:
            C.store([column, row], x.to(C.dtype).T)
        else:
            C.store([row, column], x.to(C.dtype))
    else:
        rows = row + tl.arange(0, x.shape[0])
        columns = column + tl.arange(0, x.shape[1])
        out = C + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
        tl.store(out, x.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def _split_columns(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the left and the right half of the columns of x."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def _tile(
    job, tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    NEW_ACCUMULATOR: tl.constexpr, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TMA: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, STORE_PARTS: tl.constexpr, ONE_ITERATION: tl.constexpr,
):  # fmt: skip
    """Compute and store tile `job % tiles` of slice `job // tiles`."""
    slice_index = job // tiles
    program = job % tiles
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    inside = program % (GROUP * across)
    row = (group * GROUP + inside % height) * BLOCK_M
    column = (inside // height) * BLOCK_N
    start = slice_index * slice_k
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if ONE_ITERATION:
        iterations = 1
    else:
        iterations = tl.cdiv(min(slice_k, K - start), BLOCK_K)
    for iteration in range(iterations):
        a = _load(A, row, start + iteration * BLOCK_K, A_TRANSPOSED)
        b = _load(B, start + iteration * BLOCK_K, column, B_TRANSPOSED)
        if NEW_ACCUMULATOR:
            accumulator += tl.dot(a, b)
        else:
            accumulator = tl.dot(a, b, accumulator)
    if C_TMA:
        out = C
    else:
        out = C + slice_index.to(tl.int64) * stride_cs
    if STORE_PARTS == 1:
        _store(out, accumulator, row, column, M, N, stride_cm, stride_cn, C_TMA, C_TRANSPOSED)
    else:
        left, right = _split_columns(accumulator, BLOCK_M, BLOCK_N)
        _store(out, left, row, column, M, N, stride_cm, stride_cn, C_TMA, C_TRANSPOSED)
        _store(out, right, row, column + BLOCK_N // 2, M, N, stride_cm, stride_cn, C_TMA, C_TRANSPOSED)


@triton.jit(do_not_specialize=["slices"])
def tma_product(
    A, B, C, M, N, K, slice_k, slices, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    NEW_ACCUMULATOR: tl.constexpr, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TMA: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, STORE_PARTS: tl.constexpr, ONE_ITERATION: tl.constexpr, PROGRAMS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in an fp32 accumulator, rounded to C's type.

    A and B are tensor maps over K values of k, padded with zeros; with A_TRANSPOSED or B_TRANSPOSED, they map the
    transposed matrix.  Each slice except the last is a whole number of iterations of BLOCK_K.  With C_TMA, C is a
    tensor map as well, of a tile or of half a tile (STORE_PARTS 2), with C_TRANSPOSED of the transposed matrix, and
    there is one slice.  ONE_ITERATION: a slice fits in one iteration.  NEW_ACCUMULATOR: each iteration has its own
    accumulator.  PROGRAMS: the number of persistent programs, 0 for one program per tile.  OVERLAP: the next kernel may
    start before this one ends.
    """
    gdc_wait()
    if OVERLAP:
        gdc_launch_dependents()
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    tiles = across * down
    if PROGRAMS:
        for job in tl.range(tl.program_id(0), tiles * slices, PROGRAMS, flatten=True):
            _tile(job, tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn, BLOCK_M,
                  BLOCK_N, BLOCK_K, GROUP, NEW_ACCUMULATOR, A_TRANSPOSED, B_TRANSPOSED, C_TMA, C_TRANSPOSED,
                  STORE_PARTS, ONE_ITERATION)  # fmt: skip
    else:
        _tile(tl.program_id(0), tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
              BLOCK_M, BLOCK_N, BLOCK_K, GROUP, NEW_ACCUMULATOR, A_TRANSPOSED, B_TRANSPOSED, C_TMA, C_TRANSPOSED,
              STORE_PARTS, ONE_ITERATION)  # fmt: skip
