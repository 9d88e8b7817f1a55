"""Matrix products with epilogues: bias and activation, row sums, column sums, softmax."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result, stored_as


@triton.jit
def product_tile(a, b, row, column, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        left = tl.load(a + row[:, None] * k + at[None, :], mask=(row[:, None] < m) & (at[None, :] < k), other=0.0)
        right = tl.load(
            b + at[:, None] * n + column[None, :], mask=(at[:, None] < k) & (column[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total, input_precision=P)
    return total


@triton.jit
def gemm_bias(
    a, b, bias, c, m, n, k, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACTIVATION: tl.constexpr
):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = product_tile(a, b, row, column, m, n, k, BM, BN, BK, "tf32")
    shift = tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)
    total = total * scale + shift[None, :]
    if ACTIVATION == "relu":
        total = tl.maximum(total, 0.0)
    elif ACTIVATION == "gelu":
        total = 0.5 * total * (1.0 + libdevice.erf(total * 0.7071067811865476))
    elif ACTIVATION == "leaky":
        total = tl.where(total >= 0.0, total, 0.01 * total)
    c_at = c + row[:, None] * n + column[None, :]
    tl.store(c_at, total.to(c.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_row_sum(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    running = tl.zeros((BM,), tl.float32)
    for first in range(0, n, BN):
        column = first + tl.arange(0, BN)
        total = product_tile(a, b, row, column, m, n, k, BM, BN, BK, P)
        running += tl.sum(total, axis=1)
    tl.store(c + row, running, mask=row < m)


@triton.jit
def gemm_column_sum(a, b, c, sums, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    running = tl.zeros((BN,), tl.float32)
    for first in range(0, m, BM):
        row = first + tl.arange(0, BM)
        total = product_tile(a, b, row, column, m, n, k, BM, BN, BK, P)
        tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))
        running += tl.sum(total, axis=0)
    tl.store(sums + column, running, mask=column < n)


@triton.jit
def gemm_softmax(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.arange(0, BN)
    total = product_tile(a, b, row, column, m, n, k, BM, BN, BK, P)
    total = tl.where(column[None, :] < n, total, -float("inf"))
    total = total - tl.max(total, axis=1)[:, None]
    power = tl.exp(total)
    share = power / tl.sum(power, axis=1)[:, None]
    tl.store(c + row[:, None] * n + column[None, :], share, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_gated(a, b, gate, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    up = tl.zeros((BM, BN), tl.float32)
    side = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        left = tl.load(a + row[:, None] * k + at[None, :], mask=(row[:, None] < m) & (at[None, :] < k), other=0.0)
        inside = (at[:, None] < k) & (column[None, :] < n)
        up = tl.dot(left, tl.load(b + at[:, None] * n + column[None, :], mask=inside, other=0.0), up)
        side = tl.dot(left, tl.load(gate + at[:, None] * n + column[None, :], mask=inside, other=0.0), side)
    value = up * (side * tl.sigmoid(side))
    c_at = c + row[:, None] * n + column[None, :]
    tl.store(c_at, value.to(c.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))


def cases() -> tuple[Case, ...]:
    return (*_bias(), *_row_sums(), *_column_sums(), *_softmax(), *_gated())


def _bias() -> list[Case]:
    found = []
    for activation, dtype, out, m, n, k in (
        ("relu", "fp16", "fp32", 128, 128, 200),
        ("relu", "fp32", "fp32", 96, 128, 96),
        ("gelu", "bf16", "fp32", 128, 96, 128),
        ("leaky", "fp16", "fp32", 100, 128, 144),
        ("relu", "fp16", "fp16", 128, 128, 200),
    ):
        family, group = stored_as(f"gemm_bias_{activation}", dtype, out, f"{m}x{n}x{k}")
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            given("bias", dtype, n),
            result("c", out, m * n),
            *numbers(m=m, n=n, k=k, scale=0.37),
        ]
        for tile, warps, stages in (
            ((64, 64, 32), 4, 3),
            ((32, 64, 64), 4, 2),
            ((64, 32, 32), 4, 3),
            ((128, 64, 32), 8, 2),
        ):
            for fusion in (True, False):
                found.append(
                    configure(
                        family,
                        group,
                        gemm_bias,
                        arguments,
                        (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                        warps=warps,
                        stages=stages,
                        options={"enable_fp_fusion": fusion},
                        BM=tile[0],
                        BN=tile[1],
                        BK=tile[2],
                        ACTIVATION=activation,
                    )
                )
    return found


def _row_sums() -> list[Case]:
    found = []
    for dtype, precision, m, n, k in (
        ("fp32", "ieee", 64, 96, 96),
        ("fp32", "tf32", 96, 128, 96),
        ("fp16", "tf32", 128, 200, 128),
    ):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", "fp32", m),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps in (
            ((32, 32, 32), 4),
            ((64, 32, 32), 4),
            ((64, 64, 32), 4),
            ((32, 64, 32), 8),
            ((16, 64, 64), 2),
        ):
            found.append(
                configure(
                    "gemm_row_sum",
                    f"{dtype}-{precision}-{m}x{n}x{k}",
                    gemm_row_sum,
                    arguments,
                    (ceil_div(m, tile[0]),),
                    warps=warps,
                    stages=2,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                    P=precision,
                )
            )
    return found


def _column_sums() -> list[Case]:
    found = []
    for dtype, precision, m, n, k in (("fp16", "tf32", 128, 128, 96), ("fp32", "tf32", 96, 128, 72)):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", "fp32", m * n),
            result("sums", "fp32", n),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps in (
            ((32, 32, 32), 4),
            ((64, 32, 32), 4),
            ((64, 64, 32), 4),
            ((32, 64, 32), 2),
            ((128, 64, 32), 8),
        ):
            found.append(
                configure(
                    "gemm_column_sum",
                    f"{dtype}-{m}x{n}x{k}",
                    gemm_column_sum,
                    arguments,
                    (ceil_div(n, tile[1]),),
                    warps=warps,
                    stages=2,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                    P=precision,
                )
            )
    return found


def _softmax() -> list[Case]:
    found = []
    for dtype, precision, m, n, k in (
        ("fp32", "tf32", 96, 128, 96),
        ("fp32", "ieee", 64, 60, 64),
        ("bf16", "tf32", 128, 120, 128),
    ):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", "fp32", m * n),
            *numbers(m=m, n=n, k=k),
        ]
        wide = 64 if n <= 64 else 128
        for tall, deep, warps in ((16, 32, 4), (32, 32, 4), (64, 32, 4), (32, 64, 8), (64, 32, 8)):
            found.append(
                configure(
                    "gemm_softmax",
                    f"{dtype}-{precision}-{m}x{n}x{k}",
                    gemm_softmax,
                    arguments,
                    (ceil_div(m, tall),),
                    warps=warps,
                    stages=2,
                    BM=tall,
                    BN=wide,
                    BK=deep,
                    P=precision,
                )
            )
    return found


def _gated() -> list[Case]:
    found = []
    for dtype, m, n, k in (("fp16", 128, 96, 160), ("bf16", 96, 128, 136)):
        family, group = stored_as("gemm_gated", dtype, "fp32", f"{m}x{n}x{k}")
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            given("gate", dtype, k * n),
            result("c", "fp32", m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps, stages in (
            ((32, 32, 32), 4, 2),
            ((64, 32, 32), 4, 3),
            ((64, 64, 32), 8, 2),
            ((128, 32, 64), 4, 2),
        ):
            found.append(
                configure(
                    family,
                    group,
                    gemm_gated,
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
