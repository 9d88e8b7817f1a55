"""Rows of matrix units: the evaluation against exact rational numbers, and the errors for invalid rows and operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.numerics import FORMATS, FloatFormat, operation, storage
from bitwise_core.numerics.mma import (
    Arithmetic,
    FlooredSum,
    FusedSum,
    IntegerSum,
    MatrixError,
    MmaSpec,
    SequentialMultiplyAdd,
    exact_values,
    multiply_accumulate,
)
from bitwise_core.numerics.mma.fused_multiply_add import multiply_add
from covering import drawn_params, examples
from matrix_references import reference

SOURCE = "https://example.org/rows"


def row(arithmetic: Arithmetic, left: str, result: str, k: int, right: str | None = None) -> MmaSpec:
    return MmaSpec("toy_1", "mma", left, right or left, result, result, k, arithmetic, "published only", SOURCE)


WIDE = FusedSum(16, 25, 23, "rz")
ROWS = [
    row(WIDE, "fp16", "fp32", 16),
    row(WIDE, "bf16", "fp32", 16),
    row(replace(WIDE, products=4), "tf32", "fp32", 8),
    row(FusedSum(8, 24, 23, "rz", least_exponent=-133), "bf16", "fp32", 16),
    row(FusedSum(8, 24, 23, "rz", zero_exponent=-126, zero_products=True), "bf16", "fp32", 8),
    row(FusedSum(4, 23, 10, "rn"), "fp16", "fp16", 4),
    row(FusedSum(32, 13, 13, "rz"), "e4m3", "fp32", 32, "e5m2"),
    row(FusedSum(16, 25, 10, "rn", "alternate pairs", True), "e4m3", "fp16", 32),
    row(FusedSum(16, 25, 23, "rz", "alternate pairs", True), "e5m2", "fp32", 32),
    row(FusedSum(16, 25, 23, "rz", "alternate pairs", True, widened="fp16"), "e4m3", "fp32", 32, "e5m2"),
    row(FlooredSum(8, 24, 31, 24), "bf16", "fp32", 16),
    row(FlooredSum(4, 24, 31, 24), "fp16", "fp32", 4),
    row(FlooredSum(16, 24, 31, 24, True), "e4m3fnuz", "fp32", 16, "e5m2fnuz"),
    row(FlooredSum(4, 24, 31, 24), "tf32", "fp32", 8),
    row(SequentialMultiplyAdd(), "fp32", "fp32", 2),
    row(SequentialMultiplyAdd(), "fp64", "fp64", 4),
    row(SequentialMultiplyAdd(("right", "accumulator", "left"), 0xFFF8 << 48), "fp64", "fp64", 4),
    row(SequentialMultiplyAdd(("left", "right", "accumulator"), 0x7FC00000), "fp32", "fp32", 2),
    row(IntegerSum(), "s8", "s32", 16, "u8"),
    row(IntegerSum(True), "s8", "s32", 4),
]


def patterns(name: str) -> st.SearchStrategy[int]:
    """Patterns of a format: arbitrary ones, and those at its limits."""
    form = FORMATS[name]
    anything = st.integers(0, (1 << form.bits) - 1)
    if not isinstance(form, FloatFormat):
        return anything | st.sampled_from([0, 1, form.largest, 1 << (form.bits - 1), (1 << form.bits) - 1])
    sign, low = 1 << (form.bits - 1), form.padding
    smallest_normal, largest = 1 << (form.mantissa_bits + low), form.largest_magnitude << low
    magnitudes = [0, 1 << low, smallest_normal - (1 << low), smallest_normal, form.one, largest]
    if form.infinity is not None:
        magnitudes.append(form.infinity)
    near_one = st.integers(-30, 30).map(lambda steps: form.one + (steps << (form.mantissa_bits + low)))
    ordinary = st.builds(
        lambda magnitude, rest, negative: min(max(magnitude, smallest_normal), largest) | rest << low | negative * sign,
        near_one,
        st.integers(0, (1 << form.mantissa_bits) - 1),
        st.booleans(),
    )
    borders = st.builds(lambda one, negative: one | negative * sign, st.sampled_from(magnitudes), st.booleans())
    return ordinary | ordinary | ordinary | borders | anything


def drawn_patterns(name: str, count: int, generator: np.random.Generator) -> list[int]:
    """Patterns as those of `patterns`, some of which are an earlier one with either sign."""
    form = FORMATS[name]
    anything = [int(each) for each in generator.integers(0, (1 << form.bits) - 1, count, np.uint64, endpoint=True)]
    kinds = generator.integers(0, 6, count)
    if not isinstance(form, FloatFormat):
        limits = [0, 1, form.largest, 1 << (form.bits - 1), (1 << form.bits) - 1]
        return [limits[kind] if kind < len(limits) and even else any_ for kind, even, any_ in
                zip(kinds, generator.integers(0, 2, count), anything, strict=True)]  # fmt: skip
    sign, low = 1 << (form.bits - 1), form.padding
    step = 1 << (form.mantissa_bits + low)
    largest = form.largest_magnitude << low
    borders = [0, 1 << low, step - (1 << low), step, form.one, largest]
    if form.infinity is not None:
        borders.append(form.infinity)
    found: list[int] = []
    for kind, any_ in zip(kinds, anything, strict=True):
        negative = sign * int(generator.integers(0, 2))
        if kind < 3:
            magnitude = form.one + int(generator.integers(-30, 31)) * step
            rest = any_ & ((1 << form.mantissa_bits) - 1)
            found.append(min(max(magnitude, step), largest) | rest << low | negative)
        elif kind == 3:
            found.append(borders[int(generator.integers(0, len(borders)))] | negative)
        elif kind == 4 and found:
            found.append(found[int(generator.integers(0, len(found)))] & ~sign | negative)
        else:
            found.append(any_)
    return found


def array(values: Any, spec: MmaSpec, operand: Any) -> Any:
    return np.array(values, dtype=storage(spec.form(operand).bits))


@pytest.mark.parametrize("seed", drawn_params((5, 6, 7), lambda seed: seed == 5))
@pytest.mark.parametrize("spec", ROWS, ids=lambda spec: f"{spec.name}-{spec.products}")
def test_every_rule_against_rational_numbers(spec: MmaSpec, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for case in range(70):
        depth = spec.k * (1 + case % 2)
        a, b = (drawn_patterns(name, depth, generator) for name in (spec.left, spec.right))
        (c,) = drawn_patterns(spec.accumulator, 1, generator)
        found = multiply_accumulate(
            spec, array([a], spec, "left"), array(b, spec, "right")[:, None], array([[c]], spec, "accumulator")
        )
        assert f"{int(found[0, 0]):#x}" == f"{reference(spec, a, b, c):#x}", (a, b, c)


@pytest.mark.parametrize("spec", ROWS, ids=lambda spec: f"{spec.name}-{spec.products}")
def test_results_do_not_depend_on_the_blocking(spec: MmaSpec) -> None:
    generator = np.random.default_rng(7)

    def drawn(operand: Any, *shape: int) -> Any:
        bits = spec.form(operand).bits
        return generator.integers(0, 1 << bits, shape, dtype=np.uint64).astype(storage(bits))

    m, n, depth = 3, 300, 2 * spec.k
    a, b, c = drawn("left", 2, 1, m, depth), drawn("right", 5, depth, n), drawn("accumulator", m, n)
    whole = multiply_accumulate(spec, a, b, c)
    assert whole.shape == (2, 5, m, n)
    for i, j, column in ((0, 0, 0), (1, 4, 299), (0, 3, 128), (1, 0, 127)):
        alone = multiply_accumulate(spec, a[i, 0], b[j][:, column : column + 1], c[:, column : column + 1])
        assert np.array_equal(alone[:, 0], whole[i, j, :, column])
    # Two instructions are one after the other.
    first = multiply_accumulate(spec, a[..., : spec.k], b[:, : spec.k], c)
    assert np.array_equal(multiply_accumulate(spec, a[..., spec.k :], b[:, spec.k :], first), whole)


@pytest.mark.parametrize("spec", ROWS, ids=lambda spec: f"{spec.name}-{spec.products}")
def test_conversions_by_the_processor_are_those_by_integers(spec: MmaSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(11)

    def drawn(operand: Any, *shape: int) -> Any:
        form = spec.form(operand)
        bits = generator.integers(0, 1 << form.bits, shape, dtype=np.uint64)
        if isinstance(form, FloatFormat):  # a third of them small, so that results are subnormal or round to zero
            field = ((1 << form.exponent_bits) - 1) << (form.mantissa_bits + form.padding)
            small = generator.integers(0, 3, shape) == 0
            bits = np.where(small, bits & np.uint64(~field & 0xFFFFFFFFFFFFFFFF), bits)
        return bits.astype(storage(form.bits))

    operands = drawn("left", 40, 20, 2 * spec.k), drawn("right", 40, 2 * spec.k, 20), drawn("accumulator", 40, 20, 20)
    found = multiply_accumulate(spec, *operands)
    monkeypatch.setattr(exact_values, "trusted", lambda: False)
    assert np.array_equal(multiply_accumulate(spec, *operands), found)


def test_tall_wide_and_deep_operands() -> None:
    spec = ROWS[0]
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(shape).astype(np.float16).view(np.uint16) for shape in ((200, 2048), (2048, 200)))
    c = np.zeros((200, 200), dtype=np.uint32)
    whole = multiply_accumulate(spec, a, b, c)
    for i, j in ((0, 0), (199, 199), (63, 128), (64, 127)):
        assert int(whole[i, j]) == reference(spec, a[i].tolist(), b[:, j].tolist(), 0)


def test_the_order_inside_a_step_is_irrelevant_and_between_steps_it_is_not() -> None:
    spec = row(replace(WIDE, products=8), "fp16", "fp32", 8)
    one, large, small = 0x3C00, 0x7800, 0x0400  # 1, 2**15, 2**-14
    a = np.array([[large, small, 0, 0, 0, 0, 0, 0, large | 0x8000, 0, 0, 0, 0, 0, 0, 0]], dtype=np.uint16)
    b = np.full((16, 1), one, dtype=np.uint16)
    zero = np.zeros((1, 1), dtype=np.uint32)
    kept = multiply_accumulate(spec, a, b, zero)
    inside = multiply_accumulate(spec, a[:, [1, 2, 3, 0, 4, 5, 6, 7, 15, 8, 9, 10, 11, 12, 13, 14]], b, zero)
    apart = multiply_accumulate(spec, a[:, [0, 2, 3, 8, 4, 5, 6, 7, 1, 9, 10, 11, 12, 13, 14, 15]], b, zero)
    assert [int(each[0, 0]) for each in (kept, inside, apart)] == [0, 0, 0x38800000]


def test_multiply_add_of_all_borders() -> None:
    borders = [
        0,
        1,
        2,
        0xFFFFFFFFFFFFF,
        1 << 52,
        0x3FF0000000000000,
        0x3FF0000000000001,
        (0x7FF << 52) - 1,
        0x7FF << 52,
    ]
    borders += [(0x7FF << 52) + 1, 0x1F << 52, 0x7E0 << 52]
    every = np.array([*borders, *(each | 1 << 63 for each in borders)], dtype=np.uint64)
    columns = [each.ravel() for each in np.meshgrid(every, every, every)]
    expected = operation("fma.rn.fp64").evaluate(*columns)
    found = multiply_add(*(each.view(np.float64) for each in columns))
    assert np.array_equal(np.where(np.isnan(found), np.uint64(0x7FFFFFFFFFFFFFFF), found.view(np.uint64)), expected)


@given(st.lists(st.tuples(*3 * [patterns("fp64")]), min_size=1, max_size=4))
@settings(max_examples=examples(400))
def test_multiply_add_of_fp64_is_exact(lanes: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.uint64) for column in zip(*lanes, strict=True)]
    expected = operation("fma.rn.fp64").evaluate(*columns)
    found = multiply_add(*(each.view(np.float64) for each in columns))
    pattern = np.where(np.isnan(found), np.uint64(0x7FFFFFFFFFFFFFFF), found.view(np.uint64))
    assert pattern.tolist() == expected.tolist()


@given(
    st.integers(0, (1 << 53) - 1),
    st.integers(0, (1 << 53) - 1),
    st.integers(-3, 3),
    st.integers(-60, 60),
    st.booleans(),
)
@settings(max_examples=examples(400))
def test_multiply_add_near_ties_and_cancellation(left: int, right: int, off: int, shift: int, odd: bool) -> None:
    """The addend is near the negated product, or so far below it that it decides a tie."""
    one, other = float(left | 1), float(right | odd)
    addend = -(one * other) + off if shift > 20 else off * 2.0**shift
    values = [np.array([each]) for each in (one, other, addend)]
    expected = operation("fma.rn.fp64").evaluate(*(each.view(np.uint64) for each in values))
    assert multiply_add(*values).view(np.uint64).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"left": "fp17"}, "there is no format 'fp17'"),
        ({"result": "fp16"}, "an instruction's result is the next one's accumulator"),
        ({"accumulator": "fp16", "result": "fp16"}, "fp16 does not hold 23 fraction bits"),
        ({"k": 24}, "k = 24 is not a positive multiple of the 16 products of a step"),
        ({"left": "ue8m0"}, "its formats must all be signed floating-point formats"),
        ({"left": "fp64"}, "at most 24 bits"),
        ({"left": "s8"}, "its formats must all be signed floating-point formats"),
        (
            {"status": "guessed"},
            "the status 'guessed' is not one of checked on vectors, measured by us, published only",
        ),
        ({"source": "a paper"}, "its source 'a paper' is not an https address"),
        ({"family": "matrix unit"}, "must consist of letters, digits and . _ -, not 'matrix unit'"),
        ({"arithmetic": IntegerSum()}, "the formats of an integer unit must be integers of a known sign"),
        ({"arithmetic": SequentialMultiplyAdd()}, "a chain of multiply-adds has one format"),
        ({"arithmetic": FusedSum(16, 25, 23, "rz", widened="e4m3")}, "operands cannot be widened to 'e4m3'"),
        (
            {"arithmetic": replace(WIDE, products=8, order="alternate pairs"), "k": 32},
            "so products must be k / 2, not 8",
        ),
    ],
)
def test_an_inconsistent_row_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MatrixError) as raised:
        replace(ROWS[0], **changes)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FusedSum(0, 25, 23, "rz"), "a fused sum has at least one product, not 0"),
        (lambda: FusedSum(16, 13, 23, "rz"), "a fused sum truncated at 13 bits cannot be rounded to 23 bits"),
        (lambda: FusedSum(16, 48, 23, "rz"), "16 products truncated at 48 bits need more than 53 bits"),
        (lambda: FlooredSum(7, 24, 31, 24, True), "a step cannot have 7 products: give at least 1, and an even number"),
        (lambda: FlooredSum(8, 24, 48, 24), "8 products with sum_bits = 48 need more than 53 bits"),
        (lambda: FlooredSum(8, 32, 31, 24), "sum_bits must be at least product_bits and accumulator_bits"),
    ],
)
def test_an_inconsistent_rule_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(MatrixError) as raised:
        make()
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("a", "b", "c", "sentence"),
    [
        (((4, 16), "u2"), ((32, 4), "u2"), ((4, 4), "u4"), "do not fit: (4, 16), (32, 4), (4, 4)"),
        (((4, 16), "u2"), ((16, 4), "u2"), ((4, 5), "u4"), "do not fit: (4, 16), (16, 4), (4, 5)"),
        (((4, 24), "u2"), ((24, 4), "u2"), ((4, 4), "u4"), "k = 24 is not a positive multiple of the instruction's 16"),
        (((4, 0), "u2"), ((0, 4), "u2"), ((4, 4), "u4"), "k = 0 is not a positive multiple of the instruction's 16"),
        (
            ((4, 16), "f2"),
            ((16, 4), "u2"),
            ((4, 4), "u4"),
            "the left operand holds patterns of fp16, an array of uint16",
        ),
        (
            ((4, 16), "u2"),
            ((16, 4), "u4"),
            ((4, 4), "u4"),
            "the right operand holds patterns of fp16, an array of uint16",
        ),
        (
            ((4, 16), "u2"),
            ((16, 4), "u2"),
            ((4, 4), "i4"),
            "the accumulator operand holds patterns of fp32, an array of",
        ),
        (((16,), "u2"), ((16, 4), "u2"), ((4, 4), "u4"), "the left operand has two axes at least, not shape (16,)"),
        (((2, 4, 16), "u2"), ((3, 16, 4), "u2"), ((4, 4), "u4"), "(3, 16, 4) and (4, 4) do not broadcast"),
    ],
)
def test_operands_that_do_not_fit_are_refused(a: Any, b: Any, c: Any, sentence: str) -> None:
    with pytest.raises(MatrixError) as raised:
        multiply_accumulate(ROWS[0], *(np.zeros(shape, dtype=kind) for shape, kind in (a, b, c)))
    assert sentence in str(raised.value)


def test_empty_results() -> None:
    found = multiply_accumulate(
        ROWS[0], np.zeros((0, 16), np.uint16), np.zeros((16, 3), np.uint16), np.zeros((0, 3), np.uint32)
    )
    assert found.shape == (0, 3)


def test_names_and_groups_of_rows() -> None:
    assert ROWS[0].name == "mma_k16_fp32_fp16_fp16_fp32_toy_1"
    assert ROWS[-1].name == "mma_k4_s32_s8_s8_s32_satfinite_toy_1"
    assert ROWS[7].groups == (
        (0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29),
        (2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31),
    )
    assert ROWS[2].groups == ((0, 1, 2, 3), (4, 5, 6, 7))
