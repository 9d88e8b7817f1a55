"""Schedules worth trying for a product, those expected to be fast first; what is expected decides no bits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, Refused
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check, default

SHARED = 232_448
"""Bytes of shared memory that a program can have."""
MULTIPROCESSORS = 132
CACHE = 40e6
"""Bytes of which most stay in the device's cache from one launch to the next."""
_LARGEST = {128: 128 * 64, 256: 64 * 16}
"""The largest tile that deep turns serve, by their k."""
_OFTEN = 5
"""Schedules of one tile among those worth trying."""

# Rows, columns and warps of a tile.
_TILES = (
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
_POINTERS = (
    (64, 64, 4, 4), (64, 128, 4, 4), (128, 64, 4, 4), (128, 128, 8, 3), (128, 128, 4, 4), (128, 256, 8, 3),
    (256, 128, 8, 3), (64, 256, 4, 3), (64, 32, 4, 5),
)  # fmt: skip


@cache
def costs() -> Mapping[str, float]:
    """Rates and times of one device that the expected time is made of, fitted to measured times."""
    text = files(__package__).joinpath("data/costs-sm90.json").read_text(encoding="utf-8")
    found: dict[str, float] = json.loads(text)["costs"]
    return found


def choices(plan: Plan, m: int, n: int, programs: int = MULTIPROCESSORS, most: int = 32) -> list[Schedule]:
    """Up to `most` schedules worth trying, expected to be fast first, and one that runs everywhere last.

    `programs` is the number of multiprocessors.  All are of one descriptor; those whose operands arrive by tensor maps
    refuse operands of some strides when they are launched.
    """
    last = default(plan, m, n)
    if not isinstance(plan, MatrixPlan):
        return [last]
    found = [each for each in _pointers(plan, m, n) if each != last]
    if not plan.first and not plan.half:
        ranked = sorted(_mapped(plan, m, n, programs), key=lambda each: expected(plan, each, m, n, programs))
        found = _varied(ranked) + [each for each in found if not ranked]
    return [*found[: most - 1], last]


def _varied(ranked: list[Schedule]) -> list[Schedule]:
    """The first few of each tile, in order."""
    seen: dict[tuple[int, int, int, bool], int] = {}
    found = []
    for each in ranked:
        tile = (each.block_m, each.block_n, each.warps, each.turned)
        seen[tile] = seen.get(tile, 0) + 1
        if seen[tile] <= _OFTEN:
            found.append(each)
    return found


def _allowed(plan: Plan, chosen: Schedule) -> bool:
    try:
        check(plan, chosen)
    except Refused:
        return False
    return True


def _pointers(plan: MatrixPlan, m: int, n: int) -> Iterator[Schedule]:
    for block_m, block_n, warps, stages in _POINTERS:
        chosen = Schedule(block_m, block_n, plan.block or 64, 8, warps, stages)
        if block_m <= 2 * max(m, 32) and block_n <= 2 * max(n, 32) and _allowed(plan, chosen):
            yield chosen


def _mapped(plan: MatrixPlan, m: int, n: int, programs: int) -> Iterator[Schedule]:
    """Schedules by tensor maps that fit in shared memory and waste little of their tiles."""
    size = 1 if plan.block else 2
    span = plan.slices.span
    for turned in (False, True):
        down, across = (n, m) if turned else (m, n)
        for rows, columns, warps in _TILES:
            if (rows == 16 and (down > 16 or turned)) or rows >= 2 * max(down, 64) or columns >= 2 * max(across, 16):
                continue
            jobs = -(-down // rows) * -(-across // columns) * plan.slices.number
            if jobs * 6 < programs and rows * columns > 1024:
                continue
            for turn in (plan.block,) if plan.block else (16, 32, 64, 128, 256):
                deep = turn >= 2 * max(span, 16) or (turn < 64 and turn < span)
                if not plan.block and (deep or rows * columns > _LARGEST.get(turn, 1 << 20)):
                    continue
                tile = Schedule(rows, columns, turn, 8, warps, 2, 0, True, turned)
                for each in _depths(tile, span, jobs, programs, (rows + columns) * turn * size):
                    if _allowed(plan, each):
                        yield each


def _depths(tile: Schedule, span: int, jobs: int, programs: int, stage: int) -> Iterator[Schedule]:
    """A tile's schedules: stages for one program of a multiprocessor or two, tiles in turn or not, in one part or two;
    `stage` is the bytes of one stage."""
    turns = -(-span // tile.block_k)
    whole = tile.block_m * tile.block_n >= 128 * 128 and tile.block_n >= 128
    for parts in (1, 2) if whole else (1,):
        for count in (0, programs):
            if count and (jobs <= count or not whole):
                continue
            out = tile.block_m * tile.block_n * 2 // parts if count else 0
            rooms = [SHARED - 1024 - out] if count else [SHARED - 1024, SHARED // 2 - 2048, SHARED // 3 - 2048]
            depths = {min(room // stage, 10, max(2, turns)) for room in rooms}
            for stages in sorted(depths) if turns > 1 else (2,):
                if stages >= 2:
                    yield replace(tile, stages=stages, programs=count, parts=parts)


def expected(plan: MatrixPlan, chosen: Schedule, m: int, n: int, programs: int = MULTIPROCESSORS) -> float:
    """Seconds that a product is expected to take under a schedule by tensor maps.

    Every multiprocessor runs its tiles in rounds of as many programs as fit; a turn of a round takes what the matrix
    unit, the copies, or the wait for a stage takes, whichever is longest.
    """
    cost = costs()
    size = 1 if plan.block else 2
    rows, columns, number = chosen.block_m, chosen.block_n, plan.slices.number
    jobs = chosen.jobs(m, n) * number
    turns = -(-plan.slices.span // chosen.block_k)
    stage = (rows + columns) * chosen.block_k * size
    width = next((str(each) for each in (16, 32, 64, 192) if columns <= each), "256")
    rate = cost[f"rate {width}"] * (2 / size) * (cost["few rows"] if rows < 64 else 1)
    held = max(stage * (min(chosen.stages, turns + 1) if turns > 1 else 1), rows * columns * 2) + 2048
    held += rows * columns * 2 // chosen.parts if chosen.programs else 0
    registers = (rows * columns / (32 * chosen.warps) + 40) * 32 * chosen.warps
    fitting = max(1, min(SHARED // held, 64 // max(chosen.warps, 4), int(65536 // registers)))
    mine = -(-jobs // programs)
    together = min(mine, 1 if chosen.programs else fitting)
    rounds: float = -(-mine // together)
    # With many rounds the last one is rarely full on every multiprocessor at once.
    beside = mine / rounds
    if jobs > 8 * programs and not chosen.programs:
        rounds = jobs / programs / together
    matrix, copies = rows * columns * chosen.block_k * 2 / rate, stage / cost["copied"]
    waiting = (cost["wait"] + stage / cost["arriving"]) / max(1, chosen.stages - 1)
    body = _longest(beside * matrix, beside * copies, waiting) + cost["turn"]
    store = beside * rows * columns * (2 if number == 1 else 4) / cost["stored"]
    start = cost["job"] * (cost["next job"] if chosen.programs else 1)
    seconds = cost["launch"] + rounds * (start + turns * body + store) + (cost["merge"] if number > 1 else 0)
    moved = size * (m * plan.k + plan.k * n) + 2 * m * n
    read = cost["launch"] + jobs * turns * stage / cost["cached"]
    return _longest(seconds, read, moved / cost["memory"] if moved > CACHE else 0.0)


def _longest(*seconds: float) -> float:
    """The longest of times that pass together, and a little of the others, which are never quite hidden."""
    longest = max(seconds)
    return longest + costs()["hidden"] * (sum(seconds) - longest)
