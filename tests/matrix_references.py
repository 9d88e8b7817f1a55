"""The reference model of matrix units: one element at a time, in exact rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, IntegerFormat, operation, storage
from bitwise_core.numerics.mma import FlooredSum, FusedSum, IntegerSum, MmaSpec, SequentialMultiplyAdd

Number: TypeAlias = Fraction | float
"""An exact number, or an infinity or NaN as a float."""
Term: TypeAlias = tuple[Number, int | None]
"""A number and the exponent it is aligned with, None for a term that is not aligned."""


def read(pattern: int, form: FloatFormat) -> tuple[Number, int]:
    """Return the number of a pattern and the exponent of its leading bit (the smallest for zeros and subnormals)."""
    if form.is_nan(pattern):
        return math.nan, 0
    sign = -1 if pattern >> (form.bits - 1) else 1
    magnitude = (pattern >> form.padding) & ((1 << form.magnitude_bits) - 1)
    field, fraction = magnitude >> form.mantissa_bits, magnitude & ((1 << form.mantissa_bits) - 1)
    if form.infinities and field == form.largest_exponent_field:
        return sign * math.inf, 0
    exponent = max(field, 1) - form.bias
    significand = fraction + ((field > 0) << form.mantissa_bits)
    return sign * significand * Fraction(2) ** (exponent - form.mantissa_bits), exponent


def exponent_of(number: Fraction) -> int:
    """The exponent of the leading place of a number that is not zero."""
    exponent = abs(number).numerator.bit_length() - number.denominator.bit_length()
    return exponent if abs(number) >= Fraction(2) ** exponent else exponent - 1


def nearest(number: Fraction) -> int:
    """The nearest integer, ties to even."""
    return round(number)


def toward_zero(number: Fraction) -> int:
    return math.trunc(number)


def write(number: Number, form: FloatFormat, mantissa_bits: int, to_integer: object) -> int:
    """The pattern of a number rounded to `mantissa_bits` by `to_integer`; a zero is +0."""
    assert callable(to_integer)
    if isinstance(number, float) and math.isnan(number):
        assert form.canonical_nan is not None
        return form.canonical_nan
    sign, magnitude = int(number < 0) << (form.bits - 1), form.infinity
    assert magnitude is not None
    if not isinstance(number, float):
        exponent = max(exponent_of(number) if number else form.smallest_exponent, form.smallest_exponent)
        unit = Fraction(2) ** (exponent - mantissa_bits)
        rounded = to_integer(number / unit) * unit
        if rounded == 0:
            return 0
        if abs(rounded) >= Fraction(2) ** (form.largest_exponent + 1):
            return sign | magnitude
        exponent = max(exponent_of(rounded), form.smallest_exponent)
        whole = abs(rounded) / Fraction(2) ** (exponent - form.mantissa_bits)
        assert whole.denominator == 1
        magnitude = ((exponent - form.smallest_exponent) << form.mantissa_bits) + whole.numerator
    return sign | magnitude << form.padding


def total(numbers: list[Number]) -> Number:
    """The sum, exact; infinities and NaNs as IEEE adds them."""
    special = [each for each in numbers if isinstance(each, float)]
    return sum(special) if special else sum((Fraction(each) for each in numbers), Fraction(0))


def product(left: Number, right: Number) -> Number:
    """The exact product; an infinity times zero, and anything times NaN, is NaN."""
    if not isinstance(left, float) and not isinstance(right, float):
        return left * right
    if any(each != each or each == 0 for each in (left, right)):
        return math.nan
    return math.inf if (left > 0) == (right > 0) else -math.inf


def aligned(term: Number, top: int, bits: int, to_integer: object) -> Number:
    """Return a term rounded to a multiple of 2**(top - bits) by `to_integer`."""
    assert callable(to_integer)
    if isinstance(term, float):
        return term
    unit = Fraction(2) ** (top - bits)
    return Fraction(to_integer(term / unit)) * unit


def products_of(spec: MmaSpec, a: list[int], b: list[int]) -> list[Term]:
    """Exact products, with the sum of their factors' exponents."""
    left, right = spec.form("left"), spec.form("right")
    assert isinstance(left, FloatFormat)
    assert isinstance(right, FloatFormat)
    terms: list[Term] = []
    for one, other in zip(a, b, strict=True):
        (x, x_exponent), (y, y_exponent) = read(one, left), read(other, right)
        value = product(x, y)
        taken = not isinstance(value, float) and value != 0
        terms.append((value, x_exponent + y_exponent if taken else None))
    return terms


def widened(rule: FusedSum, pattern: int, form: FloatFormat) -> tuple[Number, int]:
    """An operand and its exponent, as a number of the format that the rule widens it to."""
    number, exponent = read(pattern, form)
    if rule.widened is None or isinstance(number, float) or number == 0:
        return number, exponent
    return number, max(exponent_of(number), FLOAT_FORMATS[rule.widened].smallest_exponent)


def fused_products(spec: MmaSpec, rule: FusedSum, a: list[int], b: list[int]) -> list[Term]:
    """Exact products, with the sum of their factors' exponents once they are widened."""
    left, right = spec.form("left"), spec.form("right")
    assert isinstance(left, FloatFormat)
    assert isinstance(right, FloatFormat)
    terms: list[Term] = []
    for one, other in zip(a, b, strict=True):
        (x, x_exponent), (y, y_exponent) = widened(rule, one, left), widened(rule, other, right)
        value = product(x, y)
        taken = not isinstance(value, float) and (rule.zero_products or value != 0)
        terms.append((value, x_exponent + y_exponent if taken else None))
    return terms


def fused(spec: MmaSpec, rule: FusedSum, a: list[int], b: list[int], c: int) -> int:
    """One step: all the products and the accumulator in one sum."""
    form = spec.form("result")
    assert isinstance(form, FloatFormat)
    terms = fused_products(spec, rule, a, b)
    number, exponent = read(c, form)
    aligning: int | None = exponent
    if number == 0:
        aligning = rule.zero_exponent
    if isinstance(number, float):
        aligning = None
    terms.append((number, aligning))
    tops = [each for _, each in terms if each is not None]
    top = max([*tops, *([rule.least_exponent] if rule.least_exponent is not None else [])], default=0)
    value = total([aligned(term, top, rule.fraction_bits, toward_zero) for term, _ in terms])
    return write(value, form, rule.mantissa_bits, toward_zero if rule.rounding == "rz" else nearest)


def floored(spec: MmaSpec, rule: FlooredSum, a: list[int], b: list[int], c: int) -> int:
    """One step: the products first, then the accumulator."""
    form = spec.form("result")
    assert isinstance(form, FloatFormat)
    terms: list[Term] = []
    for value, exponent in products_of(spec, a, b):
        large = not isinstance(value, float) and abs(value) >= Fraction(2) ** 128
        terms.append(((math.inf if value > 0 else -math.inf) if large else value, exponent))
    halves = [terms[0::2], terms[1::2]] if rule.parity_split else [terms]
    tops = [max((each for _, each in half if each is not None), default=-400) for half in halves]
    sums = [
        total([aligned(term, top, rule.product_bits, toward_zero) for term, _ in half])
        for half, top in zip(halves, tops, strict=True)
    ]
    top = max(tops)
    value = total([aligned(each, top, rule.product_bits, math.floor) for each in sums])
    number, exponent = read(c, form)
    if isinstance(number, float):
        exponent = -12000
    joint = max(top, exponent)
    addend = aligned(number, joint, rule.accumulator_bits, math.floor)
    if rule.parity_split and not isinstance(number, float) and exponent < joint - rule.accumulator_bits - 1:
        addend = Fraction(0)
    return write(total([aligned(value, joint, rule.sum_bits, math.floor), addend]), form, form.mantissa_bits, nearest)


def reference(spec: MmaSpec, a: list[int], b: list[int], c: int) -> int:
    """The pattern of c + a b for one row of a and one column of b."""
    rule = spec.arithmetic
    for low in range(0, len(a), spec.k):
        start = 0 if isinstance(rule, FusedSum) and rule.accumulator_last else c
        value = start
        for group in spec.groups:
            left, right = [a[low + k] for k in group], [b[low + k] for k in group]
            if isinstance(rule, FusedSum):
                value = fused(spec, rule, left, right, value)
            elif isinstance(rule, FlooredSum):
                value = floored(spec, rule, left, right, value)
            elif isinstance(rule, IntegerSum):
                value = integers(spec, rule, left, right, value)
            else:
                value = multiply_add(spec, rule, left[0], right[0], value)
        c = (
            _scalar(f"add.rn.{spec.result}", value, c)
            if isinstance(rule, FusedSum) and rule.accumulator_last
            else value
        )
    return c


def integers(spec: MmaSpec, rule: IntegerSum, a: list[int], b: list[int], c: int) -> int:
    def signed(pattern: int, name: object) -> int:
        assert isinstance(name, IntegerFormat)
        return pattern - (1 << name.bits) if name.signed and pattern >> (name.bits - 1) else pattern

    pairs = zip(a, b, strict=True)
    value = signed(c, spec.form("result")) + sum(
        signed(one, spec.form("left")) * signed(other, spec.form("right")) for one, other in pairs
    )
    if rule.saturate:
        value = min(max(value, -(1 << 31)), (1 << 31) - 1)
    return value % (1 << 32)


def multiply_add(spec: MmaSpec, rule: SequentialMultiplyAdd, left: int, right: int, addend: int) -> int:
    result, form = _scalar(f"fma.rn.{spec.result}", left, right, addend), spec.form("result")
    assert isinstance(form, FloatFormat)
    if not rule.nan_order or not form.is_nan(result):
        return result
    given = {"left": left, "right": right, "accumulator": addend}
    for name in rule.nan_order:
        if form.is_nan(given[name]):
            return given[name] | 1 << (form.mantissa_bits - 1)
    return rule.made_nan


def _scalar(name: str, *patterns: int) -> int:
    import numpy as np

    meaning = operation(name)
    kind = storage(meaning.result.bits)
    return int(meaning.evaluate(*(np.array([each], dtype=kind) for each in patterns))[0])
