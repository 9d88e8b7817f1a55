"""Matrix products with tensor maps, persistent loops and warp specialisation."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Array, Case, Descriptor
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result


@triton.jit
def gemm_device_map(
    a,
    b,
    c,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STORE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    a_map = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    if TRANSPOSED:
        b_map = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BN, BK])
    else:
        b_map = tl.make_tensor_descriptor(b, shape=[k, n], strides=[n, 1], block_shape=[BK, BN])
    first_row = tl.program_id(0) * BM
    first_column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        left = a_map.load([first_row, start])
        if TRANSPOSED:
            total = tl.dot(left, b_map.load([first_column, start]).T, total)
        else:
            total = tl.dot(left, b_map.load([start, first_column]), total)
    value = total.to(c.dtype.element_ty)
    if STORE:
        c_map = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
        c_map.store([first_row, first_column], value)
    else:
        row = first_row + tl.arange(0, BM)
        column = first_column + tl.arange(0, BN)
        tl.store(c + row[:, None] * n + column[None, :], value, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_host_map(
    a_map,
    b_map,
    c_map,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    OUT: tl.constexpr,
    SPECIALISED: tl.constexpr,
):
    first_row = tl.program_id(0) * BM
    first_column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for turn in tl.range(0, tl.cdiv(k, BK), warp_specialize=SPECIALISED):
        left = a_map.load([first_row, turn * BK])
        right = b_map.load([turn * BK, first_column])
        total = tl.dot(left, right, total)
    c_map.store([first_row, first_column], total.to(OUT))


@triton.jit
def gemm_map_rows(
    a_map,
    b_map,
    c,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    OUT: tl.constexpr,
    SPECIALISED: tl.constexpr,
):
    first_row = tl.program_id(0) * BM
    first_column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for turn in tl.range(0, tl.cdiv(k, BK), warp_specialize=SPECIALISED):
        left = a_map.load([first_row, turn * BK])
        right = b_map.load([turn * BK, first_column])
        total = tl.dot(left, right, total)
    row = first_row + tl.arange(0, BM)
    column = first_column + tl.arange(0, BN)
    tl.store(c + row[:, None] * n + column[None, :], total.to(OUT), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_persistent(
    a,
    b,
    c,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    across = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * across
    turns = tl.cdiv(k, BK)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        row = (tile // across) * BM + tl.arange(0, BM)
        column = (tile % across) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for turn in range(turns):
            inner = turn * BK + tl.arange(0, BK)
            left = tl.load(
                a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0
            )
            right = tl.load(
                b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
            )
            total = tl.dot(left, right, total)
        c_at = c + row[:, None] * n + column[None, :]
        tl.store(c_at, total.to(c.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_persistent_map(
    a_map,
    b_map,
    c_map,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
    SPECIALISED: tl.constexpr,
    OUT: tl.constexpr,
):
    across = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * across
    turns = tl.cdiv(k, BK)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=SPECIALISED):
        first_row = (tile // across) * BM
        first_column = (tile % across) * BN
        total = tl.zeros((BM, BN), tl.float32)
        for turn in range(turns):
            left = a_map.load([first_row, turn * BK])
            right = b_map.load([first_column, turn * BK])
            total = tl.dot(left, right.T, total)
        c_map.store([first_row, first_column], total.to(OUT))


@triton.jit
def map_copy_sum(source_map, target, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Column sums of tiles loaded through a tensor map, which fills out-of-bounds elements with zeros."""
    block = tl.program_id(0)
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, ROWS):
        total += tl.sum(source_map.load([start, block * COLUMNS]).to(tl.float32), axis=0)
    tl.store(target + block * COLUMNS + tl.arange(0, COLUMNS), total)


def cases() -> tuple[Case, ...]:
    return (*_device(), *_host(), *_persistent(), *_persistent_map(), *_copies())


OUT_DTYPES: dict[str, Any] = {"fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32}


def _device() -> list[Case]:
    found = []
    for dtype, m, n, k, store, transposed in (
        ("fp16", 128, 128, 256, False, False),
        ("fp16", 136, 128, 200, True, False),
        ("bf16", 128, 192, 160, True, True),
        ("fp32", 128, 128, 96, False, True),
    ):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", dtype, m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps, stages in (
            ((64, 64, 32), 4, 3),
            ((64, 64, 64), 4, 2),
            ((128, 64, 32), 4, 3),
            ((128, 128, 32), 8, 2),
            ((32, 64, 32), 4, 3),
        ):
            found.append(
                configure(
                    "gemm_tma_store" if store else "gemm_tma",
                    f"{dtype}-{m}x{n}x{k}",
                    gemm_device_map,
                    arguments,
                    (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                    warps=warps,
                    stages=stages,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                    STORE=store,
                    TRANSPOSED=transposed,
                )
            )
    return found


def _map(name: str, array: Array, rows: int, columns: int, tall: int, wide: int) -> Descriptor:
    return Descriptor(f"{name}_map", array, (rows, columns), (columns, 1), (tall, wide))


def _host() -> list[Case]:
    found = []
    for dtype, out, m, n, k in (("fp16", "fp16", 128, 128, 192), ("bf16", "fp32", 120, 160, 264)):
        a, b, c = given("a", dtype, m * k), given("b", dtype, k * n), result("c", out, m * n)
        for specialised in (False, True):
            for tile, warps, stages in (
                ((64, 64, 32), 4, 3),
                ((64, 64, 64), 4, 3),
                ((128, 64, 64), 4, 2),
                ((128, 128, 64), 8, 3),
                ((64, 128, 32), 4, 4),
            ):
                maps = [_map("a", a, m, k, tile[0], tile[2]), _map("b", b, k, n, tile[2], tile[1])]
                # The compiler splits a tile of 128 rows between two consumer warp groups, but not its tensor-map store.
                halved = tile[0] == 128 and warps == 4
                if halved and specialised:
                    continue  # with Triton 3.6.0 the kernel does not terminate on the GPU
                arguments = (
                    [*maps, c, *numbers(m=m, n=n, k=k)]
                    if halved
                    else [*maps, _map("c", c, m, n, tile[0], tile[1]), *numbers(k=k)]
                )
                found.append(
                    configure(
                        "gemm_warp_specialised" if specialised else "gemm_tma_host",
                        f"{dtype}-{m}x{n}x{k}",
                        gemm_map_rows if halved else gemm_host_map,
                        arguments,
                        (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                        warps=warps,
                        stages=stages,
                        BM=tile[0],
                        BN=tile[1],
                        BK=tile[2],
                        OUT=OUT_DTYPES[out],
                        SPECIALISED=specialised,
                    )
                )
    return found


def _persistent() -> list[Case]:
    found = []
    for dtype, m, n, k in (("fp16", 192, 192, 128), ("bf16", 150, 256, 104)):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", dtype, m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for flatten in (False, True):
            for tile, warps, stages in (
                ((64, 64, 32), 4, 3),
                ((64, 64, 64), 4, 2),
                ((128, 64, 32), 8, 3),
                ((32, 64, 32), 4, 2),
            ):
                for programs in (2, 3):
                    found.append(
                        configure(
                            "gemm_persistent",
                            f"{dtype}-{m}x{n}x{k}",
                            gemm_persistent,
                            arguments,
                            (programs,),
                            warps=warps,
                            stages=stages,
                            BM=tile[0],
                            BN=tile[1],
                            BK=tile[2],
                            PROGRAMS=programs,
                            FLATTEN=flatten,
                        )
                    )
    return found


def _persistent_map() -> list[Case]:
    m, n, k = 192, 256, 160
    a, b, c = given("a", "fp16", m * k), given("b", "fp16", k * n), result("c", "fp16", m * n)
    found = []
    for flatten, specialised in ((False, False), (True, False), (False, True), (True, True)):
        for tile, warps, stages in (
            ((64, 64, 32), 4, 3),
            ((64, 64, 64), 4, 3),
            ((64, 128, 32), 4, 2),
            ((128, 128, 32), 8, 3),
        ):
            arguments = [
                _map("a", a, m, k, tile[0], tile[2]),
                _map("b", b, n, k, tile[1], tile[2]),
                _map("c", c, m, n, tile[0], tile[1]),
                *numbers(m=m, n=n, k=k),
            ]
            found.append(
                configure(
                    "gemm_persistent_map",
                    f"fp16-{m}x{n}x{k}",
                    gemm_persistent_map,
                    arguments,
                    (3,),
                    warps=warps,
                    stages=stages,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                    PROGRAMS=3,
                    FLATTEN=flatten,
                    SPECIALISED=specialised,
                    OUT=tl.float16,
                )
            )
    return found


def _copies() -> list[Case]:
    rows, columns = 100, 256
    source = given("source", "fp16", rows * columns)
    return [
        configure(
            "map_copy_sum",
            f"fp16-{rows}x{columns}",
            map_copy_sum,
            [_map("source", source, rows, columns, tall, wide), result("target", "fp32", columns), *numbers(rows=rows)],
            (columns // wide,),
            warps=warps,
            stages=stages,
            ROWS=tall,
            COLUMNS=wide,
        )
        for tall, wide in ((16, 64), (32, 64), (64, 32), (32, 128))
        for warps, stages in ((4, 3), (2, 1))
    ]
