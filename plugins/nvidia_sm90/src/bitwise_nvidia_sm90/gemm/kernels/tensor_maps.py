"""Matrix products whose operands are loaded through tensor maps (TMA).

The bits are those of `kernels.tiles.product`: one accumulator for each output element, instructions in ascending k.
"""

# ruff: noqa: SIM108  (Triton compiles only the taken branch of an if on a constant)
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.epilogues import finished, load_operand

_EARLY: tl.constexpr = tl.constexpr(64 * 128)
"""Elements of the largest tile whose operands of an epilogue are loaded before the product is computed."""


@triton.jit
def _load(X, row, column, TRANSPOSED: tl.constexpr):
    """Load a block through the tensor map X.  With TRANSPOSED, X maps the transposed matrix."""
    if TRANSPOSED:
        return X.load([column, row]).T
    else:
        return X.load([row, column])


@triton.jit
def _loaded(
    row, column, M, N, operand, stride_row, stride_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Load the elements of an epilogue's operand for a tile at (row, column); 0 for None."""
    rows = (row + tl.arange(0, BLOCK_M))[:, None]
    columns = (column + tl.arange(0, BLOCK_N))[None, :]
    return load_operand(operand, stride_row, stride_column, rows, columns, rows < M, columns < N)


@triton.jit
def _store(
    C, x, row, column, M, N, stride_cm, stride_cn, O0, O1, O2, first, second, third,
    C_TMA: tl.constexpr, C_TRANSPOSED: tl.constexpr, EPILOGUE: tl.constexpr, CONSTRAINTS: tl.constexpr,
):  # fmt: skip
    """Store x, a tile or a part of one, or its epilogue, at (row, column) of C."""
    if C_TMA:
        found = finished(x, O0, O1, O2, first, second, third, C.dtype, EPILOGUE, CONSTRAINTS)
        if C_TRANSPOSED:
            C.store([column, row], found.T)
        else:
            C.store([row, column], found)
    else:
        found = finished(x, O0, O1, O2, first, second, third, C.dtype.element_ty, EPILOGUE, CONSTRAINTS)
        rows = row + tl.arange(0, x.shape[0])
        columns = column + tl.arange(0, x.shape[1])
        out = C + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
        tl.store(out, found, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def _split_columns(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the left and the right half of the columns of x."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def _tile(
    job, tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
    O0, o0_row, o0_column, O1, o1_row, o1_column, O2, o2_row, o2_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    NEW_ACCUMULATOR: tl.constexpr, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TMA: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, STORE_PARTS: tl.constexpr, ONE_ITERATION: tl.constexpr, EPILOGUE: tl.constexpr,
    CONSTRAINTS: tl.constexpr,
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
    # The operands of small tiles are loaded while the product is computed.
    if BLOCK_M * BLOCK_N <= _EARLY:
        first = _loaded(row, column, M, N, O0, o0_row, o0_column, BLOCK_M, BLOCK_N)
        second = _loaded(row, column, M, N, O1, o1_row, o1_column, BLOCK_M, BLOCK_N)
        third = _loaded(row, column, M, N, O2, o2_row, o2_column, BLOCK_M, BLOCK_N)
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
        if BLOCK_M * BLOCK_N > _EARLY:
            first = _loaded(row, column, M, N, O0, o0_row, o0_column, BLOCK_M, BLOCK_N)
            second = _loaded(row, column, M, N, O1, o1_row, o1_column, BLOCK_M, BLOCK_N)
            third = _loaded(row, column, M, N, O2, o2_row, o2_column, BLOCK_M, BLOCK_N)
        _store(out, accumulator, row, column, M, N, stride_cm, stride_cn, O0, O1, O2, first, second, third, C_TMA,
               C_TRANSPOSED, EPILOGUE, CONSTRAINTS)  # fmt: skip
    else:
        left, right = _split_columns(accumulator, BLOCK_M, BLOCK_N)
        first = _loaded(row, column, M, N, O0, o0_row, o0_column, BLOCK_M, BLOCK_N // 2)
        second = _loaded(row, column, M, N, O1, o1_row, o1_column, BLOCK_M, BLOCK_N // 2)
        third = _loaded(row, column, M, N, O2, o2_row, o2_column, BLOCK_M, BLOCK_N // 2)
        _store(out, left, row, column, M, N, stride_cm, stride_cn, O0, O1, O2, first, second, third, C_TMA,
               C_TRANSPOSED, EPILOGUE, CONSTRAINTS)  # fmt: skip
        first = _loaded(row, column + BLOCK_N // 2, M, N, O0, o0_row, o0_column, BLOCK_M, BLOCK_N // 2)
        second = _loaded(row, column + BLOCK_N // 2, M, N, O1, o1_row, o1_column, BLOCK_M, BLOCK_N // 2)
        third = _loaded(row, column + BLOCK_N // 2, M, N, O2, o2_row, o2_column, BLOCK_M, BLOCK_N // 2)
        _store(out, right, row, column + BLOCK_N // 2, M, N, stride_cm, stride_cn, O0, O1, O2, first, second, third,
               C_TMA, C_TRANSPOSED, EPILOGUE, CONSTRAINTS)  # fmt: skip


@triton.jit(do_not_specialize=["slices"])
def tma_product(
    A, B, C, M, N, K, slice_k, slices, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    NEW_ACCUMULATOR: tl.constexpr, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TMA: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, STORE_PARTS: tl.constexpr, ONE_ITERATION: tl.constexpr, PROGRAMS: tl.constexpr,
    OVERLAP: tl.constexpr,
    O0=None, o0_row=None, o0_column=None, O1=None, o1_row=None, o1_column=None, O2=None, o2_row=None, o2_column=None,
    EPILOGUE: tl.constexpr = "", CONSTRAINTS: tl.constexpr = "", PRODUCT: tl.constexpr = "",
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
            _tile(job, tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
                  O0, o0_row, o0_column, O1, o1_row, o1_column, O2, o2_row, o2_column, BLOCK_M,
                  BLOCK_N, BLOCK_K, GROUP, NEW_ACCUMULATOR, A_TRANSPOSED, B_TRANSPOSED, C_TMA, C_TRANSPOSED,
                  STORE_PARTS, ONE_ITERATION, EPILOGUE, CONSTRAINTS)  # fmt: skip
    else:
        _tile(tl.program_id(0), tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
              O0, o0_row, o0_column, O1, o1_row, o1_column, O2, o2_row, o2_column,
              BLOCK_M, BLOCK_N, BLOCK_K, GROUP, NEW_ACCUMULATOR, A_TRANSPOSED, B_TRANSPOSED, C_TMA, C_TRANSPOSED,
              STORE_PARTS, ONE_ITERATION, EPILOGUE, CONSTRAINTS)  # fmt: skip
