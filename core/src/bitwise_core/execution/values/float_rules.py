"""Canonical rules of floating-point operations on symbolic vectors, looked up by name in the domain of terms.

A rule takes the operation, its operands, the width of the result in bits and the domain's context.  It returns None if
it does not apply.  Each rule is listed with its reason in `canonical_rules.rules` and is tested there on bit patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.term_recorder import SAME, TermContext
from bitwise_core.execution.values import hashing, nan_marks
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.ac_terms import AC_INDEX
from bitwise_core.execution.values.constant_folding import fold_constants, rounded_to_half
from bitwise_core.execution.values.minmax import extremum
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import WIDENING, full_hash, signed_hash, term, unsigned_hash
from bitwise_core.numerics import Operation, operation

_NEAREST_OR_ZERO = ("rn", "rz")
_INFINITIES = {64: (0x7FF0000000000000, 0xFFF0000000000000), 32: (0x7F800000, 0xFF800000)}
_MAGNITUDE = {16: "abs.fp16", 32: "abs.fp32", 64: "abs.fp64"}
"""The name of a magnitude by its width: the sign bit is the highest one in every format."""
_ONE = {"fp64": 0x3FF0000000000000, "fp32": 0x3F800000, "fp16": 0x3C00, "bf16": 0x3F80}


def _add(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    left, right = values
    either = left.flags | right.flags
    flags = (either & (L.NOT_MINUS_ZERO | L.PLUS_ZERO | L.INHERITED)) | (left.flags & right.flags & L.NOT_NEGATIVE)
    words = hashing.mix(signed_hash(left) + signed_hash(right) + hashing.constant(info.name))
    result = SymbolicVector(bits, words, L.clear_flags_where(flags | L.TERM, L.PLUS_ZERO, L.NOT_MINUS_ZERO))
    context.note(info.name, result, lambda: [L.without_flags(each, L.PLUS_ZERO) for each in values], commutes=True)
    for zero, other in ((left, right), (right, left)):
        if context.finite:
            result = L.blend(_is_infinity(zero, bits), zero, result)
            result = L.blend(_is_absorbed_zero(zero, other), other, result)
        result = L.blend(L.equals_constant(zero, 0), L.plus_zero(other), result)
        result = L.blend(L.equals_constant(zero, 1 << (bits - 1)), other, result)
    return result


def _subtract(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    return _add(
        operation(info.name.replace("sub.", "add.", 1)), [values[0], negated(values[1], context)], bits, context
    )


def negated(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign flipped."""
    plus_zero = L.nonempty(L.has_flag(value, L.PLUS_ZERO))
    if plus_zero is not False:
        closed = SymbolicVector(
            value.bits, full_hash(value), L.TERM | L.sticky_flags(value) | (value.flags & L.NAN_MARK)
        )
        context.note(SAME, closed, [value])
        value = L.blend(plus_zero, closed, value)
    cleared = L.clear_flags(value.flags, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)
    result = SymbolicVector(value.bits, value.words, cleared ^ L.NEGATED)
    known = L.constant_mask(value)
    if known is not False and np.any(known):
        sign = L.UNSIGNED[value.bits](1 << (value.bits - 1))
        result = L.blend(known, L.constant_vector(L.constants_of(value) ^ sign), result)
    return result


def sign_flipped(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign bit flipped, that of a NaN included."""
    found = negated(value, context)
    return SymbolicVector(found.bits, found.words, nan_marks.flipped_sign_mark(found.flags))


def sign_cleared(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign bit cleared, that of a NaN included."""
    found = _magnitude_bits(value, context)
    flags = L.clear_flags(found.flags, L.NAN_MARK) | (value.flags & (L.CANONICAL_NAN | L.CANONICAL_BF16_NAN))
    return SymbolicVector(found.bits, found.words, flags)


def _negate(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector:
    return negated(values[0], context)


def _absolute(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector:
    return _magnitude_bits(values[0], context)


def _magnitude_bits(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with its sign bit cleared, except for the marks of NaNs."""
    bits = value.bits
    inner = SymbolicVector(bits, unsigned_hash(value), L.TERM | L.sticky_flags(value))
    context.note(SAME, inner, lambda: [L.without_flags(value, L.NEGATED)])
    result = term(bits, _MAGNITUDE[bits], [inner], recorder=context.recorder)
    result = L.with_flags(result, L.NOT_NEGATIVE | L.NOT_MINUS_ZERO)
    held = L.nonempty(_fits_half(value)) if bits == 32 else False
    if held is not False:
        result = L.blend(held, _widen(_magnitude_bits(_as_half(value), context), context), result)
    return L.blend(L.has_flag(value, L.NOT_NEGATIVE), value, result)


def _multiply(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    left, right = _magnitudes(values, context)
    flags = L.sticky_flags(left, right) | ((left.flags ^ right.flags) & L.NEGATED)
    positive = _positive_product(left, right)
    flags = flags | positive | L.implied_flags(positive)
    words = hashing.mix(unsigned_hash(left) + unsigned_hash(right) + hashing.constant(info.name))
    result = SymbolicVector(bits, words, flags | L.TERM)
    context.note(info.name, result, lambda: [L.without_flags(each, L.NEGATED) for each in (left, right)], commutes=True)
    if context.finite:
        zeroed = L.equals_constant(values[0], 0) | L.equals_constant(values[1], 0)
        if zeroed is not False:
            result = L.blend(zeroed, L.with_flags(result, L.IS_ZERO), result)
    one = _ONE.get(info.result.name)
    if one is not None:
        for unit, other in (values, values[::-1]):
            result = L.blend(L.equals_constant(unit, one), other, result)
            result = L.blend(L.equals_constant(unit, one | 1 << (bits - 1)), negated(other, context), result)
    return result


def _fma(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    (left, right), addend = _magnitudes(values, context), values[2]
    result = _fma_of_exact_product(info, values, left, right, bits, context)
    if context.finite:
        zeroed = L.equals_constant(values[0], 0) | L.equals_constant(values[1], 0)
        result = L.blend(L.nonempty(zeroed & L.has_flag(addend, L.NOT_MINUS_ZERO | L.PLUS_ZERO)), addend, result)
        if zeroed is not False:
            result = L.blend(_adds_plus_zero(values[0], values[1], addend, context), L.plus_zero(addend), result)
            result = L.blend(_adds_plus_zero(values[1], values[0], addend, context), L.plus_zero(addend), result)
        result = L.blend(_is_infinity(addend, bits), addend, result)
    return result


def _adds_plus_zero(
    zero: SymbolicVector, factor: SymbolicVector, addend: SymbolicVector, context: TermContext
) -> bool | Array:
    """Return where a product with a known zero acts like adding +0 to the addend.

    It does where `zero` is +0 and its product with a finite `factor` is +0, or where the product is some zero and the
    addend is not a zero.
    """
    known = L.equals_constant(zero, 0)
    if known is False:
        return False
    opposite = (full_hash(factor) == full_hash(L.plus_zero(negated(addend, context)))).all(axis=0)
    return L.nonempty(known & (L.has_flag(factor, L.NOT_NEGATIVE) | opposite))


def _fma_of_exact_product(
    info: Operation,
    values: list[SymbolicVector],
    left: SymbolicVector,
    right: SymbolicVector,
    bits: int,
    context: TermContext,
) -> SymbolicVector:
    """Return a product and a sum if the product is exact, else one fused operation."""
    addend = values[2]
    exact = _has_half_range(values[0]) & _has_half_range(values[1]) if bits == 32 else False
    if not np.any(exact):
        return _fma_rounded_once(info, values, left, right, bits, context)
    modifiers = info.name.split(".", 1)[1]
    product_of = operation("mul." + modifiers)
    product = _multiply(product_of, [left, right], bits, context)
    assert product is not None
    product = as_symbolic_vector(fold_constants(product_of, values[:2], product))
    separate = _add(operation("add." + modifiers), [product, addend], bits, context)
    assert separate is not None
    if np.all(exact):
        return separate
    return L.blend(exact, separate, _fma_rounded_once(info, values, left, right, bits, context))


def _fma_rounded_once(
    info: Operation,
    values: list[SymbolicVector],
    left: SymbolicVector,
    right: SymbolicVector,
    bits: int,
    context: TermContext,
) -> SymbolicVector:
    addend = values[2]
    negative = (left.flags ^ right.flags) & L.NEGATED
    product = (unsigned_hash(left) + unsigned_hash(right)) * hashing.multiplier(1)
    tag = hashing.constant(info.name)
    if isinstance(negative, int):
        tag = hashing.constant(info.name + " negated product") if negative else tag
    else:
        tag = np.where(negative != 0, hashing.constant(info.name + " negated product"), tag)
    words = hashing.mix(product + full_hash(addend) * hashing.multiplier(2) + tag)
    positive = _positive_product(left, right) & addend.flags
    flags = L.sticky_flags(left, right, addend) | L.TERM | positive | L.implied_flags(positive)
    result = SymbolicVector(bits, words, flags)
    context.note(info.name, result, (*values[:2], addend), commutes=True)
    first = L.equals_constant(values[0], 0)
    second = L.equals_constant(values[1], 0) if first is not False else False
    if first is False or second is False:
        return result
    return L.blend(L.nonempty(first & second), L.plus_zero(addend), result)


def _minmax(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    if info.name not in AC_INDEX:
        return None
    left, right = values
    if left is right:
        return left
    keeps = ".nan." not in info.name and not context.finite
    held: bool | Array = False
    if info.name.endswith(".fp32") and np.any((left.flags | right.flags) & L.WIDENED):
        # Where both are constants, `fold_constants` has the result.
        held = L.nonempty(_fits_half(left) & _fits_half(right))
    if held is False:
        return extremum(info.name, left, right, bits, context, keeps_identity=keeps)
    inner = _minmax(operation(info.name.replace("fp32", "fp16")), [_as_half(left), _as_half(right)], 16, context)
    assert inner is not None
    inner = _widen(inner, context)
    return L.blend(
        held, inner, inner if np.all(held) else extremum(info.name, left, right, bits, context, keeps_identity=keeps)
    )


def _convert(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    value = _without_negated_plus_zero(values[0], context)
    if info.name in ("convert.rn.fp16.fp32", "convert.rz.fp16.fp32"):
        held = L.nonempty(_fits_half(value))
        if held is False:
            return None
        narrow = _as_half(value)
        return (
            narrow if np.all(held) else L.blend(held, narrow, term(bits, info.name, values, recorder=context.recorder))
        )
    if info.name == "convert.fp64.fp32":
        kept = value.flags & (L.NOT_MINUS_ZERO | L.NOT_NEGATIVE | L.NEGATED)
        inner = SymbolicVector(value.bits, unsigned_hash(value), L.TERM | L.sticky_flags(value))
        context.note(SAME, inner, lambda: [L.without_flags(value, L.NEGATED)])
        return _with_not_minus_zero(
            L.with_flags(term(bits, info.name, [inner], recorder=context.recorder), kept), value.flags
        )
    if info.name != WIDENING:
        return None
    plus_zero = L.nonempty(L.has_flag(value, L.PLUS_ZERO))
    if plus_zero is not False:
        closed = SymbolicVector(
            16,
            unsigned_hash(value),
            L.TERM | (value.flags & (L.INHERITED | L.NEGATED | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)),
        )
        closed = _with_not_minus_zero(closed, value.flags)
        context.note(SAME, closed, lambda: [L.without_flags(value, L.NEGATED)])
        value = L.blend(plus_zero, closed, value)
    return SymbolicVector(bits, value.words, value.flags | (L.WIDENED | L.HALF_RANGE))


def _is_infinity(value: SymbolicVector, bits: int) -> bool | Array:
    """Return which lanes hold a constant infinity."""
    found: bool | Array = False
    for number in _INFINITIES.get(bits, ()):
        found = found | L.equals_constant(value, number)
    return found


def _is_absorbed_zero(zero: SymbolicVector, other: SymbolicVector) -> bool | Array:
    """Return where `zero` is a zero of either sign and `other` is not -0, so that their sum is `other`."""
    return L.nonempty(L.has_flag(zero, L.IS_ZERO) & L.has_flag(other, L.NOT_MINUS_ZERO | L.PLUS_ZERO))


def _positive_product(left: SymbolicVector, right: SymbolicVector) -> L.Flags:
    """Return NOT_NEGATIVE where the product of these factors (with their sign flips) is never negative, else 0."""
    flips = (left.flags ^ right.flags) & L.NEGATED
    same = left.words is right.words or np.array_equal(left.words, right.words)
    if same and np.array_equal(left.flags & L.VALUE, right.flags & L.VALUE):
        return L.NOT_NEGATIVE
    positive = left.flags & right.flags & L.NOT_NEGATIVE
    if isinstance(flips, int) and isinstance(positive, int):
        return 0 if flips else positive
    return np.where(flips != 0, np.uint32(0), np.uint32(0) | positive)


def _has_half_range(value: SymbolicVector) -> bool | Array:
    """Return which lanes hold an fp32 that is exactly an fp16, as far as the flags show: widened ones and constants."""
    widened = L.has_flag(value, L.HALF_RANGE)
    known = L.constant_mask(value)
    if widened is True or known is False:
        return widened
    return widened | (known & _known_half(value, known)[1])


def _known_half(value: SymbolicVector, known: bool | Array) -> tuple[Array, Array]:
    """Return constant fp32 numbers rounded to fp16, as uint64 patterns, and which of them are unchanged by it."""
    numbers = (value.words[0] if known is True else np.where(known, value.words[0], np.uint64(0))).astype(np.uint32)
    return rounded_to_half(numbers)


def _fits_half(value: SymbolicVector) -> bool | Array:
    """Return the lanes that `_as_half` supports: widened from fp16 and unchanged since, or constants that fit fp16."""
    plain = (value.flags & (L.WIDENED | L.PLUS_ZERO | L.NEGATED)) == L.WIDENED
    known = L.constant_mask(value)
    return plain if known is False else plain | (known & _known_half(value, known)[1])


def _as_half(value: SymbolicVector) -> SymbolicVector:
    """Return the fp16 that a lane holds, in the lanes of `_fits_half`."""
    known = L.constant_mask(value)
    if known is False:
        return SymbolicVector(16, value.words, L.clear_flags(value.flags, L.WIDENED | L.HALF_RANGE))
    half = _known_half(value, known)[0]
    words = np.where(known, half, value.words)
    kept = L.select_flags(np.asarray(known), L.constant_flags(half, 16), value.flags)
    return SymbolicVector(16, words, L.uniform_flags(L.clear_flags(kept, L.WIDENED | L.HALF_RANGE)))


def _with_not_minus_zero(lanes: SymbolicVector, before: L.Flags) -> SymbolicVector:
    """Return a value made from x + (+0) with the flag that it is not -0."""
    closed = before & L.PLUS_ZERO
    if isinstance(closed, int):
        return L.with_flags(lanes, L.NOT_MINUS_ZERO if closed else 0)
    return L.with_flags(lanes, np.where(closed != 0, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0)))


def _without_negated_plus_zero(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the value with no lane both NEGATED and PLUS_ZERO: (-x) + 0 is not the negation of x + 0."""
    both = L.PLUS_ZERO | L.NEGATED
    flags = value.flags
    mask: bool | Array = (
        flags & both == both if isinstance(flags, int) else L.nonempty((flags & np.uint32(both)) == both)
    )
    if mask is False:
        return value
    closed = SymbolicVector(value.bits, full_hash(value), L.TERM | L.NOT_MINUS_ZERO | L.sticky_flags(value))
    context.note(SAME, closed, [value])
    return L.blend(mask, closed, value)


def _magnitude(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return constant negative numbers as negations of their magnitudes, so that a product's sign is a flag."""
    value = _without_negated_plus_zero(value, context)
    known = L.constant_mask(value)
    if known is False:
        return value
    sign = 1 << (value.bits - 1)
    negative = L.nonempty(((value.words[0] & np.uint64(sign)) != 0) & known)
    if negative is False:
        return value
    positive = L.constant_vector(L.constants_of(value) & L.UNSIGNED[value.bits](sign - 1))
    flags = L.clear_flags(positive.flags, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) | L.NEGATED
    return L.blend(negative, SymbolicVector(value.bits, positive.words, flags), value)


def _magnitudes(values: Sequence[SymbolicVector], context: TermContext) -> tuple[SymbolicVector, SymbolicVector]:
    """Return the first two values' magnitudes, as one object if they are one object."""
    left = _magnitude(values[0], context)
    return left, left if values[1] is values[0] else _magnitude(values[1], context)


def _widen(half: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return the fp32 that holds an fp16."""
    info = operation(WIDENING)
    half.flags = L.uniform_flags(half.flags)
    result = _convert(info, [half], 32, context)
    assert result is not None
    return as_symbolic_vector(fold_constants(info, [half], result))


def _divide(info: Operation, values: list[SymbolicVector], bits: int, context: TermContext) -> SymbolicVector | None:
    """Return a quotient; zero over a constant in [2**-63, 2**63] is zero, however the quotient is approximated."""
    numerator, divisor = values
    zero = L.equals_constant(numerator, 0)
    positive = numerator.flags & divisor.flags & L.NOT_NEGATIVE if info.rounding == "rn" else 0
    result = L.with_flags(term(bits, info.name, values, recorder=context.recorder), positive)
    if info.result.name != "fp32" or zero is False:
        return result
    size = divisor.words[0]
    middling = L.constant_mask(divisor) & (size >= np.uint64(_SMALL)) & (size <= np.uint64(_LARGE))
    return L.blend(L.nonempty(zero & middling), L.constant_vector(np.zeros((1, 1), dtype=np.uint32)), result)


_SMALL, _LARGE = 0x20000000, 0x5F000000
"""2**-63 and 2**63: the reciprocals of numbers between them are normal."""

Rule: TypeAlias = Callable[[Operation, list[SymbolicVector], int, TermContext], SymbolicVector | None]

RULES: Mapping[str, Rule] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "fma": _fma,
    "neg": _negate,
    "abs": _absolute,
    "max": _minmax,
    "min": _minmax,
    "convert": _convert,
    "div": _divide,
}
"""Rules by the operation's verb, for operations whose modifiers affect only the rounding."""
