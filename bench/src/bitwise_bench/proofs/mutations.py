"""Mutants of statements: a condition is removed, or a number or an operation is changed, and the proof must fail.

A condition without which a rule is still true is redundant, and the rule should lose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bitwise_bench.proofs.discharge import Discharge, discharge
from bitwise_bench.proofs.exhaustion import exhaust, sample
from bitwise_bench.proofs.obligations import Obligation, with_witnesses
from bitwise_bench.proofs.prover import Table, Task, digests, solvers, tasks
from bitwise_core.ir.rules.patterns import Term, subterms
from bitwise_core.numerics import FloatFormat, UnknownOperation, operation

_SAMPLES = 20_000
_SECONDS = 60.0

_SIBLINGS: Mapping[str, str] = {
    "add": "sub", "sub": "add", "mul": "add", "fma": "fnma", "fnma": "fma", "max": "min", "min": "max", "neg": "abs",
    "abs": "neg", "and": "or", "or": "and", "xor": "and", "eq": "ne", "ne": "eq", "lt": "le", "le": "lt", "gt": "ge",
    "ge": "gt", "ord": "unord", "unord": "ord", "div": "mul", "sqrt": "rcp", "shl": "shr", "carry": "ne",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one instance; a change of several instances has one text."""

    task: Task
    change: str
    obligation: Obligation


def _removed(task: Task, obligation: Obligation) -> Iterator[Mutant]:
    """Yield mutants without one of the conditions, or with a stronger claim."""
    for condition, _ in obligation.conditions:
        kept = tuple(each for each in obligation.conditions if each[0] != condition)
        yield Mutant(task, f"without {condition.fact} {condition.variable}", replace(obligation, conditions=kept))
    if obligation.finite:
        yield Mutant(task, "without the finite assumption", replace(obligation, finite=()))
    if obligation.number is not None:
        yield Mutant(task, "NaNs compared bit by bit", replace(obligation, number=None))


def _replaced_at(term: Term, place: tuple[int, ...], other: Term) -> Term:
    if not place:
        return other
    below = list(term.operands)
    below[place[0]] = _replaced_at(below[place[0]], place[1:], other)
    return replace(term, operands=tuple(below))


def _places(term: Term, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Term]]:
    yield place, term
    for at, each in enumerate(term.operands):
        yield from _places(each, (*place, at))


def _other_numbers(term: Term) -> Iterator[tuple[str, Term]]:
    bits = term.bits
    changed = term.number ^ (1 << bits - 1 if isinstance(term.format, FloatFormat) else 1)
    for number in dict.fromkeys((changed, term.number ^ 1)):
        yield f"{number:#x} for {term.number:#x}", replace(term, word=f"{number:#x}", number=number)


def _other_operations(term: Term) -> Iterator[tuple[str, Term]]:
    meaning = term.operation
    words = term.word.split(".")
    names = [".".join([_SIBLINGS[meaning.verb], *words[1:]])] if meaning.verb in _SIBLINGS else []
    if meaning.rounding in ("rn", "rz"):
        names.append(".".join("rd" if each == meaning.rounding else each for each in words))
    for name in names:
        try:
            other = operation(name)
        except UnknownOperation:
            continue
        if other.arity == meaning.arity and other.result.bits == meaning.result.bits:
            yield f"{name} for {term.word}", replace(term, word=other.name, format=other.result)


def _perturbed(task: Task, obligation: Obligation) -> Iterator[Mutant]:
    """Yield mutants of which one side has another number or operation, or reads a variable of its own."""
    right_names = {each.word for each in subterms(obligation.right) if each.kind == "variable"}
    for side in ("left", "right"):
        root = obligation.left if side == "left" else obligation.right
        for place, term in _places(root):
            found: list[tuple[str, Term]] = []
            if term.kind == "number":
                found += _other_numbers(term)
            elif term.kind == "operation":
                found += _other_operations(term)
            elif term.kind == "variable" and (side == "right" or term.word not in right_names or place == ()):
                found.append((f"another variable for {term.word}", replace(term, word="another")))
            for change, other in found:
                formats = dict(obligation.formats)
                if other.word == "another":
                    formats["another"] = formats[term.word]
                whole = _replaced_at(root, place, other)
                left, right = (whole, obligation.right) if side == "left" else (obligation.left, whole)
                changed = replace(obligation, formats=formats, left=left, right=right)
                yield Mutant(task, f"{change} on the {side}", changed)


def mutants(task: Task) -> list[Mutant]:
    """Return the mutants of an instance: without each condition, or perturbed where it has none."""
    obligation = task.make()
    found = list(_removed(task, obligation))
    if obligation.conditions or obligation.finite:
        return found
    return [*found, *_perturbed(task, obligation)]


def refute(mutant: Mutant, seconds: float = _SECONDS) -> Discharge:
    """Search for a counterexample of a mutant: among samples, then by the solvers."""
    obligation = with_witnesses(mutant.obligation)
    found = exhaust(obligation) if sum(each.bits for each in obligation.formats.values()) <= 16 else None
    found = found or sample(obligation, _SAMPLES)
    if found.result == "refuted" or found.method == "exhausted":
        return found
    return discharge(obligation, solvers(), seconds)


def _by_statement(given: Table, names: tuple[str, ...]) -> dict[tuple[str, str], list[Task]]:
    found: dict[tuple[str, str], list[Task]] = {}
    for task in tasks(given):
        if not task.refuted and not task.measured and task.section != "lemmas" and (not names or task.name in names):
            found.setdefault((task.section, task.name), []).append(task)
    return found


def examine(listed: list[Task], say: Callable[[str], None]) -> dict[str, Any]:
    """Return the changes of a statement with the first counterexample of each, or None for a change without one.

    Perturbations are made in the first instance only, until one of each side has a counterexample.
    """
    changes: dict[str, Any] = {}
    sides: set[str] = set()
    for number, task in enumerate(listed):
        for mutant in mutants(task):
            side = mutant.change.rpartition(" ")[2]
            perturbed = is_perturbation(mutant.change)
            if changes.get(mutant.change) is not None or (perturbed and (number or side in sides)):
                continue
            found = refute(mutant)
            changes.setdefault(mutant.change, None)
            if found.result == "refuted":
                values = {name: f"{value:#x}" for name, value in found.values.items()}
                changes[mutant.change] = {"instance": task.label, "values": values, "method": found.method}
                if perturbed:
                    sides.add(side)
            elif found.result == "open":
                say(f"{task.title} {mutant.change}: no answer")
    return changes


def is_perturbation(change: str) -> bool:
    """Whether a change replaces a part of a side, rather than removing a condition."""
    return change.endswith(("on the left", "on the right"))


def faults(name: str, changes: Mapping[str, Any]) -> list[str]:
    """Return what is wrong: conditions that are redundant, and statements of which no change is noticed."""
    found = [f"{name}: true {change} too" for change, example in changes.items()
             if example is None and not is_perturbation(change)]  # fmt: skip
    if not any(changes.values()):
        found.append(f"{name}: no change has a counterexample")
    return found


def examine_all(given: Table, names: tuple[str, ...], before: Mapping[str, Any], say: Callable[[str], None]
                ) -> dict[str, Any]:  # fmt: skip
    """Return the mutations of a table's statements by name; those of unchanged statements are those of `before`."""
    stated, found = digests(given), dict(before)
    listed = _by_statement(given, names)
    for key, group in listed.items():
        _, name = key
        old = before.get(name)
        if old is None or old["statement"] != stated[key] or names:
            found[name] = {"statement": stated[key], "changes": examine(group, say)}
            for fault in faults(name, found[name]["changes"]):
                say(fault)
    if not names:
        kept = {name for _, name in listed}
        found = {name: entry for name, entry in found.items() if name in kept}
    return found
