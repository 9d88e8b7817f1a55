"""Inputs that distinguish kernels whose outputs agree on normally distributed inputs.

Each kind targets one way in which two evaluations of a formula may differ: rounding in long sums, ties, intermediate
overflow, underflowing products, signs of zeros, sparse NaNs, a single NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from bitwise_bench.draws.formats import FORMATS, Bits, Format, bell, log_uniform, round_to_format

Values: TypeAlias = Callable[[Format, Bits, Bits, int, int], Bits]
"""Returns doubles, given the format, two raw words per element, the number of inputs before this one, the variant."""

_LADDER = (2.0**-62, 2.0**-74 * (1 + 2.0**-7), 2.0**-50, 2.0**-38, 2.0**-26, 2.0**-14, 2.0**-2, 2.0**10)
_FROM_THIRD = (2, 3, 4, 5, 6, 7, 128, 64)
_PLACES_AMONG_TINY = {7: _FROM_THIRD, 8: (1, 2, 3, 4, 5, 6, 128, 64), 9: (1, 0, 2, 3, 64, 32, 16, 8)}
"""The places of the powers of a ladder among tiny numbers, by variant."""


def _wide(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Exponents uniform over the `wide` range of the format."""
    return log_uniform(form.low, form.high, first, second)


def _cancelling(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Large numbers with Thue-Morse signs, whose sums expose the rounding errors; later factors are near 1."""
    noise = bell(first, second)
    if place:
        return np.asarray(1.0 + np.abs(noise) * 2.0**-4)
    index = np.arange(len(first), dtype=np.uint64)
    for shift in (32, 16, 8, 4, 2, 1):
        index = index ^ (index >> np.uint64(shift))
    return np.asarray(np.where(index & np.uint64(1), -1.0, 1.0) * 2.0**form.high + noise)


def _few(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Eight values only, zeros of both signs among them, which gives many ties."""
    return np.asarray([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0])[(first >> np.uint64(60)).astype(np.int64) % 8]


def _tiny(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Numbers at the lower end of the format, seven of eight elements zero, so that products and sums underflow."""
    return np.where(second & np.uint64(7), 0.0, log_uniform(1 - form.bias, 3 - form.bias, first, second))


def _opposed(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """-0 in every second input, positive numbers in the others: every product is -0."""
    return np.full(len(first), -0.0) if place % 2 else np.abs(bell(first, second)) + 1.0


def _underflow(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Small numbers, all of one sign in each input: products underflow to zeros of one sign."""
    negative = place == variant - 1 if variant < 4 else place % 2 == variant % 2
    least = max(-75, 1 - form.bias)
    values = np.abs(log_uniform(least, least + 2, first, second))
    return -values if negative else values


def _ladder(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Powers of two whose squares are half an ulp of the next one, so that one rounding error propagates to the sum.

    Eight powers form a ladder, contiguous or in two parts at a distance, with zeros between ladders; later factors
    are 1, or near 2^-24 in variant 4.  Variants 5 and 6 have ladders at random, with the first two powers in the other
    order; in variant 6 the last four are at a distance of 16, 8, 4 and 2 lanes of four elements.

    In the variants from 7 on, numbers whose squares are zeros are in the place of the zeros, and later factors have all
    bits of the format: the root of the sum of a ladder is a power of two without the rounding error, so that one in 512
    products with it shows the error also in a narrow format.  The ladders of 7 and 8 are in lanes of eight elements,
    from the third one and from the second one on, those of 9 as in variant 6.
    """
    if variant > 6:
        powers = np.zeros(256)
        powers[list(_PLACES_AMONG_TINY[variant])] = _LADDER
        return _among_tiny(powers, first, second, place)
    if place:
        return np.full(len(first), 1.25 * 2.0**-24 if variant == 4 else 1.0)
    index = np.arange(len(first))
    if variant == 4:
        return np.where(first[index // 256 * 256] % np.uint64(256) == index % 256, 2.0**-125, 0.0)
    if variant > 4:
        size, places = ((8, (1, 0, 2, 3, 4, 5, 6, 7)), (128, (1, 0, 2, 3, 64, 32, 16, 8)))[variant - 5]
        powers = np.zeros(size)
        powers[list(places)] = _LADDER
        chosen = first[index // size * size] % np.uint64(1024 // size // 4) == 0
        return np.where(chosen, powers[index % size], 0.0)
    distance = (0, 4, 512, 1024)[variant]
    step = index % 4 + 4 * (index // distance % 2)
    start = index % distance // 4 + index // (2 * distance) * 1000003
    chosen = (start * 2654435761 >> 7) % 16 == 0
    return np.where(chosen, np.asarray(_LADDER)[step], 0.0)


def _among_tiny(powers: Bits, first: Bits, second: Bits, place: int) -> Bits:
    """See `_ladder`: a ladder in one of four parts of 256 elements, all other elements of its lane zero."""
    if place:
        return np.abs(bell(first, second)) + 1.0
    index = np.arange(len(first))
    inside = index % 256
    chosen = first[index // 256 * 256] % np.uint64(4) == 0
    of_ladder = chosen & ((powers[inside] != 0) | (inside < 8))
    return np.where(of_ladder, powers[inside], (bell(second, first) + 8.0) * 2.0**-90)


def _steps(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """As variant 7 of `_ladder`, with an error that needs no fusion, and is lost in lanes of fewer elements."""
    powers = np.zeros(256)
    powers[list(_FROM_THIRD)] = _LADDER
    powers[_FROM_THIRD[1]] = 1.5 * 2.0**-74
    return _among_tiny(powers, first, second, place)


def _infinite(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """NaN and infinities of both signs in three of 64 elements."""
    dice = (first ^ second) >> np.uint64(58)
    odd = np.where(dice == 0, np.nan, np.where(dice == 1, np.inf, -np.inf))
    return np.where(dice < 3, odd, bell(first, second))


def _nans(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """NaN in one of 128 elements."""
    return np.where(second % np.uint64(128) == 0, np.nan, bell(first, second))


def _last(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """One NaN, the last element of one input."""
    values = bell(first, second)
    if place == variant - 1:
        values[-1] = np.nan
    return values


def _signalling(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """A NaN in one of 16 or 128 elements; `distinguishing` makes it a signalling one."""
    return np.where(second % np.uint64((16, 128)[variant - 1]) == 0, np.nan, bell(first, second))


def _lone(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Positive numbers and one infinity in the middle of one input, which times a zero gives a NaN."""
    values = np.abs(bell(first, second)) + 2.0**-4
    if place == variant - 1:
        values[len(values) // 2] = np.inf
    return values


def _huge(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Numbers at the upper end of the format: some orders of a sum overflow."""
    highest = form.bias if form.infinite else form.bias + 1
    return log_uniform(highest - 3, highest - 1, first, second)


def _far(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Numbers so far apart that exponentials of their differences are subnormal."""
    return bell(first, second) * 2.0 ** (4 + variant)


def _whole(form: Format, first: Bits, second: Bits, place: int, variant: int) -> Bits:
    """Exponents over the whole format; some sums overflow."""
    highest = form.bias if form.infinite else form.bias + 1
    return log_uniform(1 - form.bias, highest - 1, first, second)


KINDS: Mapping[str, tuple[Values, int]] = MappingProxyType(
    {
        "wide": (_wide, 4),
        "cancelling": (_cancelling, 4),
        "few": (_few, 3),
        "tiny": (_tiny, 1),
        "opposed": (_opposed, 1),
        "underflow": (_underflow, 5),
        "ladder": (_ladder, 9),
        "infinite": (_infinite, 2),
        "nans": (_nans, 2),
        "last": (_last, 4),
        "huge": (_huge, 1),
        "signalling": (_signalling, 2),
        "whole": (_whole, 2),
        "far": (_far, 2),
        "lone": (_lone, 4),
        "steps": (_steps, 1),
    }
)
"""The function of each kind, and its number of variants."""

INFINITE = frozenset({"infinite", "nans", "last", "huge", "signalling", "whole", "lone"})
"""Kinds with infinities or NaNs, in the input or through overflow of a sum."""

DISTINGUISHING: tuple[str, ...] = tuple(
    kind if variant == 1 else f"{kind}.{variant}"
    for kind, (_, variants) in KINDS.items()
    for variant in range(1, variants + 1)
    if (kind, variant) != ("wide", 1)
)
"""The names of all variants; the first variant of `wide` is listed in `inputs.DRAWS`."""


def base(kind: str) -> str:
    """Return the kind of a variant."""
    return kind.split(".")[0]


def distinguishing(dtype: str, raw: Bits, kind: str, place: int) -> Bits:
    """Return the bit patterns of a variant of one of `KINDS`, from two raw 64-bit words per element."""
    form = FORMATS[dtype]
    values, _ = KINDS[base(kind)]
    variant = int(kind.partition(".")[2] or 1)
    doubles = values(form, raw[0], raw[1], place, variant)
    finite = np.isfinite(doubles)
    bits = round_to_format(np.where(finite, doubles, 1.0), dtype)
    beyond = form.infinity if form.infinite else form.quiet_nan - 1
    sign = np.where(np.signbit(doubles), np.array(form.sign, dtype=bits.dtype), np.array(0, dtype=bits.dtype))
    nan = form.signalling_nan if base(kind) == "signalling" else form.quiet_nan
    odd = np.where(np.isnan(doubles), np.array(nan, dtype=bits.dtype), np.array(beyond, dtype=bits.dtype))
    found: Bits = np.where(finite, bits, odd | np.where(np.isnan(doubles), np.array(0, dtype=bits.dtype), sign))
    return found.astype(bits.dtype)
