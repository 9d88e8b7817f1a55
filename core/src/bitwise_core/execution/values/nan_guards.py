"""Guarded values: what padding a row with -inf leaves in sums of exponentials.

-inf - m is -inf, or NaN where m is NaN or -inf: where m is *bad*.  So it is -inf *guarded* by m, a value that becomes
NaN where m is bad.  An operation that gives NaN wherever an operand is NaN may take the guard off its operand and put
it on its result; the power of two of -inf is +0; and +0 added to a sum leaves it, but for -0.  A sum of exponentials of
a padded row is thus the sum without the padding, guarded once, wherever in the sum the padding stood.

A comparison of a guarded number is decided but for the NaN.  What is chosen by it may be taken for what the number
decides *beside* that guard: in an operation with an operand that it guards, whose result is NaN where m is bad anyway.

A guarded value is a set of its own kind.  Its payload's first word is a hash of m, the second one of the value, or the
known number itself.  Two that differ agree with probability 2**-64.
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
"""Operations (without saturation) that give NaN wherever an operand is NaN, through which guards move.

The power of ldexp, its second operand, is an integer.
"""
MINUS_INFINITY = 0xFF800000
_KIND = np.uint32(L.KIND | 255 << L.OPERATION_SHIFT)
_PLAIN = np.uint32(L.KIND | 255 << L.OPERATION_SHIFT | L.NEGATED | L.PLUS_ZERO)
_TERM, _NUMBER = (L.AC_TERMS | index << L.OPERATION_SHIFT for index in (L.GUARDED, L.GUARDED_CONSTANT))
_KEPT = L.PLUS_ZERO | L.NEGATED | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE | L.MODULO_NAN_PAYLOAD | L.INHERITED


@dataclass(frozen=True, slots=True)
class UnguardedOperands:
    """Operands without their guards, where they had one (`where`, shape (blocks, threads)), and its hash (`guard`).

    `sticky` holds what every result inherits from the operands, guards included.
    """

    values: list[SymbolicVector]
    where: Array
    guard: Array
    sticky: L.Flags


def guarded_where(value: SymbolicVector) -> Array | None:
    """Which lanes are guarded, None where none is."""
    if isinstance(value.flags, int) and value.flags & L.KIND != L.AC_TERMS:
        return None
    found: Array = np.asarray(((value.flags & _KIND) == _TERM) | ((value.flags & _PLAIN) == _NUMBER)).reshape(
        np.shape(value.flags) or (1, 1)
    )
    return found if found.any() else None


def split_guards(verb: str, values: Sequence[SymbolicVector], some: bool = True) -> UnguardedOperands | None:
    """Takes fp32 operands apart, None where no lane has a guard; `some` says whether there are guarded values at all.

    SymbolicVector whose operands have different guards stay as they are.
    """
    inner = list(values)
    where: Array = np.zeros((1, 1), dtype=bool)
    guard: Array = np.zeros((1, 1), dtype=np.uint64)
    apart: Array = np.zeros((1, 1), dtype=bool)
    found = [guarded_where(value) if some else None for value in values]
    if verb == "ldexp":
        found[1] = None
    for value, mask in zip(values, found, strict=True):
        if mask is None:
            continue
        apart = apart | (where & mask & (guard != value.words[0]))
        guard = np.where(mask, value.words[0], guard)
        where = where | mask
    where = where & ~apart
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
    """Where -inf has a value subtracted that is not known and not guarded itself."""
    infinite = L.equals_constant(left, MINUS_INFINITY)
    if infinite is False:
        return None
    other = guarded_where(right)
    found: Array = infinite & ~np.asarray(L.constant_mask(right)) & (True if other is None else ~other)
    return found if found.any() else None


def _without_guard(value: SymbolicVector, where: Array) -> SymbolicVector:
    """The value without its guard in the lanes of `where`: a term that only its second word tells, or a number."""
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
    """The result of an operation on the operands of `parts`, with the guard that they had."""
    known = np.asarray(L.constant_mask(result))
    second = np.where(known, result.words[1], base_hash(result)[1]) if known.any() else base_hash(result)[1]
    words = np.stack(np.broadcast_arrays(parts.guard, second))
    if not parts.where.all():
        words = np.where(parts.where, words, result.words)
    kept = (np.asarray(result.flags, dtype=np.uint32) & np.uint32(_KEPT)) | np.asarray(parts.sticky, dtype=np.uint32)
    kinds = np.where(
        known,
        np.uint32(_NUMBER) | kept & np.uint32(L.INHERITED),
        np.uint32(_TERM) | kept | np.uint32(L.MODULO_NAN_PAYLOAD),
    )
    flags = np.where(parts.where, kinds, np.asarray(result.flags, dtype=np.uint32))
    return SymbolicVector(result.bits, words, L.uniform_flags(flags))


def exp2_of_padding(parts: UnguardedOperands, result: SymbolicVector) -> SymbolicVector:
    """The power of two of the only value of `parts`: that of a guarded -inf is +0."""
    low = L.equals_constant(parts.values[0], MINUS_INFINITY)
    if low is False:
        return result
    return L.blend(low & parts.where, L.constant_vector(np.zeros((1, 1), dtype=np.uint32)), result)


def record_comparison(operation: Operation, values: Sequence[SymbolicVector], result: Value) -> None:
    """Remembers of a comparison of two fp32 values what guarded numbers among them decide."""
    parts = split_guards("compare", values)
    if parts is None or not isinstance(result, SymbolicVector):
        return
    decided = parts.where & np.asarray(L.constant_mask(parts.values[0])) & np.asarray(L.constant_mask(parts.values[1]))
    if decided.any():
        assert operation.function is not None
        truth = operation.function(*[L.constants_of(each) for each in parts.values])
        result.guarded_alternative = (decided, parts.guard, L.constant_vector(truth))


def record_negation(predicate: SymbolicVector, result: Value) -> None:
    """Remembers of a predicate's negation what is remembered of the predicate."""
    if predicate.guarded_alternative is not None and isinstance(result, SymbolicVector):
        lanes, guard, taken = predicate.guarded_alternative
        result.guarded_alternative = (lanes, guard, L.constant_vector(~L.constants_of(taken)))


def record_selection(
    predicate: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector, result: SymbolicVector
) -> None:
    """Remembers of a choice what is chosen by what a guarded number decides."""
    if predicate.guarded_alternative is not None and result is not if_true and result is not if_false:
        lanes, guard, taken = predicate.guarded_alternative
        result.guarded_alternative = (lanes, guard, L.blend(L.constants_of(taken), if_true, if_false))
