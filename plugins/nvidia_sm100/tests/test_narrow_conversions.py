"""cvt of 4 and 6 bits, of scales, and arithmetic of mixed types, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from tcgen05_kernels import Text, executed, reading

FORMS = {"e2m1": (2, 1, 1), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3)}
"""Bits of the exponent and of the mantissa, and the bias."""


def value(form: str, code: int) -> Fraction:
    """Return the number of a pattern, as the OCP formats for microscaling define it."""
    exponents, mantissa, bias = FORMS[form]
    sign, exponent = code >> exponents + mantissa & 1, code >> mantissa & (1 << exponents) - 1
    fraction = Fraction(code & (1 << mantissa) - 1, 1 << mantissa)
    size = (fraction + 1) * Fraction(2) ** (exponent - bias) if exponent else fraction * Fraction(2) ** (1 - bias)
    return -size if sign else size


def nearest(form: str, number: float) -> int:
    """Return the pattern nearest to a number, the even one of two."""
    half = 1 << sum(FORMS[form][:2])
    if np.isnan(number):
        return half - 1
    size = min(Fraction(abs(number)) if np.isfinite(number) else Fraction(10**6), value(form, half - 1))
    best = min(range(half), key=lambda code: (abs(value(form, code) - size), code & 1))
    return best + half * bool(np.signbit(number))


def numbers() -> npt.NDArray[np.float32]:
    """Return 1,024 numbers: multiples of 1/64, which include every tie, and others of all sizes."""
    ties = np.arange(-400, 400, dtype=np.float32) / 16
    wide = np.random.default_rng(2).standard_normal(216).astype(np.float32) * np.logspace(-6, 3, 216, dtype=np.float32)
    return np.concatenate([ties, wide, np.float32([0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, 3e38])])


def converted(lines: list[str], content: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint32]:
    text = Text().read_in(100, 8).add(".reg .b8 %b<4>;", ".reg .b16 %h<12>;", *lines).write_out(200, count)
    return executed(text.whole(), content, 512 * count).reshape(128, count)


def test_two_numbers_become_the_halves_of_a_byte() -> None:
    given = numbers().reshape(128, 8)
    lines = [
        f"cvt.rn.satfinite.e2m1x2.f32 %b1, %r{101 + 2 * each}, %r{100 + 2 * each}; cvt.u32.u8 %r{200 + each}, %b1;"
        for each in range(4)
    ]
    found = converted(lines, given.view(np.uint8).ravel(), 4)
    for row, results in zip(given, found.tolist(), strict=True):
        codes = [nearest("e2m1", float(each)) for each in row]
        assert results == [codes[2 * each] | codes[2 * each + 1] << 4 for each in range(4)]


@pytest.mark.parametrize("form", ["e2m3", "e3m2"])
def test_numbers_of_six_bits_are_the_lower_bits_of_bytes(form: str) -> None:
    given = numbers().reshape(128, 8)
    lines = [
        f"cvt.rn.satfinite.{form}x2.f32 %h1, %r{101 + 2 * each}, %r{100 + 2 * each}; cvt.u32.u16 %r{200 + each}, %h1;"
        for each in range(4)
    ]
    found = converted(lines, given.view(np.uint8).ravel(), 4)
    for row, results in zip(given, found.tolist(), strict=True):
        codes = [nearest(form, float(each)) for each in row]
        assert results == [codes[2 * each] | codes[2 * each + 1] << 8 for each in range(4)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", ["f16x2", "bf16x2"])
def test_every_pattern_is_widened_exactly(form: str, target: str) -> None:
    bits = 1 + sum(FORMS[form][:2])
    codes = np.arange(1024).reshape(128, 8)[:, :1].astype(np.uint32) // 8 * 37 % (1 << 16)
    content = np.repeat(codes, 8, axis=1).astype(np.uint32)
    source, move = ("%b1", "cvt.u8.u32 %b1, %r100;") if form == "e2m1" else ("%h1", "cvt.u16.u32 %h1, %r100;")
    found = converted([move, f"cvt.rn.{target}.{form}x2 %r200, {source};"], content.view(np.uint8).ravel(), 1)
    for code, result in zip(content[:, 0].tolist(), found[:, 0].tolist(), strict=True):
        shift = 4 if form == "e2m1" else 8
        for place in (0, 1):
            half = result >> 16 * place & 0xFFFF
            if target == "f16x2":
                number = float(np.uint16(half).view(np.float16))
            else:
                number = float(np.uint32(half << 16).view(np.float32))
            assert Fraction(number) == value(form, code >> shift * place & (1 << bits) - 1)


def test_scales_are_powers_of_two() -> None:
    content = np.arange(1024, dtype=np.uint32) * 257 % 65536
    lines = ["cvt.u16.u32 %h1, %r100;", "cvt.rn.bf16x2.ue8m0x2 %r200, %h1;"]
    found = converted(lines, content.view(np.uint8), 1)[:, 0]
    for code, result in zip(content.reshape(128, 8)[:, 0].tolist(), found.tolist(), strict=True):
        for place in (0, 1):
            number = float(np.uint32((result >> 16 * place & 0xFFFF) << 16).view(np.float32))
            scale = code >> 8 * place & 0xFF
            assert np.isnan(number) if scale == 255 else Fraction(number) == Fraction(2) ** (scale - 127)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("add.f32.f16 %r200, %h1, %r101;", lambda a, c: a + c),
        ("sub.rn.f32.f16 %r200, %h1, %r101;", lambda a, c: a - c),
        ("fma.rn.f32.f16 %r200, %h1, %h1, %r101;", lambda a, c: a * a + c),
    ],
)
def test_a_short_operand_is_widened(line: str, expected: object) -> None:
    random = np.random.default_rng(3)
    shorts = random.standard_normal(128).astype(np.float16)
    longs = random.standard_normal(128).astype(np.float32)
    content = np.zeros((128, 8), dtype=np.uint32)
    content[:, 0], content[:, 1] = shorts.view(np.uint16), longs.view(np.uint32)
    found = converted(["cvt.u16.u32 %h1, %r100;", line], content.view(np.uint8).ravel(), 1)[:, 0].view(np.float32)
    assert callable(expected)
    for a, c, result in zip(shorts.tolist(), longs.tolist(), found.tolist(), strict=True):
        exact = expected(Fraction(a), Fraction(c))
        neighbours = (float(np.nextafter(np.float32(result), np.float32(side))) for side in (-np.inf, np.inf))
        assert all(abs(exact - Fraction(result)) <= abs(exact - Fraction(each)) for each in neighbours)


@pytest.mark.parametrize(
    "line",
    [
        "cvt.rn.e2m1x2.f32 %b1, %r100, %r101;",
        "cvt.rz.satfinite.e2m1x2.f32 %b1, %r100, %r101;",
        "cvt.rs.satfinite.e2m1x4.f32 %h1, {%r100, %r101, %r102, %r103}, %r104;",
        "cvt.rn.f16x2.ue8m0x2 %r200, %h1;",
        "cvt.rn.satfinite.ue8m0x2.f32 %h1, %r100, %r101;",
    ],
)
def test_other_modifiers_are_unknown(line: str) -> None:
    text = Text().read_in(100, 8).add(".reg .b8 %b<4>;", ".reg .b16 %h<12>;", line).write_out(100, 1)
    found = reading(text.whole())
    assert found.signature is None
    assert found.unknown is not None
    assert "line" in found.unknown
