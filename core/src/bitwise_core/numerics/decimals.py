"""Bit patterns of floating-point formats as decimals for readers, and their distance in units in the last place."""

from __future__ import annotations

import math

from bitwise_core.numerics.formats import FloatFormat


def fields_of(form: FloatFormat, pattern: int) -> tuple[bool, int]:
    """Return whether the sign bit is set, and the exponent and mantissa fields."""
    field = pattern >> form.padding
    return form.signed and bool(field >> form.magnitude_bits & 1), field & ((1 << form.magnitude_bits) - 1)


def decimal(form: FloatFormat, pattern: int) -> str:
    """Return a pattern's value as a decimal with as many digits as tell every two numbers of the format apart."""
    if form.is_nan(pattern):
        return "nan"
    negative, magnitude = fields_of(form, pattern)
    sign = "-" if negative else ""
    if form.infinities and magnitude == form.largest_exponent_field << form.mantissa_bits:
        return f"{sign}inf"
    number = _magnitude(form, magnitude)
    if not number[0]:
        return f"{sign}0"
    digits = 1 + math.ceil(form.precision * math.log10(2))
    return f"{sign}{_rounded(*number, digits)}"


def _magnitude(form: FloatFormat, magnitude: int) -> tuple[int, int]:
    """Return the numerator and the denominator, which may have common factors."""
    exponent, mantissa = magnitude >> form.mantissa_bits, magnitude & ((1 << form.mantissa_bits) - 1)
    if exponent or not form.subnormals:
        mantissa += 1 << form.mantissa_bits
        exponent -= form.subnormals
    exponent += form.smallest_bit
    return mantissa << max(exponent, 0), 1 << max(-exponent, 0)


def _rounded(numerator: int, denominator: int, digits: int) -> str:
    """Return a positive number with so many digits, without zeros at the end."""
    scale = len(str(numerator)) - len(str(denominator))
    if numerator * 10 ** max(-scale, 0) < denominator * 10 ** max(scale, 0):
        scale -= 1
    last = scale - digits + 1
    unit = denominator * 10 ** max(last, 0)
    whole, rest = divmod(numerator * 10 ** max(-last, 0), unit)
    whole += 2 * rest > unit or (2 * rest == unit and whole & 1)
    if whole >= 10**digits:
        whole, scale = whole // 10, scale + 1
    text = str(whole)
    if -5 < scale < digits:
        padded = "0" * -scale + text if scale < 0 else text
        point = max(scale, 0) + 1
        return f"{padded[:point]}.{padded[point:]}".rstrip("0").rstrip(".")
    return f"{text[0]}.{text[1:]}".rstrip("0").rstrip(".") + f"e{scale:+03d}"


def ulps(form: FloatFormat, left: int, right: int) -> int | None:
    """Return how many numbers of the format one must step over from one pattern to the other; None with a NaN.

    Both zeros are one number.
    """
    if form.is_nan(left) or form.is_nan(right):
        return None
    one, other = (-magnitude if negative else magnitude for negative, magnitude in _fields(form, left, right))
    return abs(one - other)


def apart(form: FloatFormat, left: int, right: int) -> str:
    """Return the distance in words, empty with a NaN."""
    found = ulps(form, left, right)
    return "" if found is None else f"{found} ulp{'' if found == 1 else 's'} apart"


def _fields(form: FloatFormat, *patterns: int) -> list[tuple[bool, int]]:
    return [fields_of(form, each) for each in patterns]
