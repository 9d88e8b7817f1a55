"""AC terms of maxima and minima: equal sets are merged, and all constant members are folded into one number.

The payload is the sum of the other members' hashes, except for the low half of its first word: that is the constant
field.  It holds the constant itself if it has 32 bits or fewer, or the high half of a longer constant whose low half is
zero.  Two different sets have the same payload with probability 2**-96.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from bitwise_core import numerics
from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.constant_folding import evaluate_constants
from bitwise_core.execution.values.sets.ac_terms import AC_INDEX, member_hashes
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import WIDENING

_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_MEMBER_BITS = np.array([_HIGH, ~np.uint64(0)], dtype=np.uint64).reshape(2, 1, 1)
"""The bits of a payload outside the constant field."""
_CARRIED = np.array([5 << 32, 59], dtype=np.uint64).reshape(2, 1, 1)
"""What a carry adds to a sum of these bits, so that it is one modulo a prime (`hashing.sum_of_members`)."""
_INFINITY = {"fp64": 0x7FF0000000000000, "fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}


@dataclass(frozen=True, slots=True)
class _Extremum:
    """A maximum or minimum operation.

    `index` is its number among AC operations, `identity` the infinity that is its identity element (None for integers).
    `drops_zero`: +0 has no effect beside a number that is not negative, since a NaN among the members stays.
    """

    name: str
    index: int
    identity: int | None
    largest: bool
    bits: int
    drops_zero: bool


@cache
def _extremum_named(name: str) -> _Extremum:
    verb, form = name.split(".")[0], name.split(".")[-1]
    bits = int(form.lstrip("fpbsu"))
    identity = None
    if form in _INFINITY:
        identity = _INFINITY[form] | (1 << (bits - 1) if verb == "max" else 0)
    return _Extremum(name, AC_INDEX[name], identity, verb == "max", bits, name.startswith("max.nan."))


_NUMBER_SETS = np.zeros(256, dtype=bool)
"""Whether the operation of an AC term, by its number, returns a number unless all of its members are NaN."""
_NUMBER_SETS[[AC_INDEX[f"{verb}.{form}"] for verb in ("max", "min") for form in ("fp64", "fp32", "fp16", "bf16")]] = (
    True
)


def is_number_set(value: SymbolicVector) -> bool | Array:
    """Return which lanes are sets of floating-point numbers with a constant member, and drop NaNs: they are not NaN."""
    flags = value.flags
    if isinstance(flags, int):
        inside = flags & L.KIND == L.AC_TERMS and flags & L.WITH_CONSTANT != 0
        return inside and bool(_NUMBER_SETS[flags >> L.OPERATION_SHIFT & 255])
    if not L.flags_of_some_lane(value) & L.WITH_CONSTANT:
        return False
    number = flags >> np.uint32(L.OPERATION_SHIFT) & np.uint32(255)
    found: Array = ((flags & np.uint32(L.KIND)) == L.AC_TERMS) & ((flags & np.uint32(L.WITH_CONSTANT)) != 0)
    return L.nonempty(found & _NUMBER_SETS.take(number))


@dataclass(frozen=True, slots=True)
class _Members:
    """A value as a set: the hash of its members without the constant, the constant field, and the flags of the set."""

    words: hashing.Words
    constant: Array
    flags: L.Flags


def extremum(
    name: str,
    left: SymbolicVector,
    right: SymbolicVector,
    bits: int,
    context: TermContext,
    *,
    keeps_identity: bool = False,
) -> SymbolicVector:
    """Return the set of two values' members under a maximum or minimum of `AC_INDEX`.

    `keeps_identity` means that the infinity that is the identity element can still be the result: if all other members
    are NaN.
    """
    if left is right and context.recorder is None:
        return left
    kind = _extremum_named(name)
    one, other = _members_of(kind, left), _members_of(kind, right)
    if kind.drops_zero:
        one, other = _without_zero(one, right), _without_zero(other, left)
    same = hashing.same_lanes(one.words, other.words)
    words = hashing.sum_of_members(one.words, other.words, _CARRIED)
    if context.member_sets is not None:
        words = context.member_sets.union(one.words, other.words, words, upper_half=True)
    elif context.repeated_members is not None and (same is False or not L.every(same)):
        # Where both values are the same in all lanes, as LLVM quiets a NaN, no set gets another member.
        for value, beside, members in ((left, right, one), (right, left, other)):
            context.repeated_members.examine(members.words, _enters_set(kind, value, beside))
    if same is not False:
        words = np.where(same, one.words, words)
    flags = one.flags | other.flags
    if not keeps_identity:
        flags = L.clear_flags(flags, L.WITH_IDENTITY)
    if L.any_flag(flags & L.WITH_CONSTANT):
        constant = _union_constant(kind, one, other)
        words[0] |= constant
        # With a constant member the identity element is never the result.
        flags = L.clear_flags_where(flags, L.WITH_IDENTITY, L.WITH_CONSTANT)
    result = SymbolicVector(bits, words, flags | L.AC_TERMS | kind.index << L.OPERATION_SHIFT)
    context.note(name, result, [left, right], commutes=True)
    if same is not False:
        alike = same & (one.constant == other.constant) & ((one.flags ^ other.flags) & L.VALUE == 0)
        result = L.blend(L.nonempty(alike), left, result)
    if kind.identity is not None and not keeps_identity:
        for empty, value in ((left, right), (right, left)):
            result = L.blend(L.equals_constant(empty, kind.identity), value, result)
    if kind.drops_zero:
        for zero, value in ((left, right), (right, left)):
            result = L.blend(L.nonempty(L.equals_constant(zero, 0) & _is_not_negative(value)), value, result)
    return result


def _is_not_negative(value: SymbolicVector) -> Array:
    """Return which lanes are no constants and not negative, or NaN."""
    found: Array = np.asarray(L.has_flag(value, L.NOT_NEGATIVE)) & ~np.asarray(L.constant_mask(value))
    return found


def _without_zero(members: _Members, beside: SymbolicVector) -> _Members:
    """Return members without the constant +0 in the lanes where it is combined with a number that is not negative."""
    if not L.any_flag(members.flags & L.WITH_CONSTANT):
        return members
    dropped = ((np.asarray(members.flags) & L.WITH_CONSTANT) != 0) & (members.constant == 0) & _is_not_negative(beside)
    if not dropped.any():
        return members
    flags = L.select_flags(dropped, L.clear_flags(members.flags, L.WITH_CONSTANT), members.flags)
    return _Members(members.words, members.constant, flags)


def _union_constant(kind: _Extremum, one: _Members, other: _Members) -> Array:
    """Return the constant field of the union of two sets."""
    both = L.nonempty((one.flags & other.flags & L.WITH_CONSTANT) != 0)
    if both is False:
        return one.constant | other.constant
    storage = L.UNSIGNED[kind.bits]
    shift = np.uint64(32) if kind.bits == 64 else np.uint64(0)
    numbers = [(each.constant << shift).astype(storage) for each in (one, other)]
    joined = evaluate_constants(numerics.operation(kind.name), numbers, both).astype(np.uint64) >> shift
    return np.where(both, joined, one.constant | other.constant)


def _members_of(kind: _Extremum, value: SymbolicVector) -> _Members:
    words, flags = member_hashes(kind.name, kind.index, value)
    own = L.AC_TERMS | kind.index << L.OPERATION_SHIFT
    form = L.FORM if kind.identity is None else L.NUMBER_FORM
    constant: Array = np.zeros((1, 1), dtype=np.uint64)
    if L.flags_of_some_lane(value) & L.WITH_CONSTANT:
        inside = (value.flags & (form | 255 << L.OPERATION_SHIFT)) == own
        constant = np.where(inside, words[0] & _LOW, np.uint64(0))
    words = words & _MEMBER_BITS
    if kind.name.endswith("fp32") and L.flags_of_some_lane(value) & L.WIDENED:
        half = L.nonempty((value.flags & L.WRAPPERS) == L.WIDENED)
        if half is not False:
            words, constant, flags = _with_half_members(kind, value, half, words, constant, flags)
    known = L.constant_mask(value)
    if known is False:
        return _Members(words, constant, flags)
    if kind.identity is not None:
        empty = L.equals_constant(value, kind.identity)
        if empty is not False:
            words = np.where(empty, np.uint64(0), words)
            flags = L.select_flags(empty, L.WITH_IDENTITY, flags)
            known = known & ~empty
    with_constant = L.nonempty(known & _fits_constant_field(kind, value.words[0]))
    if with_constant is not False:
        words = np.where(with_constant, np.uint64(0), words)
        field_value = value.words[0] >> _HALF if kind.bits == 64 else value.words[0]
        constant = np.where(with_constant, field_value, constant)
        flags = L.select_flags(np.asarray(with_constant), L.WITH_CONSTANT, flags)
    return _Members(words, constant, flags)


def _enters_set(kind: _Extremum, value: SymbolicVector, beside: SymbolicVector) -> bool | Array:
    """Return in which lanes a value that is neither a set nor constant nor undefined enters one with another value.

    Sets themselves repeat where the elements beyond those of some threads are the identity element.
    """
    operation = np.bitwise_and(value.flags, L.KIND | 255 << L.OPERATION_SHIFT)
    half = AC_INDEX.get(kind.name.replace("fp32", "fp16"), kind.index)
    left_out = np.logical_or(
        operation == L.AC_TERMS | kind.index << L.OPERATION_SHIFT, operation == L.AC_TERMS | half << L.OPERATION_SHIFT
    )
    if kind.identity is not None:
        left_out = np.logical_or(left_out, L.equals_constant(beside, kind.identity))
    left_out = np.logical_or(left_out, L.constant_mask(value))
    undefined = np.logical_or(L.has_flag(value, L.POISON), L.has_flag(beside, L.POISON))
    return L.nonempty(~np.logical_or(left_out, undefined))


def _fits_constant_field(kind: _Extremum, numbers: Array) -> Array:
    """Return which constants fit the constant field; NaNs do not."""
    fits: Array = (numbers & _LOW) == 0 if kind.bits == 64 else np.ones(numbers.shape, dtype=bool)
    if kind.identity is None:
        return fits
    infinity = np.uint64(kind.identity & ((1 << (kind.bits - 1)) - 1))
    return fits & ((numbers & np.uint64((1 << (kind.bits - 1)) - 1)) <= infinity)


def _with_half_members(
    kind: _Extremum, value: SymbolicVector, half: bool | Array, words: hashing.Words, constant: Array, flags: L.Flags
) -> tuple[hashing.Words, Array, L.Flags]:
    """Return words, constant field and flags with the members that were widened from fp16.

    Such members enter with their hash in a set of fp16, so that it does not matter whether they were combined before or
    after the widening.
    """
    inner = SymbolicVector(16, value.words, L.clear_flags(value.flags, L.WIDENED | L.HALF_RANGE))
    found = _members_of(_extremum_named(kind.name.replace("fp32", "fp16")), inner)
    widened = numerics.operation(WIDENING).evaluate(found.constant.astype(np.uint16)).astype(np.uint64)
    wide = np.where((found.flags & L.WITH_CONSTANT) != 0, widened, np.uint64(0))
    mask = np.asarray(half)
    return (
        np.where(mask, found.words, words),
        np.where(mask, wide, constant),
        L.select_flags(mask, found.flags, flags),
    )
