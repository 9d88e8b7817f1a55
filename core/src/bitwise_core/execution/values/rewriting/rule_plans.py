"""Plans: the rules of the table, compiled for each operation.

A value holds up to three operations in its flags instead of its hash: a negation, a sum with +0, and a widening from
fp16 ("wrappers").  A rule that moves or drops a wrapper of an operand becomes a change of flags (`Hoist`).  Every other
rule is matched against the operands and replaces the result in the lanes where it matches (`PlannedRule`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, TypeAlias

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats import nan_guards
from bitwise_core.execution.values.sets import argminmax, first_extrema
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.ir.rules import table
from bitwise_core.ir.rules.patterns import Term, subterms
from bitwise_core.ir.rules.rule import InferenceInstance, Instance
from bitwise_core.numerics import FloatFormat, Format, IntegerFormat, Operation, operation

FLAG_OF_FACT = {
    "not_minus_zero": L.NOT_MINUS_ZERO,
    "not_negative": L.NOT_NEGATIVE,
    "holds_fp16": L.HALF_RANGE,
    "quiet": L.QUIET,
}
"""The flag that stands for a fact of a value."""

READ_FLAGS = {
    **FLAG_OF_FACT,
    "not_minus_zero": L.NOT_MINUS_ZERO | L.PLUS_ZERO,
    "quiet": L.QUIET | L.CANONICAL_NAN,
}
"""The flags of which one proves a fact; a mark of NaNs does so with other flags (`term_hash.is_quiet`)."""

FLAGS_OF_CONSTANTS = frozenset(["not_minus_zero", "not_negative"])
"""The facts whose flags constants have as well."""

WIDENING = "convert.fp32.fp16"
WIDENING_BF16 = "convert.fp32.bf16"


@cache
def wrapper_of(term: Term) -> int:
    """Return the flag that holds the operation at the root of a pattern, 0 where the operation is no wrapper."""
    if term.kind != "operation":
        return 0
    if term.word == WIDENING:
        return L.WIDENED
    verb = term.word.split(".")[0]
    if term.word == "not.b1" or (verb == "neg" and term.operation.is_float):
        return L.NEGATED
    if verb == "add" and any(each.kind == "number" and each.number == 0 for each in term.operands):
        return L.PLUS_ZERO if term.operation.is_float and term.operation.rounding in ("rn", "rz") else 0
    return 0


def inner_of(term: Term) -> Term:
    """Return the operand of a wrapper."""
    return next(each for each in term.operands if each.kind != "number")


TestKind: TypeAlias = Literal["constant", "flag", "fact", "guard", "bf16"]


@dataclass(frozen=True, slots=True)
class OriginTest:
    """An operation that must have made an operand, and tests of its own operands, by place.

    `below` are the operations that must have made them, and `numbers` the constants that they must be in some lane.
    `commutes`: the first two may be exchanged.
    """

    name: str
    below: tuple[tuple[int, OriginTest], ...]
    numbers: tuple[tuple[int, int], ...]
    commutes: bool


@dataclass(frozen=True, slots=True)
class Hoist:
    """What becomes of a wrapper of operand `place`: `flag` is removed there.

    The result gets the flag ("move"), loses nothing ("drop"), or is one of the operation `target` ("switch").
    """

    place: int
    flag: int
    action: Literal["move", "drop", "switch"]
    target: Operation | None = None


@dataclass(frozen=True, slots=True)
class PlannedRule:
    """A rule whose left side is matched: the patterns of the operands in the order in which they are matched.

    `tests` are necessary conditions on the operands' flags and `origins` on the operations that made them, which are
    checked before anything else.  `conditions` holds the facts that are required of each variable, and its format.
    `cancelled` are the variables that were found equal in two places and do not occur in the right side.
    """

    instance: Instance
    steps: tuple[tuple[int, Term], ...]
    tests: tuple[tuple[int, TestKind, int], ...]
    origins: tuple[tuple[int, OriginTest], ...]
    conditions: Mapping[str, tuple[tuple[str, Format], ...]]
    cancelled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedInference:
    """A fact of the result, and its flag (0: none), where the operands have the facts that are required of them.

    The operands `finite` must be assumed to be finite.

    `square`: the first two operands are one value.
    """

    fact: str
    flag: int
    given: tuple[tuple[int, str, Format], ...]
    square: bool
    finite: tuple[tuple[int, FloatFormat], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the table says of one operation.

    `redirect` is the rule whose right side always replaces it.  `drops_zero`: a sum with +0 of its first operand is
    dropped.  `squares`: an inference requires that both operands are equal.
    `facts` holds the facts of results that have been derived, by what decides them of the operands.
    """

    hoists: tuple[tuple[Hoist, ...], ...]
    rules: RuleSet
    inferences: tuple[PlannedInference, ...]
    redirect: Instance | None
    bf16_rules: tuple[PlannedRule, ...]
    drops_zero: bool
    squares: bool
    facts: dict[tuple[Hashable, ...], L.Flags] = field(default_factory=dict, compare=False)


Summary: TypeAlias = tuple[int, tuple[str, ...]]
"""What decides whether an operand admits a rule: a summary of its flags, and the operations that made it."""

_MAXIMUM_ADMITTED = 1 << 14
"""How many combinations of summaries a set of rules remembers."""


class RuleSet:
    """Rules, with those that the flags of operands and the operations that made them admit."""

    def __init__(self, rules: tuple[PlannedRule, ...]) -> None:
        self.rules = rules
        self._admitted: dict[tuple[Summary, ...], tuple[PlannedRule, ...]] = {}

    def admitted(self, values: Sequence[SymbolicVector]) -> tuple[PlannedRule, ...]:
        """Return the rules whose tests of flags, and of the operations that made the operands, pass for these."""
        if not self.rules:
            return ()
        key = tuple(
            [
                (
                    _of_all_lanes(each.flags) if isinstance(each.flags, int) else _of_some_lane(each),
                    tuple([origin.name for origin in each.origins]) if each.origins else (),
                )
                for each in values
            ]
        )
        found = self._admitted.get(key)
        if found is None:
            if len(self._admitted) >= _MAXIMUM_ADMITTED:
                self._admitted.clear()
            found = self._admitted[key] = tuple(rule for rule in self.rules if _admits(rule, key))
        return found


_CONSTANT, _GUARDED = 1, 2
"""Bits of a summary of flags, which are no flags that rules test: some lane is a constant, or guarded."""
_TESTED = L.WIDENED | L.NEGATED | L.PLUS_ZERO
for _flags in READ_FLAGS.values():
    _TESTED |= _flags


@cache
def _of_all_lanes(flags: int) -> int:
    """Return the summary of flags that all lanes share; constants may be widened from fp16."""
    found = flags & _TESTED
    if flags & L.KIND == L.CONST:
        found |= _CONSTANT | L.WIDENED
    return found | (_GUARDED if nan_guards.is_guarded(flags) else 0)


def _of_some_lane(value: SymbolicVector) -> int:
    """Return the summary of flags that differ by lane: the flags that some lane has."""
    found = L.flags_of_some_lane(value) & _TESTED
    if L.constant_mask(value) is not False:
        found |= _CONSTANT
    return found | (_GUARDED if nan_guards.guarded_where(value) is not None else 0)


def _admits(rule: PlannedRule, summaries: tuple[Summary, ...]) -> bool:
    if any(test.name not in summaries[place][1] for place, test in rule.origins):
        return False
    for place, kind, wanted in rule.tests:
        found = summaries[place][0]
        if kind == "constant":
            passed = found & _CONSTANT
        elif kind == "flag":
            passed = found & wanted
        elif kind == "fact":
            passed = found & (wanted | _CONSTANT)
        else:
            passed = kind != "guard" or found & _GUARDED
        if not passed:
            return False
    return True


@cache
def _instances_by_root() -> dict[str, list[Instance]]:
    found: dict[str, list[Instance]] = {}
    for rule in table.all_rules():
        if rule.execution != "match":
            continue
        for instance in rule.instances:
            key = instance.left.word if instance.left.kind == "operation" else instance.left.kind
            found.setdefault(key, []).append(instance)
    return found


@cache
def _inferences_by_root() -> dict[str, list[InferenceInstance]]:
    found: dict[str, list[InferenceInstance]] = {}
    for inference in table.all_inferences():
        for instance in inference.instances:
            found.setdefault(instance.term.word, []).append(instance)
    return found


@cache
def plan_of(name: str, finite: bool) -> Plan:
    """Return the plan of an operation, or of "select"; `finite` enables the rules that assume finite values."""
    meaning = operation(name) if name != "select" else None
    hoists: list[Hoist] = []
    rules: list[PlannedRule] = []
    redirect: Instance | None = None
    for instance in _instances_by_root().get(_key(name), ()):
        rule = instance.rule
        if not _applies(instance, finite):
            continue
        if (
            all(each.kind == "variable" for each in instance.left.operands)
            and not rule.conditions
            and not _repeats(instance.left)
        ):
            redirect = redirect or instance
            continue
        hoist = _hoist(instance)
        if hoist is not None:
            hoists.append(hoist)
            continue
        rules.extend(_planned(instance))
    arity = len(meaning.operands) if meaning is not None else 3
    by_place = tuple(
        tuple(
            Hoist(place, each.flag, each.action, each.target)
            for each in hoists
            if place == each.place or (meaning is not None and meaning.commutative and place < 2 and each.place < 2)
        )
        for place in range(arity)
    )
    inferences = tuple(each for each in inferences_of(name, finite) if each.flag)
    of_bf16 = tuple(each for each in rules if any(kind == "bf16" for _, kind, _ in each.tests))
    others = tuple(each for each in rules if each not in of_bf16)
    return Plan(
        by_place,
        RuleSet(others),
        inferences,
        redirect,
        of_bf16,
        any(hoist.flag == L.PLUS_ZERO for hoist in by_place[0]),
        any(each.square for each in inferences),
    )


@cache
def inferences_of(name: str, finite: bool) -> tuple[PlannedInference, ...]:
    """Return the facts of the results of an operation; `finite` enables those that assume finite values."""
    instances = [each for each in _inferences_by_root().get(name, ()) if not each.inference.assumes or finite]
    found = [_planned_inference(each) for each in instances]
    if instances and operation(name).commutative:
        found.extend(swapped for each in found[:] if (swapped := _commuted(each)) is not None)
    return tuple(dict.fromkeys(found))


@cache
def derived_facts() -> frozenset[str]:
    """Return the facts without a flag that follow from the operation that made a value, except that it is no NaN.

    That is shown by a set of numbers.
    """
    found = {each.inference.then for instances in _inferences_by_root().values() for each in instances}
    return frozenset(found - FLAG_OF_FACT.keys() - {"not_nan"})


@cache
def derivations(name: str, finite: bool) -> tuple[PlannedInference, ...]:
    """Return the facts without a flag of an operation's results: the operation is kept beside those that have one."""
    return tuple(each for each in inferences_of(name, finite) if each.fact in derived_facts())


@cache
def rules_on_origins(name: str, finite: bool) -> RuleSet:
    """Return the rules of an operation that are matched by the operation that made an operand."""
    rules = plan_of(name, finite).rules.rules
    return RuleSet(tuple(rule for rule in rules if rule.origins))


@cache
def rules_of_select(bits: int, finite: bool) -> RuleSet:
    """Return the rules of selections between values of this width."""
    rules = plan_of("select", finite).rules.rules
    return RuleSet(tuple(rule for rule in rules if rule.instance.left.bits == bits))


def _key(name: str) -> str:
    """Return the name of an operation in the table: that of an approximation has no modifiers and no architecture."""
    if name == "select":
        return name
    meaning = operation(name)
    kind = next((each for each in ("approx", "full") if each in meaning.modifiers), None)
    return name if kind is None else f"{meaning.verb}.{kind}.{meaning.result.name}"


def _applies(instance: Instance, finite: bool) -> bool:
    """Return whether a rule is applied, with finite values assumed or not."""
    return not _of_guards(instance) if finite else instance.rule.assumes != "finite"


def _of_guards(instance: Instance) -> bool:
    return any(each.word.startswith("guard.") for side in (instance.left, instance.right) for each in subterms(side))


def _repeats(term: Term) -> bool:
    names = [each.word for each in term.operands if each.kind == "variable"]
    return len(names) != len(set(names))


def _hoist(instance: Instance) -> Hoist | None:
    """Return a rule as a change of flags: one operand is a wrapper of a variable, the others are variables."""
    left, right = instance.left, instance.right
    if instance.rule.conditions or left.kind != "operation":
        return None
    wrapped = [place for place, each in enumerate(left.operands) if each.kind != "variable"]
    if len(wrapped) != 1 or _repeats(left):
        return None
    place = wrapped[0]
    flag = wrapper_of(left.operands[place])
    if not flag or flag == L.WIDENED or inner_of(left.operands[place]).kind != "variable":
        return None
    plain = tuple(inner_of(each) if index == place else each for index, each in enumerate(left.operands))
    if right.kind == "operation" and right.operands == plain:
        if right.word == left.word:
            return Hoist(place, flag, "drop")
        return Hoist(place, flag, "switch", right.operation)
    if right.kind == "variable" or wrapper_of(right) != flag:
        return None
    moved = inner_of(right)
    if moved.kind == "operation" and moved.word == left.word and moved.operands == plain:
        return Hoist(place, flag, "move")
    return None


def _planned(instance: Instance) -> Iterable[PlannedRule]:
    """Yield a rule for each order of the operands that it can be matched in."""
    left = instance.left
    orders = [tuple(range(len(left.operands)))]
    commutes = left.kind == "operation" and left.operation.commutative
    if commutes and left.operands[0] != left.operands[1]:
        orders.append((1, 0, *orders[0][2:]))
    conditions: dict[str, tuple[tuple[str, Format], ...]] = {}
    for each in instance.rule.conditions:
        required = (each.fact, instance.formats[each.variable])
        conditions[each.variable] = (*conditions.get(each.variable, ()), required)
    places = Counter(each.word for each in subterms(left) if each.kind == "variable")
    cancelled = tuple(sorted(name for name in left.names - instance.right.names if places[name] > 1))
    for order in orders:
        placed = tuple((order[index], term) for index, term in enumerate(left.operands))
        steps = ordered(placed, frozenset())
        yield PlannedRule(
            instance, steps, _tests(steps, instance), _origin_tests(steps, frozenset()), conditions, cancelled
        )


@cache
def ordered(placed: tuple[tuple[int, Term], ...], bound: frozenset[str]) -> tuple[tuple[int, Term], ...]:
    """Return the operands in the order in which matching them rejects or binds most."""
    rest, result, known = list(placed), [], bound
    while rest:
        best = min(range(len(rest)), key=lambda index: (_rank(rest[index][1], known), index))
        chosen = rest.pop(best)
        result.append(chosen)
        known |= chosen[1].names
    return tuple(result)


def _rank(term: Term, known: frozenset[str]) -> int:
    if term.kind == "number":
        return 0
    if term.kind == "variable":
        return 1 if term.word in known else 5
    if term.names <= known:
        return 6  # verified by building it
    if term.kind == "operation" and term.operation.is_comparison and term.operands[0] == term.operands[1]:
        return 2  # a test for NaN: it binds the number of which another pattern has the magnitude
    if wrapper_of(term) or term.word.startswith("guard.") or term.word == WIDENING_BF16:
        return 3
    if has_origin_pattern(term):
        return 4
    return 7


def has_origin_pattern(term: Term) -> bool:
    """Return whether a pattern of this kind is matched by the operation that made a value."""
    if term.kind == "select" or term.kind == "slice":
        return True
    if term.kind != "operation":
        return False
    meaning = term.operation
    return meaning.is_comparison or meaning.bits == 1 or meaning.verb in ("max", "min", "convert")


def _tests(steps: tuple[tuple[int, Term], ...], instance: Instance) -> tuple[tuple[int, TestKind, int], ...]:
    found: list[tuple[int, TestKind, int]] = []
    bound: frozenset[str] = frozenset()
    for place, term in steps:
        verified = term.kind not in ("number", "variable") and term.names <= bound
        bound |= term.names
        if term.kind == "number":
            found.append((place, "constant", term.number))
        elif term.kind == "variable" and not isinstance(term.format, IntegerFormat):
            found.extend(
                (place, "fact", READ_FLAGS[each.fact])
                for each in instance.rule.conditions
                if each.variable == term.word and each.fact in READ_FLAGS
            )
        elif term.kind == "variable" or (verified and not wrapper_of(term)):
            continue
        elif wrapper_of(term):
            found.append((place, "flag", wrapper_of(term)))
        elif term.word.startswith("guard."):
            found.append((place, "guard", 0))
        elif term.word == WIDENING_BF16:
            found.append((place, "bf16", 0))
    return tuple(found)


def _origin_tests(steps: Iterable[tuple[int, Term]], bound: frozenset[str]) -> tuple[tuple[int, OriginTest], ...]:
    """Return the tests of the patterns that are matched by the operation that made a value, as `_one` matches them."""
    found = []
    for place, term in steps:
        made = term
        while wrapper_of(made) in (L.NEGATED, L.PLUS_ZERO):
            made = inner_of(made)  # the operation that made a value stays beside it without these wrappers
        built = made.names <= bound
        other = wrapper_of(made) or made.word.startswith("guard.") or made.word == WIDENING_BF16
        if made.kind not in ("number", "variable") and not built and not other:
            operands = tuple(enumerate(made.operands))
            below = _origin_tests(ordered(operands, bound), bound)
            numbers = tuple((index, each.number) for index, each in operands if each.kind == "number")
            commutes = made.kind == "operation" and made.operation.commutative
            found.append((place, OriginTest(origin_name(made), below, numbers, commutes)))
        bound |= term.names
    return tuple(found)


def origin_name(term: Term) -> str:
    """Return the name under which the operation of a pattern is kept beside a value."""
    return f"slice.{term.low}.{term.bits}" if term.kind == "slice" else term.word


@cache
def kept_depths(finite: bool) -> dict[str, tuple[int, ...]]:
    """Return which operations the patterns need beside their results, and how deep their operands are kept.

    `finite` enables the rules that assume finite values.
    """
    return {name: tuple(depths) for name, depths in _kept(finite)[0].items()}


@cache
def needed_numbers(finite: bool) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the operations that are kept only where one of these operands is a number, from the patterns."""
    return {name: tuple(sorted(found)) for name, found in _kept(finite)[1].items() if found}


@cache
def _kept(finite: bool) -> tuple[dict[str, list[int]], dict[str, set[tuple[int, int]]]]:
    found: dict[str, list[int]] = {}
    numbers: dict[str, set[tuple[int, int]]] = {}
    for instances in _instances_by_root().values():
        for instance in instances:
            if not _applies(instance, finite):
                continue
            derived = {each.variable for each in instance.rule.conditions if each.fact in derived_facts()}
            matched: list[Term] = []
            _depths(instance.left, frozenset(), found, derived, matched, root=True)
            for term in matched:
                _need(term, numbers)
    for name, depths in (argminmax if finite else first_extrema).KEPT_DEPTHS.items():
        kept = found.setdefault(name, [0] * len(depths))
        found[name] = [max(pair) for pair in zip(kept, depths, strict=True)]
        numbers[name] = set()
    return found, numbers


def _need(term: Term, numbers: dict[str, set[tuple[int, int]]]) -> None:
    """Add the number that a pattern needs among the operands; an empty set says that some pattern needs none."""
    name = origin_name(term)
    moved = term.kind == "operation" and term.operation.commutative
    needed = [
        (place, each.number)
        for place, each in enumerate(term.operands)
        if each.kind == "number" and not (moved and place < 2)
    ]
    if not needed or numbers.get(name) == set():
        numbers[name] = set()
    else:
        numbers.setdefault(name, set()).add(needed[0])


def _depths(
    term: Term,
    bound: frozenset[str],
    found: dict[str, list[int]],
    derived: set[str],
    matched: list[Term],
    *,
    root: bool = False,
) -> int:
    """Return how many operations below a value matching this pattern must be known; collect the depths by name.

    Of the variables in `derived`, the operations that made them must be known.  `matched` collects the patterns that
    are matched by the operations that made values.
    """
    if term.kind in ("number", "variable"):
        return 1 if term.kind == "variable" and term.word in derived else 0
    if not root and term.names <= bound:
        return 0
    known = bound
    below = [0] * len(term.operands)
    for place, operand in ordered(tuple(enumerate(term.operands)), bound):
        below[place] = _depths(operand, known, found, derived, matched)
        known |= operand.names
    if root:
        return 0
    if wrapper_of(term) or term.word.startswith("guard.") or term.word == WIDENING_BF16 or term.kind == "concat":
        return max(below, default=0)
    matched.append(term)
    kept = found.setdefault(origin_name(term), [0] * len(below))
    orders = [below]
    if term.kind == "operation" and term.operation.commutative:
        orders.append([below[1], below[0], *below[2:]])
    for order in orders:
        for place, depth in enumerate(order):
            kept[place] = max(kept[place], depth)
    return 1 + max(below, default=0)


def _planned_inference(instance: InferenceInstance) -> PlannedInference:
    operands = instance.term.operands
    square = _repeats(instance.term)
    given = tuple(
        (next(place for place, each in enumerate(operands) if each.word == condition.variable), condition.fact,
         instance.formats[condition.variable])
        for condition, _ in instance.conditions
    )  # fmt: skip
    numbers = tuple(
        (place, f"number {each.number}", each.format) for place, each in enumerate(operands) if each.kind == "number"
    )
    finite = tuple(
        (place, each.format)
        for place, each in enumerate(operands)
        if each.kind == "variable" and instance.inference.assumes and isinstance(each.format, FloatFormat)
    )
    name = instance.inference.then
    return PlannedInference(name, FLAG_OF_FACT.get(name, 0), given + numbers, square, finite)


def _commuted(inference: PlannedInference) -> PlannedInference | None:
    if inference.square:
        return None
    other = {0: 1, 1: 0}
    swapped = tuple((other.get(place, place), fact, form) for place, fact, form in inference.given)
    finite = tuple((other.get(place, place), form) for place, form in inference.finite)
    return replace(inference, given=swapped, finite=finite)


def _forget() -> None:
    for each in (
        _instances_by_root,
        _inferences_by_root,
        plan_of,
        rules_of_select,
        rules_on_origins,
        kept_depths,
        inferences_of,
        derivations,
        derived_facts,
        needed_numbers,
        _kept,
    ):
        each.cache_clear()


table.call_on_change(_forget)
