"""Which solution the libraries select for a call: the guards of a solution, and the three rules on tuned sizes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bitwise_rocblas_profiles.errors import NotSelected
from bitwise_rocblas_profiles.problem import BYTES, MEBIBYTE, Call
from bitwise_rocblas_profiles.tables import LogicFile, Row, Solution

ADDRESSES = 1 << 32
"""The bytes that the buffer instructions of a kernel reach."""
_ADDRESS_MARGIN = 1 << 16
"""Bytes of shifted pointers and of the last vector, which the files do not state."""
GRID_LIMIT = 32768
"""The largest size that the rule on grids is described for."""
SYNCHRONISATIONS = 40960
"""The number of counters that kernels which add slices themselves may use."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A selected solution: its file, its number in the file, the tuned size, and the distance from it by the rule."""

    file: LogicFile
    number: int
    row: Row
    distance: float

    @property
    def solution(self) -> Solution:
        """The parameters of the kernel."""
        return self.file.solutions[self.number]


def passes(solution: Solution, file: LogicFile, call: Call, compute_units: int) -> bool:
    """Return whether a solution may run a call on a device.  Raises NotSelected where that is not published."""
    return (
        bool(file.problem["StridedBatched"] in (None, 1))
        and _multiples(solution, call)
        and _strides(solution, call)
        and _vectors(solution, file, call)
        and _workspace(solution, file, call)
        and _work_groups(solution, call, compute_units)
        and _addresses(solution, file, call)
    )


def _multiples(solution: Solution, call: Call) -> bool:
    guard, sizes = solution.guard, call.sizes
    required = (("AssertFree0", call.m), ("AssertFree1", call.n), ("AssertSummation", call.k))
    if any(size % (guard[f"{name}ElementMultiple"] or 1) for name, size in required):
        return False
    return (
        all(sizes[index] == value for index, value in guard["AssertSizeEqual"] or ())
        and all(sizes[index] > value for index, value in guard["AssertSizeGreaterThan"] or ())
        and all(sizes[index] < value for index, value in guard["AssertSizeLessThan"] or ())
        and all(sizes[index] % value == 0 for index, value in guard["AssertSizeMultiple"] or ())
    )


def _strides(solution: Solution, call: Call) -> bool:
    for name, strides in call.strides.items():
        for index, value in solution.guard[f"AssertStride{name}Equal"] or ():
            if index >= len(strides):
                raise NotSelected(f"a solution requires a stride of {name} between the matrices of a batch")
            if strides[index] != value:
                return False
    return True


def _vectors(solution: Solution, file: LogicFile, call: Call) -> bool:
    guard = solution.guard
    for name, size in (("A", call.m), ("B", call.n)):
        width = guard[f"GlobalLoadVectorWidth{name}"] or guard[f"GlobalReadVectorWidth{name}"] or 1
        if file.problem[f"TLU{name}"] and size < width:
            return False
    return True


def _workspace(solution: Solution, file: LogicFile, call: Call) -> bool:
    guard, slices, outputs = solution.guard, solution.bits["GlobalSplitU"] or 1, call.m * call.n * call.batch
    if file.generator == "Tensile":
        least = guard["MinKForGSU"] if guard["MinKForGSU"] is not None else 256
        if guard["_GlobalAccumulation"] is not None and call.k < least * slices:
            return False
        return bool((guard["_WorkspaceSizePerElemC"] or 0) * outputs <= call.workspace)
    if slices <= 1:
        return True
    if guard["_GlobalAccumulation"] is not None and call.k < 32 * slices:
        return False
    return bool(4 * slices * outputs <= min(call.workspace, 128 * MEBIBYTE))


def _work_groups(solution: Solution, call: Call, compute_units: int) -> bool:
    guard, bits = solution.guard, solution.bits
    count, group = guard["WorkGroupMappingXCC"], guard["WorkGroupMappingXCCGroup"]
    if group in (None, -1):
        group = compute_units
    if count is not None and (count & (count - 1) or group % count):
        return False
    if guard["SynchronizerSizeCheck"]:
        waves, each, threads = guard["SynchronizerSizeCheck"]
        tiles = -(-call.m // bits["MacroTile0"]) * -(-call.n // bits["MacroTile1"])
        return bool(tiles * waves * (threads / 64) * each <= SYNCHRONISATIONS)
    return True


def _addresses(solution: Solution, file: LogicFile, call: Call) -> bool:
    guard, bits, strides = solution.guard, solution.bits, call.strides
    checks = []
    if guard["BufferLoad"]:
        for name, kind, tile in (("A", call.a, "MacroTile0"), ("B", call.b, "MacroTile1")):
            extent = bits["DepthU"] if file.problem[f"TLU{name}"] else bits[tile]
            checks.append(extent * strides[name][1] * BYTES[kind])
    if guard["BufferStore"]:
        checks.append(bits["MacroTile1"] * strides["D"][1] * BYTES[call.d])
    if any(ADDRESSES - _ADDRESS_MARGIN <= each < ADDRESSES for each in checks):
        raise NotSelected("whether a kernel reaches all of a tile depends on pointers that are not published")
    return all(each < ADDRESSES for each in checks)


def select_equal(files: Iterable[LogicFile], call: Call, compute_units: int) -> Selected | None:
    """Return the first solution tuned for exactly this size that passes; None where there is none."""
    for file in files:
        for row in file.rows:
            if (row.m, row.n, row.batch, row.k) == call.sizes and passes(
                file.solutions[row.solution], file, call, compute_units
            ):
                return Selected(file, row.solution, row, 0.0)
    return None


def select_nearest(files: Sequence[LogicFile], call: Call, compute_units: int) -> Selected | None:
    """Return the solution tuned for the nearest size by squared distance, of those that pass; the batch has no effect.

    Of equal distances the larger speed is taken, then the first one met, from the call's size upwards and then
    downwards.  Raises NotSelected where that leaves two solutions.
    """
    rows = sorted(((row, file) for file in files for row in file.rows), key=lambda pair: _key(pair[0]))
    begin = bisect_left([_key(row) for row, _ in rows], (call.m, call.n, call.k))
    best: Selected | None = None
    rivals: list[Selected] = []
    verdicts: dict[tuple[int, int], bool] = {}
    for row, file in (*rows[begin:], *reversed(rows[:begin])):
        distance = float((row.m - call.m) ** 2 + (row.n - call.n) ** 2 + (row.k - call.k) ** 2)
        if best is not None and (distance, -row.speed) > (best.distance, -best.row.speed):
            continue
        place = id(file), row.solution
        if place not in verdicts:
            verdicts[place] = passes(file.solutions[row.solution], file, call, compute_units)
        if not verdicts[place]:
            continue
        found = Selected(file, row.solution, row, distance)
        if best is None or (distance, -row.speed) < (best.distance, -best.row.speed):
            best, rivals = found, []
        elif _key(row) == _key(best.row):
            rivals.append(found)
    if best is not None and any(each.solution.bits != best.solution.bits for each in rivals):
        raise NotSelected(
            f"two solutions were tuned for {best.row.m} x {best.row.n} x {best.row.k} with one speed; which of them is "
            "met first is not published"
        )
    return best


def _key(row: Row) -> tuple[int, int, int]:
    return row.m, row.n, row.k


def select_on_grid(files: Sequence[LogicFile], call: Call, compute_units: int) -> Selected | None:
    """Return the solution of the nearest larger point of a grid of tuned M and N, and of the nearest K there.

    None where there is no row.  Raises NotSelected for sizes that the rule is not described for, and where no solution
    at that point passes.
    """
    rows = [(row, file) for file in files for row in file.rows]
    if not rows:
        return None
    m, n = (call.m * call.batch, call.n) if call.m > call.n else (call.m, call.n * call.batch)
    if max(m, n, call.k) > GRID_LIMIT:
        raise NotSelected(f"the rule on grids is not described for sizes above {GRID_LIMIT}")
    grid_m = _least(sorted({row.m for row, _ in rows}), m)
    grid_n = _least(sorted({row.n for row, _ in rows if row.m == grid_m}), n)
    best: Selected | None = None
    for row, file in rows:
        if (row.m, row.n) != (grid_m, grid_n):
            continue
        if not passes(file.solutions[row.solution], file, call, compute_units):
            continue
        wide_m, wide_n = math.ceil(m / row.m), math.ceil(n / row.n)
        filled = m * n / (wide_m * row.m * wide_n * row.n)
        distance = round(100 * wide_m * wide_n / filled**2) + abs(call.k - row.k) / (row.k + 8 * call.k)
        if best is None or distance < best.distance:
            best = Selected(file, row.solution, row, distance)
    if best is None:
        raise NotSelected(f"no solution at {grid_m} x {grid_n} may run this call, and where the search goes on is open")
    return best


def _least(tuned: Sequence[int], size: int) -> int:
    """Return the smallest tuned size that is not below `size`, or the largest of all."""
    return next((each for each in tuned if each >= size), tuned[-1])


def by_device(files: Iterable[LogicFile], apu: bool, compute_units: int) -> Iterator[list[LogicFile]]:
    """Yield the files for a device in the order in which the libraries search them, those of one predicate together."""

    def rank(file: LogicFile) -> tuple[int, int]:
        kind = file.hardware.is_apu
        return (0 if kind else 1 if kind is False else 2), -(file.hardware.cu_count or 0)

    fitting = [
        file
        for file in files
        if file.hardware.is_apu in (None, apu) and file.hardware.cu_count in (None, compute_units)
    ]
    for _, group in groupby(sorted(fitting, key=rank), key=rank):
        yield list(group)
