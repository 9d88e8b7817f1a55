"""How a product is cut into tiles and turns: free choices under one descriptor, none of which decides bits."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_nvidia_ptx.products.plan import MatrixPlan, Plan, Refused, ScalarPlan


@dataclass(frozen=True, slots=True)
class Schedule:
    """A tile of the output, k in one turn, groups of tile rows, warps and stages.

    `programs` is 0 for a program to each tile; otherwise so many programs take tiles one after another, and the
    operands arrive by tensor maps.  For products by lanes `block_m` is the number of output elements in a program,
    `block_k` the steps of k unrolled.
    """

    block_m: int
    block_n: int = 1
    block_k: int = 64
    group: int = 8
    warps: int = 4
    stages: int = 3
    programs: int = 0


def check(plan: Plan, chosen: Schedule) -> None:
    """Raises Refused for a schedule under which a plan's bits would not be kept."""
    if not isinstance(plan, MatrixPlan):
        if chosen.programs:
            raise Refused(f"{chosen}: tensor maps serve matrix units only")
        return
    if chosen.programs and (plan.first or plan.half):
        raise Refused(f"{chosen}: tensor maps bring whole turns, and the short one last")
    if chosen.programs and plan.slices.number > 1 and plan.slices.span % chosen.block_k:
        raise Refused(f"{chosen}: with tensor maps a slice of {plan.slices.span} k is whole turns")
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


_TILES = (
    (64, 64, 4, 4), (64, 128, 4, 4), (128, 64, 4, 4), (128, 128, 8, 3), (128, 128, 4, 4), (128, 256, 8, 3),
    (256, 128, 8, 3), (64, 256, 4, 3), (64, 32, 4, 5),
)  # fmt: skip


def choices(plan: Plan, m: int, n: int, programs: int = 0) -> list[Schedule]:
    """Schedules worth trying for a product on matrix units, the default one first; all of one descriptor.

    With `programs`, how many run at once on the device, those with tensor maps are among them.
    """
    first = default(plan, m, n)
    found = [first]
    if not isinstance(plan, MatrixPlan):
        return found
    for block_m, block_n, warps, stages in _TILES:
        if block_m > 2 * max(m, 32) or block_n > 2 * max(n, 32):
            continue
        for turn in (plan.block,) if plan.block else (64, 128):
            # Deep turns serve where a tile is small, and operands arrive by tensor maps.
            counts = dict.fromkeys((programs, 0)) if turn == 64 or plan.block else [programs]
            if turn == 128 and not plan.block and (block_m * block_n > 8192 or not programs):
                continue
            for count in counts:
                chosen = Schedule(block_m, block_n, turn, 8, warps, stages if turn == 64 else 3, count)
                try:
                    check(plan, chosen)
                except Refused:
                    continue
                size = 1 if plan.block else 2
                if (block_m + block_n) * turn * size * chosen.stages <= 200_000 and chosen not in found:
                    found.append(chosen)
    return found
