"""Exact arithmetic on unpacked numbers, and the single rounding step that packs them.

Every operation returns the exact result as a significand of 63 bits whose lowest bit is sticky: it is also set where
any lower bit is.  A format keeps at most 53 bits, so the rounding in `pack` has enough information to be correct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from bitwise_core.numerics.formats import FloatFormat
from bitwise_core.numerics.word_arithmetic import (
    EXPONENT_OF_ZERO,
    LEADING_BIT,
    Bits,
    Booleans,
    Integers,
    Words,
    divide_sticky,
    multiply_high_low,
    normalise,
    shift_left,
    shift_right_sticky,
    square_root_sticky,
    storage,
    words,
)

Rounding: TypeAlias = Literal["rn", "rz", "ru", "rd", "rna"]
"""To nearest with ties to even, toward zero, toward +inf, toward -inf, to nearest with ties away from zero."""
ROUNDINGS: tuple[Rounding, ...] = ("rn", "rz", "ru", "rd", "rna")

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Numbers (-1)**sign * significand * 2**exponent, NaNs, and infinities of that sign.

    A significand is zero or has its highest set bit at LEADING_BIT; those of NaNs and infinities are zero.
    """

    sign: Booleans
    exponent: Integers
    significand: Words
    nan: Booleans
    infinite: Booleans

    @property
    def zero(self) -> Booleans:
        """Where the number is a zero of either sign."""
        return np.asarray((self.significand == 0) & ~self.nan & ~self.infinite)


def magnitude_of(bits: Bits, form: FloatFormat) -> Words:
    """Return the exponent and mantissa fields as one integer."""
    return (words(bits) >> np.uint64(form.padding)) & np.uint64((1 << form.magnitude_bits) - 1)


def sign_of(bits: Bits, form: FloatFormat) -> Booleans:
    """Return where the sign bit is set."""
    if not form.signed:
        return np.zeros(bits.shape, dtype=np.bool_)
    return np.asarray(words(bits) >> np.uint64(form.bits - 1) & _ONE, dtype=np.bool_)


def nan_of(bits: Bits, form: FloatFormat) -> Booleans:
    """Return where the pattern is a NaN."""
    magnitude = magnitude_of(bits, form)
    if form.nan == "exponent":
        return np.asarray(magnitude > np.uint64(form.largest_exponent_field << form.mantissa_bits))
    if form.nan == "all_ones":
        return np.asarray(magnitude == np.uint64((1 << form.magnitude_bits) - 1))
    if form.nan == "negative_zero":
        return np.asarray(sign_of(bits, form) & (magnitude == 0))
    return np.zeros(bits.shape, dtype=np.bool_)


def join(sign: Booleans, magnitude: Words, nan: Booleans, form: FloatFormat) -> Bits:
    """Return patterns from their fields; the canonical NaN where `nan` is set."""
    packed = magnitude << np.uint64(form.padding)
    if form.signed:
        packed = packed | (words(sign) << np.uint64(form.bits - 1))
        if form.nan == "negative_zero":
            packed = np.where(magnitude == 0, _ZERO, packed)
    if form.canonical_nan is not None:
        packed = np.where(nan, np.uint64(form.canonical_nan), packed)
    return np.asarray(packed.astype(storage(form.bits)))


def flush(bits: Bits, form: FloatFormat) -> Bits:
    """Replace subnormal numbers by the zero of their sign."""
    magnitude = magnitude_of(bits, form)
    small = (magnitude < np.uint64(1 << form.mantissa_bits)) & ~nan_of(bits, form)
    return join(sign_of(bits, form), np.where(small, _ZERO, magnitude), nan_of(bits, form), form)


def unpack(bits: Bits, form: FloatFormat) -> Unpacked:
    """Return patterns of a format as unpacked numbers."""
    sign, magnitude, nan = sign_of(bits, form), magnitude_of(bits, form), nan_of(bits, form)
    field = (magnitude >> np.uint64(form.mantissa_bits)).astype(np.int64)
    fraction = magnitude & np.uint64((1 << form.mantissa_bits) - 1)
    infinite = np.zeros(bits.shape, dtype=np.bool_)
    if form.infinities:
        infinite = np.asarray((field == form.largest_exponent_field) & (fraction == 0))
    if form.subnormals:
        significand = fraction | ((field > 0).astype(np.uint64) << np.uint64(form.mantissa_bits))
        exponent = np.maximum(field, 1) - np.int64(form.bias + form.mantissa_bits)
    else:
        significand = np.ones_like(fraction)
        exponent = field - np.int64(form.bias)
    significand, exponent = normalise(np.where(nan | infinite, _ZERO, significand), exponent)
    return Unpacked(sign, exponent, significand, nan, infinite)


def round_increment(rounding: Rounding, sign: Booleans, odd: Booleans, rest: Words, half: Words) -> Booleans:
    """Return where the kept magnitude is incremented; `rest` was dropped, `half` is half a unit of the kept part."""
    if rounding == "rn":
        return np.asarray((rest > half) | ((rest == half) & odd))
    if rounding == "rna":
        return np.asarray(rest >= half)
    if rounding == "ru":
        return np.asarray((rest != 0) & ~sign)
    if rounding == "rd":
        return np.asarray((rest != 0) & sign)
    return np.zeros(rest.shape, dtype=np.bool_)


def _toward_zero(rounding: Rounding, sign: Booleans) -> Booleans:
    """Return where a directed rounding goes toward zero, so that an overflow stays finite."""
    if rounding == "ru":
        return sign
    return ~sign if rounding == "rd" else np.full(sign.shape, rounding == "rz")


def split(significand: Words, drop: Integers) -> tuple[Words, Words, Words]:
    """Drop `drop` (1 or more) low bits.  Returns the kept part, the rest, and half a unit of the kept part."""
    inside = np.minimum(drop, 63)
    unit = shift_left(np.broadcast_to(_ONE, inside.shape), inside)
    # Beyond 63 the number is below half a unit; any nonzero rest below half represents it.
    value: Words = np.where(drop > 63, words(significand != 0), significand)
    return value >> inside.astype(np.uint64), value & (unit - _ONE), unit >> _ONE


def pack(
    number: Unpacked, form: FloatFormat, rounding: Rounding, saturate: bool = False, flush_tiny: bool = False
) -> Bits:
    """Round to a format and return the patterns.

    With `saturate`, an overflow or an infinity becomes the largest finite number.  Without it an overflow gives the
    IEEE 754 result of the rounding, and a NaN where that is an infinity and the format has none.  With `flush_tiny`, a
    result smaller than every normal number becomes a zero of its sign; that is decided after rounding to the format's
    precision with unbounded exponents.  Raises ValueError for a format without subnormals.
    """
    if not form.subnormals:
        raise ValueError(f"rounding to {form.name} is not defined: it has neither zero nor sign")
    exponent = np.where(number.significand == 0, np.int64(form.smallest_exponent), number.exponent + LEADING_BIT)
    below = np.maximum(np.int64(form.smallest_exponent) - exponent, 0)
    kept, rest, half = split(number.significand, below + np.int64(LEADING_BIT - form.mantissa_bits))
    odd = np.asarray(kept & _ONE, dtype=np.bool_)
    kept = kept + round_increment(rounding, number.sign, odd, rest, half)
    # The implicit one increments the exponent field, and so does a carry out of the mantissa.
    field = np.clip(exponent - np.int64(form.smallest_exponent), 0, form.largest_exponent_field + 1)
    magnitude = (field.astype(np.uint64) << np.uint64(form.mantissa_bits)) + kept
    if flush_tiny:
        # With unbounded exponents, a carry to the next power of two makes the result normal.
        full, cut, unit = split(number.significand, np.full_like(below, LEADING_BIT - form.mantissa_bits))
        full = full + round_increment(rounding, number.sign, np.asarray(full & _ONE, dtype=np.bool_), cut, unit)
        carried = full >> np.uint64(form.precision) != 0
        magnitude = np.where(below > carried, _ZERO, magnitude)
    largest = np.uint64(form.largest_magnitude)
    overflow = (magnitude > largest) & ~number.infinite
    nan = number.nan
    if saturate:
        magnitude = np.where(overflow | number.infinite, largest, magnitude)
    else:
        stays = np.asarray(overflow & _toward_zero(rounding, number.sign))
        away = (overflow & ~stays) | number.infinite
        magnitude = np.where(stays, largest, magnitude)
        magnitude = np.where(away, np.uint64(form.largest_exponent_field << form.mantissa_bits), magnitude)
        if not form.infinities:
            nan = nan | away
    return join(number.sign, magnitude, np.asarray(nan), form)


def add(left: Unpacked, right: Unpacked, rounding: Rounding) -> Unpacked:
    """Return the exact sum of operands of at most 60 significant bits; `rounding` decides the sign of an exact zero."""
    swap = (right.exponent > left.exponent) | (
        (right.exponent == left.exponent) & (right.significand > left.significand)
    )
    sign = np.where(swap, right.sign, left.sign)
    exponent = np.where(swap, right.exponent, left.exponent)
    large = np.where(swap, right.significand, left.significand)
    large = (large >> _ONE) | (large & _ONE)
    small = np.where(swap, left.significand, right.significand) >> _ONE
    small = shift_right_sticky(small, exponent - np.where(swap, left.exponent, right.exponent))
    total = np.where(left.sign == right.sign, large + small, large - small)
    cancelled = np.where(left.sign == right.sign, left.sign, np.bool_(rounding == "rd"))
    sign = np.where(total == 0, cancelled, sign)
    infinite = left.infinite | right.infinite
    sign = np.where(infinite, np.where(left.infinite, left.sign, right.sign), sign)
    nan = left.nan | right.nan | (left.infinite & right.infinite & (left.sign != right.sign))
    total, exponent = normalise(np.where(infinite, _ZERO, total), exponent + 1)
    return Unpacked(sign, exponent, total, np.asarray(nan), np.asarray(infinite & ~nan))


def negate(number: Unpacked) -> Unpacked:
    """Return the number with the opposite sign."""
    return Unpacked(~number.sign, number.exponent, number.significand, number.nan, number.infinite)


def multiply(left: Unpacked, right: Unpacked) -> Unpacked:
    """Return the product, exact where the significands have at most 60 bits in total, and sticky otherwise."""
    high, low = multiply_high_low(left.significand, right.significand)
    exponent = left.exponent + right.exponent + 64
    significand, exponent = normalise(high | (low != 0), exponent)
    nan = left.nan | right.nan | (left.infinite & right.zero) | (left.zero & right.infinite)
    infinite = (left.infinite | right.infinite) & ~nan
    return Unpacked(left.sign ^ right.sign, exponent, significand, np.asarray(nan), np.asarray(infinite))


def divide(left: Unpacked, right: Unpacked) -> Unpacked:
    """Return the quotient; a nonzero finite number divided by zero is an infinity."""
    quotient = divide_sticky(left.significand >> np.uint64(10), right.significand >> np.uint64(10))
    is_zero = left.zero | right.infinite
    significand, exponent = normalise(
        np.where(is_zero | left.infinite | right.zero, _ZERO, quotient), left.exponent - right.exponent - 60
    )
    nan = left.nan | right.nan | (left.infinite & right.infinite) | (left.zero & right.zero)
    infinite = (left.infinite | right.zero) & ~nan
    return Unpacked(left.sign ^ right.sign, exponent, significand, np.asarray(nan), np.asarray(infinite))


def square_root(number: Unpacked) -> Unpacked:
    """Return the square root; that of -0 is -0, and that of any other negative number is NaN."""
    odd = np.asarray(number.exponent & 1, dtype=np.bool_)
    root = square_root_sticky(number.significand << odd.astype(np.uint64))
    significand, exponent = normalise(root, (number.exponent - odd) // 2 - 28)
    nan = number.nan | (number.sign & ~number.zero)
    return Unpacked(number.sign, exponent, significand, nan, number.infinite & ~nan)


def multiply_add(left: Unpacked, right: Unpacked, addend: Unpacked, rounding: Rounding, precision: int) -> Unpacked:
    """Return product plus addend, exact, for significands of `precision` bits."""
    if 2 * precision <= 60:
        return add(multiply(left, right), addend, rounding)
    product, addend, left, right = _broadcast(multiply(left, right), addend, left, right)
    return add(*_exact_pair(left, right, product, addend), rounding)


def _broadcast(*numbers: Unpacked) -> list[Unpacked]:
    shape = np.broadcast_shapes(*(number.sign.shape for number in numbers))
    return [
        Unpacked(
            np.broadcast_to(number.sign, shape),
            np.broadcast_to(number.exponent, shape),
            np.broadcast_to(number.significand, shape),
            np.broadcast_to(number.nan, shape),
            np.broadcast_to(number.infinite, shape),
        )
        for number in numbers
    ]


def _exact_pair(left: Unpacked, right: Unpacked, product: Unpacked, addend: Unpacked) -> tuple[Unpacked, Unpacked]:
    """Replace a nonzero product and addend by their sum and a zero.

    The product of two wide significands does not fit in a word, so the sum is computed with Python's integers.
    """
    sign, exponent, significand = product.sign.copy(), product.exponent.copy(), product.significand.copy()
    rest_sign, rest_exponent, rest = addend.sign.copy(), addend.exponent.copy(), addend.significand.copy()
    for lane in zip(*np.nonzero((significand != 0) & (rest != 0)), strict=True):
        exact = left.significand[lane].item() * right.significand[lane].item()
        total, scale = _sum(
            -exact if sign[lane] else exact,
            (left.exponent[lane] + right.exponent[lane]).item(),
            -rest[lane].item() if rest_sign[lane] else rest[lane].item(),
            rest_exponent[lane].item(),
        )
        if total == 0:
            continue  # the magnitudes are equal, so the product fits in a word and `add` handles the cancellation
        excess = abs(total).bit_length() - 1 - LEADING_BIT
        kept = abs(total) >> excess if excess > 0 else abs(total) << -excess
        sticky = excess > 0 and kept << excess != abs(total)
        sign[lane], exponent[lane], significand[lane] = total < 0, scale + excess, kept | sticky
        rest_sign[lane], rest_exponent[lane], rest[lane] = total < 0, EXPONENT_OF_ZERO, 0
    return (
        Unpacked(sign, exponent, significand, product.nan, product.infinite),
        Unpacked(rest_sign, rest_exponent, rest, addend.nan, addend.infinite),
    )


def _sum(left: int, left_exponent: int, right: int, right_exponent: int) -> tuple[int, int]:
    low = min(left_exponent, right_exponent)
    return (left << (left_exponent - low)) + (right << (right_exponent - low)), low
