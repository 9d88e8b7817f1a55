"""The rows of Hopper's matrix units: mma.sync and wgmma, which run the same steps except for fp8.

All rows were measured on an H100, except those of integers with wgmma and of integers of mixed signedness: over 130,000
results each, no difference (records/matrix-probes-sm90-h100.json).  A row that public vectors cover names them as its
source.

The machine has no mma.sync of fp8: the assembler unpacks the operands to fp16, runs two fp16 steps from zero, and adds
the accumulator.  Its bits depend on the assembler's version.
"""

from __future__ import annotations

from dataclasses import replace

from bitwise_core.numerics.mma import FusedSum, MmaSpec, SequentialMultiplyAdd
from bitwise_nvidia_ptx.matrix_rows import CHECKED, FP8, MEASURED, fp64, fused, integers

NAME = "sm_90"
MMA_SYNC, WGMMA, SHARED = "mma.sync", "wgmma", "fused"


LEAST_EXPONENT = -133
"""The least exponent to which terms are aligned: bits below 2**-158 are truncated.

Products of bf16 and tf32 reach it.
"""
FP64_RULE = SequentialMultiplyAdd(("right", "accumulator", "left"), 0xFFF8000000000000)
"""fp64 propagates NaN operands: b's before the accumulator's before a's.  A NaN that it generates has this pattern."""


def _step(products: int) -> FusedSum:
    return FusedSum(products, 25, 23, "rz", least_exponent=LEAST_EXPONENT)


def _mma_sync_rows() -> list[MmaSpec]:
    rows = []
    for k, status in ((8, MEASURED), (16, CHECKED)):
        rows += [fused(NAME, MMA_SYNC, "fp16", result, k, _step(k), status) for result in ("fp32", "fp16")]
        rows.append(fused(NAME, MMA_SYNC, "bf16", "fp32", k, _step(k), status))
    rows += [fused(NAME, MMA_SYNC, "tf32", "fp32", k, _step(k), status) for k, status in ((4, CHECKED), (8, MEASURED))]
    halves = FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")
    for left, right in FP8:
        for result in ("fp32", "fp16"):
            status = CHECKED if left == right and result == "fp16" else MEASURED
            rows.append(fused(NAME, MMA_SYNC, left, result, 32, halves, status, right))
    return rows + fp64(NAME, (4, 8, 16), FP64_RULE, MEASURED) + integers(NAME, MMA_SYNC, (16, 32), ("s8", "u8"))


def _wgmma_rows() -> list[MmaSpec]:
    """Return the rows of wgmma.  fp32 results of fp8 keep 13 of their 23 fraction bits."""
    rows = [fused(NAME, WGMMA, "fp16", result, 16, _step(16), MEASURED) for result in ("fp32", "fp16")]
    rows.append(fused(NAME, WGMMA, "bf16", "fp32", 16, _step(16), MEASURED))
    rows.append(fused(NAME, WGMMA, "tf32", "fp32", 8, _step(8), MEASURED))
    narrow = FusedSum(32, 13, 13, "rz")
    for left, right in FP8:
        for result in ("fp32", "fp16"):
            status = CHECKED if left == right and result == "fp32" else MEASURED
            rows.append(fused(NAME, WGMMA, left, result, 32, narrow, status, right))
    return rows + integers(NAME, WGMMA, (32,))


def _shared_rows(rows: list[MmaSpec]) -> list[MmaSpec]:
    """Return the rows of the steps that both units run, under the family name that terms use."""
    return [replace(row, family=SHARED) for row in rows if row.left in ("fp16", "bf16", "tf32")]


ROWS: tuple[MmaSpec, ...] = (*_mma_sync_rows(), *_wgmma_rows(), *_shared_rows(_wgmma_rows()))
