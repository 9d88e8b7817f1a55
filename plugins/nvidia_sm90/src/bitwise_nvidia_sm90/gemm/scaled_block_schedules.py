"""Schedules of fp8 products whose blocks of k have scales, by their expected times.  They do not affect the bits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from bitwise_nvidia_sm90.gemm.kernels.block_scales import BLOCK, BlockScales
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    RESERVED_BYTES,
    STORE_BUFFERS,
    STORE_BYTES,
    WarpgroupTiles,
    shared_bytes_of_block,
)
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.scaled_block_times import corrected_seconds, fitted_model, quantities
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.warpgroup_kernels import warpgroup_tiles

# Rows of a tile, consumers, and whether they compute a tile each.
_TILES = ((64, 1, False), (128, 1, False), (128, 2, False), (64, 2, True), (192, 3, False), (256, 2, False))
_SHARED_COLUMNS = (*range(16, 145, 16), 160, 192, 256)
"""The columns of a tile that are in one or two blocks that share a scale each."""
_OWN_COLUMNS = (*range(16, 161, 16), 176, 192, 224, 256)
_FEW_COLUMNS = 8
"""The columns of a tile of as few rows or columns of the output."""
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
_MOST_STAGES, _ENOUGH_STAGES = 10, 6
"""The second: the stages above which a second buffer for the output is worth more."""
_FEWEST_JOBS = 6
"""A schedule whose tiles occupy less than this part of the multiprocessors is no candidate."""


def ranked_schedules(
    plan: MatrixPlan, m: int, n: int, scales: tuple[BlockScales, BlockScales], types: tuple[str, str, str],
    multiprocessors: int,
) -> list[Schedule]:  # fmt: skip
    """Return schedules of an output of m rows and n columns, those with the least expected times first.

    `scales` are those of the product and of the transposed product, `types` those of A, B and the output.
    """
    found = list[tuple[WarpgroupTiles, Schedule]]()
    for transposed in (False, True):
        down, across = (n, m) if transposed else (m, n)
        own, kinds = scales[transposed], (types[1], types[0], types[2]) if transposed else types
        for each in _candidates(down, across, own, plan.slices.number, multiprocessors, transposed=transposed):
            try:
                tiles = warpgroup_tiles(plan, each, kinds, (True, True), "elements", scales=own)
            except UnsupportedGEMM:
                continue
            found.append((tiles, each))
    seconds = corrected_seconds(quantities(plan, found, m, n, multiprocessors), fitted_model())
    return [found[place][1] for place in np.argsort(seconds, kind="stable").tolist()]


def _candidates(
    down: int, across: int, scales: BlockScales, slices: int, multiprocessors: int, *, transposed: bool
) -> Iterator[Schedule]:
    """Yield schedules of a computed product of `down` rows and `across` columns, some of which have no kernel."""
    columns = _OWN_COLUMNS if scales.columns == 1 else _SHARED_COLUMNS
    few = across <= _FEW_COLUMNS
    if few:
        columns = (_FEW_COLUMNS, *columns)
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
            if stages < 2:
                continue
            for overlap in (True, False) if few else (True,):
                yield Schedule(
                    rows, wide, BLOCK, warps=4 * (consumers + 1), stages=stages,
                    programs=resident * slots if jobs > slots else slots, tma=True, transposed=transposed,
                    consumers=consumers, ping_pong=ping_pong, cluster_m=cluster[0], cluster_n=cluster[1],
                    resident=resident, overlap=overlap,
                )  # fmt: skip


def _stages(rows: int, columns: int, consumers: int, scales: int, resident: int) -> int:
    """Return the stages with so many bytes of scales that fit in shared memory beside buffers of the output."""
    room = shared_bytes_of_block(resident) - RESERVED_BYTES
    stage = (rows + columns) * BLOCK + scales
    found = (room - consumers * STORE_BUFFERS * STORE_BYTES) // stage
    if found < _ENOUGH_STAGES:
        found = (room - consumers * STORE_BYTES) // stage
    return min(found, _MOST_STAGES)
