"""The rows of Hopper are handed over, and every step that a kernel's terms may name has one."""

from __future__ import annotations

from bitwise_core import registry
from bitwise_core.mma import FusedSum
from bitwise_nvidia_sm90.matrix_units import ROWS, SHARED
from bitwise_nvidia_sm90.plugin import SAME_STEPS
from bitwise_nvidia_sm90.wgmma import FAMILY

UNITS = {row.name: row for row in ROWS}


def test_every_row_is_handed_over() -> None:
    assert registry.load(["sm90"]).matrix_units == UNITS
    assert len(UNITS) == len(ROWS)


def test_shared_steps_have_rows() -> None:
    assert SHARED == FAMILY
    for step in SAME_STEPS:
        result, left, k = step.split()
        form = {"f16": "fp16"}.get(left, left)
        types = f"{result.replace('f', 'fp')}_{form}_{form}_{result.replace('f', 'fp')}"
        rules = {UNITS[f"{family}_{k}_{types}_sm_90"].arithmetic for family in (SHARED, "mma.sync", "wgmma")}
        assert len(rules) == 1


def test_fp8_is_not_one_unit() -> None:
    warp, group = (UNITS[f"{family}_k32_fp32_e4m3_e4m3_fp32_sm_90"].arithmetic for family in ("mma.sync", "wgmma"))
    assert warp == FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")
    assert group == FusedSum(32, 13, 13, "rz")
