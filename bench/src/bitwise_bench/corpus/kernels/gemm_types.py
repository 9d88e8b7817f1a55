"""Matrix products by operand type: fp16 accumulators, fp32 in several precisions, fp8, int8 and fp64."""

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result
from bitwise_bench.corpus.kernels.gemms import gemm_case, operands


@triton.jit
def gemm_fp8(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, IMPRECISE: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a + row[:, None] * k + inner[None, :]
    b_at = b + column[None, :] * k + inner[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        left = tl.load(a_at, mask=(row[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        right = tl.load(b_at, mask=(inner[:, None] < k - start) & (column[None, :] < n), other=0.0)
        if IMPRECISE < 0:
            total = tl.dot(left, right, total)
        else:
            total = tl.dot(left, right, total, max_num_imprecise_acc=IMPRECISE)
        a_at += BK
        b_at += BK
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_int8(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.int32)
    for start in range(0, k, BK):
        at = start + inner
        left = tl.load(a + row[:, None] * k + at[None, :], mask=(row[:, None] < m) & (at[None, :] < k), other=0)
        right = tl.load(b + column[None, :] * k + at[:, None], mask=(at[:, None] < k) & (column[None, :] < n), other=0)
        total += tl.dot(left, right, out_dtype=tl.int32)
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


def cases() -> tuple[Case, ...]:
    return (*_narrow(), *_single(), *_fp8(), *_int8(), *_fp64())


def _narrow() -> list[Case]:
    m, n, k = 128, 128, 320
    arguments = operands("fp16", "fp16", m, n, k)
    return [
        gemm_case("gemm_fp16_sum", f"fp16-{m}x{n}x{k}", arguments, m, n, tile, warps, stages, total="fp16")
        for tile, warps, stages in (
            ((64, 64, 32), 4, 3),
            ((64, 64, 64), 4, 2),
            ((128, 64, 32), 4, 3),
            ((128, 128, 64), 8, 3),
            ((32, 32, 32), 2, 3),
            ((32, 64, 128), 4, 2),
            ((16, 32, 64), 1, 2),
            ((64, 128, 128), 8, 2),
        )
    ]


def _single() -> list[Case]:
    found = []
    tiles = (
        ((64, 64, 32), 4, 3),
        ((32, 32, 32), 2, 2),
        ((64, 32, 16), 4, 3),
        ((128, 64, 32), 4, 2),
        ((64, 64, 64), 8, 2),
        ((16, 64, 32), 4, 3),
        ((128, 128, 16), 8, 3),
        ((128, 64, 64), 8, 1),
    )
    for precision, m, n, k in (
        ("tf32", 128, 160, 208),
        ("tf32", 144, 128, 97),
        ("tf32x3", 128, 128, 136),
        ("ieee", 96, 128, 100),
        ("bf16x3", 128, 96, 128),
        ("bf16x6", 128, 64, 96),
    ):
        arguments = operands("fp32", "fp32", m, n, k)
        chosen = tiles if precision == "tf32" else tiles[:5]
        for tile, warps, stages in chosen:
            found.append(
                gemm_case(
                    f"gemm_{precision}",
                    f"{m}x{n}x{k}",
                    arguments,
                    m,
                    n,
                    tile,
                    warps,
                    stages,
                    out="fp32",
                    precision=precision,
                    options={"enable_fp_fusion": False} if stages == 1 else None,
                )
            )
    return found


def _fp8() -> list[Case]:
    found = []
    for dtype, m, n, k in (("fp8e4nv", 128, 128, 256), ("fp8e5", 160, 128, 416), ("fp8e4nv", 96, 128, 1000)):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", "fp32", m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for imprecise in (-1, 0, 32, 64):
            for tile, warps, stages in (
                ((64, 64, 64), 4, 3),
                ((128, 64, 128), 4, 3),
                ((128, 128, 64), 8, 2),
                ((32, 64, 64), 4, 3),
                ((16, 32, 32), 2, 2),
            ):
                if tile[2] < imprecise:
                    continue
                found.append(
                    configure(
                        f"gemm_{dtype}",
                        f"{m}x{n}x{k}",
                        gemm_fp8,
                        arguments,
                        (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                        warps=warps,
                        stages=stages,
                        BM=tile[0],
                        BN=tile[1],
                        BK=tile[2],
                        IMPRECISE=imprecise,
                    )
                )
    return found


def _int8() -> list[Case]:
    found = []
    for m, n, k in ((128, 128, 256), (100, 120, 300)):
        arguments = [
            given("a", "i8", m * k, "integer"),
            given("b", "i8", k * n, "integer"),
            result("c", "i32", m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps, stages in (
            ((64, 64, 64), 4, 3),
            ((32, 32, 32), 2, 2),
            ((128, 64, 64), 4, 3),
            ((128, 128, 128), 8, 2),
            ((16, 64, 64), 4, 1),
        ):
            found.append(
                configure(
                    "gemm_int8",
                    f"{m}x{n}x{k}",
                    gemm_int8,
                    arguments,
                    (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                    warps=warps,
                    stages=stages,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                )
            )
    return found


def _fp64() -> list[Case]:
    m, n, k = 64, 96, 80
    arguments = operands("fp64", "fp64", m, n, k)
    return [
        gemm_case(
            "gemm_fp64",
            f"{m}x{n}x{k}",
            arguments,
            m,
            n,
            tile,
            warps,
            stages,
            total="fp64",
            out="fp64",
            precision="ieee",
        )
        for tile, warps, stages in (
            ((32, 32, 16), 4, 2),
            ((16, 32, 32), 2, 3),
            ((64, 32, 16), 4, 1),
            ((32, 16, 16), 1, 2),
        )
    ]
