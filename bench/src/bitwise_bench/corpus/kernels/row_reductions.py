"""Reductions of a row by one program: sums, products, minima, maxima and means, in several block shapes."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, power_of_two, result


@triton.jit
def row_sum(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + position, mask=position < columns, other=0.0)
    total = tl.sum(values.to(tl.float32), axis=0)
    tl.store(target + row, total)


@triton.jit
def row_sum_narrow(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + position, mask=position < columns, other=0.0)
    tl.store(target + row, tl.sum(values, axis=0))


@triton.jit
def multiply(left, right):
    return left * right


@triton.jit
def row_extreme(source, target, columns, BLOCK: tl.constexpr, KIND: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    address = source + row * columns + position
    if KIND == "max":
        outcome = tl.max(tl.load(address, mask=inside, other=-float("inf")), axis=0)
    elif KIND == "min":
        outcome = tl.min(tl.load(address, mask=inside, other=float("inf")), axis=0)
    elif KIND == "product":
        # Factors near 1, since a product of normal draws underflows in every order.
        values = tl.load(address, mask=inside, other=0.0).to(tl.float32)
        outcome = tl.reduce(1.0 + 0.03125 * values, 0, multiply)
    else:
        outcome = tl.sum(tl.load(address, mask=inside, other=0.0).to(tl.float32), axis=0) / columns
    tl.store(target + row, outcome)


@triton.jit
def rows_sum(source, target, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    position = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (position[None, :] < columns)
    values = tl.load(source + row[:, None] * columns + position[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(target + row, tl.sum(values, axis=1), mask=row < rows)


@triton.jit
def tail_sum(source, target, columns, BLOCK: tl.constexpr, KIND: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    values = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    if KIND == "exponential":
        values = tl.where(inside, tl.exp(values), 0.0)
    elif KIND == "square":
        values = values * values
    elif KIND == "shifted":
        values = tl.where(inside, values - 0.75, 0.0)
    else:
        values = tl.abs(values)
    tl.store(target + row, tl.sum(values, axis=0))


@triton.jit
def row_sum_fp64(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + position, mask=position < columns, other=0.0)
    tl.store(target + row, tl.sum(values.to(tl.float64), axis=0))


def cases() -> tuple[Case, ...]:
    return (*_row_sums(), *_extremes(), *_tiles(), *_tails(), *_doubles())


def _row_sums() -> list[Case]:
    found = []
    for dtype, rows, columns in (
        ("fp16", 24, 300),
        ("fp16", 16, 1000),
        ("bf16", 20, 777),
        ("bf16", 16, 2048),
        ("fp32", 16, 512),
        ("fp32", 24, 1000),
        ("fp32", 16, 3000),
    ):
        arguments = [given("source", dtype, rows * columns), result("target", "fp32", rows), *numbers(columns=columns)]
        least = power_of_two(columns)
        for block in (least, 2 * least):
            for warps in (1, 2, 4, 8):
                found.append(
                    configure(
                        "row_sum", f"{dtype}-{rows}x{columns}", row_sum, arguments, (rows,), warps=warps, BLOCK=block
                    )
                )
    for dtype, rows, columns in (("fp16", 16, 500), ("bf16", 16, 900)):
        arguments = [given("source", dtype, rows * columns), result("target", dtype, rows), *numbers(columns=columns)]
        for warps in (1, 2, 4, 8):
            found.append(
                configure(
                    "row_sum",
                    f"narrow-{dtype}-{rows}x{columns}",
                    row_sum_narrow,
                    arguments,
                    (rows,),
                    warps=warps,
                    BLOCK=power_of_two(columns),
                )
            )
    # An unaligned pointer and an odd row length prevent vector loads.
    arguments = [given("source", "fp16", 16 * 999, offset=1), result("target", "fp32", 16), *numbers(columns=999)]
    for warps in (1, 4, 8):
        found.append(configure("row_sum", "offset-fp16-16x999", row_sum, arguments, (16,), warps=warps, BLOCK=1024))
    return found


def _extremes() -> list[Case]:
    found = []
    for kind in ("max", "min", "product", "mean"):
        for dtype, rows, columns in (("fp16", 16, 600), ("fp32", 24, 1500), ("bf16", 16, 320)):
            out = dtype if kind in ("max", "min") else "fp32"
            arguments = [given("source", dtype, rows * columns), result("target", out, rows), *numbers(columns=columns)]
            least = power_of_two(columns)
            group = f"{dtype}-{rows}x{columns}"
            for block, warps in ((least, 1), (least, 4), (least, 8), (2 * least, 2)):
                found.append(
                    configure(
                        f"row_{kind}",
                        f"near-one-{group}" if kind == "product" else group,
                        row_extreme,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                        KIND=kind,
                    )
                )
    return found


def _tiles() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 48, 256), ("fp32", 40, 300), ("bf16", 33, 520), ("fp32", 64, 128)):
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "fp32", rows),
            *numbers(rows=rows, columns=columns),
        ]
        for tile in (1, 4, 8, 16):
            for warps in (2, 4, 8):
                found.append(
                    configure(
                        "rows_sum",
                        f"{dtype}-{rows}x{columns}",
                        rows_sum,
                        arguments,
                        (ceil_div(rows, tile),),
                        warps=warps,
                        ROWS=tile,
                        BLOCK=power_of_two(columns),
                    )
                )
    return found


def _tails() -> list[Case]:
    found = []
    for kind in ("exponential", "square", "shifted", "absolute"):
        for rows, columns in ((16, 300), (16, 1100)):
            arguments = [
                given("source", "fp32", rows * columns),
                result("target", "fp32", rows),
                *numbers(columns=columns),
            ]
            least = power_of_two(columns)
            for block in (least, 4 * least):
                for warps in (2, 8):
                    found.append(
                        configure(
                            "tail_sum",
                            f"{kind}-{rows}x{columns}",
                            tail_sum,
                            arguments,
                            (rows,),
                            warps=warps,
                            BLOCK=block,
                            KIND=kind,
                        )
                    )
    return found


def _doubles() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp64", 16, 400), ("fp32", 16, 1000)):
        arguments = [given("source", dtype, rows * columns), result("target", "fp64", rows), *numbers(columns=columns)]
        for warps in (1, 2, 4, 8):
            for block in (power_of_two(columns), 2 * power_of_two(columns)):
                found.append(
                    configure(
                        "row_sum_fp64",
                        f"{dtype}-{rows}x{columns}",
                        row_sum_fp64,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                    )
                )
    return found
