"""Multi-instruction idioms: bf16 rounding with integers, NaN-propagating maxima, clamps, square roots."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core import numerics
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.ir.text import render
from gfx942_kernels import launch_of, reading, run, text_of

SUM = """s_movk_i32 s20, 0x7fff
v_bfe_u32 v6, v2, 16, 1
v_add3_u32 v6, v2, v6, s20
v_cmp_o_f32_e32 vcc, v2, v2
"""
HIGH_HALF = SUM + "v_mov_b32_e32 v7, 0x7fff0000\nv_and_b32_e32 v6, 0xffff0000, v6\nv_cndmask_b32_e32 v5, v7, v6, vcc"
LOW_HALF = SUM + "v_mov_b32_e32 v7, 0x7fff\nv_lshrrev_b32_e32 v6, 16, v6\nv_cndmask_b32_e32 v5, v7, v6, vcc"
SDWA = (
    SUM + "v_mov_b32_e32 v7, 0x7fff\nv_cndmask_b32_sdwa v5, v7, v6, vcc dst_sel:DWORD dst_unused:UNUSED_PAD "
    "src0_sel:DWORD src1_sel:WORD_1"
)
OPPOSITE = LOW_HALF.replace("v_cmp_o_f32", "v_cmp_u_f32").replace("v5, v7, v6, vcc", "v5, v6, v7, vcc")
ROUNDED = "convert.rn.bf16.fp32"
MAXIMUM = """v_max_f32_e32 v6, v2, v2
v_max_f32_e32 v7, v3, v3
v_max_f32_e32 v6, v6, v7
v_mov_b32_e32 v7, 0x7fc00000
v_cmp_o_f32_e32 vcc, v2, v3
v_cndmask_b32_e32 v5, v7, v6, vcc"""


def tree(body: str) -> str:
    """The expression of the first output element, as text."""
    source = Source("kernel.amdgcn", text_of(body), launch_of())
    return render(tree_of(source, GFX942, Options(), "out[0]", None)[0].root)


def test_integer_sum_rounds_to_nearest_even() -> None:
    """All high halves except NaNs, with low halves around the midpoint."""
    low = np.array([0, 1, 2, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF], dtype=np.uint32)
    patterns = (np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16) | low).ravel()
    patterns = patterns[~numerics.nan_of(patterns, numerics.FLOAT_FORMATS["fp32"])]
    assert len(patterns) > 580_000
    total = patterns + ((patterns >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    expected = numerics.operation(ROUNDED).evaluate(patterns)
    assert ((total >> np.uint32(16)).astype(np.uint16) == expected).all()


@pytest.mark.parametrize("body", [HIGH_HALF, LOW_HALF, SDWA, OPPOSITE])
def test_bf16_rounding_is_recognised(body: str) -> None:
    random = np.random.default_rng(3)
    words = random.integers(0, 1 << 32, 256, dtype=np.uint64).astype(np.uint32)
    words[:6] = [0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x7F800000]
    left = run(body, words, threads=256)
    halves = (left >> np.uint32(16) if body is HIGH_HALF else left).astype(np.uint16)
    expected = numerics.operation(ROUNDED).evaluate(words)
    nans = numerics.nan_of(words, numerics.FLOAT_FORMATS["fp32"])
    assert nans[:2].all()
    assert (halves[nans] == 0x7FFF).all()
    assert (halves[~nans] == expected[~nans]).all()
    assert ROUNDED in tree(body)
    assert "select" not in tree(body)


def test_forms_of_a_rounding_are_equal() -> None:
    assert reading(LOW_HALF).signature == reading(SDWA).signature == reading(OPPOSITE).signature
    assert reading(LOW_HALF).signature != reading(HIGH_HALF).signature


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("v_bfe_u32 v6, v2, 16, 1", "v_bfe_u32 v6, v2, 15, 1"),
        ("v_bfe_u32 v6, v2, 16, 1", "v_bfe_u32 v6, v3, 16, 1"),
        ("v_bfe_u32 v6, v2, 16, 1", "v_bfe_u32 v6, v2, 16, 2"),
        ("s_movk_i32 s20, 0x7fff", "s_movk_i32 s20, 0x7ffe"),
        ("v_add3_u32 v6, v2, v6, s20", "v_add3_u32 v6, v3, v6, s20"),
        ("v_cmp_o_f32_e32 vcc, v2, v2", "v_cmp_o_f32_e32 vcc, v2, v3"),
        ("v_cmp_o_f32_e32 vcc, v2, v2", "v_cmp_u_f32_e32 vcc, v2, v2"),
        ("v_cmp_o_f32_e32 vcc, v2, v2", "v_cmp_le_f32_e32 vcc, v2, v2"),
        ("v_mov_b32_e32 v7, 0x7fff", "v_mov_b32_e32 v7, 0x7fc0"),
        ("v_mov_b32_e32 v7, 0x7fff", "v_mov_b32_e32 v7, 0x7f80"),
        ("v_lshrrev_b32_e32 v6, 16, v6", "v_lshrrev_b32_e32 v6, 15, v6"),
    ],
)
def test_modified_rounding_is_not_recognised(before: str, after: str) -> None:
    assert LOW_HALF.count(before) == 1
    changed = LOW_HALF.replace(before, after)
    assert reading(changed).unknown is None
    assert reading(changed).signature != reading(LOW_HALF).signature
    assert ROUNDED not in tree(changed)


def test_rounding_with_another_high_half_is_distinguished() -> None:
    """Where the number is NaN, 1 is selected in the high half."""
    changed = LOW_HALF.replace("v_mov_b32_e32 v7, 0x7fff", "v_mov_b32_e32 v7, 0x17fff")
    assert changed != LOW_HALF
    assert reading(changed).signature not in (None, reading(LOW_HALF).signature)
    assert run(changed, [0x7FC00000, 0x3F800000])[:2].tolist() == [0x17FFF, 0x3F80]


def test_rounding_of_a_number_needs_no_nan_select() -> None:
    """A maximum with a constant is never NaN; a maximum of two loaded numbers may be."""
    rest = SUM.replace("v2", "v8") + "v_lshrrev_b32_e32 v5, 16, v6"
    number = "v_max_f32_e32 v8, v2, v2\nv_max_f32_e32 v8, 0, v8\n" + rest
    assert ROUNDED in tree(number)
    words = np.array([0x7FC00000, 0x7F800001, 0xBF800000, 0x3F808001, 0x7F7FFFFF], dtype=np.uint32)
    assert run(number, words)[:5].tolist() == [0, 0, 0, 0x3F81, 0x7F80]
    other = "v_max_f32_e32 v8, v2, v2\nv_max_f32_e32 v9, v3, v3\nv_max_f32_e32 v8, v8, v9\n" + rest
    assert ROUNDED not in tree(other)
    assert run(other, [0xFFFFFFFF], [0xFFFFFFFF])[0] != 0x7FFF


def test_nan_propagating_maximum() -> None:
    a = [0x7F800001, 0x7FC00000, 0x3F800000, 0x80000000, 0x3F800000, 0x7F800000]
    b = [0x3F800000, 0x3F800000, 0xFFFFFFFF, 0, 0x40000000, 0xFF800000]
    for verb, expected in (("max", [0, 0x40000000, 0x7F800000]), ("min", [0x80000000, 0x3F800000, 0xFF800000])):
        body = MAXIMUM.replace("v_max_f32_e32 v6, v6", f"v_{verb}_f32_e32 v6, v6")
        assert run(body, a, b)[:6].tolist() == [0x7FC00000] * 3 + expected
        assert f"{verb}.nan.fp32" in tree(body)
        assert "select" not in tree(body)


BOUNDED = """v_max_f32_e32 v6, v2, v2
v_max_f32_e32 v6, 2.0, v6
v_mov_b32_e32 v7, 0x7fc00000
v_cmp_o_f32_e32 vcc, v2, v2
v_cndmask_b32_e32 v5, v7, v6, vcc"""


def test_nan_propagating_bound() -> None:
    """One operand is a constant number: only the other is tested for NaN."""
    assert "max.nan.fp32" in tree(BOUNDED)
    given = [0x7F800001, 0xFFC00000, 0x3F800000, 0x40400000]
    assert run(BOUNDED, given)[:4].tolist() == [0x7FC00000, 0x7FC00000, 0x40000000, 0x40400000]
    for before, after in (
        ("v_cmp_o_f32_e32 vcc, v2, v2", "v_cmp_o_f32_e32 vcc, v3, v3"),
        ("v_cmp_o_f32_e32 vcc, v2, v2", "v_cmp_o_f32_e32 vcc, v2, v3"),
        ("v_max_f32_e32 v6, 2.0, v6", "v_max_f32_e32 v8, v3, v3\nv_max_f32_e32 v6, v8, v6"),
        ("v_max_f32_e32 v6, 2.0, v6", "v_mov_b32_e32 v8, 0x7fc00001\nv_max_f32_e32 v6, v8, v6"),
    ):
        assert BOUNDED.count(before) == 1
        assert ".nan." not in tree(BOUNDED.replace(before, after)), after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("v_cmp_o_f32_e32 vcc, v2, v3", "v_cmp_o_f32_e32 vcc, v2, v2"),
        ("v_cmp_o_f32_e32 vcc, v2, v3", "v_cmp_o_f32_e32 vcc, v2, v4"),
        ("v_max_f32_e32 v7, v3, v3", "v_max_f32_e32 v7, v4, v4"),
        ("v_max_f32_e32 v6, v6, v7", "v_add_f32_e32 v6, v6, v7"),
        ("0x7fc00000", "0x7f800000"),
        ("v5, v7, v6, vcc", "v5, v6, v7, vcc"),
    ],
)
def test_modified_nan_propagation_is_not_recognised(before: str, after: str) -> None:
    assert MAXIMUM.count(before) == 1
    changed = MAXIMUM.replace(before, after)
    assert reading(changed).signature != reading(MAXIMUM).signature
    assert ".nan." not in tree(changed)


def test_integer_clamp_has_one_form() -> None:
    low, high = "v_mov_b32_e32 v6, 0xfffffc18\n", "v_mov_b32_e32 v7, 0x3e8\n"
    median = low + high + "v_med3_i32 v5, v2, v6, v7"
    written = low + high + "v_max_i32_e32 v5, v2, v6\nv_min_i32_e32 v5, v5, v7"
    assert reading(median).signature == reading(written).signature
    given = np.array([5, 0xFFFFFC17, 0xFFFFFC18, 0x3E9, 0x80000000, 0x7FFFFFFF], dtype=np.uint32)
    expected = np.clip(given.view(np.int32), -1000, 1000).view(np.uint32)
    assert run(median, given)[:6].tolist() == run(written, given)[:6].tolist() == expected.tolist()
    turned = median.replace("v2, v6, v7", "v2, v7, v6")
    assert run(turned, given)[:6].tolist() == expected.tolist()
    unsigned = median.replace("med3_i32", "med3_u32")
    assert run(unsigned, given)[:6].tolist() == [0x3E8, 0xFFFFFC17, 0xFFFFFC18, 0x3E9, 0x80000000, 0x7FFFFFFF]


@pytest.mark.parametrize(("kind", "large"), [("i32", 0x7FFFFFFF), ("u32", 0xFFFFFFFF)])
def test_fp64_nan_converts_to_zero(kind: str, large: int) -> None:
    body = f"v_mov_b32_e32 v6, v2\nv_mov_b32_e32 v7, v3\nv_cvt_{kind}_f64_e32 v5, v[6:7]"
    high = [0x7FF80000, 0x7FF00000, 0xFFF00000, 0x40080000, 0xFFF80000, 0x7FF00000]
    low = [0, 0, 0, 0, 1, 1]
    least = 0x80000000 if kind == "i32" else 0
    assert run(body, low, high)[:6].tolist() == [0, large, least, 3, 0, 0]


ROOT = """v_add_f32_e64 v6, |v2|, 1.0
v_rsq_f32_e32 v7, v6
v_mov_b32_e32 v8, 0x260
v_cmp_class_f32_e32 vcc, v6, v8
v_mul_f32_e32 v9, v6, v7
v_mul_f32_e32 v7, 0.5, v7
v_fma_f32 v10, -v7, v9, 0.5
v_fmac_f32_e32 v9, v9, v10
v_fmac_f32_e32 v7, v7, v10
v_fma_f32 v10, -v9, v9, v6
v_fmac_f32_e32 v9, v10, v7
v_cndmask_b32_e32 v5, v9, v6, vcc"""


def test_square_root_sequence_is_correctly_rounded() -> None:
    """Both parities of the exponent, for each approximation of the reciprocal root within 1 ulp."""
    random = np.random.default_rng(11)
    fused = numerics.operation("fma.rn.fp32").evaluate
    product = numerics.operation("mul.rn.fp32").evaluate
    sign, half = np.uint32(1 << 31), np.uint32(0x3F000000)
    for exponent in (31, 32, 126, 127, 253, 254):
        edges = np.array([0, 1, 2, (1 << 23) - 1, (1 << 23) - 2, 1 << 22, 0x3504F3, 0x3504F4], dtype=np.uint32)
        fraction = np.concatenate([edges, random.integers(0, 1 << 23, 20_000).astype(np.uint32)])
        x = np.uint32(exponent << 23) | fraction
        near = (1 / np.sqrt(x.view(np.float32).astype(np.float64))).astype(np.float32).view(np.uint32)
        checked = 0
        for reciprocal in (near - np.uint32(1), near, near + np.uint32(1)):
            wide = reciprocal.view(np.float32).astype(np.longdouble)
            unit = ((near + np.uint32(1)).view(np.float32) - near.view(np.float32)).astype(np.longdouble)
            within = abs(wide - 1 / np.sqrt(x.view(np.float32).astype(np.longdouble))) <= unit
            root, middle = product(x, reciprocal), product(np.broadcast_to(half, x.shape), reciprocal)
            error = fused(middle ^ sign, root, np.broadcast_to(half, x.shape))
            root, middle = fused(root, error, root), fused(middle, error, middle)
            root = fused(fused(root ^ sign, root, x), middle, root)
            expected = numerics.operation("sqrt.rn.fp32").evaluate(x)
            assert (root[within] == expected[within]).all()
            checked += int(within.sum())
        assert checked > 30_000


@pytest.mark.parametrize("radicand", ["v_fma_f32 v6, v2, v2, 1.0", "v_fma_f32 v6, |v2|, |v3|, 1.0",
                                      "v_max_f32_e32 v6, v2, v2\nv_max_f32_e32 v6, 1.0, v6"])  # fmt: skip
def test_square_root_of_other_radicands_is_recognised(radicand: str) -> None:
    body = ROOT.replace("v_add_f32_e64 v6, |v2|, 1.0", radicand)
    assert "sqrt.rn.fp32" in tree(body)


@pytest.mark.parametrize("classes", ["0x260", "0x240", "0x220", "0x200"])
def test_square_root_is_recognised(classes: str) -> None:
    body = ROOT.replace("0x260", classes)
    assert "sqrt.rn.fp32" in tree(body)
    assert "rsqrt" not in tree(body)
    assert reading(body).signature == reading(ROOT).signature


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_add_f32_e64 v6, v2, 1.0"),
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_fma_f32 v6, -v2, v2, 1.0"),
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_fma_f32 v6, v2, v3, 1.0"),
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_max_f32_e32 v6, v2, v2\nv_min_f32_e32 v6, 1.0, v6"),
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_mul_f32_e64 v6, |v2|, 1.0"),
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_mov_b32_e32 v11, 0xf000000\nv_add_f32_e64 v6, |v2|, v11"),
        ("v_add_f32_e64 v6, |v2|, 1.0", "v_add_f32_e64 v6, -|v2|, 1.0"),
        ("0x260", "0x60"),
        ("0x260", "0x360"),
        ("0x260", "0x262"),
        ("v_cmp_class_f32_e32 vcc, v6, v8", "v_cmp_class_f32_e32 vcc, v2, v8"),
        ("v_mul_f32_e32 v9, v6, v7", "v_mul_f32_e32 v9, v2, v7"),
        ("v_mul_f32_e32 v7, 0.5, v7", "v_mul_f32_e32 v7, 1.0, v7"),
        ("v_fma_f32 v10, -v7, v9, 0.5", "v_fma_f32 v10, v7, v9, 0.5"),
        ("v_fmac_f32_e32 v9, v9, v10", "v_mov_b32_e32 v9, v9"),
        ("v_fmac_f32_e32 v7, v7, v10", "v_mov_b32_e32 v7, v7"),
        ("v_fma_f32 v10, -v9, v9, v6", "v_fma_f32 v10, -v9, v9, v2"),
        ("v_fmac_f32_e32 v9, v10, v7", "v_fmac_f32_e32 v9, v10, v10"),
        ("v5, v9, v6, vcc", "v5, v6, v9, vcc"),
    ],
)
def test_modified_square_root_is_not_recognised(before: str, after: str) -> None:
    assert ROOT.count(before) == 1
    changed = ROOT.replace(before, after)
    assert reading(changed).unknown is None
    assert reading(changed).signature != reading(ROOT).signature
    assert "sqrt.rn.fp32" not in tree(changed)


BOUNDS = [(0xC0000000, 0x40000000), (0, 0x40C00000), (0x80000000, 0x3F800000), (0xC0400000, 0xBF800000),
          (0xFF800000, 0x3F800000), (0x3F800000, 0x7F800000), (1, 2)]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), BOUNDS)
@pytest.mark.parametrize("order", ["v6, v7, v8", "v6, v8, v7", "v7, v6, v8", "v8, v7, v6"])
def test_median_between_bounds_is_a_clamp(low: int, high: int, order: str) -> None:
    """On random patterns, zeros of both signs, NaNs, infinities and the bounds themselves."""
    bounds = f"v_mov_b32_e32 v7, {low:#x}\nv_mov_b32_e32 v8, {high:#x}\nv_max_f32_e32 v6, v2, v2\n"
    median = bounds + f"v_med3_f32 v5, {order}"
    written = bounds + "v_max_f32_e32 v6, v6, v7\nv_min_f32_e32 v5, v6, v8"
    assert reading(median).signature == reading(written).signature
    random = np.random.default_rng(low ^ high)
    words = random.integers(0, 1 << 32, 256, dtype=np.uint64).astype(np.uint32)
    special = [0, 1 << 31, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001, low, high]
    words[:22] = [*special, *(each ^ 1 for each in special)]
    assert (run(median, words, threads=256) == run(written, words, threads=256)).all()


@pytest.mark.parametrize(
    "body",
    [
        "v_med3_f32 v5, v2, -1.0, 1.0",
        "v_max_f32_e32 v6, v2, v2\nv_med3_f32 v5, v6, -1.0, 0",
        "v_max_f32_e32 v6, v2, v2\nv_med3_f32 v5, v6, v3, 1.0",
    ],
)
def test_other_medians_are_target_operations(body: str) -> None:
    """An operand that may be signalling, an upper bound of zero, a bound that is data."""
    assert "med3" in tree(body)
