"""Matrix products and products with epilogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument, Case, Descriptor
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result
from bitwise_bench.corpus.kernels.gemm_epilogues import gemm_gated, gemm_row_sum
from bitwise_bench.corpus.kernels.gemm_tensor_maps import gemm_persistent
from bitwise_bench.corpus.kernels.gemms import TL_DTYPES, gemm_case, operands
from bitwise_bench.published_corpus.grids import SHARED_BYTES, WIDEST, Extent, Kernel, limited, stored

M, N, K = 128, 128, 256

SPARE_BYTES = 35 * 1024
"""Shared memory that is left for conversions of layouts where the operands of all types shall fit."""


@triton.jit
def gemm_bias_relu(a, b, bias, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """relu(a b + bias); b is stored as (n, k)."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * k + inner[None, :])
        right = tl.load(b + column[None, :] * k + inner[:, None])
        total = tl.dot(left, right, total)
    value = tl.maximum(total + tl.load(bias + column).to(tl.float32)[None, :], 0.0)
    tl.store(c + row[:, None] * n + column[None, :], value)


@triton.jit
def gemm_kgroup(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KGROUP: tl.constexpr
):  # fmt: skip
    """A product that sums groups of KGROUP elements of k, each from zero; b is stored as (n, k)."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, KGROUP):
        partial = tl.zeros((BM, BN), tl.float32)
        for start in range(0, KGROUP, BK):
            inner = first + start + tl.arange(0, BK)
            left = tl.load(a + row[:, None] * k + inner[None, :])
            right = tl.load(b + column[None, :] * k + inner[:, None])
            partial = tl.dot(left, right, partial)
        total += partial
    tl.store(c + row[:, None] * n + column[None, :], total)


@triton.jit
def tile_of_product(a, b, row, column, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * k + inner[None, :])
        right = tl.load(b + column[None, :] * k + inner[:, None])
        total = tl.dot(left, right, total)
    return total


@triton.jit
def gemm_softmax(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The softmax of each row of a product, one pass for maximum and sum, one that writes; b is stored as (n, k)."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    top = tl.full((BM,), -float("inf"), tl.float32)
    whole = tl.zeros((BM,), tl.float32)
    for first in range(0, n, BN):
        value = tile_of_product(a, b, row, first + tl.arange(0, BN), k, BM, BN, BK)
        higher = tl.maximum(top, tl.max(value, axis=1))
        whole = whole * tl.exp(top - higher) + tl.sum(tl.exp(value - higher[:, None]), axis=1)
        top = higher
    for first in range(0, n, BN):
        column = first + tl.arange(0, BN)
        value = tile_of_product(a, b, row, column, k, BM, BN, BK)
        share = tl.exp(value - top[:, None]) / whole[:, None]
        tl.store(c + row[:, None] * n + column[None, :], share)


@triton.jit
def gemm_store_map(a, b, c_map, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr):
    """A product stored through a tensor map; b is stored as (n, k)."""
    first_row, first_column = tl.program_id(0) * BM, tl.program_id(1) * BN
    row, column = first_row + tl.arange(0, BM), first_column + tl.arange(0, BN)
    c_map.store([first_row, first_column], tile_of_product(a, b, row, column, k, BM, BN, BK).to(OUT))


def _operands(dtype: str, m: int = M, n: int = N, k: int = K) -> list[Argument]:
    return [given("a", dtype, m * k), given("b", dtype, k * n)]


def _matrices(dtype: str, m: int = M, n: int = N, k: int = K) -> list[Argument]:
    return [*_operands(dtype, m, n, k), result("c", stored(dtype), m * n), *numbers(m=m, n=n, k=k)]


def _amd_matrix_options() -> Iterator[Mapping[str, Any]]:
    for rows, waves in product((16, 32), (0, 1, 2)):
        yield {"matrix_instr_nonkdim": rows, "waves_per_eu": waves}


def _gemm(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    """All tiles whose operands fit and whose accumulators are at most 256 for each thread."""
    arguments = operands(dtype, stored(dtype), M, N, K, "nt")

    def case(tile: tuple[int, int, int], warps: int, stages: int, order: int, options: Mapping[str, Any]) -> Case:
        return gemm_case(
            "gemm", dtype, arguments, M, N, tile, warps, stages, order=order, out=stored(dtype), options=dict(options)
        )

    if target == "gfx942":
        tiles = ((32, 32, 32), (64, 32, 32), (64, 64, 32), (64, 64, 64), (128, 64, 32), (128, 128, 32))
        for tile, warps, options in product(tiles, (4, 8), _amd_matrix_options()):
            yield case(tile, warps, 2, 1, options)
        return
    sizes, whole = (16, 32, 64, 128, 256), extent == "whole"
    for bm, bn, bk, warps, stages in product(sizes, sizes, (32, 64, 128), (2, 4, 8), (1, 2, 3, 4, 5)):
        if (bm + bn) * bk * WIDEST * stages > SHARED_BYTES - SPARE_BYTES or not 1 <= bm * bn / (32 * warps) <= 256:
            continue
        for order, fusion in product((1, 2, 4, 8) if whole else (8,), (True, False) if whole else (True,)):
            yield case((bm, bn, bk), warps, stages, order, {"enable_fp_fusion": fusion})


def _bias_relu(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    arguments = [*_matrices(dtype), given("bias", dtype, N)]
    grid: Iterator[tuple[Any, ...]]
    if target == "gfx942":
        tiles = ((32, 32, 32), (64, 64, 32), (64, 32, 64))
        grid = (
            (tile, warps, 2, {"matrix_instr_nonkdim": rows, "enable_fp_fusion": fusion})
            for tile, warps, rows, fusion in product(tiles, (4, 8), (16, 32), (True, False))
        )
    else:
        grid = (
            (tile, warps, stages, {"enable_fp_fusion": fusion, **limited(registers)})
            for tile, warps, stages, fusion, registers in product(
                product((64, 128), (32, 64), (32, 64)), (4, 8), (2, 3, 4), (True, False), (None, 128)
            )
        )
    for (bm, bn, bk), warps, stages, options in grid:
        yield configure(
            "gemm_bias_relu_fp_fusion", dtype, gemm_bias_relu, arguments, (M // bm, N // bn), warps=warps,
            stages=stages, options=options, BM=bm, BN=bn, BK=bk,
        )  # fmt: skip


def _kgroup(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    """Groups of at least BK elements of k."""
    k = 512
    arguments = _matrices(dtype, k=k)
    grid: Iterator[tuple[Any, ...]]
    if target == "gfx942":
        depths = [(bk, kgroup) for bk in (16, 32, 64, 128) for kgroup in (64, 128, 256) if bk <= kgroup]
        grid = (
            ((64, 64), depth, warps, 2, options)
            for depth, warps, options in product(depths, (4, 8), list(_amd_matrix_options()))
        )
    else:
        depths = [(bk, kgroup) for bk in (32, 64) for kgroup in (32, 64, 128, 256, 512) if bk <= kgroup]
        grid = (
            (tile, depth, warps, stages, {"enable_fp_fusion": fusion, **limited(registers)})
            for depth, tile, warps, stages, fusion, registers in product(
                depths, product((64, 128), (32, 64)), (4, 8), (1, 2, 3, 4), (True, False), (None, 128)
            )
        )
    for (bm, bn), (bk, kgroup), warps, stages, options in grid:
        yield configure(
            "gemm_kgroup", dtype, gemm_kgroup, arguments, (M // bm, N // bn), warps=warps, stages=stages,
            options=options, BM=bm, BN=bn, BK=bk, KGROUP=kgroup,
        )  # fmt: skip


def _reduced(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    m, n, k = 64, 128, 128
    arguments = [*_operands(dtype, m, n, k), result("c", stored(dtype), m), *numbers(m=m, n=n, k=k)]
    for bm, bn, bk, warps, stages in product((16, 32, 64), (16, 32, 64), (32, 64), (2, 4, 8), (1, 2, 3, 4, 5)):
        yield configure(
            "gemm_reduce_sum", dtype, gemm_row_sum, arguments, (m // bm,), warps=warps, stages=stages,
            BM=bm, BN=bn, BK=bk, P="tf32",
        )  # fmt: skip


def _softmax(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    m, n, k = 64, 128, 128
    arguments = [*_operands(dtype, m, n, k), result("c", stored(dtype), m * n), *numbers(n=n, k=k)]
    for bm, bn, bk, warps, stages in product((16, 32, 64), (16, 32, 64), (32, 64), (2, 4, 8), (1, 2, 3, 4, 5)):
        yield configure(
            "gemm_softmax", dtype, gemm_softmax, arguments, (m // bm,), warps=warps, stages=stages, BM=bm, BN=bn, BK=bk
        )


def _store_map(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    out = result("c", stored(dtype), M * N)
    stages = (2, 3) if target == "gfx942" else (2, 3, 4)
    for (bm, bn), warps, depth in product(((64, 32), (64, 64), (128, 64)), (4, 8), stages):
        mapped = Descriptor("c_map", out, (M, N), (N, 1), (bm, bn))
        yield configure(
            "gemm_tma_store", dtype, gemm_store_map, [*_operands(dtype), mapped, *numbers(k=K)], (M // bm, N // bn),
            warps=warps, stages=depth, BM=bm, BN=bn, BK=32, OUT=TL_DTYPES[stored(dtype)],
        )  # fmt: skip


def _persistent(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    tiles = ((32, 32, 32), (64, 32, 32), (64, 64, 32), (64, 64, 64))
    for (bm, bn, bk), warps, stages, flatten, programs in product(tiles, (4, 8), (1, 2), (False, True), (3, 8)):
        yield configure(
            "gemm_persistent", dtype, gemm_persistent, _matrices(dtype), (programs,), warps=warps, stages=stages,
            BM=bm, BN=bn, BK=bk, PROGRAMS=programs, FLATTEN=flatten,
        )  # fmt: skip


def _gated(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    arguments = [*_matrices(dtype), given("gate", dtype, K * N)]
    for bm, bn, warps, stages in product((32, 64, 128), (16, 32, 64), (4, 8), (1, 2, 3, 4, 5)):
        yield configure(
            "gemm_gated", dtype, gemm_gated, arguments, (ceil_div(M, bm), ceil_div(N, bn)), warps=warps, stages=stages,
            BM=bm, BN=bn, BK=32,
        )  # fmt: skip


GEMM = Kernel("gemm", _gemm)
BIAS_RELU = Kernel("gemm_bias_relu_fp_fusion", _bias_relu)
KGROUP = Kernel("gemm_kgroup", _kgroup)
REDUCE_SUM = Kernel("gemm_reduce_sum", _reduced)
GEMM_SOFTMAX = Kernel("gemm_softmax", _softmax)
STORE_MAP = Kernel("gemm_tma_store", _store_map)
PERSISTENT = Kernel("gemm_persistent", _persistent)
GATED = Kernel("gemm_gated", _gated)
