"""Matrix products whose operands arrive by tensor maps.

The bits are those of `kernels.matrix.product`: an accumulator for each output element, instructions in ascending k.
"""

# ruff: noqa: SIM108  (of an if on a constant Triton compiles one branch)
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _load(X, row, column, COLUMNS: tl.constexpr):
    """A block of a mapped matrix; with COLUMNS the map is of the transposed one."""
    if COLUMNS:
        return X.load([column, row]).T
    else:
        return X.load([row, column])


@triton.jit
def _store(C, x, row, column, M, N, stride_cm, stride_cn, C_MAPPED: tl.constexpr, C_COLUMNS: tl.constexpr):
    """Stores a part of a tile that begins at an element."""
    if C_MAPPED:
        if C_COLUMNS:
            C.store([column, row], x.to(C.dtype).T)
        else:
            C.store([row, column], x.to(C.dtype))
    else:
        rows = row + tl.arange(0, x.shape[0])
        columns = column + tl.arange(0, x.shape[1])
        out = C + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
        tl.store(out, x.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def _halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The left and the right half of the columns."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def _tile(
    job, tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, BLOCKED: tl.constexpr,
    A_COLUMNS: tl.constexpr, B_COLUMNS: tl.constexpr, C_MAPPED: tl.constexpr, C_COLUMNS: tl.constexpr,
    PARTS: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """One tile of one slice."""
    number = job // tiles
    program = job % tiles
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    inside = program % (GROUP * across)
    row = (group * GROUP + inside % height) * BLOCK_M
    column = (inside // height) * BLOCK_N
    start = number * slice_k
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if ONCE:
        turns = 1
    else:
        turns = tl.cdiv(min(slice_k, K - start), BLOCK_K)
    for turn in range(turns):
        a = _load(A, row, start + turn * BLOCK_K, A_COLUMNS)
        b = _load(B, start + turn * BLOCK_K, column, B_COLUMNS)
        if BLOCKED:
            accumulator += tl.dot(a, b)
        else:
            accumulator = tl.dot(a, b, accumulator)
    if C_MAPPED:
        out = C
    else:
        out = C + number.to(tl.int64) * stride_cs
    if PARTS == 1:
        _store(out, accumulator, row, column, M, N, stride_cm, stride_cn, C_MAPPED, C_COLUMNS)
    else:
        left, right = _halves(accumulator, BLOCK_M, BLOCK_N)
        _store(out, left, row, column, M, N, stride_cm, stride_cn, C_MAPPED, C_COLUMNS)
        _store(out, right, row, column + BLOCK_N // 2, M, N, stride_cm, stride_cn, C_MAPPED, C_COLUMNS)


@triton.jit(do_not_specialize=["slices"])
def mapped_product(
    A, B, C, M, N, K, slice_k, slices, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, BLOCKED: tl.constexpr,
    A_COLUMNS: tl.constexpr, B_COLUMNS: tl.constexpr, C_MAPPED: tl.constexpr, C_COLUMNS: tl.constexpr,
    PARTS: tl.constexpr, ONCE: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], in an accumulator of fp32, rounded to C's type.

    A and B are tensor maps over K values of k, zeros behind them; with A_COLUMNS or B_COLUMNS of the transposed matrix.
    Slices are whole turns of BLOCK_K, but for the last one.  C_MAPPED: C is a tensor map too, of a tile or its half
    (PARTS 2), with C_COLUMNS of the transposed matrix, and there is one slice.  ONCE: one turn holds a slice.  PROGRAMS
    programs take tiles one after another; 0: a program to each.
    """
    gdc_wait()
    gdc_launch_dependents()
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    tiles = across * down
    if PROGRAMS:
        for job in tl.range(tl.program_id(0), tiles * slices, PROGRAMS, flatten=True):
            _tile(job, tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn, BLOCK_M,
                  BLOCK_N, BLOCK_K, GROUP, BLOCKED, A_COLUMNS, B_COLUMNS, C_MAPPED, C_COLUMNS, PARTS, ONCE)  # fmt: skip
    else:
        _tile(tl.program_id(0), tiles, down, across, A, B, C, M, N, K, slice_k, stride_cs, stride_cm, stride_cn,
              BLOCK_M, BLOCK_N, BLOCK_K, GROUP, BLOCKED, A_COLUMNS, B_COLUMNS, C_MAPPED, C_COLUMNS, PARTS,
              ONCE)  # fmt: skip
