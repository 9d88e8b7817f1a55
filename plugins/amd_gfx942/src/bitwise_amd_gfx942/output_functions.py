"""What output modifiers and overflow's clamping do, on bit patterns."""

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
    """A number taken into [0, 1]: what is less, -0 included, is +0; so is a NaN unless it is kept."""
    kind = pattern.dtype.type
    sign = kind(1 << 8 * pattern.dtype.itemsize - 1)
    size, one = pattern & ~sign, kind(_ONE[form])
    clamped = np.where((pattern & sign) != 0, kind(0), np.minimum(pattern, one))
    nan = size > kind(_INFINITY[form])
    return np.where(nan, pattern if keeps_nan else kind(0), clamped)


def bounded(name: str, source: str, *patterns: Array) -> Array:
    """The fp16 result of an operation: where it overflows the greatest number; infinite operands make infinities."""
    result = numerics.operation(name).evaluate(*patterns)
    largest = result - np.uint16(1)
    overflows = (result & np.uint16(0x7FFF)) == 0x7C00
    if source in _INFINITY:
        for each in patterns:
            infinity = each.dtype.type(_INFINITY[source])
            size = each & ~each.dtype.type(1 << 8 * each.dtype.itemsize - 1)
            overflows = overflows & (size != infinity)
    return np.where(overflows, largest, result)


def narrowed(form: str, clamps: bool, pattern: Array) -> Array:
    """fp32 in a format of 8 bits; what is too large is the NaN, or the greatest number; an infinity is the NaN."""
    modifier = ".satfinite" if clamps else ""
    result = numerics.operation(f"convert.rn{modifier}.{form}.fp32").evaluate(pattern)
    infinite = (pattern & np.uint32(0x7FFFFFFF)) == np.uint32(_INFINITY["fp32"])
    return np.where(infinite, np.uint8(0x80), result)


def all_ones(pattern: Array) -> Array:
    """Whether a number in fp64 has a significand without a digit 0."""
    digits = np.uint64((1 << 52) - 1)
    found: Array = ((pattern & digits) == digits) & ((pattern >> np.uint64(52) & np.uint64(0x7FF)) != 0x7FF)
    return found


def quotient(numerator: Array, denominator: Array) -> Array:
    """A division's sequence in fp64, where its result is known (see `divisions`).  Raises Unsupported elsewhere."""
    if all_ones(denominator).any():
        raise Unsupported("what a division in fp64 by a number whose digits are all ones gives is not established")
    return numerics.operation("div.rn.fp64").evaluate(numerator, denominator)


OUTPUT_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **{f"saturate.{form}@gfx942": partial(saturated, form, False) for form in _ONE},
    **{f"saturate.nan.{form}@gfx942": partial(saturated, form, True) for form in _ONE},
    **{
        f"{verb}.rn.satfinite.fp16@gfx942": partial(bounded, f"{verb}.rn.fp16", "fp16")
        for verb in ("add", "sub", "mul", "fma")
    },
    **{
        f"convert.rn.satfinite.fp16.{source}@gfx942": partial(bounded, f"convert.rn.fp16.{source}", source)
        for source in ("fp32", "u16")
    },
    "div.sequence.fp64@gfx942": quotient,
    "convert.rn.satfinite.fp16.s16@gfx942": numerics.operation("convert.rn.fp16.s16").evaluate,
    **{f"narrow.rn.{form}.fp32@gfx942": partial(narrowed, form, False) for form in ("e4m3fnuz", "e5m2fnuz")},
    **{f"narrow.rn.satfinite.{form}.fp32@gfx942": partial(narrowed, form, True) for form in ("e4m3fnuz", "e5m2fnuz")},
}
"""By the operation's full name."""
