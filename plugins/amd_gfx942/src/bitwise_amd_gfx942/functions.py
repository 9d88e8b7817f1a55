"""Functions on bit patterns for the operations of this architecture whose results are documented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from bitwise_amd_gfx942.output_functions import OUTPUT_FUNCTIONS
from bitwise_core import numerics
from bitwise_core.execution.values.symbolic_vector import Array


def _signalling(pattern: Array, form: str) -> Array:
    """Whether each pattern is a signalling NaN."""
    bits, mantissa = {"fp16": (16, 10), "fp32": (32, 23), "fp64": (64, 52)}[form]
    size = pattern & pattern.dtype.type((1 << bits - 1) - 1)
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    found: Array = (size > pattern.dtype.type(infinity)) & (pattern & pattern.dtype.type(1 << mantissa - 1) == 0)
    return found


def extremum(verb: str, form: str, *patterns: Array) -> Array:
    """The minimum or maximum in IEEE mode: NaN where an operand is a signalling NaN.

    The extremum of three operands is the extremum of two, applied twice: a NaN from the first two operands is quiet, so
    the result is the third operand.
    """
    function = numerics.operation(f"{verb}.{form}").evaluate
    result = patterns[0]
    for each in patterns[1:]:
        signals = _signalling(result, form) | _signalling(each, form)
        result = np.where(signals, result.dtype.type(_NAN[form]), function(result, each))
    return result


def quieted(form: str, pattern: Array) -> Array:
    """The pattern, with signalling NaNs replaced by the quiet NaN."""
    return np.where(_signalling(pattern, form), pattern.dtype.type(_NAN[form]), pattern)


_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def scaled_by_power(form: str, pattern: Array, power: Array) -> Array:
    """A number times a power of two, rounded once: for narrower formats the product is exact in fp64."""
    kind = _FLOATS[form]
    exponent = np.clip(power.view(f"int{8 * power.dtype.itemsize}").astype(np.int64), -2200, 2200)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        wide = pattern.view(kind).astype(np.float64)
        if form == "fp64":
            result = np.ldexp(wide, exponent.astype(np.int32))
        else:
            result = np.ldexp(wide, np.clip(exponent, -600, 600).astype(np.int32)).astype(kind)
    return _with_canonical_nan(result, form)


def frexp_mantissa(form: str, pattern: Array) -> Array:
    """The mantissa of a number in [1/2, 1) with its sign; zeros and infinities unchanged, NaNs canonical."""
    kind = _FLOATS[form]
    number = pattern.view(kind)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        mantissa = np.frexp(number)[0]
    return _with_canonical_nan(np.where(np.isfinite(number), mantissa, number).astype(kind), form)


def frexp_exponent(form: str, pattern: Array) -> Array:
    """The exponent that belongs to `frexp_mantissa`, an int32; 0 for zeros, infinities and NaNs."""
    number = pattern.view(_FLOATS[form])
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        exponent = np.frexp(number)[1]
    found = np.where(np.isfinite(number), exponent, 0)
    return found.astype(np.int32).view(np.uint32)


def median(form: str, *patterns: Array) -> Array:
    """The maximum of the two operands that remain after one that equals the maximum is removed; with a NaN the minimum.

    Zeros of both signs compare equal, so which one remains depends on the order of the operands.
    """
    kind = _FLOATS[form]
    maximum_of = numerics.operation(f"max.{form}").evaluate
    a, b, c = np.broadcast_arrays(*patterns)
    nans = np.isnan(a.view(kind)) | np.isnan(b.view(kind)) | np.isnan(c.view(kind))
    maximum = maximum_of(maximum_of(a, b), c).view(kind)
    middle = np.where(
        maximum == a.view(kind), maximum_of(b, c), np.where(maximum == b.view(kind), maximum_of(a, c), maximum_of(a, b))
    )
    return np.where(nans, extremum("min", form, a, b, c), middle)


def _with_canonical_nan(number: Array, form: str) -> Array:
    pattern = number.view({"fp16": np.uint16, "fp32": np.uint32, "fp64": np.uint64}[form])
    return np.where(np.isnan(number), pattern.dtype.type(_NAN[form]), pattern)


_DIGITS_HELD = 1201
"""The number of binary digits of 2 / pi that the hardware holds."""


@cache
def _two_over_pi() -> int:
    """2 / pi in units of 2^-1201, rounded down, with pi from Machin's formula."""
    scale = 1 << _DIGITS_HELD + 64

    def arctangent(inverse: int) -> int:
        total, term, divisor = 0, scale // inverse, 1
        while term:
            total += term // divisor if divisor % 4 == 1 else -(term // divisor)
            term, divisor = term // (inverse * inverse), divisor + 2
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return (2 * scale << _DIGITS_HELD) // pi


def trig_preop(pattern: Array, number: Array) -> Array:
    """A segment of 53 binary digits of 2 / pi, by its number; shifted further by an exponent above 1077.

    Source: AMD Instinct MI300 ISA, V_TRIG_PREOP_F64.
    """
    pattern, number = np.broadcast_arrays(pattern, number)
    found = np.empty(pattern.shape, dtype=np.float64)
    for index in np.ndindex(pattern.shape):
        exponent = int(pattern[index]) >> 52 & 0x7FF
        shift = 53 * (int(number[index]) & 31) + max(exponent - 1077, 0)
        digits = _two_over_pi() << shift >> _DIGITS_HELD - 53 & (1 << 53) - 1
        found[index] = np.ldexp(float(digits), -53 - shift + (128 if exponent >= 1968 else 0))
    return found.view(np.uint64)


_NAN = {form: numerics.FLOAT_FORMATS[form].canonical_nan for form in _FLOATS}
"""The NaN that other operations of these formats return: the bits of results are compared under that assumption."""

_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **{
        f"{verb}{count}.signalling.{form}": partial(extremum, verb, form)
        for verb in ("min", "max")
        for form in _FLOATS
        for count in ("", "3")
    },
    "quieted.fp16": partial(quieted, "fp16"),
    **{f"ldexp.rn.{form}": partial(scaled_by_power, form) for form in _FLOATS},
    **{f"frexp_mantissa.{form}": partial(frexp_mantissa, form) for form in ("fp32", "fp64")},
    **{f"frexp_exponent.{form}": partial(frexp_exponent, form) for form in ("fp32", "fp64")},
    **{f"med3.{form}": partial(median, form) for form in ("fp16", "fp32")},
    "trig_preop.fp64": trig_preop,
    **OUTPUT_FUNCTIONS,
}
"""Functions by the name of the operation without its architecture."""


def functions_of(architecture: str) -> Mapping[str, Callable[..., Array]]:
    """Return the functions of an architecture by the full name of the operation; fnuz formats are those of gfx942."""
    found = {name: function for name, function in _FUNCTIONS.items() if architecture == "gfx942" or "fnuz" not in name}
    return {f"{name}@{architecture}": function for name, function in found.items()}
