"""Schedules of fp8 products whose blocks of k have scales, by their expected times.  They do not affect the bits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from bitwise_nvidia_sm90.gemm.kernels.block_scales import BLOCK, BlockScales
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    RESERVED_BYTES,
    STORE_BUFFERS,
    STORE_BYTES,
    WarpgroupTiles,
    shared_bytes_of_block,
)
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.warpgroup_kernels import warpgroup_tiles

# Rows of a tile, consumers, and whether they compute a tile each.
_TILES = ((64, 1, False), (128, 1, False), (128, 2, False), (64, 2, True), (192, 3, False), (256, 2, False))
_SHARED_COLUMNS = (*range(16, 145, 16), 160, 192)
"""The columns of a tile that are in one or two blocks that share a scale each."""
_OWN_COLUMNS = tuple(range(16, 161, 16))
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))
_MOST_STAGES, _ENOUGH_STAGES = 10, 6
"""The second: the stages above which a second buffer for the output is worth more."""
_FEWEST_JOBS = 6
"""A schedule whose tiles occupy less than this part of the multiprocessors is no candidate."""

# Seconds on an H200, fitted to 624 times of 48 products; the schedule that is expected to be the fastest takes 1.018 of
# the time of the fastest one measured (a geometric mean) on sizes that a fit left out.
_LAUNCH, _CROWDED, _TILE, _MERGE = 1.06e-6, 1.04e-6, 4.67e-7, 1.32e-6
"""Those of a launch, of one whose blocks have no room beside those of the launch before, of a tile, and of the kernel
that adds slices."""
_OPERATION, _ALONE, _MULTIPLIED = 6.09e-12, 3.41e-12, 1.78e-14
"""Those of an operation on a sum, of a sum that one consumer has alone, and of a product where nothing else happens."""
_CONSUMER, _LOAD, _COPIED, _OUTSIDE = 2.83e-8, 2.96e-9, 4.85e-12, 9.6e-10
"""Those of a stage for each consumer, of an instruction of it that loads scales, of a byte that is copied, and of a
line of a tile that is larger than the matrix."""
_WAITED, _LATE = 2.93e-7, 1.41e-8
"""Those of the wait for a stage, by the stages behind it, and for scales that are loaded to registers."""
_SELECTED = 6
"""The selections of scales by the columns that share one, for each sum, in units of its operations."""
_BESIDE = 0.807
"""The part of its operations by which a block delays another one on its multiprocessor."""
_CLUSTER = {1: 1.0, 2: 1.211, 4: 1.253}
"""By the number of blocks of a cluster: the factor of the time of a stage."""


def ranked_schedules(
    plan: MatrixPlan, m: int, n: int, scales: tuple[BlockScales, BlockScales], types: tuple[str, str, str],
    multiprocessors: int,
) -> list[Schedule]:  # fmt: skip
    """Return schedules of an output of m rows and n columns, those with the least expected times first.

    `scales` are those of the product and of the transposed product, `types` those of A, B and the output.
    """
    found = []
    for transposed in (False, True):
        down, across = (n, m) if transposed else (m, n)
        own, kinds = scales[transposed], (types[1], types[0], types[2]) if transposed else types
        for each in _candidates(down, across, own, plan.slices.number, multiprocessors, transposed=transposed):
            try:
                tiles = warpgroup_tiles(plan, each, kinds, (True, True), "elements", scales=own)
            except UnsupportedGEMM:
                continue
            found.append((_expected_seconds(tiles, each, down, across, plan, multiprocessors), each))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _candidates(
    down: int, across: int, scales: BlockScales, slices: int, multiprocessors: int, *, transposed: bool
) -> Iterator[Schedule]:
    """Yield schedules of a computed product of `down` rows and `across` columns, some of which have no kernel."""
    columns = _OWN_COLUMNS if scales.columns == 1 else _SHARED_COLUMNS
    for (rows, consumers, ping_pong), wide, cluster in product(_TILES, columns, _CLUSTERS):
        if rows >= 2 * max(down, 64) or wide >= 2 * max(across, 16):
            continue
        blocks = cluster[0] * cluster[1]
        if down <= rows * (cluster[0] - 1) or across <= wide * (cluster[1] - 1):
            continue
        jobs = -(-down // rows) * -(-across // wide) * slices
        if jobs * _FEWEST_JOBS < multiprocessors:
            continue
        # A group of multiprocessors holds whole clusters: on an H100 120 of 132 in clusters of four.
        slots = multiprocessors if blocks <= 2 else multiprocessors * 10 // 11 // blocks * blocks
        for resident in (1, 2) if consumers == 1 else (1,):
            line = sum(scales.line(rows, wide)) * (1 if ping_pong else 2)
            stages = _stages(rows, wide, consumers, line, resident)
            if stages >= 2:
                yield Schedule(
                    rows, wide, BLOCK, warps=4 * (consumers + 1), stages=stages,
                    programs=resident * slots if jobs > slots else slots, tma=True, transposed=transposed,
                    consumers=consumers, ping_pong=ping_pong, cluster_m=cluster[0], cluster_n=cluster[1],
                    resident=resident,
                )  # fmt: skip


def _stages(rows: int, columns: int, consumers: int, scales: int, resident: int) -> int:
    """Return the stages with so many bytes of scales that fit in shared memory beside buffers of the output."""
    room = shared_bytes_of_block(resident) - RESERVED_BYTES
    stage = (rows + columns) * BLOCK + scales
    found = (room - consumers * STORE_BUFFERS * STORE_BYTES) // stage
    if found < _ENOUGH_STAGES:
        found = (room - consumers * STORE_BYTES) // stage
    return min(found, _MOST_STAGES)


def _expected_seconds(
    tiles: WarpgroupTiles, chosen: Schedule, down: int, across: int, plan: MatrixPlan, multiprocessors: int
) -> float:
    """Return the expected seconds of a schedule for a computed product of `down` rows and `across` columns."""
    scales = tiles.scales
    assert scales is not None
    blocks, sliced = tiles.blocks, plan.slices.number > 1
    clusters = -(-down // (tiles.block_m * tiles.cluster[0])) * -(-across // (tiles.block_n * tiles.cluster[1]))
    clusters *= plan.slices.number
    at_once = max(1, min(chosen.programs // blocks, clusters))
    rounds = -(-clusters // at_once)
    beside = -(-at_once * blocks // multiprocessors) - 1 if tiles.resident > 1 else 0
    own_columns = scales.columns == 1
    elements = tiles.block_m * tiles.block_n
    # A sum is multiplied by both scales in turn, or by their product, which few sums share.
    steps = 2 if own_columns and (scales.order != "product" or not scales.shared_rows(tiles.block_m)) else 1
    loads = tiles.block_n // 8 * (1 if tiles.maps_column_scales else 4) if own_columns else 0
    consumers = 1 if tiles.ping_pong else tiles.consumers
    stage = elements * steps * _OPERATION + consumers * (_CONSUMER + loads * _LOAD)
    if scales.columns_in_two(tiles.block_n):
        stage += elements * _SELECTED / scales.common_columns(tiles.block_n) * _OPERATION
    if consumers == 1:
        stage += elements * _ALONE
    if not (tiles.sums_alternate or tiles.ping_pong):
        stage += elements * BLOCK * _MULTIPLIED
    copied = (tiles.block_m // tiles.cluster[1] + tiles.block_n // tiles.cluster[0]) * BLOCK
    stage = stage * (1 + beside * _BESIDE) + copied * _COPIED * (1 + beside) + _WAITED / (tiles.stages - 1)
    stage += 0.0 if tiles.maps_row_scales and tiles.maps_column_scales else _LATE
    outside = max(0, tiles.block_m - down) / tiles.cluster[1] + max(0, tiles.block_n - across) / tiles.cluster[0]
    stage += outside * _OUTSIDE
    stages = -(-plan.slices.span // BLOCK)
    crowded = 2 * at_once * blocks > multiprocessors * tiles.resident
    launch = _LAUNCH + crowded * _CROWDED + sliced * _MERGE
    return launch + rounds * (stages * stage * _CLUSTER[blocks] + _TILE)
