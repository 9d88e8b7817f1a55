"""The registered matrix-unit rows, and the parameters in which they differ between architectures."""

from __future__ import annotations

from collections import Counter

from bitwise_core.numerics.mma import FusedSum
from bitwise_core.plugins import registry
from bitwise_nvidia_earlier.matrix_units import ROWS


def rule(name: str) -> tuple[int, int, int, str]:
    found = registry.load(["nvidia_earlier"]).matrix_unit(name).arithmetic
    assert isinstance(found, FusedSum)
    return found.products, found.fraction_bits, found.mantissa_bits, found.rounding


def test_every_row_is_registered() -> None:
    assert registry.load(["nvidia_earlier"]).matrix_units == {row.name: row for row in ROWS}
    assert Counter(row.architecture for row in ROWS) == {"sm_70": 2, "sm_75": 10, "sm_80": 25, "sm_86": 25, "sm_89": 41}


def test_parameters_that_determine_the_bits() -> None:
    assert rule("mma.sync_k4_fp32_fp16_fp16_fp32_sm_70") == (4, 23, 23, "rz")
    assert rule("mma.sync_k8_fp16_fp16_fp16_fp16_sm_75") == (8, 24, 10, "rn")
    assert rule("mma.sync_k16_fp32_bf16_bf16_fp32_sm_80") == (8, 24, 23, "rz")
    assert rule("mma.sync_k8_fp32_tf32_tf32_fp32_sm_86") == (4, 24, 23, "rz")
    assert rule("mma.sync_k32_fp32_e4m3_e5m2_fp32_sm_89") == (16, 13, 13, "rz")
    assert rule("mma.sync_k32_fp16_e5m2_e5m2_fp16_sm_89") == (16, 13, 10, "rn")
