"""The page of the canonical rules: what is stated, in which formats, and how it is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bitwise_bench.proofs.lemmas import HINTS
from bitwise_bench.proofs.mutations import is_perturbation
from bitwise_bench.proofs.prover import Table
from bitwise_core.ir.rules.facts import FACTS
from bitwise_core.ir.rules.rule import Inference, Parameters, Rule
from bitwise_core.numerics.softfloat import ROUNDINGS

_MOST_VALUES = 16

_HEAD = """# The canonical rules and their proofs

This page is generated from the table of rules and its file of proofs by `python -m bitwise_bench.proofs --page`.

The checker identifies two computations by canonical rules. Those of this page are data, which the checker executes
(`core/src/bitwise_core/ir/rules/`). [SOUNDNESS.md](../../SOUNDNESS.md) says what a verdict means and assumes, and names
what the checker identifies by other means than these rules.
`bitwise_core.ir.rules.table` loads a rule only if `proofs.json` holds the proof of every instance as the rule is
stated. An instance is a rule for one choice of its parameters, which are written {name}.

## What is proved

For all bit patterns of the variables that satisfy the conditions, both sides have the same bits, or, where a rule says
*the same number*, the same bits or a NaN each. An inference states a fact about the result of an operation. The
operations are those of [the vocabulary](../../core/OPERATIONS.md), with every rounding, signed zeros, subnormal
numbers, infinities and NaNs.

Under *the finite assumption*, the variables of floating-point formats are finite numbers. Nothing is assumed about
intermediate values. A rule under this assumption must therefore not be applied to a constant that is infinite or NaN.

## How it is proved

- The operations are written as expressions over bit-vectors, in one way for all formats (`bitwise_bench/proofs/`).
- The negation of each instance, with its conditions, is given to an SMT solver, which finds that no values satisfy it.
  The cases of which variables are NaN are given separately. Products of significands are first replaced by
  variables; what holds for every product holds for these.
- Where no solver answers in time, an instance with at most 24 bits of variables is evaluated on every pattern
  (*exhausted*). Only where that is impossible too is it *sampled*. A *measured* rule states what an instruction set
  documents or a device returns; its reason names the source.
- Each expression is compared with the vocabulary's function, which the checker executes, on special and random
  patterns. A counterexample counts only if these functions confirm it.

A proof relies on the solver, on the translation of expressions to it, and on the agreement of the expressions with the
functions, which is tested on samples. `nox -s proofs` repeats all of it.

## How the proofs are tested

Each condition of each rule is removed, each assumption is dropped, and the sides that are the same number are
compared bit for bit. Each of these changes must have a counterexample; otherwise the condition is redundant. Then
numbers, roundings, operations and variables are changed, with all conditions in place, until a change of each side has
a counterexample. `python -m bitwise_bench.proofs --mutations` repeats it. Parameters for which a rule is known to be
false have counterexamples too.
"""


def _values(over: Sequence[Parameters]) -> Iterator[str]:
    """Yield each parameter with its values."""
    names = [name for name in (over[0] if over else ()) if name != "b"]
    for name in names:
        values = list(dict.fromkeys(each[name] for each in over))
        shown = ", ".join(values) if len(values) <= _MOST_VALUES else f"{len(values)} values"
        yield f"{name}: {shown}"


def _domain(over: Sequence[Parameters]) -> str:
    instances = f"{len(over)} instance{'s' if len(over) > 1 else ''}"
    return "; ".join([*_values(over), instances])


def _conditions(where: Mapping[str, tuple[str, ...]], assumes: str) -> str:
    found = [f"{name} is `{fact}`" for name, facts in where.items() for fact in facts]
    if assumes:
        found.append(f"the {assumes} assumption")
    return "; ".join(found)


def _methods(entry: Mapping[str, Any]) -> str:
    return "; ".join(f"{group['method']} ({len(group['instances'])})" for group in entry["proved"])


def _example(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _at(example: Mapping[str, Any]) -> str:
    return f"{example['instance']}: {_example(example['values'])}"


def _mutations(name: str, content: Mapping[str, Any]) -> Iterator[str]:
    changes = content.get("mutations", {}).get(name, {}).get("changes", {})
    removed = {change: example for change, example in changes.items() if not is_perturbation(change)}
    shown = [
        f"{change} (no counterexample)"
        if example is None
        else f"{change} ({example['instance']}: {_example(example['values'])})"
        for change, example in removed.items()
    ]
    if shown:
        yield f"- False {'; '.join(shown)}"
    for change in (change for change, example in removed.items() if example is None):
        yield f"- True {change} too"
    perturbed = [example for change, example in changes.items() if is_perturbation(change)]
    if perturbed:
        refuted = sum(each is not None for each in perturbed)
        yield f"- Changed numbers and operations: {refuted} of {len(perturbed)} have a counterexample"


def _rule(rule: Rule, content: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### {rule.name}\n\n```\n{rule.left}\n= {rule.right}\n```\n\n{rule.reason}\n"
    if rule.keeps == "number":
        yield "- The same number; NaNs may differ"
    if conditions := _conditions(rule.where, rule.assumes):
        yield f"- Where {conditions}"
    yield f"- For {_domain(rule.over)}"
    entry = content["rules"][rule.name]
    yield f"- Proof: {_methods(entry)}"
    if rule.refuted:
        first, values = next(iter(entry["counterexamples"].items()))
        yield f"- False for {_domain(rule.refuted)}, such as {first}: {_example(values)}"
    yield from _mutations(rule.name, content)


def _inference(inference: Inference, content: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### {inference.name}\n\n`{inference.term}` is `{inference.then}`. {inference.reason}\n"
    if conditions := _conditions(inference.given, inference.assumes):
        yield f"- Where {conditions}"
    yield f"- For {_domain(inference.over)}"
    yield f"- Proof: {_methods(content['inferences'][inference.name])}"
    yield from _mutations(inference.name, content)


def _together(names: Sequence[str]) -> list[str]:
    """Return names of operations without their roundings, each once, with the number of roundings."""
    plain = Counter(".".join(word for word in name.split(".") if word not in ROUNDINGS) for name in names)
    return [f"{name} ({count} roundings)" if count > 1 else name for name, count in plain.items()]


def _summary(content: Mapping[str, Any]) -> Iterator[str]:
    yield "\n## Summary\n\n| kind | statements | instances | by method |\n| --- | ---: | ---: | --- |"
    for section in ("rules", "inferences", "implications", "lemmas"):
        methods: Counter[str] = Counter()
        for entry in content[section].values():
            for group in entry["proved"]:
                methods[group["method"]] += len(group["instances"])
        shown = ", ".join(f"{method}: {count:,}" for method, count in methods.most_common())
        yield f"| {section} | {len(content[section])} | {sum(methods.values()):,} | {shown} |"
    exceptions = [
        name
        for section in ("rules", "inferences", "implications", "lemmas")
        for name, entry in content[section].items()
        if any(group["method"] in ("measured", "sampled") for group in entry["proved"])
    ]
    names = ", ".join(exceptions) or "none"
    yield f"\nStatements that are not proved, but measured or sampled: {names}."
    if "second" in content:
        second = content["second"]
        yield (
            f"\n{second['solver']} confirmed {second['confirmed']:,} of the {second['of']:,} proofs by a solver, in at "
            f"most {second['seconds']:g} seconds each, and contradicted none."
        )
    if "standard" in content:
        listed = content["standard"]["names"]
        yield (
            f"\n{content['standard']['solver']} proved that the expressions of {len(listed)} operations are those of "
            "SMT-LIB's theory of floating-point numbers, which states IEEE 754, on all patterns: "
            f"{', '.join(_together(listed))}."
        )
    words = content["operations"]
    yield (
        f"\n{words['names']:,} operations were compared with their functions: {words['exhausted']:,} of them on every "
        f"pattern of their operands, the others on {words['vectors']} patterns."
    )


def render(given: Table, content: Mapping[str, Any]) -> str:
    """Return the page of a table and the content of its file of proofs."""
    lines = [
        _HEAD,
        *_summary(content),
        "\n## Facts\n\nOf a value x in a format {f} of {b} bits.\n\n| fact | holds where |",
    ]
    lines += ["| --- | --- |", *(f"| `{name}` | `{text}` |" for name, text in FACTS.items())]
    for one, others in given.implied.items():
        for other in others:
            methods = _methods(content["implications"][f"{one} implies {other}"])
            lines.append(f"\n`{one}` implies `{other}`: {methods}.")
    lines.append("\n## Rules")
    for rule in given.rules:
        lines += _rule(rule, content)
    lines.append("\n## Inferences")
    for inference in given.inferences:
        lines += _inference(inference, content)
    used = {lemma.name: lemma for rule in given.rules for lemma in HINTS.get(rule.name, ())}
    lines.append("\n## Lemmas\n\nEqual terms that proofs exchange.")
    for name, lemma in used.items():
        lines.append(f"\n### {name}\n\n```\n{lemma.left}\n= {lemma.right}\n```\n")
        lines.append(f"- For {_domain(lemma.over)}\n- Proof: {_methods(content['lemmas'][name])}")
    return "\n".join(lines) + "\n"
