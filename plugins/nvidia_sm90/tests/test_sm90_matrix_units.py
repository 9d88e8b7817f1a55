"""The registered matrix-unit rows of Hopper; every step that terms can name has a row."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.numerics import FORMATS
from bitwise_core.numerics.mma import FusedSum, MmaSpec, multiply_accumulate
from bitwise_core.plugins import registry
from bitwise_nvidia_sm90.architecture import SAME_STEPS
from bitwise_nvidia_sm90.matrix_units import ROWS, SHARED
from bitwise_nvidia_sm90.wgmma import FAMILY

UNITS = {row.name: row for row in ROWS}


def test_every_row_is_registered() -> None:
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


NARROW = [row for row in ROWS if row.result == "fp16" and (row.left, row.right) != ("e4m3", "e4m3")]
"""The rows whose smallest products are below fp16's least subnormal."""


@pytest.mark.parametrize("row", NARROW, ids=lambda row: row.name)
def test_underflow_in_a_narrow_result_is_not_negative_zero(row: MmaSpec) -> None:
    width = np.uint16 if row.left == "fp16" else np.uint8
    left, right = np.zeros((2, row.k), dtype=width), np.zeros((row.k, 1), dtype=width)
    left[:, 0] = (1 << FORMATS[row.left].bits - 1 | 1, 1)
    right[0, 0] = 1
    minus_zero = np.full((2, 1), 0x8000, dtype=np.uint16)
    assert multiply_accumulate(row, left, right, minus_zero).tolist() == [[0], [0]]


def test_fp8_differs_between_units() -> None:
    warp, group = (UNITS[f"{family}_k32_fp32_e4m3_e4m3_fp32_sm_90"].arithmetic for family in ("mma.sync", "wgmma"))
    assert warp == FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")
    assert group == FusedSum(32, 13, 13, "rz")
