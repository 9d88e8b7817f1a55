"""IEEE fused multiply-add on float64 values, rounded to nearest even, for whole arrays.

Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
IEEE Transactions on Computers 57(4), 2008: the product and the sum are split without error, the two small parts are
added with rounding to odd, and one last addition rounds.  The algorithm holds while no part leaves the range of normal
numbers; elsewhere the exact integers of `bitwise_core.numerics` are used.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.numerics import operation
from bitwise_core.numerics.mma.exact_values import Values, exponent_of

_SPLITTER = 2.0**27 + 1
_FACTOR_RANGE = 480
_ADDEND_RANGE = 950


def multiply_add(left: Values, right: Values, addend: Values) -> Values:
    """left * right + addend, elementwise over arrays of one shape; every NaN is the canonical one."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(left) & np.isfinite(right)
        special_addend = ~np.isfinite(addend)
        # With a zero factor the product is exact, and with an infinity or a NaN nothing is rounded.  An infinite addend
        # absorbs a finite product, even one that overflows the format.
        plain = np.where(finite & special_addend, addend, left * right + addend)
        simple = (left == 0) | (right == 0) | ~finite | special_addend
        safe = (np.abs(exponent_of(left)) <= _FACTOR_RANGE) & (np.abs(exponent_of(right)) <= _FACTOR_RANGE)
        safe &= (addend == 0) | (np.abs(exponent_of(addend)) <= _ADDEND_RANGE)
        result = np.where(simple, plain, _emulated(left, right, addend))
    rest = ~(simple | safe)
    if rest.any():
        fma = operation("fma.rn.fp64")
        result[rest] = fma.evaluate(*(each[rest].view(np.uint64) for each in (left, right, addend))).view(np.float64)
    return result


def _two_sum(left: Values, right: Values) -> tuple[Values, Values]:
    total = left + right
    back = total - left
    return total, (left - (total - back)) + (right - back)


def _split(value: Values) -> tuple[Values, Values]:
    scaled = value * _SPLITTER
    high = scaled - (scaled - value)
    return high, value - high


def _two_product(left: Values, right: Values) -> tuple[Values, Values]:
    product = left * right
    (left_high, left_low), (right_high, right_low) = _split(left), _split(right)
    error = ((left_high * right_high - product) + left_high * right_low + left_low * right_high) + left_low * right_low
    return product, error


def _emulated(left: Values, right: Values, addend: Values) -> Values:
    high, low = _two_product(left, right)
    upper, small = _two_sum(addend, low)
    total, rest = _two_sum(high, upper)
    tail, error = _two_sum(small, rest)
    # Round to odd: where the sum is inexact and its last bit is even, take the odd neighbour on the side of the error.
    bits = tail.view(np.int64)
    away = (error > 0) == (tail > 0)
    odd = np.where((error != 0) & (bits & 1 == 0), bits + np.where(away, 1, -1), bits).view(np.float64)
    return total + odd
