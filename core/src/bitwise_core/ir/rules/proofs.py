"""The proofs of a table of rules: a rule is loaded only where each of its instances was proved as it is stated.

`proofs.json` is written by `python -m bitwise_bench.proofs`.  It holds, for each rule, inference and implication, the
digest of its statement, and the labels of its instances by the method that proved them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_core.ir.rules.facts import FACTS
from bitwise_core.ir.rules.rule import Inference, Parameters, Rule, RuleError

COMMAND = "python -m bitwise_bench.proofs"
PROOFS = Path(__file__).with_name("proofs.json")
"""The proofs of the rules of core."""

Implied = Mapping[str, tuple[str, ...]]


def label(parameters: Parameters) -> str:
    """Return the name of one instance among those of its rule: its parameters, without the width of the format f."""
    shown = [f"{name}={value}" for name, value in parameters.items() if name != "b" or "f" not in parameters]
    return " ".join(shown) or "-"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _conditions(where: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the required facts with their definitions."""
    return sorted(f"{name} {fact}: {FACTS[fact]}" for name, facts in where.items() for fact in facts)


def rule_digest(rule: Rule) -> str:
    """Return a digest of everything that a rule states for any choice of its parameters."""
    formats = sorted(f"{name} {form}" for name, form in rule.formats.items())
    return _digest(
        "rule", rule.left, rule.right, rule.keeps, rule.assumes, rule.evidence, *_conditions(rule.where), *formats
    )


def inference_digest(inference: Inference) -> str:
    """Return a digest of everything that an inference states for any choice of its parameters."""
    then = f"{inference.then}: {FACTS[inference.then]}"
    return _digest(
        "inference", inference.term, then, inference.assumes, inference.evidence, *_conditions(inference.given)
    )


def implication_digest(one: str, other: str) -> str:
    """Return a digest of the statement that one fact follows from another."""
    return _digest("implication", FACTS[one], FACTS[other])


def load(path: Path) -> dict[str, Any]:
    """Return the content of a file of proofs.  Raises RuleError where it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RuleError(
            f"the proofs of the rules cannot be read from {path}: {error}; `{COMMAND}` writes them"
        ) from None
    if not isinstance(found, dict):
        raise RuleError(f"the file {path} holds no proofs; `{COMMAND}` writes them")
    return found


def _check(kind: str, name: str, digest: str, labels: Iterable[str], recorded: Mapping[str, Any], field: str) -> None:
    found = recorded.get(name)
    remedy = f"`{COMMAND} {name}` proves it"
    if found is None:
        raise RuleError(f"the {kind} {name} has no proof; {remedy}")
    if found["statement"] != digest:
        raise RuleError(f"the {kind} {name} was changed after it was proved; {remedy}")
    known = {each for group in found[field] for each in group["instances"]}
    missing = [each for each in labels if each not in known]
    if missing:
        what = "proof" if field == "proved" else "counterexample"
        raise RuleError(f"the {kind} {name} has no {what} for {missing[0]}; {remedy}")


def checked(
    rules: Sequence[Rule], inferences: Sequence[Inference], path: Path, implied: Implied | None = None
) -> tuple[tuple[Rule, ...], tuple[Inference, ...]]:
    """Return rules and inferences that are all proved, as they are stated, in a file of proofs.

    `implied` are facts that follow from others.  Raises RuleError, which names the first rule without a proof and the
    command that proves it; a parameter that a rule declares as refuted needs a counterexample.
    """
    content = load(path)
    seen: set[str] = set()
    for name in [*(each.name for each in rules), *(each.name for each in inferences)]:
        if name in seen:
            raise RuleError(f"two rules or inferences have the name {name}")
        seen.add(name)
    try:
        for rule in rules:
            digest, recorded = rule_digest(rule), content["rules"]
            _check("rule", rule.name, digest, map(label, rule.over), recorded, "proved")
            _check("rule", rule.name, digest, map(label, rule.refuted), recorded, "refuted")
        for inference in inferences:
            digest = inference_digest(inference)
            _check("inference", inference.name, digest, map(label, inference.over), content["inferences"], "proved")
        for one, others in (implied or {}).items():
            for other in others:
                name, digest = f"{one} implies {other}", implication_digest(one, other)
                _check("implication", name, digest, (), content["implications"], "proved")
    except (KeyError, TypeError) as error:
        raise RuleError(f"the proofs in {path} are incomplete ({error}); `{COMMAND}` writes them") from None
    return tuple(rules), tuple(inferences)
