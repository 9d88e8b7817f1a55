"""Schedules of a product: tile shape, k per iteration, warps, stages.  A schedule does not affect the bits."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, ScalarPlan, SinglePrecisionPlan, UnsupportedGEMM


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tile shape (block_m, block_n), k per iteration (block_k), rows of tiles in a group of programs, warps and stages.

    `transposed`: compute the transposed product, so that rows of tiles run along n.  `tma`: load the operands by TMA.
    With `tma`, `programs` is the number of persistent programs (0: one program per tile), and a tile is stored in
    `store_parts` parts, 1 or 2.

    For products by lanes, `block_m` is the number of output elements of a program, or with `block_n` > 1 of its columns
    in as many rows, and `block_k` the unroll factor of k; with 2 `stages`, an iteration loads the k of the next one
    first.  With `wide`, a thread loads the values of four neighbouring elements at once, where the output is one row or
    column.  With `lane_rows`, a kernel of `kernels.lane_rows` computes it, which loads `block_k` lines at once.  With
    `few_rows`, one of `kernels.few_rows` computes up to 16 rows or columns, of `block_m` columns or rows in a program.

    `consumers` chooses a kernel of `kernels.warpgroup_text`: that number of warpgroups multiplies what one more copies
    by TMA (0: a Triton kernel).  With `ping_pong`, two consumers compute a tile each; otherwise they share each tile.
    `cluster_m` and `cluster_n` are the blocks along m and n that share the copies of operands.

    `packed`: a first kernel packs the operands into aligned memory, in the order in which instructions take them, and
    the kernel of the other fields, which need `tma`, multiplies the packed operands.  An operand that this kernel can
    take as it is stays.

    `gathering`: that number of warpgroups loads the operands in that order without tensor maps, instead of the one that
    copies by TMA (0: none).

    `resident` is the number of blocks with consumers that fit on a multiprocessor at once, 1 or 2, or with a gathering
    up to 4.  With `overlap`, the
    next kernel of the stream starts where multiprocessors are free before the kernel ends.  Without it, that kernel
    starts on an idle device, which places equal grids equally: a block then reads what an earlier launch left in its
    part of the L2 cache.
    """

    block_m: int
    block_n: int = 1
    block_k: int = 64
    group: int = 8
    warps: int = 4
    stages: int = 3
    programs: int = 0
    tma: bool = False
    transposed: bool = False
    store_parts: int = 1
    consumers: int = 0
    ping_pong: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    packed: bool = False
    resident: int = 1
    overlap: bool = True
    gathering: int = 0
    wide: bool = False
    lane_rows: bool = False
    few_rows: bool = False

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of an output of m rows and n columns."""
        if self.transposed:
            m, n = n, m
        return -(-m // self.block_m) * -(-n // self.block_n)


def check(plan: Plan, chosen: Schedule) -> None:
    """Raise UnsupportedGEMM if the kernels under this schedule would not return the bits of the plan."""
    if not isinstance(plan, MatrixPlan):
        if chosen.tma or chosen.transposed or chosen.consumers or chosen.packed or chosen.gathering:
            raise UnsupportedGEMM(
                f"{chosen}: tma, transposed, consumers, packed and gathering apply to 16-bit and 8-bit types"
            )
        if chosen.resident != 1 or not chosen.overlap:
            raise UnsupportedGEMM(f"{chosen}: resident and overlap apply to 16-bit and 8-bit types")
        lanes = isinstance(plan, ScalarPlan) and not plan.fp16_sums
        if (chosen.wide or chosen.lane_rows or chosen.few_rows) and not lanes:
            raise UnsupportedGEMM(f"{chosen}: wide, lane_rows and few_rows apply to lanes of one block, of fp32")
        if isinstance(plan, SinglePrecisionPlan) and chosen.block_k % 16:
            raise UnsupportedGEMM(f"{chosen}: an iteration of fp32 operands takes a multiple of 16 values of k")
        return
    if chosen.wide or chosen.lane_rows or chosen.few_rows:
        raise UnsupportedGEMM(f"{chosen}: wide, lane_rows and few_rows apply to products by lanes")
    if plan.fp16_sums and (chosen.tma or chosen.consumers or chosen.packed):
        raise UnsupportedGEMM(f"{chosen}: accumulators of fp16 have a kernel of Triton without tensor maps")
    if chosen.packed:
        if not chosen.tma:
            raise UnsupportedGEMM(f"{chosen}: packed operands need tensor maps (tma)")
        plan = packed_plan(plan)
    _check_warpgroups(plan, chosen)
    if chosen.gathering:
        return
    if (chosen.programs or chosen.store_parts != 1 or not chosen.overlap) and not chosen.tma:
        raise UnsupportedGEMM(f"{chosen}: programs, store_parts and kernels that do not overlap need tma")
    if chosen.store_parts not in (1, 2):
        raise UnsupportedGEMM(f"{chosen}: store_parts is 1 or 2")
    if chosen.tma and (plan.short_first or plan.instruction_k8):
        raise UnsupportedGEMM(
            f"{chosen}: with tma but not packed, the short iteration runs last, and instructions have their native k"
        )
    if chosen.tma and plan.slices.number > 1 and plan.slices.span % chosen.block_k:
        raise UnsupportedGEMM(f"{chosen}: with tma a slice of {plan.slices.span} k must be whole iterations")
    runs_wgmma = chosen.consumers or _fills_warpgroups(chosen)
    if plan.accumulator_k and (chosen.block_k != plan.accumulator_k or not runs_wgmma):
        # For smaller tiles Triton emits mma.sync, whose sums of fp8 products differ.
        raise UnsupportedGEMM(
            f"{chosen}: fp8 needs iterations of {plan.accumulator_k} k, a multiple of four warps, and at least 64 rows "
            "and 16 columns for each four warps"
        )
    step = chosen.block_k // 2 if plan.instruction_k8 else chosen.block_k
    if step % (8 if plan.instruction_k8 else 16) or (plan.short_first and plan.short_first % step):
        raise UnsupportedGEMM(
            f"{chosen}: an iteration is whole instructions, and divides the iteration of {plan.short_first} k that "
            "runs first"
        )


def _check_warpgroups(plan: MatrixPlan, chosen: Schedule) -> None:
    """Raise UnsupportedGEMM for fields of a kernel of `warpgroup_text` that do not fit each other or the plan."""
    if not chosen.consumers:
        clusters = (chosen.cluster_m, chosen.cluster_n) != (1, 1)
        if chosen.ping_pong or clusters or chosen.resident != 1 or chosen.gathering:
            raise UnsupportedGEMM(f"{chosen}: ping_pong, clusters, resident and gathering need consumers")
        return
    others = chosen.gathering or 1
    if chosen.tma == bool(chosen.gathering) or chosen.store_parts != 1:
        raise UnsupportedGEMM(f"{chosen}: consumers need either tma or a gathering, and store_parts 1")
    if chosen.warps != 4 * (chosen.consumers + others):
        raise UnsupportedGEMM(f"{chosen}: consumers need four warps each, and {4 * others} more")
    if chosen.gathering and (chosen.packed or plan.accumulator_k):
        raise UnsupportedGEMM(f"{chosen}: a gathering takes operands of 16 bits that are not packed")
    if chosen.block_k not in ((plan.accumulator_k,) if plan.accumulator_k else (64, 128, 256)):
        raise UnsupportedGEMM(f"{chosen}: with consumers, block_k is 64, 128 or 256, and 128 for fp8")


def _fills_warpgroups(chosen: Schedule) -> bool:
    """Return whether a tile has 64 rows and 16 columns for each warpgroup (four warps)."""
    fours = chosen.warps // 4
    down = min(fours, chosen.block_m // 64)
    return not chosen.warps % 4 and down > 0 and chosen.block_n * down >= 16 * fours


def fallback(plan: Plan, m: int, n: int) -> Schedule:
    """Return a schedule that runs for any operands."""
    if isinstance(plan, SinglePrecisionPlan):
        most = 128 if plan.tf32 else 64
        block_m, block_n = min(_tile_side(m), most), min(_tile_side(n), most)
        block_k = 32 if plan.tf32 and plan.short_first != 16 else 16
        return Schedule(block_m, block_n, block_k, warps=8 if block_m * block_n > 8192 else 4)
    if not isinstance(plan, MatrixPlan):
        lanes = plan.lanes if isinstance(plan, ScalarPlan) else 128 * plan.accumulators
        return Schedule(max(1, min(128, 512 // lanes)), block_k=8, warps=4)
    block_m, block_n = _tile_side(m), _tile_side(n)
    if plan.accumulator_k:
        return Schedule(max(64, block_m), block_n, plan.accumulator_k, warps=8 if block_m * block_n > 8192 else 4)
    block_k = 64
    if plan.short_first:
        block_k = min(plan.short_first, 64) if not plan.instruction_k8 else 2 * plan.short_first
    return Schedule(block_m, block_n, block_k, warps=8 if block_m * block_n > 8192 else 4)


def _tile_side(length: int) -> int:
    return 16 if length <= 16 else 64 if length <= 512 else 128
