"""Batched and grouped matrix products, and products with a grouped k loop."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result
from bitwise_bench.corpus.kernels.gemms import TL_DTYPES


@triton.jit
def gemm_batched(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a + batch * m * k + row[:, None] * k + inner[None, :]
    b_at = b + batch * k * n + inner[:, None] * n + column[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, k, BK):
        left = tl.load(a_at, mask=(row[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        right = tl.load(b_at, mask=(inner[:, None] < k - start) & (column[None, :] < n), other=0.0)
        total += tl.dot(left, right)
        a_at += BK
        b_at += BK * n
    c_at = c + batch * m * n + row[:, None] * n + column[None, :]
    tl.store(c_at, total.to(OUT), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_kgroup(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUPS: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK * GROUPS):
        partial = tl.zeros((BM, BN), tl.float32)
        for part in tl.static_range(GROUPS):
            inner = start + part * BK + tl.arange(0, BK)
            left = tl.load(
                a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0
            )
            right = tl.load(
                b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
            )
            partial = tl.dot(left, right, partial)
        total += partial
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_cube(a, b, c, N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BATCH: tl.constexpr):
    base = tl.program_id(0) * BATCH + tl.arange(0, BATCH)
    row = tl.arange(0, M)
    column = tl.arange(0, N)
    inner = tl.arange(0, K)
    left = tl.load(a + base[:, None, None] * (M * K) + row[None, :, None] * K + inner[None, None, :])
    right = tl.load(b + base[:, None, None] * (K * N) + inner[None, :, None] * N + column[None, None, :])
    total = tl.dot(left, right)
    tl.store(c + base[:, None, None] * (M * N) + row[None, :, None] * N + column[None, None, :], total)


def cases() -> tuple[Case, ...]:
    return (*_batched(), *_kgroups(), *_cubes())


def _batched() -> list[Case]:
    found = []
    for dtype, batches, m, n, k in (("fp16", 3, 96, 80, 128), ("bf16", 2, 130, 64, 200)):
        arguments = [
            given("a", dtype, batches * m * k),
            given("b", dtype, batches * k * n),
            result("c", dtype, batches * m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps, stages in (
            ((32, 32, 32), 2, 3),
            ((64, 64, 32), 4, 3),
            ((64, 32, 64), 4, 2),
            ((128, 64, 64), 8, 3),
            ((16, 16, 64), 1, 2),
            ((64, 64, 128), 4, 2),
        ):
            found.append(
                configure(
                    "gemm_batched",
                    f"{dtype}-{batches}x{m}x{n}x{k}",
                    gemm_batched,
                    arguments,
                    (ceil_div(m, tile[0]), ceil_div(n, tile[1]), batches),
                    warps=warps,
                    stages=stages,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                    OUT=TL_DTYPES[dtype],
                )
            )
    return found


def _kgroups() -> list[Case]:
    found = []
    for dtype, m, n, k in (("fp16", 128, 128, 512), ("bf16", 96, 128, 360)):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", "fp32", m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for groups in (1, 2, 4):
            for tile, warps in (((64, 64, 32), 4), ((128, 64, 32), 4), ((32, 64, 64), 4), ((64, 64, 64), 8)):
                found.append(
                    configure(
                        "gemm_kgroup",
                        f"{dtype}-{m}x{n}x{k}",
                        gemm_kgroup,
                        arguments,
                        (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                        warps=warps,
                        stages=2,
                        BM=tile[0],
                        BN=tile[1],
                        BK=tile[2],
                        GROUPS=groups,
                    )
                )
    return found


def _cubes() -> list[Case]:
    found = []
    for m, n, k in ((16, 32, 64), (32, 32, 32)):
        arguments = [given("a", "fp16", 8 * m * k), given("b", "fp16", 8 * k * n), result("c", "fp32", 8 * m * n)]
        for batch in (1, 2, 4):
            for warps in (2, 4):
                found.append(
                    configure(
                        "gemm_cube",
                        f"fp16-{m}x{n}x{k}",
                        gemm_cube,
                        arguments,
                        (8 // batch,),
                        warps=warps,
                        M=m,
                        N=n,
                        K=k,
                        BATCH=batch,
                    )
                )
    return found
