"""Conversions between any two scalar formats, on bit patterns."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from bitwise_core.numerics import native_floats, softfloat
from bitwise_core.numerics.floating import Mode, clamp
from bitwise_core.numerics.formats import FloatFormat, IntegerFormat
from bitwise_core.numerics.integers import signed_words
from bitwise_core.numerics.softfloat import Rounding, Unpacked
from bitwise_core.numerics.word_arithmetic import LEADING_BIT, Bits, Integers, Words, normalise, storage, words

IntegerRounding: TypeAlias = Literal["rni", "rzi", "rmi", "rpi"]
"""To an integer: nearest with ties to even, toward zero, down (floor), up (ceiling)."""
INTEGER_ROUNDINGS: dict[IntegerRounding, Rounding] = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}

FLUSHED_FORMAT = "fp32"
"""In a conversion, `ftz` flushes operands and results of this format only."""


_NO_MODIFIER = Mode()


def float_to_float(
    target: FloatFormat, source: FloatFormat, rounding: Rounding, mode: Mode, saturate: bool, operand: Bits
) -> Bits:
    """Round to another format, or widen exactly.  Where the target has no NaN, NaN becomes its largest number.

    `rna` from fp32 to tf32 cuts the mantissa of a NaN, as an H100 does: a NaN without a bit in the part that is kept
    becomes an infinity, and with `saturate` the pattern below the cut one.
    """
    plain = rounding == "rn" and not saturate and mode == _NO_MODIFIER
    if plain and native_floats.converts(target, source) and native_floats.trusted():
        return native_floats.convert(target, source, operand)
    if mode.ftz and source.name == FLUSHED_FORMAT:
        operand = softfloat.flush(operand, source)
    number = softfloat.unpack(operand, source)
    result = softfloat.pack(number, target, rounding, saturate, mode.ftz and target.name == FLUSHED_FORMAT)
    if target.canonical_nan is None:
        largest = result.dtype.type(target.largest_magnitude << target.padding)
        result = np.where(number.nan, largest, result)
    if rounding == "rna" and (target.name, source.name) == ("tf32", "fp32"):
        unit = operand.dtype.type(1 << target.padding)
        result = np.where(number.nan, (operand & ~(unit - 1)) - unit * saturate, result)
    return clamp(result, target, mode)


def _rounded_magnitude(number: Unpacked, rounding: Rounding) -> Words:
    """Return the absolute value rounded to an integer, for numbers below 2**64."""
    drop = np.maximum(-number.exponent, 1)
    kept, rest, half = softfloat.split(number.significand, drop)
    odd = np.asarray(kept & np.uint64(1), dtype=np.bool_)
    kept = kept + softfloat.round_increment(rounding, number.sign, odd, rest, half)
    left = np.clip(number.exponent, 0, 1)
    return np.where(number.exponent >= 0, number.significand << left.astype(np.uint64), kept)


def float_to_integer(
    target: IntegerFormat, source: FloatFormat, rounding: IntegerRounding, mode: Mode, operand: Bits
) -> Bits:
    """Round to an integer and clamp to its range.

    NaN gives 0 where neither format is wider than 32 bits, and otherwise the pattern with only the highest bit set.
    """
    if mode.ftz and source.name == FLUSHED_FORMAT:
        operand = softfloat.flush(operand, source)
    number = softfloat.unpack(operand, source)
    huge = number.infinite | (number.exponent + LEADING_BIT > 63)
    magnitude = _rounded_magnitude(number, INTEGER_ROUNDINGS[rounding])
    largest, most_negative = np.uint64(target.largest), np.uint64(-target.smallest)
    positive = np.where(huge | (magnitude > largest), largest, magnitude)
    negative = np.where(huge | (magnitude > most_negative), most_negative, magnitude)
    result = np.where(number.sign, ~negative + np.uint64(1), positive)
    nan = np.uint64(0 if max(target.bits, source.bits) <= 32 else 1 << (target.bits - 1))
    result = np.where(number.nan, nan, result)
    return (result & np.uint64((1 << target.bits) - 1)).astype(storage(target.bits))


def integer_to_float(target: FloatFormat, source: IntegerFormat, rounding: Rounding, mode: Mode, operand: Bits) -> Bits:
    """Round an integer to a floating-point format; zero gives +0."""
    value = signed_words(operand, source)
    negative = np.asarray(value < 0) if source.signed else np.zeros(operand.shape, dtype=np.bool_)
    magnitude = np.where(negative, ~words(value) + np.uint64(1), words(value))
    # `normalise` needs the highest bit free for a carry.
    half = (magnitude >> np.uint64(1)) | (magnitude & np.uint64(1))
    wide = magnitude >= np.uint64(1 << 63)
    exponent: Integers = wide.astype(np.int64)
    significand, exponent = normalise(np.where(wide, half, magnitude), exponent)
    none = np.zeros(operand.shape, dtype=np.bool_)
    return clamp(softfloat.pack(Unpacked(negative, exponent, significand, none, none), target, rounding), target, mode)


def float_to_integral(form: FloatFormat, rounding: IntegerRounding, mode: Mode, operand: Bits) -> Bits:
    """Round to an integral number of the same format; zeros keep the sign of the operand."""
    if mode.ftz and form.name == FLUSHED_FORMAT:
        operand = softfloat.flush(operand, form)
    number = softfloat.unpack(operand, form)
    whole = number.exponent >= 0
    magnitude = _rounded_magnitude(number, INTEGER_ROUNDINGS[rounding])
    rounded, scale = normalise(np.where(whole, np.uint64(0), magnitude), np.zeros_like(number.exponent))
    result = Unpacked(
        number.sign,
        np.where(whole, number.exponent, scale),
        np.where(whole, number.significand, rounded),
        number.nan,
        number.infinite,
    )
    return clamp(softfloat.pack(result, form, "rz"), form, mode)
