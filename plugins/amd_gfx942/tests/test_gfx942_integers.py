"""Integer instructions on random and boundary words, against the ISA's definitions in Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gfx942_kernels import reading, run

WORDS = [0, 1, 2, 3, 5, 31, 32, 33, 63, 0x7F, 0x80, 0xFF, 0x8000, 0xFFFF, 0x10000, 0x00FFFFFF, 0x7FFFFFFF, 0x80000000,
         0x80000001, 0xDEADBEEF, 0x12345678, 0xFFFFFFFE, 0xFFFFFFFF]  # fmt: skip
FULL = 0xFFFFFFFF


def s(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def s24(x: int) -> int:
    x &= 0xFFFFFF
    return x - (1 << 24) if x >> 23 else x


def field(x: int, low: int, size: int, is_signed: bool = False) -> int:
    found = (s(x) if is_signed else x) >> (low & 31) & ((1 << (size & 31)) - 1)
    if is_signed and size & 31 and found >> ((size & 31) - 1):
        found -= 1 << (size & 31)
    return found


def perm(high: int, low: int, selector: int) -> int:
    pair, result = high << 32 | low, 0
    for place in range(4):
        choice = selector >> 8 * place & 255
        if choice < 8:
            byte = pair >> 8 * choice & 255
        elif choice < 12:
            byte = 255 * (pair >> (16 * (choice - 8) + 15) & 1)
        else:
            byte = 0 if choice == 12 else 255
        result |= byte << 8 * place
    return result


TWO: dict[str, Callable[[int, int], int]] = {
    "v_add_u32_e32": lambda a, b: a + b,
    "v_sub_u32_e32": lambda a, b: a - b,
    "v_subrev_u32_e32": lambda a, b: b - a,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s(a) * s(b) >> 32,
    "v_mul_u32_u24_e32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_i32_i24_e32": lambda a, b: s24(a) * s24(b),
    "v_mul_hi_u32_u24_e32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_hi_i32_i24_e32": lambda a, b: s24(a) * s24(b) >> 32,
    "v_and_b32_e32": lambda a, b: a & b,
    "v_or_b32_e32": lambda a, b: a | b,
    "v_xor_b32_e32": lambda a, b: a ^ b,
    "v_xnor_b32_e32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32_e32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32_e32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32_e32": lambda a, b: s(b) >> (a & 31),
    "v_min_u32_e32": min,
    "v_max_u32_e32": max,
    "v_min_i32_e32": lambda a, b: min(s(a), s(b)),
    "v_max_i32_e32": lambda a, b: max(s(a), s(b)),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_add_u16_e32": lambda a, b: (a + b) & 0xFFFF,
    "v_lshlrev_b16_e32": lambda a, b: b << (a & 15) & 0xFFFF,
    "v_lshrrev_b16_e32": lambda a, b: (b & 0xFFFF) >> (a & 15),
    "v_mul_lo_u16_e32": lambda a, b: a * b & 0xFFFF,
}

THREE: dict[str, Callable[[int, int, int], int]] = {
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & FULL) << (c & 31),
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_bfe_u32": field,
    "v_bfe_i32": lambda a, b, c: field(a, b, c, True),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32": perm,
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
    "v_mad_legacy_u16": lambda a, b, c: (a * b + c) & 0xFFFF,
    "v_max3_u32": max,
    "v_min3_i32": lambda a, b, c: min(s(a), s(b), s(c)),
    "v_med3_i32": lambda a, b, c: sorted((s(a), s(b), s(c)))[1],
}

ONE: dict[str, Callable[[int], int]] = {
    "v_not_b32_e32": lambda a: ~a,
    "v_bfrev_b32_e32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32_e32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbl_b32_e32": lambda a: (a & -a).bit_length() - 1,
    "v_mov_b32_e32": lambda a: a,
}


def combinations(seed: int) -> tuple[list[int], list[int], list[int]]:
    random = np.random.default_rng(seed)
    columns = [[int(each) for each in random.choice(WORDS, 256)] for _ in range(3)]
    return columns[0], columns[1], columns[2]


@pytest.mark.parametrize("name", TWO)
def test_two_sources(name: str) -> None:
    a, b, _ = combinations(len(name))
    expected = [TWO[name](x, y) & FULL for x, y in zip(a, b, strict=True)]
    assert run(f"{name} v5, v2, v3", a, b, threads=256).tolist() == expected


@pytest.mark.parametrize("name", THREE)
def test_three_sources(name: str) -> None:
    a, b, c = combinations(len(name))
    expected = [THREE[name](x, y, z) & FULL for x, y, z in zip(a, b, c, strict=True)]
    assert run(f"{name} v5, v2, v3, v4", a, b, c, threads=256).tolist() == expected


@pytest.mark.parametrize("name", ONE)
def test_one_source(name: str) -> None:
    assert run(f"{name} v5, v2", WORDS).tolist()[: len(WORDS)] == [ONE[name](x) & FULL for x in WORDS]


def test_inline_constants() -> None:
    """Inline constants: integers are sign-extended, floats have the pattern of the operand's format."""
    for text, pattern in {
        "-16": FULL - 15, "64": 64, "1.0": 0x3F800000, "-4.0": 0xC0800000, "0.5": 0x3F000000, "0.15915494": 0x3E22F983,
        "0x12345678": 0x12345678,
    }.items():  # fmt: skip
        assert run(f"v_mov_b32_e32 v5, {text}")[0] == pattern
    assert run("v_add_f16_e32 v5, 1.0, v2", [0])[0] == 0x3C00
    assert run("v_add_f16_e32 v5, 0.15915494, v2", [0])[0] == 0x3118


def test_fp64_literal_is_the_high_word() -> None:
    text = "v_mov_b32_e32 v6, 0\nv_mov_b32_e32 v7, 0\nv_add_f64 v[6:7], v[6:7], 0xc1f00000\nv_mov_b32_e32 v5, v{}"
    assert [run(text.format(each))[0] for each in (6, 7)] == [0, 0xC1F00000]


def test_16_bit_results_clear_or_keep_the_high_half() -> None:
    """Instructions introduced with gfx9 keep it; those on LLVM's list clear it."""
    a, b, c = [0x3C00_3C00], [0x4000_4000], [0x3C00_3C00]
    for name, count, kept in [
        ("v_fma_f16", 3, True), ("v_mad_u16", 3, True), ("v_mad_legacy_u16", 3, False), ("v_max3_f16", 3, True),
        ("v_med3_i16", 3, True), ("v_add_i16", 2, True), ("v_add_u16", 2, False), ("v_mul_f16_e32", 2, False),
        ("v_max_f16_e32", 2, False),
    ]:  # fmt: skip
        sources = ", ".join(("v2", "v3", "v4")[:count])
        found = run(f"v_mov_b32_e32 v5, 0xdead0000\n{name} v5, {sources}", a, b, c)[0]
        assert found >> 16 == (0xDEAD if kept else 0), name


def test_saturating_difference_is_distinguished() -> None:
    for verb in ("v_sub_u32_e64", "v_add_u32_e64", "v_sub_u16_e64"):
        plain, saturating = (reading(f"{verb} v5, v2, v3{each}").signature for each in ("", " clamp"))
        assert plain is not None
        assert saturating is not None
        assert plain != saturating, verb


def test_clamp_saturates_a_difference() -> None:
    assert (
        run("v_sub_u16_sdwa v5, v2, v3 clamp dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD",
            [0x103, 0x209], [4, 4])[:2].tolist() == [0, 5]
    )  # fmt: skip
    assert run("v_sub_u32_e64 v5, v2, v3 clamp", [3, 5, FULL], [4, 4, 1])[:3].tolist() == [0, 1, FULL - 1]


def test_64_bit_sums_in_two_halves() -> None:
    """v_add_co and v_addc_co carry within a lane; v_sub_co and v_subb_co borrow."""
    a, b, c = combinations(3)
    up = """v_add_co_u32_e32 v6, vcc, v2, v3
v_addc_co_u32_e32 v5, vcc, v4, v4, vcc"""
    expected = [(2 * z + (x + y >> 32)) & FULL for x, y, z in zip(a, b, c, strict=True)]
    assert run(up, a, b, c, threads=256).tolist() == expected
    down = """v_sub_co_u32_e64 v6, s[20:21], v2, v3
v_subb_co_u32_e64 v5, s[20:21], v4, v2, s[20:21]"""
    expected = [(z - x - (x < y)) & FULL for x, y, z in zip(a, b, c, strict=True)]
    assert run(down, a, b, c, threads=256).tolist() == expected
    product = """v_mad_u64_u32 v[6:7], s[20:21], v2, v3, v[4:5]
v_mov_b32_e32 v5, v7"""
    setup = "v_mov_b32_e32 v5, v2\n"
    expected = [(x * y + (x << 32 | z)) >> 32 & FULL for x, y, z in zip(a, b, c, strict=True)]
    assert run(setup + product, a, b, c, threads=256).tolist() == expected


SCALAR = {
    "s_add_u32": (lambda a, b: a + b, lambda a, b: a + b > FULL),
    "s_sub_u32": (lambda a, b: a - b, lambda a, b: b > a),
    "s_add_i32": (lambda a, b: a + b, lambda a, b: not -(1 << 31) <= s(a) + s(b) < 1 << 31),
    "s_sub_i32": (lambda a, b: a - b, lambda a, b: not -(1 << 31) <= s(a) - s(b) < 1 << 31),
    "s_and_b32": (lambda a, b: a & b, lambda a, b: a & b != 0),
    "s_andn2_b32": (lambda a, b: a & ~b, lambda a, b: a & ~b & FULL != 0),
    "s_lshl_b32": (lambda a, b: a << (b & 31), lambda a, b: a << (b & 31) & FULL != 0),
    "s_ashr_i32": (lambda a, b: s(a) >> (b & 31), lambda a, b: s(a) >> (b & 31) != 0),
    "s_min_i32": (lambda a, b: min(s(a), s(b)), lambda a, b: s(a) < s(b)),
    "s_max_u32": (max, lambda a, b: a > b),
    "s_bfe_u32": (lambda a, b: a >> (b & 31) & ((1 << min(b >> 16 & 127, 32)) - 1),
                  lambda a, b: a >> (b & 31) & ((1 << min(b >> 16 & 127, 32)) - 1) != 0),
    "s_lshl2_add_u32": (lambda a, b: (a << 2) + b, lambda a, b: (a << 2) + b > FULL),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALAR)
def test_scalar_results_and_condition(name: str) -> None:
    """The result and the scalar condition code."""
    value, condition = SCALAR[name]
    for a, b in [(0, 0), (1, FULL), (0x80000000, 0x80000000), (0x7FFFFFFF, 1), (5, 3), (3, 5), (0x80000000, 1),
                 (0xDEADBEEF, 0x00080004), (FULL, 31)]:  # fmt: skip
        body = f"""s_mov_b32 s20, {a:#x}
s_mov_b32 s21, {b:#x}
{name} s22, s20, s21
{{0}}"""
        result = run(body.format("v_mov_b32_e32 v5, s22"))[0]
        if a == b and name.startswith(("s_min", "s_max")):
            assert int(result) == value(a, b) & FULL
            continue
        code = run(body.format("s_cselect_b32 s23, 1, 0\nv_mov_b32_e32 v5, s23"))[0]
        assert (int(result), bool(code)) == (value(a, b) & FULL, condition(a, b)), (a, b)


def test_integer_division_by_reciprocal() -> None:
    """LLVM's sequence gives the exact quotient for every float within the error of the reciprocal."""
    pairs = [(n, d) for d in (1, 2, 3, 5, 7, 10, 60, 255, 641, 65535, 0x10001, 0x7FFFFFFF, 0x80000001, FULL)
             for n in (0, 1, d - 1, d, d + 1, 1000003, 0x7FFFFFFF, FULL - 1, FULL)]  # fmt: skip
    body = """s_mov_b32 s20, {1:#x}
v_cvt_f32_u32_e32 v6, s20
s_sub_i32 s21, 0, s20
v_rcp_iflag_f32_e32 v6, v6
v_mul_f32_e32 v6, 0x4f7ffffe, v6
v_cvt_u32_f32_e32 v6, v6
v_readfirstlane_b32 s22, v6
s_mul_i32 s21, s21, s22
s_mul_hi_u32 s21, s22, s21
s_add_i32 s22, s22, s21
s_mov_b32 s23, {0:#x}
s_mul_hi_u32 s21, s23, s22
s_mul_i32 s22, s21, s20
s_sub_i32 s22, s23, s22
s_add_i32 s24, s21, 1
s_sub_i32 s25, s22, s20
s_cmp_ge_u32 s22, s20
s_cselect_b32 s21, s24, s21
s_cselect_b32 s22, s25, s22
s_add_i32 s24, s21, 1
s_cmp_ge_u32 s22, s20
s_cselect_b32 s21, s24, s21
v_mov_b32_e32 v5, s21"""
    for n, d in pairs:
        n &= FULL
        assert run(body.format(n, d))[0] == n // d, (n, d)


def test_16_bit_division_by_reciprocal() -> None:
    """LLVM's 16-bit sequence applies operand modifiers to possible values: -q and |r|."""
    body = """v_cvt_f32_u32_e32 v6, v2
v_cvt_f32_u32_e32 v7, v3
v_rcp_iflag_f32_e32 v8, v7
v_mul_f32_e32 v8, v6, v8
v_trunc_f32_e32 v8, v8
v_cvt_u32_f32_e32 v9, v8
v_fma_f32 v6, -v8, v7, v6
v_cmp_ge_f32_e64 vcc, |v6|, v7
v_addc_co_u32_e32 v5, vcc, 0, v9, vcc"""
    left, right = [65535, 1000, 7, 0, 65534, 30000, 255], [1, 3, 7, 9, 65535, 7, 16]
    assert run(body, left, right)[:7].tolist() == [a // b for a, b in zip(left, right, strict=True)]


def test_condition_code_of_min_max_with_equal_operands_is_undefined() -> None:
    body = "s_mov_b32 s20, 7\ns_max_i32 s22, s20, 7\ns_cselect_b32 s23, 1, 0\nv_mov_b32_e32 v5, s23"
    assert (reading(body).unknown or "").startswith("a stored value depends on a register or on memory that nothing wr")
