"""Signs of numbers: negations and magnitudes as changes of the sign bit, in any format."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.term_recorder import SAME, TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats import nan_marks
from bitwise_core.execution.values.floats.fp16_numbers import fits_fp16, narrowed
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash, may_be_moved, term, unsigned_hash

_MAGNITUDE = {16: "abs.fp16", 32: "abs.fp32", 64: "abs.fp64"}
"""The name of a magnitude by its width: the sign bit is the highest one in every format."""


def closed(value: SymbolicVector, context: TermContext, flags: L.Flags = 0) -> SymbolicVector:
    """Return the value as a term without wrappers, with the mark of its NaNs and these flags."""
    kept = L.sticky_flags(value) | (value.flags & L.NAN_MARK)
    result = SymbolicVector(value.bits, full_hash(value), L.TERM | kept | flags)
    return context.note(SAME, result, [value])


def negated(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign flipped."""
    plus_zero = L.nonempty(L.has_flag(value, L.PLUS_ZERO))
    if plus_zero is not False:
        value = L.blend(plus_zero, closed(value, context), value)
    cleared = L.clear_flags(value.flags, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)
    result = SymbolicVector(value.bits, value.words, cleared ^ L.NEGATED)
    result.origins, result.recorder, result.cached_hash = value.origins, value.recorder, value.cached_hash
    known = L.constant_mask(value)
    if known is not False:
        sign = L.UNSIGNED[value.bits](1 << (value.bits - 1))
        result = L.blend(known, L.constant_vector(L.constants_of(value) ^ sign), result)
    return result


def sign_flipped(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign bit flipped, that of a NaN included."""
    found = negated(value, context)
    return SymbolicVector(found.bits, found.words, nan_marks.flipped_sign_mark(found.flags))


def sign_cleared(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign bit cleared, that of a NaN included."""
    found = magnitude(value, context)
    flags = L.clear_flags(found.flags, L.NAN_MARK) | (value.flags & (L.CANONICAL_NAN | L.CANONICAL_BF16_NAN))
    return SymbolicVector(found.bits, found.words, flags)


def magnitude(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign bit cleared, except for the marks of NaNs."""
    inner = SymbolicVector(value.bits, unsigned_hash(value), L.TERM | L.sticky_flags(value))
    context.note(SAME, inner, lambda: [L.without_flags(value, L.NEGATED)])
    result = term(value.bits, _MAGNITUDE[value.bits], [inner], recorder=context.recorder)
    moved = L.select_flags(np.asarray(may_be_moved(value.flags)), L.INTEGER, 0)
    result = L.with_flags(result, L.NOT_NEGATIVE | L.NOT_MINUS_ZERO | moved)
    held = L.nonempty(fits_fp16(value)) if value.bits == 32 else False
    if held is not False:
        narrow = magnitude(narrowed(value), context)
        result = L.blend(held, widened(narrow, context), result)
    return L.blend(L.has_flag(value, L.NOT_NEGATIVE), value, result)


def widened(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the fp32 that holds an fp16: a wrapper, inside of a negation and of a sum with +0."""
    plus_zero = L.nonempty(L.has_flag(value, L.PLUS_ZERO))
    if plus_zero is not False:
        inner = without_negated_plus_zero(value, context)
        kept = L.INHERITED | L.NEGATED | L.NOT_NEGATIVE | L.NAN_MARK
        flags = L.clear_flags_where(inner.flags & kept | L.NOT_MINUS_ZERO, L.NOT_MINUS_ZERO, L.NEGATED)
        term_of = SymbolicVector(16, unsigned_hash(inner), L.TERM | flags)
        context.note(SAME, term_of, lambda: [L.without_flags(inner, L.NEGATED)])
        value = L.blend(plus_zero, term_of, value)
    return SymbolicVector(32, value.words, value.flags | (L.WIDENED | L.HALF_RANGE))


def without_negated_plus_zero(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with no lane both NEGATED and PLUS_ZERO: (-x) + 0 is not the negation of x + 0."""
    both = L.PLUS_ZERO | L.NEGATED
    if L.flags_of_some_lane(value) & both != both:
        return value
    mask = L.nonempty((value.flags & both) == both)
    return value if mask is False else L.blend(mask, closed(value, context, L.NOT_MINUS_ZERO), value)


def magnitude_of_constants(value: SymbolicVector) -> SymbolicVector:
    """Return constant negative numbers as negations of their magnitudes, so that a product's sign is a flag."""
    numbers = L.constant_numbers(value)
    sign = 1 << (value.bits - 1)
    if numbers is not None and not any(number & sign for number in numbers):
        return value
    negative = L.nonempty(((value.words[0] & np.uint64(sign)) != 0) & L.constant_mask(value))
    if negative is False:
        return value
    positive = L.constant_vector(L.constants_of(value) & L.UNSIGNED[value.bits](sign - 1))
    flags = L.clear_flags(positive.flags, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) | L.NEGATED
    return L.blend(negative, SymbolicVector(value.bits, positive.words, flags), value)
