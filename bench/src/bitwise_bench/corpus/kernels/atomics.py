"""Atomic updates with several contributors: floating-point sums in arrival order, integer sums, minima and maxima."""

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, index, numbers, result, updated


@triton.jit
def atomic_column_sum(source, target, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    values = tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(target + column, tl.sum(values, axis=0), mask=column < columns)


@triton.jit
def atomic_scatter(source, places, target, size, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    values = tl.load(source + position, mask=inside, other=0.0)
    place = tl.load(places + position, mask=inside, other=0)
    tl.atomic_add(target + place, values, mask=inside)


@triton.jit
def atomic_count(places, target, size, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    place = tl.load(places + position, mask=inside, other=0)
    tl.atomic_add(target + place, 1, mask=inside, sem="relaxed")


@triton.jit
def atomic_largest(source, places, target, size, BLOCK: tl.constexpr, KIND: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    values = tl.load(source + position, mask=inside, other=0)
    place = tl.load(places + position, mask=inside, other=0)
    if KIND == "max":
        tl.atomic_max(target + place, values, mask=inside)
    else:
        tl.atomic_min(target + place, values, mask=inside)


@triton.jit
def count_then_sum(source, target, counter, parts, size, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Every program stores its partial sum; the program that increments the counter last adds all of them in order."""
    program = tl.program_id(0)
    position = program * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + position, mask=position < size, other=0.0)
    tl.store(parts + program, tl.sum(values, axis=0))
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem="acq_rel")
    if arrived == PROGRAMS - 1:
        each = tl.load(parts + tl.arange(0, PROGRAMS), cache_modifier=".cg")
        tl.store(target, tl.sum(each, axis=0))


def cases() -> tuple[Case, ...]:
    return (*_sums(), *_counts(), *_extremes(), *_last())


def _sums() -> list[Case]:
    found = []
    for dtype, rows, columns in (("fp32", 256, 64), ("fp16", 200, 96)):
        arguments = [
            given("source", dtype, rows * columns),
            updated("target", "fp32", columns, "zero"),
            *numbers(rows=rows, columns=columns),
        ]
        # A tile of 256 rows leaves one contributor for each column, so the result is deterministic.
        for tall, wide, warps in ((16, 32, 2), (32, 32, 4), (64, 64, 4), (256, 32, 8), (256, 16, 4)):
            found.append(
                configure(
                    "atomic_sum",
                    f"{dtype}-{rows}x{columns}",
                    atomic_column_sum,
                    arguments,
                    (ceil_div(rows, tall), ceil_div(columns, wide)),
                    warps=warps,
                    ROWS=tall,
                    COLUMNS=wide,
                )
            )
    for dtype in ("fp32", "fp16"):
        size, bins = 2000, 16
        arguments = [
            given("source", dtype, size),
            index("places", "i32", size, bins),
            updated("target", dtype, bins, "zero"),
            *numbers(size=size),
        ]
        for block, warps in ((64, 1), (128, 4), (512, 4), (2048, 8)):
            found.append(
                configure(
                    "atomic_scatter",
                    f"{dtype}-{size}-{bins}",
                    atomic_scatter,
                    arguments,
                    (ceil_div(size, block),),
                    warps=warps,
                    BLOCK=block,
                )
            )
    return found


def _counts() -> list[Case]:
    size, bins = 3000, 20
    arguments = [index("places", "i32", size, bins), updated("target", "i32", bins, "zero"), *numbers(size=size)]
    return [
        configure(
            "atomic_count",
            f"{size}-{bins}",
            atomic_count,
            arguments,
            (ceil_div(size, block),),
            warps=warps,
            BLOCK=block,
        )
        for block, warps in ((64, 1), (128, 4), (256, 2), (1024, 8))
    ]


def _extremes() -> list[Case]:
    found = []
    size, bins = 2000, 12
    for kind in ("max", "min"):
        for dtype in ("i32", "fp32"):
            arguments = [
                given("source", dtype, size, "integer" if dtype == "i32" else "float"),
                index("places", "i32", size, bins),
                updated("target", dtype, bins, "zero"),
                *numbers(size=size),
            ]
            for block, warps in ((64, 1), (256, 4), (1024, 8)):
                found.append(
                    configure(
                        f"atomic_{kind}",
                        f"{dtype}-{size}-{bins}",
                        atomic_largest,
                        arguments,
                        (ceil_div(size, block),),
                        warps=warps,
                        BLOCK=block,
                        KIND=kind,
                    )
                )
    return found


def _last() -> list[Case]:
    size, block, programs = 4000, 512, 8
    arguments = [
        given("source", "fp32", size),
        result("target", "fp32", 1),
        updated("counter", "i32", 1, "zero"),
        result("parts", "fp32", programs),
        *numbers(size=size),
    ]
    return [
        configure(
            "count_then_sum",
            f"fp32-{size}",
            count_then_sum,
            arguments,
            (programs,),
            warps=warps,
            BLOCK=block,
            PROGRAMS=programs,
        )
        for warps in (1, 2, 4, 8)
    ]
