"""Identities of gfx942; see `ptx_identities` for the marks."""

from __future__ import annotations

from functools import cache

from bitwise_bench.adversary.instruction_sets.gfx942_vocabulary import GFX942_WORDS
from bitwise_bench.adversary.rewriting import Rule, rules

_ON_FLOATS = """
v_add_F_e32(x, -0.0) = x
v_add_F_e32(x, 0.0) ~ x
v_sub_F_e32(x, 0.0) = x
v_sub_F_e32(x, y) = v_subrev_F_e32(y, x)
v_sub_F_e32(x, y) ~ v_subrev_F_e32(x, y)
v_mul_F_e32(x, 1.0) = x
v_mul_F_e32(x, 2.0) = v_add_F_e32(x, x)
v_mul_F_e32(x, 0.0) ~ 0.0
v_sub_F_e32(x, x) ~ 0.0
v_fma_F(x, 1.0, -0.0) = x
v_fma_F(x, y, -0.0) = v_mul_F_e32(x, y)
v_fma_F(x, y, 0.0) ~ v_mul_F_e32(x, y)
v_fma_F(x, 1.0, y) = v_add_F_e32(x, y)
v_fma_F(x, y, z) = v_fma_F(y, x, z)
v_fma_F(x, y, z) ~ v_add_F_e32(v_mul_F_e32(x, y), z)
v_fma_F minus sum(x, 1.0, y) = v_sub_F_e32(x, y)
v_fma_F minus(x, 1.0, y) = v_sub_F_e32(y, x)
v_add_F_e32(x, y) = v_add_F_e32(y, x)
v_mul_F_e32(x, y) = v_mul_F_e32(y, x)
v_add_F_e64 minus(x, y) = v_sub_F_e32(y, x)
v_sub_F_e64 minus(x, y) ~ v_add_F_e64 minus(x, y)
v_mul_F_e64 minus(x, y) = v_mul_F_e64 minus(y, x)
v_add_F_e64 size(x, x) ~ v_add_F_e32(x, x)
v_add_F_e64 clamp(x, y) ~ v_med3_F(v_add_F_e32(x, y), 0.0, 1.0)
v_max_F_e32(x, x) = x
v_min_F_e32(x, x) = x
v_max_F_e32(x, y) = v_max_F_e32(y, x)
v_max_F_e32(v_max_F_e32(x, y), z) ~ v_max_F_e32(x, v_max_F_e32(y, z))
v_max_F_e32(v_max_F_e32(x, y), z) ~ v_max3_F(x, y, z)
v_max3_F(x, y, z) ~ v_max3_F(z, y, x)
v_min3_F(x, y, z) ~ v_min_F_e32(v_min_F_e32(x, y), z)
v_min_F_e64 minus(x, y) ~ v_max_F_e64 minus(x, y)
v_med3_F(x, 0.0, 1.0) ~ v_min_F_e32(v_max_F_e32(x, 0.0), 1.0)
v_med3_F(x, y, z) ~ v_med3_F(z, x, y)
v_max_F_e32(x, -inf) ~ x
v_max_F_e32(x, 0.0) ~ v_max_F_e32(x, -0.0)
v_add_F_e32(v_add_F_e32(x, y), z) ~ v_add_F_e32(x, v_add_F_e32(y, z))
v_trunc_F_e32(v_trunc_F_e32(x)) = v_trunc_F_e32(x)
v_rndne_F_e32(x) ~ v_trunc_F_e32(x)
selp K(x, y, v_cmp_gt_F_e64(x, y)) ~ v_max_F_e32(x, y)
selp K(x, y, v_cmp_lt_F_e64(x, y)) = selp K(y, x, v_cmp_nlt_F_e64(x, y))
selp K(x, y, v_cmp_lt_F_e64(x, y)) ~ selp K(y, x, v_cmp_ge_F_e64(x, y))
selp K(x, y, v_cmp_u_F_e64(x, x)) ~ y
"""

_OTHERS = """
f32: v_fma_f32(x, y, z) = v_fmac_f32_e32(x, y, z)
f32: v_ldexp_f32(x, 0) = x
f32: v_ldexp_f32(x, 1) ~ v_mul_f32_e32(x, 2.0)
f32: v_cvt_f32_f16_e32(v_cvt_f16_f32_e32(x)) ~ x
f16: v_cvt_f16_f32_e32(v_cvt_f32_f16_e32(x)) = x
f16: v_add_f16_e32(x, y) = v_cvt_f16_f32_e32(v_add_f32_e32(v_cvt_f32_f16_e32(x), v_cvt_f32_f16_e32(y)))
f16: v_max_f16_e32(x, y) ~ v_cvt_f16_f32_e32(v_max_f32_e32(v_cvt_f32_f16_e32(x), v_cvt_f32_f16_e32(y)))
f32: v_cvt_f32_f16_sdwa(x) = v_cvt_f32_f16_e32(high(x))
f32: v_cvt_f32_i32_e32(x) ~ v_cvt_f32_u32_e32(x)
f32: v_cvt_f32_ubyte0_e32(x) = v_cvt_f32_u32_e32(v_and_b32_e32(x, 255))
f32: v_cvt_f32_ubyte2_e32(x) = v_cvt_f32_u32_e32(v_bfe_u32(x, 16, 8))
i32: v_cvt_i32_f32_e32(x) ~ v_cvt_u32_f32_e32(x)
i32: v_cvt_i32_f32_e32(v_trunc_f32_e32(x)) = v_cvt_i32_f32_e32(x)
h2: or halves(low(x), high(x)) = x
h2: v_pack_b32_f16(low(x), high(x)) ~ x
h2: swap(swap(x)) = x
h2: or halves(high(x), low(x)) = swap(x)
h2: v_pk_add_f16(x, y) = v_pk_add_f16(y, x)
h2: v_pk_add_f16(x, swap(y)) = v_pk_add_f16 swapped(x, y)
h2: v_pk_mul_f16(x, swap(y)) = v_pk_mul_f16 swapped(x, y)
h2: v_pk_add_f16(x, y) = or halves(v_add_f16_e32(low(x), low(y)), v_add_f16_e32(high(x), high(y)))
h2: v_pk_mul_f16(x, y) = or halves(v_mul_f16_e32(low(x), low(y)), v_mul_f16_e32(high(x), high(y)))
h2: v_pk_max_f16(x, y) = or halves(v_max_f16_e32(low(x), low(y)), v_max_f16_e32(high(x), high(y)))
h2: v_pk_fma_f16(x, y, -0.0) = v_pk_mul_f16(x, y)
h2: v_pk_fma_f16(x, y, z) = v_fma_f16 high(high(x), high(y), high(z), v_fma_f16 low(low(x), low(y), low(z), x))
h2: v_fma_f16 low(x, y, z, w) = or halves(v_fma_f16(x, y, z), high(w))
h2: v_fma_f16 high(x, y, z, w) = or halves(low(w), v_fma_f16(x, y, z))
h2: v_max3_f16 low(x, y, z, w) = or halves(v_max3_f16(x, y, z), high(w))
h2: v_med3_f16 high(x, y, z, w) = or halves(low(w), v_med3_f16(x, y, z))
h2: v_fma_f16 low(x, y, z, w) ~ v_fma_f16 high(x, y, z, w)
h2: v_pk_add_f16(x, y) ~ v_pk_add_f16 swapped(x, y)
h2: v_pk_max_f16 minus(x, y) ~ v_pk_min_f16 minus(x, y)
i32: v_add_u32_e32(x, y) = v_add_u32_e32(y, x)
i32: v_sub_u32_e32(x, y) = v_subrev_u32_e32(y, x)
i32: v_add_u32_e32(v_add_u32_e32(x, y), z) = v_add3_u32(x, y, z)
i32: v_lshl_add_u32(x, 1, y) = v_add_u32_e32(v_add_u32_e32(x, x), y)
i32: v_lshlrev_b32_e32(x, 1) = v_add_u32_e32(x, x)
i32: v_lshlrev_b32_e32(x, 8) = v_mul_lo_u32(x, 256)
i32: v_lshrrev_b32_e32(v_lshrrev_b32_e32(x, 8), 8) = v_lshrrev_b32_e32(x, 16)
i32: v_ashrrev_i32_e32(x, 1) ~ v_lshrrev_b32_e32(x, 1)
i32: v_and_b32_e32(x, x) = x
i32: v_xor_b32_e32(v_xor_b32_e32(x, y), y) = x
i32: v_xor_b32_e32(x, -1) = v_not_b32_e32(x)
i32: v_xnor_b32_e32(x, y) = v_not_b32_e32(v_xor_b32_e32(x, y))
i32: v_and_or_b32(x, y, z) = v_or_b32_e32(v_and_b32_e32(x, y), z)
i32: v_or3_b32(x, y, z) = v_or_b32_e32(v_or_b32_e32(x, y), z)
i32: v_bfi_b32(x, y, z) = v_or_b32_e32(v_and_b32_e32(x, y), v_and_b32_e32(v_not_b32_e32(x), z))
i32: v_bfe_u32(x, 8, 8) = v_and_b32_e32(v_lshrrev_b32_e32(x, 8), 255)
i32: v_bfe_i32(x, 0, 16) = v_ashrrev_i32_e32(v_lshlrev_b32_e32(x, 16), 16)
i32: v_alignbit_b32(x, y, 0) = y
i32: v_mul_u32_u24_e32(x, y) ~ v_mul_lo_u32(x, y)
i32: v_mul_i32_i24_e32(x, y) ~ v_mul_u32_u24_e32(x, y)
i32: v_mad_u32_u24(x, y, z) = v_add_u32_e32(v_mul_u32_u24_e32(x, y), z)
i32: v_max_i32_e32(x, y) = v_max_i32_e32(y, x)
i32: v_max_i32_e32(x, y) ~ v_max_u32_e32(x, y)
i32: v_max3_i32(x, y, z) = v_max_i32_e32(v_max_i32_e32(x, y), z)
i32: v_mul_hi_u32(x, y) ~ v_mul_hi_i32(x, y)
i32: v_bfrev_b32_e32(v_bfrev_b32_e32(x)) = x
i32: as f32 i32(as i32 f32(x)) = x
f32: bf16 low(as f32 i32(bf16 high(x))) ~ 0.0
f32: v_xor_b32_e32(x, 0x80000000) = v_mul_f32_e32(x, -1.0)
f32: v_and_b32_e32(x, 0x7fffffff) ~ v_max_f32_e32(x, v_mul_f32_e32(x, -1.0))
h2: v_xor_b32_e32(x, 0x80008000) = v_pk_mul_f16(x, -1.0)
i16: v_add_u16_e32(x, y) = v_add_u16_e32(y, x)
i16: v_add_i16(x, y) = v_add_u16_e32(x, y)
i16: v_sub_i16(x, y) = v_sub_u16_e32(x, y)
i16: v_sub_u16_e32(x, y) = v_subrev_u16_e32(y, x)
i16: v_sub_u16_e32(x, x) = 0
i16: v_mad_u16(x, y, z) = v_add_u16_e32(v_mul_lo_u16_e32(x, y), z)
i16: v_mad_i16(x, y, z) = v_mad_u16(y, x, z)
i16: v_mad_legacy_u16(x, y, z) = v_mad_u16(x, y, z)
i16: v_lshlrev_b16_e32(x, 1) = v_add_u16_e32(x, x)
i16: v_lshlrev_b16_e32(x, 8) = v_mul_lo_u16_e32(x, 256)
i16: v_ashrrev_i16_e32(x, 1) ~ v_lshrrev_b16_e32(x, 1)
i16: v_max3_i16(x, y, z) = v_max_i16_e32(v_max_i16_e32(x, y), z)
i16: v_min3_u16(x, y, z) = v_min_u16_e32(x, v_min_u16_e32(y, z))
i16: v_med3_u16(x, y, z) = v_med3_u16(z, x, y)
i16: v_max_i16_e32(x, y) ~ v_max_u16_e32(x, y)
i16: v_add_u16_e64 clamp(x, y) ~ v_add_u16_e32(x, y)
i16: low i16(v_add_u32_e32(x, y)) = v_add_u16_e32(low i16(x), low i16(y))
i16: high i16(v_add_u32_e32(x, y)) ~ v_add_u16_e32(high i16(x), high i16(y))
i16: as f16 i16(as i16 f16(x)) = x
f16: as i16 f16(as f16 i16(x)) = x
i32: or halves i16(low i16(x), high i16(x)) = x
i32: v_pk_add_u16(x, y) = or halves i16(v_add_u16_e32(low i16(x), low i16(y)), v_add_u16_e32(high i16(x), high i16(y)))
i32: v_pk_sub_i16(x, y) = v_pk_sub_u16(x, y)
i32: v_pk_mul_lo_u16(x, y) = v_pk_mad_u16(x, y, 0)
i32: v_pk_mad_i16(x, y, z) = v_pk_add_u16(v_pk_mul_lo_u16(x, y), z)
i32: v_pk_max_i16(x, y) = or halves i16(v_max_i16_e32(low i16(x), low i16(y)), v_max_i16_e32(high i16(x), high i16(y)))
i32: v_pk_min_u16(x, y) ~ v_pk_min_i16(x, y)
i32: v_pk_add_u16(x, y) ~ v_add_u32_e32(x, y)
i32: v_mad_u16 low(x, y, z, w) = or halves i16(v_mad_u16(x, y, z), high i16(w))
i32: v_mad_i16 high(x, y, z, w) = or halves i16(low i16(w), v_mad_i16(x, y, z))
i32: v_max3_u16 low(x, y, z, w) = or halves i16(v_max3_u16(x, y, z), high i16(w))
i32: v_add_i16 high(x, y, w) = or halves i16(low i16(w), v_add_i16(x, y))
i32: v_mov_b32_sdwa(x, y) = or halves i16(low i16(y), low i16(x))
i32: v_or_b32_sdwa(x, y) = v_or_b32_e32(v_and_b32_e32(x, 0xffff), v_bfe_u32(y, 8, 8))
i32: v_add_lshl_u32(x, y, 1) = v_add_u32_e32(v_add_u32_e32(x, y), v_add_u32_e32(x, y))
i32: v_med3_u32(x, y, z) = v_med3_u32(y, x, z)
i32: v_max3_u32(x, y, z) = v_max_u32_e32(v_max_u32_e32(x, y), z)
i32: v_mul_hi_u32_u24_e32(x, y) ~ v_mul_hi_u32(x, y)
f16: v_add_f16_sdwa(x, y) = v_add_f16_e32(low(x), high(y))
h2: v_add_f16_sdwa high(x, y, w) = or halves(low(w), v_add_f16_e32(low(x), high(y)))
f16: v_ldexp_f16_e32(x, 0) = x
f16: v_ldexp_f16_e32(x, 1) ~ v_mul_f16_e32(x, 2.0)
f16: v_cvt_f16_i16_e32(x) ~ v_cvt_f16_u16_e32(x)
i16: v_cvt_i16_f16_e32(v_trunc_f16_e32(x)) = v_cvt_i16_f16_e32(x)
h2: v_cvt_pkrtz_f16_f32(x, y) ~ or halves(v_cvt_f16_f32_e32(x), v_cvt_f16_f32_e32(y))
h2: v_cvt_pkrtz_f16_f32(v_cvt_f32_f16_e32(x), v_cvt_f32_f16_e32(y)) = v_pack_b32_f16(x, y)
f32: v_fma_mix_f32 fff(x, y, z) = v_fma_f32(x, y, z)
f32: v_fma_mix_f32 hhf(x, y, z) = v_fma_f32(v_cvt_f32_f16_e32(low(x)), v_cvt_f32_f16_e32(low(y)), z)
f32: v_fma_mix_f32 tbf(x, y, z) = v_fma_f32(v_cvt_f32_f16_e32(high(x)), v_cvt_f32_f16_e32(low(y)), z)
f16: v_fma_mixlo_f16 hhf(x, y, z) ~ v_cvt_f16_f32_e32(v_fma_mix_f32 hhf(x, y, z))
h2: v_fma_mixhi_f16 ttt(x, y, z, w) = or halves(low(w), v_fma_mixlo_f16 ttt(x, y, z))
h2: v_fma_mixhi_f16 fff(x, y, z, w) = or halves(low(w), v_fma_mixlo_f16 fff(x, y, z))
f32: v_cvt_f32_ubyte3_e32(x) = v_cvt_f32_u32_e32(v_lshrrev_b32_e32(x, 24))
f32: v_cvt_f32_fp8 1(x) = v_cvt_f32_fp8 0(v_lshrrev_b32_e32(x, 8))
f32: v_cvt_f32_fp8 3(x) = v_cvt_f32_fp8 1(v_lshrrev_b32_e32(x, 16))
f32: v_cvt_f32_fp8 2(x) ~ v_cvt_f32_bf8 2(x)
i32: v_cvt_pk_fp8_f32 low(v_cvt_f32_fp8 0(x), v_cvt_f32_fp8 1(x), x) ~ x
p: v_cmp_lt_i16_e64(x, y) = v_cmp_gt_i16_e64(y, x)
p: v_cmp_lt_i16_e64(x, y) ~ v_cmp_lt_u16_e64(x, y)
p: s_not_b64(v_cmp_le_u16_e64(x, y)) = v_cmp_gt_u16_e64(x, y)
f32: selp f32(x, y, s_not_b64(p)) = selp f32(y, x, p)
f32: selp f32(x, x, p) = x
p: s_and_b64(a, b) = s_and_b64(b, a)
p: s_not_b64(s_not_b64(a)) = a
p: s_andn2_b64(a, b) = s_and_b64(a, s_not_b64(b))
p: v_cmp_lt_f32_e64(x, y) = v_cmp_gt_f32_e64(y, x)
p: v_cmp_nlt_f32_e64(x, y) = s_not_b64(v_cmp_lt_f32_e64(x, y))
p: v_cmp_lt_f32_e64(x, y) ~ s_not_b64(v_cmp_ge_f32_e64(x, y))
p: v_cmp_lt_i32_e64(x, y) ~ v_cmp_lt_u32_e64(x, y)
f32: dpp add(x, y) ~ v_add_f32_e32(x, y)
"""


@cache
def _rules() -> tuple[Rule, ...]:
    lines = []
    for kind in ("f32", "f16"):
        for line in _ON_FLOATS.split("\n"):
            if line:
                changed = line.replace("_F_", f"_{kind}_").replace("_F(", f"_{kind}(").replace("_F ", f"_{kind} ")
                lines.append(f"{kind}: {changed.replace('selp K', f'selp {kind}')}")
    lines += [line for line in _OTHERS.split("\n") if line]
    return tuple(rules(lines, GFX942_WORDS))


def identities() -> tuple[Rule, ...]:
    """Return the identities that hold, in both directions where possible."""
    return tuple(rule for rule in _rules() if rule.holds)


def near_misses() -> tuple[Rule, ...]:
    """Return the rewritings that fail for some inputs."""
    return tuple(rule for rule in _rules() if not rule.holds)
