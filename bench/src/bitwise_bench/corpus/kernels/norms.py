"""Layer and RMS norms forward and backward, and Welford moments."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, power_of_two, result, stored_as


@triton.jit
def layer_norm(
    source, weight, bias, target, means, scales, columns, epsilon, BLOCK: tl.constexpr, CHUNKED: tl.constexpr
):
    row = tl.program_id(0)
    base = row * columns
    position = tl.arange(0, BLOCK)
    if CHUNKED:
        lanes = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            lanes += tl.load(source + base + start + position, mask=start + position < columns, other=0.0).to(
                tl.float32
            )
        mean = tl.sum(lanes, axis=0) / columns
        lanes = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            inside = start + position < columns
            values = tl.load(source + base + start + position, mask=inside, other=0.0).to(tl.float32)
            centred = tl.where(inside, values - mean, 0.0)
            lanes += centred * centred
        variance = tl.sum(lanes, axis=0) / columns
    else:
        inside = position < columns
        values = tl.load(source + base + position, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(values, axis=0) / columns
        centred = tl.where(inside, values - mean, 0.0)
        variance = tl.sum(centred * centred, axis=0) / columns
    scale = 1.0 / tl.sqrt(variance + epsilon)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    for start in range(0, columns, BLOCK):
        inside = start + position < columns
        values = tl.load(source + base + start + position, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + start + position, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(bias + start + position, mask=inside, other=0.0).to(tl.float32)
        tl.store(target + base + start + position, (values - mean) * scale * w + b, mask=inside)


@triton.jit
def layer_norm_input_gradient(gradient, source, weight, means, scales, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    values = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(gradient + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + position, mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(means + row)
    scale = tl.load(scales + row)
    hat = tl.where(inside, (values - mean) * scale, 0.0)
    weighted = tl.where(inside, w * slope, 0.0)
    first = tl.sum(hat * weighted, axis=0) / columns
    second = tl.sum(weighted, axis=0) / columns
    tl.store(target + row * columns + position, (weighted - (hat * first + second)) * scale, mask=inside)


@triton.jit
def layer_norm_weight_gradient(
    gradient,
    source,
    means,
    scales,
    weight_parts,
    bias_parts,
    rows,
    columns,
    share,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Program (i, j) sums block j of the columns over block i of the rows; a second kernel adds the partial sums."""
    part = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    weight_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    bias_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, share, ROWS):
        row = part * share + start + tl.arange(0, ROWS)
        known = (start + tl.arange(0, ROWS) < share) & (row < rows)
        inside = known[:, None] & (column[None, :] < columns)
        values = tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(gradient + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(means + row, mask=known, other=0.0)
        scale = tl.load(scales + row, mask=known, other=0.0)
        weight_sum += slope * ((values - mean[:, None]) * scale[:, None])
        bias_sum += slope
    tl.store(weight_parts + part * columns + column, tl.sum(weight_sum, axis=0), mask=column < columns)
    tl.store(bias_parts + part * columns + column, tl.sum(bias_sum, axis=0), mask=column < columns)


@triton.jit
def rms_norm(source, weight, target, rows, columns, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    position = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (position[None, :] < columns)
    offset = row[:, None] * columns + position[None, :]
    values = tl.load(source + offset, mask=inside, other=0.0).to(tl.float32)
    mean_square = tl.sum(values * values, axis=1) / columns
    scale = tl.rsqrt(mean_square + epsilon)
    w = tl.load(weight + position, mask=position < columns, other=0.0).to(tl.float32)
    tl.store(target + offset, (values * scale[:, None] * w[None, :]).to(target.dtype.element_ty), mask=inside)


@triton.jit
def merge_moments(left_mean, left_square, left_weight, right_mean, right_square, right_weight):
    delta = right_mean - left_mean
    weight = left_weight + right_weight
    ratio = tl.where(weight == 0.0, 0.0, right_weight / weight)
    return (
        left_mean + delta * ratio,
        left_square + right_square + delta * delta * left_weight * ratio,
        weight,
    )


@triton.jit
def welford_row(source, means, variances, columns, BLOCK: tl.constexpr, CHUNKED: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    if CHUNKED:
        mean = tl.zeros((BLOCK,), tl.float32)
        square = tl.zeros((BLOCK,), tl.float32)
        weight = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            inside = start + position < columns
            values = tl.load(source + row * columns + start + position, mask=inside, other=0.0).to(tl.float32)
            next_weight = weight + 1.0
            delta = values - mean
            next_mean = mean + delta / next_weight
            next_square = square + delta * (values - next_mean)
            mean = tl.where(inside, next_mean, mean)
            square = tl.where(inside, next_square, square)
            weight = tl.where(inside, next_weight, weight)
    else:
        inside = position < columns
        mean = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
        square = tl.zeros((BLOCK,), tl.float32)
        weight = inside.to(tl.float32)
    final_mean, final_square, final_weight = tl.reduce((mean, square, weight), 0, merge_moments)
    tl.store(means + row, final_mean)
    tl.store(variances + row, final_square / final_weight)


def cases() -> tuple[Case, ...]:
    return (*_layers(), *_input_gradients(), *_weight_gradients(), *_rms(), *_welfords())


def _layers() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 16, 768), ("fp32", 16, 500), ("bf16", 16, 1152)):
        family, group = stored_as("layer_norm", dtype, "fp32", f"{rows}x{columns}")
        arguments = [
            given("source", dtype, rows * columns),
            given("weight", dtype, columns),
            given("bias", dtype, columns),
            result("target", "fp32", rows * columns),
            result("means", "fp32", rows),
            result("scales", "fp32", rows),
            *numbers(columns=columns, epsilon=1e-5),
        ]
        for block, chunked in ((power_of_two(columns), False), (256, True)):
            for warps in (1, 4, 8):
                for fusion in (True, False):
                    found.append(
                        configure(
                            family,
                            group,
                            layer_norm,
                            arguments,
                            (rows,),
                            warps=warps,
                            options={"enable_fp_fusion": fusion},
                            BLOCK=block,
                            CHUNKED=chunked,
                        )
                    )
    return found


def _input_gradients() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 16, 512), ("fp32", 16, 700)):
        family, group = stored_as("layer_norm_input_gradient", dtype, "fp32", f"{rows}x{columns}")
        arguments = [
            given("gradient", dtype, rows * columns),
            given("source", dtype, rows * columns),
            given("weight", dtype, columns),
            given("means", "fp32", rows),
            given("scales", "fp32", rows),
            result("target", "fp32", rows * columns),
            *numbers(columns=columns),
        ]
        for warps in (1, 2, 4, 8):
            for fusion in (True, False):
                found.append(
                    configure(
                        family,
                        group,
                        layer_norm_input_gradient,
                        arguments,
                        (rows,),
                        warps=warps,
                        options={"enable_fp_fusion": fusion},
                        BLOCK=power_of_two(columns),
                    )
                )
    return found


def _weight_gradients() -> list[Case]:
    found = []
    for dtype, rows, columns, parts in (("fp16", 60, 256, 4), ("fp32", 64, 200, 2)):
        arguments = [
            given("gradient", dtype, rows * columns),
            given("source", dtype, rows * columns),
            given("means", "fp32", rows),
            given("scales", "fp32", rows),
            result("weight_parts", "fp32", parts * columns),
            result("bias_parts", "fp32", parts * columns),
            *numbers(rows=rows, columns=columns, share=ceil_div(rows, parts)),
        ]
        for tall, wide, warps in ((8, 64, 2), (16, 64, 4), (32, 32, 4), (16, 128, 8)):
            for fusion in (True, False):
                found.append(
                    configure(
                        "layer_norm_weight_gradient",
                        f"{dtype}-{rows}x{columns}",
                        layer_norm_weight_gradient,
                        arguments,
                        (parts, ceil_div(columns, wide)),
                        warps=warps,
                        stages=2,
                        options={"enable_fp_fusion": fusion},
                        ROWS=tall,
                        COLUMNS=wide,
                    )
                )
    return found


def _rms() -> list[Case]:
    found = []
    for dtype, out, rows, columns in (
        ("fp16", "fp32", 24, 640),
        ("bf16", "fp32", 20, 1024),
        ("fp32", "fp32", 20, 300),
        ("bf16", "bf16", 20, 1024),
    ):
        family, group = stored_as("rms_norm", dtype, out, f"{rows}x{columns}")
        arguments = [
            given("source", dtype, rows * columns),
            given("weight", dtype, columns),
            result("target", out, rows * columns),
            *numbers(rows=rows, columns=columns, epsilon=1e-6),
        ]
        for tile, warps in ((1, 1), (1, 4), (1, 8), (4, 4), (4, 8)):
            for fusion in (True, False):
                found.append(
                    configure(
                        family,
                        group,
                        rms_norm,
                        arguments,
                        (ceil_div(rows, tile),),
                        warps=warps,
                        options={"enable_fp_fusion": fusion},
                        ROWS=tile,
                        BLOCK=power_of_two(columns),
                    )
                )
    return found


def _welfords() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp32", 16, 600), ("fp16", 16, 1000), ("bf16", 16, 512)):
        arguments = [
            given("source", dtype, rows * columns),
            result("means", "fp32", rows),
            result("variances", "fp32", rows),
            *numbers(columns=columns),
        ]
        least = power_of_two(columns)
        for block, chunked, warps in (
            (least, False, 1),
            (least, False, 4),
            (least, False, 8),
            (2 * least, False, 4),
            (128, True, 1),
            (128, True, 4),
            (256, True, 4),
            (256, True, 8),
        ):
            found.append(
                configure(
                    "welford",
                    f"{dtype}-{rows}x{columns}",
                    welford_row,
                    arguments,
                    (rows,),
                    warps=warps,
                    BLOCK=block,
                    CHUNKED=chunked,
                )
            )
    return found
