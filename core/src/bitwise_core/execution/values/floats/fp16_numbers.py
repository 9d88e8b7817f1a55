"""fp32 numbers that are exactly an fp16, as far as flags and constants show."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.constant_folding import rounded_to_half
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector


def fits_fp16(value: SymbolicVector) -> bool | Array:
    """Return the lanes that `narrowed` supports: widened from fp16 and unchanged since, or constants that fit fp16."""
    plain = (value.flags & L.WRAPPERS) == L.WIDENED
    known = L.constant_mask(value)
    return plain if known is False else plain | (known & _known_fp16(value, known)[1])


def narrowed(value: SymbolicVector) -> SymbolicVector:
    """Return the fp16 that a lane holds, in the lanes of `fits_fp16`."""
    known = L.constant_mask(value)
    if known is False:
        return SymbolicVector(16, value.words, L.clear_flags(value.flags, L.WIDENED | L.HALF_RANGE))
    half = _known_fp16(value, known)[0]
    words = np.where(known, half, value.words)
    kept = L.select_flags(np.asarray(known), L.constant_flags(half, 16), value.flags)
    return SymbolicVector(16, words, L.uniform_flags(L.clear_flags(kept, L.WIDENED | L.HALF_RANGE)))


def _known_fp16(value: SymbolicVector, known: bool | Array) -> tuple[Array, Array]:
    """Return constant fp32 numbers rounded to fp16, as uint64 patterns, and which of them are unchanged by it."""
    numbers = (value.words[0] if known is True else np.where(known, value.words[0], np.uint64(0))).astype(np.uint32)
    return rounded_to_half(numbers)
