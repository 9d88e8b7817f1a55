"""Cumulative sums, and a linear recurrence as an associative scan."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import configure, given, numbers, power_of_two, result


@triton.jit
def scan_sum(source, target, columns, BLOCK: tl.constexpr, BACKWARD: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    values = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + row * columns + position, tl.cumsum(values, axis=0, reverse=BACKWARD), mask=inside)


@triton.jit
def scan_tile(source, target, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    offset = row[:, None] * columns + column[None, :]
    values = tl.load(source + offset, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + offset, tl.cumsum(values, axis=AXIS), mask=inside)


@triton.jit
def combine_recurrence(left_gain, left_value, right_gain, right_value):
    return left_gain * right_gain, left_value * right_gain + right_value


@triton.jit
def scan_recurrence(gains, source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    position = tl.arange(0, BLOCK)
    inside = position < columns
    # Gains near 1: with normal draws the carry between warps decays to nothing.
    gain = 1.0 + 0.03125 * tl.load(gains + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(source + row * columns + position, mask=inside, other=0.0).to(tl.float32)
    _, outcome = tl.associative_scan((gain, value), 0, combine_recurrence)
    tl.store(target + row * columns + position, outcome, mask=inside)


def cases() -> tuple[Case, ...]:
    found = []
    for dtype, rows, columns, backward in (
        ("fp32", 16, 500, False),
        ("fp16", 16, 1024, False),
        ("fp32", 16, 300, True),
    ):
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "fp32", rows * columns),
            *numbers(columns=columns),
        ]
        for block in (power_of_two(columns), 2 * power_of_two(columns)):
            for warps in (1, 4, 8):
                found.append(
                    configure(
                        "scan_sum",
                        f"{dtype}-{rows}x{columns}",
                        scan_sum,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                        BACKWARD=backward,
                    )
                )
    rows, columns = 60, 128
    arguments = [
        given("source", "fp32", rows * columns),
        result("target", "fp32", rows * columns),
        *numbers(rows=rows, columns=columns),
    ]
    for wide, warps in ((16, 1), (16, 4), (32, 4), (64, 8)):
        found.append(
            configure(
                "scan_tile",
                f"fp32-{rows}x{columns}",
                scan_tile,
                arguments,
                (columns // wide,),
                warps=warps,
                ROWS=64,
                COLUMNS=wide,
                AXIS=0,
            )
        )
    for dtype, rows, columns in (("fp32", 16, 256), ("bf16", 16, 700)):
        arguments = [
            given("gains", dtype, rows * columns),
            given("source", dtype, rows * columns),
            result("target", "fp32", rows * columns),
            *numbers(columns=columns),
        ]
        for warps in (1, 2, 4, 8):
            for block in (power_of_two(columns), 2 * power_of_two(columns)):
                found.append(
                    configure(
                        "scan_recurrence",
                        f"near-one-{dtype}-{rows}x{columns}",
                        scan_recurrence,
                        arguments,
                        (rows,),
                        warps=warps,
                        BLOCK=block,
                    )
                )
    return tuple(found)
