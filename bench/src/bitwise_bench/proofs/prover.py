"""The proofs of a table of rules: every obligation is discharged, and the outcome is written to the table's file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.proofs import faithfulness, semantics
from bitwise_bench.proofs.conversions import Unencoded
from bitwise_bench.proofs.discharge import Discharge, discharge
from bitwise_bench.proofs.encoding import has_expression
from bitwise_bench.proofs.exhaustion import exhaust, sample
from bitwise_bench.proofs.lemmas import CASES, HINTS, LEMMAS, Lemma, with_lemmas
from bitwise_bench.proofs.obligations import (
    Definitions,
    Obligation,
    of_implication,
    of_inference,
    of_rule,
    operations_of,
    with_definitions,
    with_witnesses,
)
from bitwise_bench.proofs.solvers import Z3, Bitwuzla, Solver
from bitwise_core.ir.rules.proofs import implication_digest, inference_digest, label, rule_digest
from bitwise_core.ir.rules.rule import IEEE, Inference, Parameters, Rule
from bitwise_core.numerics import FORMATS, operation

CORE = "bitwise_core.ir.rules.stated"
SECONDS = 300.0
"""The time limit of one search of a solver."""

_SLOW = 10.0
_SAMPLES = 50_000


class ProofError(ValueError):
    """A rule is false or cannot be proved: the message names the instance and gives the counterexample."""


@dataclass(frozen=True)
class Table:
    """The statements of a module and the file of their proofs."""

    module: str
    rules: tuple[Rule, ...]
    inferences: tuple[Inference, ...]
    implied: Mapping[str, tuple[str, ...]]
    path: Path
    definitions: Definitions


def table(module: str = CORE) -> Table:
    """Return the table of a module: STATED_RULES, INFERENCES, IMPLIED and DEFINITIONS, each optional, and PROOFS.

    PROOFS is the file of their proofs.
    """
    found = import_module(module)
    return Table(
        module,
        tuple(getattr(found, "STATED_RULES", ())),
        tuple(getattr(found, "INFERENCES", ())),
        getattr(found, "IMPLIED", {}),
        found.PROOFS,
        getattr(found, "DEFINITIONS", {}),
    )


@dataclass(frozen=True)
class Task:
    """One obligation of a statement; a `refuted` one must have a counterexample, a `measured` one is not searched."""

    section: str
    name: str
    label: str
    make: Callable[[], Obligation]
    refuted: bool = False
    measured: bool = False

    @property
    def title(self) -> str:
        """The statement and the instance."""
        return f"{self.name} {self.label}"

    def obligation(self) -> Obligation:
        """Return the obligation as it is given to the solvers."""
        return with_lemmas(self.name, with_witnesses(self.make()))


def _rule_tasks(rule: Rule, definitions: Definitions) -> Iterator[Task]:
    measured = rule.evidence == "measured"
    for each in rule.over:
        yield Task("rules", rule.name, label(each), partial(_of_rule, rule, each, definitions), False, measured)
    for each in rule.refuted:
        yield Task("rules", rule.name, label(each), partial(_of_rule, rule, each, definitions), True)


def _of_rule(rule: Rule, parameters: Parameters, definitions: Definitions) -> Obligation:
    return with_definitions(of_rule(rule.instance(parameters)), definitions)


def _inference_tasks(inference: Inference) -> Iterator[Task]:
    measured = inference.evidence == "measured"
    for instance in inference.instances:
        name = label(instance.parameters)
        yield Task("inferences", inference.name, name, partial(of_inference, instance), False, measured)


def _used_lemmas(given: Table) -> list[Lemma]:
    """Return the lemmas that the proofs of a table's rules use."""
    used = {lemma.name for rule in given.rules for lemma in HINTS.get(rule.name, ())}
    return [lemma for lemma in LEMMAS if lemma.name in used]


def _lemma_obligation(lemma: Lemma, place: int) -> Obligation:
    return list(lemma.obligations())[place]


def tasks(given: Table) -> list[Task]:
    """Return the obligations of a table: rules, inferences, implications, and the lemmas of its rules."""
    found: list[Task] = []
    for rule in given.rules:
        found += _rule_tasks(rule, given.definitions)
    for inference in given.inferences:
        found += _inference_tasks(inference)
    for one, others in given.implied.items():
        for other in others:
            for form in IEEE:
                make = partial(of_implication, one, other, FORMATS[form])
                found.append(Task("implications", f"{one} implies {other}", f"f={form}", make))
    for lemma in _used_lemmas(given):
        for place, each in enumerate(lemma.over):
            found.append(Task("lemmas", lemma.name, label(each), partial(_lemma_obligation, lemma, place)))
    return found


def digests(given: Table) -> dict[tuple[str, str], str]:
    """Return the digests of the statements by section and name."""
    found = {("rules", rule.name): rule_digest(rule) for rule in given.rules}
    found |= {("inferences", each.name): inference_digest(each) for each in given.inferences}
    for one, others in given.implied.items():
        found |= {("implications", f"{one} implies {other}"): implication_digest(one, other) for other in others}
    found |= {("lemmas", each.name): f"{each.left} = {each.right}" for each in _used_lemmas(given)}
    return found


@cache
def solvers() -> tuple[Solver, ...]:
    """Return the solvers in the order in which they are asked."""
    return Bitwuzla(), Z3()


def _searched(task: Task, obligation: Obligation, seconds: float) -> Discharge:
    """Ask the solvers; an obligation with an operation that has no expression is open."""
    missing = [
        name
        for name in operations_of(obligation)
        if operation(name).function is None and name not in obligation.defined
    ]
    if missing:
        raise ProofError(
            f"{task.title} cannot be proved: {missing[0]} has no evaluation; a rule that states what hardware does has "
            'evidence="measured", and its reason names the measurement'
        )
    try:
        return discharge(obligation, solvers(), seconds, CASES.get(task.name, ()))
    except Unencoded:
        return Discharge(task.title, "open", "", 0.0)


@cache
def _prove_lemma(lemma: Lemma, seconds: float) -> None:
    """Prove a lemma for all its parameters.  Raises ProofError where that fails."""
    for obligation in lemma.obligations():
        found = discharge(obligation, solvers(), seconds)
        if found.result != "proved":
            raise ProofError(f"the lemma {obligation.name} is not proved: {found.result}")


def settle(task: Task, seconds: float = SECONDS) -> Discharge:
    """Discharge one obligation: by the solvers, else by exhaustion, else by a sample, which the method then says.

    Raises ProofError where a statement is false, and where a refuted one has no counterexample.
    """
    if task.measured:
        return Discharge(task.title, "proved", "measured", 0.0)
    lemmas = HINTS.get(task.name, ())
    for lemma in lemmas:
        _prove_lemma(lemma, seconds)
    obligation = task.obligation()
    found = sample(obligation, _SAMPLES) if task.refuted else None
    if found is None or found.result != "refuted":
        found = _searched(task, obligation, seconds)
    if found.result == "open":
        found = exhaust(obligation) or sample(obligation, _SAMPLES)
    if task.refuted and found.result != "refuted":
        raise ProofError(f"{task.title} is declared as refuted, but no counterexample was found ({found.method})")
    if not task.refuted and found.result == "refuted":
        values = ", ".join(f"{name} = {value:#x}" for name, value in found.values.items())
        raise ProofError(f"{task.title} is false: {obligation.left} and {obligation.right} differ for {values}")
    if lemmas and not task.refuted:
        names = ", ".join(each.name for each in lemmas)
        return Discharge(found.name, found.result, f"{found.method}, lemma {names}", found.seconds)
    return found


Outcome = tuple[int, Discharge | None, str]


def _settle_at(module: str, place: int, seconds: float) -> Outcome:
    try:
        return place, settle(_cached_tasks(module)[place], seconds), ""
    except ProofError as error:
        return place, None, str(error)


@cache
def _cached_tasks(module: str) -> list[Task]:
    return tasks(table(module))


def settle_all(
    given: Table, places: Sequence[int], seconds: float, workers: int, say: Callable[[str], None]
) -> tuple[dict[int, Discharge], list[str]]:
    """Discharge the obligations at these places of `tasks`.  Returns the outcomes and the failures."""
    found: dict[int, Discharge] = {}
    failures: list[str] = []

    def keep(outcome: Outcome) -> None:
        place, discharged, failure = outcome
        if discharged is None:
            failures.append(failure)
            say(failure)
        else:
            found[place] = discharged
            if discharged.seconds > _SLOW:
                say(f"{discharged.name}: {discharged.seconds:.0f} s")

    if workers == 1:
        for place in places:
            keep(_settle_at(given.module, place, seconds))
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(_settle_at, given.module, place, seconds) for place in places]
            for each in waiting:
                keep(each.result())
    return found, failures


# -- the file of proofs -----------------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file of proofs, empty where there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def is_settled(task: Task, content: Mapping[str, Any], digest: str) -> bool:
    """Whether a file of proofs holds the proof or the counterexample of an obligation as it is stated."""
    statement = content.get(task.section, {}).get(task.name)
    if statement is None or statement["statement"] != digest:
        return False
    field = "refuted" if task.refuted else "proved"
    return any(task.label in group["instances"] for group in statement[field])


def _recorded(task: Task, content: Mapping[str, Any], digest: str) -> tuple[str, float] | None:
    """Return the method and the time of a proof in a file of proofs."""
    if not is_settled(task, content, digest):
        return None
    field = "refuted" if task.refuted else "proved"
    groups = content[task.section][task.name][field]
    group = next(each for each in groups if task.label in each["instances"])
    return group["method"], group["seconds"] / len(group["instances"])


def merged(given: Table, found: Mapping[int, Discharge], before: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """Return the content of a file of proofs: the outcomes found, and those of the file before for all others."""
    content: dict[str, Any] = {"semantics": mark, "rules": {}, "inferences": {}, "implications": {}, "lemmas": {}}
    stated = digests(given)
    grouped: dict[tuple[str, str, str], dict[str, tuple[float, list[str]]]] = {}
    examples: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for place, task in enumerate(tasks(given)):
        field = "refuted" if task.refuted else "proved"
        key = (task.section, task.name)
        old = before.get(task.section, {}).get(task.name, {})
        outcome = found.get(place)
        if outcome is not None:
            method, seconds = outcome.method, outcome.seconds
            if task.refuted:
                values = {name: f"{value:#x}" for name, value in outcome.values.items()}
                examples.setdefault(key, {})[task.label] = values
        else:
            known = _recorded(task, before, stated[key])
            if known is None:
                continue
            method, seconds = known
            if task.refuted:
                examples.setdefault(key, {})[task.label] = old["counterexamples"][task.label]
        spent, labels = grouped.setdefault((*key, field), {}).setdefault(method, (0.0, []))
        grouped[*key, field][method] = (spent + seconds, [*labels, task.label])
    for statement, digest in stated.items():
        section, name = statement
        entry: dict[str, Any] = {"statement": digest}
        for field in ("proved", "refuted"):
            entry[field] = [
                {"method": method, "seconds": round(spent, 2), "instances": labels}
                for method, (spent, labels) in grouped.get((section, name, field), {}).items()
            ]
        if statement in examples:
            entry["counterexamples"] = examples[statement]
        content[section][name] = entry
    content |= {kept: before[kept] for kept in ("mutations", "second", "standard") if kept in before}
    return content


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of proofs: one line for each statement."""
    lines = ["{"]
    keys = list(content)
    for place, key in enumerate(keys):
        end = "," if place + 1 < len(keys) else ""
        value = content[key]
        if not isinstance(value, dict) or key in ("operations", "second", "standard"):
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}{end}")
            continue
        names = list(value)
        lines.append(f"{json.dumps(key)}: {{")
        lines += [
            f"{json.dumps(name)}: {json.dumps(value[name])}{',' if at + 1 < len(names) else ''}"
            for at, name in enumerate(names)
        ]
        lines.append(f"}}{end}")
    lines.append("}")
    path.write_text("\n".join(lines) + "\n")


def operations(listed: Iterable[Task]) -> tuple[str, ...]:
    """Return the names of the operations in obligations, sorted."""
    found: set[str] = set()
    for task in listed:
        if not task.measured:
            found.update(operations_of(task.make()))
            found.update(operations_of(task.obligation()))
    return tuple(sorted(each for each in found if "@" not in each))


def _compared(listed: Sequence[Task]) -> dict[str, int]:
    """Return how many operations a table has, how many are compared on every pattern, and on how many the others."""
    words = operations(listed)
    exhausted = sum(faithfulness.is_exhausted(operation(name)) for name in words)
    return {"names": len(words), "exhausted": exhausted, "vectors": faithfulness.VECTORS}


def prove(
    given: Table, names: Sequence[str], again: bool, seconds: float, workers: int, say: Callable[[str], None]
) -> list[str]:
    """Prove what a table states and its file does not hold, or all of it `again`; write the file.  Returns failures.

    With `names`, only these statements.  The operations in what is proved are compared with their functions.  Where
    the code of the vocabulary has changed, everything is proved again.  Raises Unfaithful where an operation's
    expression differs from its function, and ProofError for an unknown name.
    """
    before, mark, stated = read(given.path), semantics.fingerprint(given.definitions), digests(given)
    listed = tasks(given)
    unknown = sorted(set(names) - {task.name for task in listed})
    if unknown:
        raise ProofError(f"there is no rule, inference or implication {unknown[0]!r}")
    if before and before.get("semantics") != mark:
        say("the code of the vocabulary has changed since the proofs: everything is proved again")
        before, names = {}, ()
    chosen = [
        place
        for place, task in enumerate(listed)
        if (not names or task.name in names)
        and (again or not is_settled(task, before, stated[task.section, task.name]))
    ]
    words = operations(listed[place] for place in chosen)
    say(f"{len(chosen)} of {len(listed)} obligations, {len(words)} operations")
    faithfulness.check_all([name for name in words if has_expression(operation(name))])
    found, failures = settle_all(given, chosen, seconds, workers, say)
    content = merged(given, found, before, mark)
    content["operations"] = _compared(listed)
    write(given.path, content)
    return failures


def second_opinion(given: Table, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Ask z3 for what bitwuzla proved, at most `seconds` for each search.  Returns how many proofs it confirmed.

    Raises ProofError where it finds a counterexample.
    """
    solver, confirmed = Z3(), 0
    listed = [task for task in tasks(given) if not task.measured and not task.refuted]
    for task in listed:
        found = discharge(task.obligation(), [solver], seconds, CASES.get(task.name, ()))
        if found.result == "refuted":
            raise ProofError(f"{solver.name} refutes {task.title} with {found.values}, which was proved")
        confirmed += found.result == "proved"
    say(f"{solver.name} confirms {confirmed} of {len(listed)} proofs")
    return {"solver": solver.name, "seconds": seconds, "confirmed": confirmed, "of": len(listed)}
