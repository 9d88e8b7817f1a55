"""Evaluation of an AttentionGradientDesc on bit patterns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors.attention_gradient import AttentionGradientDesc
from bitwise_core.descriptors.evaluation.attention import LOG2_E
from bitwise_core.descriptors.evaluation.functions import function_of
from bitwise_core.descriptors.evaluation.gemm import evaluate_gemm
from bitwise_core.descriptors.evaluation.operands import convert, fp32, patterns
from bitwise_core.descriptors.evaluation.reductions import evaluate_reduction
from bitwise_core.descriptors.families import single_pass
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.numerics import Bits, operation


@dataclass(frozen=True, slots=True)
class AttentionGradients:
    """Patterns of the gradients of Q (heads, queries, depth), K (keys, depth) and V (keys, width)."""

    query: Bits
    key: Bits
    value: Bits


def evaluate_attention_gradients(
    desc: AttentionGradientDesc,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    output: npt.ArrayLike,
    logarithms: npt.ArrayLike,
    slope: npt.ArrayLike,
    *,
    first_position: int | None = None,
    hardware: Hardware = IEEE,
) -> AttentionGradients:
    """Return the gradients of the heads of one group, for the gradient `slope` of their output.

    q is (heads, queries, depth), k (keys, depth), v (keys, width), `output` and `slope` (heads, queries, width),
    `logarithms` (heads, queries) in fp32, as `attention_result` returns them.  `first_position` is that of
    `evaluate_attention`.  Raises DescriptorError.
    """
    depth, width = desc.scores.k, desc.slopes.k
    queries = patterns("q", q, desc.dtype, (None, None, depth))
    heads, count = queries.shape[:2]
    keys = patterns("k", k, desc.dtype, (None, depth))
    values = patterns("v", v, desc.dtype, (len(keys), width))
    outputs, slopes = (
        patterns(name, each, desc.dtype, (heads, count, width)) for name, each in (("output", output), ("slope", slope))
    )
    shifts = patterns("logarithms", logarithms, "fp32", (heads, count))
    first = len(keys) - count if first_position is None else first_position
    seen = _seen(desc, first + np.arange(count)[:, None], np.arange(len(keys))[None, :])
    weights, changes = [], []
    for head in range(heads):
        weight, change = _probabilities(
            desc, queries[head], keys, values, outputs[head], shifts[head], slopes[head], seen, hardware
        )
        weights.append(weight)
        changes.append(change)
    of_queries = [_chain(desc, change, keys, hardware) for change in changes]
    step = desc.unit.k

    def over_queries(left: list[Bits], right: Bits) -> Bits:
        rows, columns = ([_padded(each, step) for each in side] for side in (left, right))
        if desc.heads == "chained":
            rows, columns = [np.concatenate(rows)], [np.concatenate(columns)]
        found = [
            _chain(desc, np.ascontiguousarray(row.T), column, hardware)
            for row, column in zip(rows, columns, strict=True)
        ]
        return reduce(operation("add.rn.fp32").evaluate, found)

    return AttentionGradients(
        np.stack([_finished(desc, each, desc.scale) for each in of_queries]),
        _finished(desc, over_queries(changes, queries), desc.scale),
        _finished(desc, over_queries(weights, slopes), None),
    )


def _seen(
    desc: AttentionGradientDesc, positions: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    found = np.ones(np.broadcast_shapes(positions.shape, keys.shape), dtype=np.bool_)
    if desc.masking == "causal":
        found = found & (keys <= positions)
    if desc.window is not None:
        found = found & (keys > positions - desc.window)
    return found


def _probabilities(
    desc: AttentionGradientDesc,
    queries: Bits,
    keys: Bits,
    values: Bits,
    output: Bits,
    logarithms: Bits,
    slope: Bits,
    seen: npt.NDArray[np.bool_],
    hardware: Hardware,
) -> tuple[Bits, Bits]:
    """Return P and S of one head (queries, keys), rounded."""
    fused, times, minus, negative = (
        operation(name).evaluate for name in ("fma.rn.fp32", "mul.rn.fp32", "sub.rn.fp32", "neg.fp32")
    )
    power = function_of(desc.exponential, 1, hardware.functions)
    raw = evaluate_gemm(desc.scores, queries, np.ascontiguousarray(keys.T), hardware=hardware)
    shift = negative(times(logarithms[:, None], fp32("log2(e)", LOG2_E)))
    weights = np.where(seen, power(fused(raw, fp32("score_scale", desc.score_scale), shift)), np.uint32(0))
    products = times(convert(output, desc.dtype, "fp32"), convert(slope, desc.dtype, "fp32"))
    less = evaluate_reduction(desc.row_products, products)[:, None]
    slopes = evaluate_gemm(desc.slopes, slope, np.ascontiguousarray(values.T), hardware=hardware)
    changes = np.where(seen, times(weights, minus(slopes, less)), np.uint32(0))
    return convert(weights, "fp32", desc.dtype), convert(changes, "fp32", desc.dtype)


def _padded(rows: Bits, step: int) -> Bits:
    return np.pad(rows, ((0, -len(rows) % step), (0, 0)))


def _chain(desc: AttentionGradientDesc, left: Bits, right: Bits, hardware: Hardware) -> Bits:
    """Return left right as one chain of steps, filled with zeros to whole ones, in fp32."""
    step = desc.unit.k
    right = _padded(right, step)
    left = np.ascontiguousarray(np.pad(left, ((0, 0), (0, len(right) - left.shape[1]))))
    product = single_pass(len(right), desc.dtype, desc.unit, output_dtype="fp32")
    return evaluate_gemm(product, left, right, hardware=hardware)


def _finished(desc: AttentionGradientDesc, found: Bits, scale: float | None) -> Bits:
    found = operation("add.rn.fp32").evaluate(found, np.zeros_like(found))
    if scale is not None:
        found = operation("mul.rn.fp32").evaluate(found, fp32("scale", scale))
    return convert(found, "fp32", desc.dtype)
