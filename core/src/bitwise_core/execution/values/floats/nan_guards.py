"""Guarded values: the effect of padding a row with -inf on sums of exponentials.

-inf - m is -inf, unless m is NaN or -inf, where it is NaN; call such an m *bad*.  The difference is thus -inf *guarded*
by m: a value that is replaced by NaN where m is bad.  An operation that returns NaN whenever an operand is NaN may move
the guard from its operand to its result.  The power of two of -inf is +0, and adding +0 leaves a sum unchanged, except
for -0.  So a sum of exponentials over a padded row is the sum without the padding, guarded once, wherever in the sum
the padding was.

A comparison with a guarded constant is decided except for the NaN.  A value that is selected by it may be the one that
the constant decides, in an operation that has another operand with the same guard: its result is NaN where m is bad.
These rules, and those that move a guard, are in `ir.rules.guards`.

A guarded value is an AC term of its own kind.  The first word of its payload is a hash of m, the second one that of the
value, or the constant itself.  Two different ones have the same payload with probability 2**-64.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import base_hash, full_hash

_KIND = np.uint32(L.KIND | 255 << L.OPERATION_SHIFT)
_PLAIN = np.uint32(L.KIND | 255 << L.OPERATION_SHIFT | L.NEGATED | L.PLUS_ZERO)
_TERM, _NUMBER = (L.AC_TERMS | index << L.OPERATION_SHIFT for index in (L.GUARDED, L.GUARDED_CONSTANT))
_COMMON = _TERM & _NUMBER
_KEPT = L.PLUS_ZERO | L.NEGATED | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE | L.NAN_MARK | L.INHERITED


def is_guarded(flags: int) -> bool:
    """Return whether a value with these flags is guarded."""
    return flags & int(_KIND) == _TERM or flags & int(_PLAIN) == _NUMBER


def guarded_where(value: SymbolicVector) -> Array | None:
    """Return which lanes are guarded, None if none is."""
    if isinstance(value.flags, int):
        return np.ones((1, 1), dtype=bool) if is_guarded(value.flags) else None
    flags = value.flags
    if L.flags_of_some_lane(value) & _COMMON != _COMMON:
        return None
    found: Array = ((flags & _KIND) == _TERM) | ((flags & _PLAIN) == _NUMBER)
    return found if L.some(found) else None


def parts_of_guarded(value: SymbolicVector, where: Array) -> tuple[SymbolicVector, SymbolicVector]:
    """Return a guarded value without its guard in the lanes of `where`, and the difference that guards it.

    Only one word of the hash of the difference is known.
    """
    guard = np.where(where, value.words[0], np.uint64(0))
    return _without_guard(value, where), SymbolicVector(32, np.stack([guard, guard]), L.TERM | L.sticky_flags(value))


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


def guarded(value: SymbolicVector, difference: SymbolicVector) -> SymbolicVector:
    """Return `guard(value, difference)`: the value, or NaN where the difference is NaN.

    A value that has a guard already is guarded by it alone if the guards are equal; otherwise the guard with the lesser
    hash is the outer one, and the other one becomes a part of the value.
    """
    guard = full_hash(difference)[1]
    again = guarded_where(value)
    if again is None:
        return _guarded_by(value, difference, guard)
    equal, lesser = again & (value.words[0] == guard), again & (value.words[0] < guard)
    result = _guarded_by(value, difference, guard)
    if L.some(lesser):
        inner, outer = parts_of_guarded(value, lesser)
        result = L.blend(lesser, _guarded_by(_guarded_by(inner, difference, guard), outer, outer.words[1]), result)
    return L.blend(L.nonempty(equal), value, result)


def _guarded_by(value: SymbolicVector, difference: SymbolicVector, guard: Array) -> SymbolicVector:
    """Return the value, or NaN where the difference is NaN; `guard` is the hash of the difference."""
    known = np.asarray(L.constant_mask(value))
    inner = base_hash(value)[1]
    second = np.where(known, value.words[1], inner) if known.any() else inner
    words = np.stack(np.broadcast_arrays(guard, second))
    kept = (np.asarray(value.flags, dtype=np.uint32) & np.uint32(_KEPT)) | np.asarray(
        L.sticky_flags(value, difference), dtype=np.uint32
    )
    kinds = np.where(
        known,
        np.uint32(_NUMBER) | kept & np.uint32(L.INHERITED),
        np.uint32(_TERM) | kept | np.uint32(L.CANONICAL_NAN),
    )
    return SymbolicVector(value.bits, words, L.uniform_flags(kinds))
