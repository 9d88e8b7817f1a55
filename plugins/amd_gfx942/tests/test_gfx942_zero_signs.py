"""The sign of a zero operand does not affect a 16-bit matrix step."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_core.numerics.mma import multiply_accumulate
from gfx942_kernels import reading, run

HALVES = [row for row in ROWS if row.left in ("fp16", "bf16")]
SPECIAL = {
    "fp16": [0x7C00, 0xFC00, 0x7E00, 1, 0x8001, 0x3C00, 0xBC00, 0x7BFF],
    "bf16": [0x7F80, 0xFF80, 0x7FC0, 1, 0x8001, 0x3F80, 0xBF80, 0x7F7F],
}


@pytest.mark.parametrize("row", HALVES, ids=lambda row: row.name)
def test_matrix_step_ignores_signs_of_zero_operands(row: object) -> None:
    """Random and special operands and accumulators, each zero with either sign."""
    assert row in HALVES
    random = np.random.default_rng(5)
    shape = (400, 4, row.k)
    a, b = (random.integers(0, 1 << 16, each).astype(np.uint16) for each in (shape, (400, row.k, 4)))
    for each in (a, b):
        special = random.random(each.shape) < 0.2
        each[special] = random.choice(SPECIAL[row.left], special.sum())
        each[random.random(each.shape) < 0.4] = 0
    a[:40], b[20:60] = 0, 0
    c = random.integers(0, 1 << 32, (400, 4, 4), dtype=np.uint64).astype(np.uint32)
    c[::3] = random.choice([0, 0x80000000, 1, 0x80000001, 0x3F800000], c[::3].shape)
    expected = multiply_accumulate(row, a, b, c)
    for _ in range(4):
        signed = [
            np.where((each == 0) & (random.random(each.shape) < 0.5), np.uint16(0x8000), each).astype(np.uint16)
            for each in (a, b)
        ]
        assert (multiply_accumulate(row, *signed, c) == expected).all()


def test_fma_with_zero_differs_from_the_product_in_signs_of_zeros_only() -> None:
    random = np.random.default_rng(6)
    words = random.integers(0, 1 << 32, (2, 64), dtype=np.uint64).astype(np.uint32)
    words[0, :8] = [0, 0x80000000, 0x00000001, 0x80000001, 0x00400000, 0x7F800000, 0, 0x3F800000]
    words[1, :8] = [0xBF800000, 0x3F800000, 0x80000001, 0x3F000000, 0xBF000000, 0, 0x7FC00000, 0xBF800000]
    left, right = (run(body, *words).tolist() for body in (PRODUCT, FUSED))
    zeros = [each for each in range(64) if left[each] != right[each]]
    assert zeros[:2] == [0, 1]
    assert {(left[each], right[each]) for each in zeros} == {(0x8000, 0)}


PRODUCT = "v_mul_f32_e32 v5, v2, v3\nv_cvt_f16_f32_e32 v5, v5"
FUSED = "v_mov_b32_e32 v5, 0\nv_fma_mixlo_f16 v5, v2, v3, 0"
STEP = """{}
v_pack_b32_f16 v6, v5, v5
v_mov_b32_e32 v7, v6
v_mov_b32_e32 v8, v4
v_mov_b32_e32 v9, v4
v_mfma_f32_32x32x8_f16 v[12:27], v[6:7], v[8:9], 0
v_mov_b32_e32 v5, v13"""


def test_fma_with_zero_as_operand_equals_the_product() -> None:
    signatures = [reading(STEP.format(each)).signature for each in (PRODUCT, FUSED)]
    assert signatures[0] == signatures[1] is not None
    assert reading(PRODUCT).signature != reading(FUSED).signature


@pytest.mark.parametrize("changed", ["v_fma_mixlo_f16 v5, v2, v3, 1.0", "v_fma_mixlo_f16 v5, v2, v3, v4",
                                     "v_fma_mixlo_f16 v5, v2, v4, 0", "v_fma_mixlo_f16 v5, -v2, v3, 0"])  # fmt: skip
def test_other_addend_or_factor_is_distinguished(changed: str) -> None:
    other = reading(STEP.format("v_mov_b32_e32 v5, 0\n" + changed))
    assert other.unknown is None
    assert other.signature != reading(STEP.format(PRODUCT)).signature


def test_fp32_steps_distinguish_signs_of_zeros() -> None:
    """The rule for 16-bit operands does not apply to fp32 numbers converted from them."""
    body = "{}\nv_cvt_f32_f16_e32 v6, v5\nv_mfma_f32_32x32x2_f32 v[12:27], v6, v4, 0\nv_mov_b32_e32 v5, v13"
    assert reading(body.format(PRODUCT)).signature != reading(body.format(FUSED)).signature is not None
