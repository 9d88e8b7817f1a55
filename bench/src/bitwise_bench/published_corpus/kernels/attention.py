"""Attention in one pass over the keys, in several orders of the same arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import configure, given, numbers, result
from bitwise_bench.published_corpus.grids import SHARED_BYTES, WIDEST, Extent, Kernel, limited, stored

LENGTH, HEAD = 256, 64


@triton.jit
def flash_attention(
    query,
    key,
    value,
    output,
    length,
    scale,
    HEAD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    SCALE_QUERY: tl.constexpr,
    ADD_LATE: tl.constexpr,
):
    """softmax(scale q k) v of (length, HEAD) operands; `value` is stored as (HEAD, length).

    SCALE_QUERY multiplies the query by `scale`, not the scores.  ADD_LATE adds each product with the values to the
    rescaled sum, and does not start it from there.
    """
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    lane = tl.arange(0, HEAD)
    q = tl.load(query + row[:, None] * HEAD + lane[None, :])
    if SCALE_QUERY:
        q = (q.to(tl.float32) * scale).to(query.dtype.element_ty)
    top = tl.full((BM,), -float("inf"), tl.float32)
    whole = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, HEAD), tl.float32)
    for start in range(0, length, BN):
        column = start + tl.arange(0, BN)
        k = tl.load(key + column[None, :] * HEAD + lane[:, None])
        score = tl.dot(q, k)
        if not SCALE_QUERY:
            score = score * scale
        higher = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        whole = whole * shrink + tl.sum(weight, axis=1)
        v = tl.load(value + lane[None, :] * length + column[:, None])
        if ADD_LATE:
            total = total * shrink[:, None] + tl.dot(weight.to(v.dtype), v)
        else:
            total = tl.dot(weight.to(v.dtype), v, total * shrink[:, None])
        top = higher
    tl.store(output + row[:, None] * HEAD + lane[None, :], total / whole[:, None])


def _flash(dtype: str, target: str, extent: Extent) -> Iterator[Case]:
    """Tiles that fit, with 4 to 64 scores for each thread; reduced: one limit of registers and one order of sums."""
    size = LENGTH * HEAD
    arguments = [
        *(given(name, dtype, size) for name in ("query", "key", "value")),
        result("output", stored(dtype), size),
        *numbers(length=LENGTH, scale=0.18),
    ]
    whole = extent == "whole"
    for bm, bn, warps, stages in product((16, 32, 64), (32, 64, 128, 256), (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)):
        operands = (bm + 2 * bn * stages) * HEAD * WIDEST
        if operands > SHARED_BYTES or not 4 <= bm * bn / (32 * warps) <= 64:
            continue
        for scaled, late, fusion, registers in product(
            (False, True), (False, True) if whole else (False,), (True, False), (None, 128) if whole else (None,)
        ):
            yield configure(
                "flash_attention", dtype, flash_attention, arguments, (LENGTH // bm,), warps=warps, stages=stages,
                options={"enable_fp_fusion": fusion, **limited(registers)}, HEAD=HEAD, BM=bm, BN=bn,
                SCALE_QUERY=scaled, ADD_LATE=late,
            )  # fmt: skip


FLASH = Kernel("flash_attention", _flash)
