"""Matrix products whose k axis is divided between programs: split-K, stream-K, and their reductions."""
# ruff: noqa: PERF401  (configurations read better as nested loops)

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Case
from bitwise_bench.corpus.configurations import ceil_div, configure, given, numbers, result, scratch, updated


@triton.jit
def split_k_partial(
    a,
    b,
    workspace,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    STRIDED: tl.constexpr,
):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    total = tl.zeros((BM, BN), tl.float32)
    if STRIDED:
        for start in range(part * BK, k, BK * SPLIT):
            inner = start + tl.arange(0, BK)
            left = tl.load(
                a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0
            )
            right = tl.load(
                b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
            )
            total = tl.dot(left, right, total)
    else:
        span = tl.cdiv(tl.cdiv(k, BK), SPLIT) * BK
        last = tl.minimum((part + 1) * span, k)
        for start in range(part * span, last, BK):
            inner = start + tl.arange(0, BK)
            left = tl.load(
                a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < last), other=0.0
            )
            right = tl.load(
                b + inner[:, None] * n + column[None, :],
                mask=(inner[:, None] < last) & (column[None, :] < n),
                other=0.0,
            )
            total = tl.dot(left, right, total)
    at = workspace + part * m * n + row[:, None] * n + column[None, :]
    tl.store(at, total, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def split_k_reduce(workspace, c, size, SPLIT: tl.constexpr, BLOCK: tl.constexpr, TREE: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < size
    if TREE:
        part = tl.arange(0, SPLIT)
        values = tl.load(workspace + part[:, None] * size + position[None, :], mask=inside[None, :], other=0.0)
        total = tl.sum(values, axis=0)
    else:
        total = tl.zeros((BLOCK,), tl.float32)
        for part in range(SPLIT):
            total += tl.load(workspace + part * size + position, mask=inside, other=0.0)
    tl.store(c + position, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def split_k_atomic(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, k, BK * SPLIT):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total)
    at = c + row[:, None] * n + column[None, :]
    tl.atomic_add(at, total, mask=(row[:, None] < m) & (column[None, :] < n), sem="relaxed")


@triton.jit
def stream_k_partial(a, b, c, workspace, m, n, k, share, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program runs `share` consecutive iterations of all tiles; partial tiles go to the workspace."""
    program = tl.program_id(0)
    turns = tl.cdiv(k, BK)
    across = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * across
    here = program * share
    stop = tl.minimum(here + share, tiles * turns)
    piece = 0
    while here < stop:
        tile = here // turns
        end = tl.minimum((tile + 1) * turns, stop)
        row = (tile // across) * BM + tl.arange(0, BM)
        column = (tile % across) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for turn in range(here - tile * turns, end - tile * turns):
            inner = turn * BK + tl.arange(0, BK)
            left = tl.load(
                a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0
            )
            right = tl.load(
                b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
            )
            total = tl.dot(left, right, total)
        whole = (here == tile * turns) & (end == (tile + 1) * turns)
        if whole:
            at = c + row[:, None] * n + column[None, :]
            tl.store(at, total, mask=(row[:, None] < m) & (column[None, :] < n))
        else:
            slot = program * 2 + tl.minimum(piece, 1)
            at = workspace + slot * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
            tl.store(at, total)
        piece += 1
        here = end


@triton.jit
def stream_k_fixup(workspace, c, m, n, turns, share, BM: tl.constexpr, BN: tl.constexpr):
    tile = tl.program_id(0)
    across = tl.cdiv(n, BN)
    first = tile * turns // share
    last = ((tile + 1) * turns - 1) // share
    offset = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for program in range(first, last + 1):
        # The second slot holds a tile other than the one that the program's share starts with.
        slot = program * 2 + tl.where(program * share >= tile * turns, 0, 1)
        total += tl.load(workspace + slot * BM * BN + offset)
    row = (tile // across) * BM + tl.arange(0, BM)
    column = (tile % across) * BN + tl.arange(0, BN)
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def serial_split_k(
    a, b, c, workspace, turns_done, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):
    """The program that increments the counter last adds all parts in order, so the bytes do not depend on it."""
    block_m = tl.program_id(0)
    block_n = tl.program_id(1)
    part = tl.program_id(2)
    row = block_m * BM + tl.arange(0, BM)
    column = block_n * BN + tl.arange(0, BN)
    inside = (row[:, None] < m) & (column[None, :] < n)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(part * BK, k, BK * SPLIT):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total)
    offset = row[:, None] * n + column[None, :]
    tl.store(workspace + part * m * n + offset, total, mask=inside)
    tl.debug_barrier()
    arrived = tl.atomic_add(turns_done + block_m * tl.num_programs(1) + block_n, 1, sem="acq_rel")
    if arrived == SPLIT - 1:
        tl.debug_barrier()
        total = tl.zeros((BM, BN), tl.float32)
        for other in range(SPLIT):
            total += tl.load(workspace + other * m * n + offset, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(c + offset, total, mask=inside)


TILES = (((64, 64, 32), 4, 3), ((32, 32, 32), 2, 2), ((64, 32, 64), 4, 3), ((128, 64, 32), 4, 2), ((64, 128, 32), 8, 3))

PARTIAL_TILES = (
    ((64, 64, 32), 4, 3),
    ((32, 32, 32), 2, 2),
    ((128, 64, 32), 4, 2),
    ((64, 128, 32), 8, 3),
    ((64, 32, 64), 4, 3),
    ((64, 64, 64), 4, 2),
    ((32, 64, 64), 4, 2),
)


def cases() -> tuple[Case, ...]:
    return (*_split(), *_reduce(), *_atomic(), *_stream(), *_serial())


def _split() -> list[Case]:
    found = []
    for dtype, m, n, k in (("fp16", 64, 128, 640), ("bf16", 96, 64, 500)):
        for split in (2, 4):
            arguments = [
                given("a", dtype, m * k),
                given("b", dtype, k * n),
                result("workspace", "fp32", split * m * n),
                *numbers(m=m, n=n, k=k),
            ]
            for strided in (False, True):
                for tile, warps, stages in PARTIAL_TILES:
                    # The extent of a part depends on BK, so each BK is a separate group.
                    found.append(
                        configure(
                            "split_k_partial",
                            f"{dtype}-{m}x{n}x{k}-{split}-{'strided' if strided else 'spans'}-{tile[2]}",
                            split_k_partial,
                            arguments,
                            (ceil_div(m, tile[0]), ceil_div(n, tile[1]), split),
                            warps=warps,
                            stages=stages,
                            BM=tile[0],
                            BN=tile[1],
                            BK=tile[2],
                            SPLIT=split,
                            STRIDED=strided,
                        )
                    )
    return found


def _reduce() -> list[Case]:
    found = []
    for out, split, size in (("fp16", 4, 6000), ("fp32", 8, 4096), ("bf16", 16, 2500)):
        arguments = [given("workspace", "fp32", split * size), result("c", out, size), *numbers(size=size)]
        for tree in (False, True):
            for block, warps in ((128, 1), (256, 4), (512, 4), (1024, 8)):
                found.append(
                    configure(
                        "split_k_reduce",
                        f"{out}-{split}x{size}",
                        split_k_reduce,
                        arguments,
                        (ceil_div(size, block),),
                        warps=warps,
                        SPLIT=split,
                        BLOCK=block,
                        TREE=tree,
                    )
                )
    return found


def _atomic() -> list[Case]:
    m, n, k = 64, 96, 512
    arguments = [
        given("a", "fp16", m * k),
        given("b", "fp16", k * n),
        updated("c", "fp32", m * n, "zero"),
        *numbers(m=m, n=n, k=k),
    ]
    return [
        configure(
            "split_k_atomic",
            f"fp16-{m}x{n}x{k}",
            split_k_atomic,
            arguments,
            (ceil_div(m, tile[0]), ceil_div(n, tile[1]), split),
            warps=warps,
            stages=stages,
            BM=tile[0],
            BN=tile[1],
            BK=tile[2],
            SPLIT=split,
        )
        for split in (1, 2, 8)
        for tile, warps, stages in TILES[:4]
    ]


def _stream() -> list[Case]:
    found = []
    for dtype, m, n, k, programs in (("fp16", 128, 192, 320, 5), ("bf16", 128, 128, 512, 3)):
        for tile, warps, stages in (
            ((64, 64, 32), 4, 3),
            ((64, 64, 32), 8, 2),
            ((64, 64, 64), 4, 2),
            ((64, 64, 32), 4, 1),
        ):
            turns = ceil_div(k, tile[2])
            tiles = ceil_div(m, tile[0]) * ceil_div(n, tile[1])
            share = ceil_div(tiles * turns, programs)
            arguments = [
                given("a", dtype, m * k),
                given("b", dtype, k * n),
                result("c", "fp32", m * n),
                result("workspace", "fp32", programs * 2 * 64 * 64),
                *numbers(m=m, n=n, k=k, share=share),
            ]
            found.append(
                configure(
                    "stream_k_partial",
                    f"{dtype}-{m}x{n}x{k}-{programs}",
                    stream_k_partial,
                    arguments,
                    (programs,),
                    warps=warps,
                    stages=stages,
                    BM=tile[0],
                    BN=tile[1],
                    BK=tile[2],
                )
            )
    m, n, turns, share = 128, 192, 10, 6
    arguments = [
        given("workspace", "fp32", 10 * 2 * 64 * 64),
        result("c", "fp32", m * n),
        *numbers(m=m, n=n, turns=turns, share=share),
    ]
    for warps in (2, 4, 8):
        found.append(
            configure("stream_k_fixup", f"{m}x{n}", stream_k_fixup, arguments, (6,), warps=warps, BM=64, BN=64)
        )
    return found


def _serial() -> list[Case]:
    m, n, k, split = 64, 128, 384, 4
    arguments = [
        given("a", "fp16", m * k),
        given("b", "fp16", k * n),
        result("c", "fp32", m * n),
        scratch("workspace", "fp32", split * m * n),
        scratch("turns_done", "i32", 64),
        *numbers(m=m, n=n, k=k),
    ]
    return [
        configure(
            "serial_split_k",
            f"fp16-{m}x{n}x{k}-{split}",
            serial_split_k,
            arguments,
            (ceil_div(m, tile[0]), ceil_div(n, tile[1]), split),
            warps=warps,
            stages=stages,
            BM=tile[0],
            BN=tile[1],
            BK=tile[2],
            SPLIT=split,
        )
        for tile, warps, stages in TILES[:4]
    ]
