"""Conversion of patterns to exact values in float64, and back.

Every product of two operands of at most 24 bits has at most 48 bits, and every aligned term is an integer of at most 53
bits, so that each float64 operation on them is exact: neither the processor's rounding mode nor its treatment of
subnormals has an effect (the smallest product, 2**-298, is far above the subnormals of float64).  fp32, and formats
that are fp32 without some low bits, are converted by the processor where it is known to follow IEEE 754.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import Bits, FloatFormat, storage
from bitwise_core.numerics.native_floats import trusted

Values: TypeAlias = npt.NDArray[np.float64]
Exponents: TypeAlias = npt.NDArray[np.int16]
Wide: TypeAlias = npt.NDArray[np.int64]

ABSENT = -12000
"""The exponent of a term that does not take part in an alignment; two of them add up within 16 bits."""
_BIAS, _MANTISSA = 1023, 52
_FIELD = 0x7FF


def power(exponent: Wide) -> Values:
    """Return 2**exponent, for exponents of normal float64 numbers."""
    shifted = (exponent + _BIAS) << _MANTISSA
    return shifted.view(np.float64)


def exponent_of(values: Values) -> Wide:
    """Return the exponent of the leading bit; meaningless for zeros, infinities and NaNs."""
    return ((values.view(np.int64) >> _MANTISSA) & _FIELD) - _BIAS


def _single(form: FloatFormat) -> bool:
    """Whether the format is fp32, or fp32 without some low bits of the mantissa, and the processor can convert it."""
    return (form.bits, form.exponent_bits, form.bias, form.nan) == (32, 8, 127, "exponent") and trusted()


def values_of(bits: Bits, form: FloatFormat) -> Values:
    """Return the values of patterns."""
    if not _single(form):
        return decode(bits, form)[0]
    kept = bits & np.uint32(-1 << form.padding & 0xFFFFFFFF) if form.padding else bits
    with np.errstate(invalid="ignore"):
        return np.ascontiguousarray(kept).view(np.float32).astype(np.float64)


def decode(bits: Bits, form: FloatFormat, zeros: bool = False) -> tuple[Values, Exponents]:
    """Return values and exponents of patterns; infinities and NaNs have the exponent ABSENT.

    A subnormal has the format's smallest exponent, and so has a zero with `zeros`; otherwise a zero is ABSENT.
    """
    if form.bits > 16 and _single(form):
        values = values_of(bits, form)
        field = ((bits >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int16)
        absent = field == 0xFF if zeros else (field == 0xFF) | (values == 0)
        return values, np.where(absent, np.int16(ABSENT), np.maximum(field, np.int16(1)) - np.int16(127))
    if form.bits > 16:
        return _decode(bits, form, zeros)
    values, exponents = _tables(form, zeros)
    return values[bits], exponents[bits]


@cache
def _tables(form: FloatFormat, zeros: bool) -> tuple[Values, Exponents]:
    return _decode(np.arange(1 << form.bits, dtype=np.uint32).astype(storage(form.bits)), form, zeros)


def _decode(bits: Bits, form: FloatFormat, zeros: bool) -> tuple[Values, Exponents]:
    pattern = bits.astype(np.int64)
    magnitude = (pattern >> form.padding) & ((1 << form.magnitude_bits) - 1)
    negative = (pattern >> (form.bits - 1)) & 1 != 0
    field = magnitude >> form.mantissa_bits
    significand = (magnitude & ((1 << form.mantissa_bits) - 1)) | ((field > 0).astype(np.int64) << form.mantissa_bits)
    exponent = np.maximum(field, 1) - form.bias
    values = significand.astype(np.float64) * power(exponent - form.mantissa_bits)
    special = np.zeros(bits.shape, dtype=np.bool_)
    if form.nan == "exponent":
        special = field == form.largest_exponent_field
        infinite = special & (magnitude == form.largest_exponent_field << form.mantissa_bits)
        values = np.where(special, np.where(infinite, np.inf, np.nan), values)
    elif form.nan == "all_ones":
        special = magnitude == (1 << form.magnitude_bits) - 1
        values = np.where(special, np.nan, values)
    elif form.nan == "negative_zero":
        special = negative & (magnitude == 0)
        values = np.where(special, np.nan, values)
    values = np.where(negative, -values, values)
    absent = special if zeros else special | (significand == 0)
    return values, np.where(absent, ABSENT, exponent).astype(np.int16)


def encode(values: Values, form: FloatFormat) -> Bits:
    """Return the patterns of values that the format holds exactly; NaN gives its canonical NaN.

    Raises ValueError for a format without infinities, which no unit returns.
    """
    if form.infinity is None or form.canonical_nan is None:
        raise ValueError(f"a matrix unit does not return {form.name}")
    if form.padding == 0 and _single(form):
        with np.errstate(invalid="ignore"):
            pattern: Bits = values.astype(np.float32).view(np.uint32)
        return np.where(np.isnan(values), np.uint32(form.canonical_nan), pattern)
    raw = values.view(np.int64)
    field = (raw >> _MANTISSA) & _FIELD
    special = field == _FIELD
    exponent = np.where(field == 0, form.smallest_exponent, field - _BIAS)
    low = np.maximum(exponent, form.smallest_exponent)
    # Zero for infinities and NaNs, which have no significand here.
    finite = np.where(special, 0.0, np.abs(values))
    low = np.where(special, form.smallest_exponent, low)
    significand = (finite * power(form.mantissa_bits - low)).astype(np.int64)
    magnitude = ((low - form.smallest_exponent) << form.mantissa_bits) + significand
    magnitude = np.where(special, form.largest_exponent_field << form.mantissa_bits, magnitude)
    number = (magnitude << form.padding) | ((raw < 0).astype(np.int64) << (form.bits - 1))
    number = np.where(np.isnan(values), form.canonical_nan, number)
    return number.astype(storage(form.bits))


def quantise(values: Values, mantissa_bits: int, smallest_exponent: int, rounding: str) -> Values:
    """Round to `mantissa_bits` below the leading bit, or below 2**smallest_exponent for smaller values.

    `rounding` is rz (toward zero) or rn (to nearest, ties to even).  Infinities and NaNs are unchanged.
    """
    exponent = np.maximum(exponent_of(values), smallest_exponent)
    scaled = values * power(mantissa_bits - exponent)
    # `scaled` is exact, and `rint` rounds half-integers to even.
    rounded = np.trunc(scaled) if rounding == "rz" else np.rint(scaled)
    return np.asarray(rounded * power(exponent - mantissa_bits))


def overflowed(values: Values, form: FloatFormat) -> Values:
    """Replace values beyond the format's largest number by infinities."""
    limit = 2.0 ** (form.largest_exponent + 1)
    beyond = np.abs(values) >= limit
    return np.where(beyond, np.copysign(np.inf, values), values) if beyond.any() else values


def nearest(values: Values, form: FloatFormat) -> Values:
    """Round to the format, to nearest, ties to even; an overflow becomes an infinity."""
    if form.padding == 0 and _single(form):
        with np.errstate(all="ignore"):
            return values.astype(np.float32).astype(np.float64)
    return overflowed(quantise(values, form.mantissa_bits, form.smallest_exponent, "rn"), form)
