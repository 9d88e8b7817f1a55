"""Reductions of two- and three-dimensional tiles along each axis, in one step and in loops."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, power_of_two, result


@triton.jit
def column_sum(source, target, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    values = tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(target + column, tl.sum(values.to(tl.float32), axis=0), mask=column < columns)


@triton.jit
def column_sum_loop(source, target, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EARLY: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    partial = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        values = tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
        if EARLY:
            total += tl.sum(values, axis=0)
        else:
            partial += values
    if not EARLY:
        total = tl.sum(partial, axis=0)
    tl.store(target + column, total, mask=column < columns)


@triton.jit
def row_sum_loop(source, target, columns, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    partial = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        position = start + tl.arange(0, BLOCK)
        values = tl.load(source + row * columns + position, mask=position < columns, other=0.0).to(tl.float32)
        if EARLY:
            total += tl.sum(values, axis=0)
        else:
            partial += values
    if not EARLY:
        total = tl.sum(partial, axis=0)
    tl.store(target + row, total)


@triton.jit
def row_sum_two_level(source, target, columns, span, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    outer = tl.cdiv(columns, span)
    for part in range(outer):
        first = part * span
        last = tl.minimum(first + span, columns)
        partial = tl.zeros((BLOCK,), tl.float32)
        for start in range(first, last, BLOCK):
            position = start + tl.arange(0, BLOCK)
            partial += tl.load(source + row * columns + position, mask=position < last, other=0.0).to(tl.float32)
        total += partial
    tl.store(target + row, tl.sum(total, axis=0))


@triton.jit
def ragged_sum(source, lengths, target, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(lengths + row)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        position = start + tl.arange(0, BLOCK)
        total += tl.load(source + row * stride + position, mask=position < length, other=0.0).to(tl.float32)
    tl.store(target + row, tl.sum(total, axis=0))


@triton.jit
def cube_sum(source, target, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    base = tl.program_id(0)
    i = tl.arange(0, A)
    j = tl.arange(0, B)
    k = tl.arange(0, C)
    offset = i[:, None, None] * (B * C) + j[None, :, None] * C + k[None, None, :]
    values = tl.load(source + base * (A * B * C) + offset).to(tl.float32)
    outcome = tl.sum(values, axis=AXIS)
    if AXIS == 0:
        tl.store(target + base * (B * C) + j[:, None] * C + k[None, :], outcome)
    elif AXIS == 1:
        tl.store(target + base * (A * C) + i[:, None] * C + k[None, :], outcome)
    else:
        tl.store(target + base * (A * B) + i[:, None] * B + j[None, :], outcome)


@triton.jit
def square_sum_all(source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FIRST: tl.constexpr):
    base = tl.program_id(0)
    offset = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(source + base * (ROWS * COLUMNS) + offset).to(tl.float32)
    total = tl.sum(values) if FIRST == 2 else tl.sum(tl.sum(values, axis=FIRST), axis=0)
    tl.store(target + base, total)


@triton.jit
def block_partial_sum(source, target, total, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    position = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + position, mask=position < total, other=0.0).to(tl.float32)
    tl.store(target + block, tl.sum(values, axis=0))


@triton.jit
def gather_partials(source, target, parts, PARTS: tl.constexpr):
    column = tl.program_id(0)
    part = tl.arange(0, PARTS)
    values = tl.load(source + column * parts + part, mask=part < parts, other=0.0)
    tl.store(target + column, tl.sum(values, axis=0))


def cases() -> tuple[Case, ...]:
    return (*_columns(), *_row_loops(), *_ragged(), *_cubes(), *_squares(), *_partials())


def _columns() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp16", 60, 256), ("fp32", 128, 300), ("bf16", 100, 96)):
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "fp32", columns),
            *numbers(rows=rows, columns=columns),
        ]
        for tile in (16, 32, 64):
            for warps in (1, 4, 8):
                found.append(
                    configure(
                        "column_sum",
                        f"{dtype}-{rows}x{columns}",
                        column_sum,
                        arguments,
                        (ceil_div(columns, tile),),
                        warps=warps,
                        ROWS=power_of_two(rows),
                        COLUMNS=tile,
                    )
                )
    for dtype, rows, columns in (("fp32", 300, 128), ("fp16", 500, 200)):
        arguments = [
            given("source", dtype, rows * columns),
            result("target", "fp32", columns),
            *numbers(rows=rows, columns=columns),
        ]
        for early in (False, True):
            for tall, wide in ((16, 64), (64, 32), (32, 128)):
                for warps, stages in ((4, 2), (8, 3), (2, 1)):
                    found.append(
                        configure(
                            "column_sum_loop",
                            f"{dtype}-{rows}x{columns}",
                            column_sum_loop,
                            arguments,
                            (ceil_div(columns, wide),),
                            warps=warps,
                            stages=stages,
                            ROWS=tall,
                            COLUMNS=wide,
                            EARLY=early,
                        )
                    )
    return found


def _row_loops() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp32", 16, 1000), ("fp16", 16, 2900), ("bf16", 24, 700)):
        arguments = [given("source", dtype, rows * columns), result("target", "fp32", rows), *numbers(columns=columns)]
        for early in (False, True):
            for block in (128, 256, 1024):
                for warps, stages in ((1, 1), (4, 3), (8, 2)):
                    found.append(
                        configure(
                            "row_sum_loop",
                            f"{dtype}-{rows}x{columns}",
                            row_sum_loop,
                            arguments,
                            (rows,),
                            warps=warps,
                            stages=stages,
                            BLOCK=block,
                            EARLY=early,
                        )
                    )
    for rows, columns in ((16, 1000), (16, 2500)):
        for span in (300, 512):
            arguments = [
                given("source", "fp32", rows * columns),
                result("target", "fp32", rows),
                *numbers(columns=columns, span=span),
            ]
            for block in (64, 128, 256):
                for warps in (1, 2, 4):
                    found.append(
                        configure(
                            "row_sum_two_level",
                            f"{rows}x{columns}",
                            row_sum_two_level,
                            arguments,
                            (rows,),
                            warps=warps,
                            tags=(f"span={span}",),
                            BLOCK=block,
                        )
                    )
    return found


def _ragged() -> list[Case]:
    arguments = [
        given("source", "fp16", 24 * 600),
        given("lengths", "i32", 24, "index", 600),
        result("target", "fp32", 24),
        *numbers(stride=600),
    ]
    return [
        configure("ragged_sum", "fp16-24x600", ragged_sum, arguments, (24,), warps=warps, BLOCK=block)
        for block in (64, 128, 512)
        for warps in (1, 2, 4)
    ]


def _cubes() -> list[Case]:
    found = []
    for dtype, a, b, c in (("fp32", 8, 16, 32), ("fp16", 16, 4, 64), ("bf16", 4, 32, 16)):
        for axis in (0, 1, 2):
            size = a * b * c // (a, b, c)[axis]
            arguments = [given("source", dtype, 6 * a * b * c), result("target", "fp32", 6 * size)]
            for warps in (1, 2, 4, 8):
                found.append(
                    configure(
                        "cube_sum",
                        f"{dtype}-{a}x{b}x{c}-axis{axis}",
                        cube_sum,
                        arguments,
                        (6,),
                        warps=warps,
                        A=a,
                        B=b,
                        C=c,
                        AXIS=axis,
                    )
                )
    return found


def _squares() -> list[Case]:
    found = []
    for dtype, tall, wide in (("fp32", 32, 64), ("fp16", 16, 128)):
        arguments = [given("source", dtype, 8 * tall * wide), result("target", "fp32", 8)]
        for first in (0, 1, 2):
            for warps in (1, 4, 8):
                found.append(
                    configure(
                        "square_sum",
                        f"{dtype}-{tall}x{wide}",
                        square_sum_all,
                        arguments,
                        (8,),
                        warps=warps,
                        ROWS=tall,
                        COLUMNS=wide,
                        FIRST=first,
                    )
                )
    return found


def _partials() -> list[Case]:
    found = []
    for dtype, total, block in (("fp32", 5000, 512), ("fp16", 9000, 1024)):
        blocks = ceil_div(total, block)
        arguments = [given("source", dtype, total), result("target", "fp32", blocks), *numbers(total=total)]
        for warps in (1, 2, 4, 8):
            found.append(
                configure(
                    "block_partial_sum",
                    f"{dtype}-{total}-{block}",
                    block_partial_sum,
                    arguments,
                    (blocks,),
                    warps=warps,
                    BLOCK=block,
                )
            )
    for columns, parts in ((16, 10), (24, 37)):
        arguments = [given("source", "fp32", columns * parts), result("target", "fp32", columns), *numbers(parts=parts)]
        for wide in (power_of_two(parts), 128):
            for warps in (1, 2, 4):
                found.append(
                    configure(
                        "gather_partials",
                        f"{columns}x{parts}",
                        gather_partials,
                        arguments,
                        (columns,),
                        warps=warps,
                        PARTS=wide,
                    )
                )
    return found
