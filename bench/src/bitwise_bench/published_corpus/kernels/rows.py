"""Softmaxes, norms, losses, their gradients and scans: kernels over rows."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument
from bitwise_bench.corpus.configurations import ceil_div, given, index, numbers, result
from bitwise_bench.corpus.kernels.norms import (
    layer_norm_input_gradient,
    layer_norm_weight_gradient,
    rms_norm,
    welford_row,
)
from bitwise_bench.corpus.kernels.scans import scan_sum, scan_tile
from bitwise_bench.corpus.kernels.softmaxes import (
    cross_entropy,
    log_sum_exp,
    softmax_backward,
    softmax_online,
    softmax_row,
)
from bitwise_bench.published_corpus.grids import SUM, Kernel
from bitwise_bench.published_corpus.kernels.reductions import reduction

ROWS, COLUMNS = 8, 1000


@triton.jit
def layer_norm_row(source, weight, bias, target, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    values = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    w = tl.load(weight + position, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + position, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + row * columns + position, centred * scale * w + b, mask=inside)


@triton.jit
def unit_row(source, target, columns, epsilon, BLOCK: tl.constexpr):
    """A row divided by its Euclidean length."""
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    values = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(values * values, axis=0))
    tl.store(target + row * columns + position, values / tl.maximum(length, epsilon), mask=inside)


def _rows(dtype: str) -> list[Argument]:
    return [
        given("source", dtype, ROWS * COLUMNS),
        result("target", SUM, ROWS * COLUMNS),
        *numbers(columns=COLUMNS),
    ]


def _layers(dtype: str) -> list[Argument]:
    parameters = [given("weight", dtype, COLUMNS), given("bias", dtype, COLUMNS)]
    return [*_rows(dtype), *parameters, *numbers(epsilon=1e-5)]


def _weighted(dtype: str) -> list[Argument]:
    return [*_rows(dtype), given("weight", dtype, COLUMNS), *numbers(rows=ROWS, epsilon=1e-5)]


def _lengths(dtype: str) -> list[Argument]:
    return [*_rows(dtype), *numbers(epsilon=1e-6)]


def _pairs(dtype: str) -> list[Argument]:
    return [
        given("output", dtype, ROWS * COLUMNS),
        given("gradient", dtype, ROWS * COLUMNS),
        result("target", SUM, ROWS * COLUMNS),
        *numbers(columns=COLUMNS),
    ]


def _scalars(dtype: str) -> list[Argument]:
    return [given("source", dtype, ROWS * COLUMNS), result("target", SUM, ROWS), *numbers(columns=COLUMNS)]


def _labels(dtype: str) -> list[Argument]:
    return [
        given("logits", dtype, ROWS * COLUMNS),
        index("labels", "i32", ROWS, COLUMNS),
        result("loss", SUM, ROWS),
        result("gradient", SUM, ROWS * COLUMNS),
        *numbers(columns=COLUMNS),
    ]


def _moments(dtype: str) -> list[Argument]:
    outputs = [result("means", SUM, ROWS), result("variances", SUM, ROWS)]
    return [given("source", dtype, ROWS * COLUMNS), *outputs, *numbers(columns=COLUMNS)]


def _statistics(rows: int) -> list[Argument]:
    return [given("means", "fp32", rows), given("scales", "fp32", rows)]


def _input_gradient(dtype: str) -> list[Argument]:
    return [
        *_rows(dtype),
        given("gradient", dtype, ROWS * COLUMNS),
        given("weight", dtype, COLUMNS),
        *_statistics(ROWS),
    ]


TALL, WIDE, PARTS = 64, 128, 2


def _weight_gradient(dtype: str) -> list[Argument]:
    return [
        given("gradient", dtype, TALL * WIDE),
        given("source", dtype, TALL * WIDE),
        *_statistics(TALL),
        result("weight_parts", SUM, PARTS * WIDE),
        result("bias_parts", SUM, PARTS * WIDE),
        *numbers(rows=TALL, columns=WIDE, share=TALL // PARTS),
    ]


def _tile(dtype: str) -> list[Argument]:
    return [
        given("source", dtype, TALL * WIDE),
        result("target", SUM, TALL * WIDE),
        *numbers(rows=TALL, columns=WIDE),
    ]


def _blocks(*sizes: int) -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    return [({"BLOCK": size}, (ROWS,)) for size in sizes]


_WHOLE = _blocks(1024, 2048, 4096)
_PARTS = _blocks(128, 256, 512)

SOFTMAX = reduction("softmax", softmax_row, _rows, _WHOLE)
LAYER_NORM = reduction("layernorm", layer_norm_row, _layers, _WHOLE)
RMS_NORM = reduction(
    "rmsnorm", rms_norm, _weighted, [({"ROWS": 1, "BLOCK": size}, (ROWS,)) for size in (1024, 2048, 4096)]
)

OTHERS: tuple[Kernel, ...] = (
    reduction("softmax_online", softmax_online, _rows, _PARTS, LANES=False),
    reduction("softmax_online_lanes", softmax_online, _rows, _PARTS, LANES=True),
    reduction("softmax_backward", softmax_backward, _pairs, _WHOLE),
    reduction("log_sum_exp", log_sum_exp, _scalars, _PARTS, CHUNKED=True),
    reduction("cross_entropy", cross_entropy, _labels, _WHOLE),
    reduction("layer_norm_input_gradient", layer_norm_input_gradient, _input_gradient, _WHOLE),
    reduction(
        "layer_norm_weight_gradient",
        layer_norm_weight_gradient,
        _weight_gradient,
        [({"ROWS": tall, "COLUMNS": 32}, (PARTS, ceil_div(WIDE, 32))) for tall in (8, 16, 32)],
    ),
    reduction("welford", welford_row, _moments, _PARTS, CHUNKED=True),
    reduction("unit_row", unit_row, _lengths, _WHOLE),
    reduction("scan_row", scan_sum, _rows, _WHOLE, BACKWARD=False),
    reduction(
        "scan_column",
        scan_tile,
        _tile,
        [({"ROWS": TALL, "COLUMNS": wide}, (ceil_div(WIDE, wide),)) for wide in (8, 16, 32)],
        AXIS=0,
    ),
)
