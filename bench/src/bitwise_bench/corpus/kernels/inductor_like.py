"""Kernels such as Inductor generates: fused producers, persistent and looped reductions, split-K products."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, power_of_two, result


@triton.jit
def fused_sum_persistent(left, right, out, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    inside = (x < xnumel) & (r < rnumel)
    a = tl.load(left + r + rnumel * x, inside, other=0.0).to(tl.float32)
    b = tl.load(right + r, r < rnumel, eviction_policy="evict_last", other=0.0).to(tl.float32)
    product = tl.broadcast_to(a * b + a, [XBLOCK, RBLOCK])
    total = tl.sum(tl.where(inside, product, 0.0), 1)[:, None]
    tl.store(out + x, total, x < xnumel)


@triton.jit
def fused_sum_loop(left, right, out, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[:, None]
    base = tl.arange(0, RBLOCK)[None, :]
    running = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for offset in range(0, rnumel, RBLOCK):
        r = offset + base
        inside = (x < xnumel) & (r < rnumel)
        a = tl.load(left + r + rnumel * x, inside, eviction_policy="evict_first", other=0.0).to(tl.float32)
        b = tl.load(right + r, r < rnumel, eviction_policy="evict_last", other=0.0).to(tl.float32)
        following = running + tl.broadcast_to(a * b + a, [XBLOCK, RBLOCK])
        running = tl.where(inside, following, running)
    total = tl.sum(running, 1)[:, None]
    tl.store(out + x, total, x < xnumel)


@triton.jit
def outer_sum_loop(source, out, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """Sum over the slow axis: neighbouring lanes hold neighbouring outputs."""
    x = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[None, :]
    base = tl.arange(0, RBLOCK)[:, None]
    running = tl.full([RBLOCK, XBLOCK], 0.0, tl.float32)
    for offset in range(0, rnumel, RBLOCK):
        r = offset + base
        inside = (x < xnumel) & (r < rnumel)
        a = tl.load(source + x + xnumel * r, inside, other=0.0).to(tl.float32)
        running = tl.where(inside, running + a, running)
    total = tl.sum(running, 0)[None, :]
    tl.store(out + x, total, x < xnumel)


@triton.jit
def fused_softmax(source, bias, out, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    inside = (x < xnumel) & (r < rnumel)
    a = tl.load(source + r + rnumel * x, inside, other=0.0).to(tl.float32)
    b = tl.load(bias + r, r < rnumel, eviction_policy="evict_last", other=0.0).to(tl.float32)
    value = tl.broadcast_to(a * 0.125 + b, [XBLOCK, RBLOCK])
    top = tl.max(tl.where(inside, value, float("-inf")), 1)[:, None]
    power = tl.exp(value - top)
    total = tl.sum(tl.where(inside, power, 0.0), 1)[:, None]
    tl.store(out + r + rnumel * x, power / total, inside)


@triton.jit
def fused_layer_norm(source, residual, weight, bias, out, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    inside = (x < xnumel) & (r < rnumel)
    a = tl.load(source + r + rnumel * x, inside, other=0.0).to(tl.float32)
    b = tl.load(residual + r + rnumel * x, inside, other=0.0).to(tl.float32)
    value = a + b
    count = tl.full([XBLOCK, 1], 1.0, tl.float32) * rnumel
    mean = tl.sum(tl.where(inside, value, 0.0), 1)[:, None] / count
    centred = value - mean
    variance = tl.sum(tl.where(inside, centred * centred, 0.0), 1)[:, None] / count
    scale = tl.rsqrt(variance + 1e-05)
    w = tl.load(weight + r, r < rnumel, other=0.0).to(tl.float32)
    shift = tl.load(bias + r, r < rnumel, other=0.0).to(tl.float32)
    tl.store(out + r + rnumel * x, centred * scale * w + shift, inside)


@triton.jit
def fused_pointwise(left, right, bias, out, xnumel, columns, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    inside = x < xnumel
    a = tl.load(left + x, inside).to(tl.float32)
    b = tl.load(right + x, inside).to(tl.float32)
    c = tl.load(bias + x % columns, inside, eviction_policy="evict_last").to(tl.float32)
    value = a * b + c
    positive = tl.maximum(value, 0.0)
    tl.store(out + x, positive * tl.sigmoid(value) + a, inside)


@triton.jit
def split_product(
    a,
    b,
    workspace,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Split-K product; all sizes are compile-time constants, and the parts of k are contiguous multiples of BK."""
    down: tl.constexpr = (M + BM - 1) // BM
    across: tl.constexpr = (N + BN - 1) // BN
    block = tl.program_id(0)
    part = tl.program_id(1)
    width = GROUP * across
    group = block // width
    height = tl.minimum(down - group * GROUP, GROUP)
    block_m = group * GROUP + (block % height)
    block_n = (block % width) // height
    row = block_m * BM + tl.arange(0, BM)
    column = block_n * BN + tl.arange(0, BN)
    row_at = tl.max_contiguous(tl.multiple_of(row % M, BM), BM)
    column_at = tl.max_contiguous(tl.multiple_of(column % N, BN), BN)
    total = tl.zeros((BM, BN), tl.float32)
    for turn in range(K // (SPLIT * BK)):
        inner = part * (K // SPLIT) + turn * BK + tl.arange(0, BK)
        left = tl.load(a + inner[None, :] + K * row_at[:, None])
        right = tl.load(b + column_at[None, :] + N * inner[:, None])
        total += tl.dot(left, right, allow_tf32=True)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(workspace + part * M * N + row[:, None] * N + column[None, :], total, inside)


def cases() -> tuple[Case, ...]:
    return (*_sums(), *_fused(), *_split())


def _sums() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp32", 32, 1000), ("bf16", 24, 2000), ("fp16", 40, 400)):
        arguments = [
            given("left", dtype, rows * columns),
            given("right", dtype, columns),
            result("out", "fp32", rows),
            *numbers(xnumel=rows, rnumel=columns),
        ]
        group = f"{dtype}-{rows}x{columns}"
        for xblock, warps in ((1, 2), (1, 8), (2, 4), (8, 8)):
            found.append(
                configure(
                    "inductor_sum",
                    group,
                    fused_sum_persistent,
                    arguments,
                    (ceil_div(rows, xblock),),
                    warps=warps,
                    XBLOCK=xblock,
                    RBLOCK=power_of_two(columns),
                )
            )
        for xblock, rblock, warps in (
            (1, 256, 2),
            (1, 1024, 4),
            (1, 1024, 8),
            (4, 128, 4),
            (8, 64, 2),
            (2, 512, 8),
            (16, 32, 4),
        ):
            for fusion in (True, False):
                found.append(
                    configure(
                        "inductor_sum",
                        group,
                        fused_sum_loop,
                        arguments,
                        (ceil_div(rows, xblock),),
                        warps=warps,
                        options={"enable_fp_fusion": fusion},
                        XBLOCK=xblock,
                        RBLOCK=rblock,
                    )
                )
    for dtype, rows, columns in (("fp32", 400, 128), ("fp16", 300, 96)):
        arguments = [
            given("source", dtype, rows * columns),
            result("out", "fp32", columns),
            *numbers(xnumel=columns, rnumel=rows),
        ]
        for xblock, rblock, warps in ((8, 32, 2), (16, 64, 4), (32, 8, 4), (64, 16, 8), (8, 128, 8)):
            found.append(
                configure(
                    "inductor_outer_sum",
                    f"{dtype}-{rows}x{columns}",
                    outer_sum_loop,
                    arguments,
                    (ceil_div(columns, xblock),),
                    warps=warps,
                    XBLOCK=xblock,
                    RBLOCK=rblock,
                )
            )
    return found


def _fused() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 24, 500), ("fp32", 16, 1024)):
        group = f"{dtype}-{rows}x{columns}"
        soft = [
            given("source", dtype, rows * columns),
            given("bias", dtype, columns),
            result("out", "fp32", rows * columns),
            *numbers(xnumel=rows, rnumel=columns),
        ]
        norm = [
            given("source", dtype, rows * columns),
            given("residual", dtype, rows * columns),
            given("weight", dtype, columns),
            given("bias", dtype, columns),
            result("out", "fp32", rows * columns),
            *numbers(xnumel=rows, rnumel=columns),
        ]
        for xblock, warps in ((1, 2), (1, 4), (1, 8), (4, 4), (8, 8)):
            for family, function, arguments in (
                ("inductor_softmax", fused_softmax, soft),
                ("inductor_layer_norm", fused_layer_norm, norm),
            ):
                for fusion in (True, False):
                    found.append(
                        configure(
                            family,
                            group,
                            function,
                            arguments,
                            (ceil_div(rows, xblock),),
                            warps=warps,
                            options={"enable_fp_fusion": fusion},
                            XBLOCK=xblock,
                            RBLOCK=power_of_two(columns),
                        )
                    )
    size, columns = 3000, 60
    arguments = [
        given("left", "bf16", size),
        given("right", "bf16", size),
        given("bias", "fp32", columns),
        result("out", "fp32", size),
        *numbers(xnumel=size, columns=columns),
    ]
    for xblock, warps in ((128, 2), (256, 4), (512, 8), (1024, 4)):
        for fusion in (True, False):
            found.append(
                configure(
                    "inductor_pointwise",
                    f"bf16-fp32-{size}",
                    fused_pointwise,
                    arguments,
                    (ceil_div(size, xblock),),
                    warps=warps,
                    options={"enable_fp_fusion": fusion},
                    XBLOCK=xblock,
                )
            )
    return found


def _split() -> list[Case]:
    found = []
    for dtype, m, n, k, split in (("fp16", 64, 128, 768, 3), ("bf16", 96, 64, 512, 4), ("fp32", 64, 64, 384, 2)):
        arguments = [given("a", dtype, m * k), given("b", dtype, k * n), result("workspace", "fp32", split * m * n)]
        for tile, warps, stages in (
            ((32, 32, 32), 2, 2),
            ((64, 32, 64), 4, 3),
            ((64, 64, 32), 4, 3),
            ((32, 64, 64), 4, 4),
            ((64, 64, 64), 8, 2),
            ((16, 64, 32), 2, 3),
        ):
            blocks = ceil_div(m, tile[0]) * ceil_div(n, tile[1])
            found.append(
                configure(
                    "inductor_split_k",
                    f"{dtype}-{m}x{n}x{k}-{split}",
                    split_product,
                    arguments,
                    (blocks, split),
                    warps=warps,
                    stages=stages,
                    M=m,
                    N=n,
                    K=k,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                    SPLIT=split,
                    GROUP=8,
                )
            )
    return found
