"""Pairs of kernels that combine elements: pinned sums, norms, sequential loops, scans, dot products, tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument, DrawKind
from bitwise_bench.corpus.configurations import given, numbers, result
from bitwise_bench.corpus.cross_architecture_pairs import FUSING, Pair, pair

if TYPE_CHECKING:
    from bitwise_triton.reductions.kernels.functions import mul_rounded, negative_zero, tree_sum


@triton.jit
def row_reduced(x, z, columns, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < columns
    if KIND == "pinned_sum":
        value = tl.load(x + row * columns + column, mask=inside, other=negative_zero(x.dtype.element_ty))
        out = tree_sum(value, 0, "inner_tree")
    elif KIND == "pinned_squares":
        value = tl.load(x + row * columns + column, mask=inside, other=negative_zero())
        out = tree_sum(mul_rounded(value, value), 0, "inner_tree")
    elif KIND == "free_sum":
        out = tl.sum(tl.load(x + row * columns + column, mask=inside, other=0.0), 0)
    elif KIND == "maximum":
        out = tl.max(tl.load(x + row * columns + column, mask=inside, other=float("-inf")), 0)
    elif KIND == "minimum":
        out = tl.min(tl.load(x + row * columns + column, mask=inside, other=float("inf")), 0)
    elif KIND == "integer_sum":
        out = tl.sum(tl.load(x + row * columns + column, mask=inside, other=0), 0)
    elif KIND == "integer_maximum":
        out = tl.max(tl.load(x + row * columns + column, mask=inside, other=-2147483648), 0)
    elif KIND == "parity":
        out = tl.xor_sum(tl.load(x + row * columns + column, mask=inside, other=0), 0)
    tl.store(z + row, out)


@triton.jit
def normed(x, w, b, z, columns, eps, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=negative_zero(x.dtype.element_ty)).to(tl.float32)
    count = columns.to(tl.float32)
    weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
    if KIND == "layer":
        mean = tl.div_rn(tree_sum(value, 0, "inner_tree"), count)
        centred = tl.where(inside, value - mean, 0.0)
        variance = tl.div_rn(tree_sum(mul_rounded(centred, centred), 0, "inner_tree"), count)
        scaled = centred * tl.div_rn(1.0, tl.sqrt_rn(variance + eps))
        out = tl.fma(scaled, weight, tl.load(b + column, mask=inside, other=0.0).to(tl.float32))
    elif KIND == "root_mean_square":
        square = tl.div_rn(tree_sum(mul_rounded(value, value), 0, "inner_tree"), count)
        out = mul_rounded(tl.div_rn(value, tl.sqrt_rn(square + eps)), weight)
    elif KIND == "sum_of_sizes":
        out = tl.div_rn(value, tree_sum(tl.abs(value), 0, "inner_tree"))
    tl.store(z + row * columns + column, out.to(z.dtype.element_ty), mask=inside)


@triton.jit
def walked(x, z, rows, columns, KIND: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    other = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in tl.range(0, columns, num_stages=STAGES):
        value = tl.load(x + row * columns + step, mask=inside, other=0.0).to(tl.float32)
        if KIND == "sum":
            total += value
        elif KIND == "compensated":
            change = value - other
            after = total + change
            other = (after - total) - change
            total = after
        elif KIND == "welford":
            difference = value - total
            total = total + tl.div_rn(difference, (step + 1).to(tl.float32))
            other = tl.fma(difference, value - total, other)
        elif KIND == "maximum":
            total = tl.maximum(total, value)
        elif KIND == "alternating":
            total = value - total * 0.5
    tl.store(z + row, total + other, mask=inside)


@triton.jit
def scanned(x, z, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(z + place, tl.cumsum(tl.load(x + place, mask=inside, other=0), 0), mask=inside)


@triton.jit
def prefixes(x, z, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(columns):
        total += tl.load(x + step * rows + row, mask=row < rows, other=0.0)
        tl.store(z + step * rows + row, total, mask=row < rows)


@triton.jit
def dotted(x, y, z, rows, columns, FUSED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(columns):
        left = tl.load(x + row * columns + step, mask=row < rows, other=0.0).to(tl.float32)
        right = tl.load(y + step).to(tl.float32)
        if FUSED:
            total = tl.fma(left, tl.broadcast_to(right, (BLOCK,)), total)
        else:
            total += left * right
    tl.store(z + row, total, mask=row < rows)


@triton.jit
def tiled(x, y, z, rows, columns, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    place = row[:, None] * columns + column[None, :]
    value = tl.load(x + place, mask=inside, other=0.0)
    if KIND == "bias":
        out = value + tl.load(y + column, mask=column < columns, other=0.0)[None, :]
    elif KIND == "causal":
        out = tl.where(row[:, None] >= column[None, :], value, float("-inf"))
    elif KIND == "outer":
        left = tl.load(y + row, mask=row < rows, other=0.0)[:, None]
        out = left * tl.load(y + column, mask=column < columns, other=0.0)[None, :] + value
    tl.store(z + place, out, mask=inside)


@triton.jit
def rotated(x, cosine, sine, z, half, BLOCK: tl.constexpr):
    start, place = tl.program_id(0) * 2 * half, tl.arange(0, BLOCK)
    inside = place < half
    a = tl.load(x + start + place, mask=inside, other=0.0)
    b = tl.load(x + start + half + place, mask=inside, other=0.0)
    c = tl.load(cosine + place, mask=inside, other=0.0)
    s = tl.load(sine + place, mask=inside, other=0.0)
    tl.store(z + start + place, a * c - b * s, mask=inside)
    tl.store(z + start + half + place, a * s + b * c, mask=inside)


@triton.jit
def in_turns(x, z, count, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0), num_stages=STAGES):
        place = tile * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + place, mask=place < count, other=0.0)
        tl.store(z + place, tl.fma(value, value, 1.0), mask=place < count)


@triton.jit
def convolved(x, w, z, count, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        at = place + tap - TAPS // 2
        value = tl.load(x + at, mask=(at >= 0) & (at < count), other=0.0)
        total = tl.fma(value, tl.broadcast_to(tl.load(w + tap), (BLOCK,)), total)
    tl.store(z + place, total, mask=place < count)


def _reduced_pairs() -> Iterator[Pair]:
    kinds: dict[str, tuple[str, DrawKind]] = {
        "pinned_sum": ("fp32", "float"),
        "pinned_squares": ("fp32", "float"),
        "maximum": ("fp32", "float"),
        "minimum": ("fp32", "float"),
        "integer_sum": ("i32", "integer"),
        "integer_maximum": ("i32", "integer"),
        "parity": ("i32", "integer"),
    }
    for kind, (dtype, drawn) in kinds.items():
        arguments: list[Argument] = [given("x", dtype, 8 * 300, drawn), result("z", dtype, 8), *numbers(columns=300)]
        yield pair(f"row-{kind}", row_reduced, arguments, (8,), KIND=kind, BLOCK=512)
    exact = [given("x", "fp32", 8 * 256), result("z", "fp32", 8), *numbers(columns=256)]
    yield pair("row-pinned_sum-other-blocks", row_reduced, exact, (8,), KIND="pinned_sum", BLOCK=256,
               left={"warps": 1}, right={"warps": 8, "BLOCK": 1024})  # fmt: skip
    halves = [given("x", "fp16", 8 * 256), result("z", "fp16", 8), *numbers(columns=256)]
    yield pair("row-pinned_sum-fp16", row_reduced, halves, (8,), KIND="pinned_sum", BLOCK=256)
    yield pair("row-free_sum", row_reduced, exact, (8,), "unproved", KIND="free_sum", BLOCK=256)
    for kind in ("layer", "root_mean_square", "sum_of_sizes"):
        for dtype in ("fp32", "fp16"):
            parts = [given(name, dtype, count) for name, count in (("x", 800), ("w", 200), ("b", 200))]
            arguments = [*parts, result("z", dtype, 800), *numbers(columns=200, eps=1e-5)]
            yield pair(f"norm-{kind}-{dtype}", normed, arguments, (4,), KIND=kind, BLOCK=256)


def _walked_pairs() -> Iterator[Pair]:
    for kind in ("sum", "compensated", "welford", "maximum", "alternating"):
        arguments: list[Argument] = [given("x", "fp32", 4000), result("z", "fp32", 200), *numbers(rows=200, columns=20)]
        yield pair(f"walk-{kind}", walked, arguments, (2,), KIND=kind, BLOCK=128, STAGES=2,
                   left={"warps": 2, "STAGES": 3}, right={"STAGES": 1, "BLOCK": 64, "grid": (4,)})  # fmt: skip
    narrow = [given("x", "bf16", 4000), result("z", "fp32", 200), *numbers(rows=200, columns=20)]
    yield pair("walk-sum-bf16", walked, narrow, (2,), KIND="sum", BLOCK=128, STAGES=1)
    integers = [given("x", "i32", 800, "integer"), result("z", "i32", 800), *numbers(columns=200)]
    yield pair("scan-i32", scanned, integers, (4,), BLOCK=256)
    floats = [given("x", "fp32", 800), result("z", "fp32", 800), *numbers(columns=200)]
    yield pair("scan-fp32", scanned, floats, (4,), "unproved", BLOCK=256)
    both = [given("x", "fp32", 1800), result("z", "fp32", 1800), *numbers(rows=150, columns=12)]
    yield pair("prefixes", prefixes, both, (2,), BLOCK=128)
    for fused in (True, False):
        for dtype in ("fp32", "fp16", "bf16"):
            arguments = [given("x", dtype, 2400), given("y", dtype, 24), result("z", "fp32", 100)]
            arguments += numbers(rows=100, columns=24)
            yield pair(f"dot-{'fused' if fused else 'rounded'}-{dtype}", dotted, arguments, (1,), FUSED=fused,
                       BLOCK=128)  # fmt: skip
    turns = [given("x", "fp32", 3000), result("z", "fp32", 3000), *numbers(count=3000)]
    yield pair("in-turns", in_turns, turns, (3,), BLOCK=256, STAGES=2, left={"grid": (5,), "STAGES": 3},
               right={"grid": (2,), "STAGES": 1, "BLOCK": 512})  # fmt: skip
    taps = [given("x", "fp32", 300), given("w", "fp32", 5), result("z", "fp32", 300), *numbers(count=300)]
    yield pair("convolved", convolved, taps, (3,), TAPS=5, BLOCK=128)


def _tiled_pairs() -> Iterator[Pair]:
    sizes = numbers(rows=70, columns=90)
    for kind in ("bias", "causal", "outer"):
        arguments: list[Argument] = [given("x", "fp32", 6300), given("y", "fp32", 90), result("z", "fp32", 6300)]
        yield pair(f"tile-{kind}", tiled, [*arguments, *sizes], (3, 3), KIND=kind, BM=32, BN=32,
                   left={"warps": 2}, right={"warps": 8, "BM": 16, "BN": 64, "grid": (5, 2)})  # fmt: skip
    for dtype in ("fp32", "fp16"):
        parts = [given(name, dtype, count) for name, count in (("x", 1024), ("cosine", 64), ("sine", 64))]
        arguments = [*parts, result("z", dtype, 1024), *numbers(half=64)]
        yield pair(f"rotated-{dtype}", rotated, arguments, (8,), BLOCK=64)
        if dtype == "fp32":
            yield pair("rotated-fused-both", rotated, arguments, (8,), "unproved", ("fma.rn.fp32", "add.rn.fp32"),
                       left=FUSING, right=FUSING, BLOCK=64)  # fmt: skip


def pairs() -> tuple[Pair, ...]:
    """Return the pairs of this module, in a stable order."""
    # Triton looks up callees in the globals of this module, which must load without bitwise-triton.
    from bitwise_triton.reductions.kernels import functions

    globals().update({name: getattr(functions, name) for name in ("mul_rounded", "negative_zero", "tree_sum")})
    return (*_reduced_pairs(), *_walked_pairs(), *_tiled_pairs())
