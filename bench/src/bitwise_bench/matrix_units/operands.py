"""Random operands that distinguish the arithmetic of matrix units, as bit patterns.

A tile is one product of (m, depth) and (depth, n) with an accumulator (m, n).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import Bits, FloatFormat, storage
from bitwise_core.numerics.mma import IntegerSum, MmaSpec

Integers: TypeAlias = npt.NDArray[np.int64]
Drawer: TypeAlias = Callable[["_Draw"], tuple[Bits, Bits, Bits]]


@dataclass(frozen=True, slots=True)
class Operands:
    """Bit patterns a (tiles, m, depth), b (tiles, depth, n), c (tiles, m, n)."""

    a: Bits
    b: Bits
    c: Bits


@dataclass(frozen=True, slots=True)
class _Draw:
    spec: MmaSpec
    generator: np.random.Generator
    tiles: int
    m: int
    n: int
    depth: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.tiles, self.m, self.depth), (self.tiles, self.depth, self.n), (self.tiles, self.m, self.n)

    def form(self, operand: Any) -> FloatFormat:
        form = self.spec.form(operand)
        assert isinstance(form, FloatFormat)
        return form

    def numbers(self, operand: Any, shape: tuple[int, ...], low: int, high: int) -> Bits:
        """Return numbers of random sign and mantissa, with exponents from `low` to `high`."""
        form = self.form(operand)
        exponent = self.generator.integers(low, high, shape, endpoint=True)
        fraction = self.generator.integers(0, 1 << form.mantissa_bits, shape)
        return compose(form, self.generator.integers(0, 2, shape), exponent, fraction, self.generator)

    def uniform_patterns(self, operand: Any, shape: tuple[int, ...]) -> Bits:
        """Return uniformly distributed patterns."""
        bits = self.spec.form(operand).bits
        words = self.generator.integers(0, 1 << bits, shape, dtype=np.uint64, endpoint=False) if bits < 64 else (
            self.generator.integers(0, (1 << 64) - 1, shape, dtype=np.uint64, endpoint=True)
        )  # fmt: skip
        return words.astype(storage(bits))


def compose(
    form: FloatFormat,
    sign: Integers,
    exponent: Integers,
    fraction: Integers,
    padding: np.random.Generator | None = None,
) -> Bits:
    """Return patterns of 1.fraction * 2**exponent; underflow gives subnormals or zero, overflow the largest number.

    Padding bits are random, so that an evaluation that reads them is detected.
    """
    field = exponent + form.bias
    below = np.clip(1 - field, 0, form.mantissa_bits + 2)
    small = ((1 << form.mantissa_bits) | fraction) >> below
    magnitude = np.where(field >= 1, (np.maximum(field, 0) << form.mantissa_bits) | fraction, small)
    magnitude = np.minimum(magnitude, form.largest_magnitude)
    pattern = (magnitude << form.padding) | (sign << (form.bits - 1))
    if form.padding and padding is not None:
        pattern = pattern | padding.integers(0, 1 << form.padding, pattern.shape)
    return pattern.astype(storage(form.bits))


def specials(form: FloatFormat) -> list[int]:
    """Return zeros, smallest and largest numbers, infinities and NaNs of several payloads, with both signs."""
    low = form.padding
    found = [0, 1 << low, (1 << (form.mantissa_bits + low)) - (1 << low), 1 << (form.mantissa_bits + low)]
    found += [form.largest_magnitude << low, form.one]
    if form.infinity is not None:
        top = form.infinity
        found += [top, top | 1 << low, top | 1 << (form.mantissa_bits + low - 1)]
    if form.canonical_nan is not None:
        found.append(form.canonical_nan)
    return [pattern | sign << (form.bits - 1) for pattern in found for sign in (0, 1)]


def _near(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Terms of similar magnitude, so that every bit of the sum matters."""
    left, right, start = draw.shapes
    return (
        draw.numbers("left", left, -2, 2),
        draw.numbers("right", right, -2, 2),
        draw.numbers("accumulator", start, -3, 6),
    )


def _wide(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Terms of very different magnitude, most of which are truncated."""
    left, right, start = draw.shapes
    room = (draw.form("accumulator").largest_exponent - 4) // 2
    spans = [min(14, room, draw.form(name).largest_exponent) for name in ("left", "right")]
    reach = min(sum(spans), draw.form("accumulator").largest_exponent)
    return (
        draw.numbers("left", left, -spans[0], spans[0]), draw.numbers("right", right, -spans[1], spans[1]),
        draw.numbers("accumulator", start, -reach, reach),
    )  # fmt: skip


def _cancelling(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Products that cancel in pairs at random positions of k, with small terms between them."""
    a, b, c = _wide(draw)
    places = draw.generator.permutation(draw.depth)
    pairs = draw.depth // 3
    first, second = places[:pairs], places[pairs : 2 * pairs]
    a[:, :, second] = a[:, :, first]
    b[:, second] = b[:, first] ^ b.dtype.type(1 << (draw.form("right").bits - 1))
    return a, b, c


def _tiny(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Sums near the smallest results; products are as small as possible and often zero."""
    left, right, start = draw.shapes
    form, one, other = draw.form("accumulator"), draw.form("left"), draw.form("right")
    bottom = form.smallest_bit
    reachable = max(bottom, one.smallest_bit + other.smallest_bit)
    # The exponent of a product is divided between its factors at random.
    half = int(draw.generator.integers(one.smallest_bit // 2 - 4, one.smallest_bit // 4 + 1))
    a = draw.numbers("left", left, half - 6, half + 6)
    b = draw.numbers("right", right, reachable - half - 8, reachable - half + 14)
    c = draw.numbers("accumulator", start, bottom - 2, bottom + 26)
    if reachable > bottom:
        a[draw.generator.random(left) < 0.7] = 0
    c[draw.generator.random(start) < 0.3] = 0
    return a, b, c


def _huge(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Sums near the largest results."""
    left, right, start = draw.shapes
    tops = [draw.form(name).largest_exponent for name in ("left", "right", "accumulator")]
    split = min(tops[0], max(tops[2] // 2, tops[2] - tops[1]))
    rest = min(tops[1], tops[2] - split)
    return (
        draw.numbers("left", left, split - 4, split), draw.numbers("right", right, rest - 4, rest),
        draw.numbers("accumulator", start, tops[2] - 3, tops[2]),
    )  # fmt: skip


def _special(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Sparse zeros, infinities, NaNs, smallest and largest numbers."""
    found = _wide(draw)
    for values, name, share in zip(found, ("left", "right", "accumulator"), (0.02, 0.02, 0.1), strict=True):
        chosen = draw.generator.random(values.shape) < share
        values[chosen] = draw.generator.choice(
            np.array(specials(draw.form(name)), dtype=values.dtype), int(chosen.sum())
        )
    return found


def _zeros(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Many zeros of both signs, multiplied by large and small factors."""
    found = _wide(draw)
    for values, name in zip(found, ("left", "right", "accumulator"), strict=True):
        chosen = draw.generator.random(values.shape) < 0.6
        sign = values.dtype.type(1 << (draw.form(name).bits - 1))
        values[chosen] = draw.generator.choice(np.array([0, sign], dtype=values.dtype), int(chosen.sum()))
    return found


def _uniform(draw: _Draw) -> tuple[Bits, Bits, Bits]:
    """Uniformly distributed patterns."""
    left, right, start = draw.shapes
    return (
        draw.uniform_patterns("left", left),
        draw.uniform_patterns("right", right),
        draw.uniform_patterns("accumulator", start),
    )


KINDS: dict[str, Drawer] = {
    "near": _near, "wide": _wide, "cancelling": _cancelling, "tiny": _tiny, "huge": _huge, "special": _special,
    "zeros": _zeros, "uniform": _uniform,
}  # fmt: skip


def kinds_of(spec: MmaSpec) -> tuple[str, ...]:
    """Return the applicable kinds: only `uniform` for integer units."""
    return ("uniform",) if isinstance(spec.arithmetic, IntegerSum) else tuple(KINDS)


def draw(spec: MmaSpec, kind: str, tiles: int, m: int, n: int, depth: int, seed: int = 0) -> Operands:
    """Return operands of one kind, a deterministic function of the arguments."""
    generator = np.random.default_rng([seed, crc32(f"{spec.name} {kind} {depth}".encode())])
    return Operands(*KINDS[kind](_Draw(spec, generator, tiles, m, n, depth)))
