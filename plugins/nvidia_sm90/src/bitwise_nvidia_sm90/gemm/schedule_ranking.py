"""Candidate schedules of a product, ranked by a cost model.  The ranking does not affect the bits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    SHARED_BYTES,
    STAGE_BYTES,
    STORE_BUFFERS,
    STORE_BYTES,
    WARPGROUP,
    most_accumulators,
    widest_line,
)
from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check, fallback

MULTIPROCESSORS = 132
L2_BYTES = 40e6
"""Operands of up to this size mostly stay in the L2 cache between launches."""
_LARGEST_TILE = {128: 128 * 64, 256: 64 * 16}
"""By block_k: the largest tile, in elements, for which this block_k is a candidate."""
_PER_TILE = 5
"""The largest number of candidates with one tile shape."""

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
_POINTER_TILES = (
    (64, 64, 4, 4), (64, 128, 4, 4), (128, 64, 4, 4), (128, 128, 8, 3), (128, 128, 4, 4), (128, 256, 8, 3),
    (256, 128, 8, 3), (64, 256, 4, 3), (64, 32, 4, 5),
)  # fmt: skip


# Rows of a tile, consumers, and whether they compute a tile each.
_WARPGROUP_TILES = ((64, 1, False), (128, 1, False), (128, 2, False), (128, 2, True), (192, 3, False), (256, 2, False))
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4))
_MOST_STAGES = 10


@cache
def costs() -> Mapping[str, float]:
    """Return the parameters of the cost model, rates and times of one device, fitted to measured times."""
    text = files(__package__).joinpath("data/costs-sm90.json").read_text(encoding="utf-8")
    found: dict[str, float] = json.loads(text)["costs"]
    return found


def schedules_to_try(
    plan: Plan,
    m: int,
    n: int,
    programs: int = MULTIPROCESSORS,
    most: int = 32,
    k_contiguous: tuple[bool, bool] = (True, True),
    mapped: tuple[bool, bool, bool] = (True, True, True),
) -> list[Schedule]:
    """Return up to `most` candidate schedules, those with the least expected time first, and the fallback last.

    `programs` is the number of multiprocessors, `k_contiguous` as in `expected_seconds`; `mapped` says of A, B
    and the output whether there is a tensor map of it.
    """
    last = fallback(plan, m, n)
    if not isinstance(plan, MatrixPlan):
        return [last]
    pointers = [each for each in _pointer_schedules(plan, m, n) if each != last]
    if not plan.short_first and not plan.instruction_k8 and all(mapped[:2]):
        every = [*_tma_schedules(plan, m, n, programs), *_warpgroup_schedules(plan, m, n, programs)]
        ranked = sorted(every, key=lambda each: expected_seconds(plan, each, m, n, programs, k_contiguous, mapped[2]))
        found = _few_per_tile(ranked) or pointers
    else:
        timed = [(_seconds_of_pointers(plan, m, n), each) for each in pointers]
        timed += [
            (expected_seconds(plan, each, m, n, programs), each) for each in _packed_schedules(plan, m, n, programs)
        ]
        found = _few_per_tile([each for _, each in sorted(timed, key=lambda each: each[0])])
    return [*found[: most - 1], last]


def _packed_schedules(plan: MatrixPlan, m: int, n: int, programs: int) -> Iterator[Schedule]:
    """Yield schedules that pack the operands."""
    if plan.accumulator_k:
        return
    packed = packed_plan(plan)
    for each in (*_tma_schedules(packed, m, n, programs), *_warpgroup_schedules(packed, m, n, programs)):
        yield replace(each, packed=True)


def _seconds_of_pointers(plan: MatrixPlan, m: int, n: int) -> float:
    """Return a rough time of a product under a schedule without TMA."""
    cost = costs()
    operations = 2 * max(m, 16) * n * plan.k * (2 if plan.instruction_k8 else 1)
    return (
        cost["launch by pointers"] + operations / cost["by pointers"] + (cost["merge"] if plan.slices.number > 1 else 0)
    )


def _few_per_tile(ranked: list[Schedule]) -> list[Schedule]:
    """Return the first _PER_TILE schedules of each tile shape, in order."""
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for each in ranked:
        tile = (each.block_m, each.block_n, each.warps, each.transposed, each.consumers, each.ping_pong, each.packed)
        seen[tile] = seen.get(tile, 0) + 1
        if seen[tile] <= _PER_TILE:
            found.append(each)
    return found


def _allowed(plan: Plan, chosen: Schedule) -> bool:
    try:
        check(plan, chosen)
    except UnsupportedGEMM:
        return False
    return True


def _pointer_schedules(plan: MatrixPlan, m: int, n: int) -> Iterator[Schedule]:
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


def _warpgroup_schedules(plan: MatrixPlan, m: int, n: int, programs: int) -> Iterator[Schedule]:
    """Yield schedules with consumers that fit in shared memory and whose tiles the output mostly fills."""
    size = 1 if plan.accumulator_k else 2
    block_k = plan.accumulator_k or 64
    for transposed in (False, True):
        down, across = (n, m) if transposed else (m, n)
        for rows, consumers, ping_pong in _WARPGROUP_TILES:
            if rows >= 2 * max(down, 64):
                continue
            own = rows if ping_pong else rows // consumers
            accumulators = most_accumulators(consumers) // (2 if plan.accumulator_k else 1)
            widest = min(256, accumulators * WARPGROUP // own)
            for columns in range(16, widest + 1, 16):
                if columns >= across + 16:
                    continue
                room = SHARED_BYTES - 1024 - consumers * STORE_BUFFERS * STORE_BYTES
                stages = min(room // ((rows + columns) * block_k * size), _MOST_STAGES)
                for cluster_m, cluster_n in _CLUSTERS:
                    jobs = -(-down // (rows * cluster_m)) * -(-across // (columns * cluster_n)) * plan.slices.number
                    blocks = cluster_m * cluster_n
                    unsuited = blocks > 1 and (down <= rows * (cluster_m - 1) or across <= columns * (cluster_n - 1))
                    if (
                        stages < 2
                        or unsuited
                        or columns % (8 * cluster_m)
                        or rows % (8 * cluster_n)
                        or jobs * blocks * 6 < programs
                    ):
                        continue
                    chosen = Schedule(
                        rows, columns, block_k, 8, 4 * (consumers + 1), stages, _slots(programs, blocks), True,
                        transposed, 1,
                        consumers, ping_pong, cluster_m, cluster_n,
                    )  # fmt: skip
                    if _allowed(plan, chosen):
                        yield chosen


def _slots(programs: int, blocks: int) -> int:
    """Return how many blocks run at once in clusters: 120 of 132 on an H100 in clusters of four.

    A group of multiprocessors holds whole clusters.
    """
    return programs if blocks <= 2 else programs * 10 // 11 // blocks * blocks


def expected_seconds(
    plan: MatrixPlan,
    chosen: Schedule,
    m: int,
    n: int,
    programs: int = MULTIPROCESSORS,
    k_contiguous: tuple[bool, bool] = (True, True),
    out_mapped: bool = True,
    given: Mapping[str, float] | None = None,
) -> float:
    """Return the expected seconds of a product under a TMA schedule, by the `given` costs or those of the package.

    `k_contiguous` says for A and B whether their values of k are contiguous, `out_mapped` whether there is a tensor map
    of the output.

    Each multiprocessor runs its tiles in waves of as many programs as fit.  An iteration of a wave takes the longest of
    three times: the matrix unit's, the copies', and the wait for a stage.
    """
    cost = costs() if given is None else given
    if chosen.packed:
        packed = packed_plan(plan)
        product = expected_seconds(
            packed, replace(chosen, packed=False), m, n, programs, (True, True), out_mapped, given
        )
        return product + cost["packing"] + 2 * (m + n) * (plan.k + packed.k) / cost["packed"]
    if chosen.consumers:
        return _seconds_of_warpgroups(plan, chosen, m, n, k_contiguous, out_mapped, cost)
    size = 1 if plan.accumulator_k else 2
    rows, columns, number = chosen.block_m, chosen.block_n, plan.slices.number
    jobs = chosen.tiles(m, n) * number
    iterations = -(-plan.slices.span // chosen.block_k)
    stage = (rows + columns) * chosen.block_k * size
    width = next((str(each) for each in (16, 32, 64, 192) if columns <= each), "256")
    rate = cost[f"rate {width}"] * (2 / size) * (cost["few rows"] if rows < 64 else 1)
    held = max(stage * (min(chosen.stages, iterations + 1) if iterations > 1 else 1), rows * columns * 2) + 2048
    held += rows * columns * 2 // chosen.store_parts if chosen.programs else 0
    registers = (rows * columns / (32 * chosen.warps) + 40) * 32 * chosen.warps
    fitting = max(1, min(SHARED_BYTES // held, 64 // max(chosen.warps, 4), int(65536 // registers)))
    per_processor = -(-jobs // programs)
    concurrent = min(per_processor, 1 if chosen.programs else fitting)
    waves: float = -(-per_processor // concurrent)
    mean_concurrent = per_processor / waves
    # With many waves, the partial last wave differs between multiprocessors and averages out.
    if jobs > 8 * programs and not chosen.programs:
        waves = jobs / programs / concurrent
    matrix, copies = rows * columns * chosen.block_k * 2 / rate, stage / cost["copied"]
    waiting = (cost["wait"] + stage / cost["arriving"]) / max(1, chosen.stages - 1)
    body = _overlapped(cost, mean_concurrent * matrix, mean_concurrent * copies, waiting) + cost["iteration"]
    store = mean_concurrent * rows * columns * (2 if number == 1 else 4) / cost["stored"]
    start = cost["job"] * (cost["next job"] if chosen.programs else 1)
    seconds = cost["launch"] + waves * (start + iterations * body + store) + (cost["merge"] if number > 1 else 0)
    moved = size * (m * plan.k + plan.k * n) + 2 * m * n
    read = cost["launch"] + jobs * iterations * stage / cost["cached"]
    return _overlapped(cost, seconds, read, moved / cost["memory"] if moved > L2_BYTES else 0.0)


def _seconds_of_warpgroups(
    plan: MatrixPlan,
    chosen: Schedule,
    m: int,
    n: int,
    k_contiguous: tuple[bool, bool],
    out_mapped: bool,
    cost: Mapping[str, float],
) -> float:
    """Return the expected seconds of a product under a schedule with consumers.

    A multiprocessor computes tiles one after the other; with ping_pong, it stores one while it multiplies the next.  A
    stage takes the longest of four times: that of the instructions, of their reads of shared memory, of the copies, and
    of the wait for a stage.  The blocks of a cluster wait for each other.
    """
    size, number = (1 if plan.accumulator_k else 2), plan.slices.number
    rows, columns, blocks = chosen.block_m, chosen.block_n, chosen.cluster_m * chosen.cluster_n
    down, across = (n, m) if chosen.transposed else (m, n)
    clusters = -(-down // (rows * chosen.cluster_m)) * -(-across // (columns * chosen.cluster_n)) * number
    stages = -(-plan.slices.span // chosen.block_k)
    stage = (rows + columns) * chosen.block_k * size
    of_rows, of_columns = k_contiguous[::-1] if chosen.transposed else k_contiguous
    copied = 0.0
    for length, sharers, contiguous in (
        (rows, chosen.cluster_n, of_rows),
        (columns, chosen.cluster_m, of_columns),
    ):
        width = STAGE_BYTES if contiguous else widest_line(length, size) * size
        copied += length / sharers * chosen.block_k * size * (1 + cost["short lines"] * (STAGE_BYTES / width - 1))
    matrix = rows * columns * chosen.block_k * 2 / cost["consumed"] * size / 2
    shared = rows // 64 * (64 + columns) * chosen.block_k * size / cost["read"]
    waiting = (cost["wait"] + stage / cost["arriving"]) / max(1, chosen.stages - 1)
    body = _overlapped(cost, matrix, shared, copied / cost["copied by a producer"], waiting)
    body *= 1 + cost["cluster"] * (blocks - 1)
    stored = "stored by elements" if chosen.transposed or not out_mapped else "stored by consumers"
    store = rows * columns * (2 if number == 1 else 4) / cost[stored]
    jobs = -(-clusters // max(1, chosen.programs // blocks))
    seconds = cost["launch"] + cost["first tile"] + jobs * (stages * body + cost["next tile"])
    seconds += store * (1 if chosen.ping_pong else jobs) + (cost["first of a cluster"] if blocks > 1 else 0)
    seconds += cost["merge"] if number > 1 else 0
    read = cost["launch"] + clusters * blocks * stages * copied / cost["cached"]
    moved = size * (m * plan.k + plan.k * n) + 2 * m * n
    return _overlapped(cost, seconds, read, moved / cost["memory"] if moved > L2_BYTES else 0.0)


def _overlapped(cost: Mapping[str, float], *seconds: float) -> float:
    """Return the time of overlapping activities: the longest, and a fraction of the others that is not hidden."""
    longest = max(seconds)
    return longest + cost["hidden"] * (sum(seconds) - longest)
