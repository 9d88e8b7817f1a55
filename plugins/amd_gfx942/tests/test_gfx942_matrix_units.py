"""The matrix-unit rows are registered, and follow the published arithmetic on operands that reveal it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_core.numerics.mma import FlooredSum, multiply_accumulate
from bitwise_core.plugins import registry
from gfx942_kernels import run


def test_rows_are_registered() -> None:
    loaded = registry.load(["gfx942"])
    assert loaded.matrix_units == {row.name: row for row in ROWS}
    assert {row.status for row in ROWS} == {"published only"}
    assert loaded.matrix_unit("mfma_k16_fp32_fp16_fp16_fp32_gfx942").arithmetic == FlooredSum(8, 24, 31, 24)
    assert loaded.matrix_unit("mfma_k4_fp32_fp16_fp16_fp32_gfx942").arithmetic == FlooredSum(4, 24, 31, 24)
    assert Counter(row.architecture for row in ROWS) == {"gfx942": 24, "gfx950": 4}


def test_aligned_products_are_rounded_down() -> None:
    """1 - 2**-30 rounds to 1; a product of -2**-40 is rounded down to -2**-31 next to an accumulator of 1."""
    unit = registry.load(["gfx942"]).matrix_unit("mfma_k4_fp32_fp16_fp16_fp32_gfx942")
    a = np.array([[0x8010, 0, 0, 0]], dtype=np.uint16)  # -2**-20
    b = np.array([[0x0010], [0], [0], [0]], dtype=np.uint16)
    one, below = 0x3F800000, 0x3F7FFFFF
    c = np.array([[one]], dtype=np.uint32)
    assert int(multiply_accumulate(unit, a, b, c)[0, 0]) == one
    # 1 - 2**-25 is a tie that rounds to even, 1; anything less rounds down.
    tie = np.array([[0x8010, 0x8C00, 0, 0]], dtype=np.uint16), np.array([[0x10], [0x0800], [0], [0]], dtype=np.uint16)
    alone = np.array([[0, 0x8C00, 0, 0]], dtype=np.uint16), tie[1]
    assert int(multiply_accumulate(unit, *alone, c)[0, 0]) == one
    assert int(multiply_accumulate(unit, *tie, c)[0, 0]) == below


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        ("fp8_fp8", 0x40404040, 0x48484848),
        ("bf8_bf8", 0x40404040, 0x44444444),
        ("fp8_bf8", 0x40404040, 0x44444444),
    ],
)
def test_fp8_products(kind: str, one: int, two: int) -> None:
    """32 products of 1 and 2: the exponent bias of fnuz formats is one more than that of the OCP formats."""
    body = f"""v_mov_b32_e32 v6, v2
v_mov_b32_e32 v7, v2
v_mov_b32_e32 v8, v3
v_mov_b32_e32 v9, v3
v_mfma_f32_16x16x32_{kind} v[12:15], v[6:7], v[8:9], 0
v_mov_b32_e32 v5, v12"""
    assert run(body, [one], [two]).view(np.float32).tolist() == [64.0] * 64
