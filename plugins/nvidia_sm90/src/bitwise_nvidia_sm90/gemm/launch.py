"""The kernels that a plan launches, with their grids and arguments; tensors only lend their strides and addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bitwise_nvidia_sm90.gemm.plan import BlocksPlan, MatrixPlan, Plan, Refused, ScalarPlan, Slices
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check

_EARLY = {"launch_pdl": 1}
"""A kernel starts while the one before it ends, and waits for its memory: all kernels here do so."""
FEW_SLICES = 16
_TURNED = {
    "A": "B", "B": "A", "M": "N", "N": "M", "stride_am": "stride_bn", "stride_ak": "stride_bk",
    "stride_bk": "stride_ak", "stride_bn": "stride_am", "stride_cm": "stride_cn", "stride_cn": "stride_cm",
}  # fmt: skip
"""A product's arguments, by those of the transposed one."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch: a kernel of this package, its grid, its arguments and its constants by name, and its options."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map over a matrix: `shape` and `strides` in elements, rows dense, and what one copy brings."""

    matrix: Any
    shape: tuple[int, int]
    strides: tuple[int, int]
    block: tuple[int, int]


def calls(
    plan: Plan, chosen: Schedule, a: Any, b: Any, out: Any, workspace: Callable[[tuple[int, ...], str], Any]
) -> list[KernelCall]:
    """What runs, in order, for matrices with `shape` and `stride()` as tensors have them.

    `workspace(shape, dtype)` gives memory for the slices' sums.  Raises Refused for a schedule that does not fit.
    """
    check(plan, chosen)
    m, n = (int(each) for each in out.shape)
    slices = Slices(plan.blocks, plan.k) if isinstance(plan, BlocksPlan) else plan.slices
    # SymbolicVector add one slice to +0 themselves.
    sliced = slices.number > 1 or (isinstance(plan, MatrixPlan) and slices.zero)
    target = workspace((slices.number, m, n), slices.partial) if sliced else out
    strides = (m * n, n, 1) if sliced else (0, *out.stride())
    common = {
        "A": a, "B": b, "C": target, "M": m, "N": n, "K": plan.k, "slice_k": slices.span, "stride_am": a.stride()[0],
        "stride_ak": a.stride()[1], "stride_bk": b.stride()[0], "stride_bn": b.stride()[1], "stride_cs": strides[0],
        "stride_cm": strides[1], "stride_cn": strides[2],
    }  # fmt: skip
    if isinstance(plan, MatrixPlan):
        if chosen.turned:
            common = {name: common[_TURNED.get(name, name)] for name in common}
        first = (_mapped if chosen.mapped else _matrix)(plan, chosen, common)
    else:
        first = _lanes(plan, chosen, m, n, common)
    return [first, _merge(plan, slices, target, out, m, n)] if sliced else [first]


def _matrix(plan: MatrixPlan, chosen: Schedule, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.tiles import product

    step = chosen.block_k // 2 if plan.half else chosen.block_k
    even = bool(plan.first) or (plan.k % step == 0 and (plan.slices.number == 1 or plan.slices.span % step == 0))
    return KernelCall(
        product,
        (-(-common["M"] // chosen.block_m) * -(-common["N"] // chosen.block_n), plan.slices.number),
        common,
        {
            "BLOCK_M": chosen.block_m, "BLOCK_N": chosen.block_n, "BLOCK_K": chosen.block_k, "GROUP": chosen.group,
            "FIRST": plan.first, "HALF": plan.half, "BLOCKED": bool(plan.block), "EVEN": even,
        },
        _options(chosen),
    )  # fmt: skip


def _options(chosen: Schedule) -> dict[str, int]:
    return {"num_warps": chosen.warps, "num_stages": chosen.stages, **_EARLY}


def _mapped(plan: MatrixPlan, chosen: Schedule, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.tensor_maps import mapped_product

    size = 1 if plan.block else 2
    turn, m, n, number = chosen.block_k, common["M"], common["N"], plan.slices.number
    a_strides, b_strides = (common["stride_am"], common["stride_ak"]), (common["stride_bk"], common["stride_bn"])
    a, a_columns = _map(common["A"], (m, plan.k), a_strides, (chosen.block_m, turn), size)
    b, b_columns = _map(common["B"], (plan.k, n), b_strides, (turn, chosen.block_n), size)
    if plan.block and (a_columns or not b_columns):
        raise Refused("fp8 with tensor maps: k is dense in both operands")
    target, mapped, columns = common["C"], False, False
    if number == 1 and not plan.slices.zero:
        part, strides = (chosen.block_m, chosen.block_n // chosen.parts), (common["stride_cm"], common["stride_cn"])
        try:
            # Types of 16 bits and of 32: what holds for the shorter holds for both.
            target, columns = _map(target, (m, n), strides, part, 2)
            mapped = True
        except Refused:
            pass
    jobs = -(-m // chosen.block_m) * -(-n // chosen.block_n) * number
    return KernelCall(
        mapped_product,
        (min(chosen.programs, jobs) if chosen.programs else jobs,),
        {
            "A": a, "B": b, "C": target, "M": m, "N": n, "K": plan.k, "slice_k": plan.slices.span, "slices": number,
            "stride_cs": common["stride_cs"], "stride_cm": common["stride_cm"], "stride_cn": common["stride_cn"],
        },
        {
            "BLOCK_M": chosen.block_m, "BLOCK_N": chosen.block_n, "BLOCK_K": turn, "GROUP": chosen.group,
            "BLOCKED": bool(plan.block), "A_COLUMNS": a_columns, "B_COLUMNS": b_columns,
            "C_MAPPED": mapped, "C_COLUMNS": columns, "PARTS": chosen.parts, "ONCE": plan.slices.span <= turn,
            "PROGRAMS": chosen.programs if chosen.programs < jobs else 0,
        },
        _options(chosen),
    )  # fmt: skip


def _map(
    matrix: Any, shape: tuple[int, int], strides: tuple[int, int], block: tuple[int, int], size: int
) -> tuple[Map, bool]:
    """The map of a matrix, and whether it is of the transposed one.  Raises Refused."""
    for columns, (i, j) in ((False, (0, 1)), (True, (1, 0))):
        if strides[j] == 1 and strides[i] * size % 16 == 0 and strides[i] >= shape[j]:
            return Map(matrix, (shape[i], shape[j]), (strides[i], 1), (block[i], block[j])), columns
    raise Refused(f"strides {strides}: tensor maps take dense rows or columns, a multiple of 16 bytes apart")


def _lanes(plan: ScalarPlan | BlocksPlan, chosen: Schedule, m: int, n: int, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.scalar import lanes

    zero = plan.zero
    if isinstance(plan, BlocksPlan):
        zero = zero and plan.blocks == 1  # with more the second kernel adds them to +0
        own = -(-plan.k // (128 * plan.wide * plan.blocks))
        number, wide, strided, fold = plan.blocks, 128 * plan.wide, False, plan.fold
        tile, chunk, blocks = own, own, plan.blocks
    else:
        number, wide, strided, fold = plan.slices.number, plan.lanes, plan.strided, plan.fold
        tile, chunk, blocks = plan.tile, plan.chunk, plan.taking or plan.lanes
    given = {name: each for name, each in common.items() if name != "M"}
    return KernelCall(
        lanes,
        (-(-m * n // chosen.block_m), number),
        {**given, "count": m * n, "tile": tile, "chunk": chunk, "blocks": blocks},
        {
            "LANES": wide, "STRIDED": strided, "DEALT": isinstance(plan, BlocksPlan), "SEQUENCE": fold.sequence,
            "ROUNDS": fold.rounds, "UNROLL": chosen.block_k, "ZERO": zero, "BLOCK": chosen.block_m,
        },
        {"num_warps": chosen.warps, **_EARLY},
    )  # fmt: skip


def _merge(plan: Plan, slices: Slices, workspace: Any, out: Any, m: int, n: int) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.scalar import merge_blocks
    from bitwise_nvidia_sm90.gemm.kernels.tiles import merge

    strides = tuple(out.stride())
    common = {"W": workspace, "C": out, "N": n, "count": m * n, "stride_cm": strides[0], "stride_cn": strides[1]}
    if isinstance(plan, BlocksPlan):
        constants = {"THREADS": plan.threads, "ZERO": plan.zero, "BLOCK": 4}
        grid = (-(-m * n // 4),)
        return KernelCall(merge_blocks, grid, {**common, "blocks": plan.blocks}, constants, {"num_warps": 4, **_EARLY})
    flat = strides[1] == 1 and (m == 1 or strides[0] == n)
    block = 1024 if m * n >= 1 << 18 else 256
    return KernelCall(
        merge,
        (-(-m * n // block),),
        {**common, "slices": slices.number},
        {
            "ROUNDED": slices.rounded, "ZERO": slices.zero, "FLAT": flat, "BLOCK": block,
            "FEW": slices.number if slices.number <= FEW_SLICES else 0,
        },
        {"num_warps": block // 128, **_EARLY},
    )  # fmt: skip
