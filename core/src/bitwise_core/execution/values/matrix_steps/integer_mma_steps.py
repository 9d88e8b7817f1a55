"""Steps of integer matrix units in the domain of terms: AC terms of exact sums of products.

The payload is the sum of the members' hashes, except for the low 16 bits of its first word.  They hold an upper bound
of the magnitude of the sum of all products, in units of `UNIT`.  A set has fewer than 2**16 members, so two different
ones have the same payload with probability below 2**-80.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import (
    MATRIX,
    HashedVectors,
    MmaStep,
    mma_terms,
    step_flags,
    step_words,
)
from bitwise_core.execution.values.sets.ac_terms import AC_INDEX
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector

OPERATION = "products.b32"
UNIT = 1 << 19
"""The largest magnitude of a sum of 32 products of two signed bytes."""
_LOW = np.uint64(0xFFFF)
_HIGH = np.uint64(0xFFFFFFFFFFFF0000)


def integer_terms(
    step: MmaStep, accumulator: SymbolicVector, left: HashedVectors, right: HashedVectors, context: TermContext
) -> SymbolicVector:
    """Compute one step of an integer unit, elementwise over broadcastable shapes.

    The accumulator has words of shape (2, blocks, ...).  Starting from zero, the sum of exact products modulo 2**32 has
    no order.  It does not depend on the unit's family or its k if both split the products alike.  A unit that clamps
    computes the same sum as long as the magnitude of all products together stays below 2**31.  A vector of zeros adds
    nothing.
    """
    assert step.integers is not None
    own = L.AC_TERMS | AC_INDEX[OPERATION] << L.OPERATION_SHIFT
    flags = accumulator.flags
    inside = np.asarray((flags & (L.FORM | 255 << L.OPERATION_SHIFT)) == own)
    start = np.asarray(L.equals_constant(accumulator, 0))
    weight: Array = np.where(inside, accumulator.words[0] & _LOW, np.uint64(0)) + np.uint64(
        -(-step.integers.largest // UNIT)
    )
    most = (1 << 31) // UNIT if step.integers.clamps else 1 << 16
    gathered = (inside | start) & (weight < np.uint64(most))
    result: SymbolicVector | None = None
    if gathered.any():
        vectors = step_words(step, left, right)
        dot = hashing.mix(vectors + hashing.shaped(hashing.constant(step.integers.types), vectors.ndim))
        before = np.where(inside, accumulator.words, np.uint64(0))
        words = np.stack([((before[0] & _HIGH) + (dot[0] & _HIGH)) | weight, before[1] + dot[1]])
        result = SymbolicVector(accumulator.bits, words, own | step_flags(flags, left, right, words.ndim - 1))
        context.note(
            MATRIX + step.integers.types,
            result,
            lambda: [accumulator, *(SymbolicVector(32, each.words, L.TERM) for each in (left, right))],
        )
    if result is None or not gathered.all():
        ordered = mma_terms(
            step,
            accumulator,
            HashedVectors(left.words, None, left.sticky),
            right,
            TermContext(recorder=context.recorder),
        )
        result = ordered if result is None else _select_lanes(gathered, result, ordered)
    zeros = [each.zero for each in (left, right) if each.zero is not None]
    for zero in zeros:
        result = _select_lanes(zero, accumulator, result)
    return result


def _select_lanes(mask: Array, new: SymbolicVector, old: SymbolicVector) -> SymbolicVector:
    if not mask.any():
        return old
    mask = np.broadcast_to(mask, old.words.shape[1:])
    return SymbolicVector(
        old.bits, np.where(mask, new.words, old.words), L.uniform_flags(L.select_flags(mask, new.flags, old.flags))
    )
