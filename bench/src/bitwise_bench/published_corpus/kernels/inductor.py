"""Kernels in the style of TorchInductor: fused reductions, pointwise chains, looped sums, split products."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument, Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result
from bitwise_bench.corpus.kernels.elementwise import activation
from bitwise_bench.corpus.kernels.inductor_like import (
    fused_layer_norm,
    fused_softmax,
    fused_sum_loop,
    fused_sum_persistent,
    outer_sum_loop,
)
from bitwise_bench.published_corpus.grids import SUM, Extent, Kernel, stored
from bitwise_bench.published_corpus.kernels.reductions import reduction

ROWS, COLUMNS = 8, 1000
LOOPED = 6000
"""The length of a row that is summed in a loop."""


@triton.jit
def sum_loop(source, out, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[:, None]
    base = tl.arange(0, RBLOCK)[None, :]
    running = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for offset in range(0, rnumel, RBLOCK):
        r = offset + base
        inside = (x < xnumel) & (r < rnumel)
        values = tl.load(source + r + rnumel * x, inside, eviction_policy="evict_first", other=0.0).to(tl.float32)
        running = tl.where(inside, running + tl.broadcast_to(values, [XBLOCK, RBLOCK]), running)
    tl.store(out + x, tl.sum(running, 1)[:, None], x < xnumel)


@triton.jit
def parts_product(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """A product whose k is split into SPLIT parts of equal length, summed in order; b is stored as (N, K)."""
    across: tl.constexpr = N // BN
    row = tl.program_id(0) // across * BM + tl.arange(0, BM)
    column = tl.program_id(0) % across * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for part in range(SPLIT):
        partial = tl.zeros((BM, BN), tl.float32)
        for turn in range(K // (SPLIT * BK)):
            inner = part * (K // SPLIT) + turn * BK + tl.arange(0, BK)
            left = tl.load(a + row[:, None] * K + inner[None, :])
            right = tl.load(b + column[None, :] * K + inner[:, None])
            partial = tl.dot(left, right, partial)
        total += partial
    tl.store(c + row[:, None] * N + column[None, :], total)


def _sum_loop(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    arguments = [
        given("source", dtype, ROWS * LOOPED),
        result("out", SUM, ROWS),
        *numbers(xnumel=ROWS, rnumel=LOOPED),
    ]
    for block, warps in product((256, 512, 1024, 2048, 4096), (1, 2, 4, 8)):
        yield configure(
            "inductor_sum_loop", dtype, sum_loop, arguments, (ROWS,), warps=warps, stages=1, XBLOCK=1, RBLOCK=block
        )


def _splits(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    m, n, k = 64, 64, 512
    arguments = [given("a", dtype, m * k), given("b", dtype, k * n), result("c", stored(dtype), m * n)]
    for split in (1, 2, 4, 8):
        yield configure(
            "inductor_splitk_gemm", dtype, parts_product, arguments, (m // 32 * (n // 32),), warps=4, stages=3,
            M=m, N=n, K=k, BM=32, BN=32, BK=32, SPLIT=split,
        )  # fmt: skip


def _sums(dtype: str) -> list[Argument]:
    return [
        given("left", dtype, ROWS * COLUMNS),
        given("right", dtype, COLUMNS),
        result("out", SUM, ROWS),
        *numbers(xnumel=ROWS, rnumel=COLUMNS),
    ]


def _outer(dtype: str) -> list[Argument]:
    return [given("source", dtype, 200 * 64), result("out", SUM, 64), *numbers(xnumel=64, rnumel=200)]


def _biased(dtype: str) -> list[Argument]:
    return [
        given("source", dtype, ROWS * COLUMNS),
        given("bias", dtype, COLUMNS),
        result("out", SUM, ROWS * COLUMNS),
        *numbers(xnumel=ROWS, rnumel=COLUMNS),
    ]


def _residual(dtype: str) -> list[Argument]:
    return [*_biased(dtype), given("residual", dtype, ROWS * COLUMNS), given("weight", dtype, COLUMNS)]


SIZE = 5000


def _gated(dtype: str) -> list[Argument]:
    return [
        given("source", dtype, SIZE),
        given("gate", dtype, SIZE),
        result("target", SUM, SIZE),
        *numbers(size=SIZE),
    ]


def _persistent(*tall: int) -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    return [({"XBLOCK": rows, "RBLOCK": 1024}, (ceil_div(ROWS, rows),)) for rows in tall]


SUM_LOOP = Kernel("inductor_sum_loop", _sum_loop)
SPLIT_PRODUCT = Kernel("inductor_splitk_gemm", _splits)

OTHERS: tuple[Kernel, ...] = (
    reduction("inductor_fused_sum", fused_sum_persistent, _sums, _persistent(1, 2, 4)),
    reduction(
        "inductor_fused_sum_loop",
        fused_sum_loop,
        _sums,
        [({"XBLOCK": 1, "RBLOCK": size}, (ROWS,)) for size in (128, 256, 512)],
    ),
    reduction(
        "inductor_outer_sum_loop",
        outer_sum_loop,
        _outer,
        [({"XBLOCK": 16, "RBLOCK": size}, (4,)) for size in (16, 32, 64)],
    ),
    reduction("inductor_softmax", fused_softmax, _biased, _persistent(1, 2, 4)),
    reduction("inductor_layer_norm", fused_layer_norm, _residual, _persistent(1, 2, 4)),
    reduction(
        "inductor_gated",
        activation,
        _gated,
        [({"BLOCK": size}, (ceil_div(SIZE, size),)) for size in (256, 512, 1024)],
        KIND="swiglu",
    ),
)
