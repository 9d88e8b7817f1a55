"""The NaN on which unspecified bits of a value depend, and the selects that take no such bits.

The bits of a NaN that an assembler may move (`UNSPECIFIED_NAN`) reach a value through operations that read bits, such
as the exponent that a logarithm takes out of |x|.  They do not reach a result that is selected only where x is a
number: a select whose condition is false for every NaN pattern of x, and whose value depends on the bits of no other
NaN.  Both facts are kept as origins, of the value and of the condition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Origin, SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash, nan_bits
from bitwise_core.numerics import IntegerFormat, Operation
from bitwise_core.numerics.formats import float_format

_SOURCE = "the NaN of the unspecified bits"
_NUMBER_IF = {True: "a number if true", False: "a number if false"}
"""The origins of a predicate by its truth, which is that without the flag of a negation."""
_IEEE = {form.bits: form for form in map(float_format, ("fp16", "fp32", "fp64"))}


def with_source(result: SymbolicVector, values: Sequence[SymbolicVector], *, reads_bits: bool) -> SymbolicVector:
    """Add the origin of the unspecified bits to a result of operands, where they depend on one NaN alone."""
    source: SymbolicVector | None = None
    for value in values:
        own = reads_bits and _is_unspecified(value)
        inherited = L.flags_of_some_lane(value) & L.UNSPECIFIED_NAN
        if not own and not inherited:
            continue
        found = _noted(value) if own and not inherited else _source_of(value) if not own else None
        if found is None or (source is not None and not _same(source, found)):
            return result
        source = found
    if source is not None and not any(result is value for value in values):
        result.origins = (*result.origins, Origin(_SOURCE, (source,)))
    return result


def with_number_test(result: SymbolicVector, info: Operation, values: Sequence[SymbolicVector]) -> SymbolicVector:
    """Add to a comparison which operand with unspecified bits of a NaN is a number where it is true, or false."""
    truth, place = _number_test(info, values)
    if truth is None:
        return result
    tested = (_noted(values[place]),)
    # A rule may return the negation of a predicate, whose origins are those of the predicate.
    negated = L.has_flag(result, L.NEGATED)
    if isinstance(negated, bool):
        result.origins = (*result.origins, Origin(_NUMBER_IF[truth != negated], tested))
    else:
        found = Origin(_NUMBER_IF[truth], tested, ~negated), Origin(_NUMBER_IF[not truth], tested, negated)
        result.origins = (*result.origins, *found)
    return result


def tests_only_numbers(info: Operation, values: Sequence[SymbolicVector]) -> bool:
    """Return whether a comparison of integers has one result for all NaN patterns of its operands."""
    return not info.is_float and _number_test(info, values)[0] is not None


def where_number(condition: SymbolicVector, value: SymbolicVector, *, truth: bool) -> SymbolicVector:
    """Return a value that is selected where a condition has this truth, without bits that are not selected then."""
    if not condition.origins or not L.flags_of_some_lane(value) & L.UNSPECIFIED_NAN:
        return value
    for test in (each for each in condition.origins if each.name == _NUMBER_IF[truth]):
        for source in (each for each in value.origins if each.name == _SOURCE):
            lanes: Array = (full_hash(test.operands[0]) == full_hash(source.operands[0])).all(axis=0)
            lanes = lanes & np.asarray(test.lanes) & np.asarray(source.lanes)
            value = L.blend(L.nonempty(lanes), L.without_flags(value, L.UNSPECIFIED_NAN), value)
    return value


def _number_test(info: Operation, values: Sequence[SymbolicVector]) -> tuple[bool | None, int]:
    """Return the truth for which an operand with unspecified bits of a NaN is a number, and its place; None for none.

    Comparisons of floating-point numbers are false for NaNs.  As integers, all NaN patterns lie at or above
    `_first_nan`.
    """
    if not info.is_comparison or info.verb not in ("eq", "lt", "le", "ord"):
        return None, 0
    for place, value in enumerate(values):
        if not _is_unspecified(value):
            continue
        if info.is_float:
            return True, place
        form, kind = _IEEE.get(value.bits), info.operands[place]
        numbers = L.constant_numbers(values[1 - place])
        if (
            form is None
            or not numbers
            or len(numbers) > 1
            or L.constant_mask(values[1 - place]) is not True
            or L.flags_of_some_lane(value) & L.CANONICAL_BF16_NAN
            or not isinstance(kind, IntegerFormat)
        ):
            continue
        (number,) = numbers
        infinity = (1 << form.exponent_bits) - 1 << form.mantissa_bits
        if info.verb == "eq":
            if number & ~(1 << form.bits - 1) <= infinity:
                return True, place
        elif kind.signed is not None:
            first, strict = _first_nan(infinity, form.bits, kind.signed), info.verb == "lt"
            number = _signed(number, form.bits) if kind.signed else number
            if place == 0 and (number <= first if strict else number < first):
                return True, place
            if place == 1 and (number < first if strict else number <= first):
                return False, place
    return None, 0


def _first_nan(infinity: int, bits: int, signed: bool) -> int:
    """Return the least NaN pattern of a format as an integer: of those without a sign, or of all if it is signed."""
    return _signed(infinity + 1 | 1 << bits - 1, bits) if signed else infinity + 1


def _signed(pattern: int, bits: int) -> int:
    return pattern - (1 << bits) if pattern >> bits - 1 else pattern


def _is_unspecified(value: SymbolicVector) -> bool:
    if not L.flags_of_some_lane(value) & L.NAN_MARK:
        return False
    return bool(np.any(np.bitwise_and(nan_bits(value), L.UNSPECIFIED_NAN)))


def _noted(value: SymbolicVector) -> SymbolicVector:
    return SymbolicVector(value.bits, full_hash(value), L.TERM)


def _source_of(value: SymbolicVector) -> SymbolicVector | None:
    """Return the origin of all unspecified bits of a value, None if there may be several."""
    flagged = np.bitwise_and(value.flags, L.UNSPECIFIED_NAN) != 0
    for each in value.origins:
        if each.name == _SOURCE and not np.any(flagged & ~np.asarray(each.lanes)):
            return each.operands[0]
    return None


def _same(one: SymbolicVector, other: SymbolicVector) -> bool:
    return bool(np.all(one.words == other.words))
