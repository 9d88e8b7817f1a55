"""Distributions of test values: patterns of a format that expose differences of order, rounding and special values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bitwise_core.execution.element_types import Array, ElementType
from bitwise_core.numerics import FloatFormat, storage

Draw = Callable[[FloatFormat, int, np.random.Generator], Array]


def _patterns(form: FloatFormat, sign: Array, field: Array, mantissa: Array) -> Array:
    """Patterns from sign (0 or 1), exponent field (clipped to finite numbers) and mantissa."""
    field = np.clip(field, 0, form.largest_magnitude >> form.mantissa_bits)
    magnitude = (field.astype(np.uint64) << np.uint64(form.mantissa_bits)) | mantissa.astype(np.uint64)
    magnitude = np.minimum(magnitude, np.uint64(form.largest_magnitude))
    word: Array = magnitude << np.uint64(form.padding) | sign.astype(np.uint64) << np.uint64(form.bits - 1)
    return word.astype(storage(form.bits))


def _draw_exponents(form: FloatFormat, count: int, random: np.random.Generator, low: int, high: int) -> Array:
    """Both signs, any mantissa, exponent fields from `low` to `high` inclusive."""
    return _patterns(
        form,
        random.integers(0, 2, count),
        random.integers(low, high + 1, count),
        random.integers(0, 1 << form.mantissa_bits, count),
    )


def normal(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Numbers near 1."""
    return _draw_exponents(form, count, random, form.bias - 3, form.bias + 1)


def wide(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Widely spread exponents: sums depend on their order."""
    reach = min(form.bias - 1, form.precision)
    return _draw_exponents(form, count, random, form.bias - reach, form.bias + reach // 2)


def cancelling(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Small numbers, and some large ones of equal magnitude and either sign, which absorb the small ones."""
    small = _draw_exponents(form, count, random, form.bias - 3, form.bias)
    height = form.bias + min(form.precision + 1, form.bias // 2)
    large = _patterns(form, random.integers(0, 2, count), np.full(count, height), np.zeros(count, dtype=np.int64))
    return np.where(random.random(count) < random.choice([0.02, 0.2, 0.5]), large, small)


def absorbing(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Small numbers, and a few large ones whose sum, or sum of squares, absorbs each small one but not all together.

    Two orders of summation then differ by many units in the last place, so that results in a narrow format do too.
    """
    # Sums in fp32 absorb terms below 2^-24 of them, and squares of numbers below 2^-12.
    depth = int(random.choice([11, 12, 12, 13, 23, 24, 24, 25, int(random.integers(6, 28))]))
    large = _draw_exponents(form, count, random, form.bias, form.bias)
    small = _draw_exponents(form, count, random, max(1, form.bias - depth), max(1, form.bias - depth))
    found: Array = np.where(random.random(count) < random.choice([0.002, 0.01, 0.05]), large, small)
    if random.random() < 0.5:
        found &= np.array((1 << (form.bits - 1)) - 1, dtype=found.dtype)
    return found


def levels(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """A few numbers near 1, and negative ones of one magnitude, whose exponentials a sum absorbs one by one."""
    depth = random.uniform(6.0, 20.0) if random.random() < 0.3 else random.uniform(15.5, 18.0)
    field = form.bias + int(np.log2(depth))
    part = depth / 2.0 ** int(np.log2(depth)) - 1.0
    mantissa = np.full(count, int(part * (1 << form.mantissa_bits)), dtype=np.int64)
    jitter = random.integers(0, max(1, (1 << form.mantissa_bits) >> 4), count)
    mantissa = np.minimum(mantissa + jitter, (1 << form.mantissa_bits) - 1)
    low = _patterns(form, np.ones(count, dtype=np.int64), np.full(count, field), mantissa)
    return np.where(random.random(count) < random.choice([0.002, 0.01, 0.05]), positive(form, count, random), low)


def positive(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Positive numbers near 1, in the domain of roots and logarithms."""
    found: Array = normal(form, count, random) & np.array((1 << (form.bits - 1)) - 1, dtype=storage(form.bits))
    return found


def subnormal(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Numbers around the smallest normal number."""
    return _draw_exponents(form, count, random, 0, 1)


def small_products(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Numbers whose products are near the smallest normal number."""
    half = form.bias // 2
    return _draw_exponents(form, count, random, half - form.mantissa_bits // 2, half + 1)


def zeros(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Zeros of either sign, and a few other numbers."""
    none = np.zeros(count, dtype=np.int64)
    zero = _patterns(form, random.integers(0, 2, count), none, none)
    return np.where(random.random(count) < random.choice([0.0, 0.1]), normal(form, count, random), zero)


def minus_zeros(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """-0 everywhere."""
    none = np.zeros(count, dtype=np.int64)
    return _patterns(form, none + 1, none, none)


def plus_zeros(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """+0 everywhere."""
    return np.zeros(count, dtype=storage(form.bits))


def ones(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """1 everywhere."""
    one = form.bias << form.mantissa_bits << form.padding
    return np.full(count, one, dtype=storage(form.bits))


def mostly_zeros(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """+0 almost everywhere, and a few numbers of one random magnitude."""
    height = int(random.integers(0, form.largest_exponent_field + 1))
    numbers = _draw_exponents(form, count, random, height - 1, height + 1)
    return np.where(
        random.random(count) < random.choice([2 / count, 0.02, 0.2]), numbers, plus_zeros(form, count, random)
    )


def large_negative(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Large negative numbers, whose exponentials are zero."""
    height = form.bias + min(10, form.bias // 2)
    none = np.zeros(count, dtype=np.int64)
    return _patterns(form, none + 1, none + height, random.integers(0, 1 << form.mantissa_bits, count))


def boundaries(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Zeros, the smallest and largest subnormal and normal numbers, and 1 with its neighbours."""
    one = form.bias << form.mantissa_bits
    least = 1 << form.mantissa_bits
    magnitudes = np.array([0, 1, least - 1, least, one - 1, one, one + 1, form.largest_magnitude], dtype=np.uint64)
    chosen = random.choice(magnitudes, count)
    none = np.zeros(count, dtype=np.int64)
    return _patterns(form, random.integers(0, 2, count), none, chosen)


def special(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Numbers near 1, with some infinities and NaNs where the format has them, in a buffer of one element too."""
    ordinary = normal(form, count, random)
    specials = [each for each in (form.infinity, form.canonical_nan) if each is not None]
    if not specials:
        return ordinary
    signs = random.integers(0, 2, count).astype(np.uint64) << np.uint64(form.bits - 1)
    chosen = (random.choice(np.array(specials, dtype=np.uint64), count) | signs).astype(ordinary.dtype)
    # Of a buffer of few elements, one is special in every third draw or so.
    return np.where(random.random(count) < random.choice([0.002, 0.05, 1.0 / max(1, count)]), chosen, ordinary)


def anything(form: FloatFormat, count: int, random: np.random.Generator) -> Array:
    """Any finite pattern."""
    return _draw_exponents(form, count, random, 0, form.largest_exponent_field)


WORDS: Mapping[str, str] = {
    "wide": "values of many magnitudes",
    "normal": "values near 1",
    "cancelling": "values that cancel",
    "absorbing": "values of which a few absorb the others",
    "levels": "values near 1 and values of one negative magnitude",
    "positive": "positive values",
    "anything": "any finite values",
    "subnormal": "subnormal values",
    "small products": "values with small products",
    "zeros": "zeros of both signs",
    "boundaries": "values at the boundaries of formats",
    "special": "values near 1 with infinities and NaNs",
    "minus zeros": "negative zeros",
    "few": "values that are mostly zero",
    "low": "large negative values",
    "ones": "ones",
    "nothing": "zeros",
}
"""What each distribution draws, in words."""

KINDS: Mapping[str, Draw] = {
    "wide": wide,
    "normal": normal,
    "cancelling": cancelling,
    "absorbing": absorbing,
    "levels": levels,
    "positive": positive,
    "anything": anything,
    "subnormal": subnormal,
    "small products": small_products,
    "zeros": zeros,
    "boundaries": boundaries,
    "special": special,
    "minus zeros": minus_zeros,
    "few": mostly_zeros,
    "low": large_negative,
    "ones": ones,
    "nothing": plus_zeros,
}
"""The distributions by name; those that distinguish most kernels first."""

DISTINGUISHING_KINDS = tuple(name for name in KINDS if name not in ("ones", "nothing"))
"""The distributions of whole buffers, and of elements below divergent nodes."""

ORDER_KINDS = ("absorbing", "absorbing", "levels", "wide")
"""The distributions of all buffers together on which few results of many show another order of a sum.

A result in a narrow format hides most differences of its sum, so that it takes many draws.
"""

NEUTRAL_KINDS = ("nothing", "nothing", "few", "normal", "cancelling", "positive", "low", "ones", "minus zeros")
"""The distributions of the other elements, which do not mask a difference in the result."""


def special_patterns(form: FloatFormat) -> Array:
    """Infinities, NaNs, the largest and the smallest numbers, zeros and 1, of both signs."""
    specials = [each for each in (form.infinity, form.canonical_nan) if each is not None]
    ordinary = [0, 1, 1 << form.mantissa_bits, form.bias << form.mantissa_bits, form.largest_magnitude]
    magnitudes = np.array([*specials, *specials, *(each << form.padding for each in ordinary)], dtype=np.uint64)
    both = np.concatenate([magnitudes, magnitudes | np.uint64(1 << (form.bits - 1))])
    return both.astype(storage(form.bits))


def integers(width: int, count: int, random: np.random.Generator, largest: int | None) -> Array:
    """Integers from 0 to `largest`, or any pattern where that is None."""
    kind = np.dtype(f"uint{8 * width}")
    if largest is None:
        return (
            random.integers(0, 1 << (8 * width), count, dtype=kind, endpoint=False)
            if width < 8
            else (random.integers(0, (1 << 64) - 1, count, dtype=kind, endpoint=True))
        )
    return random.integers(0, largest + 1, count).astype(kind)


def draw(form: ElementType, count: int, kind: str, random: np.random.Generator, largest: int | None) -> Array:
    """Draw `count` patterns of a buffer's elements, unsigned; integers and unknown types are from 0 to `largest`."""
    if form.format is not None:
        return KINDS[kind](form.format, count, random)
    return integers(form.bytes, count, random, 1 if form.name == "i1" else largest)
