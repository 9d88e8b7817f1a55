"""Floating-point instructions: bits against exact arithmetic, signatures, modes and NaNs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core import numerics
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from gfx942_kernels import DIVISION, launch_of, reading, run, text_of

NAN, QUIET, INFINITY = 0x7F800001, 0x7FC00000, 0x7F800000
SPECIAL = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3FC00000, 0x40490FDB,
           0x4B000001, 0x7F7FFFFF, 0xFF7FFFFF, INFINITY, 0xFF800000, QUIET, 0x33800000, 0x4F000000,
           0xCF000001]  # fmt: skip


def words(seed: int) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(3):
        wide = random.integers(0, 1 << 32, 128, dtype=np.uint64).astype(np.uint32)
        near = (random.standard_normal(64) * 8).astype(np.float32).view(np.uint32)
        found.append(np.concatenate([random.choice(np.array(SPECIAL, dtype=np.uint32), 64), wide, near]))
    return tuple(found)


def same(found: Any, expected: Any, form: str = "fp32") -> bool:
    """Whether patterns are equal, with all NaNs equal."""
    kind = numerics.FLOAT_FORMATS[form]
    width = {"fp16": np.uint16, "fp32": np.uint32}[form]
    left, right = np.asarray(found).astype(width), np.asarray(expected).astype(width)
    nans = numerics.nan_of(left, kind) & numerics.nan_of(right, kind)
    return bool((nans | (left == right)).all())


@pytest.mark.parametrize(
    ("body", "name", "count"),
    [
        ("v_add_f32_e32 v5, v2, v3", "add.rn.fp32", 2),
        ("v_sub_f32_e32 v5, v2, v3", "sub.rn.fp32", 2),
        ("v_subrev_f32_e32 v5, v3, v2", "sub.rn.fp32", 2),
        ("v_mul_f32_e32 v5, v2, v3", "mul.rn.fp32", 2),
        ("v_fma_f32 v5, v2, v3, v4", "fma.rn.fp32", 3),
        ("v_mov_b32_e32 v5, v4\nv_fmac_f32_e32 v5, v2, v3", "fma.rn.fp32", 3),
        ("v_cvt_f32_i32_e32 v5, v2", "convert.rn.fp32.s32", 1),
        ("v_cvt_f32_u32_e32 v5, v2", "convert.rn.fp32.u32", 1),
        ("v_cvt_i32_f32_e32 v5, v2", "convert.rzi.s32.fp32", 1),
        ("v_cvt_u32_f32_e32 v5, v2", "convert.rzi.u32.fp32", 1),
        ("v_rndne_f32_e32 v5, v2", "convert.rni.fp32.fp32", 1),
        ("v_floor_f32_e32 v5, v2", "convert.rmi.fp32.fp32", 1),
        ("v_trunc_f32_e32 v5, v2", "convert.rzi.fp32.fp32", 1),
    ],
)
def test_arithmetic(body: str, name: str, count: int) -> None:
    given = words(len(body))
    expected = numerics.operation(name).evaluate(*given[:count])
    found = run(body, *given, threads=256)
    assert (
        same(found, expected) if not name.startswith(("convert.rzi.s", "convert.rzi.u")) else (found == expected).all()
    )


def test_operand_modifiers() -> None:
    a, b, c = words(1)
    flip, drop = np.uint32(1 << 31), np.uint32((1 << 31) - 1)
    expected = numerics.operation("fma.rn.fp32").evaluate(a ^ flip, b & drop, (c & drop) | flip)
    assert same(run("v_fma_f32 v5, -v2, |v3|, -|v4|", a, b, c, threads=256), expected)


def test_fp16_halves() -> None:
    """fp16 in either half of a register, by SDWA, op_sel and packed instructions; the other half is cleared or kept."""
    a, b, c = words(2)
    low, high = (
        [(x & np.uint32(0xFFFF)).astype(np.uint16) for x in (a, b, c)],
        [(x >> np.uint32(16)).astype(np.uint16) for x in (a, b, c)],
    )
    add, mul, fma = (numerics.operation(f"{verb}.rn.fp16").evaluate for verb in ("add", "mul", "fma"))
    whole = run("v_add_f16_e32 v5, v2, v3", a, b, threads=256)
    assert same(whole & np.uint32(0xFFFF), add(low[0], low[1]), "fp16")
    assert not (whole >> np.uint32(16)).any()
    packed = run("v_pk_mul_f16 v5, v2, v3", a, b, threads=256)
    assert same(packed & np.uint32(0xFFFF), mul(low[0], low[1]), "fp16")
    assert same(packed >> np.uint32(16), mul(high[0], high[1]), "fp16")
    crossed = run("v_pk_fma_f16 v5, v2, v3, v4 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,0,1]", a, b, c, threads=256)
    assert same(crossed & np.uint32(0xFFFF), fma(high[0], low[1], low[2] ^ np.uint16(0x8000)), "fp16")
    assert same(crossed >> np.uint32(16), fma(low[0], high[1], high[2]), "fp16")
    widen = numerics.operation("convert.fp32.fp16").evaluate
    chosen = run("v_cvt_f32_f16_sdwa v5, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", a, threads=256)
    assert same(chosen, widen(high[0]))
    fused = numerics.operation("fma.rn.fp32").evaluate
    mixed = run("v_fma_mix_f32 v5, v2, v3, v4 op_sel:[1,0,0] op_sel_hi:[1,0,0]", a, b, c, threads=256)
    assert same(mixed, fused(widen(high[0]), b, c))
    narrow = numerics.operation("convert.rn.fp16.fp32").evaluate
    half = run("v_mov_b32_e32 v5, v4\nv_fma_mixlo_f16 v5, v2, v3, v4", a, b, c, threads=256)
    assert same(half & np.uint32(0xFFFF), narrow(fused(a, b, c)), "fp16")
    assert ((half ^ c) >> np.uint32(16) == 0).all()


def exact(word: int) -> Fraction:
    return Fraction(float(np.array([word], dtype=np.uint32).view(np.float32)[0]))


def test_scaling_rounds_once() -> None:
    """v_ldexp against rational arithmetic, with subnormal results and overflow."""
    random = np.random.default_rng(3)
    numbers = (random.standard_normal(256)).astype(np.float32).view(np.uint32)
    powers = random.integers(-170, 170, 256).astype(np.int32)
    found = run("v_ldexp_f32 v5, v2, v3", numbers, powers.view(np.uint32), threads=256)
    for word, power, result in zip(numbers, powers, found, strict=True):
        value = exact(int(word)) * Fraction(2) ** int(power)
        with np.errstate(over="ignore"):
            expected = np.float64(float(word.view(np.float32))) * np.float64(2.0) ** int(power)
            assert Fraction(float(expected)) == value
            assert int(expected.astype(np.float32).view(np.uint32)) == int(result)


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b, "ge": lambda a, b: a >= b, "o": lambda a, b: a == a and b == b,
    "u": lambda a, b: a != a or b != b, "nge": lambda a, b: not a >= b, "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
}  # fmt: skip


@pytest.mark.parametrize("operator", COMPARISONS)
def test_comparisons(operator: str) -> None:
    a, b, _ = words(4)
    b = np.where(np.arange(256) % 3 == 0, a, b)
    found = run(f"v_cmp_{operator}_f32_e32 vcc, v2, v3\nv_cndmask_b32_e64 v5, 0, 1, vcc", a, b, threads=256)
    pairs = zip(a.view(np.float32), b.view(np.float32), strict=True)
    assert found.tolist() == [int(COMPARISONS[operator](float(x), float(y))) for x, y in pairs]


def test_classes() -> None:
    """v_cmp_class: one bit of the mask per class."""
    kinds = [NAN, QUIET, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000, 0, 1, 0x3F800000, INFINITY]
    for place in range(10):
        body = f"v_mov_b32_e32 v6, {1 << place:#x}\nv_cmp_class_f32_e32 vcc, v2, v6\nv_cndmask_b32_e64 v5, 0, 1, vcc"
        assert run(body, kinds)[:10].tolist() == [int(place == each) for each in range(10)]


def test_min_max_with_signalling_nans() -> None:
    """In IEEE mode a signalling NaN gives NaN, a quiet NaN gives the other operand, and +0 is greater than -0."""
    a = [NAN, QUIET, QUIET, 0x80000000, 0, 0x3F800000, INFINITY]
    b = [0x3F800000, 0x3F800000, QUIET, 0, 0x80000000, NAN, 0x40000000]
    assert same(run("v_max_f32_e32 v5, v2, v3", a, b)[:7], [QUIET, 0x3F800000, QUIET, 0, 0, QUIET, INFINITY])
    assert same(
        run("v_min_f32_e32 v5, v2, v3", a, b)[:7],
        [QUIET, 0x3F800000, QUIET, 0x80000000, 0x80000000, QUIET, 0x40000000],
    )
    quieted = "v_max_f32_e32 v6, v2, v2\nv_max_f32_e32 v7, v3, v3\nv_max_f32_e32 v5, v6, v7"
    assert same(run(quieted, a, b)[:7], [0x3F800000, 0x3F800000, QUIET, 0, 0, 0x3F800000, INFINITY])


def test_max3_is_two_maxima_and_med3_treats_zeros_as_equal() -> None:
    """A signalling NaN in the first two operands gives the third operand; in the third operand it gives NaN."""
    one, two, minus = 0x3F800000, 0x40000000, 0x80000000
    assert run("v_max3_f32 v5, v2, v3, v4", [NAN, one, one], [one, NAN, one], [two, two, NAN])[:3].tolist() == [
        two, two, 0x7FFFFFFF,
    ]  # fmt: skip
    given = [minus, 0, 0xBF800000], [0, minus, minus], [0xBF800000, 0xBF800000, 0]
    assert run("v_med3_f32 v5, v2, v3, v4", *given)[:3].tolist() == [0, minus, 0]
    assert run("v_med3_f32 v5, v2, 1.0, 2.0", [QUIET, 0x3FC00000, two + 1])[:3].tolist() == [one, 0x3FC00000, two]


def test_maximum_of_possibly_signalling_operands_is_distinguished() -> None:
    """max(a, b) of loaded numbers differs from the maximum of the quieted numbers; it is commutative."""
    plain = reading("v_max_f32_e32 v5, v2, v3").signature
    turned = reading("v_max_f32_e32 v5, v3, v2").signature
    quiet = reading("v_max_f32_e32 v6, v2, v2\nv_max_f32_e32 v7, v3, v3\nv_max_f32_e32 v5, v6, v7").signature
    assert plain == turned
    assert plain != quiet


def test_the_minimum_of_a_value_with_itself_leaves_the_value_as_it_is() -> None:
    # The minimum is no signalling NaN; the operand, which a later maximum reads, may still be one.
    minimum = "v_min_f32_e32 v6, v2, v2\nv_mov_b32_e32 v7, 0xff800000\n"
    direct = reading(minimum + "v_max_f32_e32 v5, v7, v2")
    quieted = reading(minimum + "v_max_f32_e32 v5, v7, v6")
    assert direct.signature is not None
    assert direct.signature != quieted.signature
    assert direct.signature == reading("v_mov_b32_e32 v7, 0xff800000\nv_max_f32_e32 v5, v7, v2").signature


@pytest.mark.parametrize(
    ("convert", "number", "form", "infinity"),
    [
        ("v_cvt_i32_f32_e32 v6, v2", np.float32(-0x7FFDA0), "f32", "0xff800000"),
        ("v_cvt_u32_f32_e32 v6, v2", np.float32(0x7F800080), "f32", "0xff800000"),
        ("v_cvt_i16_f16_e32 v6, v2", np.float16(0x7C10), "f16", "0xfc00"),
        ("v_cvt_u16_f16_e32 v6, v2", np.float16(0x7C10), "f16", "0xfc00"),
        ("v_cvt_i16_f16_e32 v6, v2\nv_lshlrev_b32_e32 v6, 16, v6", np.float16(0x7F90), "f32", "0xff800000"),
    ],
)
def test_the_bits_of_a_converted_integer_may_be_a_signalling_nan(
    convert: str, number: np.floating[Any], form: str, infinity: str
) -> None:
    """The maximum with -infinity makes the NaN quiet; a second one replaces it by -infinity."""
    once = f"{convert}\nv_mov_b32_e32 v7, {infinity}\nv_max_{form}_e32 v5, v7, v6"
    twice = f"{once}\nv_max_{form}_e32 v5, v7, v5"
    patterns = [int(number.view(f"u{number.itemsize}"))]
    assert run(once, patterns)[0] == (0x7FFFFFFF if form == "f32" else 0x7FFF)
    assert run(twice, patterns)[0] == int(infinity, 0)
    assert reading(once).signature != reading(twice).signature is not None


def test_flushing_is_part_of_the_signature() -> None:
    """The same instruction in another denormal mode has another signature."""
    body = "v_add_f32_e32 v5, v2, v3"
    kept, flushed = reading(body, denormals=3), reading(body, denormals=0)
    assert kept.unknown is None
    assert flushed.unknown is None
    assert kept.signature != flushed.signature
    assert "subnormal" in (reading(body, denormals=1).unknown or "")


def test_division_sequence_is_the_rounded_quotient() -> None:
    a, b, _ = words(5)
    assert same(run(DIVISION, a, b, threads=256), numerics.operation("div.rn.fp32").evaluate(a, b))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("v_fma_f32 v10, -v6, v9, v8", "v_fma_f32 v10, v6, v9, v8"),
        ("v_fmac_f32_e32 v7, v9, v7", "v_mov_b32_e32 v7, v7"),
        ("v_div_fixup_f32 v5, v6, v3, v2", "v_div_fixup_f32 v5, v6, v2, v3"),
        ("v_mul_f32_e32 v9, v8, v7", "v_mul_f32_e32 v9, v8, v8"),
        ("v_div_fmas_f32", "s_mov_b64 vcc, 0\nv_div_fmas_f32"),
        ("v_div_scale_f32 v8, vcc, v2, v3, v2", "v_div_scale_f32 v8, vcc, v3, v3, v2"),
        ("v_rcp_f32_e32 v7, v6", "v_rcp_f32_e32 v7, v3"),
        ("v_fma_f32 v9, -v6, v7, 1.0", "v_fma_f32 v9, -v6, v7, 2.0"),
        ("v_div_fixup", "v_add_f32_e32 v3, 1.0, v3\nv_div_fixup"),
    ],
)
def test_modified_division_sequence_is_not_recognised(before: str, after: str) -> None:
    """With one instruction changed the signature differs, and the sequence has no function on bit patterns."""
    assert DIVISION.count(before) == 1
    changed = DIVISION.replace(before, after)
    found = reading(changed)
    assert found.signature != reading(DIVISION).signature
    if found.unknown is None:
        with pytest.raises(Exception, match="no function here that is exact"):
            run(changed, [1], [1])


def test_approximations_are_target_operations() -> None:
    for name in ("v_exp_f32", "v_log_f32", "v_rsq_f32", "v_sin_f32", "v_sqrt_f32"):
        assert reading(f"{name}_e32 v5, v2").unknown is None
        with pytest.raises(Exception, match="gfx942 has no function here"):
            run(f"{name}_e32 v5, v2", [1])


@pytest.mark.parametrize("name", ["add.rn.atomic.fp32@gfx942", "min.signalling.fp32@gfx942"])
def test_target_variants_are_not_plain_operations(name: str) -> None:
    """An atomic sum may flush subnormal numbers, and a signalling NaN is not replaced by the other operand."""
    assert not numerics.operation(name).plain


@pytest.mark.parametrize("zero", [0, 0x80000000])
def test_ldexp_of_zero(zero: int) -> None:
    powers = np.random.default_rng(7).integers(0, 1 << 32, 256).astype(np.uint32)
    body = f"v_mov_b32_e32 v6, {zero:#x}\nv_ldexp_f32 v5, v6, v2"
    assert set(run(body, powers, threads=256).tolist()) == {zero}
    assert reading(body).signature == reading(f"v_mov_b32_e32 v5, {zero:#x}").signature is not None


def test_ldexp_of_nan() -> None:
    """A NaN guard propagates through v_ldexp from the number, not from the power."""
    powers = np.random.default_rng(8).integers(0, 1 << 32, 256).astype(np.uint32)
    found = run("v_mov_b32_e32 v6, 0x7fc00000\nv_ldexp_f32 v5, v6, v2", powers, threads=256)
    assert np.isnan(found.view(np.float32)).all()
    padding = "v_mov_b32_e32 v6, 0xff800000\nv_sub_f32_e32 v6, v6, v2\nv_exp_f32_e32 v7, v6\n"
    chosen = "v_mov_b32_e32 v9, 3\nv_cmp_gt_f32_e32 vcc, 0, v6\nv_cndmask_b32_e32 v8, v9, v3, vcc\n"
    sum_of = "v_add_f32_e32 v5, v4, v7"
    forms = [
        reading(padding + chosen + each + sum_of).signature
        for each in ("", "v_ldexp_f32 v7, v7, v8\n", "v_ldexp_f32 v7, v7, v3\n", "v_ldexp_f32 v7, v4, v6\n")
    ]
    assert forms[0] == forms[1] == forms[2] is not None
    assert forms[3] not in (None, forms[0])


@pytest.mark.parametrize(("kind", "two", "nan"), [("f32", 0x40000000, 0x7F800001), ("f16", 0x4000, 0x7C01)])
def test_select_in_the_form_of_a_maximum_may_be_a_signalling_nan(kind: str, two: int, nan: int) -> None:
    """A minimum with itself makes the selected NaN quiet, and the maximum then returns the number."""
    select = f"v_mov_b32_e32 v6, {two:#x}\nv_cmp_gt_{kind}_e32 vcc, v6, v2\nv_cndmask_b32_e32 v7, v2, v6, vcc\n"
    bodies = [
        select + f"v_max_{kind}_e32 v5, v6, v7",
        select + f"v_min_{kind}_e32 v8, v7, v7\nv_max_{kind}_e32 v5, v6, v8",
    ]
    assert run(bodies[0], [nan])[0] != run(bodies[1], [nan])[0] == two
    signatures = [reading(body).signature for body in bodies]
    assert None not in signatures
    assert signatures[0] != signatures[1]


def test_finite_assumption_excludes_signalling_nans() -> None:
    """Under the assumption `finite`; a literal may still be a signalling NaN."""
    bodies = ["v_max3_f32 v5, v2, v3, v4", "v_max_f32_e32 v5, v4, v3\nv_max_f32_e32 v5, v2, v5"]
    assert len({reading(body).signature for body in bodies}) == 2
    finite = [signature(body, "finite", "fp32") for body in [*bodies, "v_max3_f32 v5, v2, v3, 0x7f800001"]]
    assert finite[0] == finite[1] is not None
    assert finite[2] not in (None, finite[0], signature("v_max_f32_e32 v5, v2, v3", "finite", "fp32"))


def test_finite_assumption_says_nothing_about_numbers_of_another_format() -> None:
    # The low half of an fp32, or an integer, may have the pattern of a signalling fp16 NaN.
    for dtype in ("i32", "fp32"):
        bodies = "v_pack_b32_f16 v5, v2, v3", "v_and_b32_e32 v5, 0xffff, v2\nv_lshl_or_b32 v5, v3, 16, v5"
        assert len({signature(body, "finite", dtype) for body in bodies}) == 2
    assert run(bodies[0], [0xFC7A], [0xFC7A])[0] == 0x7FFF7FFF
    assert run(bodies[1], [0xFC7A], [0xFC7A])[0] == 0xFC7AFC7A


def signature(body: str, assumption: str, dtype: str) -> bytes | None:
    source = Source("kernel.amdgcn", text_of(body), launch_of(dtype=dtype))
    return analyse(
        source, GFX942, {"out": 1, "a": 2, "b": 3, "c": 4}, Options(assume=frozenset([assumption]))
    ).signature


def test_a_flipped_sign_keeps_the_bits_of_a_nan() -> None:
    """The exclusive or with the sign bit, and a modifier, differ from a product with -1 in the bits of a NaN only."""
    flips = ["v_xor_b32_e32 v{}, 0x80000000, v2\n", "v_mul_f32_e32 v{}, -1.0, v2\n"]
    assert reading(flips[0].format(5)).signature != reading(flips[1].format(5)).signature
    sums = [flip.format(6) + "v_add_f32_e32 v5, v6, v3" for flip in flips]
    sums += ["v_sub_f32_e32 v5, v3, v2", "v_add_f32_e64 v5, -v2, v3", "v_add_f32_e32 v5, v3, v2"]
    forms = [reading(each).signature for each in sums]
    assert None not in forms
    assert [form == forms[0] for form in forms] == [True, True, True, True, False]
    patterns = [NAN, QUIET, 0xFF800001]
    assert run(flips[0].format(5), patterns)[:3].tolist() == [each ^ 0x80000000 for each in patterns]


def test_a_cleared_sign_keeps_the_bits_of_a_nan() -> None:
    cleared = ["v_and_b32_e32 v6, 0x7fffffff, v2\nv_add_f32_e32 v5, v6, v3", "v_add_f32_e64 v5, |v2|, v3"]
    assert reading(cleared[0]).signature == reading(cleared[1]).signature is not None
    assert run("v_and_b32_e32 v5, 0x7fffffff, v2", [NAN | 0x80000000])[0] == NAN
