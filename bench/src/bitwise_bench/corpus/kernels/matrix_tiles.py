"""Kernels that run one matrix instruction on one tile per program."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def warp_tiles(
    left,
    right,
    start,
    target,
    ASSEMBLY: tl.constexpr,
    CONSTRAINTS: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    STEPS: tl.constexpr,
    HELD: tl.constexpr,
):
    """STEPS instructions of one warp, chained through the accumulator; one register of a lane for each element.

    left (tiles, STEPS, A, 32), right (tiles, STEPS, B, 32), start and target (tiles, C, 32).
    """
    tile, lane = tl.program_id(0), tl.arange(0, 32)
    c = ()
    for i in tl.static_range(C):
        c = c + (tl.load(start + (tile * C + i) * 32 + lane),)  # noqa: RUF005 - the language has no unpacking
    for step in tl.static_range(STEPS):
        given = ()
        for i in tl.static_range(A):
            given = given + (tl.load(left + ((tile * STEPS + step) * A + i) * 32 + lane),)  # noqa: RUF005
        for i in tl.static_range(B):
            given = given + (tl.load(right + ((tile * STEPS + step) * B + i) * 32 + lane),)  # noqa: RUF005
        given = given + c
        if HELD == "fp64":
            c = tl.inline_asm_elementwise(
                ASSEMBLY, CONSTRAINTS, given, (tl.float64, tl.float64, tl.float64, tl.float64), True, 1
            )
        elif HELD == "fp32":
            c = tl.inline_asm_elementwise(
                ASSEMBLY, CONSTRAINTS, given, (tl.float32, tl.float32, tl.float32, tl.float32), True, 1
            )
        elif C == 4:
            c = tl.inline_asm_elementwise(
                ASSEMBLY, CONSTRAINTS, given, (tl.int32, tl.int32, tl.int32, tl.int32), True, 1
            )
        else:
            c = tl.inline_asm_elementwise(ASSEMBLY, CONSTRAINTS, given, (tl.int32, tl.int32), True, 1)
    for i in tl.static_range(C):
        tl.store(target + (tile * C + i) * 32 + lane, c[i])


@triton.jit
def group_tiles(
    left,
    right,
    start,
    target,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    RESULT: tl.constexpr,
):
    """target = start + left @ right; the compiler chooses the widest matrix instruction for a tile of M rows.

    left (tiles, M, K), right (tiles, N, K), start and target (tiles, M, N), all as unsigned bit patterns.
    """
    tile = tl.program_id(0)
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    place = tile * M * N + rows[:, None] * N + columns[None, :]
    a = tl.load(left + tile * M * K + rows[:, None] * K + depth[None, :]).to(LEFT, bitcast=True)
    b = tl.load(right + tile * N * K + columns[None, :] * K + depth[:, None]).to(RIGHT, bitcast=True)
    c = tl.load(start + place).to(RESULT, bitcast=True)
    out = tl.dot(a, b, c, input_precision="tf32", out_dtype=RESULT)
    tl.store(target + place, out.to(start.dtype.element_ty, bitcast=True))
