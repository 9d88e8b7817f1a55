"""Values that consist of loads and zeros, held as one address for each lane.

Copies and the operands of matrix instructions are such values, and one number for each lane takes a fraction of the
time of their hashes and flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

ZERO = np.uint64(2**64 - 2)
"""The address of a zero: no buffer of a launch has it."""

_LARGEST = 1 << 63
"""No buffer of a launch has addresses from here on."""


@dataclass(frozen=True, slots=True)
class LoadsAndZeros:
    """What lanes load: addresses, of shape (1 or blocks, 1 or threads), `ZERO` for zeros, which there may be."""

    addresses: Array
    zeros: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether each address but `ZERO` is one that a buffer may have."""
        return self.zeros or int(self.addresses.max(initial=0)) < _LARGEST


def loads_and_zeros(value: object) -> LoadsAndZeros | None:
    """Return what the lanes of a value load; None for a value with anything else in some lane."""
    if type(value) is np.ndarray:
        return None if np.count_nonzero(value) else LoadsAndZeros(np.full((1, 1), ZERO), True)
    if type(value) is not SymbolicVector:
        return None
    flags, first = value.flags, L.load_addresses(value)
    if first is not None:
        return LoadsAndZeros(first)
    if isinstance(flags, int):
        return None
    first = value.words[0]
    if value.words.strides[0] and not np.array_equal(first, value.words[1]):
        return None
    zero = ((flags & np.uint32(L.FORM | L.ABSORBED | L.INHERITED)) == L.CONST) & (first == 0)
    if not L.every((flags == L.LOAD) | zero) or int(first.max(initial=0)) >= _LARGEST:
        return None
    return LoadsAndZeros(np.where(zero, ZERO, first), True)


def parts_of_register(value: Value, bits: int) -> tuple[int, tuple[LoadsAndZeros, ...]] | None:
    """Return the width of the loads and zeros side by side that a register consists of, and what each loads.

    None for any other register, and where a part has fewer than `bits` bits.
    """
    if type(value) is PackedVector:
        widths = {L.width(each) for each in value.parts}
        size = widths.pop()
        if widths or size < bits or value.whole is not None or value.joined is not None:
            return None
        found = [loads_and_zeros(each) for each in value.parts]
        known = tuple([each for each in found if each is not None])
        return (size, known) if len(known) == len(found) else None
    whole = loads_and_zeros(value)
    return None if whole is None else (L.width(value), (whole,))


def parts_of_registers(values: Sequence[Value], bits: int) -> tuple[int, list[LoadsAndZeros]] | None:
    """Return the width of all loads and zeros of which registers consist, and what each loads, in order.

    None for any other registers, and where a part has fewer than `bits` bits.
    """
    size, found = 0, list[LoadsAndZeros]()
    for value in values:
        parts = parts_of_register(value, bits)
        if parts is None or size not in (0, parts[0]):
            return None
        size = parts[0]
        found += parts[1]
    if any(each.zeros for each in found) and not all(each.is_apart for each in found):
        return None
    return size, found


def elements_of(addresses: Array, zeros: bool, bits: int, size: int) -> SymbolicVector:
    """Return elements of `bits` bits of loads and zeros of `size` bits, with addresses of shape (blocks, ..., n).

    The elements' words have the shape (2, blocks, ..., n * size / bits).
    """
    steps = np.arange(0, size // 8, bits // 8, dtype=np.uint64)
    several = len(steps) > 1
    words = (addresses[..., None] + steps).reshape(*addresses.shape[:-1], -1) if several else addresses
    if not zeros:
        return SymbolicVector(bits, L.both_words(words), L.LOAD)
    empty = addresses == ZERO
    if several:
        empty = np.repeat(empty, len(steps), axis=-1)
    flags = L.uniform_flags(np.where(empty, np.uint32(0) | L.constant_flags(np.zeros(1), bits), np.uint32(L.LOAD)))
    return SymbolicVector(bits, L.both_words(np.where(empty, np.uint64(0), words)), flags)


def alike_blocks(lanes: Sequence[Array], blocks: int) -> tuple[Array, Array] | None:
    """Return some blocks whose rows in all arrays those of every block equal, and for each block its place among them.

    Arrays have a row for each block, or one for all.  The blocks of a matrix product that share rows or columns load
    equal tiles.  None where few are alike.
    """
    own = [each for each in lanes if len(each) > 1]
    if not own:
        return np.zeros(1, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    places: dict[int, int] = {}
    place = np.array([places.setdefault(each, len(places)) for each in own[0][:, 0].tolist()])
    count = len(places)
    if 2 * count > blocks:
        return None
    chosen = np.array([int(np.argmax(place == each)) for each in range(count)])
    each_in_turn, together = np.arange(blocks) % count, np.arange(blocks) // (blocks // count)
    if np.array_equal(place, each_in_turn):
        alike = all(_same_rows(each.reshape(-1, count, each.shape[1]), 0) for each in own)
    elif np.array_equal(place, together):
        alike = all(_same_rows(each.reshape(count, -1, each.shape[1]), 1) for each in own)
    else:
        alike = all(np.array_equal(each, each[chosen[place]]) for each in own)
    return (chosen, place) if alike else None


def _same_rows(rows: Array, axis: int) -> bool:
    """Return whether all rows along an axis are equal."""
    first = rows[:1] if axis == 0 else rows[:, :1]
    return L.every(rows == first)
