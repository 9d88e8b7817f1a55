"""Kernels with no reduction or a small one: activations, libdevice functions, dropout, rotations, casts, updates."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from bitwise_conformance.cases import Case
from bitwise_conformance.corpus._build import (
    ceil_div,
    configure,
    given,
    index,
    numbers,
    power_of_two,
    result,
    stored_as,
    updated,
)


@triton.jit
def activation(source, gate, target, size, BLOCK: tl.constexpr, KIND: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    x = tl.load(source + position, mask=inside, other=0.0).to(tl.float32)
    if KIND == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = 0.5 * x * (1.0 + libdevice.tanh(inner))
    elif KIND == "gelu_erf":
        y = 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))
    elif KIND == "silu":
        y = x * tl.sigmoid(x)
    elif KIND == "swiglu":
        g = tl.load(gate + position, mask=inside, other=0.0).to(tl.float32)
        y = g / (1.0 + tl.exp(-g)) * x
    elif KIND == "softplus":
        y = tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x)))
    else:
        y = tl.where(x > 0.0, x, libdevice.expm1(x))
    tl.store(target + position, y.to(target.dtype.element_ty), mask=inside)


@triton.jit
def function_of(source, other, target, size, BLOCK: tl.constexpr, KIND: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    x = tl.load(source + position, mask=inside, other=1.0)
    z = tl.load(other + position, mask=inside, other=1.0)
    if KIND == "rsqrt":
        y = tl.rsqrt(tl.abs(x) + 0.01)
    elif KIND == "divide":
        y = x / z
    elif KIND == "divide_exact":
        y = tl.math.div_rn(x, z)
    elif KIND == "square_root":
        y = tl.sqrt(tl.abs(x)) + tl.math.sqrt_rn(tl.abs(z))
    elif KIND == "power":
        y = libdevice.pow(tl.abs(x), z)
    elif KIND == "sine":
        y = libdevice.sin(x) + tl.cos(z)
    elif KIND == "logarithm":
        y = libdevice.log1p(tl.abs(x)) - tl.log2(tl.abs(z) + 0.5)
    elif KIND == "fused":
        y = tl.fma(x, z, 1.5)
    elif KIND == "clamp":
        y = tl.clamp(x, -0.5, 0.75) + tl.floor(z) - tl.ceil(x)
    else:
        y = x * z + x
    tl.store(target + position, y, mask=inside)


@triton.jit
def dropout(source, target, size, seed, rate, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    x = tl.load(source + position, mask=inside, other=0.0)
    kept = tl.rand(seed, position) > rate
    tl.store(target + position, tl.where(kept, x / (1.0 - rate), 0.0), mask=inside)


@triton.jit
def random_normal(target, size, seed, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + position, tl.randn(seed, position), mask=position < size)


@triton.jit
def rotate(source, cosine, sine, target, heads, HALF: tl.constexpr, TILE: tl.constexpr):
    token = tl.program_id(0)
    head = tl.program_id(1) * TILE + tl.arange(0, TILE)
    lane = tl.arange(0, HALF)
    base = source + token * heads * HALF * 2 + head[:, None] * (HALF * 2) + lane[None, :]
    inside = head[:, None] < heads
    first = tl.load(base, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(base + HALF, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cosine + token * HALF + lane)[None, :]
    s = tl.load(sine + token * HALF + lane)[None, :]
    out = target + token * heads * HALF * 2 + head[:, None] * (HALF * 2) + lane[None, :]
    tl.store(out, (first * c - second * s).to(target.dtype.element_ty), mask=inside)
    tl.store(out + HALF, (second * c + first * s).to(target.dtype.element_ty), mask=inside)


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


CASTS: dict[str, Any] = {
    "fp8e4nv": tl.float8e4nv,
    "fp8e5": tl.float8e5,
    "fp16": tl.float16,
    "bf16": tl.bfloat16,
    "fp32": tl.float32,
}


def cases() -> tuple[Case, ...]:
    return (
        *_activations(),
        *_functions(),
        *_random(),
        *_rotations(),
        *_casts(),
        *_quantised(),
        *_updates(),
        *_copies(),
    )


def _flat(
    family: str,
    group: str,
    function: Any,
    arguments: Any,
    size: int,
    shapes: tuple[tuple[int, int], ...] = ((128, 1), (256, 4), (1024, 4), (1024, 8)),
    **constants: Any,
) -> list[Case]:
    return [
        configure(
            family,
            group,
            function,
            arguments,
            (ceil_div(size, block),),
            warps=warps,
            options={"enable_fp_fusion": fusion},
            BLOCK=block,
            **constants,
        )
        for block, warps in shapes
        for fusion in ((True, False) if block == 256 else (True,))
    ]


def _activations() -> list[Case]:
    found = []
    for kind, dtype, out, size in (
        ("gelu_tanh", "fp16", "fp32", 3000),
        ("gelu_erf", "fp32", "fp32", 3000),
        ("silu", "bf16", "fp32", 4096),
        ("swiglu", "fp16", "fp32", 2500),
        ("softplus", "fp32", "fp32", 3000),
        ("elu", "fp32", "fp32", 2000),
        ("silu", "bf16", "bf16", 4096),
    ):
        arguments = [
            given("source", dtype, size),
            given("gate", dtype, size),
            result("target", out, size),
            *numbers(size=size),
        ]
        family, group = stored_as("activation", dtype, out, f"{size}")
        found += _flat(family, f"{kind}-{group}", activation, arguments, size, KIND=kind)
    return found


def _functions() -> list[Case]:
    found = []
    for kind in (
        "rsqrt",
        "divide",
        "divide_exact",
        "square_root",
        "power",
        "sine",
        "logarithm",
        "fused",
        "clamp",
        "multiply_add",
    ):
        size = 2000
        arguments = [
            given("source", "fp32", size),
            given("other", "fp32", size),
            result("target", "fp32", size),
            *numbers(size=size),
        ]
        shapes = ((128, 1), (256, 4), (1024, 8))
        found += _flat("function", f"{kind}-{size}", function_of, arguments, size, shapes, KIND=kind)
    return found


def _random() -> list[Case]:
    size = 3000
    arguments = [
        given("source", "fp32", size),
        result("target", "fp32", size),
        *numbers(size=size, seed=1234, rate=0.3),
    ]
    found = _flat("dropout", f"fp32-{size}", dropout, arguments, size)
    arguments = [result("target", "fp32", size), *numbers(size=size, seed=77)]
    return found + _flat(
        "random_normal", f"fp32-{size}", random_normal, arguments, size, ((128, 1), (512, 4), (1024, 8))
    )


def _rotations() -> list[Case]:
    found = []
    for dtype, tokens, heads, half in (("fp16", 12, 6, 32), ("fp32", 10, 8, 64)):
        arguments = [
            given("source", dtype, tokens * heads * half * 2),
            given("cosine", "fp32", tokens * half),
            given("sine", "fp32", tokens * half),
            result("target", dtype, tokens * heads * half * 2),
            *numbers(heads=heads),
        ]
        for tile, warps in ((2, 1), (4, 4), (8, 4)):
            for fusion in (True, False):
                found.append(
                    configure(
                        "rotate",
                        f"{dtype}-{tokens}x{heads}x{half}",
                        rotate,
                        arguments,
                        (tokens, ceil_div(heads, tile)),
                        warps=warps,
                        options={"enable_fp_fusion": fusion},
                        HALF=half,
                        TILE=tile,
                    )
                )
    return found


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
        found += _flat("cast", f"{origin}-{to}-{size}", cast, arguments, size, shapes, TO=CASTS[to])
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
    found = _flat("adam_step", f"{size}", adam_step, arguments, size)
    for dtype in ("fp32", "fp16"):
        arguments = [given("source", dtype, size), updated("target", dtype, size), *numbers(size=size, scale=0.3)]
        found += _flat("add_in_place", f"{dtype}-{size}", add_in_place, arguments, size)
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
