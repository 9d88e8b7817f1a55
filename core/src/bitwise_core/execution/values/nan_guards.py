"""Guarded values: the effect of padding a row with -inf on sums of exponentials.

-inf - m is -inf, unless m is NaN or -inf, where it is NaN; call such an m *bad*.  The difference is thus -inf *guarded*
by m: a value that is replaced by NaN where m is bad.  An operation that returns NaN whenever an operand is NaN may move
the guard from its operand to its result.  The power of two of -inf is +0, and adding +0 leaves a sum unchanged, except
for -0.  So a sum of exponentials over a padded row is the sum without the padding, guarded once, wherever in the sum
the padding was.

A comparison with a guarded constant is decided except for the NaN. A value selected by it may be replaced by the
alternative that the constant decides (`SymbolicVector.guarded_alternative`) in an operation that has another operand
with the same guard, since that operation's result is NaN where m is bad.

A guarded value is an AC term of its own kind.  The first word of its payload is a hash of m, the second one that of the
value, or the constant itself.  Two different ones have the same payload with probability 2**-64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import base_hash, full_hash
from bitwise_core.numerics import Operation

STRICT = frozenset(["add", "sub", "mul", "fma", "ex2", "ldexp"])
"""Operations (without saturation) that return NaN if an operand is NaN, through which guards move.

The second operand of ldexp is an integer and is excluded.
"""
MINUS_INFINITY = 0xFF800000
_KIND = np.uint32(L.KIND | 255 << L.OPERATION_SHIFT)
_PLAIN = np.uint32(L.KIND | 255 << L.OPERATION_SHIFT | L.NEGATED | L.PLUS_ZERO)
_TERM, _NUMBER = (L.AC_TERMS | index << L.OPERATION_SHIFT for index in (L.GUARDED, L.GUARDED_CONSTANT))
_KEPT = L.PLUS_ZERO | L.NEGATED | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE | L.NAN_MARK | L.INHERITED


@dataclass(frozen=True, slots=True)
class UnguardedOperands:
    """Operands without their guards, the lanes that had one (`where`, shape (blocks, threads)), and its hash (`guard`).

    `sticky` holds the flags that every result inherits from the operands, guards included.
    """

    values: list[SymbolicVector]
    where: Array
    guard: Array
    sticky: L.Flags


def guarded_where(value: SymbolicVector) -> Array | None:
    """Return which lanes are guarded, None if none is."""
    if isinstance(value.flags, int) and value.flags & L.KIND != L.AC_TERMS:
        return None
    found: Array = np.asarray(((value.flags & _KIND) == _TERM) | ((value.flags & _PLAIN) == _NUMBER)).reshape(
        np.shape(value.flags) or (1, 1)
    )
    return found if found.any() else None


def split_guards(verb: str, values: Sequence[SymbolicVector], guards_exist: bool = True) -> UnguardedOperands | None:
    """Separate fp32 operands from their guards; None if no lane has a guard.

    `guards_exist` is False if there are no guarded values at all.  Lanes whose operands have different guards are left
    unchanged.
    """
    inner = list(values)
    where: Array = np.zeros((1, 1), dtype=bool)
    guard: Array = np.zeros((1, 1), dtype=np.uint64)
    conflicting: Array = np.zeros((1, 1), dtype=bool)
    found = [guarded_where(value) if guards_exist else None for value in values]
    if verb == "ldexp":
        found[1] = None
    for value, mask in zip(values, found, strict=True):
        if mask is None:
            continue
        conflicting = conflicting | (where & mask & (guard != value.words[0]))
        guard = np.where(mask, value.words[0], guard)
        where = where | mask
    where = where & ~conflicting
    for index, (value, mask) in enumerate(zip(values, found, strict=True)):
        if mask is not None:
            inner[index] = _without_guard(value, mask & where)
    if verb == "sub":
        padding = _padding_guards(*values)
        if padding is not None:
            where = where | padding
            guard = np.where(padding, full_hash(values[1])[1], guard)
            inner[1] = L.blend(padding, L.constant_vector(np.zeros((1, 1), dtype=np.uint32)), inner[1])
    for index, value in enumerate(values):
        if value.guarded_alternative is not None:
            lanes, other, taken = value.guarded_alternative
            inner[index] = L.blend(where & lanes & (guard == other), taken, inner[index])
    return UnguardedOperands(inner, where, guard, L.sticky_flags(*values)) if where.any() else None


def _padding_guards(left: SymbolicVector, right: SymbolicVector) -> Array | None:
    """Return where the minuend is -inf and the subtrahend is neither constant nor guarded."""
    infinite = L.equals_constant(left, MINUS_INFINITY)
    if infinite is False:
        return None
    other = guarded_where(right)
    found: Array = infinite & ~np.asarray(L.constant_mask(right)) & (True if other is None else ~other)
    return found if found.any() else None


def _without_guard(value: SymbolicVector, where: Array) -> SymbolicVector:
    """Return the value without its guard in the lanes of `where`.

    It is a constant, or a term whose hash is the second word of the payload.
    """
    if not where.any():
        return value
    second = value.words[1]
    numbers = np.asarray((value.flags & _KIND) == _NUMBER) & where
    words = np.broadcast_to(second, (2, *second.shape))
    if not where.all():
        words = np.where(where, words, value.words)
    flags: L.Flags = np.where(where, L.TERM | np.asarray(value.flags, dtype=np.uint32) & np.uint32(_KEPT), value.flags)
    if numbers.any():
        known = np.asarray(L.constant_flags(second, 32), dtype=np.uint32)
        flags = np.where(numbers, known | np.asarray(value.flags, dtype=np.uint32) & np.uint32(L.STICKY), flags)
    return SymbolicVector(value.bits, words, L.uniform_flags(np.asarray(flags, dtype=np.uint32)))


def with_guard(parts: UnguardedOperands, result: SymbolicVector) -> SymbolicVector:
    """Return the result with the operands' guard."""
    known = np.asarray(L.constant_mask(result))
    second = np.where(known, result.words[1], base_hash(result)[1]) if known.any() else base_hash(result)[1]
    words = np.stack(np.broadcast_arrays(parts.guard, second))
    if not parts.where.all():
        words = np.where(parts.where, words, result.words)
    kept = (np.asarray(result.flags, dtype=np.uint32) & np.uint32(_KEPT)) | np.asarray(parts.sticky, dtype=np.uint32)
    kinds = np.where(
        known,
        np.uint32(_NUMBER) | kept & np.uint32(L.INHERITED),
        np.uint32(_TERM) | kept | np.uint32(L.CANONICAL_NAN),
    )
    flags = np.where(parts.where, kinds, np.asarray(result.flags, dtype=np.uint32))
    return SymbolicVector(result.bits, words, L.uniform_flags(flags))


def exp2_of_padding(parts: UnguardedOperands, result: SymbolicVector) -> SymbolicVector:
    """Return the power of two of the only value of `parts`: that of a guarded -inf is +0."""
    low = L.equals_constant(parts.values[0], MINUS_INFINITY)
    if low is False:
        return result
    return L.blend(low & parts.where, L.constant_vector(np.zeros((1, 1), dtype=np.uint32)), result)


def record_comparison(operation: Operation, values: Sequence[SymbolicVector], result: Value) -> None:
    """Record what guarded constants decide in a comparison of two fp32 values."""
    parts = split_guards("compare", values)
    if parts is None or not isinstance(result, SymbolicVector):
        return
    decided = parts.where & np.asarray(L.constant_mask(parts.values[0])) & np.asarray(L.constant_mask(parts.values[1]))
    if decided.any():
        assert operation.function is not None
        truth = operation.function(*[L.constants_of(each) for each in parts.values])
        result.guarded_alternative = (decided, parts.guard, L.constant_vector(truth))


def record_negation(predicate: SymbolicVector, result: Value) -> None:
    """Record for a predicate's negation what is recorded for the predicate."""
    if predicate.guarded_alternative is not None and isinstance(result, SymbolicVector):
        lanes, guard, taken = predicate.guarded_alternative
        result.guarded_alternative = (lanes, guard, L.constant_vector(~L.constants_of(taken)))


def record_selection(
    predicate: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector, result: SymbolicVector
) -> None:
    """Record for a select which value a guarded constant selects."""
    if predicate.guarded_alternative is not None and result is not if_true and result is not if_false:
        lanes, guard, taken = predicate.guarded_alternative
        result.guarded_alternative = (lanes, guard, L.blend(L.constants_of(taken), if_true, if_false))
