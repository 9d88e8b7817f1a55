"""Directed test cases for matrix units: rounding, zeros, underflow, infinities and NaNs, each with a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_bench.matrix_units.operands import Operands, compose
from bitwise_core.numerics import FloatFormat, storage
from bitwise_core.numerics.mma import MmaSpec


@dataclass(frozen=True, slots=True)
class DirectedCase:
    """One row of a, one column of b (both of length k) and one accumulator, as bit patterns."""

    label: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int


def _power(form: FloatFormat, exponent: int, fraction: int = 0, negative: int = 0) -> int:
    fraction &= (1 << form.mantissa_bits) - 1
    return int(compose(form, np.array([negative]), np.array([exponent]), np.array([fraction]))[0])


def directed_cases(spec: MmaSpec) -> list[DirectedCase]:
    """Return the directed cases of a unit with floating-point operands."""
    left, right, result = (spec.form(name) for name in ("left", "right", "result"))
    assert isinstance(left, FloatFormat)
    assert isinstance(right, FloatFormat)
    assert isinstance(result, FloatFormat)
    k, minus = spec.k, 1 << (result.bits - 1)
    zeros = (0,) * k
    negatives = 1 << (left.bits - 1), 1 << (right.bits - 1)
    found: list[DirectedCase] = []

    def first(label: str, a: int, b: int, c: int) -> None:
        """Add a case with one product; the others are +0 times +0."""
        found.append(DirectedCase(label, (a, *zeros[1:]), (b, *zeros[1:]), c))

    starts = {"+0": 0, "-0": minus, "1": result.one, "-1": result.one | minus, "smallest": 1, "-smallest": minus | 1}
    for name, c in starts.items():
        for label, a, b in (("+0 * +0", 0, 0), ("-0 * +0", negatives[0], 0), ("-0 * 1", negatives[0], right.one)):
            found.append(DirectedCase(f"every product {label}, c = {name}", (a,) * k, (b,) * k, c))
    found += _small_products(spec, left, right, result) + _carries(spec, left, right, result)
    # Whether the exponent of a product with a zero factor takes part in the maximum.
    top = right.largest_exponent
    for exponent in range(result.smallest_exponent, 3, max(1, -result.smallest_exponent // 24)):
        c = _power(result, exponent, (1 << result.mantissa_bits) - 1)
        first(f"0 * 2^{top}, c = 1.11..1 * 2^{exponent}", 0, _power(right, top), c)
        first(f"2^{left.largest_exponent} * 0, c = 1.11..1 * 2^{exponent}", _power(left, left.largest_exponent), 0, c)
    # NaNs with payloads, and operations that produce NaNs and infinities.
    fraction = result.mantissa_bits
    infinity = result.infinity or 0
    payloads = {
        "quiet": infinity | 1 << (fraction - 1) | 5,
        "signalling": infinity | 5,
        "canonical": infinity | (1 << fraction) - 1,
    }
    for name, c in payloads.items():
        for sign in (0, minus):
            first(f"c = {'-' if sign else ''}{name} NaN", left.one, right.one, c | sign)
            found.append(DirectedCase(f"c = {'-' if sign else ''}{name} NaN, every product 0", zeros, zeros, c | sign))
    if left.canonical_nan is not None and right.canonical_nan is not None:
        first("a = NaN", left.canonical_nan, right.one, result.one)
        first("b = -NaN", left.one, right.canonical_nan | negatives[1], result.one)
        first("a = NaN, b = 0", left.canonical_nan, 0, result.one)
        first("a = NaN, c = inf", left.canonical_nan, right.one, infinity)
    for sign in (0, minus):
        first(f"c = {'-' if sign else '+'}inf", left.one, right.one, infinity | sign)
    if left.infinity is not None and right.infinity is not None:
        first("inf * 1", left.infinity, right.one, result.one)
        first("-inf * 1", left.infinity | negatives[0], right.one, result.one)
        first("inf * 0", left.infinity, 0, result.one)
        first("inf * 1, c = -inf", left.infinity, right.one, infinity | minus)
        first("inf * 1, c = inf", left.infinity, right.one, infinity)
    return found


def _small_products(spec: MmaSpec, left: FloatFormat, right: FloatFormat, result: FloatFormat) -> list[DirectedCase]:
    """Return cases of k products of one power of two near the smallest result, with small accumulators."""
    found = []
    lowest = left.smallest_bit + right.smallest_bit
    for exponent in range(max(lowest, result.smallest_bit - 30), result.smallest_exponent + 12):
        one = max(min(exponent // 2, left.largest_exponent), left.smallest_bit, exponent - right.largest_exponent)
        other = exponent - one
        if (
            not left.smallest_bit <= one <= left.largest_exponent
            or not right.smallest_bit <= other <= right.largest_exponent
        ):
            continue
        a, b = _power(left, one), _power(right, other)
        minus = 1 << (result.bits - 1)
        for name, c in (("+0", 0), ("-0", minus), ("smallest", 1), ("smallest normal", 1 << result.mantissa_bits)):
            found.append(
                DirectedCase(f"{spec.k} products of 2^{exponent}, c = {name}", (a,) * spec.k, (b,) * spec.k, c)
            )
    return found


def _carries(spec: MmaSpec, left: FloatFormat, right: FloatFormat, result: FloatFormat) -> list[DirectedCase]:
    """Return cases of 23 * 89 + 1 = 2^11 in small units, a sum that shows whether a bit of a product is truncated."""
    found: list[DirectedCase] = []
    if min(left.mantissa_bits, right.mantissa_bits) < 6 or spec.k < 2:
        return found
    for unit in range(result.smallest_bit - 12, result.smallest_bit + 14):
        one = unit // 2
        if one < left.smallest_bit or unit - one < right.smallest_bit:
            continue
        a = (_power(left, one + 4, 23 << (left.mantissa_bits - 4)), _power(left, one), *(0,) * (spec.k - 2))
        b = (
            _power(right, unit - one + 6, 89 << (right.mantissa_bits - 6)),
            _power(right, unit - one),
            *(0,) * (spec.k - 2),
        )
        found.append(DirectedCase(f"23 * 89 * 2^{unit} + 2^{unit}, c = +0", a, b, 0))
    return found


def tiles(spec: MmaSpec, found: list[DirectedCase], m: int, n: int) -> Operands:
    """Return one tile for each case, all of whose rows, columns and accumulators are those of the case."""
    shapes = {"left": (len(found), spec.k), "right": (len(found), spec.k)}
    a = np.array([each.a for each in found], dtype=storage(spec.form("left").bits)).reshape(shapes["left"])
    b = np.array([each.b for each in found], dtype=storage(spec.form("right").bits)).reshape(shapes["right"])
    c = np.array([each.c for each in found], dtype=storage(spec.form("accumulator").bits))
    return Operands(
        np.repeat(a[:, None, :], m, axis=1), np.repeat(b[:, :, None], n, axis=2),
        np.broadcast_to(c[:, None, None], (len(found), m, n)).copy(),
    )  # fmt: skip
