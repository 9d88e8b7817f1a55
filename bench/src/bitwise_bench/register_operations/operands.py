"""Operands of recorded register operations: special patterns, crossed, and patterns drawn from a seed.

The patterns depend only on the kinds of the operands and on `SEED`, so that a record holds results only.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]

SEED = "register operations 1"
CASES = 1024
"""The cases of each form: the threads of one block."""

_CROSSED = 400
_NEAR = 128


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: the widths of its exponent and its mantissa."""

    exponent: int
    mantissa: int

    @property
    def bits(self) -> int:
        """The width of a pattern."""
        return 1 + self.exponent + self.mantissa

    @property
    def infinity(self) -> int:
        """The pattern of the positive infinity."""
        return (1 << self.exponent) - 1 << self.mantissa

    @property
    def one(self) -> int:
        """The pattern of 1."""
        return (1 << self.exponent - 1) - 1 << self.mantissa


FLOATS = {"f16": Format(5, 10), "bf16": Format(8, 7), "f32": Format(8, 23), "f64": Format(11, 52)}
INTEGERS = {"b16": 16, "b32": 32, "b64": 64}
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
WIDTHS = {
    **{name: form.bits for name, form in FLOATS.items()}, **INTEGERS, **dict.fromkeys(PACKED, 32),
    "bytes2": 16, "amount": 32, "position": 32, "pred": 32,
}  # fmt: skip
"""The width in bits of a pattern of each kind of operand; a predicate is the lowest bit of 32."""


class _Stream:
    """Numbers below a bound from SHAKE-256 of a name: the same on every machine and with every library."""

    def __init__(self, name: str) -> None:
        drawn = hashlib.shake_256(f"{SEED}/{name}".encode()).digest(1 << 19)
        self._words: Iterator[int] = iter(struct.unpack("<65536Q", drawn))

    def below(self, bound: int) -> int:
        return next(self._words) % bound

    def bits(self, width: int) -> int:
        return next(self._words) & ((1 << width) - 1)

    def choice(self, pool: Sequence[int]) -> int:
        return pool[self.below(len(pool))]


def _float_specials(form: Format) -> list[int]:
    one, infinity, sign = form.one, form.infinity, 1 << form.bits - 1
    least, half = 1 << form.mantissa, 1 << form.mantissa - 1
    return [
        0, sign, 1, sign | (least - 1), least, sign | (least + 1), one, sign | one, one + 1, one - least,
        sign | (one + half), infinity - 1, sign | (infinity - 1), infinity, sign | infinity, infinity | half,
        sign | (infinity + 1), sign - 1,
    ]  # fmt: skip


_BOUNDARIES = (
    *(0.5, 1.5, 2.5, 3.5, 0.25, 0.75, 1.0, 2.0, 3.0, 126.5, 127.5, 128.5, 254.5, 255.5, 256.5, 32766.5, 32767.5),
    *(32768.5, 65534.5, 65535.5, 65536.5, 448.0, 464.0, 480.0, 57344.0, 61440.0, 65504.0, 65520.0, 2.0**31 - 1),
    *(2.0**31 - 0.5, 2.0**32 - 1, 2.0**32 - 0.5, 2.0**128, 2.0**128 - 2.0**103, 2.0**128 - 2.0**119, 2.0**-150),
    *(2.0**each for each in (7, 8, 11, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64, 127)),
    *(2.0**each for each in (-6, -7, -9, -10, -14, -16, -17, -24, -25, -126, -133, -134, -149)),
)
"""Numbers at which a conversion or a function changes its behaviour."""


def _encoded(number: float, form: Format) -> int:
    """Return the pattern of a number, cut to the mantissa; an infinity if it is too large."""
    if form.bits == 64:
        return int(struct.unpack("<Q", struct.pack("<d", number))[0])
    with np.errstate(over="ignore"):
        if form.exponent == 5:
            return int(np.float16(number).view(np.uint16))
        word = int(np.float32(number).view(np.uint32))
    return word >> 32 - form.bits


def _float_boundaries(form: Format) -> list[int]:
    sign = 1 << form.bits - 1
    found = _float_specials(form)
    for number in _BOUNDARIES:
        pattern = _encoded(number, form)
        for near in (pattern, pattern - 1, pattern + 1):
            found += [max(near, 0), max(near, 0) | sign]
    return list(dict.fromkeys(found))


def _drawn_float(stream: _Stream, form: Format) -> int:
    """Return a pattern: any, or one whose number is near 1, far from it or of an integer's size."""
    how = stream.below(4)
    if how == 0:
        return stream.bits(form.bits)
    reach = {1: 4, 2: min(150, (1 << form.exponent - 1) - 2), 3: 40}[how]
    bias = (1 << form.exponent - 1) - 1
    exponent = min(max(bias + stream.below(2 * reach + 1) - (reach if how < 3 else 4), 0), 2 * bias)
    mantissa = stream.bits(form.mantissa)
    cut = stream.below(form.mantissa + 1) if stream.below(2) else 0
    return stream.bits(1) << form.bits - 1 | exponent << form.mantissa | mantissa >> cut << cut


def _integer_specials(bits: int) -> list[int]:
    top, mask = 1 << bits - 1, (1 << bits) - 1
    half = 1 << bits // 2
    return [
        0, 1, 2, 3, 7, mask, mask - 1, mask - 6, top, top - 1, top + 1, half, half - 1, mask - half + 1,
        0x5A5A5A5AA5A5A5A5 & mask, 0xDEADBEEFCAFE1234 & mask, 0x00FF00FF00FF80FF & mask, 0x80808080807F7F7F & mask,
    ]  # fmt: skip


def _integer_boundaries(bits: int) -> list[int]:
    mask = (1 << bits) - 1
    near = [(1 << place) + off & mask for place in range(bits) for off in (-1, 0, 1)]
    return list(dict.fromkeys([*_integer_specials(bits), *near, *(mask ^ each for each in near[:: 1 + bits // 32])]))


def _drawn_integer(stream: _Stream, bits: int) -> int:
    word, how = stream.bits(bits), stream.below(4)
    if how == 1:
        return word >> stream.below(bits)
    if how == 2:
        return word << stream.below(bits) & (1 << bits) - 1
    if how == 3:
        return ~(word >> stream.below(bits)) & (1 << bits) - 1
    return word


_AMOUNTS = [0, 1, 2, 7, 8, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255]
_HUGE = [256, 257, 288, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFE0, 0xFFFFFFFF]


@dataclass(frozen=True, slots=True)
class _Pool:
    specials: list[int]
    boundaries: list[int]
    draw: Callable[[_Stream], int]


@cache
def _pool(kind: str) -> _Pool:
    if kind in FLOATS:
        form = FLOATS[kind]
        return _Pool(_float_specials(form), _float_boundaries(form), lambda stream: _drawn_float(stream, form))
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return _Pool(_integer_specials(bits), _integer_boundaries(bits), lambda stream: _drawn_integer(stream, bits))
    if kind in PACKED:
        half = _pool(PACKED[kind])
        stream = _Stream(f"halves of {kind}")

        def pairs(low: list[int]) -> list[int]:
            return [each | stream.choice(half.boundaries) << 16 for each in low]

        return _Pool(pairs(half.specials), pairs(half.boundaries), lambda one: half.draw(one) | half.draw(one) << 16)
    if kind == "bytes2":
        every = [each | (each * 167 + 13 & 255) << 8 for each in range(256)]
        return _Pool(every[::15], every, lambda stream: stream.bits(16))
    if kind == "amount":
        return _Pool(_AMOUNTS, [*range(130), *_AMOUNTS, *_HUGE], lambda stream: stream.choice([*_AMOUNTS, *_HUGE]))
    if kind == "position":
        return _Pool(_AMOUNTS, list(range(256)), lambda stream: stream.below(256 if stream.below(2) else 70))
    if kind == "pred":
        return _Pool([0, 1], [0, 1], lambda stream: stream.bits(1))
    raise ValueError(f"{kind} is not a kind of operand; the kinds are {', '.join(WIDTHS)}")


@cache
def operands(kinds: tuple[str, ...]) -> tuple[Words, ...]:
    """Return the patterns of each operand, one for each case, for operands of these kinds (keys of `WIDTHS`)."""
    if not kinds:
        return ()
    pools, stream = [_pool(kind) for kind in kinds], _Stream(",".join(kinds))
    rows: list[tuple[int, ...]] = []
    if len(kinds) == 1:
        rows += [(each,) for each in pools[0].boundaries]
    else:
        if math.prod(len(pool.specials) for pool in pools) <= _CROSSED:
            rows += itertools.product(*(pool.specials for pool in pools))
        else:
            rows += [tuple(stream.choice(pool.specials) for pool in pools) for _ in range(_CROSSED)]
        rows += _near(kinds, stream)
    del rows[CASES - 128 :]
    while len(rows) < CASES:
        rows.append(
            tuple(stream.choice(pool.boundaries) if stream.below(4) == 0 else pool.draw(stream) for pool in pools)
        )
    return tuple(np.array(column, dtype=np.uint64) for column in zip(*rows, strict=True))


def _drawn(pool: _Pool, stream: _Stream) -> int:
    return pool.draw(stream) if stream.below(4) else stream.choice(pool.boundaries)


def _near(kinds: tuple[str, ...], stream: _Stream) -> list[tuple[int, ...]]:
    """Return rows whose sum cancels: the last operand is close to the negated other one, or to the negated product."""
    if kinds[0] not in FLOATS or set(kinds) != {kinds[0]}:
        return []
    form = FLOATS[kinds[0]]
    rows = []
    for _ in range(_NEAR):
        given = [_drawn_float(stream, form) for _ in kinds[1:]]
        with np.errstate(all="ignore"):
            product: Any = np.float64(1)
            for each in given:
                product = product * np.float64(_decoded(each, form))
        last = _encoded(float(-product), form) + stream.below(5) - 2
        rows.append((*given, last & (1 << form.bits) - 1))
    return rows


def _decoded(pattern: int, form: Format) -> float:
    if form.bits == 64:
        return float(struct.unpack("<d", struct.pack("<Q", pattern))[0])
    if form.exponent == 5:
        return float(np.uint16(pattern).view(np.float16))
    return float(np.uint32(pattern << 32 - form.bits).view(np.float32))
