"""Marks of values whose NaNs are canonical, and the formats that ignore them.

Rules return an operand, or a term with a flipped sign, for an arithmetic result: they are equal except for the bits of
a NaN.  Arithmetic of a format F returns the canonical NaN of F, so the result is exactly c_F(v): v with each NaN of F
replaced by the canonical one.  The mark of F (`CANONICAL_NAN`, `CANONICAL_BF16_NAN`) on the hash of v denotes c_F(v).

- An operation of F does not distinguish v and c_F(v), and a buffer of F counts them as one value: both ignore the mark.
- Every other operation, and every other buffer, reads other bits: the mark is a part of the value (`exact_hash`).

Every result of arithmetic in F is marked: for a term that has the canonical NaN already, c_F changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from bitwise_core.execution.term_recorder import SAME, TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers.bounds import maximum_of
from bitwise_core.execution.values.symbolic_vector import Array, Flags, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, may_be_moved, nan_bits
from bitwise_core.numerics import FloatFormat, Operation, nan_of

_MARKS: Mapping[str, int] = MappingProxyType(
    {
        "fp16": L.CANONICAL_NAN, "fp32": L.CANONICAL_NAN, "fp64": L.CANONICAL_NAN, "bf16": L.CANONICAL_BF16_NAN,
    }
)  # fmt: skip
_FOREIGN: Mapping[str, int] = MappingProxyType(
    {"fp16": L.CANONICAL_BF16_NAN, "bf16": L.CANONICAL_NAN, "fp32": 0, "fp64": 0}
)
"""The marks of other formats that a value of the format's width may have; a bf16 in the high half of an fp32 is a NaN
exactly if the fp32 is one."""
_ANY = L.CANONICAL_NAN | L.CANONICAL_BF16_NAN
_BY_WIDTH = {16: "fp16", 32: "fp32", 64: "fp64"}


def mark_of(form: FloatFormat) -> int:
    """Return the mark of a format, 0 for a format without one."""
    return _MARKS.get(form.name, 0)


def format_of_mark(mark: int, bits: int) -> str | None:
    """Return the name of the format of a mark of a value of this width; None where it is not one format."""
    own = mark & ~L.FLIPPED_NAN
    if own == L.CANONICAL_NAN:
        return _BY_WIDTH.get(bits)
    return "bf16" if own == L.CANONICAL_BF16_NAN and bits == 16 else None


def foreign_marks(form: str | None) -> int:
    """Return the marks that distinguish two values of a format; all of them for an integer format or None."""
    return _ANY if form is None else _FOREIGN.get(form, _ANY)


def as_operand(value: SymbolicVector, form: str, context: TermContext) -> SymbolicVector:
    """Return a value as an operand of a format: a term of its exact bits where it has the mark of another format."""
    foreign = foreign_marks(form)
    if not foreign:
        return value
    marked = L.nonempty(L.has_flag(value, foreign))
    return value if marked is False else L.blend(marked, exact_term(value, context), value)


def exact_term(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return a term without a mark for the exact bits of a value."""
    closed = SymbolicVector(value.bits, exact_hash(value), L.TERM | L.INTEGER | L.sticky_flags(value) | nan_bits(value))
    return context.note(SAME, closed, [value])


def accumulator_operand(value: SymbolicVector, context: TermContext) -> SymbolicVector:
    """Return a value as the accumulator of a floating-point matrix step, in the IEEE format of its width."""
    return as_operand(value, _BY_WIDTH[value.bits], context) if value.bits == 16 else value


def with_ieee_nans(value: SymbolicVector) -> SymbolicVector:
    """Return a value of fp16, fp32 or fp64, by its width, with the canonical NaN for every NaN."""
    flags = _marked(value, L.CANONICAL_NAN)
    return value if flags is value.flags else _with_flags(value, flags)


def with_bf16_nans(value: SymbolicVector) -> SymbolicVector:
    """Return a value of bf16 with the canonical NaN for every NaN; constants are unchanged."""
    flags = _marked(value, L.CANONICAL_BF16_NAN)
    return value if flags is value.flags else _with_flags(value, flags)


def with_result_nans(result: Value, info: Operation) -> Value:
    """Return the result of a floating-point operation with the mark of its format, in the lanes that are not constant.

    A rule may have returned a constant operand: its NaNs become canonical as well.
    """
    mark = _MARKS.get(info.result.name)
    if mark is None or not isinstance(result, SymbolicVector):
        return result
    flags = _marked(result, mark)
    if flags is result.flags:
        return result
    found = _with_flags(result, flags)
    if info.function is not None and not isinstance(flags, int) and _has_constants(result):
        found.words = _canonical_constants(result, info)
    return found


def _with_flags(value: SymbolicVector, flags: Flags) -> SymbolicVector:
    found = SymbolicVector(value.bits, value.words, flags)
    found.cached_hash, found.recorder, found.origins = value.cached_hash, value.recorder, value.origins
    return found


def _has_constants(value: SymbolicVector) -> bool:
    """Return whether some lane may hold a constant: the flags of all lanes together have no other kind."""
    return not L.flags_of_every_lane(value) & L.KIND


def _marked(value: SymbolicVector, mark: int) -> Flags:
    """Return the flags with exactly this mark, except for constants, which have none; the same object if unchanged.

    A value that had another mark has bits of a NaN that no document specifies (`INTEGER` with a mark).
    """
    flags = value.flags
    if isinstance(flags, int):
        found = flags & ~L.NAN_MARK
        if found & L.NUMBER_FORM != L.CONST:
            found |= mark | (L.INTEGER if flags & L.NAN_MARK not in (0, mark) else 0)
        return flags if found == flags else found
    present = L.flags_of_some_lane(value) & L.NAN_MARK
    added: Array = np.asarray(mark, dtype=np.uint32)
    if present == mark == L.flags_of_every_lane(value) & L.NAN_MARK and not _has_constants(value):
        return flags
    if present not in (0, mark):
        before = flags & np.uint32(L.NAN_MARK)
        added = np.where((before == 0) | (before == mark), added, added | np.uint32(L.INTEGER))
    if _has_constants(value):
        added = np.where((flags & np.uint32(L.NUMBER_FORM)) == L.CONST, np.uint32(0), added)
    return L.clear_flags(flags, L.NAN_MARK if present else 0) | added


def _canonical_constants(value: SymbolicVector, info: Operation) -> Array:
    """Return the words of a value with the canonical NaN for every NaN among its constants."""
    form = info.result
    known = np.asarray((value.flags & np.uint32(L.NUMBER_FORM)) == L.CONST)
    if not isinstance(form, FloatFormat) or form.canonical_nan is None or not known.any():
        return value.words
    nans = known & nan_of(value.words[0].astype(L.UNSIGNED[value.bits]), form)
    return np.where(nans, np.uint64(form.canonical_nan), value.words) if nans.any() else value.words


def flipped_sign_mark(flags: Flags) -> Flags:
    """Return the flags after the sign bit was flipped, that of a canonical NaN included."""
    if isinstance(flags, int):
        return flags ^ L.FLIPPED_NAN if flags & _ANY else flags
    return np.where((flags & np.uint32(_ANY)) != 0, flags ^ np.uint32(L.FLIPPED_NAN), flags)


def as_selected(
    left: SymbolicVector, right: SymbolicVector, context: TermContext
) -> tuple[SymbolicVector, SymbolicVector]:
    """Return the two values of a select with one mark, which is that of the result.

    A constant that is no NaN takes the mark of the other value.  So does a value without a mark where an assembler
    decides the other one's NaN, since the result's NaN then has its own bits or those of the canonical one.  Where the
    marks of two values differ otherwise, both are terms of their exact bits, without a mark.
    """
    one, other = left.flags & L.NAN_MARK, right.flags & L.NAN_MARK
    if isinstance(one, int) and isinstance(other, int) and one == other:
        return left, right
    return _selected_by_lane(left, right, context)


def _selected_by_lane(
    left: SymbolicVector, right: SymbolicVector, context: TermContext
) -> tuple[SymbolicVector, SymbolicVector]:
    one, other = (np.asarray(each.flags, dtype=np.uint32) & np.uint32(L.NAN_MARK) for each in (left, right))
    one = np.where(takes_any_mark(left), other, one)
    other = np.where(takes_any_mark(right), one, other)
    is_open = [np.asarray(may_be_moved(np.asarray(each.flags, dtype=np.uint32))) for each in (left, right)]
    other = np.where(is_open[0] & (other == 0), one, other)
    one = np.where(is_open[1] & (one == 0), other, one)
    differs = L.nonempty(one != other)
    found = []
    for value, mark in ((left, one), (right, other)):
        flags = (np.asarray(value.flags, dtype=np.uint32) & np.uint32(~L.NAN_MARK & 0xFFFFFFFF)) | mark
        given = _with_flags(value, L.uniform_flags(flags))
        if differs is not False:
            marked = L.nonempty(differs & np.asarray(L.has_flag(value, _ANY)))
            closed = exact_term(value, context)
            plain = L.blend(marked, closed, L.without_flags(given, L.NAN_MARK))
            given = L.blend(differs, plain, given)
        found.append(given)
    return found[0], found[1]


def takes_any_mark(value: SymbolicVector) -> Array:
    """Return which lanes are constants that are a NaN in no format of their width."""
    known = np.asarray(L.constant_mask(value))
    if not known.any() or value.bits not in (16, 32, 64):
        return np.zeros((1, 1), dtype=bool)
    magnitude = value.words[0] & np.uint64((1 << (value.bits - 1)) - 1)
    found: Array = known & (magnitude <= np.uint64(_LEAST_INFINITY[value.bits]))
    return found


def is_no_nan(value: Value) -> bool:
    """Return whether a value is known to be a NaN in no format of its width: as an unsigned integer, it has a bound."""
    infinity = _LEAST_INFINITY.get(L.width(value))
    if infinity is None:
        return False
    bound = maximum_of(value)
    return bound is not None and bound <= infinity


_LEAST_INFINITY = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}


def without_marks_but(value: SymbolicVector, kept: int) -> SymbolicVector:
    """Return the value without marks of NaNs, except in the lanes that have one of these marks."""
    flags = value.flags
    if isinstance(flags, int):
        return value if flags & kept or not flags & L.NAN_MARK else _with_flags(value, flags & ~L.NAN_MARK)
    dropped = (flags & np.uint32(kept)) == 0
    return _with_flags(value, L.uniform_flags(np.where(dropped, flags & np.uint32(~L.NAN_MARK & 0xFFFFFFFF), flags)))


def has_ieee_nans(value: SymbolicVector) -> bool:
    """Return whether every NaN of a value is known to be the canonical one of fp16, fp32 or fp64, by its width."""
    marked = np.bitwise_and(value.flags, L.NAN_MARK) == L.CANONICAL_NAN
    return bool(np.all(marked | takes_any_mark(value)))
