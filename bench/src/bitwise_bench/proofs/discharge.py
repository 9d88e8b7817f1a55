"""How an obligation is discharged: cases, abstraction, and solvers one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, TypeAlias

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs import floats
from bitwise_bench.proofs.bitvectors import Bits
from bitwise_bench.proofs.obligations import Obligation
from bitwise_bench.proofs.solvers import Outcome, Solver, abstracted
from bitwise_core.ir.rules.patterns import parse
from bitwise_core.numerics import FloatFormat

Result: TypeAlias = Literal["proved", "refuted", "open"]


@dataclass(frozen=True)
class Discharge:
    """How an obligation ended: proved, refuted by values of its variables, or open; by which method and how long."""

    name: str
    result: Result
    method: str
    seconds: float
    values: dict[str, int] = field(default_factory=dict)


def cases(obligation: Obligation, numbers: Sequence[tuple[str, str]] = ()) -> Iterator[list[Bits]]:
    """Yield the negation of an obligation in every case of which floating-point variables are NaN.

    In a case, the predicates that decide it are asserted, and everything else is made with their values in their place.
    `numbers` are variables and numbers ("-0"): whether the variable is the number is a case too.
    """
    floating = [(name, form) for name, form in obligation.formats.items() if isinstance(form, FloatFormat)]
    special = [(name, parse(text, obligation.formats[name]).number) for name, text in numbers]
    for answers in product((0, 1), repeat=len(floating) + len(special)):
        bv.forget()
        values = obligation.variables()
        predicates = [floats.nan_of(values[name], form) for name, form in floating]
        predicates += [bv.equal(values[name], bv.constant(each, values[name].width)) for name, each in special]
        decided = dict(zip(predicates, answers, strict=True))
        asserted = [each if answer else bv.invert(each) for each, answer in decided.items()]
        for (name, number), answer in zip(special, answers[len(floating) :], strict=True):
            if answer:
                values[name] = bv.constant(number, values[name].width)
        with bv.assuming(decided):
            negation = obligation.negation(values)
        yield [*asserted, *negation]


def _search(predicates: list[Bits], solver: Solver, seconds: float) -> Outcome:
    """Search with products and quotients as variables, which can only add solutions, and then without."""
    if any(each.kind == "constant" and not each.value for each in predicates):
        return Outcome("none", solver.name, 0.0)
    general, replaced = abstracted(predicates)
    outcome = solver.solve(general, seconds)
    if replaced and outcome.answer != "none":
        spent = outcome.seconds
        outcome = solver.solve(predicates, seconds)
        outcome = Outcome(outcome.answer, outcome.solver, outcome.seconds + spent, outcome.values)
    return outcome


def discharge(
    obligation: Obligation, solvers: Sequence[Solver], seconds: float, numbers: Sequence[tuple[str, str]] = ()
) -> Discharge:
    """Discharge an obligation with the first solver that answers, at most `seconds` for each search.

    `numbers` are further cases (see `cases`).  A counterexample is accepted only if the functions of the vocabulary
    confirm it; raises RuntimeError otherwise.
    """
    spent, used = 0.0, set()
    for predicates in cases(obligation, numbers):
        for solver in solvers:
            outcome = _search(predicates, solver, seconds)
            spent += outcome.seconds
            if outcome.answer != "unknown":
                break
        used.add(outcome.solver)
        if outcome.answer == "unknown":
            return Discharge(obligation.name, "open", ", ".join(sorted(used)), spent)
        if outcome.answer == "found":
            values = {name: outcome.values.get(name, 0) for name in obligation.formats}
            if not obligation.refutes(values):
                raise RuntimeError(
                    f"{outcome.solver} refutes {obligation.name} with {values}, but the functions of the vocabulary "
                    "do not: the expressions of the operations are wrong"
                )
            return Discharge(obligation.name, "refuted", outcome.solver, spent, values)
    return Discharge(obligation.name, "proved", ", ".join(sorted(used)), spent)
