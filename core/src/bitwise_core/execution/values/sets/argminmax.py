"""Extrema with their indices, as in an arg-max: of equal elements the one at the lower address wins.

Comparisons of finite numbers that are loaded, and selects by them, get one canonical form: the *winner* of a set of
elements, and its *place*, a constant for each element that increases with its address.  If two winners tie, it must be
proved that the select takes the one at the lower address.

Both are AC terms of their own kinds.  A winner's payload is the sum of its elements' hashes and the last of their
addresses.  A place's payload is that sum and `base`: the place of an element of e bytes at address a is (a - base) / e.
Two different ones have the same payload with probability 2**-64.  Places are below 2**31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.assumed_finite import elements_of
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import FloatFormat, Operation

_KIND = np.uint32(L.FORM | 255 << L.OPERATION_SHIFT)
_ELEMENT = hashing.constant("an element among winners")
_FLOATS = {"fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}
"""The element formats and their infinities."""

Formats: TypeAlias = Mapping[int, FloatFormat]
Tie = Literal["true", "false", "lower place"]


@dataclass(frozen=True, slots=True)
class _Order:
    """Which elements win, the greater or the less, and in which format they are compared."""

    form: str
    largest: bool

    @property
    def winner(self) -> int:
        """The form bits of the flags of a winner."""
        return L.AC_TERMS | (L.ARGMINMAX + 4 * list(_FLOATS).index(self.form) + self.largest) << L.OPERATION_SHIFT

    @property
    def place(self) -> int:
        """The form bits of the flags of its place."""
        return self.winner + (2 << L.OPERATION_SHIFT)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A predicate, identified by its hash.

    `less` is true where left < right, and on a tie if `tie` is "true". `places` are the two that decide a tie of kind
    "lower place": the predicate is true if the first one is lower.
    """

    kind: Literal["less", "equal", "below", "lower of equal"]
    form: str
    operands: tuple[SymbolicVector, SymbolicVector]
    lanes: Array
    tie: Tie = "false"
    places: tuple[SymbolicVector, SymbolicVector] | None = None


@dataclass(frozen=True, slots=True)
class _Winner:
    """Winners, in the lanes marked by `lanes`: the sum of the elements' hashes, and the last address.

    `is_single` marks winners of a single element, whose first address is thus known.
    """

    lanes: Array
    hash_sums: Array
    is_single: Array
    last_address: Array


KEPT_DEPTHS: Mapping[str, tuple[int, ...]] = {
    "and.b1": (2, 2),
    **{f"{relation}.{form}": (0, 0) for relation in ("lt", "le", "eq") for form in _FLOATS},
    "lt.s32": (0, 0),
    "lt.u32": (0, 0),
}
"""The operations on predicates that are kept beside their results, and how deep."""


def _comparisons(predicate: SymbolicVector) -> Iterator[_Comparison]:
    """Yield what a predicate is known to be, from the operations that made it."""
    varied = ~np.asarray(L.constant_mask(predicate))
    inverted = np.asarray(L.has_flag(predicate, L.NEGATED))
    for origin in predicate.origins:
        lanes: Array = varied & np.asarray(origin.lanes)
        plain, negated = lanes & ~inverted, lanes & inverted
        relation, _, form = origin.name.partition(".")
        if len(origin.operands) != 2:
            continue
        one, other = origin.operands
        if origin.name == "and.b1":
            for first, second in ((one, other), (other, one)):
                if plain.any():
                    yield from _joined("and", first, second, plain)
                if negated.any():  # not (p and q) is (not p) or (not q)
                    yield from _joined("or", _inverted(first), _inverted(second), negated)
        elif not plain.any():
            continue
        elif form in _FLOATS and relation in ("lt", "le", "eq"):
            kind: Literal["less", "equal"] = "equal" if relation == "eq" else "less"
            yield _Comparison(kind, form, (one, other), plain, "true" if relation == "le" else "false")
        elif relation == "lt" and form in ("s32", "u32"):
            yield _Comparison("below", form, (one, other), plain)


def _inverted(predicate: SymbolicVector) -> SymbolicVector:
    """Return the negation of a predicate that is constant in no lane."""
    result = SymbolicVector(1, predicate.words, predicate.flags ^ L.NEGATED)
    result.origins = predicate.origins
    return result


def _joined(verb: str, one: SymbolicVector, other: SymbolicVector, lanes: Array) -> Iterator[_Comparison]:
    for first, second in product(_comparisons(one), _comparisons(other)):
        where = lanes & first.lanes & second.lanes
        if verb == "and" and (first.kind, second.kind) == ("equal", "below"):
            if where.any():
                yield _Comparison("lower of equal", first.form, first.operands, where, "false", second.operands)
        elif verb == "or" and (first.kind, first.tie) == ("less", "false") and second.form == first.form:
            if second.kind not in ("equal", "lower of equal"):
                continue
            tie: Tie = "true" if second.kind == "equal" else "lower place"
            (a, b), (c, d) = first.operands, second.operands
            where = where & ((_same_value(a, c) & _same_value(b, d)) | (_same_value(a, d) & _same_value(b, c)))
            if where.any():
                yield _Comparison("less", first.form, first.operands, where, tie, second.places)


def choose(
    predicate: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector, formats: Formats
) -> tuple[Array, SymbolicVector] | None:
    """Return a select as a winner or its place, with the lanes in which it is one; None if there are none.

    `formats` holds the format of the elements of each buffer, by the buffer's number.  Only elements of a format are
    finite numbers of it by assumption: the bits of a bf16 may be a NaN of fp16.
    """
    chosen: tuple[Array, SymbolicVector] | None = None
    sides = (if_true, if_false)
    tests = [(test, sides) for test in _comparisons(predicate)]
    tests += [(test, sides[::-1]) for test in _comparisons(_inverted(predicate))]
    for (test, (first, second)), largest in product(tests, (True, False)):
        if test.kind == "less":
            found = _select_winner(test, _Order(test.form, largest), first, second, formats)
            if found is None or not (found[0] & test.lanes).any():
                continue
            mask = found[0] & test.lanes
            chosen = (mask, found[1]) if chosen is None else (mask | chosen[0], L.blend(chosen[0], chosen[1], found[1]))
    return chosen


def fold_infinity_comparison(
    operation: Operation, values: Sequence[Value], result: SymbolicVector, formats: Formats
) -> SymbolicVector:
    """Return the comparison with constants in the lanes that compare a loaded value or a winner with an infinity.

    The same holds for the test whether such values are numbers.  They are finite by assumption, if the elements of
    their buffer have the format in which they are compared.
    """
    relation, form = operation.verb, operation.operands[0].name
    if operation.modifiers or form not in _FLOATS or relation not in ("lt", "le", "eq", "ord"):
        return result
    infinity = _FLOATS[form]
    minus = infinity | (0x80000000 if form == "fp32" else 0x8000)
    left, right = (as_symbolic_vector(each) for each in values)
    known_false, known_true = np.uint64(0), np.uint64(1)
    if relation == "ord":
        finite = [_element_lanes(each, form, formats) | _is_winner(each) for each in (left, right)]
        both = L.nonempty(finite[0] & finite[1])
        return L.blend(both, SymbolicVector(1, np.full((2, 1, 1), known_true, dtype=np.uint64), L.CONST), result)
    for value, other, true_at in ((left, right, minus), (right, left, infinity)):
        for number in (infinity, minus):
            where = L.equals_constant(value, number)
            if where is False:
                continue
            where = where & (_element_lanes(other, form, formats) | _is_winner(other))
            truth = known_true if number == true_at and relation != "eq" else known_false
            answer = SymbolicVector(1, np.full((2, 1, 1), truth, dtype=np.uint64), L.CONST)
            result = L.blend(L.nonempty(where), answer, result)
    return result


def _is_winner(value: SymbolicVector) -> Array:
    operation = value.flags >> L.OPERATION_SHIFT & 255
    among = (operation >= L.ARGMINMAX) & (operation < L.ARGMINMAX + 12) & (operation - L.ARGMINMAX & 2 == 0)
    found: Array = np.asarray((value.flags & np.uint32(L.FORM)) == L.AC_TERMS) & np.asarray(among)
    return found


def _same_value(left: SymbolicVector, right: SymbolicVector) -> Array:
    """Return where two values have the same hash."""
    found: Array = (full_hash(left) == full_hash(right)).all(axis=0) & np.asarray(left.bits == right.bits)
    return found


def _select_winner(
    test: _Comparison,
    order: _Order,
    if_true: SymbolicVector,
    if_false: SymbolicVector,
    formats: Mapping[int, FloatFormat],
) -> tuple[Array, SymbolicVector] | None:
    """Return a select as a winner of `order`, or as its place, with its lanes; None if it is neither.

    In a comparison that is true, the right side is the greater one.
    """
    better, worse = test.operands[::-1] if order.largest else test.operands
    first, second = _as_winner(order, better, formats), _as_winner(order, worse, formats)
    lanes = first.lanes & second.lanes
    if not lanes.any():
        return None
    element_bytes = np.uint64(better.bits // 8)
    ordered = _tie_at_lower_address(test, order, first, second, element_bytes)
    lanes = lanes & ordered
    sums = hashing.sum_of_members(first.hash_sums, second.hash_sums)
    repeated = first.hash_sums == second.hash_sums
    sums = np.where(repeated, first.hash_sums, sums)
    sticky = L.sticky_flags(better, worse, if_true, if_false, *test.operands, *(test.places or ()))
    if if_true.bits == better.bits:
        values = lanes & _same_value(if_true, better) & _same_value(if_false, worse)
        if values.any():
            words = np.stack(np.broadcast_arrays(sums, np.maximum(first.last_address, second.last_address)))
            return values, SymbolicVector(
                if_true.bits, words, L.uniform_flags(np.asarray(order.winner | sticky, dtype=np.uint32))
            )
    if if_true.bits != 32:
        return None
    bases = [_place_base(order, side, place, element_bytes) for side, place in ((first, if_true), (second, if_false))]
    places = lanes & bases[0][0] & bases[1][0] & (bases[0][1] == bases[1][1])
    if not places.any():
        return None
    words = np.stack(np.broadcast_arrays(sums, bases[0][1]))
    return places, SymbolicVector(32, words, L.uniform_flags(np.asarray(order.place | sticky, dtype=np.uint32)))


def _tie_at_lower_address(
    test: _Comparison, order: _Order, first: _Winner, second: _Winner, element_bytes: np.uint64
) -> Array:
    """Return where a tie selects the lower address.  `first` wins where the comparison is true."""
    if test.tie == "true":
        return np.asarray(second.is_single & (first.last_address < second.last_address))
    if test.tie == "false":
        return np.asarray(first.is_single & (second.last_address < first.last_address))
    assert test.places is not None
    one, other = test.places
    (known, base), (also, second_base) = (
        _place_base(order, first, one, element_bytes),
        _place_base(order, second, other, element_bytes),
    )
    result: Array = known & also & (base == second_base)
    return result


def _element_lanes(value: SymbolicVector, form: str, formats: Formats) -> Array:
    """Return which lanes hold a loaded element itself, of a buffer whose elements have this format."""
    plain = np.asarray((value.flags & np.uint32(L.FORM)) == L.LOAD)
    return plain & elements_of(value, form, formats) if plain.any() else plain


def _as_winner(order: _Order, value: SymbolicVector, formats: Mapping[int, FloatFormat]) -> _Winner:
    """Return a value as a winner: a single loaded element, or the winner of a set."""
    form = np.asarray(value.flags & _KIND)
    load = _element_lanes(value, order.form, formats)
    own = form == order.winner
    hashed = hashing.mix(value.words * hashing.multiplier(5) + _ELEMENT + np.uint64(value.bits))
    sums = np.where(own, value.words[0], hashed[0])
    return _Winner(load | own, sums, load, value.words[1])


def _place_base(order: _Order, side: _Winner, place: SymbolicVector, element_bytes: np.uint64) -> tuple[Array, Array]:
    """Return where a value is known to be a winner's place, and the base of the place."""
    form = np.asarray(place.flags & _KIND)
    known = np.asarray(L.constant_mask(place)) & side.is_single & (place.words[0] < np.uint64(1 << 31))
    own = (form == order.place) & ~side.is_single & (place.words[0] == side.hash_sums)
    return known | own, np.where(own, place.words[1], side.last_address - element_bytes * place.words[0])
