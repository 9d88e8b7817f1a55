"""Kernels without a reduction: activations, libdevice functions, dropout, random numbers, rotations."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, flat, given, numbers, result, stored_as


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


def cases() -> tuple[Case, ...]:
    return (*_activations(), *_functions(), *_random(), *_rotations())


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
        found += flat(family, f"{kind}-{group}", activation, arguments, size, KIND=kind)
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
        found += flat("function", f"{kind}-{size}", function_of, arguments, size, shapes, KIND=kind)
    return found


def _random() -> list[Case]:
    size = 3000
    arguments = [
        given("source", "fp32", size),
        result("target", "fp32", size),
        *numbers(size=size, seed=1234, rate=0.3),
    ]
    found = flat("dropout", f"fp32-{size}", dropout, arguments, size)
    arguments = [result("target", "fp32", size), *numbers(size=size, seed=77)]
    return found + flat(
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
