"""Softmax with one block, several rows per block and chunked rows; log-sum-exp; cross-entropy; argmin and argmax."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import (
    ceil_div,
    configure,
    given,
    index,
    numbers,
    power_of_two,
    result,
    stored_as,
)


@triton.jit
def softmax_row(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    values = tl.load(source + row * columns + position, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(values - tl.max(values, axis=0))
    share = power / tl.sum(power, axis=0)
    tl.store(target + row * columns + position, share.to(target.dtype.element_ty), mask=inside)


@triton.jit
def softmax_rows(source, target, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    position = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (position[None, :] < columns)
    offset = row[:, None] * columns + position[None, :]
    values = tl.load(source + offset, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(values, axis=1)
    power = tl.exp2((values - top[:, None]) * 1.4426950408889634)
    power = tl.where(position[None, :] < columns, power, 0.0)
    share = power / tl.sum(power, axis=1)[:, None]
    tl.store(target + offset, share.to(target.dtype.element_ty), mask=inside)


@triton.jit
def softmax_online(source, target, columns, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """One pass for maximum and sum, kept per lane (LANES) or per row, and one pass that writes."""
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    if LANES:
        top = tl.full((BLOCK,), -1.0e30, tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            inside = start + position < columns
            values = tl.load(source + row * columns + start + position, mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, values)
            total = total * tl.exp(top - higher) + tl.exp(values - higher)
            top = higher
        highest = tl.max(top, axis=0)
        whole = tl.sum(total * tl.exp(top - highest), axis=0)
    else:
        highest = -1.0e30
        whole = 0.0
        for start in range(0, columns, BLOCK):
            inside = start + position < columns
            values = tl.load(source + row * columns + start + position, mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(highest, tl.max(values, axis=0))
            whole = whole * tl.exp(highest - higher) + tl.sum(tl.exp(values - higher), axis=0)
            highest = higher
    for start in range(0, columns, BLOCK):
        inside = start + position < columns
        values = tl.load(source + row * columns + start + position, mask=inside, other=0.0).to(tl.float32)
        share = tl.exp(values - highest) / whole
        tl.store(target + row * columns + start + position, share.to(target.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward(output, gradient, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    share = tl.load(output + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(gradient + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    weighted = tl.sum(share * slope, axis=0)
    tl.store(target + row * columns + position, share * (slope - weighted), mask=inside)


@triton.jit
def log_sum_exp(source, target, columns, BLOCK: tl.constexpr, CHUNKED: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    if CHUNKED:
        top = -float("inf")
        for start in range(0, columns, BLOCK):
            values = tl.load(
                source + row * columns + start + position, mask=start + position < columns, other=-float("inf")
            )
            top = tl.maximum(top, tl.max(values.to(tl.float32), axis=0))
        total = 0.0
        for start in range(0, columns, BLOCK):
            values = tl.load(
                source + row * columns + start + position, mask=start + position < columns, other=-float("inf")
            )
            total += tl.sum(tl.exp(values.to(tl.float32) - top), axis=0)
    else:
        values = tl.load(source + row * columns + position, mask=position < columns, other=-float("inf")).to(tl.float32)
        top = tl.max(values, axis=0)
        total = tl.sum(tl.exp(values - top), axis=0)
    tl.store(target + row, top + tl.log(total))


@triton.jit
def cross_entropy(logits, labels, loss, gradient, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    label = tl.load(labels + row)
    values = tl.load(logits + row * columns + position, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(values, axis=0)
    total = tl.sum(tl.exp(values - top), axis=0)
    chosen = tl.load(logits + row * columns + label).to(tl.float32)
    tl.store(loss + row, tl.log(total) + top - chosen)
    share = tl.exp(values - top) / total
    share = tl.where(position == label, share - 1.0, share)
    tl.store(gradient + row * columns + position, share.to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def arg_extreme(source, places, target, columns, BLOCK: tl.constexpr, KIND: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    if KIND == "max":
        values = tl.load(source + row * columns + position, mask=inside, other=-float("inf"))
        best, place = tl.max(values, axis=0, return_indices=True)
    else:
        values = tl.load(source + row * columns + position, mask=inside, other=float("inf"))
        best, place = tl.min(values, axis=0, return_indices=True)
    tl.store(places + row, place)
    tl.store(target + row, best)


def cases() -> tuple[Case, ...]:
    return (*_softmaxes(), *_backward(), *_log_sums(), *_entropies(), *_extremes())


def _softmaxes() -> list[Case]:
    found = []
    for dtype, out, rows, columns in (
        ("fp16", "fp32", 16, 700),
        ("fp32", "fp32", 16, 1024),
        ("bf16", "fp32", 24, 300),
        ("fp32", "fp32", 16, 1823),
        ("fp16", "fp16", 16, 700),
    ):
        family, group = stored_as("softmax_row", dtype, out, f"{rows}x{columns}")
        arguments = [
            given("source", dtype, rows * columns),
            result("target", out, rows * columns),
            *numbers(columns=columns),
        ]
        least = power_of_two(columns)
        for block, warps in ((least, 1), (least, 2), (least, 4), (least, 8), (2 * least, 4)):
            found.append(
                configure(
                    family,
                    group,
                    softmax_row,
                    arguments,
                    (rows,),
                    warps=warps,
                    BLOCK=block,
                )
            )
    for dtype, rows, columns in (("fp16", 40, 128), ("fp32", 36, 200)):
        family, group = stored_as("softmax_rows", dtype, "fp32", f"{rows}x{columns}")
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "fp32", rows * columns),
            *numbers(rows=rows, columns=columns),
        ]
        for tile in (1, 4, 16):
            for warps in (1, 4, 8):
                found.append(
                    configure(
                        family,
                        group,
                        softmax_rows,
                        arguments,
                        (ceil_div(rows, tile),),
                        warps=warps,
                        ROWS=tile,
                        BLOCK=power_of_two(columns),
                    )
                )
    for dtype, rows, columns in (("fp32", 16, 1500), ("fp16", 16, 900)):
        family, group = stored_as("softmax_online", dtype, "fp32", f"{rows}x{columns}")
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "fp32", rows * columns),
            *numbers(columns=columns),
        ]
        for lanes in (False, True):
            for block, warps, stages in ((128, 1, 3), (256, 4, 2), (512, 4, 3), (1024, 8, 1)):
                found.append(
                    configure(
                        family,
                        group,
                        softmax_online,
                        arguments,
                        (rows,),
                        warps=warps,
                        stages=stages,
                        BLOCK=block,
                        LANES=lanes,
                    )
                )
    return found


def _backward() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 16, 640), ("fp32", 16, 333)):
        arguments = [
            given("output", dtype, rows * columns),
            given("gradient", dtype, rows * columns),
            result("target", "fp32", rows * columns),
            *numbers(columns=columns),
        ]
        for warps in (1, 4, 8):
            for fusion in (True, False):
                found.append(
                    configure(
                        "softmax_backward",
                        f"{dtype}-{rows}x{columns}",
                        softmax_backward,
                        arguments,
                        (rows,),
                        warps=warps,
                        options={"enable_fp_fusion": fusion},
                        BLOCK=power_of_two(columns),
                    )
                )
    return found


def _log_sums() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp32", 16, 1000), ("bf16", 16, 450)):
        arguments = [given("source", dtype, rows * columns), result("target", "fp32", rows), *numbers(columns=columns)]
        least = power_of_two(columns)
        for block, chunked in ((least, False), (2 * least, False), (128, True), (256, True)):
            for warps in (1, 4):
                found.append(
                    configure(
                        "log_sum_exp",
                        f"{dtype}-{rows}x{columns}",
                        log_sum_exp,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                        CHUNKED=chunked,
                    )
                )
    return found


def _entropies() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 16, 1000), ("fp32", 24, 500)):
        family, group = stored_as("cross_entropy", dtype, "fp32", f"{rows}x{columns}")
        arguments = [
            given("logits", dtype, rows * columns),
            index("labels", "i64", rows, columns),
            result("loss", "fp32", rows),
            result("gradient", "fp32", rows * columns),
            *numbers(columns=columns),
        ]
        for warps in (1, 2, 4, 8):
            for block in (power_of_two(columns), 2 * power_of_two(columns)):
                found.append(
                    configure(
                        family,
                        group,
                        cross_entropy,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                    )
                )
    return found


def _extremes() -> list[Case]:
    found = []
    for kind in ("max", "min"):
        for dtype, rows, columns in (("fp32", 16, 700), ("fp16", 24, 300)):
            arguments = [
                given("source", dtype, rows * columns),
                result("places", "i32", rows),
                result("target", dtype, rows),
                *numbers(columns=columns),
            ]
            for warps in (1, 2, 4, 8):
                found.append(
                    configure(
                        f"arg_{kind}",
                        f"{dtype}-{rows}x{columns}",
                        arg_extreme,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=power_of_two(columns),
                        KIND=kind,
                    )
                )
    return found
