"""Kernels that convert, quantise, update in place, gather and transpose."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import (
    ceil_div,
    configure,
    flat,
    given,
    index,
    numbers,
    power_of_two,
    result,
    updated,
)

CASTS: dict[str, Any] = {
    "fp8e4nv": tl.float8e4nv,
    "fp8e5": tl.float8e5,
    "fp16": tl.float16,
    "bf16": tl.bfloat16,
    "fp32": tl.float32,
}


@triton.jit
def cast(source, target, size, scale, BLOCK: tl.constexpr, TO: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    x = tl.load(source + position, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + position, (x * scale).to(TO), mask=inside)


@triton.jit
def quantise_row(source, target, quotients, scales, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    x = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(x), axis=0)
    scale = tl.maximum(largest, 1e-6) / 127.0
    quotient = x / scale
    tl.store(quotients + row * columns + position, quotient, mask=inside)
    y = tl.minimum(tl.maximum(libdevice.rint(quotient), -127.0), 127.0)
    tl.store(target + row * columns + position, y.to(tl.int8), mask=inside)
    tl.store(scales + row, scale)


@triton.jit
def adam_step(weight, gradient, mean, square, size, rate, first, second, epsilon, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    w = tl.load(weight + position, mask=inside)
    g = tl.load(gradient + position, mask=inside).to(tl.float32)
    m = tl.load(mean + position, mask=inside)
    v = tl.load(square + position, mask=inside)
    m = first * m + (1.0 - first) * g
    v = second * v + (1.0 - second) * g * g
    w = w - rate * (m / (tl.sqrt(v) + epsilon))
    tl.store(weight + position, w, mask=inside)
    tl.store(mean + position, m, mask=inside)
    tl.store(square + position, v, mask=inside)


@triton.jit
def add_in_place(source, target, size, scale, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    x = tl.load(source + position, mask=inside, other=0.0)
    y = tl.load(target + position, mask=inside, other=0.0)
    tl.store(target + position, y + scale * x, mask=inside)


@triton.jit
def embedding(table, places, target, columns, BLOCK: tl.constexpr, TILE: tl.constexpr, scale):
    token = tl.program_id(0) * TILE + tl.arange(0, TILE)
    place = tl.load(places + token)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column[None, :] < columns
    values = tl.load(table + place[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(target + token[:, None] * columns + column[None, :], values * scale, mask=inside)


@triton.jit
def transpose_copy(source, target, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    turned = (row[None, :] < rows) & (column[:, None] < columns)
    tl.store(target + column[:, None] * rows + row[None, :], tl.trans(tile), mask=turned)


def cases() -> tuple[Case, ...]:
    return (*_casts(), *_quantised(), *_updates(), *_copies())


def _casts() -> list[Case]:
    found = []
    for origin, to in (
        ("fp32", "fp8e4nv"),
        ("fp16", "fp8e5"),
        ("bf16", "fp8e4nv"),
        ("fp8e4nv", "fp16"),
        ("fp8e5", "fp32"),
        ("fp32", "bf16"),
        ("fp32", "fp16"),
    ):
        size = 2048
        arguments = [given("source", origin, size), result("target", to, size), *numbers(size=size, scale=0.625)]
        shapes = ((128, 1), (512, 4), (1024, 8))
        found += flat("cast", f"{origin}-{to}-{size}", cast, arguments, size, shapes, TO=CASTS[to])
    return found


def _quantised() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 16, 500), ("fp32", 16, 1024), ("bf16", 16, 300)):
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "i8", rows * columns),
            result("quotients", "fp32", rows * columns),
            result("scales", "fp32", rows),
            *numbers(columns=columns),
        ]
        for block in (power_of_two(columns), 2 * power_of_two(columns)):
            for warps in (1, 4, 8):
                found.append(
                    configure(
                        "quantise_row",
                        f"{dtype}-quotients-{rows}x{columns}",
                        quantise_row,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                    )
                )
    return found


def _updates() -> list[Case]:
    size = 2500
    arguments = [
        updated("weight", "fp32", size),
        given("gradient", "bf16", size),
        updated("mean", "fp32", size),
        updated("square", "fp32", size, "positive"),
        *numbers(size=size, rate=1e-3, first=0.9, second=0.99, epsilon=1e-8),
    ]
    found = flat("adam_step", f"{size}", adam_step, arguments, size)
    for dtype in ("fp32", "fp16"):
        arguments = [given("source", dtype, size), updated("target", dtype, size), *numbers(size=size, scale=0.3)]
        found += flat("add_in_place", f"{dtype}-{size}", add_in_place, arguments, size)
    return found


def _copies() -> list[Case]:
    found = []
    tokens, rows, columns = 24, 50, 200
    arguments = [
        given("table", "fp16", rows * columns),
        index("places", "i64", tokens, rows),
        result("target", "fp16", tokens * columns),
        *numbers(columns=columns, scale=1.7),
    ]
    for block, tile, warps in ((64, 1, 1), (64, 4, 4), (128, 2, 4), (256, 1, 4), (256, 8, 8)):
        found.append(
            configure(
                "embedding",
                f"fp16-{tokens}x{rows}x{columns}",
                embedding,
                arguments,
                (tokens // tile, ceil_div(columns, block)),
                warps=warps,
                BLOCK=block,
                TILE=tile,
            )
        )
    for dtype, tall, wide in (("fp16", 70, 90), ("fp32", 64, 96)):
        arguments = [
            given("source", dtype, tall * wide),
            result("target", dtype, tall * wide),
            *numbers(rows=tall, columns=wide),
        ]
        for bm, bn, warps in ((16, 16, 1), (32, 32, 4), (64, 32, 4), (32, 128, 8)):
            found.append(
                configure(
                    "transpose_copy",
                    f"{dtype}-{tall}x{wide}",
                    transpose_copy,
                    arguments,
                    (ceil_div(tall, bm), ceil_div(wide, bn)),
                    warps=warps,
                    BM=bm,
                    BN=bn,
                )
            )
    return found
