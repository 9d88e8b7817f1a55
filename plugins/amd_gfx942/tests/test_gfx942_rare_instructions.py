"""Rare instructions: dot products of registers, digits of 2 / pi, s_flbit_i32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gfx942_kernels import reading, run

DIGITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921C
"""The first 384 binary digits of 2 / pi, from fdlibm's table."""


def test_int8_dot_products() -> None:
    random = np.random.default_rng(3)
    a, b, c = (random.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(3))
    for body, kind in (
        ("v_mov_b32_e32 v5, v4\nv_dot4c_i32_i8_e32 v5, v2, v3", np.int8),
        ("v_dot4_i32_i8 v5, v2, v3, v4", np.int8),
        ("v_dot4_u32_u8 v5, v2, v3, v4", np.uint8),
    ):
        left, right = (each.view(kind).reshape(-1, 4).astype(np.int64) for each in (a, b))
        expected = ((left * right).sum(axis=1) + c.astype(np.int64)).astype(np.uint64).astype(np.uint32)
        assert (run(body, a, b, c) == expected).all()
    plain = reading("v_dot4_i32_i8 v5, v2, v3, v4").signature
    assert plain == reading("v_mov_b32_e32 v5, v4\nv_dot4c_i32_i8_e32 v5, v3, v2").signature is not None
    assert plain != reading("v_dot4_u32_u8 v5, v2, v3, v4").signature is not None
    assert "clamp" in (reading("v_dot4_i32_i8 v5, v2, v3, v4 clamp").unknown or "")


def test_fp16_dot_product_is_one_operation() -> None:
    body = "v_mov_b32_e32 v5, v4\nv_dot2c_f32_f16_e32 v5, {}"
    straight, swapped, same = (reading(body.format(each)).signature for each in ("v2, v3", "v3, v2", "v2, v3"))
    assert straight == same is not None
    assert swapped not in (None, straight)
    assert straight == reading("v_dot2_f32_f16 v5, v2, v3, v4").signature
    fused = (
        "v_fma_mix_f32 v5, v2, v3, v4 op_sel_hi:[1,1,0]\nv_fma_mix_f32 v5, v2, v3, v5 op_sel:[1,1,0] op_sel_hi:[1,1,0]"
    )
    assert reading(fused).signature not in (None, straight)


def test_digits_of_two_over_pi() -> None:
    """Segments of 53 binary digits, truncated; an exponent above 1077 shifts them further."""
    body = "v_mov_b32_e32 v7, v2\nv_mov_b32_e32 v6, 0\nv_trig_preop_f64 v[8:9], v[6:7], v3\nv_mov_b32_e32 v5, {}"
    segments = np.array([0, 1, 2, 5, 0, 0, 3], dtype=np.uint32)
    exponents = np.array([1023, 1023, 1077, 1000, 1078, 1100, 1090], dtype=np.uint32)
    low, high = (run(body.format(each), exponents << np.uint32(20), segments)[:7] for each in ("v8", "v9"))
    found = (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)).view(np.float64)
    assert hex(int(found.view(np.uint64)[0])) == "0x3fe45f306dc9c882"
    for segment, exponent, result in zip(segments, exponents, found, strict=True):
        shift = 53 * int(segment) + max(int(exponent) - 1077, 0)
        digits = DIGITS >> 384 - 53 - shift & (1 << 53) - 1
        assert Fraction(float(result)) == Fraction(digits, 1 << 53 + shift)
    scaled = run(body.format("v9"), [1968 << 20], [0])[0]
    assert scaled >> 20 >= 1023 + 128 - 53 - (1968 - 1077)


def test_flbit_signed() -> None:
    numbers = [0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0xC0000000, 0x00010000, 0xFFFF0000, 0xDEADBEEF]
    for number in numbers:
        signed = number - (1 << 32) if number >> 31 else number
        expected = 32 - (signed if signed >= 0 else ~signed).bit_length() if signed not in (0, -1) else 0xFFFFFFFF
        assert int(run(f"s_mov_b32 s20, {number:#x}\ns_flbit_i32 s21, s20\nv_mov_b32_e32 v5, s21")[0]) == expected
