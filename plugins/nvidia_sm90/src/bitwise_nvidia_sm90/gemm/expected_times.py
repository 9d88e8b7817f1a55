"""The expected times of schedules: a cost model with the costs of a device, and a correction of it.

They do not affect the bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bitwise_nvidia_sm90.gemm.device_costs import Correction, DeviceCosts, Numbers, costs_of
from bitwise_nvidia_sm90.gemm.kernels.gathering import units_at_once
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import SHARED_BYTES, STAGE_BYTES, fills_lines, widest_line
from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan
from bitwise_nvidia_sm90.gemm.schedule import Schedule

MULTIPROCESSORS = 132
"""Those of an H100 and of an H200."""
CACHED_WIDTH = 0.044
"""The logarithm of the size over which operands stop to stay in the L2 cache between launches."""
FILLED_BY_CLUSTERS = 10 / 11
"""The part of the multiprocessors that clusters fill with a block each: 120 of the 132 of an H100 for those of four."""
_CORRECTED_WITHIN = 1.35
"""The modelled time over the least up to which times are corrected: of 98 of 100 products the fastest schedule has less
than 1.27.  A correction takes more time than the model."""
ALIGNED = (STAGE_BYTES, STAGE_BYTES)
"""The alignments of operands whose lines start with lines of the cache."""
_SECTOR_BYTES = 32
"""The part of a line of the cache that is read as a whole."""
_WIDTHS = (16, 32, 64, 192)
"""Columns of a tile of a Triton kernel up to which a rate of operations holds."""
_THREADS, _REGISTERS, _WARPS = 32, 65536, 64
_UNITS_OF_ROWS = 256
"""The rows of a stage of which each thread gathers one unit, times the values of k of an instruction."""
Quantities: TypeAlias = Mapping[str, Numbers]


@dataclass(frozen=True, slots=True)
class Finishing:
    """What becomes of each sum: `output_bytes` are stored, after `loads` operands of an epilogue were loaded.

    A bias, which all rows share, is no such operand.
    """

    output_bytes: int = 2
    loads: int = 0

    def bytes_besides(self, m: int, n: int) -> int:
        """Return the bytes that are moved besides those of a product with an output of 16 bits."""
        return (self.output_bytes - 2 + 2 * self.loads) * m * n


PLAIN = Finishing()
"""An output of 16 bits without an epilogue."""


def expected_seconds(
    plan: MatrixPlan,
    schedules: Sequence[Schedule],
    m: int,
    n: int,
    k_contiguous: tuple[bool, bool] = (True, True),
    out_mapped: bool = True,
    device: DeviceCosts | None = None,
    alignments: tuple[int, int] = ALIGNED,
    finishing: Finishing = PLAIN,
) -> Numbers:
    """Return the expected seconds of a product under TMA schedules that do not pack operands.

    `k_contiguous` says for A and B whether their values of k are contiguous, `out_mapped` whether there is a tensor map
    of the output; `device` is an H100 by default.  `alignments` are for A and B the
    greatest part of a line of the cache, in bytes, of which their leading dimension is a multiple.
    """
    device = device or costs_of()
    given = quantities(
        plan, schedules, m, n, k_contiguous, out_mapped, device.multiprocessors, alignments, finishing
    )  # fmt: skip
    return corrected_seconds(given, device.costs, device.correction)


def corrected_seconds(given: Quantities, cost: Mapping[str, float], by: Correction) -> Numbers:
    """Return the seconds by the cost model, with a correction of those that are not far above the least."""
    modelled = modelled_times(given, cost)
    found = modelled["all"].copy()
    near = found <= _CORRECTED_WITHIN * found.min(initial=np.inf)
    found[near] *= np.exp(by.of(correction_inputs(given, modelled)[near]))
    return found


def expected_seconds_packed(
    plan: MatrixPlan,
    schedules: Sequence[Schedule],
    m: int,
    n: int,
    packs: tuple[bool, bool] = (True, True),
    out_mapped: bool = True,
    device: DeviceCosts | None = None,
    finishing: Finishing = PLAIN,
    k_contiguous: tuple[bool, bool] = (True, True),
) -> Numbers:
    """Return the expected seconds under schedules that pack operands; `packs` says whether A and B are packed.

    `k_contiguous` says for A and B whether their values of k are contiguous before.
    """
    device = device or costs_of()
    unpacked = [replace(each, packed=False) for each in schedules]
    return packing_seconds(plan, m, n, packs, k_contiguous, device.costs) + expected_seconds(
        packed_plan(plan), unpacked, m, n, (True, True), out_mapped, device, finishing=finishing
    )  # fmt: skip


def packing_seconds(
    plan: MatrixPlan, m: int, n: int, packs: tuple[bool, bool], k_contiguous: tuple[bool, bool],
    cost: Mapping[str, float],
) -> float:  # fmt: skip
    """Return the seconds of the kernel that packs operands; the arguments are those of expected_seconds_packed."""
    rows = sum(
        count * packs_it * (1 if contiguous else cost["packed across"])
        for count, packs_it, contiguous in zip((m, n), packs, k_contiguous, strict=True)
    )
    return cost["packing"] + 2 * rows * (plan.k + packed_plan(plan).k) / cost["packed"]


def expected_seconds_by_pointers(
    plan: MatrixPlan, schedules: Sequence[Schedule], m: int, n: int, cost: Mapping[str, float],
    programs: int = MULTIPROCESSORS,
) -> Numbers:  # fmt: skip
    """Return rough times of a product under schedules without TMA, whose iterations wait for their loads.

    A second kernel adds slices, as under schedules that gather operands.
    """
    slices, found = plan.slices, []
    for each in schedules:
        step = each.block_k // 2 if plan.instruction_k8 else each.block_k
        jobs = each.tiles(m, n) * slices.number
        rate = cost["pointers"] * (each.block_m * each.block_n) ** cost["pointers by area"]
        rounds = -(-jobs // programs) if each.warps > 4 else max(1.0, jobs / programs)
        found.append(cost["launch by pointers"] + -(-slices.span // step) * rounds * rate)
    sliced = slices.number > 1 or slices.from_zero
    merge = cost["adding"] + slices.number * m * n * _sum_bytes(plan) / cost["added"] if sliced else 0.0
    return np.array(found, dtype=float) + merge


def expected_seconds_gathered(
    plan: MatrixPlan,
    schedules: Sequence[Schedule],
    m: int,
    n: int,
    k_contiguous: tuple[bool, bool] = (True, True),
    device: DeviceCosts | None = None,
) -> Numbers:
    """Return the expected seconds under schedules that gather operands; the arguments are those of expected_seconds."""
    device = device or costs_of()
    given = gathered_quantities(plan, schedules, m, n, k_contiguous, device.multiprocessors)
    return corrected_seconds_gathered(given, device.costs, device.gathering)


def corrected_seconds_gathered(given: Quantities, cost: Mapping[str, float], by: Correction) -> Numbers:
    """Return the seconds under schedules that gather operands: by the cost model, with a correction."""
    modelled = modelled_times_gathered(given, cost)
    found: Numbers = modelled["all"] * np.exp(by.of(gathered_inputs(given, modelled)))
    return found


def gathered_quantities(
    plan: MatrixPlan,
    schedules: Sequence[Schedule],
    m: int,
    n: int,
    k_contiguous: tuple[bool, bool],
    programs: int = MULTIPROCESSORS,
) -> Quantities:
    """Return the quantities of a product under each schedule that gathers operands, from which its time is modelled.

    "units" are those of a thread in a stage, if one warpgroup gathers all stages, and "batches" the parts in which it
    loads them.  "real rows" and "real columns" are those of a tile that the output has; "brought" are the bytes that
    all tiles load.
    """
    slices, taken = plan.slices, 8 if plan.instruction_k8 else 16
    sliced = slices.number > 1 or slices.from_zero
    rows = []
    for each in schedules:
        (down, across), contiguous = ((n, m), k_contiguous[::-1]) if each.transposed else ((m, n), k_contiguous)
        tiles_down, tiles_across = -(-down // each.block_m), -(-across // each.block_n)
        jobs = tiles_down * tiles_across * slices.number
        grid = min(jobs, each.programs or jobs)
        units = (each.block_m + each.block_n) * taken / _UNITS_OF_ROWS
        rows.append((
            each.block_m, each.block_n, each.block_k, each.stages, each.consumers, each.gathering, each.resident,
            each.transposed, down / tiles_down, across / tiles_across, jobs, grid, -(-grid // programs), units,
            math.ceil(units / units_at_once(_THREADS * each.warps, each.resident)), -(-slices.span // (4 * taken)),
            slices.number, sliced, taken, *contiguous, m, n, plan.k, programs,
            2 * plan.k * (down * tiles_across + across * tiles_down), bytes_moved(plan, m, n), _sum_bytes(plan),
        ))  # fmt: skip
    columns = np.array(rows, dtype=float).reshape(len(rows), len(_GATHERED)).T
    return dict(zip(_GATHERED, columns, strict=True))


_GATHERED = (
    "rows", "columns", "block k", "stages", "consumers", "gathering", "resident", "transposed", "real rows",
    "real columns", "jobs", "grid", "at once", "units", "batches", "iterations", "slices", "sliced", "taken",
    "k down", "k across", "m", "n", "k", "multiprocessors", "brought", "bytes", "sum bytes",
)  # fmt: skip


def _sum_bytes(plan: MatrixPlan) -> int:
    """Return the bytes of a stored sum: of one of a slice, or of an output of 16 bits."""
    sliced = plan.slices.number > 1 or plan.slices.from_zero
    return 4 if sliced and plan.slices.partial == "fp32" else 2


def modelled_times_gathered(given: Quantities, cost: Mapping[str, float]) -> Quantities:
    """Return the seconds under schedules that gather operands, by the cost model: "all", and those of parts.

    Each warpgroup that gathers waits for the loads of a stage ("wait"), then writes it ("gather"); consumers multiply
    it meanwhile ("multiply").  Of a stage with more units than its threads have registers for, it waits for the loads
    of each batch.  The instructions of all blocks of a multiprocessor share its rate.  Sums are stored one by one,
    those of slices as pairs of neighbours of a row unless the product is transposed ("store"); a second kernel adds
    them ("merge").  Meanwhile the operands come from the L2 cache ("cached") and from memory ("memory").
    """
    at_once, sliced, transposed = given["at once"], given["sliced"] > 0, given["transposed"] > 0
    missing = missing_part(given["bytes"], cost["cached bytes of overlaps"])
    rounds = 0.5 * (given["jobs"] / given["grid"] + np.ceil(given["jobs"] / given["grid"]))
    unit = cost["gathered unit"] * np.where(given["taken"] > _UNIT_K, cost["whole groups"], 1)
    wait = (cost["gathering wait"] + missing * cost["gathering memory wait"]) * given["batches"] / given["gathering"]
    wait = given["iterations"] * wait
    gather = given["iterations"] * at_once * given["units"] * unit
    multiplied = given["rows"] * given["columns"] * given["block k"] * 2
    multiply = given["iterations"] * at_once * multiplied / cost["operations"]
    stored = given["real rows"] * given["real columns"] * given["sum bytes"]
    stored = np.where(transposed | ~sliced, stored, 0) * np.where(transposed, 1, cost["gathered across"])
    store = at_once * stored / cost["gathered sums"]
    partial = given["slices"] * given["m"] * given["n"] * given["sum bytes"]
    merge = np.where(sliced, cost["adding"] + partial / cost["added"], 0)
    seconds = rounds * (np.maximum(wait + gather, multiply) + cost["gathered job"] + store)
    cached, memory = given["brought"] / cost["gathered cache"], missing * given["bytes"] / cost["memory"]
    return {
        "all": cost["launch"] + merge + overlapped(cost["hidden"], seconds, cached, memory), "rounds": rounds,
        "wait": rounds * wait, "gather": rounds * gather, "multiply": rounds * multiply, "store": rounds * store,
        "merge": merge, "cached": cached, "memory": memory,
    }  # fmt: skip


def gathered_inputs(given: Quantities, modelled: Quantities) -> Numbers:
    """Return the values that the correction of gathering depends on, a row for each schedule."""
    seconds = modelled["all"]
    columns = [given[each] for each in _GATHERED_CORRECTED]
    columns += [np.log(given[each]) for each in _GATHERED_LOGARITHMS]
    columns += [
        given["real rows"] / given["rows"], given["real columns"] / given["columns"],
        given["grid"] / given["multiprocessors"], given["jobs"] / given["multiprocessors"],
        given["rows"] + given["columns"], modelled["rounds"], np.log(seconds),
    ]  # fmt: skip
    columns += [np.log(modelled[each] / seconds + _LEAST_SHARE) for each in _GATHERED_SHARES]
    return np.stack(columns, axis=1)


_GATHERED_CORRECTED = (
    "rows", "columns", "stages", "consumers", "gathering", "resident", "transposed", "at once", "units", "batches",
    "iterations", "slices", "sliced", "taken", "k down", "k across",
)  # fmt: skip
_GATHERED_LOGARITHMS = ("m", "n", "k", "jobs")
_GATHERED_SHARES = ("wait", "gather", "multiply", "store", "merge", "cached", "memory")
_UNIT_K = 8
"""The values of k of a unit."""


def operator_seconds(size: int, device: DeviceCosts) -> float:
    """Return the expected seconds of an elementwise operator of PyTorch that moves this number of bytes."""
    cost = device.costs
    return cost["operator"] + size / cost["memory"]


def bytes_moved(plan: MatrixPlan, m: int, n: int) -> int:
    """Return the bytes of the operands and the output."""
    return (1 if plan.accumulator_k else 2) * (m + n) * plan.k + 2 * m * n


def quantities(
    plan: MatrixPlan,
    schedules: Sequence[Schedule],
    m: int,
    n: int,
    k_contiguous: tuple[bool, bool],
    out_mapped: bool,
    programs: int = MULTIPROCESSORS,
    alignments: tuple[int, int] = ALIGNED,
    finishing: Finishing = PLAIN,
    maps_columns: bool = True,
) -> Quantities:
    """Return the quantities of a product under each schedule, from which its time is modelled.

    "down" and "across" are the rows and columns of the computed product, which may be the transposed one.  A line is
    what is contiguous of the copy of a tile, at most 128 bytes.  The lines "outside" of an operand are filled with
    zeros; "of last" counts those of the last tiles.  "split" lines are parts of two lines of the cache, "parted" ones
    of which start inside a sector of one.  A "ragged" tile ends inside of lines of the output.  Without
    `maps_columns`, kernels store transposed tiles one by one.
    """
    size, slices = (1 if plan.accumulator_k else 2), plan.slices
    moved = bytes_moved(plan, m, n) + finishing.bytes_besides(m, n)
    loads = finishing.loads if slices.number == 1 else 0  # those of the kernel that adds slices are its own
    rows = []
    for each in schedules:
        (down, across), contiguous = ((n, m), k_contiguous[::-1]) if each.transposed else ((m, n), k_contiguous)
        has_lines = not each.consumers or slices.number > 1 or fills_lines(each.block_n, finishing.output_bytes)
        by_map = maps_columns and slices.number == 1 and finishing.output_bytes == 2 if each.transposed else has_lines
        own = alignments[::-1] if each.transposed else alignments
        split, parted = [at < STAGE_BYTES for at in own], [at < _SECTOR_BYTES for at in own]
        tiles_down, tiles_across = -(-down // each.block_m), -(-across // each.block_n)
        blocks = each.cluster_m * each.cluster_n
        clusters = -(-tiles_down // each.cluster_m) * -(-tiles_across // each.cluster_n) * slices.number
        iterations = -(-slices.span // each.block_k)
        grid = min(clusters * blocks, each.programs) if each.programs else clusters * blocks
        fitting = each.resident if each.consumers else _fitting(each, size, iterations)
        real = min(each.block_m, down / tiles_down), min(each.block_n, across / tiles_across)
        lines, outside = [], []
        for length, used, last, sharers, whole in (
            (each.block_m, real[0], down - (tiles_down - 1) * each.block_m, each.cluster_n, contiguous[0]),
            (each.block_n, real[1], across - (tiles_across - 1) * each.block_n, each.cluster_m, contiguous[1]),
        ):
            line = STAGE_BYTES if whole else widest_line(length, size) * size
            lines.append(used / sharers * each.block_k * size / line)
            outside.append(min(length / sharers, length - last) * each.block_k * size / line)
        of_last = max(outside[0] + outside[1] * (tiles_across == 1), outside[1] + outside[0] * (tiles_down == 1))
        rows.append((
            bool(each.consumers), size, each.block_m, each.block_n, each.block_k, each.stages, max(1, each.consumers),
            each.ping_pong, each.cluster_m, each.cluster_n, each.transposed, each.resident, each.overlap, slices.number,
            iterations, clusters, blocks, grid, fitting, each.programs > 0 and not each.consumers, *real, sum(lines),
            outside[0] / tiles_down + outside[1] / tiles_across, of_last, size * down * plan.k, size * across * plan.k,
            tiles_across / each.cluster_n, tiles_down / each.cluster_m, moved, out_mapped and has_lines, m, n,
            plan.k, programs, lines[0] * split[0] + lines[1] * split[1], *split, loads, not (out_mapped and by_map),
            finishing.output_bytes if slices.number == 1 else _sum_bytes(plan),
            lines[0] * parted[0] + lines[1] * parted[1], *parted, _sum_bytes(plan),
            not each.transposed and each.block_n * finishing.output_bytes % STAGE_BYTES > 0,
        ))  # fmt: skip
    columns = np.array(rows, dtype=float).reshape(len(rows), len(_QUANTITIES)).T
    return dict(zip(_QUANTITIES, columns, strict=True))


_QUANTITIES = (
    "consumes", "size", "rows", "columns", "block k", "stages", "consumers", "ping-pong", "cluster m", "cluster n",
    "transposed", "resident", "overlaps", "slices", "iterations", "clusters", "blocks", "grid", "fitting", "persistent",
    "real rows", "real columns", "lines", "outside", "outside of last", "bytes down", "bytes across", "reads down",
    "reads across", "bytes", "out mapped", "m", "n", "k", "multiprocessors", "split lines", "split down",
    "split across", "loads", "by elements", "stored bytes", "parted lines", "parted down", "parted across", "sum bytes",
    "ragged",
)  # fmt: skip


def _fitting(given: Schedule, size: int, iterations: int) -> int:
    """Return how many programs of a Triton kernel fit on a multiprocessor."""
    if given.programs:
        return 1
    stage = (given.block_m + given.block_n) * given.block_k * size
    tile = given.block_m * given.block_n
    held = max(stage * (min(given.stages, iterations + 1) if iterations > 1 else 1), tile * 2) + 2048
    registers = tile + 40 * _THREADS * given.warps
    return max(1, min(SHARED_BYTES // held, _WARPS // max(given.warps, 4), _REGISTERS // registers))


def modelled_seconds(given: Quantities, cost: Mapping[str, float]) -> Numbers:
    """Return the seconds by the cost model alone; see `modelled_times`."""
    return modelled_times(given, cost)["all"]


def modelled_times(given: Quantities, cost: Mapping[str, float]) -> Quantities:
    """Return the seconds by the cost model alone, "all", and those of activities that overlap.

    These are the instructions ("multiply"), their reads of shared memory ("read") and the copies ("copies") of all
    iterations of a multiprocessor, the reads of the operands from the L2 cache ("cached") and memory ("memory"), and
    the stores of whole lines ("written").

    A multiprocessor computes rounds of tiles, one or several at once.  An iteration takes the longest of four times:
    that of the instructions, of their reads of shared memory, of the copies, and of the wait for a stage.  Operands
    that fit in the L2 cache stay there between launches.  Fewer bytes fit if launches overlap and there is no room for
    the blocks of two, since a block then runs on another multiprocessor at each launch.
    """
    consumes, blocks, count = given["consumes"] > 0, given["blocks"], given["multiprocessors"]
    placed = (given["overlaps"] == 0) | (2 * given["grid"] <= count * given["fitting"])
    room = np.where(placed, cost["cached bytes"], cost["cached bytes of overlaps"])
    missing = missing_part(given["bytes"], room)
    tiles = np.ceil(given["clusters"] * blocks / count)
    # A cluster that fits beside no other one shares multiprocessors with one, where two fit.
    filled = count * np.where(blocks > 1, FILLED_BY_CLUSTERS, 1)
    at_once = np.where(consumes, np.ceil(given["grid"] / filled), tiles)
    at_once = np.where(given["persistent"] > 0, 1, np.minimum(at_once, given["fitting"]))
    rounds = np.where(consumes, np.ceil(given["clusters"] * blocks / given["grid"]), np.ceil(tiles / at_once))
    at_once = np.where(consumes, at_once, tiles / rounds)
    # With many rounds, the partial last one differs between multiprocessors and averages out.
    many = (given["clusters"] > 8 * count) & (given["persistent"] == 0) & ~consumes
    rounds = np.where(many, given["clusters"] / count / at_once, rounds)

    multiply, read = _computing(given, cost)
    copies = given["lines"] * cost["line"] + given["outside"] * cost["outside"]
    copies = copies + given["split lines"] * cost["split line"] + given["parted lines"] * cost["parted line"]
    waiting = np.where(consumes, cost["wait"], cost["program wait"]) + missing * cost["memory wait"]
    body = overlapped(cost["hidden"], at_once * multiply, at_once * read, at_once * copies,
                       waiting / np.maximum(1, given["stages"] - 1))  # fmt: skip
    # The barriers of a stage take time of their own unless another consumer or block multiplies meanwhile.
    body = body + np.where(consumes, cost["iteration"] / (given["consumers"] * at_once), 0)
    body = body * np.where(blocks == 2, 1 + cost["pair"], np.where(blocks > 2, 1 + cost["larger cluster"], 1))
    by_elements = consumes & (given["by elements"] > 0)
    stored = given["real rows"] * given["real columns"] * given["sum bytes"]
    stored = stored * np.where(given["transposed"] > 0, 1, cost["sums across"])
    # Operands of an epilogue are loaded as the sums are stored; of those of columns, one comes through a map.
    columns = np.where(consumes & (given["transposed"] > 0), np.maximum(0, given["loads"] - 1), 0)
    times = np.where(by_elements, 1 + given["loads"], columns)
    store = at_once * stored * times / cost["stored by elements"]
    # Whole lines are stored while the next tile is multiplied; those of the last tile are not.
    written = at_once * given["real rows"] * given["real columns"] * given["stored bytes"] / cost["stored"]
    begin = np.where(given["persistent"] > 0, cost["next program"], 1) * cost["program"]
    seconds = rounds * (given["iterations"] * body + np.where(consumes, cost["tile"], begin))
    seconds = seconds + store * np.where(given["ping-pong"] > 0, 1, rounds) + np.where(blocks > 1, cost["cluster"], 0)
    seconds = seconds + np.where(by_elements, 0, written)
    launch = np.where(given["overlaps"] == 0, cost["alone"], np.where(placed, 0, cost["crowded"])) + cost["launch"]
    partial = given["slices"] * given["m"] * given["n"] * given["sum bytes"]
    merge = np.where(given["slices"] > 1, cost["merge"] + partial / cost["merged"], 0)
    down, across = (
        given[f"bytes {side}"]
        * (1 + given[f"split {side}"] * cost["split read"] + given[f"parted {side}"] * cost["parted read"])
        for side in ("down", "across")
    )
    cached = _cache_reads(down, given["reads down"], cost)
    cached = (cached + _cache_reads(across, given["reads across"], cost)) / cost["cache"]
    memory, each = missing * given["bytes"] / cost["memory"], at_once * rounds * given["iterations"]
    return {
        "all": launch + merge + overlapped(cost["hidden"], seconds, cached, memory, rounds * written),
        "multiply": each * multiply, "read": each * read, "copies": each * copies, "cached": cached, "memory": memory,
        "written": rounds * written,
    }  # fmt: skip


def missing_part(size: Numbers, room: Numbers | float) -> Numbers:
    """Return the part of operands of this size in bytes that the L2 cache, with so much room, does not keep."""
    found: Numbers = 1 / (1 + np.exp(-np.clip(np.log(size / room) / CACHED_WIDTH, -40, 40)))
    return found


def _computing(given: Quantities, cost: Mapping[str, float]) -> tuple[Numbers, Numbers]:
    """Return the seconds of the instructions of an iteration, and of their reads of shared memory."""
    consumes, k = given["consumes"] > 0, given["block k"]
    rates = [cost[f"operations {each}"] for each in (*_WIDTHS, 256)]
    width = np.searchsorted(_WIDTHS, given["columns"])
    rate = np.array(rates)[width] * np.where(given["rows"] < 64, cost["few rows"], 1)
    multiply = given["rows"] * given["columns"] * k * given["size"] / np.where(consumes, cost["operations"], rate)
    read = given["rows"] / 64 * (64 + given["columns"]) * k * given["size"] / cost["read"]
    return multiply, np.where(consumes, read, 0)


def _cache_reads(size: Numbers, times: Numbers, cost: Mapping[str, float]) -> Numbers:
    """Return the bytes that `times` reads of an operand take from the L2 cache; those of a small one cost little."""
    found: Numbers = size * np.maximum(1, times) ** cost["again"] * size / (size + cost["small"])
    return found


def overlapped(hidden: float, *seconds: Numbers) -> Numbers:
    """Return the time of overlapping activities: the longest, and the part `hidden` of the others, which it adds."""
    longest: Numbers = np.maximum.reduce(seconds)
    return longest + hidden * (sum(seconds, np.zeros(())) - longest)


def correction_inputs(given: Quantities, modelled: Quantities) -> Numbers:
    """Return the values that the correction depends on, a row for each schedule; `modelled` is of `modelled_times`."""
    blocks, seconds = given["clusters"] * given["blocks"], modelled["all"]
    rounds = blocks / given["grid"]
    multiplied = given["m"] * given["n"] * given["k"]
    computed = given["rows"] * given["columns"] * given["iterations"] * given["block k"]
    brought = given["bytes down"] * given["reads down"] + given["bytes across"] * given["reads across"]
    columns = [given[each] for each in _CORRECTED]
    columns += [np.log(given[each]) for each in _CORRECTED_LOGARITHMS]
    columns += [
        np.log(blocks), given["grid"] / given["multiprocessors"],
        blocks / (np.ceil(rounds) * given["multiprocessors"]), np.log(rounds), given["real rows"] / given["rows"],
        given["real columns"] / given["columns"],
        ((given["overlaps"] == 0) | (2 * given["grid"] <= given["multiprocessors"] * given["fitting"])) * 1.0,
        given["stages"] * (given["real rows"] + given["real columns"]) * given["block k"] * given["size"],
        np.log(seconds), np.log(multiplied / (blocks * computed)),
        np.log(multiplied / (np.ceil(rounds) * given["grid"] * computed)), np.log(brought / given["bytes"]),
        np.log(brought / multiplied), np.log(multiplied / given["bytes"]), np.log(given["stages"] * given["block k"]),
    ]  # fmt: skip
    columns += [np.log(modelled[each] / seconds + _LEAST_SHARE) for each in _SHARES]
    columns += [given[each] for each in _CORRECTED_LAST]
    columns.append(np.log(modelled["written"] / seconds + _LEAST_SHARE))
    return np.stack(columns, axis=1)


_SHARES, _LEAST_SHARE = ("multiply", "read", "copies", "cached", "memory"), 1e-6
"""The activities whose parts of the modelled seconds a correction depends on; parts below the second are equal."""
_CORRECTED = (
    "rows", "columns", "block k", "stages", "consumers", "ping-pong", "cluster m", "cluster n", "transposed",
    "resident", "overlaps", "consumes", "fitting", "persistent", "slices", "outside", "outside of last", "out mapped",
    "lines", "split lines", "split down", "split across",
)  # fmt: skip
_CORRECTED_LOGARITHMS = (
    "iterations", "m", "n", "k", "bytes", "reads down", "reads across", "bytes down", "bytes across",
)  # fmt: skip
_CORRECTED_LAST = ("parted lines", "parted down", "parted across", "ragged")
"""Those that the correction of an H100 does not depend on."""
