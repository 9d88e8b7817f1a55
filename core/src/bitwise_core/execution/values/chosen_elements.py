"""The element of a sequence at a place that depends on data, as a term of its place and of all elements."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash, nan_bits, term

_MARK_SHIFT = 24
"""Memories use bits 24 to 28 of the flags of a cell, which say of what its content is a part."""
_ELEMENT = hashing.constant("an element of a sequence")


def sequence(elements: SymbolicVector, places: Array) -> SymbolicVector:
    """Return a number for each sequence of values that is equal only for equal ones.

    `elements` has the shape (..., count); `places` are the numbers of the elements, shape (count,).  The result has the
    shape (..., 1), and the flags that a value chosen from the sequence inherits.
    """
    shape = np.broadcast_shapes(elements.words.shape[1:], np.shape(elements.flags), (1, places.size))
    words = np.broadcast_to(exact_hash(elements), (2, *shape))
    marks = L.flags_of_lanes(elements.flags, shape).astype(np.uint64) >> np.uint64(_MARK_SHIFT) & np.uint64(31)
    numbers = places.astype(np.uint64) << np.uint64(5) | marks
    at = hashing.mix(numbers[None] * hashing.multiplier(0) + _ELEMENT)
    total = hashing.mix(words * hashing.multiplier(1) + at).sum(axis=-1, keepdims=True, dtype=np.uint64)
    inherited = L.sticky_flags(elements) | nan_bits(elements)
    flags: L.Flags = inherited
    if not isinstance(inherited, int):
        flags = np.bitwise_or.reduce(np.broadcast_to(inherited, shape), axis=-1, keepdims=True)
    found = hashing.mix(total + hashing.constant(f"a sequence of {places.size} values of {elements.bits} bits"))
    return SymbolicVector(64, found, L.TERM | L.INTEGER | flags)


def element_at(
    bits: int, name: str, among: SymbolicVector, place: SymbolicVector, recorder: Recorder | None = None
) -> SymbolicVector:
    """Return the value of `bits` bits at a place among a sequence; `name` says how the place numbers the elements."""
    # The sum of hashes is linear in its elements: the place is an operand beside it, and the tag names the numbering.
    return term(bits, f"chosen by {name}", [among, place], L.INTEGER, exact=True, recorder=recorder)
