"""Inactive lanes, and accesses that compilers put out of bounds, do not affect the signature of the active lanes."""

from __future__ import annotations

import pytest

from gfx942_kernels import reading, run

ROUNDED = """v_bfe_u32 v6, v2, 16, 1
s_movk_i32 s20, 0x7fff
v_add3_u32 v6, v2, v6, s20
v_cmp_o_f32_e64 s[22:23], v2, v2
v_lshrrev_b32_e32 v6, 16, v6
v_cndmask_b32_e64 v5, v7, v6, s[22:23]"""
STALE = "v_mov_b32_e32 v7, 0x7fff\nv_add_f32_e32 v6, v3, v4\nv_mov_b32_e32 v5, v6\n"
SOME = "v_cmp_gt_u32_e32 vcc, 20, v0\n"
EVERYWHERE = STALE + SOME + ROUNDED + "\nv_add_f32_e32 v6, v3, v4\nv_cndmask_b32_e32 v5, v6, v5, vcc"
IN_SOME = STALE + SOME + "s_and_saveexec_b64 s[24:25], vcc\n" + ROUNDED + "\ns_or_b64 exec, exec, s[24:25]"


def test_bf16_rounding_in_some_lanes() -> None:
    assert reading(IN_SOME).signature == reading(EVERYWHERE).signature is not None
    words = [0x3F808001, 0x7F800001]
    assert run(IN_SOME, words).tolist() == run(EVERYWHERE, words).tolist() == [0x3F81, 0x7FFF] * 10 + [0] * 44


@pytest.mark.parametrize("lanes", [10, 0])
def test_comparison_in_fewer_lanes_is_false_in_the_others(lanes: int) -> None:
    """Lanes in which the comparison was inactive have a clear bit in its mask: they get the NaN."""
    compared = "v_cmp_o_f32_e64 s[22:23], v2, v2"
    fewer = f"v_cmp_gt_u32_e64 s[26:27], {lanes}, v0\ns_and_saveexec_b64 s[28:29], s[26:27]\n{compared}\n"
    changed = IN_SOME.replace(compared, fewer + "s_or_b64 exec, exec, s[28:29]")
    assert reading(changed).unknown is None
    assert reading(changed).signature != reading(IN_SOME).signature
    left = run(changed, [0x3F808001])
    assert left.tolist() == [0x3F81] * lanes + [0x7FFF] * (20 - lanes) + [0] * 44


def test_packed_halves_are_stored_next_to_lanes_with_fp32() -> None:
    body = """v_add_f32_e32 v6, v2, v3
v_add_f32_e32 v7, v2, v4
{}v_cmp_gt_u32_e32 vcc, 16, v0
s_and_saveexec_b64 s[24:25], vcc
v_cvt_f16_f32_e32 v8, v2
v_cvt_f16_f32_e32 v9, v3
v_pack_b32_f16 v6, v8, v9
v_pack_b32_f16 v7, v9, v8
v_lshlrev_b32_e32 v10, 3, v0
global_store_dwordx2 v10, v[6:7], s[8:9]
s_or_b64 exec, exec, s[24:25]
v_cmp_lt_u32_e32 vcc, 31, v0
s_and_b64 exec, exec, vcc
v_mov_b32_e32 v5, 1"""
    nothing = "v_mov_b32_e32 v6, 0\nv_mov_b32_e32 v7, 0\n"
    assert reading(body.format("")).signature == reading(body.format(nothing)).signature is not None


ATOMIC = """s_mov_b32 s20, s8
s_and_b32 s21, s9, 0xffff
s_mov_b32 s22, 0x7ffffffe
s_mov_b32 s23, 0x27000
v_mov_b32_e32 v6, 1
v_and_b32_e32 v7, 0xfc, v2
v_cmp_gt_u32_e32 vcc, 20, v0
{}
buffer_atomic_add v6, v7, s[20:23], 0 offen
s_endpgm"""
MASKED = ATOMIC.format("s_and_b64 exec, exec, vcc")


def test_atomics_out_of_bounds_contribute_nothing() -> None:
    outside = ATOMIC.format("v_bfrev_b32_e32 v8, 1\nv_cndmask_b32_e32 v7, v8, v7, vcc")
    assert reading(outside).signature == reading(MASKED).signature is not None
    assert run(outside, [4]).tolist() == run(MASKED, [4]).tolist() == [0, 20] + [0] * 62


def test_atomics_at_known_addresses_in_bounds_contribute() -> None:
    inside = ATOMIC.format("v_mov_b32_e32 v8, 0\nv_cndmask_b32_e32 v7, v8, v7, vcc")
    assert reading(inside).signature != reading(MASKED).signature
    assert run(inside, [4]).tolist() == [44, 20] + [0] * 62


PRODUCT = """v_xor_b32_e32 v10, 32, v0
v_lshlrev_b32_e32 v10, 2, v10
v_mov_b32_e32 v6, v2
v_mov_b32_e32 v7, v3
v_mov_b32_e32 v8, v4
v_mov_b32_e32 v9, v2
{}v_mfma_{} v[12:27], v[6:7], v[8:9], 0
v_mov_b32_e32 v5, v13"""
INTEGERS, HALVES = "i32_32x32x16_i8", "f32_32x32x8_f16"


def exchanged(first: int, last: int) -> str:
    """Exchange the k slices of two lanes."""
    moves = [f"ds_bpermute_b32 v{each}, v10, v{each}\n" for each in range(first, last + 1)]
    return "".join(moves) + "s_waitcnt lgkmcnt(0)\n"


def test_integer_matrix_products_are_independent_of_k_order() -> None:
    plain = PRODUCT.format("", INTEGERS)
    both, one = (PRODUCT.format(exchanged(6, last), INTEGERS) for last in (9, 7))
    a, b, c = ([(each * factor) % (1 << 32) for each in range(64)] for factor in (0x01F37A9D, 0x9A1B2C3D, 0x7F80FF13))
    assert run(plain, a, b, c).tolist() == run(both, a, b, c).tolist() != run(one, a, b, c).tolist()
    assert reading(plain).signature == reading(both).signature != reading(one).signature
    halves = [reading(PRODUCT.format(each, HALVES)).signature for each in ("", exchanged(6, 9))]
    assert None not in halves
    assert halves[0] != halves[1]


WAVES = """v_readfirstlane_b32 s20, v0
s_cmp_eq_u32 s20, 0
s_cbranch_scc1 .LFIRST
s_mov_b32 s21, {}
s_branch .LBOTH
.LFIRST:
s_mov_b32 s21, {}
.LBOTH:
v_perm_b32 v5, v2, v3, s21"""


def test_scalar_written_by_each_wave_is_known() -> None:
    plain = "s_mov_b32 s21, 0x5040100\nv_perm_b32 v5, v2, v3, s21"
    alike, unlike = WAVES.format("0x5040100", "0x5040100"), WAVES.format("0x7060302", "0x5040100")
    assert reading(alike, threads=128).signature == reading(plain, threads=128).signature is not None
    assert reading(unlike, threads=128).signature != reading(plain, threads=128).signature is not None
    left = run(unlike, [0x11112222], [0x33334444], threads=128)
    assert left.tolist() == [0x22224444] * 64 + [0x11113333] * 64
