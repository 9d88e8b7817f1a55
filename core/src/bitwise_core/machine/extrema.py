"""Sets of maxima and minima: no member counts twice, and all known members are one number.

The payload is the sum of the other members' hashes, but for the low half of its first word, which is the number's
place: the number of 32 bits or less itself, or the high half of a longer one whose low half is zero.  Two sets that
differ agree with probability 2**-96.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.folding import evaluated
from bitwise_core.machine.lane_hash import WIDENING
from bitwise_core.machine.lanes import Array, Lanes
from bitwise_core.machine.recording import TermContext
from bitwise_core.machine.sets import SET_INDEX, is_float, members

_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_MEMBERS = np.array([_HIGH, ~np.uint64(0)], dtype=np.uint64).reshape(2, 1, 1)
"""The bits of a payload that are no number's place."""
_INFINITY = {"fp64": 0x7FF0000000000000, "fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}
_FROM_HALVES = hashing.constant("fp16 members of a set of fp32") | np.uint64(1)


@dataclass(frozen=True, slots=True)
class _Kind:
    """An operation: its name and number, the infinity that changes nothing (None for integers), and its verb."""

    name: str
    index: int
    neutral: int | None
    largest: bool
    bits: int


@cache
def _kind(name: str) -> _Kind:
    verb, form = name.split(".")[0], name.split(".")[-1]
    bits = int(form.lstrip("fpbsu"))
    neutral = None
    if form in _INFINITY:
        neutral = _INFINITY[form] | (1 << (bits - 1) if verb == "max" else 0)
    return _Kind(name, SET_INDEX[name], neutral, verb == "max", bits)


@dataclass(frozen=True, slots=True)
class _Set:
    """A value as a set: the hashes of its members without the number, the number's place, and the set's flags."""

    words: hashing.Words
    number: Array
    flags: L.Meta


def extremum(
    name: str, left: Lanes, right: Lanes, bits: int, context: TermContext, *, keeps_neutral: bool = False
) -> Lanes:
    """The set of two values' members under a maximum or minimum of `SET_INDEX`.

    `keeps_neutral` says that the infinity which is beyond every number still shows in the result, beside a NaN.
    """
    kind = _kind(name)
    one, other = _set_of(kind, left), _set_of(kind, right)
    same = (one.words[0] == other.words[0]) & (one.words[1] == other.words[1])
    words = one.words + other.words
    if same.any():
        words = np.where(same, one.words, words)
    flags = one.flags | other.flags
    if not keeps_neutral:
        flags = L.without(flags, L.WITH_IDENTITY)
    positive = left.meta & right.meta & L.NOT_NEGATIVE if is_float(name) else 0
    numbered = flags & L.WITH_NUMBER
    if np.any(numbered):
        number = _number(kind, one, other)
        words[0] |= number
        # One number keeps the neutral infinity from ever showing, and a maximum not below it.
        flags = L.without_where(flags, L.WITH_IDENTITY, L.WITH_NUMBER)
        if is_float(name) and kind.largest:
            sign = np.uint64(1 << (min(kind.bits, 32) - 1))
            positive = positive | np.where((numbered != 0) & (number < sign), np.uint32(L.NOT_NEGATIVE), np.uint32(0))
    result = Lanes(bits, words, flags | L.SET | kind.index << L.SET_SHIFT | positive | L.implied(positive))
    context.note(name, result, [left, right], commutes=True)
    alike = L.some(same & (one.number == other.number) & np.asarray((one.flags ^ other.flags) & L.VALUE == 0))
    result = L.put(alike, _given_back(kind, left), result)
    if kind.neutral is not None and not keeps_neutral:
        for empty, value in ((left, right), (right, left)):
            result = L.put(L.holds(empty, kind.neutral), _given_back(kind, value), result)
    return result


def _given_back(kind: _Kind, value: Lanes) -> Lanes:
    """An operand as the result: equal but for the bits of a NaN."""
    return value if kind.neutral is None else L.flagged(value, L.LOOSE)


def _number(kind: _Kind, one: _Set, other: _Set) -> Array:
    """The place of the number in the union of two sets."""
    both = (one.flags & other.flags & L.WITH_NUMBER) != 0
    if not np.any(both):
        return one.number | other.number
    storage = L.UNSIGNED[kind.bits]
    shift = np.uint64(32) if kind.bits == 64 else np.uint64(0)
    numbers = [(each.number << shift).astype(storage) for each in (one, other)]
    joined = evaluated(numeric.operation(kind.name), numbers, both).astype(np.uint64) >> shift
    return np.where(both, joined, one.number | other.number)


def _set_of(kind: _Kind, value: Lanes) -> _Set:
    words, flags = members(kind.name, kind.index, value)
    own = L.SET | kind.index << L.SET_SHIFT
    inside = (value.meta & (L.FORM | 255 << L.SET_SHIFT)) == own
    number: Array = np.where(inside, words[0] & _LOW, np.uint64(0))
    words = words & _MEMBERS
    if kind.name.endswith("fp32"):
        half = L.some((value.meta & (L.WIDENED | L.PLUS_ZERO | L.NEGATED)) == L.WIDENED)
        if half is not False:
            words, number, flags = _of_halves(kind, value, half, words, number, flags)
    known = L.known_where(value)
    if known is False:
        return _Set(words, number, flags)
    if kind.neutral is not None:
        empty = L.holds(value, kind.neutral)
        if empty is not False:
            words = np.where(empty, np.uint64(0), words)
            flags = L.select_meta(empty, L.WITH_IDENTITY, flags)
            known = known & ~empty
    numbered = L.some(known & _has_place(kind, value.words[0]))
    if numbered is not False:
        words = np.where(numbered, np.uint64(0), words)
        place = value.words[0] >> _HALF if kind.bits == 64 else value.words[0]
        number = np.where(numbered, place, number)
        flags = L.select_meta(np.asarray(numbered), L.WITH_NUMBER, flags)
    return _Set(words, number, flags)


def _has_place(kind: _Kind, numbers: Array) -> Array:
    """Which known numbers fit the place of a set's number: no NaN does."""
    fits: Array = (numbers & _LOW) == 0 if kind.bits == 64 else np.ones(numbers.shape, dtype=bool)
    if kind.neutral is None:
        return fits
    infinity = np.uint64(kind.neutral & ((1 << (kind.bits - 1)) - 1))
    return fits & ((numbers & np.uint64((1 << (kind.bits - 1)) - 1)) <= infinity)


def _of_halves(
    kind: _Kind, value: Lanes, half: bool | Array, words: hashing.Words, number: Array, flags: L.Meta
) -> tuple[hashing.Words, Array, L.Meta]:
    """Members widened from fp16 enter by a multiple of what they are in a set of fp16, so that it does not matter
    on which side of the widening they met."""
    inner = Lanes(16, value.words, L.without(value.meta, L.WIDENED | L.HALF_RANGE))
    found = _set_of(_kind(kind.name.replace("fp32", "fp16")), inner)
    widened = numeric.operation(WIDENING).evaluate(found.number.astype(np.uint16)).astype(np.uint64)
    wide = np.where((found.flags & L.WITH_NUMBER) != 0, widened, np.uint64(0))
    mask = np.asarray(half)
    return (
        np.where(mask, found.words * _FROM_HALVES, words),
        np.where(mask, wide, number),
        L.select_meta(mask, found.flags, flags),
    )
