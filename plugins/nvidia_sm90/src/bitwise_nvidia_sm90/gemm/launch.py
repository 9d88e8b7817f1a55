"""The kernel launches of a plan: kernels, grids and arguments.

Of a tensor only `shape`, `stride()`, `dtype` and `data_ptr()` are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bitwise_nvidia_sm90.gemm.block_scaling import BlockScaling
from bitwise_nvidia_sm90.gemm.expected_times import MULTIPROCESSORS
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.kernels.block_scales import COLUMN_SCALES, ROW_SCALES
from bitwise_nvidia_sm90.gemm.kernels.finish import MOST_OPERANDS, are_early
from bitwise_nvidia_sm90.gemm.kernels.gathering import LINE_PARAMETERS
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import OPERAND_PARAMETERS
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    OUTPUT_BYTES,
    WARPGROUP,
    WarpgroupTiles,
    fills_lines,
    shared_bytes_of_block,
)
from bitwise_nvidia_sm90.gemm.matrix_layouts import (
    ALIGNMENT,
    MatrixMap,
    has_map,
    is_k_major,
    is_transposed,
    matrix_map,
    type_of,
)
from bitwise_nvidia_sm90.gemm.packed_operands import STAGE, packed_plan, packed_slices
from bitwise_nvidia_sm90.gemm.plan import (
    BlocksPlan,
    MatrixPlan,
    Plan,
    ScalarPlan,
    SinglePrecisionPlan,
    Slices,
    UnsupportedGEMM,
)
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check
from bitwise_nvidia_sm90.gemm.warpgroup_kernels import kernel_of, warpgroup_tiles

_DEPENDENT_LAUNCH = {"launch_pdl": 1}
"""Programmatic dependent launch: a kernel starts while the previous one ends, and waits for its memory."""
_WHOLE_SECTORS, _ALIGNED_LINE = 8, 16
"""The sums of a sector of memory, and those of whose multiple a line has that has no whole sectors, unless short."""
_SHARES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""The numbers of blocks to which the blocks of a multiprocessor are bounded."""
UNROLLED_SLICES = 40
"""Up to this number of slices, the loop that adds them is unrolled: a thread then loads all of them at once."""
_TRANSPOSED = {
    "A": "B", "B": "A", "M": "N", "N": "M", "stride_am": "stride_bn", "stride_ak": "stride_bk",
    "stride_bk": "stride_ak", "stride_bn": "stride_am", "stride_cm": "stride_cn", "stride_cn": "stride_cm",
    "SA": "SB", "SB": "SA", "sa_row": "sb_column", "sb_column": "sa_row", "sa_k": "sb_k", "sb_k": "sa_k",
    **{f"o{index}_{one}": f"o{index}_{other}" for index in range(MOST_OPERANDS)
       for one, other in (("row", "column"), ("column", "row"))},
}  # fmt: skip
"""For each argument of the transposed product, the argument of the product that it takes."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch: a kernel, its grid, its arguments and constexprs by name, and its compile options.

    The kernel is a Triton function of this package, or a TextKernel, which takes the arguments in the order of its
    parameters and has no constexprs and options.  `shared_bytes` is the least shared memory that a block of a function
    occupies.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, int]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """An operand as rows of values of k, the rows of A or the columns of B.  The strides are in elements."""

    matrix: Any
    rows: int
    stride_row: int
    stride_k: int

    @property
    def rows_innermost(self) -> bool:
        """Whether neighbours in memory are in neighbouring rows, not at neighbouring k."""
        return self.rows > 1 and self.stride_row < self.stride_k


def kernel_calls(
    plan: Plan, chosen: Schedule, a: Any, b: Any, out: Any, workspace: Callable[[tuple[int, ...], str], Any],
    fusion: Fusion | None = None, scaling: BlockScaling | None = None,
) -> list[KernelCall]:  # fmt: skip
    """Return the launches of out = a b, in order, for matrices with the `shape` and `stride()` of tensors.

    With `fusion`, out is its epilogue of the product; with `scaling`, blocks of k have scales.

    Each call of `workspace(shape, dtype)` allocates the memory of one more dense matrix: of a packed operand, or of the
    sums of slices.  Raises UnsupportedGEMM for a schedule that does not fit the plan or the operands.
    """
    check(plan, chosen)
    in_fp16 = isinstance(plan, MatrixPlan | ScalarPlan) and plan.fp16_sums
    if fusion and (isinstance(plan, SinglePrecisionPlan) or in_fp16):
        raise UnsupportedGEMM("an epilogue of a product of fp32 operands, or with sums of fp16: its kernels have none")
    if scaling and not (isinstance(plan, MatrixPlan) and plan.starts_accumulators and chosen.consumers):
        raise UnsupportedGEMM(
            f"{chosen}: scales of blocks of k need fp8 operands, accumulators for each, and consumers"
        )
    m, n = (int(each) for each in out.shape)
    left, right = _Operand(a, m, *a.stride()), _Operand(b, n, *b.stride()[::-1])
    calls: list[KernelCall] = []
    if chosen.packed and isinstance(plan, MatrixPlan):
        calls, (left, right) = _packing(plan, (left, right), workspace)
        plan = packed_plan(plan)
    slices = Slices(plan.blocks, plan.k) if isinstance(plan, BlocksPlan) else plan.slices
    # The kernels of lanes and of fp32 operands add a single slice to +0 themselves.
    sliced = slices.number > 1 or (isinstance(plan, MatrixPlan) and slices.from_zero)
    line = _line_of_sums(n) if isinstance(plan, MatrixPlan) else n
    target = workspace((slices.number, m, line), slices.partial) if sliced else out
    strides = (m * line, line, 1) if sliced else (0, *out.stride())
    common = {
        "A": left.matrix, "B": right.matrix, "C": target, "M": m, "N": n, "K": plan.k, "slice_k": slices.span,
        "stride_am": left.stride_row, "stride_ak": left.stride_k, "stride_bk": right.stride_k,
        "stride_bn": right.stride_row, "stride_cs": strides[0], "stride_cm": strides[1], "stride_cn": strides[2],
    }  # fmt: skip
    last, own = (fusion.arguments(), None if sliced else fusion) if fusion else ({}, None)
    if own:
        common |= last
    if scaling:
        common |= scaling.arguments()
    if isinstance(plan, MatrixPlan):
        if chosen.transposed:
            common = {name: common[_TRANSPOSED.get(name, name)] for name in common}
        if chosen.consumers:
            calls.append(_warpgroups(plan, chosen, common, own, scaling))
        else:
            form = _fp16_sums if plan.fp16_sums else _tma if chosen.tma else _pointers
            calls.append(form(plan, chosen, common, own))
    elif isinstance(plan, SinglePrecisionPlan):
        calls.append(_single_precision(plan, chosen, common))
    else:
        calls.append(_lanes(plan, chosen, m, n, common, own))
    return [*calls, _merge(plan, slices, target, line, out, last, fusion)] if sliced else calls


def _line_of_sums(n: int) -> int:
    """Return the elements from one row of the sums of a slice to the next.

    Aligned lines let kernels of warpgroups store whole sectors, and the last kernel load several values at once.
    """
    step = 1 if n % _WHOLE_SECTORS == 0 else _ALIGNED_LINE if n >= 2 * _ALIGNED_LINE else 2
    return -(-n // step) * step


def _constants(fusion: Fusion | None) -> dict[str, Any]:
    return fusion.constants() if fusion else {}


def _packing(
    plan: MatrixPlan, operands: tuple[_Operand, _Operand], workspace: Callable[[tuple[int, ...], str], Any]
) -> tuple[list[KernelCall], tuple[_Operand, ...]]:
    """Return the launch that packs operands, if any, and the operands of the product by packed_plan(plan).

    An operand that the product can take as it is stays.
    """
    from bitwise_nvidia_sm90.gemm.kernels.packing import pack

    packed_k, span = packed_slices(plan)
    keeps_order = packed_plan(plan) == plan
    sources, targets, found = [], [], []
    for each in operands:
        if keeps_order and has_map(each.matrix):
            found.append(each)
            continue
        sources.append(each)
        targets.append(workspace((each.rows, packed_k), type_of(each.matrix)))
        found.append(_Operand(targets[-1], each.rows, packed_k, 1))
    if not sources:
        return [], tuple(found)
    x, y = sources[0], sources[-1]
    y_rows = y.rows if len(sources) > 1 else 0
    call = KernelCall(
        pack,
        ((-(-x.rows // STAGE) + -(-y_rows // STAGE)) * (packed_k // STAGE),),
        {
            "X": x.matrix, "Y": y.matrix, "PACKED_X": targets[0], "PACKED_Y": targets[-1], "x_rows": x.rows,
            "y_rows": y_rows, "K": plan.k, "slice_k": plan.slices.span, "span": span, "packed_k": packed_k,
            "x_stride_row": x.stride_row, "x_stride_k": x.stride_k, "y_stride_row": y.stride_row,
            "y_stride_k": y.stride_k,
        },
        {
            "X_ROWS_INNERMOST": x.rows_innermost, "Y_ROWS_INNERMOST": y.rows_innermost, "SHORT_FIRST": plan.short_first,
            "INSTRUCTION_K8": plan.instruction_k8, "BLOCK": STAGE,
        },
        {"num_warps": 4, **_DEPENDENT_LAUNCH},
    )  # fmt: skip
    return [call], tuple(found)


def _pointers(plan: MatrixPlan, chosen: Schedule, common: Mapping[str, Any], fusion: Fusion | None) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.tiles import product

    step = chosen.block_k // 2 if plan.instruction_k8 else chosen.block_k
    whole = bool(plan.short_first) or (plan.k % step == 0 and (plan.slices.number == 1 or plan.slices.span % step == 0))
    return KernelCall(
        product,
        (-(-common["M"] // chosen.block_m) * -(-common["N"] // chosen.block_n), plan.slices.number),
        common,
        {
            "BLOCK_M": chosen.block_m, "BLOCK_N": chosen.block_n, "BLOCK_K": chosen.block_k, "GROUP": chosen.group,
            "SHORT_FIRST": plan.short_first, "INSTRUCTION_K8": plan.instruction_k8,
            "NEW_ACCUMULATOR": plan.starts_accumulators, "WHOLE_ITERATIONS": whole, **_constants(fusion),
        },
        _options(chosen),
    )  # fmt: skip


def _fp16_sums(plan: MatrixPlan, chosen: Schedule, common: Mapping[str, Any], fusion: Fusion | None) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.fp16_sums import product_in_fp16

    call = _pointers(plan, chosen, common, fusion)
    constants = {name: each for name, each in call.constants.items() if name != "NEW_ACCUMULATOR"}
    return replace(call, kernel=product_in_fp16, constants=constants)


def _single_precision(plan: SinglePrecisionPlan, chosen: Schedule, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.single_precision import product_of_fp32

    return KernelCall(
        product_of_fp32,
        (-(-common["M"] // chosen.block_m) * -(-common["N"] // chosen.block_n), plan.slices.number),
        {**common, "apart": plan.dealt * plan.slices.number},
        {
            "BLOCK_M": chosen.block_m, "BLOCK_N": chosen.block_n, "BLOCK_K": chosen.block_k, "GROUP": chosen.group,
            "SHORT_FIRST": plan.short_first, "DEALT": plan.dealt, "TF32": plan.tf32,
            "FROM_ZERO": plan.slices.from_zero and plan.slices.number == 1,
            "FROM_NEGATIVE_ZERO": plan.from_negative_zero,
        },
        _options(chosen),
    )  # fmt: skip


def _options(chosen: Schedule) -> dict[str, int]:
    return {"num_warps": chosen.warps, "num_stages": chosen.stages, **_DEPENDENT_LAUNCH}


def _tma(plan: MatrixPlan, chosen: Schedule, common: Mapping[str, Any], fusion: Fusion | None) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.tensor_maps import tma_product

    size = 1 if plan.accumulator_k else 2
    block_k, m, n, number = chosen.block_k, common["M"], common["N"], plan.slices.number
    a_strides, b_strides = (common["stride_am"], common["stride_ak"]), (common["stride_bk"], common["stride_bn"])
    a, a_transposed = matrix_map(common["A"], (m, plan.k), a_strides, (chosen.block_m, block_k), size)
    b, b_transposed = matrix_map(common["B"], (plan.k, n), b_strides, (block_k, chosen.block_n), size)
    if plan.accumulator_k and (a_transposed or not b_transposed):
        raise UnsupportedGEMM("fp8 with tensor maps: k must be contiguous in both operands")
    target, c_tma, c_transposed = common["C"], False, False
    if number == 1 and not plan.slices.from_zero:
        part, strides = (
            (chosen.block_m, chosen.block_n // chosen.store_parts),
            (common["stride_cm"], common["stride_cn"]),
        )
        try:
            # Strides that are aligned for 16 bits are aligned for 32.
            bits = min(2, OUTPUT_BYTES[type_of(target)])
            target, c_transposed = matrix_map(target, (m, n), strides, part, bits)
            c_tma = True
        except UnsupportedGEMM:
            pass
    jobs = -(-m // chosen.block_m) * -(-n // chosen.block_n) * number
    return KernelCall(
        tma_product,
        (min(chosen.programs, jobs) if chosen.programs else jobs,),
        {
            "A": a, "B": b, "C": target, "M": m, "N": n, "K": plan.k, "slice_k": plan.slices.span, "slices": number,
            "stride_cs": common["stride_cs"], "stride_cm": common["stride_cm"], "stride_cn": common["stride_cn"],
            **{name: common[name] for name in (fusion.arguments() if fusion else ())},
        },
        {
            "BLOCK_M": chosen.block_m, "BLOCK_N": chosen.block_n, "BLOCK_K": block_k, "GROUP": chosen.group,
            "NEW_ACCUMULATOR": plan.starts_accumulators, "A_TRANSPOSED": a_transposed, "B_TRANSPOSED": b_transposed,
            "C_TMA": c_tma, "C_TRANSPOSED": c_transposed, "STORE_PARTS": chosen.store_parts,
            "ONE_ITERATION": plan.slices.span <= block_k, "PROGRAMS": chosen.programs if chosen.programs < jobs else 0,
            "OVERLAP": chosen.overlap,
            **_constants(fusion),
        },
        _options(chosen),
    )  # fmt: skip


def _warpgroups(
    plan: MatrixPlan, chosen: Schedule, common: Mapping[str, Any], fusion: Fusion | None, scaling: BlockScaling | None
) -> KernelCall:
    m, n, number = common["M"], common["N"], plan.slices.number
    types = type_of(common["A"]), type_of(common["B"]), type_of(common["C"])
    size, output_size = (1 if plan.accumulator_k else 2), OUTPUT_BYTES[types[2]]
    shapes = (m, plan.k), (n, plan.k)
    strides = (common["stride_am"], common["stride_ak"]), (common["stride_bn"], common["stride_bk"])
    matrices = common["A"], common["B"]
    if chosen.gathering:
        k_major = is_k_major(shapes[0], strides[0]), is_k_major(shapes[1], strides[1])
        lines = [each[0] if whole else each[1] for each, whole in zip(strides, k_major, strict=True)]
        aligned = [int(matrix.data_ptr()) % ALIGNMENT == 0 for matrix in matrices]
    else:
        k_major = not is_transposed(shapes[0], strides[0], size), not is_transposed(shapes[1], strides[1], size)
        lines, aligned = [], [True, True]
    out_strides = common["stride_cm"], common["stride_cn"]
    store = _store_of(plan, (m, n), out_strides, output_size)
    if store == "map" and not fills_lines(chosen.block_n, output_size):
        store = "elements"
    if store == "columns" and int(common["C"].data_ptr()) % ALIGNMENT:
        store = "elements"
    finish = None
    if fusion:
        own_rows = chosen.block_m // (1 if chosen.ping_pong else chosen.consumers)
        sums = own_rows * chosen.block_n // WARPGROUP
        early = not chosen.gathering and are_early(sums, chosen.consumers, len(fusion.operands))
        of_map = {"map": "rows", "columns": "columns"}.get(store) if output_size == 2 and not early else None
        finish = fusion.finish(common, of_map)
    scales = scaling.scales(*((n, m) if chosen.transposed else (m, n)), chosen.transposed) if scaling else None
    tiles = warpgroup_tiles(plan, chosen, types, k_major, store, finish, (aligned[0], aligned[1]), scales)
    if chosen.gathering:
        given = {**common, **dict(zip(LINE_PARAMETERS, lines, strict=True))}
    else:
        a, b = (
            matrix_map(matrix, shape, each, tile.box, size, tile.swizzle)[0]
            for matrix, shape, each, tile in zip(matrices, shapes, strides, (tiles.a, tiles.b), strict=True)
        )
        given = {**common, "A": a, "B": b}
    target = _output_map(tiles, common["C"], (m, n), out_strides) if tiles.stores_through_map else common["C"]
    down, across = chosen.block_m * chosen.cluster_m, chosen.block_n * chosen.cluster_n
    jobs = -(-m // down) * -(-n // across) * number
    clusters = min(jobs, max(1, chosen.programs // tiles.blocks)) if chosen.programs else jobs
    given |= {"C": target, "slices": number}
    if tiles.maps_row_scales and scaling is not None:
        given[ROW_SCALES] = scaling.map_of_rows(chosen.block_m, chosen.transposed)
    if tiles.maps_column_scales and scaling is not None:
        given[COLUMN_SCALES] = scaling.map_of_columns(chosen.block_n, chosen.transposed)
    if tiles.mapped_operand is not None:
        name, *operand_strides = (each.format(tiles.mapped_operand) for each in OPERAND_PARAMETERS)
        row, column = (common[each] or 1 for each in operand_strides)
        given[name] = _output_map(tiles, common[name], (m, n), (row, column))
    kernel = kernel_of(tiles)
    arguments = {name: 0 if given[name] is None else given[name] for name in kernel.parameters}
    return KernelCall(kernel, (clusters * tiles.blocks,), arguments, {}, {})


def _output_map(tiles: WarpgroupTiles, matrix: Any, shape: tuple[int, int], strides: tuple[int, int]) -> MatrixMap:
    """Return the map through which a tile is stored to a matrix of the shape of the output, or copied from it."""
    if tiles.store == "columns":
        shape, strides = shape[::-1], strides[::-1]
    return MatrixMap(matrix, shape, strides, tiles.store_box, tiles.store_swizzle)


def _store_of(plan: MatrixPlan, shape: tuple[int, int], strides: tuple[int, int], size: int) -> str:
    """Return how a kernel of warpgroups stores tiles of a matrix with elements of `size` bytes."""
    if plan.slices.number == 1 and not plan.slices.from_zero:
        if strides[1] == 1 and strides[0] * size % 16 == 0 and strides[0] >= shape[1]:
            return "map"
        if size == 2 and strides[0] == 1 and strides[1] * size % 16 == 0 and strides[1] >= shape[0]:
            return "columns"
        return "elements"
    # The memory of the sums of slices: a line of it may have one value more than the matrix.
    return "pairs" if strides[1] == 1 and strides[0] % 2 == 0 else "elements"


def _lanes(
    plan: ScalarPlan | BlocksPlan, chosen: Schedule, m: int, n: int, common: Mapping[str, Any], fusion: Fusion | None
) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.scalar import lanes

    if isinstance(plan, ScalarPlan) and plan.fp16_sums:
        return _lanes_in_fp16(plan, chosen, m, n, common)
    if chosen.wide or chosen.lane_rows or chosen.few_rows:
        if not isinstance(plan, ScalarPlan) or fusion:
            raise UnsupportedGEMM(f"{chosen} has no epilogue, and applies to lanes of one block")
        form = _few_rows if chosen.few_rows else _lane_rows if chosen.lane_rows else _wide_lanes
        return form(plan, chosen, m, n, common)
    from_zero = plan.from_zero
    if isinstance(plan, BlocksPlan):
        from_zero = from_zero and plan.blocks == 1  # with more blocks, the second kernel adds them to +0
        lane_k = -(-plan.k // (128 * plan.accumulators * plan.blocks))
        number, count, lane_sum = plan.blocks, 128 * plan.accumulators, plan.lane_sum
        tile, chunk, active, static_tile = lane_k, lane_k, count, 0
    else:
        number, count, lane_sum = plan.slices.number, plan.lanes, plan.lane_sum
        tile, chunk, active = plan.tile, plan.chunk, plan.active_lanes or plan.lanes
        static_tile = plan.tile if plan.strided else 0
    unroll = chosen.block_k
    even_steps = static_tile < 2 or chunk == tile or not (tile % unroll or chunk % unroll)
    rows = chosen.block_n
    down, across = (-(-m // rows), -(-n // chosen.block_m)) if rows > 1 else (1, -(-m * n // chosen.block_m))
    return KernelCall(
        lanes,
        (across, number, down),
        {**common, "count": m * n, "tile": tile, "chunk": chunk, "blocks": number},
        {
            "LANES": count, "ACTIVE": active, "TILE": static_tile, "CYCLIC_SLICES": isinstance(plan, BlocksPlan),
            "SEQUENCE": lane_sum.sequence, "ROUNDS": lane_sum.rounds, "ONE_ROW": m == 1, "ONE_COLUMN": n == 1,
            "EVEN_STEPS": even_steps, "UNROLL": unroll, "AHEAD": chosen.stages == 2, "FROM_ZERO": from_zero,
            "BLOCK": chosen.block_m, "ROWS": rows,
            **_constants(fusion),
        },
        {"num_warps": chosen.warps, **_DEPENDENT_LAUNCH},
    )  # fmt: skip


def _lanes_in_fp16(plan: ScalarPlan, chosen: Schedule, m: int, n: int, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.fp16_lanes import lanes_in_fp16

    return KernelCall(
        lanes_in_fp16,
        (-(-m * n // chosen.block_m), plan.slices.number),
        {**common, "count": m * n, "tile": plan.tile, "chunk": plan.chunk},
        {
            "LANES": plan.lanes, "STRIDED": plan.strided, "FROM_ZERO": plan.from_zero, "BLOCK": chosen.block_m,
        },
        {"num_warps": chosen.warps, **_DEPENDENT_LAUNCH},
    )  # fmt: skip


def _wide_lanes(plan: ScalarPlan, chosen: Schedule, m: int, n: int, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.wide_lanes import WIDTH, wide_lanes

    row = m == 1
    vector, matrix, count = (common["A"], common["B"], n) if row else (common["B"], common["A"], m)
    v_k, w_k, step, c = ("ak", "bk", "bn", "cn") if row else ("bk", "ak", "am", "cm")
    line, width, tile = common[f"stride_{w_k}"], WIDTH.value, plan.tile if plan.strided else 0
    aligned = int(matrix.data_ptr()) % ALIGNMENT == 0 and type_of(matrix) in ("fp16", "bf16")
    if min(m, n) != 1 or common[f"stride_{step}"] != 1 or count < 2 * width or line < count or not aligned:
        raise UnsupportedGEMM(
            f"{chosen}: wide needs one row or column, and a matrix of 16 bits with neighbours in memory, aligned to "
            f"{ALIGNMENT} bytes"
        )
    unroll, chunk = chosen.block_k, plan.chunk
    even = tile < 2 or chunk == tile or not (tile % unroll or chunk % unroll)
    if chosen.block_m % width or not even:
        raise UnsupportedGEMM(f"{chosen}: {unroll} values of k of a lane are not at equal distances")
    return KernelCall(
        wide_lanes,
        (-(-count // chosen.block_m), plan.slices.number),
        {
            "V": vector, "W": matrix, "C": common["C"], "K": common["K"], "count": count, "slice_k": common["slice_k"],
            "tile": plan.tile, "chunk": chunk, "stride_vk": common[f"stride_{v_k}"], "stride_wk": line,
            "stride_cs": common["stride_cs"], "stride_c": common[f"stride_{c}"],
        },
        {
            "LANES": plan.lanes, "ACTIVE": plan.active_lanes or plan.lanes, "TILE": tile,
            "SEQUENCE": plan.lane_sum.sequence, "ROUNDS": plan.lane_sum.rounds, "UNROLL": unroll,
            "FROM_ZERO": plan.from_zero, "BLOCK": chosen.block_m,
        },
        {"num_warps": chosen.warps, **_DEPENDENT_LAUNCH},
    )  # fmt: skip


def _lane_rows(plan: ScalarPlan, chosen: Schedule, m: int, n: int, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.lane_rows import LaneRows, lane_rows

    row = m == 1
    vector, matrix, count = (common["A"], common["B"], n) if row else (common["B"], common["A"], m)
    v_k, w_k, step, c = ("ak", "bk", "bn", "cn") if row else ("bk", "ak", "am", "cm")
    line, active = common[f"stride_{w_k}"], plan.active_lanes or plan.lanes
    tile = plan.tile if plan.strided else 0
    own = -(-plan.slices.span // (active * (tile or plan.tile))) * (tile or plan.tile)
    given = LaneRows(
        plan.lanes, active, tile, chosen.block_k, min(chosen.block_m, 32), -(-chosen.block_m // 32), bool(line % 2),
        plan.lane_sum, plan.from_zero, type_of(matrix), type_of(common["C"]),
    )  # fmt: skip
    contiguous = common[f"stride_{v_k}"] == common[f"stride_{step}"] == 1 and count > 1 and line >= count
    # A prepared launch is repeated for other addresses that are multiples of ALIGNMENT, or for others that are not.
    aligned = given.own == 1 or int(matrix.data_ptr()) % ALIGNMENT == 0
    fits = aligned and type_of(vector) == type_of(matrix) and given.exists
    if min(m, n) != 1 or not contiguous or not fits or plan.chunk < min(own, plan.slices.span):
        raise UnsupportedGEMM(
            f"{chosen}: lane_rows needs one row or column, a dense vector, a matrix of 16 bits with neighbours in "
            f"memory, aligned to {ALIGNMENT} bytes for threads of two elements, and 2 to 32 lanes with one accumulator "
            "and whole batches of lines"
        )
    return KernelCall(
        lane_rows(given),
        (-(-count // given.columns), plan.slices.number),
        {
            "V": vector, "W": matrix, "C": common["C"], "K": common["K"], "count": count, "slice_k": common["slice_k"],
            "tile": plan.tile, "stride_w": line, "stride_cs": common["stride_cs"], "stride_c": common[f"stride_{c}"],
        },
        {},
        {},
    )  # fmt: skip


def _few_rows(plan: ScalarPlan, chosen: Schedule, m: int, n: int, common: Mapping[str, Any]) -> KernelCall:
    from bitwise_nvidia_sm90.gemm.kernels.few_rows import RANGE, FewRows, few_rows

    rows, count = min(m, n), max(m, n)
    few, many = ("A", "am", "ak", "cm"), ("B", "bn", "bk", "cn")
    if m > n:
        few, many = many, few
    own, steps, ranges = -(-plan.slices.span // plan.lanes), chosen.block_k, not plan.strided
    columns, rest = divmod(chosen.block_m * plan.lanes, 32 * chosen.warps)
    restarts = plan.chunk // steps if plan.chunk < own or plan.chunk == steps else 0
    given = FewRows(
        rows, columns, plan.lanes, chosen.warps, steps, restarts, plan.lane_sum, plan.from_zero,
        common[f"stride_{many[2]}"] == 1, type_of(common["A"]), type_of(common["C"]), ranges,
    )  # fmt: skip
    restarts_elsewhere = restarts > 0 and (plan.chunk % steps > 0 or (restarts > 1 and not ranges))
    by_turns = (ranges or plan.tile == 1) and plan.active_lanes in (0, plan.lanes)
    one_slice = plan.slices.number == 1 and type_of(common["A"]) == type_of(common["B"])
    if rest or restarts_elsewhere or not by_turns or not one_slice or not given.exists:
        raise UnsupportedGEMM(
            f"{chosen}: few_rows needs 1 to 16 rows or columns of 16 bits, one slice, a power of two of lanes, to "
            "which values of k are distributed one by one, or ranges of them where the columns of one k are "
            "neighbours, and accumulators of whole iterations or of all values"
        )
    return KernelCall(
        few_rows(given),
        (-(-count // given.columns_of_block),),
        {
            "V": common[few[0]], "W": common[many[0]], "C": common["C"], "K": plan.k, "count": count,
            "stride_v": common[f"stride_{few[1]}"], "stride_vk": common[f"stride_{few[2]}"],
            "stride_w": common[f"stride_{many[1]}"], "stride_wk": common[f"stride_{many[2]}"],
            "stride_cv": common[f"stride_{few[3]}"], "stride_cw": common[f"stride_{many[3]}"],
            **({RANGE: plan.tile} if ranges else {}),
        },
        {},
        {},
    )  # fmt: skip


def _merge(
    plan: Plan, slices: Slices, workspace: Any, line: int, out: Any, last: Mapping[str, Any], fusion: Fusion | None
) -> KernelCall:
    """Return the launch that adds the slices; `line` is the distance of rows of a slice."""
    from bitwise_nvidia_sm90.gemm.kernels.scalar import merge_blocks
    from bitwise_nvidia_sm90.gemm.kernels.tiles import merge

    m, n = (int(each) for each in out.shape)
    strides = tuple(out.stride())
    common = {"W": workspace, "C": out, "N": n, "count": m * n, "stride_cm": strides[0], "stride_cn": strides[1]}
    common |= last
    if isinstance(plan, BlocksPlan):
        constants = {"THREADS": plan.threads, "FROM_ZERO": plan.from_zero, "BLOCK": 4, **_constants(fusion)}
        grid = (-(-m * n // 4),)
        return KernelCall(
            merge_blocks, grid, {**common, "blocks": plan.blocks}, constants, {"num_warps": 4, **_DEPENDENT_LAUNCH}
        )
    if isinstance(plan, SinglePrecisionPlan) and plan.paired:
        from bitwise_nvidia_sm90.gemm.kernels.single_precision import merge_pairs

        return KernelCall(
            merge_pairs,
            (-(-m * n // 256),),
            {**common, "slices": slices.number},
            {"FROM_ZERO": slices.from_zero, "BLOCK": 256},
            {"num_warps": 2, **_DEPENDENT_LAUNCH},
        )
    dense = strides[1] == 1 and line == n and (m == 1 or strides[0] == n)
    block = 1024 if m * n >= 1 << 18 else 256
    return KernelCall(
        merge,
        (-(-m * line // block),),
        {**common, "count": m * line, "line": line, "slices": slices.number},
        {
            "ROUND_EACH": slices.rounded, "FROM_ZERO": slices.from_zero, "DENSE": dense, "BLOCK": block,
            "STATIC_SLICES": slices.number if slices.number <= UNROLLED_SLICES else 0, **_constants(fusion),
            **({"DOWN": True} if slices.down else {}),
        },
        {"num_warps": block // 128, **_DEPENDENT_LAUNCH},
        _bytes_of_even_shares(-(-m * line // block)),
    )  # fmt: skip


def _bytes_of_even_shares(blocks: int) -> int:
    """Return the shared memory of each block with which no multiprocessor holds many more blocks than its share.

    A dependent kernel's blocks start where multiprocessors are free.  Where no block fits beside one of the kernel
    before, all would start on the few multiprocessors that are free first.
    """
    share = next((each for each in _SHARES if each * MULTIPROCESSORS >= blocks), 0)
    return shared_bytes_of_block(share) if share else 0
