"""The expected times of fp8 products whose blocks of k have scales: a cost model, and a correction of it.

They do not affect the bits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from bitwise_nvidia_sm90.gemm.device_costs import Correction, Numbers, correction_of
from bitwise_nvidia_sm90.gemm.expected_times import Quantities, missing_part, overlapped
from bitwise_nvidia_sm90.gemm.kernels.block_scales import BLOCK
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import WarpgroupTiles
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan
from bitwise_nvidia_sm90.gemm.schedule import Schedule

_CORRECTED_WITHIN = 1.35
"""The modelled time over the least up to which times are corrected."""
_LEAST_SHARE = 1e-6
_OUTPUT_BYTES, _PARTIAL_BYTES = 2, 4


@dataclass(frozen=True, slots=True)
class ScaledBlockCosts:
    """Seconds, except for factors and rates, fitted by `bitwise_bench.cublas.times.scaled_block_fit`.

    `launch`, `crowded`, `tile`, `merge`: those of a launch, of one whose blocks have no room beside those of the launch
    before, of a tile, and of the kernel that adds slices.  `operation`, `alone`, `multiplied`: those of an operation on
    a sum, of a sum that one consumer has alone, and of a product where nothing else happens.  `consumer`, `load`,
    `copied`, `outside`: those of a stage for each consumer, of an instruction of it that loads scales, of a byte that
    is copied, and of a line of a tile that is outside of the matrix.  `waited`, `late`: those of the wait for a stage,
    by the stages behind it, and for scales that are loaded to registers.  `merged`: those of a byte of a slice.

    `selected`: the selections of scales by the columns that share one, for each sum, in units of its operations.
    `beside`: the part of its operations by which a block delays another one on its multiprocessor.  `pair`, `four`: the
    factors of the time of a stage in clusters of two and of four blocks.

    `cache`, `memory`: bytes a second from the L2 cache and from memory; `cached_bytes`: those of operands and output
    that stay in the cache between launches.  `hidden`: the part of a shorter activity that a longer one does not hide.
    """

    launch: float
    crowded: float
    tile: float
    merge: float
    merged: float
    operation: float
    alone: float
    multiplied: float
    consumer: float
    load: float
    copied: float
    outside: float
    waited: float
    late: float
    selected: float
    beside: float
    pair: float
    four: float
    cache: float
    memory: float
    cached_bytes: float
    hidden: float


@dataclass(frozen=True, slots=True, eq=False)
class ScaledBlockModel:
    """The costs of products with scales of blocks, and the correction of the times that they model."""

    costs: ScaledBlockCosts
    correction: Correction


@cache
def fitted_model() -> ScaledBlockModel:
    """Return the model that was fitted to times of an H200, by which schedules are ranked on every device."""
    data = json.loads(files(__package__).joinpath("data", "scaled-blocks-h200.json").read_text("utf-8"))
    return ScaledBlockModel(ScaledBlockCosts(**data["costs"]), correction_of(data["correction"]))


_QUANTITIES = (
    "rows", "columns", "stages", "consumers", "ping-pong", "cluster m", "cluster n", "transposed", "resident",
    "clusters", "at once", "rounds", "beside", "slices", "steps", "loads", "own columns", "columns in two",
    "common columns", "alternate", "column parts", "mapped rows", "mapped columns", "late", "iterations", "outside",
    "alone", "real rows", "real columns", "m", "n", "k", "down", "across", "brought", "bytes", "multiprocessors",
    "overlaps",
)  # fmt: skip


def quantities(
    plan: MatrixPlan, given: Sequence[tuple[WarpgroupTiles, Schedule]], m: int, n: int, multiprocessors: int
) -> Quantities:
    """Return the quantities of a product of m rows and n columns under each schedule with its tiles.

    "down" and "across" are the rows and columns of the computed product.  "brought" are the bytes that all tiles load.
    """
    rows = [_row(plan, tiles, chosen, m, n, multiprocessors) for tiles, chosen in given]
    columns = np.array(rows, dtype=float).reshape(len(rows), len(_QUANTITIES)).T
    return dict(zip(_QUANTITIES, columns, strict=True))


def _row(
    plan: MatrixPlan, tiles: WarpgroupTiles, chosen: Schedule, m: int, n: int, multiprocessors: int
) -> tuple[float, ...]:
    scales = tiles.scales
    assert scales is not None
    down, across = (n, m) if chosen.transposed else (m, n)
    tiles_down, tiles_across = -(-down // tiles.block_m), -(-across // tiles.block_n)
    clusters = -(-tiles_down // tiles.cluster[0]) * -(-tiles_across // tiles.cluster[1]) * plan.slices.number
    at_once = max(1, min(chosen.programs // tiles.blocks, clusters))
    beside = -(-at_once * tiles.blocks // multiprocessors) - 1 if tiles.resident > 1 else 0
    if plan.slices.number > 1 and tiles.resident > 1:
        beside = 1  # blocks start where the kernel that adds slices leaves room first, in pairs
    own_columns = scales.columns == 1
    # A sum is multiplied by both scales in turn, or by their product, which few sums share.
    steps = 2 if own_columns and (scales.order != "product" or not scales.shared_rows(tiles.block_m)) else 1
    loads = tiles.block_n // 8 * (1 if tiles.maps_column_scales else 4) if own_columns else 0
    # Copies of the last tiles along each side fill the lines outside of the matrix with zeros.
    sides = (
        (-down % tiles.block_m / tiles.cluster[1], down <= tiles.block_m),
        (-across % tiles.block_n / tiles.cluster[0], across <= tiles.block_n),
    )
    outside = max(lines + other * alone for (lines, _), (other, alone) in (sides, sides[::-1]))
    brought = plan.k * (down * tiles_across / tiles.cluster[1] + across * tiles_down / tiles.cluster[0])
    return (
        tiles.block_m, tiles.block_n, tiles.stages, tiles.consumers, tiles.ping_pong, *tiles.cluster, chosen.transposed,
        tiles.resident, clusters, at_once, -(-clusters // at_once), beside, plan.slices.number, steps, loads,
        own_columns, scales.columns_in_two(tiles.block_n), scales.common_columns(tiles.block_n), tiles.sums_alternate,
        tiles.column_parts, tiles.maps_row_scales, tiles.maps_column_scales,
        not (tiles.maps_row_scales and tiles.maps_column_scales), -(-plan.slices.span // BLOCK), outside,
        all(alone for _, alone in sides), down / tiles_down,
        across / tiles_across, m, n, plan.k, down, across, brought, (m + n) * plan.k + _OUTPUT_BYTES * m * n,
        multiprocessors, chosen.overlap,
    )  # fmt: skip


def modelled_times(given: Quantities, costs: ScaledBlockCosts) -> Quantities:
    """Return the seconds by the cost model alone, "all", and those of its parts."""
    blocks, sliced = given["cluster m"] * given["cluster n"], given["slices"] > 1
    elements, beside = given["rows"] * given["columns"], given["beside"]
    consumers = np.where(given["ping-pong"] > 0, 1, given["consumers"])
    sums = elements * given["steps"] * costs.operation
    sums = sums + given["columns in two"] * elements * costs.selected / given["common columns"] * costs.operation
    sums = sums + np.where(consumers == 1, elements * costs.alone, 0)
    hidden = (given["alternate"] > 0) | (given["ping-pong"] > 0) | (given["column parts"] > 1)
    multiplied = np.where(hidden, 0, elements * BLOCK * costs.multiplied)
    stage = sums + multiplied + consumers * (costs.consumer + given["loads"] * costs.load)
    copied = (np.floor(given["rows"] / given["cluster n"]) + np.floor(given["columns"] / given["cluster m"])) * BLOCK
    copied = copied * costs.copied * (1 + beside)
    waited = costs.waited / (given["stages"] - 1) + given["late"] * costs.late
    stage = stage * (1 + beside * costs.beside) + copied + waited
    stage = stage * np.where(blocks > 2, costs.four, np.where(blocks > 1, costs.pair, 1))
    crowded = 2 * given["at once"] * blocks > given["multiprocessors"] * given["resident"]
    partial = given["slices"] * given["m"] * given["n"] * _PARTIAL_BYTES * costs.merged
    launch = costs.launch + crowded * costs.crowded + np.where(sliced, costs.merge + partial, 0)
    outside = np.where(given["alone"] > 0, given["rounds"], 1) * given["iterations"] * given["outside"] * costs.outside
    computed = given["rounds"] * (given["iterations"] * stage + costs.tile) + outside
    cached = given["brought"] / costs.cache
    memory = missing_part(given["bytes"], costs.cached_bytes) * given["bytes"] / costs.memory
    return {
        "all": launch + overlapped(costs.hidden, computed, cached, memory), "computed": computed, "cached": cached,
        "memory": memory, "stage": stage, "sums": sums, "copied": copied, "waited": waited,
    }  # fmt: skip


_CORRECTED = (
    "rows", "columns", "stages", "consumers", "ping-pong", "cluster m", "cluster n", "transposed", "resident", "rounds",
    "beside", "slices", "steps", "loads", "own columns", "columns in two", "common columns", "alternate",
    "column parts", "mapped rows", "mapped columns", "outside", "alone", "overlaps",
)  # fmt: skip
_CORRECTED_LOGARITHMS = ("iterations", "m", "n", "k", "down", "across", "clusters", "bytes")


def correction_inputs(given: Quantities, modelled: Quantities) -> Numbers:
    """Return the values that the correction depends on, a row for each schedule; `modelled` is of `modelled_times`."""
    seconds, blocks = modelled["all"], given["cluster m"] * given["cluster n"]
    jobs = given["clusters"] * blocks
    columns = [given[each] for each in _CORRECTED]
    columns += [np.log(given[each]) for each in _CORRECTED_LOGARITHMS]
    columns += [
        given["at once"] * blocks / given["multiprocessors"],
        jobs / (given["rounds"] * given["multiprocessors"]), given["real rows"] / given["rows"],
        given["real columns"] / given["columns"], given["stages"] * (given["rows"] + given["columns"]), np.log(seconds),
        np.log(given["m"] * given["n"] / (jobs / given["slices"] * given["rows"] * given["columns"])),
        np.log(given["brought"] / given["bytes"]),
    ]  # fmt: skip
    columns += [np.log(modelled[each] / seconds + _LEAST_SHARE) for each in ("computed", "cached", "memory")]
    columns += [np.log(modelled[each] / modelled["stage"] + _LEAST_SHARE) for each in ("sums", "copied", "waited")]
    return np.stack(columns, axis=1)


def corrected_seconds(given: Quantities, model: ScaledBlockModel) -> Numbers:
    """Return the seconds by the cost model, with a correction of those that are not far above the least."""
    modelled = modelled_times(given, model.costs)
    found = modelled["all"].copy()
    near = found <= _CORRECTED_WITHIN * found.min(initial=np.inf)
    found[near] *= np.exp(model.correction.of(correction_inputs(given, modelled)[near]))
    return found
