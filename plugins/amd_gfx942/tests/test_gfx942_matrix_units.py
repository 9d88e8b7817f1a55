"""The rows are handed over, and follow the published rule on operands that reveal it."""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_core import registry
from bitwise_core.mma import FlooredSum, multiply_accumulate


def test_every_row_is_handed_over() -> None:
    loaded = registry.load(["gfx942"])
    assert loaded.matrix_units == {row.name: row for row in ROWS}
    assert {row.status for row in ROWS} == {"published only"}
    assert loaded.matrix_unit("mfma_k16_fp32_fp16_fp16_fp32_gfx942").arithmetic == FlooredSum(8, 24, 31, 24)
    assert loaded.matrix_unit("mfma_k4_fp32_fp16_fp16_fp32_gfx942").arithmetic == FlooredSum(4, 24, 31, 24)
    assert len(ROWS) == 23


def test_rounding_down_shows() -> None:
    """1 - 2**-30 rounds to 1; a product of -2**-40 is rounded down to -2**-31 beside an accumulator of 1."""
    unit = registry.load(["gfx942"]).matrix_unit("mfma_k4_fp32_fp16_fp16_fp32_gfx942")
    a = np.array([[0x8010, 0, 0, 0]], dtype=np.uint16)  # -2**-20
    b = np.array([[0x0010], [0], [0], [0]], dtype=np.uint16)
    one, below = 0x3F800000, 0x3F7FFFFF
    c = np.array([[one]], dtype=np.uint32)
    assert int(multiply_accumulate(unit, a, b, c)[0, 0]) == one
    # 2**-25 below 1 is a tie that goes to even; anything less goes down.
    tie = np.array([[0x8010, 0x8C00, 0, 0]], dtype=np.uint16), np.array([[0x10], [0x0800], [0], [0]], dtype=np.uint16)
    alone = np.array([[0, 0x8C00, 0, 0]], dtype=np.uint16), tie[1]
    assert int(multiply_accumulate(unit, *alone, c)[0, 0]) == one
    assert int(multiply_accumulate(unit, *tie, c)[0, 0]) == below
