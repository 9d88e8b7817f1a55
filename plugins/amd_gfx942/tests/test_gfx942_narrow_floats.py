"""8-bit formats, output modifiers, and the mode bit that clamps fp16 overflow."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from gfx942_kernels import reading, run

FNUZ = {"fp8": (3, 8), "bf8": (2, 16)}
CLAMPS = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"
NAN = 0x7FC00000


def value_of(kind: str, byte: int) -> Fraction | None:
    """The value of a byte, from the format's definition; None for NaN."""
    mantissa, bias = FNUZ[kind]
    if byte == 0x80:
        return None
    exponent, rest = (byte & 0x7F) >> mantissa, byte & ((1 << mantissa) - 1)
    size = Fraction(rest + (1 << mantissa if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - bias - mantissa)
    return -size if byte & 0x80 else size


NUMBERS = {kind: sorted((value_of(kind, byte), byte) for byte in range(128)) for kind in FNUZ}  # type: ignore[type-var]


@cache
def narrowed(kind: str, word: int, clamps: bool) -> int:
    """The byte nearest to an fp32 pattern, ties to even, by search over all bytes.

    A number at least half a step above the greatest overflows.
    """
    size = np.array([word & 0x7FFFFFFF], dtype=np.uint32).view(np.float32)[0]
    if not np.isfinite(size):
        return 0x80
    number = Fraction(float(size))
    (largest, top), (below, _) = NUMBERS[kind][-1], NUMBERS[kind][-2]
    assert largest is not None
    assert below is not None
    if number >= largest + (largest - below) / 2:
        byte = top if clamps else 0x80
    else:
        byte = min(NUMBERS[kind], key=lambda each: (abs((each[0] or 0) - number), each[1] & 1))[1]
    return byte | (0x80 if word >> 31 and byte else 0)


def near(kind: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """fp32 patterns at, between and next to the numbers of the format, infinities and NaNs."""
    found = [float(value or 0) for value, _ in NUMBERS[kind]]
    middles = [(a + b) / 2 for a, b in pairwise(found)]
    largest = found[-1]
    numbers = np.array([*found, *middles, largest * 1.03, largest * 1.06, largest * 1.07, 1e30], dtype=np.float32)
    words = numbers.view(np.uint32)
    words = np.concatenate([words, words + np.uint32(1), words - np.uint32(1), np.array([0x7F800000, NAN, 1])])
    return np.concatenate([words, words | np.uint32(1 << 31)]).astype(np.uint32)


@pytest.mark.parametrize("kind", FNUZ)
@pytest.mark.parametrize("clamps", [False, True])
def test_conversion_to_fp8(kind: str, clamps: bool) -> None:
    words = np.resize(near(kind), 1024)
    body = f"v_mov_b32_e32 v5, v4\nv_cvt_pk_{kind}_f32 v5, v2, -v3 op_sel:[0,0,1]"
    found = run((CLAMPS if clamps else "") + body, words, np.roll(words, 5), [0x11112222], threads=1024)
    assert (found & np.uint32(0xFFFF) == 0x2222).all()
    for word, second, result in zip(words, np.roll(words, 5), found >> np.uint32(16), strict=True):
        assert int(result) & 255 == narrowed(kind, int(word), clamps)
        assert int(result) >> 8 == narrowed(kind, int(second) ^ 1 << 31, clamps)


@pytest.mark.parametrize("kind", FNUZ)
def test_conversion_from_fp8(kind: str) -> None:
    words = np.arange(256, dtype=np.uint32) * np.uint32(0x01010101) ^ np.uint32(0x00FF5533)
    for selector, shift in (("BYTE_0", 0), ("BYTE_1", 8), ("BYTE_3", 24)):
        found = run(f"v_cvt_f32_{kind}_sdwa v5, v2 src0_sel:{selector}", words, threads=256)
        assert_widened(kind, words >> np.uint32(shift), found)
    low = run(f"v_cvt_pk_f32_{kind}_e32 v[4:5], v2\nv_mov_b32_e32 v5, v4", words, threads=256)
    high = run(f"v_cvt_pk_f32_{kind}_sdwa v[4:5], v2 src0_sel:WORD_1", words, threads=256)
    assert_widened(kind, words, low)
    assert_widened(kind, words >> np.uint32(24), high)


def assert_widened(kind: str, words: np.ndarray, found: np.ndarray) -> None:  # type: ignore[type-arg]
    for word, result in zip(words, found.view(np.float32), strict=True):
        expected = value_of(kind, int(word) & 255)
        assert np.isnan(result) if expected is None else Fraction(float(result)) == expected


def test_fp8_signature_depends_on_the_clamping_bit() -> None:
    """The signature depends on the clamping bit, and on which operand is in which byte."""
    body = "v_mov_b32_e32 v5, 0\nv_cvt_pk_fp8_f32 v5, {}"
    readings = [reading(before + body.format(each)) for before in ("", CLAMPS) for each in ("v2, v3", "v3, v2")]
    assert len({each.signature for each in readings} - {None}) == 4
    late = reading(f"s_cmp_eq_u32 s0, 5\ns_cbranch_scc1 .Lskip\n{CLAMPS}.Lskip:\nv_cvt_pk_fp8_f32 v5, v2, v3")
    assert late.signature is None
    assert "it is unknown whether overflow is clamped" in (late.unknown or "")


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_stochastic_rounding_has_its_random_bits_as_operand(name: str) -> None:
    first = reading(f"v_mov_b32_e32 v5, 0\nv_cvt_sr_{name}_f32 v5, v2, v3 op_sel:[0,0,1,0]")
    other = reading(f"v_mov_b32_e32 v5, 0\nv_cvt_sr_{name}_f32 v5, v2, v4 op_sel:[0,0,1,0]")
    elsewhere = reading(f"v_mov_b32_e32 v5, 0\nv_cvt_sr_{name}_f32 v5, v2, v3 op_sel:[0,0,0,1]")
    assert len({first.signature, other.signature, elsewhere.signature, None}) == 4


def test_clamp_modifier() -> None:
    words = near("bf8")
    a = np.resize(np.concatenate([words, np.array([0x3F000000, 0x3F800000, 0x3F800001, 0xFF800000], np.uint32)]), 1024)
    number = a.view(np.float32)
    with np.errstate(all="ignore"):
        for body, result in (
            ("v_max_f32_e64 v5, v2, v2 clamp", number),
            ("v_add_f32_e64 v5, v2, v3 clamp", number + np.float32(0.25)),
            ("v_fma_f32 v5, v2, v3, v3 clamp", number * np.float32(0.25) + np.float32(0.25)),
            ("v_pk_add_f32 v[4:5], v[2:3], v[2:3] op_sel:[0,1] op_sel_hi:[0,1] clamp", number + np.float32(0.25)),
        ):
            found = run(body, a, [0x3E800000], threads=1024)
            expected = np.where(result > 0, np.minimum(result, np.float32(1)), np.float32(0))
            assert (found == expected.view(np.uint32)).all()
    plain, clamped = (reading(f"v_add_f32_e64 v5, v2, v3{each}") for each in ("", " clamp"))
    assert plain.signature is not None
    assert clamped.signature not in (None, plain.signature)


def test_packed_integer_saturation() -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(0, 1 << 32, 256, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    for verb, sign in (("add", 1), ("sub", -1)):
        found = run(f"v_pk_{verb}_u16 v5, v2, v3 clamp", a, b, threads=256).view(np.uint16).astype(np.int64)
        wide = a.view(np.uint16).astype(np.int64) + sign * b.view(np.uint16).astype(np.int64)
        assert (found == np.clip(wide, 0, 65535)).all()
    rejected = reading("v_pk_sub_i16 v5, v2, v3 clamp")
    assert "saturates signed numbers" in (rejected.unknown or "")


def test_fp16_overflow_clamping() -> None:
    """With the bit set an overflow gives the greatest number; infinite operands still give infinities."""
    halves = np.array([0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x3C00, 0x7E00, 0x7800, 0x0001], dtype=np.uint32)
    a, b = (each.ravel() for each in np.meshgrid(halves, halves))
    with np.errstate(all="ignore"):
        x, y = (each.astype(np.uint16).view(np.float16) for each in (a, b))
        plain = (x + y).view(np.uint16)
        from_infinity = np.isinf(x) | np.isinf(y)
        bounded = np.where(np.isinf(x + y) & ~from_infinity, np.sign(x) * np.float16(65504), x + y).astype(np.float16)
    found = run("v_add_f16_e32 v5, v2, v3", a, b)
    clamped = run(f"{CLAMPS}v_add_f16_e32 v5, v2, v3", a, b)
    for result, expected in ((found, plain.view(np.float16)), (clamped, bounded)):
        number = result.astype(np.uint16).view(np.float16)
        same = result == expected.view(np.uint16)
        assert (same | (np.isnan(number) & np.isnan(expected))).all()
    assert (found != clamped).sum() == 5
    wide = np.array([0x477FE000, 0x47800000, 0xC7800000, 0x7F800000, 0xFF800000, 0x7F7FFFFF], dtype=np.uint32)
    narrow = run(f"{CLAMPS}v_cvt_f16_f32_e32 v5, v2", wide)
    assert list(narrow[:6]) == [0x7BFF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7BFF]
    readings = {reading(f"{each}v_mul_f16_e32 v5, v2, v3").signature for each in ("", CLAMPS)}
    assert len(readings - {None}) == 2


def test_output_multipliers_are_part_of_the_operation() -> None:
    found = {reading(f"v_mul_f32_e64 v5, v2, v3{each}").signature for each in ("", " mul:2", " mul:4", " div:2")}
    assert len(found - {None}) == 4
    assert "mul:3" in (reading("v_mul_f32_e64 v5, v2, v3 mul:3").unknown or "")
    assert "modifier mul" in (reading("v_rcp_f32_e64 v5, v2 mul:2").unknown or "")


def test_loads_to_one_register_complete_in_order() -> None:
    """The destination of a pending load may be written by a later load, but not by an ALU instruction."""
    loads = "global_load_dword v5, v1, s[10:11]\nglobal_load_dword v5, v1, s[12:13]"
    assert reading(loads).signature == reading("v_mov_b32_e32 v5, v3").signature is not None
    early = reading("global_load_dword v5, v1, s[10:11]\nv_mov_b32_e32 v5, v3")
    assert "before the memory access to it has completed" in (early.unknown or "")
    address = reading("global_load_dword v1, v1, s[10:11]\nglobal_load_dword v1, v1, s[10:11]\nv_mov_b32_e32 v5, v3")
    assert "before the memory access to it has completed" in (address.unknown or "")
