"""Output modifiers, clamping of overflow and the fp64 division sequence, on bit patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from bitwise_core import numerics
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values.symbolic_vector import Array

_ONE = {"fp16": 0x3C00, "fp32": 0x3F800000, "fp64": 0x3FF << 52}
_INFINITY = {"fp16": 0x7C00, "fp32": 0x7F800000, "fp64": 0x7FF << 52}


def saturated(form: str, keeps_nan: bool, pattern: Array) -> Array:
    """Clamp to [0, 1]: negative numbers and -0 become +0; a NaN becomes +0, or the canonical one with `keeps_nan`."""
    kind = pattern.dtype.type
    sign = kind(1 << 8 * pattern.dtype.itemsize - 1)
    size, one = pattern & ~sign, kind(_ONE[form])
    clamped = np.where((pattern & sign) != 0, kind(0), np.minimum(pattern, one))
    nan = size > kind(_INFINITY[form])
    of_nan = numerics.FLOAT_FORMATS[form].canonical_nan if keeps_nan else 0
    found: Array = np.where(nan, kind(of_nan), clamped)
    return found


def clamped_fp16_result(name: str, source: str, *patterns: Array) -> Array:
    """The fp16 result of an operation, on overflow the greatest finite number; infinite operands give infinities."""
    result = numerics.operation(name).evaluate(*patterns)
    largest = result - np.uint16(1)
    overflows = (result & np.uint16(0x7FFF)) == 0x7C00
    if source in _INFINITY:
        for each in patterns:
            infinity = each.dtype.type(_INFINITY[source])
            size = each & ~each.dtype.type(1 << 8 * each.dtype.itemsize - 1)
            overflows = overflows & (size != infinity)
    return np.where(overflows, largest, result)


def converted_to_fp8(form: str, clamps: bool, pattern: Array) -> Array:
    """Convert fp32 to an 8-bit format.

    A number out of range becomes the NaN, or the greatest number if `clamps`; an infinity becomes the NaN.
    """
    modifier = ".satfinite" if clamps else ""
    result = numerics.operation(f"convert.rn{modifier}.{form}.fp32").evaluate(pattern)
    infinite = (pattern & np.uint32(0x7FFFFFFF)) == np.uint32(_INFINITY["fp32"])
    return np.where(infinite, np.uint8(0x80), result)


def significand_all_ones(pattern: Array) -> Array:
    """Whether the significand of a finite fp64 number is all ones."""
    digits = np.uint64((1 << 52) - 1)
    found: Array = ((pattern & digits) == digits) & ((pattern >> np.uint64(52) & np.uint64(0x7FF)) != 0x7FF)
    return found


def division_sequence(numerator: Array, denominator: Array) -> Array:
    """The result of the fp64 division sequence (see `division_sequences`).

    Raises Unsupported for a denominator whose significand is all ones: its result is unknown.
    """
    if significand_all_ones(denominator).any():
        raise Unsupported("the result of an fp64 division by a number whose significand is all ones is unknown")
    return numerics.operation("div.rn.fp64").evaluate(numerator, denominator)


OUTPUT_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **{f"saturate.{form}": partial(saturated, form, False) for form in _ONE},
    **{f"saturate.nan.{form}": partial(saturated, form, True) for form in _ONE},
    **{
        f"{verb}.rn.satfinite.fp16": partial(clamped_fp16_result, f"{verb}.rn.fp16", "fp16")
        for verb in ("add", "sub", "mul", "fma")
    },
    **{
        f"convert.rn.satfinite.fp16.{source}": partial(clamped_fp16_result, f"convert.rn.fp16.{source}", source)
        for source in ("fp32", "u16")
    },
    "div.sequence.fp64": division_sequence,
    "convert.rn.satfinite.fp16.s16": numerics.operation("convert.rn.fp16.s16").evaluate,
    **{f"narrow.rn.{form}.fp32": partial(converted_to_fp8, form, False) for form in ("e4m3fnuz", "e5m2fnuz")},
    **{f"narrow.rn.satfinite.{form}.fp32": partial(converted_to_fp8, form, True) for form in ("e4m3fnuz", "e5m2fnuz")},
}
"""Functions by the name of the operation without its architecture."""
