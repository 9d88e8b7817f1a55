"""The place of the first extreme number: an arg-max or arg-min whose order is total.

A pair of a number and its place is better than another one if its number is the greater one (of an arg-min: the
lesser), if only its number is NaN, or if the numbers are equal or both NaN and its place is lower.  This is a total
order on numbers without the signs of zeros, and on places.  So the place that a tree of such selections returns depends
on the set of pairs alone.  Where no number of two sets is NaN, the tests for NaN may be missing, and where one of them
has all the lower places, the selection is a single comparison.

A set is the sum of the hashes of its pairs.  `FirstExtrema` holds the sets of values and places that were selected, by
their hashes: memory keeps nothing else.  The selected number remains the term of a select, because two pairs of one
place may have zeros of different signs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, full_hash
from bitwise_core.numerics import FLOAT_FORMATS, operation

_FORMS = ("fp64", "fp32", "fp16", "bf16")
_FAR = np.int64(1 << 62)
_PLACE = hashing.constant("the place of the first of a set")
_PAIRS = {
    (form, largest): hashing.constant(f"a pair in an arg-{'max' if largest else 'min'} of {form}")
    for form in _FORMS
    for largest in (True, False)
}
_DEPTH = 3
_KEPT_SELECTS = 16

KEPT_DEPTHS = {
    "and.b1": (2, 2),
    **{f"{relation}.{form}": (0, 0) for relation in ("lt", "le", "eq") for form in _FORMS},
}
"""The operations on predicates that are kept beside their results, and how deep."""

Pair: TypeAlias = tuple[SymbolicVector, SymbolicVector]
Apply: TypeAlias = Callable[[str, Sequence[Value]], Value]
"""The domain's operation of a name on values."""
Select: TypeAlias = Callable[[SymbolicVector, SymbolicVector, SymbolicVector], Value]


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets by lane: the sums of their pairs' hashes, and their lowest and highest place.

    Where not all places of a set are constants, these are -2^62 and 2^62.  `numbers`: no value of the set is NaN.
    """

    words: hashing.Words
    lowest: Array
    highest: Array
    numbers: Array

    def where(self, lanes: Array, other: _Sets) -> _Sets:
        """Return the other sets in some lanes, these elsewhere."""
        return _Sets(
            np.where(lanes, other.words, self.words),
            np.where(lanes, other.lowest, self.lowest),
            np.where(lanes, other.highest, self.highest),
            np.where(lanes, other.numbers, self.numbers),
        )


class FirstExtrema:
    """The sets of pairs whose first extremum a value and a place are, by the hash of both."""

    def __init__(self) -> None:
        self._sets = HashTable()
        self._selected = deque[tuple[hashing.Words, SymbolicVector, SymbolicVector, SymbolicVector]](
            maxlen=_KEPT_SELECTS
        )
        self._selecting: list[tuple[hashing.Words, ...]] = []
        self._condition: hashing.Words | None = None
        self._made: dict[tuple[str, tuple[int, ...]], tuple[Value, Sequence[Value]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded."""
        return self._sets.is_empty

    def note(
        self, form: str, value: SymbolicVector, place: SymbolicVector, largest: bool, sets: _Sets, lanes: Array
    ) -> None:
        """Record the sets of a selected value and place in some lanes."""
        keys = _pair_hash(form, value, place, largest)
        shape = np.broadcast_shapes(keys.shape[1:], sets.words.shape[1:], sets.lowest.shape, lanes.shape)
        chosen = np.broadcast_to(lanes, shape)
        words = [np.broadcast_to(each, (2, *shape))[:, chosen] for each in (keys, sets.words)]
        rest = [np.broadcast_to(each, shape)[chosen] for each in (sets.lowest, sets.highest, sets.numbers)]
        self._sets.add(*words, *rest)

    def sets_of(self, form: str, value: SymbolicVector, place: SymbolicVector, largest: bool, apply: Apply) -> _Sets:
        """Return the sets of a value and a place: those that were recorded, else the pair itself."""
        keys = _pair_hash(form, value, place, largest)
        known = np.asarray(L.constant_mask(place))
        signed = np.int32 if place.bits == 32 else np.int64
        number = place.words[0].astype(L.UNSIGNED[place.bits]).view(signed).astype(np.int64)
        lowest, highest = (np.broadcast_to(np.where(known, number, each), keys.shape[1:]) for each in (-_FAR, _FAR))
        own = _Sets(keys, lowest, highest, _numbers(form, value, apply))
        found = self._sets.find(keys)
        return own if found is None else own.where(found[0], _Sets(*found[1]))

    def note_select(
        self, condition: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector, result: SymbolicVector
    ) -> None:
        """Keep the result of a select by a condition that is no negation, for the select of the place beside it."""
        if condition.origins:
            self._selected.append((condition.words, if_true, if_false, result))

    def as_selected(
        self, value: SymbolicVector, condition: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector
    ) -> SymbolicVector:
        """Return a select of values as the first of the last selects, in the lanes in which that had the same operands.

        They may differ in form: the values have lost the operations that made them, which rules read.  A result that
        lacks a mark of `value`, such as that of a race, does not take its place.
        """
        for words, one, other, result in reversed(self._selected):
            if one.bits != if_true.bits:
                continue
            lanes: Array = (words == condition.words).all(axis=0)
            lanes = lanes & (full_hash(one) == full_hash(if_true)).all(axis=0)
            lanes = lanes & (full_hash(other) == full_hash(if_false)).all(axis=0)
            lanes = lanes & (np.asarray(value.flags & np.uint32(L.INHERITED) & ~np.asarray(result.flags)) == 0)
            if lanes.any():
                value = L.blend(L.nonempty(lanes), result, value)
        return value

    def selected_numbers(
        self, condition: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector, select: Select
    ) -> SymbolicVector | None:
        """Return the select of the numbers that a condition compares, or None inside of the select of the same ones.

        A condition may compare two pairs of numbers.  Each pair is then read as the places of the other one.
        """
        asked = tuple(map(exact_hash, (condition, if_true, if_false)))
        if any(all(map(np.array_equal, asked, each)) for each in self._selecting):
            return None
        self._selecting.append(asked)
        try:
            value = as_symbolic_vector(select(condition, if_true, if_false))
        finally:
            self._selecting.pop()
        return self.as_selected(value, condition, if_true, if_false)

    def remembering(self, condition: SymbolicVector, apply: Apply) -> Apply:
        """Return `apply` with its results kept for as long as selects have the same condition.

        The candidates of one select, and those of the selects of a number and of its place, consist of the same
        predicates.
        """
        if condition.words is not self._condition:
            self._condition, self._made = condition.words, {}
        made = self._made

        def remembered(name: str, operands: Sequence[Value]) -> Value:
            commutes = operation(name).commutative
            key = (name, tuple(sorted(map(id, operands)) if commutes else map(id, operands)))
            found = made.get(key)
            if found is None:
                # The operands live as long as their numbers are used.
                found = made[key] = (apply(name, operands), operands)
            return found[0]

        return remembered


def _numbers(form: str, value: SymbolicVector, apply: Apply) -> Array:
    """Return where a value is known not to be NaN."""
    ordered = as_symbolic_vector(apply(f"ord.{form}", (value, value)))
    found: Array = np.asarray(L.constant_mask(ordered)) & (ordered.words[0] != 0)
    return found


def _are_numbers(form: str, values: Sequence[SymbolicVector], lanes: Array, apply: Apply) -> bool:
    """Return whether all values are known not to be NaN in one of these lanes, those that are no constants first."""
    for value in sorted(values, key=lambda each: L.constant_mask(each) is True):
        lanes = lanes & _numbers(form, value, apply)
        if not L.some(lanes):
            return False
    return True


def _pair_hash(form: str, value: SymbolicVector, place: SymbolicVector, largest: bool) -> hashing.Words:
    total = full_hash(value) * hashing.multiplier(6) + exact_hash(place) * hashing.multiplier(7)
    return hashing.mix(total + _PAIRS[form, largest])


def chosen_place(
    firsts: FirstExtrema,
    condition: SymbolicVector,
    if_true: SymbolicVector,
    if_false: SymbolicVector,
    apply: Apply,
    select: Select,
) -> tuple[Array, SymbolicVector] | None:
    """Return a select between two places as the place of the first of a set, with its lanes; None if there are none.

    `condition` is no negation.  A disjunction is the negation of a conjunction, so it is the second place that is
    selected where the predicate of the better pair holds.
    """
    conjunction = any(origin.name == "and.b1" for origin in condition.origins)
    if if_true.bits not in (32, 64) or not (conjunction or _selects_places(condition, if_true, if_false)):
        return None
    better, other = if_false, if_true
    # Of a single comparison, the places must be ordered, and the numbers not be NaN: by the set, or by the pair.
    of_pairs = not conjunction and firsts.is_empty
    known = np.asarray(L.constant_mask(better)) & L.constant_mask(other) & ~np.asarray(L.constant_mask(condition))
    if of_pairs and not known.any():
        return None
    negation = exact_hash(condition)
    done: Array = np.zeros((1, 1), dtype=bool)
    chosen = result = if_true
    readings: list[tuple[str, SymbolicVector, bool, _Sets, Array]] = []
    apply = firsts.remembering(condition, apply)
    places = [exact_hash(each) for each in (better, other)]
    unknown = ~np.asarray(L.constant_mask(condition))
    candidates = unknown & ~(_is_extremum_of_numbers(better) | _is_extremum_of_numbers(other))
    if not L.some(candidates):
        return None
    compared = list(_known_comparisons(condition, _DEPTH, np.ones((1, 1), dtype=bool))) if conjunction else []
    made = _operations_of(condition, candidates) if conjunction else None
    for form, first, second, largest in _candidates(condition):
        if of_pairs and not _are_numbers(form, (first, second), known, apply):
            continue
        numbers = [exact_hash(each) for each in (first, second)]
        # Where the numbers themselves are selected, nothing is their place.
        selected = candidates & ~_are_of(places, numbers)
        if not L.some(selected) or not _may_order(compared, first, second, selected):
            continue
        one, two = (first, better), (second, other)
        sets = [firsts.sets_of(form, *each, largest, apply) for each in (one, two)]
        sticky = L.sticky_flags(condition, first, second, better, other)
        rest = np.asarray((sticky & L.STICKY) == 0) & selected
        numbers_alone = (sets[0].numbers & sets[1].numbers).any()
        if not numbers_alone:
            rest = rest & ~done
        lanes: Array = np.zeros((1, 1), dtype=bool)
        tested: list[hashing.Words] = []
        ordered = made is not None and _may_be_an_order(made, form, (first, second), (better, other), sets, rest, apply)
        for lower in _lower_places(better, other, sets, apply) if ordered else ():
            hashes = exact_hash(as_symbolic_vector(lower))
            if any(np.array_equal(hashes, each) for each in tested):
                continue  # the same predicate in another way
            tested.append(hashes)
            for opposite in _is_not_better(form, largest, first, second, sets, lower, apply):
                vector = as_symbolic_vector(opposite)
                same = (exact_hash(vector) == negation).all(axis=0) & ~np.asarray(L.constant_mask(vector))
                lanes = lanes | (same & rest)
                if (lanes == rest).all():
                    break
            if (lanes == rest).all():
                break
        lanes = lanes | (_is_single_comparison(form, largest, first, second, sets, apply, negation) & rest)
        lanes = lanes | (_is_tie_with_worst(form, largest, one, two, sets, apply, negation) & rest)
        if not lanes.any():
            continue
        value = firsts.selected_numbers(condition, second, first, select)
        if value is None:
            continue
        union, place = _first(form, largest, one, two, sets)
        readings.append((form, value, largest, union, lanes))
        fresh = lanes & ~done
        chosen = L.blend(fresh, place, chosen)
        result = L.blend(fresh, L.with_flags(place, sticky), result)
        done = done | lanes
        # Of numbers, the same comparison selects the place of the least one, and that of the greatest one with the
        # places exchanged.
        if done.all() and not numbers_alone:
            break
    for form, value, largest, union, lanes in readings:
        firsts.note(form, value, chosen, largest, union, lanes)
    return (done, result) if done.any() else None


def _is_extremum_of_numbers(value: SymbolicVector) -> Array:
    """Return in which lanes a value is a maximum or minimum of floating-point numbers, so that it is no place."""
    flags = np.asarray(value.flags)
    found: Array = ((flags & L.KIND) == L.AC_TERMS) & ((flags >> L.OPERATION_SHIFT & 255) <= L.FLOAT_AC_TERMS)
    return np.atleast_2d(found)


def _are_of(values: Sequence[hashing.Words], others: Sequence[hashing.Words]) -> Array:
    """Return in which lanes all of some values, given by their hashes, are among others."""
    found: Array = np.ones((1, 1), dtype=bool)
    for each in values:
        found = found & _any_of((each == other).all(axis=0) for other in others)
    return found


@dataclass(frozen=True, slots=True)
class _Operations:
    """Of which operations a conjunction consists, by lane: the numbers of tests of numbers for less and for equality,
    other tests of numbers, tests of something else, and operations that are not known.
    """

    less: Array
    equalities: Array
    others: Array
    of_integers: Array
    unknown: Array


def _operations_of(condition: SymbolicVector, lanes: Array) -> _Operations:
    """Return the operations of which a conjunction consists in some lanes."""
    shape = np.broadcast_shapes(condition.words.shape[1:], lanes.shape)
    counts, masks = ([np.zeros(shape, dtype=kind) for _ in range(n)] for kind, n in ((np.int8, 2), (np.bool_, 3)))
    found = _Operations(*counts, *masks)
    for name, here in _operations(condition, _DEPTH, np.atleast_2d(lanes)):
        verb, _, form = name.partition(".")
        if name == "and.b1":
            found.unknown[...] |= here
        elif form not in _FORMS:
            found.of_integers[...] |= here
        elif verb == "eq":
            found.equalities[...] += here
        elif verb == "lt":
            found.less[...] += here
        else:
            found.others[...] |= here
    return found


def _may_be_an_order(
    made: _Operations, form: str, numbers: Pair, places: Pair, sets: list[_Sets], lanes: Array, apply: Apply
) -> bool:
    """Return whether a conjunction of these operations may be that of `_is_not_better` in a lane.

    That tests once whether a number is less than the other one.  It tests which of the numbers is NaN, unless the first
    one is known to be none.  It tests which place is lower, unless that is known.  It tests whether the numbers are
    equal, unless the first one is known to be no NaN, where other tests may say so, or the first place is known not to
    be lower.  So there is nothing to build where a conjunction does not test these.
    """
    possible = lanes & (made.unknown | (made.equalities > 1) | made.others | sets[0].numbers)
    if not L.some(possible):
        return False
    lower, known = _decided(sets)
    if not (made.of_integers | made.unknown | known).all():
        compared = as_symbolic_vector(apply(f"lt.s{places[0].bits}", places))
        constant = np.asarray(L.constant_mask(compared)) & ~known
        lower, known = np.where(constant, compared.words[0] != 0, lower), known | constant
        possible = possible & (made.of_integers | made.unknown | known)
        if not L.some(possible):
            return False
    without_equality = made.unknown | (made.equalities > 0) | sets[0].numbers | (known & ~lower)
    if L.some(possible & without_equality & (made.less < 2)):
        return True
    # A test for equality may have another form, such as with an infinity.
    equality = as_symbolic_vector(apply(f"eq.{form}", numbers))
    plain = _any_of(np.atleast_2d(each.lanes) for each in equality.origins if each.name == f"eq.{form}")
    return L.some(possible & ~plain)


def _operations(predicate: SymbolicVector, depth: int, lanes: Array) -> Iterator[tuple[str, Array]]:
    """Yield the names of the operations of which a conjunction consists in these lanes, each with its lanes.

    Conjunctions are kept near the top; one that is deeper may have no name.  Another operation without a name is none
    of those that are kept, which tests of numbers are.
    """
    made = [(each, np.atleast_2d(each.lanes)) for each in _operations_that_made(predicate)]
    rest = lanes & ~_any_of(own for _, own in made)
    if rest.any():
        yield "" if depth > 1 else "and.b1", rest
    for each, own in made:
        here = lanes & own
        if not here.any():
            continue
        if each.name != "and.b1" or not depth:
            yield each.name, here
            continue
        for operand in each.operands:
            yield from _operations(operand, depth - 1, here)


def _lower_places(one: SymbolicVector, other: SymbolicVector, sets: list[_Sets], apply: Apply) -> Iterator[Value]:
    """Yield the predicates that the first place is lower: the comparison, and what the sets decide of it."""
    compared = apply(f"lt.s{one.bits}", (one, other))
    yield compared
    lower, decided = _decided(sets)
    if decided.any():
        yield blend_values(decided, lower, compared)
    not_negative = np.logical_and(*(
        (each.lowest >= 0) | (place.maximum is not None and place.maximum < 1 << one.bits - 1)
        for each, place in zip(sets, (one, other), strict=True)
    ))  # fmt: skip
    if not_negative.any():
        yield blend_values(not_negative, apply(f"lt.u{one.bits}", (one, other)), compared)


def _decided(sets: list[_Sets]) -> tuple[Array, Array]:
    """Return where all places of the first set are lower than those of the second one, and where that is known."""
    lower, not_lower = sets[0].highest < sets[1].lowest, sets[0].lowest >= sets[1].highest
    return lower, (lower | not_lower) & (sets[0].highest != _FAR) & (sets[1].highest != _FAR)


def _is_single_comparison(
    form: str,
    largest: bool,
    one: SymbolicVector,
    other: SymbolicVector,
    sets: list[_Sets],
    apply: Apply,
    condition: hashing.Words,
) -> Array:
    """Return where a condition, given by its hash, is that the first pair is not the better one of two numbers."""
    lower, decided = _decided(sets)
    decided = decided & sets[0].numbers & sets[1].numbers
    found: Array = np.zeros((1, 1), dtype=bool)
    if not decided.any():
        return found
    ordered = (one, other) if largest else (other, one)
    for relation, lanes in (("lt", decided & lower), ("le", decided & ~lower)):
        compared = as_symbolic_vector(apply(f"{relation}.{form}", ordered))
        same = (exact_hash(compared) == condition).all(axis=0) & ~np.asarray(L.constant_mask(compared))
        found = found | (same & lanes)
    return found


def _worst(form: str, largest: bool) -> int:
    """Return the bit pattern of the infinity that is no better than any number."""
    described = FLOAT_FORMATS[form]
    infinity = ((1 << described.exponent_bits) - 1) << described.mantissa_bits
    return infinity | (1 << described.bits - 1 if largest else 0)


def _is_infinity(form: str, value: SymbolicVector) -> bool:
    """Return whether a value is a known infinity in a lane."""
    return any(L.equals_constant(value, _worst(form, largest)) is not False for largest in (True, False))


def _is_tie_with_worst(
    form: str,
    largest: bool,
    one: Pair,
    other: Pair,
    sets: list[_Sets],
    apply: Apply,
    condition: hashing.Words,
) -> Array:
    """Return where a condition, given by its hash, is that the second pair is the better one, its number the worst.

    It is where the numbers are equal and its place is lower.
    """
    found: Array = np.zeros((1, 1), dtype=bool)
    worst = L.equals_constant(other[0], _worst(form, largest))
    if worst is False:
        return found
    equal = apply(f"eq.{form}", (one[0], other[0]))
    for lower in _lower_places(other[1], one[1], sets[::-1], apply):
        tie = as_symbolic_vector(apply("and.b1", (equal, lower)))
        found = found | ((exact_hash(tie) == condition).all(axis=0) & ~np.asarray(L.constant_mask(tie)) & worst)
    return found


def _selects_places(condition: SymbolicVector, if_true: SymbolicVector, if_false: SymbolicVector) -> bool:
    """Return whether a select by one comparison of numbers is between integers."""
    if not any(name.partition(".")[2] in _FORMS for name in (origin.name for origin in condition.origins)):
        return False
    return all(L.has_flag(each, L.INTEGER) is not False or L.constant_mask(each) is not False
               for each in (if_true, if_false))  # fmt: skip


def _candidates(condition: SymbolicVector) -> Iterator[tuple[str, SymbolicVector, SymbolicVector, bool]]:
    """Yield the format of a comparison, the better and the other number, and whether the greater one wins."""
    seen: list[tuple[hashing.Words, hashing.Words]] = []
    single = any(origin.name.partition(".")[2] in _FORMS for origin in condition.origins)
    for relation, form, left, right in _compared(condition, _DEPTH):
        pair = (full_hash(left), full_hash(right))
        orders = (pair, pair[::-1]) if relation == "eq" else (pair,)
        if any(all(map(np.array_equal, each, order)) for each in seen for order in orders):
            continue
        seen.append(pair)
        yield form, right, left, True
        yield form, left, right, False
        if relation != "lt" or single or _is_infinity(form, left) or _is_infinity(form, right):
            yield form, left, right, True
            yield form, right, left, False


def _compared(predicate: SymbolicVector, depth: int) -> Iterator[tuple[str, str, SymbolicVector, SymbolicVector]]:
    """Yield the comparisons of numbers in a predicate, those of their order first."""
    found = list(_comparisons(predicate, depth))
    yield from (each for each in found if each[0] == "lt")
    yield from (each for each in found if each[0] != "lt")


def _comparisons(predicate: SymbolicVector, depth: int) -> Iterator[tuple[str, str, SymbolicVector, SymbolicVector]]:
    for name, operands in _by_lane(predicate.origins):
        relation, _, form = name.partition(".")
        if relation in ("lt", "le", "eq") and form in _FORMS:
            yield relation, form, operands[0], operands[1]
        elif name == "and.b1" and depth:
            for operand in operands:
                yield from _comparisons(operand, depth - 1)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison of numbers in a conjunction, known in some lanes: of one of these pairs, given by their hashes.

    Each pair has lanes of its own.
    """

    pairs: list[tuple[hashing.Words, hashing.Words, Array]]
    lanes: Array

    def may_be_of(self, one: hashing.Words, other: hashing.Words) -> Array:
        """Return in which lanes it may compare two numbers, in either order, or test one number for NaN."""
        found = ~self.lanes
        for left, right, lanes in self.pairs:
            for first, second in ((left, right), (right, left)):
                found = found | ((first == one).all(axis=0) & (second == other).all(axis=0) & lanes)
            found = found | ((left == right).all(axis=0) & lanes)
        return found


def _known_comparisons(predicate: SymbolicVector, depth: int, lanes: Array) -> Iterator[_Comparison]:
    """Yield the comparisons that a predicate certainly consists of in some of these lanes.

    Nothing is known where several operations made it, of which one is no comparison.
    """
    made = [(each, np.atleast_2d(each.lanes)) for each in _operations_that_made(predicate)]
    compared = [(each, own) for each, own in made if each.name.partition(".")[2] in _FORMS]
    others = [(each, own) for each, own in made if each.name.partition(".")[2] not in _FORMS]
    here = lanes & _any_of(own for _, own in compared) & ~_any_of(own for _, own in others)
    if here.any():
        operands = [(each.operands, own) for each, own in compared]
        yield _Comparison([(full_hash(left), full_hash(right), own) for (left, right), own in operands], here)
    for each, own in others if depth else ():
        inside = lanes & own & ~_any_of(rest for other, rest in made if other is not each)
        if each.name == "and.b1" and inside.any():
            for operand in each.operands:
                yield from _known_comparisons(operand, depth - 1, inside)


def _operations_that_made(predicate: SymbolicVector) -> list[L.Origin]:
    """Return the origins of a predicate that are operations, not facts about its operands."""
    return [each for each in predicate.origins if "." in each.name]


def _any_of(masks: Iterable[Array]) -> Array:
    found: Array = np.zeros((1, 1), dtype=bool)
    for mask in masks:
        found = found | mask
    return found


def _may_order(compared: Sequence[_Comparison], first: SymbolicVector, second: SymbolicVector, lanes: Array) -> bool:
    """Return whether all comparisons may be of these two numbers in one of these lanes."""
    one, other = full_hash(first), full_hash(second)
    for each in compared:
        lanes = lanes & each.may_be_of(one, other)
        if not L.some(lanes):
            return False
    return True


def _by_lane(origins: Sequence[L.Origin]) -> Iterator[tuple[str, tuple[SymbolicVector, ...]]]:
    """Yield operations with their operands; one operation of different lanes has the operands of each lane."""
    joined: dict[str, tuple[tuple[SymbolicVector, ...], Array]] = {}
    for origin in origins:
        name, operands, lanes = origin.name, origin.operands, origin.lanes
        if lanes is True:
            yield name, operands
            continue
        earlier = joined.get(name)
        if earlier is not None and L.some(earlier[1] & lanes):
            yield name, operands
            continue
        if earlier is not None:
            operands = tuple(L.blend(lanes, new, old) for new, old in zip(operands, earlier[0], strict=True))
        joined[name] = (operands, lanes if earlier is None else earlier[1] | lanes)
    for name, (operands, _) in joined.items():
        yield name, operands


def _is_not_better(
    form: str,
    largest: bool,
    one: SymbolicVector,
    other: SymbolicVector,
    sets: list[_Sets],
    lower: Value,
    apply: Apply,
) -> Iterator[Value]:
    """Yield the predicate that the first number is not better than the second one, nor level with it and `lower`.

    It is a conjunction of three predicates, in two of the ways in which these are joined in pairs.
    """

    def negated(predicate: Value) -> Value:
        return apply("not.b1", (predicate,))

    def both(first: Value, second: Value) -> Value:
        for each, beside in ((first, second), (second, first)):
            known = _known_everywhere(each)
            if known is True:
                return beside
            if known is False and not L.any_flag(L.sticky_flags(as_symbolic_vector(beside))):
                return each
        return apply("and.b1", (first, second))

    ahead = apply(f"lt.{form}", (other, one) if largest else (one, other))
    one_is_number, other_is_number = (
        _is_number(form, value, each, apply) for each, value in zip(sets, (one, other), strict=True)
    )
    one_is_nan = negated(one_is_number)
    only_nan, both_nan = both(one_is_nan, other_is_number), both(one_is_nan, negated(other_is_number))
    not_level = both(negated(apply(f"eq.{form}", (one, other))), negated(both_nan))
    not_ahead, not_nan, not_lower = negated(ahead), negated(only_nan), negated(both(negated(not_level), lower))
    yield both(both(not_ahead, not_nan), not_lower)
    yield both(both(not_nan, not_lower), not_ahead)


def _known_everywhere(predicate: Value) -> bool | None:
    """Return the truth of a predicate that is one constant in all lanes, else None."""
    vector = as_symbolic_vector(predicate)
    if L.constant_mask(vector) is not True:
        return None
    found = vector.words[0] != 0
    return True if L.every(found) else None if L.some(found) else False


def _is_number(form: str, value: SymbolicVector, of: _Sets, apply: Apply) -> Value:
    """Return the predicate that a value is a number, which its set may hold."""
    ordered = apply(f"ord.{form}", (value, value))
    # A predicate that is not changed keeps its identity, by which the operations on it are remembered.
    return blend_values(of.numbers, of.numbers, ordered) if of.numbers.any() else ordered


def _first(form: str, largest: bool, one: Pair, other: Pair, sets: list[_Sets]) -> tuple[_Sets, SymbolicVector]:
    """Return the union of the sets of two pairs, and the place of its first extremum.

    A pair of the infinity that is the least number, or the greatest one of an arg-min, is dropped where the other set
    has a lower place: another pair is better, or it has the same number and that place.
    """
    words = hashing.sum_of_members(sets[0].words, sets[1].words)
    words = np.where((sets[0].words == sets[1].words).all(axis=0), sets[0].words, words)
    unknown = (sets[0].highest == _FAR) | (sets[1].highest == _FAR)
    union = _Sets(
        words,
        np.where(unknown, -_FAR, np.minimum(sets[0].lowest, sets[1].lowest)),
        np.where(unknown, _FAR, np.maximum(sets[0].highest, sets[1].highest)),
        sets[0].numbers & sets[1].numbers,
    )
    place = SymbolicVector(one[1].bits, hashing.mix(words * hashing.multiplier(8) + _PLACE), L.TERM | L.INTEGER)
    worst = _worst(form, largest)
    for mine, (value, at), theirs, (_, kept) in ((0, one, 1, other), (1, other, 0, one)):
        last = L.equals_constant(value, worst)
        if last is False:
            continue
        known = np.asarray(L.constant_mask(at)) & (sets[theirs].highest != _FAR)
        drops = last & known & (sets[theirs].lowest < sets[mine].lowest)
        union = union.where(drops, sets[theirs])
        place = L.blend(L.nonempty(drops), kept, place)
    return union, place
