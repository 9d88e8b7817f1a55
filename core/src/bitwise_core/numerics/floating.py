"""Floating-point operations on bit patterns: arithmetic, selection, sign, comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.numerics import native_floats, softfloat
from bitwise_core.numerics.formats import FloatFormat
from bitwise_core.numerics.relations import RELATIONS
from bitwise_core.numerics.softfloat import Rounding, Unpacked, join, magnitude_of, nan_of, sign_of, unpack
from bitwise_core.numerics.word_arithmetic import Bits, Booleans, Integers

ARITHMETIC: dict[str, int] = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "fnma": 3, "sqrt": 1, "rcp": 1}
"""Rounded operations and their numbers of operands."""

COMPARISONS = tuple(RELATIONS)
"""False where an operand is NaN; with the suffix `u` true there.  `ord` and `unord` test for NaNs only."""

CLASSES: tuple[str, ...] = ("isfinite", "isinfinite", "isnumber", "isnan", "isnormal", "issubnormal")
"""Tests of the class of a value; `isnumber` means not NaN, and a zero is neither normal nor subnormal."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Modifiers of operands and results, other than the rounding.

    `ftz` flushes subnormal operands and results to zeros of their sign; whether a result is subnormal is decided after
    rounding with unbounded exponents, as IEEE 754 allows.  `sat` clamps the result to [0, 1] and replaces NaN by +0;
    `relu` replaces negative results by +0.
    """

    ftz: bool = False
    sat: bool = False
    relu: bool = False


def _exact(verb: str, numbers: tuple[Unpacked, ...], rounding: Rounding, form: FloatFormat) -> Unpacked:
    first, *others = numbers
    if verb == "add":
        return softfloat.add(first, others[0], rounding)
    if verb == "sub":
        return softfloat.add(first, softfloat.negate(others[0]), rounding)
    if verb == "mul":
        return softfloat.multiply(first, others[0])
    if verb == "fma":
        return softfloat.multiply_add(first, others[0], others[1], rounding, form.precision)
    if verb == "fnma":
        return softfloat.multiply_add(softfloat.negate(first), others[0], others[1], rounding, form.precision)
    if verb == "div":
        return softfloat.divide(first, others[0])
    return softfloat.square_root(first)


def arithmetic(verb: str, form: FloatFormat, rounding: Rounding, mode: Mode, *operands: Bits) -> Bits:
    """Evaluate a rounded operation of ARITHMETIC."""
    if verb == "rcp":
        one = np.full(operands[0].shape, form.one, dtype=operands[0].dtype)
        return arithmetic("div", form, rounding, mode, one, *operands)
    if mode.ftz:
        operands = tuple(softfloat.flush(bits, form) for bits in operands)
    if rounding == "rn" and native_floats.supports(verb, form) and native_floats.trusted():
        result = native_floats.compute(verb, form, operands)
        if mode.ftz:
            result = _flush_tiny(verb, form, operands, result)
    else:
        result = _with_integers(verb, form, rounding, mode.ftz, operands)
    return clamp(result, form, mode)


def _with_integers(verb: str, form: FloatFormat, rounding: Rounding, ftz: bool, operands: tuple[Bits, ...]) -> Bits:
    numbers = tuple(unpack(bits, form) for bits in operands)
    return softfloat.pack(_exact(verb, numbers, rounding, form), form, rounding, flush_tiny=ftz)


def _flush_tiny(verb: str, form: FloatFormat, operands: tuple[Bits, ...], result: Bits) -> Bits:
    """Flush results rounded to nearest.  The smallest normal number can be a rounded subnormal, so it is recomputed."""
    doubtful = magnitude_of(result, form) == np.uint64(1 << form.mantissa_bits)
    if doubtful.any():
        chosen = tuple(np.broadcast_to(bits, result.shape)[doubtful] for bits in operands)
        result[doubtful] = _with_integers(verb, form, "rn", True, chosen)
    return softfloat.flush(result, form)


def clamp(result: Bits, form: FloatFormat, mode: Mode) -> Bits:
    """Apply `sat` or `relu` to a rounded result."""
    if not (mode.sat or mode.relu):
        return result
    sign, magnitude, nan = sign_of(result, form), magnitude_of(result, form), nan_of(result, form)
    negative = sign & ~nan
    magnitude = np.where(negative, np.uint64(0), magnitude)
    if mode.sat:
        magnitude = np.minimum(magnitude, np.uint64(form.bias << form.mantissa_bits))
        magnitude = np.where(nan, np.uint64(0), magnitude)
        nan = np.zeros_like(nan)
    return join(np.zeros_like(sign), magnitude, nan, form)


def order(bits: Bits, form: FloatFormat) -> Integers:
    """Return integers in the order of the numbers, -0 just below +0; meaningless for NaN."""
    magnitude = magnitude_of(bits, form).astype(np.int64)
    return np.where(sign_of(bits, form), -magnitude - 1, magnitude)


def extremum(verb: str, form: FloatFormat, propagate: bool, mode: Mode, left: Bits, right: Bits) -> Bits:
    """Evaluate `min` or `max`, with -0 below +0.

    With `propagate` a NaN operand gives NaN, otherwise the other operand; two NaNs give NaN.
    """
    if mode.ftz:
        left, right = softfloat.flush(left, form), softfloat.flush(right, form)
    left_nan, right_nan = nan_of(left, form), nan_of(right, form)
    larger = order(left, form) > order(right, form)
    take_left = (larger if verb == "max" else ~larger) & ~left_nan | right_nan
    chosen = np.where(take_left, left, right)
    nan = left_nan | right_nan if propagate else left_nan & right_nan
    result = join(sign_of(chosen, form), magnitude_of(chosen, form), np.asarray(nan), form)
    return clamp(result, form, mode)


def change_sign(verb: str, form: FloatFormat, mode: Mode, operand: Bits) -> Bits:
    """Evaluate `neg` or `abs`; a NaN becomes the canonical NaN."""
    if mode.ftz:
        operand = softfloat.flush(operand, form)
    sign = sign_of(operand, form)
    sign = ~sign if verb == "neg" else np.zeros_like(sign)
    return join(sign, magnitude_of(operand, form), nan_of(operand, form), form)


def guard(form: FloatFormat, operand: Bits, difference: Bits) -> Bits:
    """Evaluate `guard`: the operand, or the canonical NaN where the difference is NaN."""
    nan = nan_of(operand, form) | nan_of(difference, form)
    return join(sign_of(operand, form), magnitude_of(operand, form), nan, form)


def compare(verb: str, form: FloatFormat, mode: Mode, left: Bits, right: Bits) -> Booleans:
    """Evaluate a comparison to a predicate; +0 and -0 are equal."""
    if mode.ftz:
        left, right = softfloat.flush(left, form), softfloat.flush(right, form)
    if native_floats.compares(form) and native_floats.trusted():
        return native_floats.compare(verb, form, left, right)
    unordered = nan_of(left, form) | nan_of(right, form)
    if verb in ("ord", "unord"):
        return unordered if verb == "unord" else ~unordered
    first, second = (_signed_magnitude(bits, form) for bits in (left, right))
    answer = RELATIONS[verb.removesuffix("u")](first, second)
    return np.where(unordered, np.bool_(verb.endswith("u")), answer)


def classify(verb: str, form: FloatFormat, operand: Bits) -> Booleans:
    """Evaluate a test of CLASSES."""
    magnitude = magnitude_of(operand, form)
    smallest, infinity = np.uint64(1 << form.mantissa_bits), np.uint64(form.largest_magnitude + 1)
    answers: dict[str, Booleans] = {
        "isfinite": magnitude < infinity,
        "isinfinite": magnitude == infinity,
        "isnumber": magnitude <= infinity,
        "isnan": magnitude > infinity,
        "isnormal": (magnitude >= smallest) & (magnitude < infinity),
        "issubnormal": (magnitude != 0) & (magnitude < smallest),
    }
    return answers[verb]


def _signed_magnitude(bits: Bits, form: FloatFormat) -> Integers:
    magnitude = magnitude_of(bits, form).astype(np.int64)
    return np.where(sign_of(bits, form), -magnitude, magnitude)
