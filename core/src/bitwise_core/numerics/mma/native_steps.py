"""The arithmetic of one native step, on exact values, for many results at once.

Factors come as arrays with k first: left (k, batch, m, 1) and right (k, batch, 1, n); accumulators and results are
(batch, m, n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.numerics import FloatFormat
from bitwise_core.numerics.mma.exact_values import (
    ABSENT,
    Exponents,
    Values,
    Wide,
    exponent_of,
    nearest,
    overflowed,
    power,
    quantise,
)
from bitwise_core.numerics.mma.spec import FlooredSum, FusedSum

LOWEST = -400
"""Below every exponent of a product of two operands; the alignment exponent of a step of zeros only."""
_LIMIT_EXPONENT = 128
_PRODUCT_LIMIT = 2.0**_LIMIT_EXPONENT


@dataclass(frozen=True, slots=True)
class Factors:
    """The exact values and exponents of the left or right operands, k first."""

    values: Values
    exponents: Exponents

    def at(self, ks: tuple[int, ...]) -> Factors:
        """Return the operands at the indices `ks` of k."""
        if ks == tuple(range(ks[0], ks[-1] + 1)):
            return Factors(self.values[ks[0] : ks[-1] + 1], self.exponents[ks[0] : ks[-1] + 1])
        return Factors(self.values[list(ks)], self.exponents[list(ks)])


def accumulator_exponent(values: Values, smallest: int, zero: int | None) -> Exponents:
    """Return accumulators' exponents: `smallest` for subnormals, `zero` for zeros (None: ABSENT), else their own."""
    exponent = np.maximum(exponent_of(values), smallest).astype(np.int16)
    finite = np.isfinite(values)
    if not finite.all():
        exponent[~finite] = ABSENT
    if zero != smallest:
        exponent[values == 0] = ABSENT if zero is None else zero
    return exponent


def _largest(left: Factors, right: Factors, top: Exponents) -> Wide:
    """Return the largest exponent of the products and `top`, which is overwritten."""
    each = np.empty_like(top)
    for one, other in zip(left.exponents, right.exponents, strict=True):
        np.add(one, other, out=each)
        np.maximum(top, each, out=top)
    return top.astype(np.int64)


def _cut_sum(left: Factors, right: Factors, scale: Values, total: Values, limit: float | None = None) -> Values:
    """Add every product times `scale`, cut toward zero, to `total`, in place.

    All terms are integers below 2**53, so that the order of the additions has no effect.  A product whose magnitude is
    at least `limit` is an infinity.
    """
    each = np.empty_like(total)
    for one, other in zip(left.values, right.values, strict=True):
        np.multiply(one, other, out=each)
        if limit is not None:
            beyond = np.abs(each) >= limit
            if beyond.any():
                each[beyond] = np.copysign(np.inf, each[beyond])
        each *= scale
        np.trunc(each, out=each)
        total += each
    return total


def fused_step(rule: FusedSum, form: FloatFormat, left: Factors, right: Factors, accumulator: Values) -> Values:
    """Evaluate one truncating fused sum of the products of all factors and the accumulator, rounded once."""
    exponent = accumulator_exponent(accumulator, form.smallest_exponent, rule.zero_exponent)
    top = _largest(left, right, exponent)
    np.maximum(top, LOWEST if rule.least_exponent is None else rule.least_exponent, out=top)
    scale = power(rule.fraction_bits - top)
    total = _cut_sum(left, right, scale, np.trunc(accumulator * scale))
    total *= power(top - rule.fraction_bits)
    rounded = quantise(total, rule.mantissa_bits, form.smallest_exponent, rule.rounding)
    # A zero is +0, even where truncation removed negative terms.
    return overflowed(np.where(rounded == 0, 0.0, rounded), form)


def floored_step(rule: FlooredSum, form: FloatFormat, left: Factors, right: Factors, accumulator: Values) -> Values:
    """Evaluate one step of a FlooredSum: products are truncated and summed, then added to the accumulator."""
    count = len(left.values)
    parts = [tuple(range(0, count, 2)), tuple(range(1, count, 2))] if rule.parity_split else [tuple(range(count))]
    sums, tops = [], []
    for part in parts:
        chosen = left.at(part), right.at(part)
        top = np.maximum(_largest(*chosen, np.full(accumulator.shape, 2 * ABSENT, dtype=np.int16)), LOWEST)
        # Two significands have a product below 4.
        limit = _PRODUCT_LIMIT if top.max(initial=LOWEST) >= _LIMIT_EXPONENT - 1 else None
        sums.append(_cut_sum(*chosen, power(rule.product_bits - top), np.zeros(accumulator.shape), limit))
        tops.append(top)
    top, products = tops[0], sums[0]
    if rule.parity_split:
        top = np.maximum(*tops)
        products = np.floor(sums[0] * power(tops[0] - top)) + np.floor(sums[1] * power(tops[1] - top))
    smallest = form.smallest_exponent
    exponent = accumulator_exponent(accumulator, smallest, smallest).astype(np.int64)
    joint = np.maximum(top, exponent)
    addend = np.floor(accumulator * power(rule.accumulator_bits - joint))
    if rule.parity_split:
        dropped = (exponent < joint - rule.accumulator_bits - 1) & np.isfinite(accumulator)
        addend = np.where(dropped, 0.0, addend)
    # Both are integers, in units of the lowest kept bit of the products.
    addend *= 2.0 ** (rule.sum_bits - rule.accumulator_bits)
    products *= power(top - joint + (rule.sum_bits - rule.product_bits))
    addend += np.floor(products, out=products)
    addend *= power(joint - rule.sum_bits)
    rounded = nearest(addend, form)
    return np.where(rounded == 0, 0.0, rounded)


def add_last(form: FloatFormat, sums: Values, accumulator: Values) -> Values:
    """Add two numbers of the format, rounded to nearest even.

    Numbers of at most 24 bits are added in float64 first: 53 bits are at least twice 24 plus two, so that rounding
    twice gives the same result as rounding once.
    """
    return nearest(sums + accumulator, form)
