"""Matrix products with masks, swizzled tile orders, transposed operands and every operand type of the matrix units."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from bitwise_conformance.cases import Argument, Case
from bitwise_conformance.corpus._build import ceil_div, configure, given, numbers, result

TL_DTYPES: dict[str, Any] = {
    "fp16": tl.float16,
    "bf16": tl.bfloat16,
    "fp32": tl.float32,
    "fp64": tl.float64,
    "i32": tl.int32,
}


@triton.jit
def gemm(
    a,
    b,
    c,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SUM: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(0)
    down = tl.cdiv(m, BM)
    across = tl.cdiv(n, BN)
    if GROUP == 0:
        block_m = block // across
        block_n = block % across
    else:
        width = GROUP * across
        first = (block // width) * GROUP
        height = tl.minimum(down - first, GROUP)
        block_m = first + (block % width) % height
        block_n = (block % width) // height
    row = block_m * BM + tl.arange(0, BM)
    column = block_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a + row[:, None] * stride_am + inner[None, :] * stride_ak
    b_at = b + inner[:, None] * stride_bk + column[None, :] * stride_bn
    total = tl.zeros((BM, BN), SUM)
    for start in range(0, k, BK):
        left = tl.load(a_at, mask=(row[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        right = tl.load(b_at, mask=(inner[:, None] < k - start) & (column[None, :] < n), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUM)
        a_at += BK * stride_ak
        b_at += BK * stride_bk
    c_at = c + row[:, None] * stride_cm + column[None, :]
    tl.store(c_at, total.to(OUT), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def gemm_wrapped(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr
):
    block = tl.program_id(0)
    down = tl.cdiv(m, BM)
    across = tl.cdiv(n, BN)
    width = GROUP * across
    first = (block // width) * GROUP
    height = tl.minimum(down - first, GROUP)
    block_m = first + (block % width) % height
    block_n = (block % width) // height
    row = (block_m * BM + tl.arange(0, BM)) % m
    column = (block_n * BN + tl.arange(0, BN)) % n
    inner = tl.arange(0, BK)
    a_at = a + row[:, None] * k + inner[None, :]
    b_at = b + inner[:, None] * n + column[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        if EVEN:
            left = tl.load(a_at)
            right = tl.load(b_at)
        else:
            left = tl.load(a_at, mask=inner[None, :] < k - step * BK, other=0.0)
            right = tl.load(b_at, mask=inner[:, None] < k - step * BK, other=0.0)
        total += tl.dot(left, right)
        a_at += BK
        b_at += BK * n
    row = block_m * BM + tl.arange(0, BM)
    column = block_n * BN + tl.arange(0, BN)
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c + row[:, None] * n + column[None, :], total.to(c.dtype.element_ty), mask=inside)


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


def operands(dtype: str, out: str, m: int, n: int, k: int, order: str = "nn") -> list[Argument]:
    """Buffers, sizes and strides of `gemm`; `order` says for a and b whether each is stored transposed ("t")."""
    return [
        given("a", dtype, m * k),
        given("b", dtype, k * n),
        result("c", out, m * n),
        *numbers(
            m=m,
            n=n,
            k=k,
            stride_am=1 if order[0] == "t" else k,
            stride_ak=m if order[0] == "t" else 1,
            stride_bk=1 if order[1] == "t" else n,
            stride_bn=k if order[1] == "t" else 1,
            stride_cm=n,
        ),
    ]


def _gemm(
    family: str,
    group: str,
    arguments: list[Argument],
    m: int,
    n: int,
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    *,
    order: int = 8,
    total: str = "fp32",
    out: str = "fp16",
    precision: str = "tf32",
    options: dict[str, Any] | None = None,
) -> Case:
    return configure(
        family,
        group,
        gemm,
        arguments,
        (ceil_div(m, tile[0]) * ceil_div(n, tile[1]),),
        warps=warps,
        stages=stages,
        options=options,
        BM=tile[0],
        BN=tile[1],
        BK=tile[2],
        GROUP=order,
        SUM=TL_DTYPES[total],
        OUT=TL_DTYPES[out],
        PRECISION=precision,
    )


def cases() -> tuple[Case, ...]:
    return (
        *_plain(),
        *_swizzled(),
        *_wrapped(),
        *_layouts(),
        *_narrow(),
        *_single(),
        *_fp8(),
        *_int8(),
        *_fp64(),
        *_batched(),
        *_kgroups(),
        *_cubes(),
    )


def _plain() -> list[Case]:
    found = []
    for dtype, m, n, k in (
        ("fp16", 128, 128, 96),
        ("fp16", 200, 136, 500),
        ("bf16", 128, 256, 256),
        ("bf16", 150, 200, 333),
    ):
        arguments = operands(dtype, dtype, m, n, k)
        for tile, warps, stages in (
            ((16, 32, 32), 1, 2),
            ((16, 64, 64), 4, 3),
            ((32, 32, 32), 2, 3),
            ((32, 64, 128), 4, 2),
            ((64, 32, 32), 4, 4),
            ((64, 64, 32), 4, 3),
            ((64, 64, 64), 4, 1),
            ((64, 128, 64), 4, 3),
            ((128, 64, 32), 4, 4),
            ((128, 128, 64), 8, 3),
            ((128, 128, 32), 4, 2),
            ((64, 256, 32), 8, 2),
            ((256, 64, 32), 8, 3),
        ):
            found.append(
                _gemm("gemm", f"{dtype}-{m}x{n}x{k}", arguments, m, n, tile, warps, stages, order=0, out=dtype)
            )
    return found


def _swizzled() -> list[Case]:
    m, n, k = 320, 192, 160
    arguments = operands("fp16", "fp32", m, n, k)
    return [
        _gemm("gemm_swizzled", f"fp16-{m}x{n}x{k}", arguments, m, n, tile, warps, 3, order=order, out="fp32")
        for order in (1, 2, 3, 8)
        for tile, warps in (((64, 64, 32), 4), ((128, 64, 64), 4), ((32, 64, 32), 2), ((128, 128, 32), 8))
    ]


def _wrapped() -> list[Case]:
    found = []
    for dtype, m, n, k, even in (("fp16", 160, 224, 256, True), ("bf16", 100, 144, 200, False)):
        arguments = [
            given("a", dtype, m * k),
            given("b", dtype, k * n),
            result("c", dtype, m * n),
            *numbers(m=m, n=n, k=k),
        ]
        for tile, warps, stages in (
            ((64, 64, 32), 4, 3),
            ((64, 64, 64), 4, 4),
            ((128, 64, 32), 4, 2),
            ((128, 128, 64), 8, 3),
            ((32, 64, 32), 2, 5),
            ((64, 32, 64), 4, 2),
            ((128, 256, 32), 8, 3),
        ):
            grid = (ceil_div(m, tile[0]) * ceil_div(n, tile[1]),)
            for order in (4, 8):
                found.append(
                    configure(
                        "gemm_wrapped",
                        f"{dtype}-{m}x{n}x{k}",
                        gemm_wrapped,
                        arguments,
                        grid,
                        warps=warps,
                        stages=stages,
                        BM=tile[0],
                        BN=tile[1],
                        BK=tile[2],
                        GROUP=order,
                        EVEN=even,
                    )
                )
    return found


def _layouts() -> list[Case]:
    found = []
    for dtype, m, n, k in (("fp16", 128, 192, 160), ("bf16", 136, 128, 104)):
        for order in ("nn", "nt", "tn", "tt"):
            arguments = operands(dtype, "fp32", m, n, k, order)
            for tile, warps, stages in (
                ((64, 64, 32), 4, 3),
                ((128, 64, 64), 4, 2),
                ((32, 32, 64), 4, 3),
                ((128, 128, 32), 8, 3),
            ):
                found.append(
                    _gemm(
                        "gemm_layouts", f"{dtype}-{order}-{m}x{n}x{k}", arguments, m, n, tile, warps, stages, out="fp32"
                    )
                )
    return found


def _narrow() -> list[Case]:
    m, n, k = 128, 128, 320
    arguments = operands("fp16", "fp16", m, n, k)
    return [
        _gemm("gemm_fp16_sum", f"fp16-{m}x{n}x{k}", arguments, m, n, tile, warps, stages, total="fp16")
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
                _gemm(
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
        _gemm(
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
