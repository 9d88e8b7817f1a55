"""The candidate schedules of a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from bitwise_nvidia_sm90.gemm.expected_times import MULTIPROCESSORS, bytes_moved
from bitwise_nvidia_sm90.gemm.kernels.few_rows import MOST_LOADS, MOST_ROWS, MOST_VALUES, STEPS
from bitwise_nvidia_sm90.gemm.kernels.lane_rows import MOST_LANES
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    DEPTHS,
    RESERVED_BYTES,
    ROWS,
    SHARED_BYTES,
    STAGE_BYTES,
    STORE_BUFFERS,
    STORE_BYTES,
    WARPGROUP,
    most_accumulators,
    shared_bytes_of_block,
)
from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan
from bitwise_nvidia_sm90.gemm.plan import BlocksPlan, MatrixPlan, Plan, ScalarPlan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check

_LARGEST_TILE = {128: 128 * 64, 256: 64 * 16}
"""By block_k: the largest tile, in elements, for which this block_k is a candidate."""
# Rows, columns and warps of a tile.
_TMA_TILES = (
    (16, 16, 1),
    (16, 32, 2),
    (16, 64, 4),
    (64, 16, 4),
    (64, 32, 4),
    (64, 64, 4),
    (64, 128, 4),
    (64, 256, 4),
    (128, 16, 4),
    (128, 32, 4),
    (128, 64, 4),
    (128, 64, 8),
    (128, 128, 4),
    (128, 128, 8),
    (128, 256, 8),
    (256, 32, 8),
    (256, 64, 8),
    (256, 128, 8),
)
# Rows, columns, warps and stages.
_POINTER_TILES = ((128, 128, 8, 3), (64, 64, 4, 4), (64, 32, 4, 5), (32, 64, 4, 4), (32, 32, 2, 4))
# Rows of a tile, consumers, and whether they compute a tile each.
_WARPGROUP_TILES = ((64, 1, False), (128, 1, False), (128, 2, False), (128, 2, True), (192, 3, False), (256, 2, False))
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4), (2, 2), (4, 2), (2, 4))
# Rows of a tile whose operands are gathered, and consumers.
_GATHERED_TILES = ((64, 1), (128, 1), (128, 2))
_MOST_GATHERED_COLUMNS, _MOST_GATHERED_STAGES, _MOST_RESIDENT = 192, 6, 4
_MOST_ROWS_OF_LARGE_CLUSTERS = 4096
"""The fewer of the rows and columns of an output up to which clusters of more than two blocks are candidates.

On an H200 they were faster than others in 15 of 38 products with 1,025 to 2,048, by up to 1.39 times, and in 4 of 18
with more, by up to 1.11 times.
"""
_FEWEST_COLUMNS_OF_THREE = 64
"""The fewest columns of a tile of three consumers."""
_SHORT_LINES = 32
"""The columns whose multiples a tile has, if it has more, where the columns of one k are a line of its copies.

Lines would have 32 bytes otherwise.  They were the fastest in none of 18 products on an H200, and in none of 89 on an
H100.
"""
_MOST_STAGES = 10
_LARGEST_DEEP_TILE = {2: 64 * 160, 4: 64 * 40}
"""By how many times the least k a stage has: the most elements of a tile for which that is a candidate."""
_ENOUGH_STAGES = 4
"""The stages above which a second buffer for the output is worth more: one is multiplied and one is released late."""
_THREADS = 32
"""The threads of a warp."""
_FILLED, _FEW_STEPS, _MANY_STEPS = 20, 64, 32
"""The k of an iteration, at most, where a lane has few k: up to the second number.  The third is many k of a lane."""
_FEW_LANES = 132 * 16 * _THREADS
"""The lanes of a product up to which the loads of an iteration precede the sums of the one before: 16 warps for each
multiprocessor of an H100."""
_ENOUGH_BLOCKS = {4: 72, 2: 100, 1: 0}
"""With `few_rows`: by the columns of a thread, the blocks of a product from which fewer columns are no faster."""
_STEPS = 16
"""With `few_rows`: the values of k of an iteration, where a lane has one accumulator."""
_MOST_VALUES = 512 * _THREADS
"""With `lane_rows`: the values, or words, that a program loads at once, for which there are registers."""
_LINES_AT_ONCE, _FEWEST_LINES, _MANY_LINES = (16, 32, 8), 4, 200
"""With `lane_rows`: the most lines of a batch, the fewest, and the k of a lane from which larger batches come first."""
_NEIGHBOURS = 4
"""The neighbouring elements of a thread with `wide`."""
_ROWS_OF_LANES = (
    (2, 1, 1, 8),
    (4, 4, 2, 8),
    (4, 1, 1, 8),
    (4, 2, 2, 8),
    (8, 1, 1, 4),
    (8, 1, 2, 8),
    (2, 2, 2, 8),
    (8, 2, 4, 8),
)
"""By schedule of lanes: rows, the columns of a thread, warps, and the k of an iteration."""
_RANGE_TILE, _FEW_ROWS, _ENOUGH_OF_ROWS = 64, 8, (5.2, 1.4)
"""With `few_rows` and lanes of ranges: the values of k of a tile, the most rows that are few, and the blocks of four
warps for each multiprocessor from which threads have two columns, for few and for more rows.

Of 27 products on an H200 the fastest of up to nine schedules takes 0.5 to 1.0 of cuBLAS's time, and the first one takes
1.05 times as long: 31.8 us for 5 x 34037 x 1081, where cuBLAS takes 52.8.
"""
_SHARED_ROWS = (4, 1)
"""The rows and warps of the first schedule of many lanes without contiguous k: 7.0 instead of 11.0 us for the product
8 x 3033 x 443 on an H200."""
_MOST_LOADS = 128
"""The loads of a thread in an iteration of lanes."""
_LARGE, _LARGEST = 2e10, 6e10
"""The multiplications of 16-bit values from which Triton kernels, and those with one consumer, are no candidates.

On an H100 Triton kernels were faster than those of warpgroups in 1 of 210 such products, by 1 %.  One consumer was the
fastest in none of 167, and in none of 31 on an H200.
"""
_MOST_BYTES_OF_TRITON = 60e6
"""The bytes of operands of 16 bits and the output from which Triton kernels are no candidates.

The L2 cache keeps none of them.  Of such products Triton kernels were faster by more than 2 % in 2 of 53 on an H200 and
in 8 of 206 on an H100, and by at most 5 %.
"""
_FEWEST_BYTES_ALONE, _MOST_BYTES_ALONE = 12e6, 80e6
"""The bytes of operands and output for which schedules that do not overlap are candidates."""


def lane_schedules(
    plan: ScalarPlan | BlocksPlan,
    m: int,
    n: int,
    k_contiguous: tuple[bool, bool] = (True, True),
    mapped: tuple[bool, bool] = (True, True),
) -> list[Schedule]:
    """Return schedules of lanes, the best first by measured times.

    A program has `block_m` elements and `block_k` k of each lane in an iteration; with 2 `stages`, those of the next
    iteration are loaded before these are added.  With few accumulators in a thread
    there are many threads, and with many k in an iteration each has many loads under way.  Neighbouring lanes that have
    neighbouring k run fastest in programs of one warp.  Unless the values of k of an element are contiguous, the
    threads of a warp load one k of neighbouring elements: a program should have several warps of them, and the k of a
    lane should fill its iterations.  `k_contiguous` is that of `mapped_schedules`; `mapped` says of A and B whether
    there is a tensor map of it: the lines of others are aligned to no vectors.
    """
    elements, along_k = m * n, m * n == 1 or k_contiguous[1 if n > 1 else 0]
    if isinstance(plan, BlocksPlan):
        lanes, own = 128 * plan.accumulators, plan.k // (128 * plan.accumulators * plan.blocks)
    else:
        lanes = plan.lanes
        own = min(plan.chunk, -(-plan.slices.span // (plan.active_lanes or plan.lanes)))
    unrolls: tuple[int, ...] = (8, 4, 16, 32)
    warps_of_program: tuple[int, ...] = (4, 2, 1)
    accumulators_of_thread: tuple[int, ...] = (1, 2, 4, 8)
    if not along_k and isinstance(plan, BlocksPlan):  # neighbours of a line are loaded at once
        warps_of_program, accumulators_of_thread = (4, 8, 16, 2, 1), (8, 4, 2, 1)
    elif not along_k:
        filled = -(-own // -(-own // _FILLED)) if 0 < own <= _FEW_STEPS else 32
        unrolls = (filled, 32, 16, 8, 4)
        warps_of_program = (8, 4, 16, 2, 1)
    elif isinstance(plan, ScalarPlan) and plan.strided and plan.tile == 1:
        unrolls = (16, 8, 4, 32) if own >= _MANY_STEPS else (8, 4, 16, 32)
        warps_of_program = (1, 2, 4)
    # Few threads have many loads under way only where those of the next iteration are.
    slices = plan.blocks if isinstance(plan, BlocksPlan) else plan.slices.number
    depths = (2, 3) if elements * lanes * slices <= _FEW_LANES else (3,)
    found = []
    for accumulators in accumulators_of_thread:
        for unroll in unrolls:
            for warps in warps_of_program:
                block = accumulators * _THREADS * warps // lanes
                fits = 1 <= block <= max(1, 2 * elements) and unroll <= max(own, 4)
                if fits and accumulators * unroll <= _MOST_LOADS:
                    found += [Schedule(block, block_k=unroll, warps=warps, stages=stages) for stages in depths]
    rows = _lane_rows(plan, max(m, n), own) if not along_k and min(m, n) == 1 else []
    found = found[:1] + rows + found[1:] if mapped[1 if n > 1 else 0] else rows + found
    sharing = _few_rows(plan, m, n) + _rows_of_lanes(plan, m, n)
    ranges = [] if along_k else _few_rows_of_ranges(plan, m, n)
    if min(m, n) == 1:
        restarts = isinstance(plan, ScalarPlan) and plan.chunk * lanes < plan.slices.span
        whole = [each for each in found if restarts and (each.warps, each.block_k) == (4, _STEPS)][:1]
        usual = whole + found[:1]
        if restarts and depths == (3,):
            usual = sharing[:1] + usual
        found = usual + sharing + found[1:] if along_k else found + sharing
    elif along_k:
        found = sharing + found
    else:
        shared = [each for each in sharing if (each.block_n, each.warps) == _SHARED_ROWS]
        found = ranges + (shared if depths == (3,) else []) + found + sharing
    return list(dict.fromkeys(found + _wide_lanes(plan, m, n, along_k)))


def _lane_rows(plan: ScalarPlan | BlocksPlan, count: int, own: int) -> list[Schedule]:
    """Return schedules of one row or column whose lanes, of `own` values of k, have threads of neighbours.

    Threads have one element each where a few multiprocessors would have all, else two.  Lanes have half a warp where
    that leaves multiprocessors without a block.
    """
    if not isinstance(plan, ScalarPlan) or not 2 <= plan.lanes <= MOST_LANES:
        return []
    tile, elements = plan.tile if plan.strided else 1, count * plan.slices.number
    half, one, two = _THREADS // 2, _THREADS, 2 * _THREADS
    if elements >= MULTIPROCESSORS * _THREADS:
        widths = [two, one]
    elif plan.lanes > half:
        widths = [half, one, two]
    else:
        few = (2 if count % 2 else 4) * elements < MULTIPROCESSORS * two
        widths = [one, half, two] if few else [two, half, one]
    many = plan.lanes < half or (plan.lanes == half and own >= _MANY_LINES)
    found = []
    for lines in sorted(_LINES_AT_ONCE, reverse=True) if many else _LINES_AT_ONCE:
        rows = lines if tile == 1 else max(each for each in range(1, lines + 1) if tile % each == 0)
        for neighbours in widths:
            threads = min(neighbours, _THREADS) * plan.lanes
            if _FEWEST_LINES <= rows <= own and rows * threads <= _MOST_VALUES:
                warps = max(1, threads // _THREADS)
                found.append(Schedule(neighbours, block_k=rows, warps=warps, lane_rows=True))
    return list(dict.fromkeys(found))


def _few_rows(plan: ScalarPlan | BlocksPlan, m: int, n: int) -> list[Schedule]:
    """Return schedules of few rows or columns whose threads have all of them, the best first by measured times."""
    if not isinstance(plan, ScalarPlan) or not plan.strided or plan.tile != 1 or plan.lanes & (plan.lanes - 1):
        return []
    if not 1 <= min(m, n) <= MOST_ROWS or not 2 <= plan.lanes <= _THREADS:
        return []
    steps = plan.chunk if plan.chunk in (8, 16, STEPS) else _STEPS
    first, later = list[Schedule](), list[Schedule]()
    for columns, warps in ((4, 4), (2, 4), (1, 4), (2, 8), (1, 8)):
        block = columns * _THREADS * warps // plan.lanes
        fits = columns * steps <= MOST_LOADS and 2 * columns * min(m, n) <= MOST_VALUES
        if fits and block < 2 * max(m, n):
            enough = -(-max(m, n) // block) >= _ENOUGH_BLOCKS[columns]
            (first if enough else later).append(Schedule(block, block_k=steps, warps=warps, few_rows=True))
    return first + later


def _few_rows_of_ranges(plan: ScalarPlan | BlocksPlan, m: int, n: int) -> list[Schedule]:
    """Return schedules of few rows or columns whose threads have all of them, for lanes with ranges of k.

    The best come first by measured times: tiles of _RANGE_TILE values of k, and threads of two columns where there are
    enough of them.
    """
    if not isinstance(plan, ScalarPlan) or plan.strided or not 2 <= plan.lanes <= _THREADS:
        return []
    rows, count = min(m, n), max(m, n)
    if not 2 <= rows <= MOST_ROWS:
        return []
    enough = _ENOUGH_OF_ROWS[rows > _FEW_ROWS] * MULTIPROCESSORS * 4 * _THREADS
    wide = count * plan.lanes >= enough
    found, usual, restarts = [], max(1, _RANGE_TILE // plan.lanes), plan.chunk < plan.tile
    for columns, warps, steps in (
        (2 if wide else 1, 4, usual), (1 if wide else 2, 4, usual), (1, 8, usual), (2, 8, usual), (4, 4, usual),
        (1, 4, 2 * usual), (1, 4, usual // 2), (1, 2, usual // 2),
    ):  # fmt: skip
        block = columns * _THREADS * warps // plan.lanes
        fits = 2 * columns * rows <= MOST_VALUES and 1 <= steps <= min(STEPS, _THREADS * warps // plan.lanes)
        if fits and block < 2 * count and not (restarts and plan.chunk % steps):
            found.append(Schedule(block, block_k=steps, warps=warps, few_rows=True))
    return found


def _wide_lanes(plan: ScalarPlan | BlocksPlan, m: int, n: int, along_k: bool) -> list[Schedule]:
    """Return schedules of one row or column whose neighbours are loaded at once; their times were not measured."""
    if along_k or min(m, n) > 1 or not isinstance(plan, ScalarPlan):
        return []
    tile = plan.tile if plan.strided else 1
    unroll = 8 if tile in (1, plan.chunk) else next((each for each in range(8, 1, -1) if tile % each == 0), tile)
    found = []
    for warps, groups in ((4, 1), (2, 1), (1, 1), (4, 2)):
        block = max(2 * _NEIGHBOURS, _NEIGHBOURS * groups * _THREADS * warps // plan.lanes)
        found.append(Schedule(block, block_k=unroll, warps=warps, wide=True))
    return found


def _rows_of_lanes(plan: ScalarPlan | BlocksPlan, m: int, n: int) -> list[Schedule]:
    """Return schedules whose rows share the loads of their columns; without contiguous k they were not measured."""
    if min(m, n) == 1 or not isinstance(plan, ScalarPlan):
        return []
    found = []
    for rows, columns, warps, unroll in _ROWS_OF_LANES:
        block = columns * _THREADS * warps // plan.lanes
        if rows < 2 * m and 1 <= block <= 2 * n:
            found.append(Schedule(block, rows, unroll, warps=warps))
    return found


def packed_schedules(plan: MatrixPlan, m: int, n: int, programs: int) -> Iterator[Schedule]:
    """Yield schedules that pack the operands."""
    if plan.accumulator_k:
        return
    for each in mapped_schedules(packed_plan(plan), m, n, programs):
        yield replace(each, packed=True)


def gathered_schedules(
    plan: MatrixPlan, m: int, n: int, programs: int, k_contiguous: tuple[bool, bool]
) -> Iterator[Schedule]:
    """Yield schedules that gather the operands without tensor maps; `k_contiguous` is that of `mapped_schedules`."""
    if plan.accumulator_k:
        return
    for transposed in (False, True):
        down, across = (n, m) if transposed else (m, n)
        step = 8 if k_contiguous[0 if transposed else 1] else ROWS
        for rows, consumers in _GATHERED_TILES:
            if rows >= 2 * max(down, ROWS):
                continue
            for columns in range(step, (_MOST_GATHERED_COLUMNS if consumers > 1 else 128) + 1, step):
                if columns != -(-across // (step * -(-across // columns))) * step:
                    continue
                jobs = -(-down // rows) * -(-across // columns) * plan.slices.number
                sums = rows // consumers * columns // WARPGROUP
                for gathering, resident in product((1, 2), range(1, _MOST_RESIDENT + 1)):
                    room = shared_bytes_of_block(resident) - RESERVED_BYTES - consumers * STORE_BUFFERS * STORE_BYTES
                    stages = min(room // ((rows + columns) * STAGE_BYTES), _MOST_GATHERED_STAGES)
                    fits = stages >= 2 and sums <= most_accumulators(consumers, resident, gathering)
                    if not fits or (resident > 1 and jobs <= (resident - 1) * programs):
                        continue
                    yield Schedule(
                        rows, columns, 64, 8, 4 * (consumers + gathering), stages, resident * programs, False,
                        transposed, 1, consumers, resident=resident, gathering=gathering,
                    )  # fmt: skip


def mapped_schedules(
    plan: MatrixPlan, m: int, n: int, programs: int, k_contiguous: tuple[bool, bool] = (True, True)
) -> Iterator[Schedule]:
    """Yield the schedules with TMA: those that overlap, and the others where operands may stay in the L2 cache.

    `k_contiguous` says for A and B whether their values of k are contiguous.
    """
    moved = bytes_moved(plan, m, n)
    found, size = list(_warpgroup_schedules(plan, m, n, programs, k_contiguous)), m * n * plan.k
    uncached = found and not plan.accumulator_k and moved >= _MOST_BYTES_OF_TRITON
    if not found or plan.accumulator_k or (size < _LARGE and not uncached):
        found = [*_tma_schedules(plan, m, n, programs), *found]
    elif size >= _LARGEST:
        found = [each for each in found if each.consumers > 1] or found
    for each in found:
        yield each
        if _FEWEST_BYTES_ALONE <= moved <= _MOST_BYTES_ALONE:
            yield replace(each, overlap=False)


def _allowed(plan: Plan, chosen: Schedule) -> bool:
    try:
        check(plan, chosen)
    except UnsupportedGEMM:
        return False
    return True


def pointer_schedules(plan: MatrixPlan, m: int, n: int) -> Iterator[Schedule]:
    """Yield schedules without TMA."""
    for block_m, block_n, warps, stages in _POINTER_TILES:
        chosen = Schedule(block_m, block_n, plan.accumulator_k or 64, 8, warps, stages)
        if block_m <= 2 * max(m, 32) and block_n <= 2 * max(n, 32) and _allowed(plan, chosen):
            yield chosen


def _tma_schedules(plan: MatrixPlan, m: int, n: int, programs: int) -> Iterator[Schedule]:
    """Yield TMA schedules that fit in shared memory and whose tiles the output mostly fills."""
    size = 1 if plan.accumulator_k else 2
    span = plan.slices.span
    for transposed in (False, True):
        down, across = (n, m) if transposed else (m, n)
        for rows, columns, warps in _TMA_TILES:
            if (
                (rows == 16 and (down > 16 or transposed))
                or rows >= 2 * max(down, 64)
                or columns >= 2 * max(across, 16)
            ):
                continue
            jobs = -(-down // rows) * -(-across // columns) * plan.slices.number
            if jobs * 6 < programs and rows * columns > 1024:
                continue
            for block_k in (plan.accumulator_k,) if plan.accumulator_k else (16, 32, 64, 128, 256):
                unsuited = block_k >= 2 * max(span, 16) or (block_k < 64 and block_k < span)
                if not plan.accumulator_k and (unsuited or rows * columns > _LARGEST_TILE.get(block_k, 1 << 20)):
                    continue
                tile = Schedule(rows, columns, block_k, 8, warps, 2, 0, True, transposed)
                for each in _stage_variants(tile, span, jobs, programs, (rows + columns) * block_k * size):
                    if _allowed(plan, each):
                        yield each


def _stage_variants(tile: Schedule, span: int, jobs: int, programs: int, stage: int) -> Iterator[Schedule]:
    """Yield variants of a schedule: numbers of stages, persistent or not, one or two store parts.

    The numbers of stages let one, two or three programs run on a multiprocessor.  `stage` is the bytes of one stage.
    """
    iterations = -(-span // tile.block_k)
    whole = tile.block_m * tile.block_n >= 128 * 128 and tile.block_n >= 128
    for parts in (1, 2) if whole else (1,):
        for count in (0, programs):
            if count and (jobs <= count or not whole):
                continue
            out = tile.block_m * tile.block_n * 2 // parts if count else 0
            rooms = (
                [SHARED_BYTES - 1024 - out]
                if count
                else [SHARED_BYTES - 1024, SHARED_BYTES // 2 - 2048, SHARED_BYTES // 3 - 2048]
            )
            depths = {min(room // stage, 10, max(2, iterations)) for room in rooms}
            for stages in sorted(depths) if iterations > 1 else (2,):
                if stages >= 2:
                    yield replace(tile, stages=stages, programs=count, store_parts=parts)


def _warpgroup_schedules(
    plan: MatrixPlan, m: int, n: int, programs: int, k_contiguous: tuple[bool, bool]
) -> Iterator[Schedule]:
    """Yield schedules with consumers that fit in shared memory and whose tiles the output mostly fills.

    Of the tiles that part the columns in equally many, the narrowest one is a candidate.
    """
    size = 1 if plan.accumulator_k else 2
    block_k = plan.accumulator_k or 64
    for transposed in (False, True):
        down, across = (n, m) if transposed else (m, n)
        whole = k_contiguous[0 if transposed else 1]
        least = 8 if whole else 16
        for rows, consumers, ping_pong in _WARPGROUP_TILES:
            if rows >= 2 * max(down, 64):
                continue
            own = rows if ping_pong else rows // consumers
            accumulators = most_accumulators(consumers) // (2 if plan.starts_accumulators else 1)
            widest = min(256, accumulators * WARPGROUP // own)
            for columns in range(least if across <= least else 16, widest + 1, least):
                step = least if whole or columns < _SHORT_LINES else _SHORT_LINES
                narrow = consumers > 2 and columns < _FEWEST_COLUMNS_OF_THREE
                if narrow or columns != -(-across // (step * -(-across // columns))) * step:
                    continue
                stage = (rows + columns) * block_k * size
                rooms = [
                    (block_k * depth, *room)
                    for depth in _depths(plan, rows * columns, block_k)
                    for room in _stages_of_residents(consumers, stage * depth, own * columns // WARPGROUP)
                ]
                for cluster_m, cluster_n in _CLUSTERS:
                    jobs = -(-down // (rows * cluster_m)) * -(-across // (columns * cluster_n)) * plan.slices.number
                    blocks = cluster_m * cluster_n
                    unsuited = blocks > 1 and (down <= rows * (cluster_m - 1) or across <= columns * (cluster_n - 1))
                    unsuited |= blocks > 2 and min(m, n) > _MOST_ROWS_OF_LARGE_CLUSTERS
                    if unsuited or jobs * blocks * 6 < programs:
                        continue
                    for stage_k, resident, stages in rooms:
                        chosen = Schedule(
                            rows, columns, stage_k, 8, 4 * (consumers + 1), stages, _slots(programs, blocks), True,
                            transposed, 1, consumers, ping_pong, cluster_m, cluster_n, resident=resident,
                        )  # fmt: skip
                        if not _allowed(plan, chosen):
                            continue
                        yield chosen
                        if resident > 1 and jobs * blocks > chosen.programs:
                            yield replace(chosen, programs=resident * chosen.programs)


def _depths(plan: MatrixPlan, tile: int, block_k: int) -> list[int]:
    """Return how many times `block_k` values of k a stage may have, for a tile of this number of elements.

    The instructions of a small tile take less time than the barriers of its stages.
    """
    if plan.accumulator_k:
        return [1]
    return [
        each
        for each in DEPTHS
        if each == 1 or (tile <= _LARGEST_DEEP_TILE[each] and 2 * block_k * each <= plan.slices.span)
    ]


def _stages_of_residents(consumers: int, stage: int, accumulators: int) -> list[tuple[int, int]]:
    """Return the numbers of blocks on a multiprocessor, and the stages of a block, that its shared memory allows.

    `stage` is the bytes of one stage, `accumulators` are those of a thread.
    """
    found = []
    for resident in (1, 2) if consumers == 1 else (1,):
        room = shared_bytes_of_block(resident) - RESERVED_BYTES
        stages = (room - consumers * STORE_BUFFERS * STORE_BYTES) // stage
        if stages < _ENOUGH_STAGES:  # with one buffer for the output
            stages = (room - consumers * STORE_BYTES) // stage
        if stages >= 2 and accumulators <= most_accumulators(consumers, resident):
            found.append((resident, min(stages, _MOST_STAGES)))
    return found


def _slots(programs: int, blocks: int) -> int:
    """Return how many blocks run at once in clusters: on an H200 120 of 132 in clusters of four and of eight.

    A group of multiprocessors holds whole clusters (`bitwise_bench.cublas.times.cluster_counts`).
    """
    return programs if blocks <= 2 else programs * 10 // 11 // blocks * blocks
