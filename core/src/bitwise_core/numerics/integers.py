"""Integer operations on bit patterns, modulo 2**bits.

Every function takes and returns arrays in the unsigned type of the operand's width, predicates as booleans, and
broadcasts.  The functions use only NumPy's elementary functions on that type, because the checker also applies them to
integers of the form block + thread, which support no others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import modular
from bitwise_core.numerics.formats import IntegerFormat
from bitwise_core.numerics.relations import RELATIONS
from bitwise_core.numerics.word_arithmetic import Bits, words

Signed: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.uint64]
Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Array]

_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def signed_words(bits: Bits, form: IntegerFormat) -> Signed:
    """Return the values, as int64 where the format is signed and as uint64 otherwise."""
    value = words(bits)
    if not form.signed:
        return value
    result: Signed = modular.signed(value, form.bits)
    return result


def signed(pattern: Array) -> Array:
    """Return the same bits as signed integers."""
    return pattern.view(_SIGNED[pattern.dtype.itemsize])


def _as(form: IntegerFormat, *operands: Array) -> tuple[Array, ...]:
    """Return the operands, as signed integers where the format is signed."""
    return tuple(signed(each) for each in operands) if form.signed else operands


def negate(a: Array) -> Array:
    """Negate in two's complement; the most negative value is unchanged."""
    found: Array = a.dtype.type(0) - a
    return found


def absolute(a: Array) -> Array:
    """Return the absolute value of a signed number; the most negative value is unchanged."""
    return np.where(signed(a) < 0, a.dtype.type(0) - a, a)


def resize(target: IntegerFormat, source: IntegerFormat, a: Array) -> Array:
    """Convert between widths: extend by the sign of the source format, or keep the low bits."""
    kind = _UNSIGNED[target.bits]
    if source.signed and target.bits > source.bits:
        wide: Array = signed(a).astype(np.dtype(f"int{target.bits}")).view(kind)
        return wide
    return a.astype(kind)


def saturate(target: IntegerFormat, source: IntegerFormat, a: Array) -> Array:
    """Return the nearest number of the target format."""
    value: Array = signed(a).astype(np.int64) if source.signed else a.astype(np.uint64)
    value = np.maximum(value, value.dtype.type(max(target.smallest, source.smallest)))
    value = np.minimum(value, value.dtype.type(min(target.largest, source.largest)))
    return value.astype(f"int{target.bits}" if target.signed else f"uint{target.bits}").view(_UNSIGNED[target.bits])


def multiply_wide(form: IntegerFormat, a: Array, b: Array) -> Array:
    """Return the full product, twice as wide as the operands, which have at most 32 bits."""
    unsigned = _UNSIGNED[16 * a.dtype.itemsize]
    if not form.signed:
        product: Array = a.astype(unsigned) * b.astype(unsigned)
        return product
    wide = np.dtype(f"int{16 * a.dtype.itemsize}")
    left, right = (signed(each).astype(wide).view(unsigned) for each in (a, b))
    found: Array = left * right
    return found


def multiply_high(form: IntegerFormat, a: Array, b: Array) -> Array:
    """Return the high half of the product."""
    size = a.dtype.itemsize
    if size < 8:
        product = multiply_wide(form, a, b)
        upper: Array = product >> product.dtype.type(8 * size)
        return upper.astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & low)
    high: Array = a1 * b1 + (middle >> half) + (other >> half)
    if form.signed:
        high = high - np.where(signed(a) < 0, b, np.uint64(0)) - np.where(signed(b) < 0, a, np.uint64(0))
    return high


def divide(form: IntegerFormat, a: Array, b: Array) -> Array:
    """Return the quotient rounded toward zero; all ones where b is zero."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if not form.signed:
        return np.where(zero, ~b.dtype.type(0), a // safe)
    x, y = signed(a), signed(safe)
    magnitude = np.where(x < 0, a.dtype.type(0) - a, a) // np.where(y < 0, safe.dtype.type(0) - safe, safe)
    return np.where(zero, ~b.dtype.type(0), np.where((x < 0) != (y < 0), a.dtype.type(0) - magnitude, magnitude))


def remainder(form: IntegerFormat, a: Array, b: Array) -> Array:
    """Return the remainder of `divide`; all ones where b is zero."""
    found: Array = np.where(b == 0, ~b.dtype.type(0), a - divide(form, a, b) * b)
    return found


def extremum(verb: str, form: IntegerFormat, a: Array, b: Array) -> Array:
    """Evaluate `min` or `max`."""
    x, y = _as(form, a, b)
    return np.where((x < y) == (verb == "min"), a, b)


def extremum_by_sign(verb: str, a: Array, b: Array) -> Array:
    """Evaluate `min` or `max` in the order of floating-point patterns: by sign, then by magnitude, -0 before +0."""
    sign = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
    keys = [np.where(each & sign, ~each, each | sign) for each in (a, b)]
    return np.where((keys[0] > keys[1]) == (verb == "max"), a, b)


def compare(verb: str, form: IntegerFormat, a: Array, b: Array) -> Array:
    """Evaluate a comparison to a predicate."""
    return RELATIONS[verb](*_as(form, a, b))


def shift(verb: str, form: IntegerFormat, a: Array, amount: Array) -> Array:
    """Evaluate `shl` or `shr`; from an amount of the width on the result is 0, or copies of the sign."""
    large = amount >= np.uint32(form.bits)
    count = np.where(large, np.uint32(form.bits - 1), amount).astype(a.dtype)
    if form.signed:
        filled: Array = signed(a) >> signed(count)
        return filled.view(a.dtype)
    moved: Array = a << count if verb == "shl" else a >> count
    return np.where(large, a.dtype.type(0), moved)


def add_with_carry(a: Array, b: Array, carry: Array) -> Array:
    """Return a + b + carry."""
    found: Array = a + b + carry.astype(a.dtype)
    return found


def subtract_with_borrow(a: Array, b: Array, borrow: Array) -> Array:
    """Return a - b - borrow."""
    found: Array = a - b - borrow.astype(a.dtype)
    return found


def carry_out(a: Array, b: Array) -> Array:
    """Whether a + b wraps, for unsigned numbers."""
    found: Array = a + b < a
    return found


def carry_out_of_three(a: Array, b: Array, carry: Array) -> Array:
    """Whether a + b + carry wraps, for unsigned numbers."""
    total = a + b
    found: Array = (total < a) | (total + carry.astype(a.dtype) < total)
    return found


def borrow_out(a: Array, b: Array) -> Array:
    """Whether a - b wraps, for unsigned numbers."""
    return np.less(a, b)


def borrow_out_of_three(a: Array, b: Array, borrow: Array) -> Array:
    """Whether a - b - borrow wraps, for unsigned numbers."""
    found: Array = (a < b) | (a - b < borrow.astype(a.dtype))
    return found


def sum_overflows(a: Array, b: Array) -> Array:
    """Whether a + b overflows, for signed numbers."""
    total = a + b
    found: Array = ((a ^ total) & (b ^ total)) >> a.dtype.type(8 * a.dtype.itemsize - 1) != 0
    return found


def difference_overflows(a: Array, b: Array) -> Array:
    """Whether a - b overflows, for signed numbers."""
    found: Array = ((a ^ b) & (a ^ (a - b))) >> a.dtype.type(8 * a.dtype.itemsize - 1) != 0
    return found


def saturating_sum(a: Array, b: Array) -> Array:
    """Return a + b of unsigned numbers, at most the largest number."""
    total: Array = a + b
    return np.where(total < a, ~a.dtype.type(0), total)


def saturating_difference(a: Array, b: Array) -> Array:
    """Return a - b of unsigned numbers, at least 0."""
    return np.where(a < b, a.dtype.type(0), a - b)


def low_24(form: IntegerFormat, a: Array) -> Array:
    """Return the lowest 24 bits, sign-extended or zero-extended."""
    if form.signed:
        found: Array = (signed(a << np.uint32(8)) >> np.int32(8)).view(np.uint32)
        return found
    return a & np.uint32(0xFFFFFF)


def _ones(count: Array) -> Array:
    """Return 64-bit words with the lowest `count` bits set, at most 64."""
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1))


def extract_field(form: IntegerFormat, a: Array, position: Array, length: Array) -> Array:
    """Return `length` bits from `position` up, both modulo 256; copies of the sign, or zeros, beyond the top."""
    wide = signed(a).astype(np.int64).view(np.uint64) if form.signed else a.astype(np.uint64)
    start = (position & np.uint32(0xFF)).astype(np.uint64)
    count = (length & np.uint32(0xFF)).astype(np.uint64)
    if not form.signed:
        moved = np.where(start >= form.bits, np.uint64(0), wide >> np.minimum(start, np.uint64(63)))
        return (moved & _ones(count)).astype(a.dtype)
    moved = (wide.view(np.int64) >> np.minimum(start, np.uint64(63)).view(np.int64)).view(np.uint64)
    return _extended(moved, count, a.dtype)


def _extended(moved: Array, count: Array, kind: np.dtype[Any]) -> Array:
    """Return the lowest `count` bits of 64-bit words, sign-extended; 0 where `count` is 0."""
    room = np.minimum(np.uint64(64) - np.minimum(count, np.uint64(64)), np.uint64(63))
    result = ((moved << room).view(np.int64) >> room.view(np.int64)).view(np.uint64)
    return np.where(count == 0, np.uint64(0), result).astype(kind)


def extract_field_wrapped(form: IntegerFormat, a: Array, position: Array, length: Array) -> Array:
    """Return `length` bits from `position` up, both modulo 32."""
    low, size = position & np.uint32(31), length & np.uint32(31)
    if not form.signed:
        found: Array = (a >> low) & ((np.uint32(1) << size) - np.uint32(1))
        return found
    wide = signed(a).astype(np.int64) >> low.astype(np.int64)
    return _extended(wide.view(np.uint64), size.astype(np.uint64), a.dtype)


def insert_field(form: IntegerFormat, a: Array, b: Array, position: Array, length: Array) -> Array:
    """Return b with the low `length` bits of a from `position` up, both modulo 256; bits beyond the top are dropped."""
    start = (position & np.uint32(0xFF)).astype(np.uint64)
    keep = _ones((length & np.uint32(0xFF)).astype(np.uint64))
    field = np.where(start >= form.bits, np.uint64(0), keep << np.minimum(start, np.uint64(63)))
    inserted = (a.astype(np.uint64) << np.minimum(start, np.uint64(63))) & field
    return (inserted | (b.astype(np.uint64) & ~field)).astype(a.dtype)


def field_mask(form: IntegerFormat, length: Array, position: Array) -> Array:
    """Return `length` set bits from `position` up, both modulo the width."""
    low = np.uint64(form.bits - 1)
    ones = (np.uint64(1) << (length.astype(np.uint64) & low)) - np.uint64(1)
    return (ones << (position.astype(np.uint64) & low)).astype(_UNSIGNED[form.bits])


def funnel_shift(direction: str, mode: str, low: Array, high: Array, amount: Array) -> Array:
    """Shift the 64-bit pair high:low and return its high word for direction `l`, its low word for `r`.

    The amount is taken modulo 32 (mode `wrap`) or limited to 32 (mode `clamp`).
    """
    count = (amount & np.uint32(31) if mode == "wrap" else np.minimum(amount, np.uint32(32))).astype(np.uint64)
    pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    moved = (pair << count) >> np.uint64(32) if direction == "l" else pair >> count
    return moved.astype(np.uint32)


def logic_of_three(truth: int, a: Array, b: Array, c: Array) -> Array:
    """Evaluate a bitwise function of three operands: bit 4 a + 2 b + c of the truth table."""
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), dtype=np.uint32)
    for row in range(8):
        if truth >> row & 1:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Select four bytes of the pair b:a by four nibbles: bits 0 to 2 choose a byte, bit 3 replicates its sign."""
    pair = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), dtype=np.uint32)
    for place in range(4):
        nibble = (selector >> np.uint32(4 * place)) & np.uint32(15)
        byte = (pair >> (np.uint64(8) * (nibble & np.uint32(7)).astype(np.uint64))) & np.uint64(255)
        byte = np.where(nibble & np.uint32(8), np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0)), byte)
        result = result | byte.astype(np.uint32) << np.uint32(8 * place)
    return result


def _places(a: Array) -> Array:
    """Return the bits as booleans along a new last axis, the lowest first."""
    places: Array = ((a[..., None] >> np.arange(8 * a.dtype.itemsize, dtype=a.dtype)) & a.dtype.type(1)).astype(bool)
    return places


def count_ones(a: Array) -> Array:
    """Return the number of set bits."""
    found: Array = np.add.reduce(_places(a), axis=-1, dtype=np.uint32)
    return found


def reverse_bits(a: Array) -> Array:
    """Return the bits in reverse order."""
    weights = a.dtype.type(1) << np.arange(8 * a.dtype.itemsize, dtype=a.dtype)[::-1]
    found: Array = np.where(_places(a), weights, a.dtype.type(0)).sum(axis=-1, dtype=a.dtype)
    return found


def _highest(places: Array) -> Array:
    """Return the position of the highest set bit, -1 where there is none."""
    bits = places.shape[-1]
    return np.where(places.any(axis=-1), bits - 1 - np.argmax(places[..., ::-1], axis=-1), -1)


def count_leading_zeros(a: Array) -> Array:
    """Return the number of leading zeros; the width for 0."""
    places = _places(a)
    found: Array = places.shape[-1] - 1 - _highest(places)
    return found.astype(np.uint32)


def find_highest(form: IntegerFormat, from_top: bool, a: Array) -> Array:
    """Return the position of the highest set bit (signed: highest bit unlike the sign), all ones where there is none.

    The position is counted from the lowest bit, or from the highest bit with `from_top`.
    """
    places = _places(a)
    if form.signed:
        places = np.where((signed(a) < 0)[..., None], ~places, places)
    top = _highest(places)
    return (np.where(top < 0, -1, form.bits - 1 - top) if from_top else top).astype(np.int32).view(np.uint32)


def find_lowest(a: Array) -> Array:
    """Return the position of the lowest set bit, all ones where there is none."""
    places = _places(a)
    return np.where(places.any(axis=-1), places.argmax(axis=-1), -1).astype(np.int32).view(np.uint32)


def bit_is_set(a: Array, place: Array) -> Array:
    """Whether the bit at a position, modulo the width, is set."""
    at = place.astype(a.dtype) & a.dtype.type(8 * a.dtype.itemsize - 1)
    found: Array = (a >> at) & a.dtype.type(1) != 0
    return found


def copy_sign(a: Array, b: Array) -> Array:
    """Return the highest bit of a with the other bits of b."""
    sign = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
    found: Array = (a & sign) | (b & ~sign)
    return found


def add_distance(form: IntegerFormat, a: Array, b: Array, c: Array) -> Array:
    """Return c + |a - b|."""
    x, y = _as(form, a, b)
    total: Array = c + np.where(x < y, b - a, a - b)
    return total


def dot_of_bytes(left_signed: bool, right_signed: bool, a: Array, b: Array, c: Array) -> Array:
    """Return c + the four products of the bytes of a and b."""
    total = c.copy()
    for low in range(0, 32, 8):
        x, y = ((each >> np.uint32(low)).astype(np.uint8) for each in (a, b))
        left = signed(x).astype(np.int32) if left_signed else x.astype(np.int32)
        right = signed(y).astype(np.int32) if right_signed else y.astype(np.int32)
        total = total + (left * right).view(np.uint32)
    return total


def find_nth(a: Array, base: Array, offset: Array) -> Array:
    """Return the position of the |offset|-th set bit from bit `base` on, all ones where there is none.

    A positive offset counts upwards, a negative one downwards.  For offset 0 it is `base` if that bit is set.
    """
    places = np.arange(32)
    start, steps = base.astype(np.int64)[..., None], signed(offset).astype(np.int64)[..., None]
    ahead = np.where(steps > 0, places >= start, np.where(steps < 0, places <= start, places == start))
    counted = _places(a) & ahead & (start < 32)
    upwards = np.cumsum(counted, axis=-1)
    downwards = np.cumsum(counted[..., ::-1], axis=-1)[..., ::-1]
    wanted = np.maximum(np.abs(steps), 1)
    found = counted & (np.where(steps < 0, downwards, upwards) == wanted)
    return np.where(found.any(axis=-1), found.argmax(axis=-1), -1).astype(np.int32).view(np.uint32)
