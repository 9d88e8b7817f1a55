"""The obligation of an instance: predicates that no values of its variables may satisfy together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs import floats
from bitwise_bench.proofs.bitvectors import Array, Bits
from bitwise_bench.proofs.encoding import encode
from bitwise_core.ir.rules.facts import FACTS, fact
from bitwise_core.ir.rules.patterns import Term, evaluate, parse, subterms
from bitwise_core.ir.rules.rule import Condition, InferenceInstance, Instance
from bitwise_core.numerics import FORMATS, FloatFormat, Format, nan_of, storage


@dataclass(frozen=True)
class Obligation:
    """Sides that are equal where all conditions hold.

    `left` and `right` are compared bit for bit, or, where `number` is a format, as patterns of it of which all NaNs
    are equal.  `conditions` are the required facts, each with its predicate over the variables; `finite` are
    terms that are finite numbers.  `defined` are operations of an architecture that have
    a definition.  A refutation is a set of values that satisfies the conditions and not the equality.
    """

    name: str
    left: Term
    right: Term
    number: FloatFormat | None
    formats: Mapping[str, Format]
    conditions: tuple[tuple[Condition, Term], ...]
    finite: tuple[Term, ...]
    defined: frozenset[str] = frozenset()

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The conditions as pairs of a variable and a fact."""
        return tuple((each.variable, each.fact) for each, _ in self.conditions)

    def variables(self) -> dict[str, Bits]:
        """Return the expressions of the variables."""
        return {name: bv.variable(name, form.bits) for name, form in self.formats.items()}

    def negation(self, values: Mapping[str, Bits]) -> list[Bits]:
        """Return predicates that hold together exactly for a refutation with these values.  Raises Unencoded."""
        found = [encode(predicate, values) for _, predicate in self.conditions]
        for term in self.finite:
            assert isinstance(term.format, FloatFormat)
            found.append(floats.finite(encode(term, values), term.format))
        left, right = encode(self.left, values), encode(self.right, values)
        same = bv.equal(left, right)
        if self.number is not None:
            same = bv.either(same, bv.both(floats.nan_of(left, self.number), floats.nan_of(right, self.number)))
        return [*found, bv.invert(same)]

    def refutes(self, values: Mapping[str, int]) -> bool:
        """Whether values are a refutation, by the functions of the vocabulary."""
        arrays = {
            name: np.array([values.get(name, 0)], dtype=np.bool_ if form.bits == 1 else storage(form.bits))
            for name, form in self.formats.items()
        }
        return bool(self.refuted_at(arrays)[0])

    def refuted_at(self, arrays: Mapping[str, Array]) -> Array:
        """Return where values are a refutation, by the functions of the vocabulary."""
        held = self.held_at(arrays)
        left, right = np.broadcast_arrays(evaluate(self.left, arrays), evaluate(self.right, arrays))
        same: Array = np.asarray(left == right)
        if self.number is not None:
            same = same | (nan_of(left, self.number) & nan_of(right, self.number))
        return np.asarray(held & ~same)

    def held_at(self, arrays: Mapping[str, Array]) -> Array:
        """Return where the conditions and assumptions hold, by the functions of the vocabulary."""
        held: Array = np.ones(1, dtype=np.bool_)
        for _, predicate in self.conditions:
            held = held & evaluate(predicate, arrays)
        for term in self.finite:
            assert isinstance(term.format, FloatFormat)
            held = held & ~not_finite(evaluate(term, arrays), term.format)
        return held


def not_finite(patterns: Array, form: FloatFormat) -> Array:
    """Return which patterns are infinities or NaNs.

    `execution.assumptions` has this function too, but its package needs the proofs that are made here.
    """
    found = nan_of(patterns, form)
    if form.infinity is not None:
        magnitude = patterns & patterns.dtype.type((1 << form.bits - 1) - 1)
        found = found | (magnitude == patterns.dtype.type(form.infinity))
    return np.asarray(found)


def result_format(left: Term, right: Term) -> FloatFormat | None:
    """Return the floating-point format in which the sides are numbers: the left side's, else the right side's."""
    for each in (left, right):
        if isinstance(each.format, FloatFormat):
            return each.format
    return None


def finite_variables(formats: Mapping[str, Format]) -> tuple[Term, ...]:
    """Return the variables of floating-point formats, which the finite assumption makes finite."""
    return tuple(Term("variable", name, form) for name, form in formats.items() if isinstance(form, FloatFormat))


Definitions: TypeAlias = Mapping[str, str]
"""Operations of an architecture and the patterns of their results over the variables a, b, and so on.

An operation in its own definition stands for what the definition leaves open.
"""


def with_definitions(obligation: Obligation, definitions: Definitions) -> Obligation:
    """Return the obligation with the definitions of operations in their place."""
    left, right = (_defined(each, definitions) for each in (obligation.left, obligation.right))
    return replace(obligation, left=left, right=right, defined=frozenset(definitions))


def _defined(term: Term, definitions: Definitions) -> Term:
    below = tuple(_defined(each, definitions) for each in term.operands)
    term = Term(term.kind, term.word, term.format, below, term.number, term.low)
    if term.kind != "operation" or term.word not in definitions:
        return term
    formats = {chr(ord("a") + place): form for place, form in enumerate(term.operation.operands)}
    meaning = parse(definitions[term.word], term.format, formats)
    return substitute(meaning, dict(zip(formats, below, strict=True)))


WITNESSES: Mapping[str, tuple[str, str]] = {
    "eq.b{b}(convert.fp32.fp16(convert.rz.fp16.fp32(x)), x)": ("convert.fp32.fp16(x)", "fp16")
}
"""Facts, by their definitions, that say that a value is an image: the function, and the format of its operand.

A value with such a fact equals the image of some pattern, as the definition gives it.
"""


def with_witnesses(obligation: Obligation) -> Obligation:
    """Return the obligation with images in place of variables that are known to be images, and without those facts.

    Sides that are equal for all patterns whose images are taken are equal for all values with the fact.
    """
    known: dict[str, Term] = {}
    formats = dict(obligation.formats)
    for condition, _ in obligation.conditions:
        if FACTS[condition.fact] in WITNESSES:
            text, source = WITNESSES[FACTS[condition.fact]]
            image = parse(text)
            known[condition.variable] = substitute(image, {"x": Term("variable", condition.variable, FORMATS[source])})
            formats[condition.variable] = FORMATS[source]
    if not known:
        return obligation
    values = {name: known.get(name, Term("variable", name, form)) for name, form in formats.items()}
    kept = tuple(
        (each, substitute(predicate, values))
        for each, predicate in obligation.conditions
        if FACTS[each.fact] not in WITNESSES
    )
    left, right = (substitute(each, values) for each in (obligation.left, obligation.right))
    finite_ = tuple(substitute(each, values) for each in obligation.finite)
    return replace(obligation, left=left, right=right, formats=formats, conditions=kept, finite=finite_)


def _placed(instance: Instance | InferenceInstance) -> tuple[tuple[Condition, Term], ...]:
    """Return the conditions with their predicates over the variables of the instance."""
    formats = instance.formats
    return tuple(
        (each, substitute(predicate, {"x": Term("variable", each.variable, formats[each.variable])}))
        for each, predicate in instance.conditions
    )


def of_rule(instance: Instance) -> Obligation:
    """Return the obligation of an instance of a rule.  Raises ValueError where numbers have no format."""
    rule = instance.rule
    number = result_format(instance.left, instance.right) if rule.keeps == "number" else None
    if rule.keeps == "number" and number is None:
        raise ValueError(f"the rule {instance.name} keeps a number, but neither side has a floating-point format")
    assumed = finite_variables(instance.formats) if rule.assumes == "finite" else ()
    return Obligation(
        instance.name, instance.left, instance.right, number, instance.formats, _placed(instance), assumed
    )


def _holds(form: Format) -> Term:
    return Term("number", "0x1", form, number=1)


def substitute(term: Term, values: Mapping[str, Term]) -> Term:
    """Return a term with terms in place of its variables."""
    if term.kind == "variable":
        return values[term.word]
    below = tuple(substitute(each, values) for each in term.operands)
    return Term(term.kind, term.word, term.format, below, term.number, term.low)


def of_inference(instance: InferenceInstance) -> Obligation:
    """Return the obligation of an instance of an inference: the conclusion about the term is true."""
    conclusion = substitute(instance.conclusion, {"x": instance.term})
    assumed = finite_variables(instance.formats) if instance.inference.assumes == "finite" else ()
    return Obligation(
        instance.name, conclusion, _holds(conclusion.format), None, instance.formats, _placed(instance), assumed
    )


def of_implication(one: str, other: str, form: Format) -> Obligation:
    """Return the obligation of a fact that follows from another one of the same value."""
    conclusion = fact(other, form)
    given = ((Condition("x", one), fact(one, form)),)
    name = f"implied {one} {other} {form.name}"
    return Obligation(name, conclusion, _holds(conclusion.format), None, {"x": form}, given, ())


def operations_of(obligation: Obligation) -> Iterator[str]:
    """Yield the names of the operations in an obligation."""
    for term in (obligation.left, obligation.right, *(each for _, each in obligation.conditions)):
        for each in subterms(term):
            if each.kind == "operation":
                yield each.word
