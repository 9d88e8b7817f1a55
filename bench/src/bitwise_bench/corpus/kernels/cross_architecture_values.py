"""Pairs of elementwise kernels: chains of operations, casts, quantisation, integer arithmetic, selections."""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl

from bitwise_bench.corpus.configurations import given, numbers, result, updated
from bitwise_bench.corpus.cross_architecture_pairs import FUSING, Pair, of_values, pair


@triton.jit
def chains(x, y, z, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    a = tl.load(x + place, mask=inside, other=0.0)
    b = tl.load(y + place, mask=inside, other=0.0)
    if KIND == "chain":
        out = ((a + b) * 0.5 - a) * b + 1.25
    elif KIND == "polynomial":
        out = 0.5 + a * (0.25 + a * (0.125 + a * (0.0625 + a * b)))
    elif KIND == "interpolation":
        out = a + 0.3 * (b - a)
    elif KIND == "distance":
        out = (a - b) * (a - b)
    elif KIND == "negated":
        out = -(a * b) - a
    elif KIND == "reciprocal":
        out = tl.div_rn(1.0, b)
    elif KIND == "over_eight":
        out = a / 8.0
    elif KIND == "rational":
        out = a * tl.div_rn(1.0, 1.0 + tl.abs(a))
    elif KIND == "root_of_sum":
        out = tl.sqrt_rn(tl.abs(a) + 1.0)
    elif KIND == "length":
        out = tl.sqrt_rn(tl.fma(a, a, b * b))
    elif KIND == "over_root":
        out = tl.div_rn(a, tl.sqrt_rn(tl.fma(b, b, 1e-5)))
    elif KIND == "floor":
        out = tl.floor(a)
    elif KIND == "sigmoid":
        out = tl.sigmoid(a) * b
    tl.store(z + place, out.to(z.dtype.element_ty), mask=inside)


@triton.jit
def choices(x, y, z, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    a = tl.load(x + place, mask=inside, other=0)
    b = tl.load(y + place, mask=inside, other=0)
    if KIND == "positive":
        out = tl.maximum(a, 0.0)
    elif KIND == "maximum":
        out = tl.maximum(a, b)
    elif KIND == "minimum":
        out = tl.minimum(a, b)
    elif KIND == "maximum_or_nan":
        out = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif KIND == "clamp":
        out = tl.clamp(a, -1.0, 1.0)
    elif KIND == "clamp_by_choices":
        out = tl.where(a < -1.0, -1.0, tl.where(a > 1.0, 1.0, a))
    elif KIND == "clamp_by_extremes":
        out = tl.minimum(tl.maximum(a, -1.0), 1.0)
    elif KIND == "clamp_integers":
        out = tl.minimum(tl.maximum(a, -1000), 1000) + tl.maximum(a, b)
    elif KIND == "nested":
        out = tl.where(a < b, a - b, tl.where(a > 2.0 * b, a + b, a * b))
    elif KIND == "no_nan":
        out = tl.where(a != a, 0.0, a) + b
    elif KIND == "sign":
        out = tl.where(a > 0, 1.0, tl.where(a < 0, -1.0, 0.0)) * b
    elif KIND == "comparisons":
        out = (a > b).to(tl.int32) + (a >= 0.0).to(tl.int32) * 2 + (b != b).to(tl.int32) * 4
    tl.store(z + place, out.to(z.dtype.element_ty), mask=inside)


@triton.jit
def casts(x, y, z, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    a = tl.load(x + place, mask=inside, other=0)
    b = tl.load(y + place, mask=inside, other=0)
    if KIND == "cast":
        out = a
    elif KIND == "cast_scaled":
        out = a.to(tl.float32) * 0.125
    elif KIND == "cast_sum":
        out = a + b
    elif KIND == "cast_product":
        out = a * b
    elif KIND == "cast_quotient":
        out = tl.div_rn(a, b)
    elif KIND == "sum_of_casts":
        out = a.to(tl.float32) + b.to(tl.float32)
    elif KIND == "through_bf16":
        out = a.to(tl.bfloat16).to(tl.float32) + b
    elif KIND == "through_fp16":
        out = a.to(tl.float16).to(tl.float32) + b
    elif KIND == "through_fp64":
        out = a.to(tl.float64) + b.to(tl.float64)
    elif KIND == "quantised":
        up, down = tl.minimum(a * 16.0, 127.0) + 0.5, tl.maximum(a * 16.0, -127.0) - 0.5
        out = tl.where(a >= 0, up.to(tl.int32), down.to(tl.int32))
    elif KIND == "bits_cleared":
        out = (a.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True) + b
    elif KIND == "high_product":
        out = tl.umulhi(a.to(tl.uint32, bitcast=True), b.to(tl.uint32, bitcast=True)).to(tl.int32, bitcast=True)
    elif KIND == "over_ten":
        out = (a.to(tl.uint32, bitcast=True) // 10).to(tl.int32, bitcast=True)
    elif KIND == "remainders":
        out = a * b + (a // 7) - (b % 13)
    elif KIND == "quotient_of_integers":
        out = a // (tl.abs(b % 1000) + 1)
    tl.store(z + place, out.to(z.dtype.element_ty), mask=inside)


@triton.jit
def dequantised(q, s, z, count, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    scale = tl.load(s + place // GROUP, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(q + place, mask=inside, other=0).to(tl.float32)
    tl.store(z + place, (value * scale).to(z.dtype.element_ty), mask=inside)


@triton.jit
def optimiser(p, g, m, v, count, rate, beta, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    step, mean = tl.load(g + place, mask=inside, other=0.0), tl.load(m + place, mask=inside, other=0.0)
    mean = beta * mean + (1.0 - beta) * step
    square = tl.load(v + place, mask=inside, other=0.0) * beta + step * step
    tl.store(m + place, mean, mask=inside)
    tl.store(v + place, square, mask=inside)
    value = tl.load(p + place, mask=inside, other=0.0) - rate * tl.div_rn(mean, tl.sqrt_rn(tl.abs(square) + 1e-8))
    tl.store(p + place, value, mask=inside)


_ROOTS = ("sqrt.rn.fp32", "select")
"""Triton for gfx942 refines v_rsq without scaling subnormal operands."""


def _chain_pairs() -> Iterator[Pair]:
    for kind in ("chain", "polynomial", "interpolation", "distance", "reciprocal", "rational", "root_of_sum"):
        yield of_values(chains, kind)
    yield of_values(chains, "over_root")
    for kind in ("polynomial", "distance", "over_root"):
        yield of_values(chains, kind, name=f"{kind}-fused-both", left=FUSING, right=FUSING)
    few, many = {"warps": 1, "BLOCK": 128, "grid": (8,)}, {"warps": 8, "BLOCK": 512, "grid": (2,)}
    yield of_values(chains, "chain", name="chain-other-blocks", left=few, right=many)
    yield of_values(chains, "chain", "fp16")
    yield of_values(chains, "chain", "fp64")
    yield of_values(chains, "length", nodes=_ROOTS)
    # One compiler factors a negation out of a difference, which changes the sign of a zero result.
    yield of_values(chains, "negated", nodes=("add.rn.fp32", "neg.fp32"))
    yield of_values(chains, "over_eight", nodes=("div.full.literal.fp32@sm_90", "mul.rn.fp32"), same_bytes=True)
    yield of_values(chains, "floor", nodes=("convert.rmi.ftz.fp32.fp32", "convert.rmi.fp32.fp32"))
    yield of_values(chains, "sigmoid", nodes=("div.full.fp32@sm_90", "div.rn.fp32"))


def _choice_pairs() -> Iterator[Pair]:
    for kind in ("positive", "maximum", "minimum", "maximum_or_nan", "clamp_by_choices", "clamp_by_extremes",
                 "nested", "no_nan", "sign"):  # fmt: skip
        yield of_values(choices, kind)
    for dtype in ("fp16", "bf16"):
        yield of_values(choices, "positive", dtype)
        yield of_values(choices, "maximum", dtype)
    yield of_values(choices, "maximum", "fp64")
    yield of_values(choices, "comparisons", "fp32", "i32")
    yield of_values(choices, "clamp_integers", "i32", integers=True)
    # One clamps a NaN to the upper bound, the other to the lower bound.
    yield of_values(choices, "clamp", nodes=("select", "min.fp32"))


def _cast_pairs() -> Iterator[Pair]:
    for out in ("fp16", "bf16"):
        yield of_values(casts, "cast", "fp32", out)
        yield of_values(casts, "cast_sum", "fp32", out)
        yield of_values(casts, "sum_of_casts", out, "fp32")
    yield of_values(casts, "cast_product", "fp32", "bf16")
    yield of_values(casts, "cast_quotient", "fp32", "bf16")
    for kind in ("through_bf16", "through_fp16", "through_fp64", "bits_cleared"):
        yield of_values(casts, kind)
    for dtype in ("i8", "u8", "i16", "i32"):
        yield of_values(casts, "cast_scaled", dtype, "fp32")
    for dtype, out in (("fp32", "i32"), ("fp32", "u32"), ("fp16", "i32"), ("bf16", "i32")):
        yield of_values(casts, "cast", dtype, out)
    yield of_values(casts, "quantised", "fp32", "i32")
    for kind in ("high_product", "over_ten", "remainders"):
        yield of_values(casts, kind, "i32", integers=True)
    # A NaN is converted to the least integer by one and to 0 by the other.
    yield of_values(casts, "cast", "fp64", "i32", nodes=("convert.rzi.s32.fp64", "select"))
    # Two roundings and one agree, since such a product is exact in fp32; no rule states this.
    yield of_values(casts, "cast_product", "bf16", nodes=("mul.rn.bf16", "convert.rn.bf16.fp32"), same_bytes=True)
    yield of_values(casts, "quotient_of_integers", "i32", nodes=("div.s32", "sub.b32"), integers=True, same_bytes=True)
    for out, nodes in (("fp32", None), ("bf16", None), ("fp16", ("mul.rn.fp32", "fma.rn.fp32"))):
        arguments = [given("q", "i8", 700, "integer"), given("s", "fp16", 22), result("z", out, 700)]
        yield pair(f"dequantised-{out}", dequantised, [*arguments, *numbers(count=700)], (3,),
                   "equal" if nodes is None else "unproved", nodes, GROUP=32, BLOCK=256)  # fmt: skip
    state = [updated("p", "fp32", 900), given("g", "fp32", 900), updated("m", "fp32", 900)]
    state += [updated("v", "fp32", 900, "positive")]
    optimised = [*state, *numbers(count=900, rate=1e-3, beta=0.75)]
    yield pair("optimiser", optimiser, optimised, (4,), BLOCK=256)
    # Of two products that are added, the compilers contract different ones.
    yield pair("optimiser-fused-both", optimiser, optimised, (4,), "unproved", ("fma.rn.fp32", "add.rn.fp32"),
               left=FUSING, right=FUSING, BLOCK=256)  # fmt: skip


def pairs() -> tuple[Pair, ...]:
    """Return the pairs of this module, in a stable order."""
    return (*_chain_pairs(), *_choice_pairs(), *_cast_pairs())
