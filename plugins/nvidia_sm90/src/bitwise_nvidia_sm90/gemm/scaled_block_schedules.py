"""Schedules of fp8 products whose blocks of k have scales, by their expected times.  They do not affect the bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ScaledBlockCosts:
    """Seconds on an H200, fitted to 344 times of 43 products by `bitwise_bench.cublas.scaled_block_fit`.

    `launch`, `crowded`, `tile`, `merge`: those of a launch, of one whose blocks have no room beside those of the launch
    before, of a tile, and of the kernel that adds slices.  `operation`, `alone`, `multiplied`: those of an operation on
    a sum, of a sum that one consumer has alone, and of a product where nothing else happens.  `consumer`, `load`,
    `copied`, `outside`: those of a stage for each consumer, of an instruction of it that loads scales, of a byte that
    is copied, and of a line of a tile that is outside of the matrix.  `waited`, `late`: those of the wait for a stage,
    by the stages behind it, and for scales that are loaded to registers.

    `selected`: the selections of scales by the columns that share one, for each sum, in units of its operations.
    `beside`: the part of its operations by which a block delays another one on its multiprocessor.  `pair`, `four`: the
    factors of the time of a stage in clusters of two and of four blocks.
    """

    launch: float = 3.87e-7
    crowded: float = 6.36e-7
    tile: float = 9.37e-7
    merge: float = 1.2e-6
    operation: float = 3.26e-12
    alone: float = 1.33e-12
    multiplied: float = 3.4e-14
    consumer: float = 3.22e-8
    load: float = 2.19e-9
    copied: float = 8.17e-12
    outside: float = 7.33e-10
    waited: float = 1.54e-7
    late: float = 1.06e-8
    selected: float = 4.28
    beside: float = 1.37
    pair: float = 1.34
    four: float = 1.62

    def factor(self, blocks: int) -> float:
        """Return the factor of the time of a stage by the blocks of a cluster."""
        return {1: 1.0, 2: self.pair, 4: self.four}[blocks]


COSTS = ScaledBlockCosts()
"""The costs by which schedules are ranked."""


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
            found.append((expected_seconds(tiles, each, down, across, plan, multiprocessors), each))
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


def expected_seconds(
    tiles: WarpgroupTiles, chosen: Schedule, down: int, across: int, plan: MatrixPlan, multiprocessors: int,
    costs: ScaledBlockCosts = COSTS,
) -> float:  # fmt: skip
    """Return the expected seconds of a schedule for a computed product of `down` rows and `across` columns."""
    scales = tiles.scales
    assert scales is not None
    blocks, sliced = tiles.blocks, plan.slices.number > 1
    clusters = -(-down // (tiles.block_m * tiles.cluster[0])) * -(-across // (tiles.block_n * tiles.cluster[1]))
    clusters *= plan.slices.number
    at_once = max(1, min(chosen.programs // blocks, clusters))
    rounds = -(-clusters // at_once)
    beside = -(-at_once * blocks // multiprocessors) - 1 if tiles.resident > 1 else 0
    if sliced and tiles.resident > 1:
        beside = 1  # blocks start where the kernel that adds slices leaves room first, in pairs
    own_columns = scales.columns == 1
    elements = tiles.block_m * tiles.block_n
    # A sum is multiplied by both scales in turn, or by their product, which few sums share.
    steps = 2 if own_columns and (scales.order != "product" or not scales.shared_rows(tiles.block_m)) else 1
    loads = tiles.block_n // 8 * (1 if tiles.maps_column_scales else 4) if own_columns else 0
    consumers = 1 if tiles.ping_pong else tiles.consumers
    stage = elements * steps * costs.operation + consumers * (costs.consumer + loads * costs.load)
    if scales.columns_in_two(tiles.block_n):
        stage += elements * costs.selected / scales.common_columns(tiles.block_n) * costs.operation
    if consumers == 1:
        stage += elements * costs.alone
    if not (tiles.sums_alternate or tiles.ping_pong):
        stage += elements * BLOCK * costs.multiplied
    copied = (tiles.block_m // tiles.cluster[1] + tiles.block_n // tiles.cluster[0]) * BLOCK
    stage = stage * (1 + beside * costs.beside) + copied * costs.copied * (1 + beside)
    stage += costs.waited / (tiles.stages - 1)
    stage += 0.0 if tiles.maps_row_scales and tiles.maps_column_scales else costs.late
    stages = -(-plan.slices.span // BLOCK)
    crowded = 2 * at_once * blocks > multiprocessors * tiles.resident
    launch = costs.launch + crowded * costs.crowded + sliced * costs.merge
    # Copies of the last tiles along each side fill the lines outside of the matrix with zeros.
    sides = (
        (-down % tiles.block_m / tiles.cluster[1], down <= tiles.block_m),
        (-across % tiles.block_n / tiles.cluster[0], across <= tiles.block_n),
    )
    outside = max(lines + other * alone for (lines, _), (other, alone) in (sides, sides[::-1]))
    every = rounds if all(alone for _, alone in sides) else 1
    found = launch + rounds * (stages * stage * costs.factor(blocks) + costs.tile)
    return found + every * stages * outside * costs.outside
