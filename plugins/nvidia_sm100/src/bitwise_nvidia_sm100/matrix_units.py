"""The matrix units of Blackwell: mma.sync, and tcgen05.mma of dense operands without block scales."""

from __future__ import annotations

from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_core.numerics.mma.spec import Status
from bitwise_nvidia_ptx.matrix_rows import CHECKED, FP8, PUBLISHED, fp64, fused, integers

WARP, TENSOR = "mma.sync", "tcgen05"


def _step(products: int) -> FusedSum:
    return FusedSum(products, 25, 23, "rz")


def _warp(name: str, checked: Status) -> list[MmaSpec]:
    rows = []
    for k, status in ((8, PUBLISHED), (16, checked)):
        rows += [fused(name, WARP, "fp16", result, k, _step(k), status) for result in ("fp32", "fp16")]
        rows.append(fused(name, WARP, "bf16", "fp32", k, _step(k), status))
    rows += [fused(name, WARP, "tf32", "fp32", k, _step(k), status) for k, status in ((4, checked), (8, PUBLISHED))]
    halves = FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")
    for left, right in FP8:
        status = checked if left == right else PUBLISHED
        rows += [fused(name, WARP, left, result, 32, halves, status, right) for result in ("fp32", "fp16")]
    return rows + fp64(name, (4, 8, 16)) + integers(name, WARP, (16, 32))


def _tensor(name: str) -> list[MmaSpec]:
    """Kinds f16, tf32 and f8f6f4 (its fp8 types)."""
    rows = [fused(name, TENSOR, "fp16", result, 16, _step(16), PUBLISHED) for result in ("fp32", "fp16")]
    rows.append(fused(name, TENSOR, "bf16", "fp32", 16, _step(16), PUBLISHED))
    rows.append(fused(name, TENSOR, "tf32", "fp32", 8, _step(8), PUBLISHED))
    for left, right in FP8:
        rows += [fused(name, TENSOR, left, result, 32, _step(32), PUBLISHED, right) for result in ("fp32", "fp16")]
    return rows


ROWS: tuple[MmaSpec, ...] = (
    *_warp("sm_100", CHECKED),
    *_tensor("sm_100"),
    *integers("sm_100", TENSOR, (32,)),  # sm_103 has no kind::i8
    *_warp("sm_103", PUBLISHED),
    *_tensor("sm_103"),
)
