"""Matrix products with masks, swizzled tile orders and transposed operands."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument, Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result

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


def operands(dtype: str, out: str, m: int, n: int, k: int, order: str = "nn") -> list[Argument]:
    """Return buffers, sizes and strides of `gemm`; `order` has a "t" for each of a and b that is stored transposed."""
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


def gemm_case(
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
    """Return one configuration of `gemm`; `tile` is (BM, BN, BK), `order` the rows of tiles in a swizzle group."""
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
    return (*_plain(), *_swizzled(), *_wrapped(), *_layouts())


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
                gemm_case("gemm", f"{dtype}-{m}x{n}x{k}", arguments, m, n, tile, warps, stages, order=0, out=dtype)
            )
    return found


def _swizzled() -> list[Case]:
    m, n, k = 320, 192, 160
    arguments = operands("fp16", "fp32", m, n, k)
    return [
        gemm_case("gemm_swizzled", f"fp16-{m}x{n}x{k}", arguments, m, n, tile, warps, 3, order=order, out="fp32")
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
                    gemm_case(
                        "gemm_layouts", f"{dtype}-{order}-{m}x{n}x{k}", arguments, m, n, tile, warps, stages, out="fp32"
                    )
                )
    return found
