"""The matrix units of Hopper: mma.sync and wgmma, which run the same steps except for fp8.

All but the rows of integers on wgmma or of both signs were measured on an H100 (records/matrix-probes-sm90-h100.json):
over 130,000 results each, none different.  Where public vectors reach a row, they are named as its source.

mma.sync of fp8 is no instruction of the machine: the assembler unpacks the operands to fp16, runs two steps of them
from zero, and adds the accumulator.  Its bits belong to the assembler's version.
"""

from __future__ import annotations

from dataclasses import replace

from bitwise_core.numerics.mma import FusedSum, MmaSpec, SequentialMultiplyAdd
from bitwise_nvidia_ptx.matrix_rows import CHECKED, FP8, MEASURED, fp64, fused, integers

NAME = "sm_90"
WARP, GROUP, SHARED = "mma.sync", "wgmma", "fused"


LEAST_EXPONENT = -133
"""Terms are aligned to no smaller exponent: what lies below 2**-158 is cut.  Products of bf16 and tf32 reach it."""
NANS = SequentialMultiplyAdd(("right", "accumulator", "left"), 0xFFF8000000000000)
"""fp64 hands NaN operands on, b's before the accumulator's before a's; a NaN that it makes has this pattern."""


def _step(products: int) -> FusedSum:
    return FusedSum(products, 25, 23, "rz", least_exponent=LEAST_EXPONENT)


def _warp() -> list[MmaSpec]:
    rows = []
    for k, status in ((8, MEASURED), (16, CHECKED)):
        rows += [fused(NAME, WARP, "fp16", result, k, _step(k), status) for result in ("fp32", "fp16")]
        rows.append(fused(NAME, WARP, "bf16", "fp32", k, _step(k), status))
    rows += [fused(NAME, WARP, "tf32", "fp32", k, _step(k), status) for k, status in ((4, CHECKED), (8, MEASURED))]
    halves = FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")
    for left, right in FP8:
        for result in ("fp32", "fp16"):
            status = CHECKED if left == right and result == "fp16" else MEASURED
            rows.append(fused(NAME, WARP, left, result, 32, halves, status, right))
    return rows + fp64(NAME, (4, 8, 16), NANS, MEASURED) + integers(NAME, WARP, (16, 32), ("s8", "u8"))


def _group() -> list[MmaSpec]:
    """wgmma; fp32 results of fp8 keep 13 fraction bits of their 23."""
    rows = [fused(NAME, GROUP, "fp16", result, 16, _step(16), MEASURED) for result in ("fp32", "fp16")]
    rows.append(fused(NAME, GROUP, "bf16", "fp32", 16, _step(16), MEASURED))
    rows.append(fused(NAME, GROUP, "tf32", "fp32", 8, _step(8), MEASURED))
    narrow = FusedSum(32, 13, 13, "rz")
    for left, right in FP8:
        for result in ("fp32", "fp16"):
            status = CHECKED if left == right and result == "fp32" else MEASURED
            rows.append(fused(NAME, GROUP, left, result, 32, narrow, status, right))
    return rows + integers(NAME, GROUP, (32,))


def _shared(rows: list[MmaSpec]) -> list[MmaSpec]:
    """The steps that both units run, under the name that terms give them."""
    return [replace(row, family=SHARED) for row in rows if row.left in ("fp16", "bf16", "tf32")]


ROWS: tuple[MmaSpec, ...] = (*_warp(), *_group(), *_shared(_group()))
