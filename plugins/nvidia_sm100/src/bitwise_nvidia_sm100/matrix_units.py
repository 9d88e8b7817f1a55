"""The rows of Blackwell's matrix units: mma.sync, and tcgen05.mma of dense operands."""

from __future__ import annotations

from dataclasses import replace

from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_core.numerics.mma.spec import Status
from bitwise_nvidia_ptx.matrix_rows import CHECKED, FP8, PUBLISHED, fp64, fused, integers

MMA_SYNC, TCGEN05, SHARED = "mma.sync", "tcgen05", "fused"

SAME_STEPS = frozenset({"f32 f16 k16", "f16 f16 k16"})
"""The steps that mma.sync and tcgen05.mma both run: result type, operand type, and k.

Published, not measured here: one function of MMA-Sim gives the results of both units of a B200 on random bit patterns
(its test `test_nv_blackwell`), and those of public vectors of mma.sync.  Products of fp16 are at least
2**-48.  Those of bf16 and tf32 are as small as 2**-266, and neither source says what the units do with terms below
2**-133, so that the units' steps stay apart there.
"""


def _step(products: int) -> FusedSum:
    return FusedSum(products, 25, 23, "rz")


def _mma_sync_rows(architecture: str, checked: Status) -> list[MmaSpec]:
    rows = []
    for k, status in ((8, PUBLISHED), (16, checked)):
        rows += [fused(architecture, MMA_SYNC, "fp16", result, k, _step(k), status) for result in ("fp32", "fp16")]
        rows.append(fused(architecture, MMA_SYNC, "bf16", "fp32", k, _step(k), status))
    rows += [
        fused(architecture, MMA_SYNC, "tf32", "fp32", k, _step(k), status)
        for k, status in ((4, checked), (8, PUBLISHED))
    ]
    halves = FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")
    for left, right in FP8:
        status = checked if left == right else PUBLISHED
        rows += [fused(architecture, MMA_SYNC, left, result, 32, halves, status, right) for result in ("fp32", "fp16")]
    return rows + fp64(architecture, (4, 8, 16)) + integers(architecture, MMA_SYNC, (16, 32))


def _tcgen05_rows(architecture: str) -> list[MmaSpec]:
    """Return the rows of tcgen05.mma: kinds f16, tf32, and the fp8 types of f8f6f4."""
    rows = [fused(architecture, TCGEN05, "fp16", result, 16, _step(16), PUBLISHED) for result in ("fp32", "fp16")]
    rows.append(fused(architecture, TCGEN05, "bf16", "fp32", 16, _step(16), PUBLISHED))
    rows.append(fused(architecture, TCGEN05, "tf32", "fp32", 8, _step(8), PUBLISHED))
    for left, right in FP8:
        rows += [
            fused(architecture, TCGEN05, left, result, 32, _step(32), PUBLISHED, right) for result in ("fp32", "fp16")
        ]
    return rows


def _shared_rows(architecture: str) -> list[MmaSpec]:
    """Return the rows of the steps that both units run, under the family name that terms use."""
    return [replace(row, family=SHARED) for row in _tcgen05_rows(architecture) if row.left == row.right == "fp16"]


ROWS: tuple[MmaSpec, ...] = (
    *_mma_sync_rows("sm_100", CHECKED),
    *_tcgen05_rows("sm_100"),
    *_shared_rows("sm_100"),
    *integers("sm_100", TCGEN05, (32,)),  # sm_103 has no kind::i8
    *_mma_sync_rows("sm_103", PUBLISHED),
    *_tcgen05_rows("sm_103"),
    *_shared_rows("sm_103"),
)
