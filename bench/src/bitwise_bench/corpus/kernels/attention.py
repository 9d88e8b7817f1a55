"""Attention: forward with and without a causal mask, decoding with split keys, and the backward passes."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result, stored_as

LOG2E = 1.4426950408889634


@triton.jit
def attend(
    q,
    top,
    total,
    value,
    k_base,
    v_base,
    rows,
    first,
    last,
    length,
    scale,
    HEAD: tl.constexpr,
    BN: tl.constexpr,
    MASK: tl.constexpr,
    FILL: tl.constexpr,
):
    """Iterate over the keys from `first` to `last`, updating the running maximum, sum and weighted values."""
    lane = tl.arange(0, HEAD)
    for start in range(first, last, BN):
        key = start + tl.arange(0, BN)
        k = tl.load(k_base + key[None, :] * HEAD + lane[:, None], mask=key[None, :] < length, other=0.0)
        score = tl.dot(q, k) * scale
        if MASK == "causal":
            score = tl.where(rows[:, None] >= key[None, :], score, FILL)
        if MASK == "length":
            score = tl.where(key[None, :] < length, score, FILL)
        higher = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weight, axis=1)
        v = tl.load(v_base + key[:, None] * HEAD + lane[None, :], mask=key[:, None] < length, other=0.0)
        value = tl.dot(weight.to(v.dtype), v, value * shrink[:, None])
        top = higher
    return top, total, value


@triton.jit
def attention_forward(
    query,
    key,
    value,
    output,
    statistics,
    length,
    scale,
    HEAD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    FILL: tl.constexpr,
    SKIP: tl.constexpr,
):
    head = tl.program_id(1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    lane = tl.arange(0, HEAD)
    base = head * length * HEAD
    q = tl.load(query + base + rows[:, None] * HEAD + lane[None, :], mask=rows[:, None] < length, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, HEAD), tl.float32)
    if CAUSAL:
        if SKIP:
            # Only the block on the diagonal needs a mask.
            border = tl.program_id(0) * BM // BN * BN
            top, total, out = attend(
                q, top, total, out, key + base, value + base, rows, 0, border, length, scale, HEAD, BN, "none", FILL
            )
            end = tl.minimum((tl.program_id(0) + 1) * BM, length)
            top, total, out = attend(
                q, top, total, out, key + base, value + base, rows, border, end, length, scale, HEAD, BN, "causal", FILL
            )
        else:
            top, total, out = attend(
                q, top, total, out, key + base, value + base, rows, 0, length, length, scale, HEAD, BN, "causal", FILL
            )
    else:
        top, total, out = attend(
            q, top, total, out, key + base, value + base, rows, 0, length, length, scale, HEAD, BN, "length", FILL
        )
    out = out / total[:, None]
    tl.store(statistics + head * length + rows, top + tl.log2(total), mask=rows < length)
    at = output + base + rows[:, None] * HEAD + lane[None, :]
    tl.store(at, out.to(output.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def attention_decode(
    query, key, value, partial, statistics, length, scale, HEAD: tl.constexpr, BN: tl.constexpr, PARTS: tl.constexpr
):
    """One query per head, padded to 16 rows; program (head, part) processes one part of the keys."""
    head = tl.program_id(0)
    part = tl.program_id(1)
    lane = tl.arange(0, HEAD)
    row = tl.arange(0, 16)
    q = tl.load(query + head * HEAD + lane[None, :] + row[:, None] * 0, mask=row[:, None] < 1, other=0.0)
    span = tl.cdiv(tl.cdiv(length, BN), PARTS) * BN
    base = head * length * HEAD
    top = tl.full((16,), -float("inf"), tl.float32)
    total = tl.zeros((16,), tl.float32)
    out = tl.zeros((16, HEAD), tl.float32)
    last = tl.minimum((part + 1) * span, length)
    top, total, out = attend(
        q, top, total, out, key + base, value + base, row, part * span, last, length, scale, HEAD, BN, "length", -1.0e6
    )
    slot = head * PARTS + part
    tl.store(statistics + slot + row, top + tl.log2(total), mask=row < 1)
    tl.store(partial + slot * HEAD + row[:, None] * HEAD + lane[None, :], out / total[:, None], mask=row[:, None] < 1)


@triton.jit
def attention_delta(output, gradient, delta, length, HEAD: tl.constexpr, BM: tl.constexpr):
    row = tl.program_id(1) * length + tl.program_id(0) * BM + tl.arange(0, BM)
    offset = row[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    out = tl.load(output + offset).to(tl.float32)
    slope = tl.load(gradient + offset).to(tl.float32)
    tl.store(delta + row, tl.sum(out * slope, axis=1))


@triton.jit
def attention_key_gradient(
    query,
    key,
    value,
    gradient,
    statistics,
    delta,
    key_gradient,
    value_gradient,
    length,
    scale,
    HEAD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    base = tl.program_id(1) * length * HEAD
    line = tl.program_id(1) * length
    key_row = tl.program_id(0) * BN + tl.arange(0, BN)
    lane = tl.arange(0, HEAD)
    k = tl.load(key + base + key_row[:, None] * HEAD + lane[None, :])
    v = tl.load(value + base + key_row[:, None] * HEAD + lane[None, :])
    dk = tl.zeros((BN, HEAD), tl.float32)
    dv = tl.zeros((BN, HEAD), tl.float32)
    first = (tl.program_id(0) * BN // BM) * BM if CAUSAL else 0
    for start in range(first, length, BM):
        row = start + tl.arange(0, BM)
        q = tl.load(query + base + row[:, None] * HEAD + lane[None, :])
        slope = tl.load(gradient + base + row[:, None] * HEAD + lane[None, :])
        level = tl.load(statistics + line + row)
        weight = tl.exp2(tl.dot(k, tl.trans(q)) * scale - level[None, :])
        if CAUSAL:
            weight = tl.where(row[None, :] >= key_row[:, None], weight, 0.0)
        dv = tl.dot(weight.to(slope.dtype), slope, dv)
        change = weight * (tl.dot(v, tl.trans(slope)) - tl.load(delta + line + row)[None, :])
        dk = tl.dot(change.to(q.dtype), q, dk)
    at = base + key_row[:, None] * HEAD + lane[None, :]
    tl.store(key_gradient + at, (dk * 0.125).to(key_gradient.dtype.element_ty))
    tl.store(value_gradient + at, dv.to(value_gradient.dtype.element_ty))


@triton.jit
def attention_query_gradient(
    query,
    key,
    value,
    gradient,
    statistics,
    delta,
    query_gradient,
    length,
    scale,
    HEAD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    base = tl.program_id(1) * length * HEAD
    line = tl.program_id(1) * length
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    lane = tl.arange(0, HEAD)
    q = tl.load(query + base + row[:, None] * HEAD + lane[None, :])
    slope = tl.load(gradient + base + row[:, None] * HEAD + lane[None, :])
    level = tl.load(statistics + line + row)
    shift = tl.load(delta + line + row)
    dq = tl.zeros((BM, HEAD), tl.float32)
    last = tl.minimum((tl.program_id(0) + 1) * BM, length) if CAUSAL else length
    for start in range(0, last, BN):
        key_row = start + tl.arange(0, BN)
        k = tl.load(key + base + key_row[:, None] * HEAD + lane[None, :])
        v = tl.load(value + base + key_row[:, None] * HEAD + lane[None, :])
        weight = tl.exp2(tl.dot(q, tl.trans(k)) * scale - level[:, None])
        if CAUSAL:
            weight = tl.where(row[:, None] >= key_row[None, :], weight, 0.0)
        change = weight * (tl.dot(slope, tl.trans(v)) - shift[:, None])
        dq = tl.dot(change.to(k.dtype), k, dq)
    tl.store(
        query_gradient + base + row[:, None] * HEAD + lane[None, :], (dq * 0.125).to(query_gradient.dtype.element_ty)
    )


FORWARD_TILES = (
    (32, 32, 4, 2),
    (64, 32, 4, 3),
    (64, 64, 4, 2),
    (128, 32, 4, 2),
    (128, 64, 8, 3),
    (64, 32, 8, 1),
    (32, 64, 2, 2),
    (64, 128, 4, 2),
    (128, 64, 4, 2),
)


def cases() -> tuple[Case, ...]:
    return (*_forward(), *_decode(), *_delta(), *_backward())


def _forward() -> list[Case]:
    found = []
    for causal, skip, fill, dtype, out, head, length in (
        (False, False, -1e6, "fp16", "fp32", 64, 256),
        (False, False, float("-inf"), "bf16", "fp32", 32, 200),
        (False, False, -1e6, "fp16", "fp32", 128, 192),
        (True, False, -1e6, "fp16", "fp32", 64, 256),
        (True, True, -1e6, "fp16", "fp32", 64, 256),
        (True, True, float("-inf"), "bf16", "fp32", 128, 192),
        (True, False, float("-inf"), "fp16", "fp32", 32, 256),
        (False, False, -1e6, "fp32", "fp32", 32, 128),
        (False, False, float("-inf"), "bf16", "bf16", 32, 200),
    ):
        family, group = stored_as("attention_causal" if causal else "attention", dtype, out, f"{head}x{length}-{fill}")
        heads = 2
        size = heads * length * head
        arguments = [
            given("query", dtype, size),
            given("key", dtype, size),
            given("value", dtype, size),
            result("output", out, size),
            result("statistics", "fp32", heads * length),
            *numbers(length=length, scale=LOG2E / head**0.5),
        ]
        tiles = FORWARD_TILES[:4] if dtype == "fp32" else FORWARD_TILES
        for tall, wide, warps, stages in tiles:
            if skip and tall % wide:
                continue
            found.append(
                configure(
                    family,
                    group,
                    attention_forward,
                    arguments,
                    (ceil_div(length, tall), heads),
                    warps=warps,
                    stages=stages,
                    HEAD=head,
                    BM=tall,
                    BN=wide,
                    CAUSAL=causal,
                    FILL=fill,
                    SKIP=skip,
                )
            )
    return found


def _decode() -> list[Case]:
    found = []
    for dtype, head, length, parts in (("fp16", 64, 512, 2), ("bf16", 128, 384, 3)):
        heads = 4
        arguments = [
            given("query", dtype, heads * head),
            given("key", dtype, heads * length * head),
            given("value", dtype, heads * length * head),
            result("partial", "fp32", heads * parts * head),
            result("statistics", "fp32", heads * parts),
            *numbers(length=length, scale=LOG2E / head**0.5),
        ]
        for wide, warps, stages in ((32, 2, 2), (64, 4, 2), (64, 4, 3), (128, 4, 2)):
            found.append(
                configure(
                    "attention_decode",
                    f"{dtype}-{head}x{length}-{parts}",
                    attention_decode,
                    arguments,
                    (heads, parts),
                    warps=warps,
                    stages=stages,
                    HEAD=head,
                    BN=wide,
                    PARTS=parts,
                )
            )
    return found


def _delta() -> list[Case]:
    found = []
    for dtype, head, length in (("fp16", 64, 256), ("bf16", 128, 128)):
        arguments = [
            given("output", dtype, 2 * length * head),
            given("gradient", dtype, 2 * length * head),
            result("delta", "fp32", 2 * length),
            *numbers(length=length),
        ]
        for tall in (16, 32, 64, 128):
            for warps in (2, 4, 8):
                found.append(
                    configure(
                        "attention_delta",
                        f"{dtype}-{head}x{length}",
                        attention_delta,
                        arguments,
                        (length // tall, 2),
                        warps=warps,
                        HEAD=head,
                        BM=tall,
                    )
                )
    return found


def _backward() -> list[Case]:
    found = []
    for dtype, head, length, causal in (("fp16", 64, 256, True), ("bf16", 64, 128, False), ("fp16", 32, 128, True)):
        size = 2 * length * head
        common = [
            given("query", dtype, size),
            given("key", dtype, size),
            given("value", dtype, size),
            given("gradient", dtype, size),
            given("statistics", "fp32", 2 * length, "positive"),
            given("delta", "fp32", 2 * length),
            *numbers(length=length, scale=LOG2E / head**0.5),
        ]
        rest = f"{head}x{length}-{'causal' if causal else 'full'}"
        for tall, wide, warps, stages in (
            (32, 32, 4, 2),
            (32, 64, 4, 2),
            (64, 64, 4, 2),
            (16, 32, 2, 1),
            (32, 128, 8, 2),
            (64, 64, 8, 2),
        ):
            found.append(
                configure(
                    *stored_as("attention_key_gradient", dtype, "fp32", rest),
                    attention_key_gradient,
                    [*common, result("key_gradient", "fp32", size), result("value_gradient", "fp32", size)],
                    (length // wide, 2),
                    warps=warps,
                    stages=stages,
                    HEAD=head,
                    BM=tall,
                    BN=wide,
                    CAUSAL=causal,
                )
            )
            found.append(
                configure(
                    *stored_as("attention_query_gradient", dtype, "fp32", rest),
                    attention_query_gradient,
                    [*common, result("query_gradient", "fp32", size)],
                    (length // wide, 2),
                    warps=warps,
                    stages=stages,
                    HEAD=head,
                    BM=wide,
                    BN=tall,
                    CAUSAL=causal,
                )
            )
    return found
