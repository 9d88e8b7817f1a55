"""Matching of the rules' patterns against values, lane by lane.

A pattern is matched through the flags of a value (wrappers), through the operations that made it (`Origin`), or by
building the value that it describes, once all its variables are bound, and comparing the hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats import nan_guards, nan_marks
from bitwise_core.execution.values.floats.assumed_finite import assumed_finite
from bitwise_core.execution.values.floats.fp16_numbers import fits_fp16, narrowed
from bitwise_core.execution.values.integers.bounds import maximum_of
from bitwise_core.execution.values.packing import as_symbolic_vector, exact_lanes, high_half
from bitwise_core.execution.values.rewriting.rule_plans import (
    FLAGS_OF_CONSTANTS,
    READ_FLAGS,
    WIDENING_BF16,
    OriginTest,
    PlannedInference,
    PlannedRule,
    derived_facts,
    inferences_of,
    inner_of,
    ordered,
    origin_name,
    wrapper_of,
)
from bitwise_core.execution.values.sets.minmax import is_number_set
from bitwise_core.execution.values.symbolic_vector import Array, Origin, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, is_quiet
from bitwise_core.ir.rules.facts import fact
from bitwise_core.ir.rules.patterns import Term, evaluate
from bitwise_core.numerics import FLOAT_FORMATS, FORMATS, FloatFormat, Format

Lanes: TypeAlias = bool | Array
"""The lanes in which something holds; True for all."""
Bindings: TypeAlias = Mapping[str, Value]
Build: TypeAlias = Callable[[Term, Bindings], Value]


@dataclass(frozen=True, slots=True)
class Matching:
    """How a pattern is built, to be compared with a value, what the rule requires of variables, and the context."""

    build: Build
    conditions: Mapping[str, tuple[tuple[str, Format], ...]]
    context: TermContext


def both(left: Lanes, right: Lanes) -> Lanes:
    """Return the lanes of both, False if there are none."""
    if left is False or right is False:
        return False
    if left is True:
        return right
    if right is True:
        return left
    return L.nonempty(left & right)


def may_match(rule: PlannedRule, values: Sequence[SymbolicVector]) -> bool:
    """Return whether the operands pass the tests of a rule that `RuleSet.admitted` does not decide from their flags."""
    for place, test in rule.origins:
        if not _passes(values[place], test):
            return False
    for place, kind, wanted in rule.tests:
        if kind == "constant":
            numbers = L.constant_numbers(values[place])
            if numbers is not None and wanted not in numbers:
                return False
    return True


def _passes(value: SymbolicVector, test: OriginTest) -> bool:
    """Return whether an operation that made a value passes a test."""
    for origin in value.origins:
        if origin.name != test.name:
            continue
        operands = origin.operands
        if _pass(operands, test) or (test.commutes and _pass((operands[1], operands[0], *operands[2:]), test)):
            return True
    return False


def _pass(operands: Sequence[SymbolicVector], test: OriginTest) -> bool:
    for place, number in test.numbers:
        numbers = L.constant_numbers(operands[place])
        if numbers is not None and number not in numbers:
            return False
    return all(_passes(operands[place], each) for place, each in test.below)


def matches(
    rule: PlannedRule, operands: Sequence[Value], build: Build, context: TermContext
) -> Iterator[tuple[Lanes, Bindings]]:
    """Yield the lanes in which a rule matches, with its variables' values; the lanes of two results may overlap."""
    steps = tuple((term, operands[place]) for place, term in rule.steps)
    for lanes, bindings in _all(steps, True, {}, Matching(build, rule.conditions, context)):
        if rule.instance.rule.assumes == "finite":
            for name, form in rule.instance.formats.items():
                lanes = both(lanes, _finite_lanes(as_symbolic_vector(bindings[name]), form, context))
        if lanes is not False:
            yield lanes, bindings


def _finite_lanes(value: SymbolicVector, form: Format, context: TermContext) -> Lanes:
    """Return the lanes in which a value is a finite number of a format, by assumption or as a constant."""
    if not isinstance(form, FloatFormat):
        return True
    found = assumed_finite(value, form, context.formats)
    if found is True or L.constant_mask(value) is False:
        return found
    return _lanes(np.asarray(found | _constants_with("finite", value, form)))


def _lanes(found: Array) -> Lanes:
    return bool(found) if found.ndim == 0 else True if found.all() else L.nonempty(found)


def _all(
    steps: tuple[tuple[Term, Value], ...], lanes: Lanes, bindings: Bindings, matching: Matching
) -> Iterator[tuple[Lanes, Bindings]]:
    if not steps:
        yield lanes, bindings
        return
    (term, value), rest = steps[0], steps[1:]
    for found, bound in _one(term, value, lanes, bindings, matching):
        yield from _all(rest, found, bound, matching)


def _one(
    term: Term, value: Value, lanes: Lanes, bindings: Bindings, matching: Matching
) -> Iterator[tuple[Lanes, Bindings]]:
    """Match one pattern against one value, within some lanes."""
    if term.kind == "variable":
        known = bindings.get(term.word)
        if known is None:
            for required, form in matching.conditions.get(term.word, ()):
                lanes = both(lanes, fact_lanes(required, as_symbolic_vector(value), form, matching.context))
            if lanes is not False:
                yield lanes, {**bindings, term.word: value}
            return
        found = both(lanes, same_lanes(known, value, term.format))
        if found is not False:
            # Of two equal values, the one whose operation is known admits more rules.
            better = isinstance(known, SymbolicVector) and not known.origins and isinstance(value, SymbolicVector)
            yield found, {**bindings, term.word: value} if better else bindings
        return
    if term.word == WIDENING_BF16:
        for half, where in widened_bf16(value):
            found = both(lanes, where)
            if found is not False:
                half = nan_marks.as_operand(as_symbolic_vector(half), "bf16", matching.context)
                yield from _one(term.operands[0], half, found, bindings, matching)
        return
    vector = as_symbolic_vector(value)
    if term.kind == "number":
        found = both(lanes, L.equals_constant(vector, term.number))
        if found is not False:
            yield found, bindings
        return
    flag = wrapper_of(term)
    if not flag and term.names <= bindings.keys():
        found = both(lanes, same_lanes(matching.build(term, bindings), value, term.format))
        if found is not False:
            yield found, bindings
        return
    if flag:
        found = both(lanes, _wrapped_lanes(vector, flag))
        if found is not False:
            yield from _one(inner_of(term), unwrapped(vector, flag), found, bindings, matching)
        return
    if term.word.startswith("guard."):
        yield from _guarded(term, vector, lanes, bindings, matching)
        return
    for origin in vector.origins:
        if origin.name != origin_name(term):
            continue
        if term.kind == "slice" and origin.operands[0].bits != term.operands[0].format.bits:
            continue  # a slice of another width has the same name
        # Bits with a mark are those of the operation only where they are no NaN.
        exact = not isinstance(term.format, FloatFormat)
        found = both(lanes, _exact_lanes(vector, origin) if exact else both(origin.lanes, _plain_lanes(vector)))
        if term.kind == "slice" and origin.operands[0].bits <= 32:
            # Elements that were loaded together are no parts of one number, but elements of a vector.
            found = both(found, L.nonempty((origin.operands[0].flags & L.FORM) != L.LOAD))
        if found is False:
            continue
        orders = [origin.operands]
        if term.kind == "operation" and term.operation.commutative:
            orders.append((origin.operands[1], origin.operands[0], *origin.operands[2:]))
        for operands in orders:
            placed = ordered(tuple(enumerate(term.operands)), frozenset(bindings))
            yield from _all(tuple((each, operands[place]) for place, each in placed), found, bindings, matching)


def widened_bf16(value: Value) -> Iterator[tuple[Value, Lanes]]:
    """Yield the bf16 of which a value is the widening to fp32, as a number, with its lanes."""
    half = high_half(value)
    if half is not None:
        yield half, True
    elif isinstance(value, SymbolicVector):
        plain = _plain_lanes(value)
        for origin in value.origins:
            lanes = both(origin.lanes, plain)
            if origin.name == WIDENING_BF16 and lanes is not False:
                yield origin.operands[0], lanes


def _exact_lanes(value: SymbolicVector, origin: Origin) -> Lanes:
    """Return the lanes in which a value is the result of its operation bit for bit.

    So is a select of two values that have its own mark, or are numbers, which any mark leaves unchanged.
    """
    found = exact_lanes(value, origin)
    if origin.name != "select" or found is True:
        return found
    marks = np.asarray(value.flags) & np.uint32(L.NAN_MARK)
    same = np.asarray(_plain_lanes(value)) & np.asarray(origin.lanes)
    for each in origin.operands[1:]:
        alike = (np.asarray(each.flags) & np.uint32(L.NAN_MARK)) == marks
        same = same & (alike | nan_marks.takes_any_mark(each))
    return _lanes(np.asarray(np.logical_or(found, same)))


def _guarded(
    term: Term, value: SymbolicVector, lanes: Lanes, bindings: Bindings, matching: Matching
) -> Iterator[tuple[Lanes, Bindings]]:
    where = nan_guards.guarded_where(value)
    found = False if where is None else both(lanes, where)
    if found is False:
        return
    assert where is not None
    inner, guard = nan_guards.parts_of_guarded(value, where)
    steps = ((term.operands[1], guard), (term.operands[0], inner))
    yield from _all(steps, found, bindings, matching)


def _wrapped_lanes(value: SymbolicVector, flag: int) -> Lanes:
    """Return the lanes in which the outermost operation of a value is this wrapper."""
    if flag == L.WIDENED:
        return L.nonempty(fits_fp16(value))
    if flag == L.NEGATED:
        return L.nonempty((value.flags & (L.NEGATED | L.PLUS_ZERO)) == L.NEGATED)
    return L.nonempty(L.has_flag(value, flag))


def unwrapped(value: SymbolicVector, flag: int) -> SymbolicVector:
    """Return the operand of a wrapper, in the lanes where it is the outermost operation."""
    if flag == L.WIDENED:
        return narrowed(value)
    facts = L.NOT_MINUS_ZERO | L.NOT_NEGATIVE if flag == L.NEGATED else 0
    result = SymbolicVector(value.bits, value.words, L.clear_flags(value.flags, flag | facts))
    result.origins, result.cached_hash, result.recorder = value.origins, value.cached_hash, value.recorder
    return result


def _plain_lanes(value: SymbolicVector) -> Lanes:
    """Return the lanes in which a value is a result without wrappers."""
    return L.nonempty((value.flags & L.WRAPPERS) == 0)


def same_lanes(left: Value, right: Value, form: Format) -> Lanes:
    """Return the lanes in which two values are known to be equal: as numbers of a format, or bit for bit."""
    if left is right:
        return True
    if L.width(left) != L.width(right):
        return False
    hash_of = full_hash if isinstance(form, FloatFormat) else exact_hash
    return hashing.same_lanes(hash_of(as_symbolic_vector(left)), hash_of(as_symbolic_vector(right)))


_GREATEST: Mapping[str, Callable[[int], int]] = {
    "below_half": lambda bits: bits - 1,
    "fits_low_half": lambda bits: bits // 2,
}
"""How many bits a value may have for which a fact holds, by the width of its format."""


def fact_lanes(name: str, value: SymbolicVector, form: Format, context: TermContext) -> Lanes:
    """Return the lanes in which a fact is known of a value of a format."""
    found: Lanes = False
    if name in _GREATEST:
        # Known of all lanes or of none: lanes with constants are folded, and a rule for them alone would split a value.
        bound = maximum_of(value)
        return bound is not None and bound < 1 << _GREATEST[name](form.bits)
    flag = READ_FLAGS.get(name)
    if flag is not None:
        # The canonical NaN of another format may be a signalling one of bf16.
        found = is_quiet(value) if name == "quiet" and form.name != "bf16" else L.has_flag(value, flag)
        if found is True or name in FLAGS_OF_CONSTANTS:
            return found if isinstance(found, bool) else L.nonempty(found)
    if name == "not_nan" and isinstance(form, FloatFormat):
        found = is_number_set(value)
        for origin in value.origins:
            if origin.name == WIDENING_BF16:  # `widened_not_nan` of the inferences
                inner = fact_lanes(name, origin.operands[0], FLOAT_FORMATS["bf16"], context)
                found = np.logical_or(found, np.logical_and(inner, origin.lanes))
        if context.finite:
            found = np.logical_or(found, assumed_finite(value, form, context.formats))
    found = found | _constants_with(name, value, form)
    if name in derived_facts() and found is not True and value.origins:
        found = np.logical_or(found, _derived_lanes(name, value, context))
    lanes = np.asarray(found)
    return bool(lanes) if lanes.ndim == 0 else L.nonempty(lanes)


def _derived_lanes(name: str, value: SymbolicVector, context: TermContext) -> Lanes:
    """Return the lanes in which a fact without a flag follows from the operations that made a value."""
    found: Lanes = False
    for origin in value.origins:
        for inference in inferences_of(origin.name, context.finite):
            if inference.fact == name:
                lanes = both(
                    _plain_lanes(value), both(origin.lanes, inference_lanes(inference, origin.operands, context))
                )
                found = lanes if lanes is True else np.logical_or(found, lanes)
    return found


Known: TypeAlias = dict[tuple[str, str, int], Lanes]
"""The lanes in which facts are known of operands, by fact, format and the operand's identity."""


def inference_lanes(
    inference: PlannedInference, values: Sequence[SymbolicVector], context: TermContext, known: Known | None = None
) -> Lanes:
    """Return the lanes in which operands have the facts that an inference requires.

    `known` keeps what is found of these operands for other inferences.
    """
    lanes: Lanes = True
    for place, name, form in inference.given:
        value = values[place]
        if name.startswith("number "):
            lanes = both(lanes, L.equals_constant(value, int(name[7:])))
        elif known is None:
            lanes = both(lanes, fact_lanes(name, value, form, context))
        else:
            key = name, form.name, id(value)
            found = known.get(key)
            if found is None:
                found = known[key] = fact_lanes(name, value, form, context)
            lanes = both(lanes, found)
        if lanes is False:
            return False
    for place, number_format in inference.finite:
        lanes = both(lanes, assumed_finite(values[place], number_format, context.formats))
    return both(lanes, same_operands(values)) if inference.square else lanes


def same_operands(values: Sequence[SymbolicVector]) -> bool:
    """Return whether the first two operands are the same number in every lane."""
    left, right = values[0], values[1]
    if left is right:
        return True
    if left.words is not right.words and (
        left.words.flat[0] != right.words.flat[0] or not np.array_equal(left.words, right.words)
    ):
        return False
    return np.array_equal(np.bitwise_and(left.flags, L.VALUE), np.bitwise_and(right.flags, L.VALUE))


def _constants_with(name: str, value: SymbolicVector, form: Format) -> Lanes:
    """Return which lanes hold a constant with a fact."""
    known, numbers = L.constant_mask(value), L.constant_numbers(value)
    if numbers is not None:
        return known if any(_number_has(name, number, form.name) for number in numbers) else False
    found: Array = evaluate(fact(name, form), {"x": value.words[0].astype(L.UNSIGNED[form.bits])})
    return known & found


@lru_cache(maxsize=1 << 14)
def _number_has(name: str, number: int, form: str) -> bool:
    patterns = np.full(1, number, dtype=np.uint64).astype(L.UNSIGNED[FORMATS[form].bits])
    return bool(evaluate(fact(name, FORMATS[form]), {"x": patterns})[0])
