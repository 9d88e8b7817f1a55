"""Operations of this architecture on bit patterns, where their bits are documented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from bitwise_amd_gfx942.output_functions import OUTPUT_FUNCTIONS
from bitwise_core import numerics
from bitwise_core.execution.values.symbolic_vector import Array


def _signalling(pattern: Array, form: str) -> Array:
    bits, mantissa = {"fp16": (16, 10), "fp32": (32, 23), "fp64": (64, 52)}[form]
    size = pattern & pattern.dtype.type((1 << bits - 1) - 1)
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    found: Array = (size > pattern.dtype.type(infinity)) & (pattern & pattern.dtype.type(1 << mantissa - 1) == 0)
    return found


def extremum(verb: str, form: str, *patterns: Array) -> Array:
    """The least or greatest number in IEEE mode: a NaN where an operand is a signalling one; of three, twice of two.

    The NaN of the first two is a quiet one, which gives way to the third.
    """
    function = numerics.operation(f"{verb}.{form}").evaluate
    result = patterns[0]
    for each in patterns[1:]:
        signals = _signalling(result, form) | _signalling(each, form)
        result = np.where(signals, result.dtype.type(_NAN[form]), function(result, each))
    return result


def quieted(form: str, pattern: Array) -> Array:
    """The pattern, but a quiet NaN for a signalling one."""
    return np.where(_signalling(pattern, form), pattern.dtype.type(_NAN[form]), pattern)


_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def scaled(form: str, pattern: Array, power: Array) -> Array:
    """A number times a power of two, rounded once: in fp64 the product of a narrower one is exact."""
    kind = _FLOATS[form]
    wide = pattern.view(kind).astype(np.float64)
    exponent = np.clip(power.view(f"int{8 * power.dtype.itemsize}").astype(np.int64), -2200, 2200)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if form == "fp64":
            result = np.ldexp(wide, exponent.astype(np.int32))
        else:
            result = np.ldexp(wide, np.clip(exponent, -600, 600).astype(np.int32)).astype(kind)
    return _canonical(result, form)


def fraction(form: str, pattern: Array) -> Array:
    """The part from 1/2 to 1 of a number, with its sign; zeros, infinities and NaNs as they are."""
    kind = _FLOATS[form]
    number = pattern.view(kind)
    return _canonical(np.where(np.isfinite(number), np.frexp(number)[0], number).astype(kind), form)


def exponent(form: str, pattern: Array) -> Array:
    """The power of two that goes with `fraction`; 0 for zeros, infinities and NaNs."""
    number = pattern.view(_FLOATS[form])
    found = np.where(np.isfinite(number), np.frexp(number)[1], 0)
    return found.astype(np.int32).view(np.uint32)


def median(form: str, *patterns: Array) -> Array:
    """The greater of the two that remain without one that equals the greatest; with a NaN among them the minimum.

    Zeros of both signs are equal, so that which one remains depends on the order of the operands.
    """
    kind = _FLOATS[form]
    greatest = numerics.operation(f"max.{form}").evaluate
    a, b, c = np.broadcast_arrays(*patterns)
    nans = np.isnan(a.view(kind)) | np.isnan(b.view(kind)) | np.isnan(c.view(kind))
    most = greatest(greatest(a, b), c).view(kind)
    middle = np.where(
        most == a.view(kind), greatest(b, c), np.where(most == b.view(kind), greatest(a, c), greatest(a, b))
    )
    return np.where(nans, extremum("min", form, a, b, c), middle)


def _canonical(number: Array, form: str) -> Array:
    pattern = number.view({"fp16": np.uint16, "fp32": np.uint32, "fp64": np.uint64}[form])
    return np.where(np.isnan(number), pattern.dtype.type(_NAN[form]), pattern)


_SHOWN = 1201
"""So many digits of 2 / pi does the machine hold."""


@cache
def _two_over_pi() -> int:
    """2 / pi in units of 2^-1201, rounded down; pi by Machin's formula."""
    scale = 1 << _SHOWN + 64

    def arctangent(inverse: int) -> int:
        total, term, divisor = 0, scale // inverse, 1
        while term:
            total += term // divisor if divisor % 4 == 1 else -(term // divisor)
            term, divisor = term // (inverse * inverse), divisor + 2
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return (2 * scale << _SHOWN) // pi


def segment(pattern: Array, number: Array) -> Array:
    """53 digits of 2 / pi: the segment of that number, moved by the exponent where that is above 1077.

    Source: AMD Instinct MI300 ISA, V_TRIG_PREOP_F64.
    """
    pattern, number = np.broadcast_arrays(pattern, number)
    found = np.empty(pattern.shape, dtype=np.float64)
    for place in np.ndindex(pattern.shape):
        exponent = int(pattern[place]) >> 52 & 0x7FF
        shift = 53 * (int(number[place]) & 31) + max(exponent - 1077, 0)
        digits = _two_over_pi() << shift >> _SHOWN - 53 & (1 << 53) - 1
        found[place] = np.ldexp(float(digits), -53 - shift + (128 if exponent >= 1968 else 0))
    return found.view(np.uint64)


_NAN = {"fp16": 0x7E00, "fp32": 0x7FC00000, "fp64": 0x7FF8 << 48}

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **{
        f"{verb}{count}.signalling.{form}@gfx942": partial(extremum, verb, form)
        for verb in ("min", "max")
        for form in _FLOATS
        for count in ("", "3")
    },
    "quieted.fp16@gfx942": partial(quieted, "fp16"),
    **{f"ldexp.rn.{form}@gfx942": partial(scaled, form) for form in _FLOATS},
    **{f"frexp_mantissa.{form}@gfx942": partial(fraction, form) for form in ("fp32", "fp64")},
    **{f"frexp_exponent.{form}@gfx942": partial(exponent, form) for form in ("fp32", "fp64")},
    **{f"med3.{form}@gfx942": partial(median, form) for form in ("fp16", "fp32")},
    "trig_preop.fp64@gfx942": segment,
    **OUTPUT_FUNCTIONS,
}
"""By the operation's full name."""
