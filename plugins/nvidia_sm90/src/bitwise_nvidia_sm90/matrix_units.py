"""The matrix units of Hopper: mma.sync and wgmma, which run the same steps except for fp8."""

from __future__ import annotations

from dataclasses import replace

from bitwise_core.mma import FusedSum, MmaSpec
from bitwise_nvidia_ptx.matrix_rows import CHECKED, FP8, PUBLISHED, fp64, fused, integers

NAME = "sm_90"
WARP, GROUP, SHARED = "mma.sync", "wgmma", "fused"


def _step(products: int) -> FusedSum:
    return FusedSum(products, 25, 23, "rz")


def _warp() -> list[MmaSpec]:
    rows = []
    for k, status in ((8, PUBLISHED), (16, CHECKED)):
        rows += [fused(NAME, WARP, "fp16", result, k, _step(k), status) for result in ("fp32", "fp16")]
        rows.append(fused(NAME, WARP, "bf16", "fp32", k, _step(k), status))
    rows += [fused(NAME, WARP, "tf32", "fp32", k, _step(k), status) for k, status in ((4, CHECKED), (8, PUBLISHED))]
    halves = FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True)
    for left, right in FP8:
        for result in ("fp32", "fp16"):
            status = CHECKED if left == right and result == "fp16" else PUBLISHED
            rows.append(fused(NAME, WARP, left, result, 32, halves, status, right))
    return rows + fp64(NAME, (4, 8, 16)) + integers(NAME, WARP, (16, 32))


def _group() -> list[MmaSpec]:
    """wgmma; fp32 results of fp8 keep 13 fraction bits of their 23."""
    rows = [fused(NAME, GROUP, "fp16", result, 16, _step(16), PUBLISHED) for result in ("fp32", "fp16")]
    rows.append(fused(NAME, GROUP, "bf16", "fp32", 16, _step(16), PUBLISHED))
    rows.append(fused(NAME, GROUP, "tf32", "fp32", 8, _step(8), PUBLISHED))
    narrow = FusedSum(32, 13, 13, "rz")
    for left, right in FP8:
        for result in ("fp32", "fp16"):
            status = CHECKED if left == right and result == "fp32" else PUBLISHED
            rows.append(fused(NAME, GROUP, left, result, 32, narrow, status, right))
    return rows + integers(NAME, GROUP, (32,))


def _shared(rows: list[MmaSpec]) -> list[MmaSpec]:
    """The steps that both units run, under the name that terms give them."""
    return [
        replace(row, family=SHARED) for row in rows if row.result == "fp32" and row.left in ("fp16", "bf16", "tf32")
    ]


ROWS: tuple[MmaSpec, ...] = (*_warp(), *_group(), *_shared(_group()))
