"""How a product is cut into tiles and turns: free choices under one descriptor, none of which decides bits."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, Refused, ScalarPlan


@dataclass(frozen=True, slots=True)
class Schedule:
    """A tile of the output, k in one turn, groups of tile rows, warps and stages.

    `turned` tiles cut the transposed output, their rows along n.  `mapped` operands arrive by tensor maps; `programs`
    programs then take tiles one after another (0: a program to each), and a tile leaves in `parts` parts, 1 or 2.  For
    products by lanes `block_m` is the number of output elements in a program, `block_k` the steps of k unrolled.
    """

    block_m: int
    block_n: int = 1
    block_k: int = 64
    group: int = 8
    warps: int = 4
    stages: int = 3
    programs: int = 0
    mapped: bool = False
    turned: bool = False
    parts: int = 1

    def jobs(self, m: int, n: int) -> int:
        """Tiles of an output."""
        if self.turned:
            m, n = n, m
        return -(-m // self.block_m) * -(-n // self.block_n)


def check(plan: Plan, chosen: Schedule) -> None:
    """Raises Refused for a schedule under which a plan's bits would not be kept."""
    if not isinstance(plan, MatrixPlan):
        if chosen.mapped or chosen.turned:
            raise Refused(f"{chosen}: tensor maps and turned tiles serve matrix units only")
        return
    if (chosen.programs or chosen.parts != 1) and not chosen.mapped:
        raise Refused(f"{chosen}: programs and parts go with tensor maps")
    if chosen.parts not in (1, 2):
        raise Refused(f"{chosen}: a tile leaves in 1 or 2 parts")
    if chosen.mapped and (plan.first or plan.half):
        raise Refused(f"{chosen}: tensor maps bring whole turns, and the short one last")
    if chosen.mapped and plan.slices.number > 1 and plan.slices.span % chosen.block_k:
        raise Refused(f"{chosen}: with tensor maps a slice of {plan.slices.span} k is whole turns")
    if plan.block and (chosen.block_k != plan.block or not _warpgroups(chosen)):
        # Smaller tiles run other instructions, which add fp8 in another way.
        raise Refused(
            f"{chosen}: fp8 takes turns of {plan.block} k, warps in fours, and 64 rows and 16 columns or more for each "
            "four warps"
        )
    step = chosen.block_k // 2 if plan.half else chosen.block_k
    if step % (8 if plan.half else 16) or (plan.first and plan.first % step):
        raise Refused(f"{chosen}: turns are whole instructions, and part the turn of {plan.first} evenly")


def _warpgroups(chosen: Schedule) -> bool:
    """Whether a tile gives each four warps 64 rows and 16 columns of their own."""
    fours = chosen.warps // 4
    down = min(fours, chosen.block_m // 64)
    return not chosen.warps % 4 and down > 0 and chosen.block_n * down >= 16 * fours


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
