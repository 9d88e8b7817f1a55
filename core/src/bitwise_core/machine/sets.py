"""Sets of terms: maxima, minima and exact sums, whose operands have no order; and linear forms of integers.

A set's payload is the sum of its members' hashes, so that a set of sets is the set of all their members.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitwise_core.machine import hashing, recording
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import exact_hash, full_hash
from bitwise_core.machine.lanes import Lanes

_FORMATS = ("fp64", "fp32", "fp16", "bf16")
_SIGNED = ("s8", "s16", "s32", "s64")
_UNSIGNED = ("u8", "u16", "u32", "u64")
_BITS = ("b8", "b16", "b32", "b64", "pred")
SET_OPERATIONS: tuple[str, ...] = (
    "",
    *(f"{verb}{nan}.{fmt}" for verb in ("max", "min") for nan in ("", ".nan") for fmt in _FORMATS),
    *(f"{verb}.{fmt}" for verb in ("max", "min") for fmt in _SIGNED + _UNSIGNED),
    *(f"{verb}.{fmt}" for verb in ("add", "mul", "and", "or", "xor") for fmt in _BITS),
)
"""Operations whose operands form a set: associative and commutative to the bit (NaNs are one value)."""

SET_INDEX = {name: index for index, name in enumerate(SET_OPERATIONS) if name}
"""The number by which a set's properties tell its operation."""

_IDEMPOTENT = ("max", "min", "and", "or")

_MINUS_INFINITY = {"fp64": 0xFFF0000000000000, "fp32": 0xFF800000, "fp16": 0xFC00, "bf16": 0xFF80}
NEUTRAL = {
    f"{verb}{nan}.{fmt}": number if verb == "max" else number ^ 1 << (int(fmt[2:]) - 1)
    for verb in ("max", "min")
    for nan in ("", ".nan")
    for fmt, number in _MINUS_INFINITY.items()
}
"""The infinity that changes no set of an operation, as bits."""


def linear(name: str, values: list[Lanes], bits: int) -> Lanes | None:
    """Sums, differences and products with known numbers as one linear form modulo 2**bits, or None."""
    verb = name.split(".")[0]
    if (
        bits not in (32, 64)
        or verb not in ("add", "sub", "mul", "shl", "neg")
        or name.startswith(("mul.wide", "mul.hi"))
    ):
        return None
    total = f"add.b{bits}"
    index = SET_INDEX[total]
    if verb in ("add", "sub"):
        (left, left_flags), (right, right_flags) = (_members(total, index, value, None) for value in values)
        words = _sum(left, right if verb == "add" else _opposite(right))
        return Lanes(bits, words, left_flags | right_flags | L.SET | index << L.SET_SHIFT)
    if verb == "neg":
        words, flags = _members(total, index, values[0], None)
        return Lanes(bits, _opposite(words), flags | L.SET | index << L.SET_SHIFT)
    for value, factor in (values, values[::-1]):
        if L.known_where(factor) is not True:
            if verb == "shl":
                return None
            continue
        amount = factor.words[0]
        if verb == "shl":
            amount = np.where(
                amount >= np.uint64(bits), np.uint64(0), np.uint64(1) << np.minimum(amount, np.uint64(63))
            )
        words, flags = _members(total, index, value, None)
        return Lanes(bits, _multiple(words, _extended(amount, bits)), flags | L.SET | index << L.SET_SHIFT)
    return None


_UNIT = hashing.constant("one in a linear form")

# A linear form's payload is one number modulo 2**128 (low word first), a sum of its members' hashes times their
# factors: modulo 2**64 a factor of 2**63 would leave one bit of a member's hash, and forms that differ would meet.


def _sum(left: hashing.Words, right: hashing.Words) -> hashing.Words:
    low = left[0] + right[0]
    return np.stack([low, left[1] + right[1] + (low < left[0])])


def _opposite(words: hashing.Words) -> hashing.Words:
    return np.stack([np.uint64(0) - words[0], ~words[1] + (words[0] == 0)])


def _multiple(words: hashing.Words, factor: npt.NDArray[np.uint64]) -> hashing.Words:
    """The payload times a factor, read as a signed number of 64 bits."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    low, high = words[0], words[1]
    low_of, high_of = (low & mask, factor & mask), (low >> half, factor >> half)
    middle = high_of[0] * low_of[1] + (low_of[0] * low_of[1] >> half)
    other = low_of[0] * high_of[1] + (middle & mask)
    carried = high_of[0] * high_of[1] + (middle >> half) + (other >> half)
    top = high * factor + carried - np.where(factor >> np.uint64(63), low, np.uint64(0))
    return np.stack([low * factor, top])


def _extended(number: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """A number of `bits` bits, its sign carried to 64."""
    sign = np.uint64(1 << (bits - 1))
    return (number ^ sign) - sign


def _members(name: str, index: int, value: Lanes, neutral: int | None) -> tuple[hashing.Words, L.Meta]:
    """The sum of the hashes of a value's members in a set of `name`, and its flags."""
    meta = value.meta
    tag = hashing.constant("member of " + name)
    hash_of = full_hash if name.split(".")[-1].startswith(("fp", "bf")) else exact_hash
    own = L.SET | index << L.SET_SHIFT
    pattern = L.FORM | 255 << L.SET_SHIFT
    if isinstance(meta, int):
        if meta & pattern == own:
            return value.words, meta & (L.ABSORBED | L.STICKY)
        words = hashing.finalise(hash_of(value) * hashing.multiplier(3) + tag)
        flags: L.Meta = meta & L.STICKY
    else:
        inside = (meta & np.uint32(pattern)) == own
        words = hashing.finalise(hash_of(value) * hashing.multiplier(3) + tag)
        words = np.where(inside, value.words, words)
        flags = (meta & np.uint32(L.STICKY)) | np.where(inside, meta & np.uint32(L.ABSORBED), np.uint32(0))
    if name.startswith("add.b"):
        known = L.known_where(value)
        if known is not False:
            words = np.where(known, _multiple(_UNIT, _extended(value.words[0], value.bits)), words)
    if neutral is not None:
        empty = L.holds(value, neutral)
        if empty is not False:
            words = np.where(empty, np.uint64(0), words)
            flags = L.select_meta(empty, L.WITH_IDENTITY, flags)
        zero = L.holds(value, 0)
        if zero is not False:
            words = np.where(zero, np.uint64(0), words)
            flags = L.select_meta(zero, L.WITH_ZERO, flags)
    return words, flags


def union(
    name: str, index: int, left: Lanes, right: Lanes, bits: int, neutral: int | None, *, keeps_neutral: bool
) -> Lanes:
    """The set of two values' members under an operation that is associative and commutes.

    `index` is the operation's in `SET_INDEX`.  `neutral` is the infinity that adds no member, where there is one;
    `keeps_neutral` says that it still shows in the result (beside a NaN).
    """
    left_words, left_flags = _members(name, index, left, neutral)
    right_words, right_flags = _members(name, index, right, neutral)
    positive = left.meta & right.meta & L.NOT_NEGATIVE
    flags = left_flags | right_flags
    rounded = name.split(".")[-1].startswith(("fp", "bf"))
    twice = L.some((left_words == right_words).all(axis=0)) if name.split(".")[0] in _IDEMPOTENT else False
    if not keeps_neutral:
        flags = L.without(flags, L.WITH_IDENTITY)
    meta = flags | L.SET | index << L.SET_SHIFT
    if rounded:
        meta = meta | positive | L.implied(positive)
    words = left_words + right_words
    if twice is not False:
        words = np.where(twice, left_words, words)
    result = Lanes(bits, words, meta)
    recording.note(name, result, [left, right], commutes=True)
    if twice is not False:
        alike = L.some(twice & np.asarray(left_flags == right_flags))
        result = L.put(alike, L.flagged(left, L.LOOSE) if rounded else left, result)
    if neutral is not None:
        left_empty, right_empty = L.holds(left, neutral), L.holds(right, neutral)
        if not keeps_neutral:
            result = L.put(right_empty, L.flagged(left, L.LOOSE), L.put(left_empty, L.flagged(right, L.LOOSE), result))
        if left_empty is not False and right_empty is not False:
            result = L.put(left_empty & right_empty, left, result)
    return result
