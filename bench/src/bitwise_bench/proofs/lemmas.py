"""Lemmas: equal terms that a proof exchanges before it is given to a solver.

A lemma is proved like a rule, in the formats in which it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bitwise_bench.proofs.obligations import Obligation, substitute
from bitwise_core.ir.rules.patterns import Term, parse, variables
from bitwise_core.ir.rules.rule import IEEE, NEAREST_OR_ZERO, Parameters, over


@dataclass(frozen=True, eq=False)
class Lemma:
    """`left` and `right` have the same bits for all values of the variables, for every choice of parameters."""

    name: str
    left: str
    right: str
    over: tuple[Parameters, ...]

    def obligations(self) -> Iterator[Obligation]:
        """Yield the obligation of each choice of parameters."""
        for parameters in self.over:
            left, right = self.sides(parameters)
            name = " ".join((self.name, *(value for key, value in parameters.items() if key != "b")))
            yield Obligation(name, left, right, None, variables(left), (), ())

    def sides(self, parameters: Parameters) -> tuple[Term, Term]:
        """Return both sides for one choice of parameters."""
        left = parse(self.left.format(**parameters, sign=_sign(parameters)))
        right = parse(self.right.format(**parameters, sign=_sign(parameters)), left.format, variables(left))
        return left, right


def _sign(parameters: Parameters) -> str:
    return f"{1 << int(parameters['b']) - 1:#x}"


SUM_WITH_ZERO = Lemma(
    "sum_with_zero",
    "add.{r}.{f}(x, +0)",
    "select(ne.b{b}(x, {sign}), guard.{f}(x, x), +0)",
    over(f=IEEE, r=NEAREST_OR_ZERO),
)

LEMMAS = (SUM_WITH_ZERO,)

HINTS: Mapping[str, tuple[Lemma, ...]] = {"add_plus_zero_outward": (SUM_WITH_ZERO,)}
"""The lemmas that the proof of a rule uses."""


CASES: Mapping[str, tuple[tuple[str, str], ...]] = dict.fromkeys(
    ("add_plus_zero_outward", "sum_without_sign_of_zero", "sign_of_zero_stays_in_sum"), (("x", "-0"),)
)
"""Variables and numbers: whether the variable is the number is a case of the proof of a rule."""


def matched(pattern: Term, term: Term, known: dict[str, Term]) -> bool:
    """Whether a term is a pattern with terms in place of its variables, which are added to `known`."""
    if pattern.kind == "variable":
        return known.setdefault(pattern.word, term) == term
    same = (pattern.kind, pattern.bits, pattern.number, pattern.low) == (term.kind, term.bits, term.number, term.low)
    if not same or (pattern.kind == "operation" and pattern.word != term.word):
        return False
    pairs = zip(pattern.operands, term.operands, strict=True)
    return all(matched(one, other, known) for one, other in pairs)


def _rewritten(term: Term, sides: list[tuple[Term, Term]]) -> Term:
    below = tuple(_rewritten(each, sides) for each in term.operands)
    term = Term(term.kind, term.word, term.format, below, term.number, term.low)
    for left, right in sides:
        known: dict[str, Term] = {}
        if matched(left, term, known):
            return substitute(right, known)
    return term


def with_lemmas(rule: str, obligation: Obligation) -> Obligation:
    """Return the obligation of a rule with its sides rewritten by the lemmas of the rule."""
    sides = [lemma.sides(each) for lemma in HINTS.get(rule, ()) for each in lemma.over]
    if not sides:
        return obligation
    left, right = (_rewritten(each, sides) for each in (obligation.left, obligation.right))
    return replace(obligation, left=left, right=right)
