"""The rows of matrix units against a sample of the results of an H100."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bitwise_bench.matrix_units.measured_samples import differing, samples
from bitwise_bench.matrix_units.probes import rows
from bitwise_core.numerics.mma import FusedSum, MmaSpec, SequentialMultiplyAdd

UNITS = {row.name: row for row in rows()}
MEASURED = samples("sm_90")


def test_every_probed_row_has_its_sample() -> None:
    assert set(MEASURED) == set(UNITS)
    assert min(len(sample.d) for sample in MEASURED.values()) == 200
    assert {UNITS[name].status for name in MEASURED} == {"checked on vectors", "measured by us"}
    assert not samples("sm_1")


@pytest.mark.parametrize("name", MEASURED)
def test_every_result_has_the_bits_of_the_hardware(name: str) -> None:
    assert differing(UNITS[name], MEASURED[name]) == 0


def altered(row: MmaSpec, changes: dict[str, Any]) -> MmaSpec:
    assert isinstance(row.arithmetic, FusedSum | SequentialMultiplyAdd)
    return replace(row, arithmetic=replace(row.arithmetic, **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mma.sync_k16_fp32_bf16_bf16_fp32_sm_90", {"least_exponent": None}),
        ("wgmma_k8_fp32_tf32_tf32_fp32_sm_90", {"least_exponent": None}),
        ("mma.sync_k16_fp32_fp16_fp16_fp32_sm_90", {"products": 8}),
        ("mma.sync_k16_fp32_fp16_fp16_fp32_sm_90", {"fraction_bits": 26}),
        ("mma.sync_k16_fp32_fp16_fp16_fp32_sm_90", {"zero_products": True}),
        ("mma.sync_k32_fp32_e4m3_e5m2_fp32_sm_90", {"widened": None}),
        ("mma.sync_k32_fp32_e5m2_e4m3_fp32_sm_90", {"widened": None}),
        ("mma.sync_k32_fp32_e4m3_e4m3_fp32_sm_90", {"order": "ascending"}),
        ("mma.sync_k32_fp16_e4m3_e4m3_fp16_sm_90", {"accumulator_last": False}),
        ("wgmma_k32_fp32_e4m3_e4m3_fp32_sm_90", {"fraction_bits": 14}),
        ("mma.sync_k8_fp64_fp64_fp64_fp64_sm_90", {"nan_order": ()}),
        ("mma.sync_k8_fp64_fp64_fp64_fp64_sm_90", {"nan_order": ("left", "right", "accumulator")}),
    ],
)
def test_the_sample_detects_wrong_rows(name: str, changes: dict[str, Any]) -> None:
    assert differing(altered(UNITS[name], changes), MEASURED[name]) > 0
