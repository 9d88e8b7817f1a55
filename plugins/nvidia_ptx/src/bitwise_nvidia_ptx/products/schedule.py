"""How a product is cut into tiles and turns: free choices under one descriptor, none of which decides bits."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_nvidia_ptx.products.plan import MatrixPlan, Plan, Refused, ScalarPlan


@dataclass(frozen=True, slots=True)
class Schedule:
    """A tile of the output, k in one turn, groups of tile rows, warps and stages.

    For products by lanes `block_m` is the number of output elements in a program, `block_k` the steps of k unrolled.
    """

    block_m: int
    block_n: int = 1
    block_k: int = 64
    group: int = 8
    warps: int = 4
    stages: int = 3


def check(plan: Plan, chosen: Schedule) -> None:
    """Raises Refused for a schedule under which a plan's bits would not be kept."""
    if not isinstance(plan, MatrixPlan):
        return
    if plan.block and (chosen.block_k != plan.block or chosen.block_m < 64 or chosen.warps % 4):
        # Smaller tiles run other instructions, which add fp8 in another way.
        raise Refused(f"{chosen}: fp8 takes turns of {plan.block} k, tiles of 64 rows or more, and warps in fours")
    step = chosen.block_k // 2 if plan.half else chosen.block_k
    if step % (8 if plan.half else 16) or (plan.first and plan.first % step):
        raise Refused(f"{chosen}: turns are whole instructions, and part the turn of {plan.first} evenly")


def default(plan: Plan, m: int, n: int) -> Schedule:
    """A schedule that runs everywhere."""
    if not isinstance(plan, MatrixPlan):
        lanes = plan.lanes if isinstance(plan, ScalarPlan) else 128 * plan.wide
        return Schedule(max(1, min(128, 512 // lanes)), block_k=8, warps=4)
    block_m, block_n = _side(m), _side(n)
    if plan.block:
        return Schedule(max(64, block_m), block_n, plan.block, warps=8 if block_m * block_n > 8192 else 4)
    turn = 64
    if plan.first:
        turn = min(plan.first, 64) if not plan.half else 2 * plan.first
    return Schedule(block_m, block_n, turn, warps=8 if block_m * block_n > 8192 else 4)


def _side(length: int) -> int:
    return 16 if length <= 16 else 64 if length <= 512 else 128


def choices(plan: Plan, m: int, n: int) -> list[Schedule]:
    """Schedules worth trying for a product on matrix units, the default one first; all of one descriptor."""
    first = default(plan, m, n)
    if not isinstance(plan, MatrixPlan):
        return [first]
    found = [first]
    turns = [plan.block] if plan.block else [32, 64, 128]
    for tile in ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128)):
        for turn in turns:
            for warps, stages in ((4, 3), (4, 4), (8, 3), (8, 4)):
                chosen = Schedule(*tile, turn, 8, warps, stages)
                try:
                    check(plan, chosen)
                except Refused:
                    continue
                if (tile[0] + tile[1]) * turn * 2 * stages <= 220_000 and chosen not in found:
                    found.append(chosen)
    return found
