"""Canonical rules of floating-point operations over lanes: plain functions that the domain of terms looks up by name.

A rule takes the operation, its operands, the width of the result in bits and the domain's context; it gives back None
where it has nothing to say.
Each rule stands in `bitwise_core.tree.rules` with its reason and is tested there on bit patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.extrema import extremum
from bitwise_core.machine.folding import fold, rounded_to_half
from bitwise_core.machine.lane_hash import WIDENING, full_hash, signed_hash, term, unsigned_hash
from bitwise_core.machine.lanes import Array, Lanes
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.machine.recording import SAME, TermContext
from bitwise_core.machine.sets import SET_INDEX
from bitwise_core.numeric import Operation, operation

_NEAREST_OR_ZERO = ("rn", "rz")
_INFINITIES = {64: (0x7FF0000000000000, 0xFFF0000000000000), 32: (0x7F800000, 0xFF800000)}
_ONE = {"fp64": 0x3FF0000000000000, "fp32": 0x3F800000, "fp16": 0x3C00, "bf16": 0x3F80}


def _add(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    left, right = values
    either = left.meta | right.meta
    flags = (either & (L.NOT_MINUS_ZERO | L.PLUS_ZERO | L.INHERITED)) | (left.meta & right.meta & L.NOT_NEGATIVE)
    words = hashing.finalise(signed_hash(left) + signed_hash(right) + hashing.constant(info.name))
    result = Lanes(bits, words, L.without_where(flags | L.TERM, L.PLUS_ZERO, L.NOT_MINUS_ZERO))
    context.note(info.name, result, lambda: [L.bare(each, L.PLUS_ZERO) for each in values], commutes=True)
    for zero, other in ((left, right), (right, left)):
        if context.finite:
            result = L.put(_infinite(zero, bits), zero, result)
            result = L.put(_vanishes(zero, other), other, result)
        result = L.put(L.holds(zero, 0), L.plus_zero(other), result)
        result = L.put(L.holds(zero, 1 << (bits - 1)), L.flagged(other, L.LOOSE), result)
    return result


def _subtract(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    return _add(
        operation(info.name.replace("sub.", "add.", 1)), [values[0], negated(values[1], context)], bits, context
    )


def negated(value: Lanes, context: TermContext) -> Lanes:
    """The value with its sign flipped."""
    plus_zero = L.some(L.has(value, L.PLUS_ZERO))
    if plus_zero is not False:
        closed = Lanes(value.bits, full_hash(value), L.TERM | L.sticky(value))
        context.note(SAME, closed, [value])
        value = L.put(plus_zero, closed, value)
    cleared = L.without(value.meta, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)
    result = Lanes(value.bits, value.words, cleared ^ L.NEGATED)
    known = L.known_where(value)
    if known is not False and np.any(known):
        sign = L.UNSIGNED[value.bits](1 << (value.bits - 1))
        result = L.put(known, L.known_lanes(L.numbers_of(value) ^ sign), result)
    return result


def _negate(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes:
    return L.flagged(negated(values[0], context), L.LOOSE)


def _absolute(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes:
    value = values[0]
    inner = Lanes(bits, unsigned_hash(value), L.TERM | L.sticky(value))
    context.note(SAME, inner, lambda: [L.bare(value, L.NEGATED)])
    result = term(bits, info.name, [inner], recorder=context.recorder)
    result = L.flagged(result, L.NOT_NEGATIVE | L.NOT_MINUS_ZERO)
    held = L.some(_held_by_half(value)) if info.name == "abs.fp32" else False
    if held is not False:
        result = L.put(
            held, _widened(_absolute(operation("abs.fp16"), [_as_half(value)], 16, context), context), result
        )
    return L.put(L.has(value, L.NOT_NEGATIVE), L.flagged(value, L.LOOSE), result)


def _multiply(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    left, right = _magnitudes(values, context)
    flags = L.sticky(left, right) | ((left.meta ^ right.meta) & L.NEGATED)
    positive = _positive_product(left, right)
    flags = flags | positive | L.implied(positive)
    words = hashing.finalise(unsigned_hash(left) + unsigned_hash(right) + hashing.constant(info.name))
    result = Lanes(bits, words, flags | L.TERM)
    context.note(info.name, result, lambda: [L.bare(each, L.NEGATED) for each in (left, right)], commutes=True)
    if context.finite:
        zeroed = L.holds(values[0], 0) | L.holds(values[1], 0)
        if zeroed is not False:
            result = L.put(zeroed, L.flagged(result, L.IS_ZERO), result)
    one = _ONE.get(info.result.name)
    if one is not None:
        for unit, other in (values, values[::-1]):
            result = L.put(L.holds(unit, one), L.flagged(other, L.LOOSE), result)
            result = L.put(L.holds(unit, one | 1 << (bits - 1)), negated(other, context), result)
    return result


def _fused(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    if info.rounding not in _NEAREST_OR_ZERO:
        return None
    (left, right), addend = _magnitudes(values, context), values[2]
    result = _fused_apart(info, values, left, right, bits, context)
    if context.finite:
        zeroed = L.holds(values[0], 0) | L.holds(values[1], 0)
        result = L.put(L.some(zeroed & L.has(addend, L.NOT_MINUS_ZERO | L.PLUS_ZERO)), addend, result)
        if zeroed is not False:
            result = L.put(_adds_plus_zero(values[0], values[1], addend, context), L.plus_zero(addend), result)
            result = L.put(_adds_plus_zero(values[1], values[0], addend, context), L.plus_zero(addend), result)
        result = L.put(_infinite(addend, bits), addend, result)
    return result


def _adds_plus_zero(zero: Lanes, factor: Lanes, addend: Lanes, context: TermContext) -> bool | Array:
    """Where `zero` is +0 and its product with a finite `factor` is +0, or some zero while the addend is no zero."""
    known = L.holds(zero, 0)
    if known is False:
        return False
    opposite = (full_hash(factor) == full_hash(L.plus_zero(negated(addend, context)))).all(axis=0)
    return L.some(known & (L.has(factor, L.NOT_NEGATIVE) | opposite))


def _fused_apart(
    info: Operation, values: list[Lanes], left: Lanes, right: Lanes, bits: int, context: TermContext
) -> Lanes:
    """A product and a sum where the product is exact, else one operation."""
    addend = values[2]
    exact = _half_range(values[0]) & _half_range(values[1]) if bits == 32 else False
    if not np.any(exact):
        return _fused_inexact(info, values, left, right, bits, context)
    modifiers = info.name.split(".", 1)[1]
    product_of = operation("mul." + modifiers)
    product = _multiply(product_of, [left, right], bits, context)
    assert product is not None
    product = as_lanes(fold(product_of, values[:2], product))
    apart = _add(operation("add." + modifiers), [product, addend], bits, context)
    assert apart is not None
    if np.all(exact):
        return apart
    return L.put(exact, apart, _fused_inexact(info, values, left, right, bits, context))


def _fused_inexact(
    info: Operation, values: list[Lanes], left: Lanes, right: Lanes, bits: int, context: TermContext
) -> Lanes:
    addend = values[2]
    negative = (left.meta ^ right.meta) & L.NEGATED
    product = (unsigned_hash(left) + unsigned_hash(right)) * hashing.multiplier(1)
    tag = hashing.constant(info.name)
    if isinstance(negative, int):
        tag = hashing.constant(info.name + " negated product") if negative else tag
    else:
        tag = np.where(negative != 0, hashing.constant(info.name + " negated product"), tag)
    words = hashing.finalise(product + full_hash(addend) * hashing.multiplier(2) + tag)
    positive = _positive_product(left, right) & addend.meta
    flags = L.sticky(left, right, addend) | L.TERM | positive | L.implied(positive)
    result = Lanes(bits, words, flags)
    context.note(info.name, result, (*values[:2], addend), commutes=True)
    first = L.holds(values[0], 0)
    second = L.holds(values[1], 0) if first is not False else False
    if first is False or second is False:
        return result
    return L.put(L.some(first & second), L.plus_zero(addend), result)


def _extremum(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    if info.name not in SET_INDEX:
        return None
    left, right = values
    if left is right:
        return L.flagged(left, L.LOOSE)
    keeps = ".nan." not in info.name and not context.finite
    held: bool | Array = False
    if info.name.endswith(".fp32") and np.any((left.meta | right.meta) & L.WIDENED):
        # Where both are known numbers, `fold` has the result.
        held = L.some(_held_by_half(left) & _held_by_half(right))
    if held is False:
        return extremum(info.name, left, right, bits, context, keeps_neutral=keeps)
    inner = _extremum(operation(info.name.replace("fp32", "fp16")), [_as_half(left), _as_half(right)], 16, context)
    assert inner is not None
    inner = _widened(inner, context)
    return L.put(
        held, inner, inner if np.all(held) else extremum(info.name, left, right, bits, context, keeps_neutral=keeps)
    )


def _convert(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    value = _sign_inside(values[0], context)
    if info.name in ("convert.rn.fp16.fp32", "convert.rz.fp16.fp32"):
        held = L.some(_held_by_half(value))
        if held is False:
            return None
        narrow = L.flagged(_as_half(value), L.LOOSE)
        return narrow if np.all(held) else L.put(held, narrow, term(bits, info.name, values, recorder=context.recorder))
    if info.name == "convert.fp64.fp32":
        kept = value.meta & (L.NOT_MINUS_ZERO | L.NOT_NEGATIVE | L.NEGATED)
        inner = Lanes(value.bits, unsigned_hash(value), L.TERM | L.sticky(value))
        context.note(SAME, inner, lambda: [L.bare(value, L.NEGATED)])
        return _closed(L.flagged(term(bits, info.name, [inner], recorder=context.recorder), kept), value.meta)
    if info.name != WIDENING:
        return None
    plus_zero = L.some(L.has(value, L.PLUS_ZERO))
    if plus_zero is not False:
        closed = Lanes(
            16,
            unsigned_hash(value),
            L.TERM | (value.meta & (L.INHERITED | L.NEGATED | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)),
        )
        closed = _closed(closed, value.meta)
        context.note(SAME, closed, lambda: [L.bare(value, L.NEGATED)])
        value = L.put(plus_zero, closed, value)
    return Lanes(bits, value.words, value.meta | (L.WIDENED | L.HALF_RANGE))


def _infinite(value: Lanes, bits: int) -> bool | Array:
    """Which lanes hold a known infinity."""
    found: bool | Array = False
    for number in _INFINITIES.get(bits, ()):
        found = found | L.holds(value, number)
    return found


def _vanishes(zero: Lanes, other: Lanes) -> bool | Array:
    """Where `zero` is a zero of either sign and `other` is not -0, so that their sum is `other`."""
    return L.some(L.has(zero, L.IS_ZERO) & L.has(other, L.NOT_MINUS_ZERO | L.PLUS_ZERO))


def _positive_product(left: Lanes, right: Lanes) -> L.Meta:
    """Where a product of these factors (sign flips counted) is never negative: NOT_NEGATIVE, else 0."""
    flips = (left.meta ^ right.meta) & L.NEGATED
    same = left.words is right.words or np.array_equal(left.words, right.words)
    if same and np.array_equal(left.meta & L.VALUE, right.meta & L.VALUE):
        return L.NOT_NEGATIVE
    positive = left.meta & right.meta & L.NOT_NEGATIVE
    if isinstance(flips, int) and isinstance(positive, int):
        return 0 if flips else positive
    return np.where(flips != 0, np.uint32(0), np.uint32(0) | positive)


def _half_range(value: Lanes) -> bool | Array:
    """Which lanes hold an fp32 that an fp16 holds exactly, as far as their form tells: widened and known ones."""
    widened = L.has(value, L.HALF_RANGE)
    known = L.known_where(value)
    if widened is True or known is False:
        return widened
    return widened | (known & _known_half(value, known)[1])


def _known_half(value: Lanes, known: bool | Array) -> tuple[Array, Array]:
    """The known fp32 numbers rounded to fp16, as uint64 patterns, and which of them that leaves as they were."""
    numbers = (value.words[0] if known is True else np.where(known, value.words[0], np.uint64(0))).astype(np.uint32)
    return rounded_to_half(numbers)


def _held_by_half(value: Lanes) -> bool | Array:
    """Which lanes `_as_half` can give: widened from fp16 and left so, or known numbers that fp16 holds."""
    plain = (value.meta & (L.WIDENED | L.PLUS_ZERO | L.NEGATED)) == L.WIDENED
    known = L.known_where(value)
    return plain if known is False else plain | (known & _known_half(value, known)[1])


def _as_half(value: Lanes) -> Lanes:
    """The fp16 that a lane holds, where `_held_by_half` says so."""
    known = L.known_where(value)
    if known is False:
        return Lanes(16, value.words, L.without(value.meta, L.WIDENED | L.HALF_RANGE))
    half = _known_half(value, known)[0]
    words = np.where(known, half, value.words)
    kept = L.select_meta(np.asarray(known), L.known_meta(half, 16), value.meta)
    return Lanes(16, words, L.uniform(L.without(kept, L.WIDENED | L.HALF_RANGE)))


def _closed(lanes: Lanes, before: L.Meta) -> Lanes:
    """A value made from x + (+0) is not -0."""
    closed = before & L.PLUS_ZERO
    if isinstance(closed, int):
        return L.flagged(lanes, L.NOT_MINUS_ZERO if closed else 0)
    return L.flagged(lanes, np.where(closed != 0, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0)))


def _sign_inside(value: Lanes, context: TermContext) -> Lanes:
    """The value such that no lane is both negated and closed by +0: (-x) + 0 is not the negation of x + 0."""
    both = L.PLUS_ZERO | L.NEGATED
    meta = value.meta
    mask: bool | Array = meta & both == both if isinstance(meta, int) else L.some((meta & np.uint32(both)) == both)
    if mask is False:
        return value
    closed = Lanes(value.bits, full_hash(value), L.TERM | L.NOT_MINUS_ZERO | L.sticky(value))
    context.note(SAME, closed, [value])
    return L.put(mask, closed, value)


def _magnitude(value: Lanes, context: TermContext) -> Lanes:
    """Known negative numbers as negations of their magnitudes, so that signs leave a product."""
    value = _sign_inside(value, context)
    known = L.known_where(value)
    if known is False:
        return value
    sign = 1 << (value.bits - 1)
    negative = L.some(((value.words[0] & np.uint64(sign)) != 0) & known)
    if negative is False:
        return value
    positive = L.known_lanes(L.numbers_of(value) & L.UNSIGNED[value.bits](sign - 1))
    meta = L.without(positive.meta, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) | L.NEGATED
    return L.put(negative, Lanes(value.bits, positive.words, meta), value)


def _magnitudes(values: Sequence[Lanes], context: TermContext) -> tuple[Lanes, Lanes]:
    """The first two values' magnitudes: one where they are one value."""
    left = _magnitude(values[0], context)
    return left, left if values[1] is values[0] else _magnitude(values[1], context)


def _widened(half: Lanes, context: TermContext) -> Lanes:
    """An fp16 as the fp32 that holds it."""
    info = operation(WIDENING)
    half.meta = L.uniform(half.meta)
    result = _convert(info, [half], 32, context)
    assert result is not None
    return as_lanes(fold(info, [half], result))


def _divide(info: Operation, values: list[Lanes], bits: int, context: TermContext) -> Lanes | None:
    """Zero over a known positive number of middling size is that zero, however the quotient is approximated."""
    numerator, divisor = values
    zero = L.holds(numerator, 0)
    positive = numerator.meta & divisor.meta & L.NOT_NEGATIVE if info.rounding == "rn" else 0
    result = L.flagged(term(bits, info.name, values, recorder=context.recorder), positive)
    if info.result.name != "fp32" or zero is False:
        return result
    size = divisor.words[0]
    middling = L.known_where(divisor) & (size >= np.uint64(_SMALL)) & (size <= np.uint64(_LARGE))
    return L.put(L.some(zero & middling), L.known_lanes(np.zeros((1, 1), dtype=np.uint32)), result)


_SMALL, _LARGE = 0x20000000, 0x5F000000
"""2**-63 and 2**63: the reciprocals of what lies between are normal numbers."""

Rule: TypeAlias = Callable[[Operation, list[Lanes], int, TermContext], Lanes | None]

RULES: Mapping[str, Rule] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "fma": _fused,
    "neg": _negate,
    "abs": _absolute,
    "max": _extremum,
    "min": _extremum,
    "convert": _convert,
    "div": _divide,
}
"""Rules by the operation's verb, for operations without modifiers that change more than the rounding."""
