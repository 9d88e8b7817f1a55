"""Rules are loaded only with their proofs: an edited, an unproved and a refuted rule are rejected by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bitwise_core.ir.rules import stated, table
from bitwise_core.ir.rules.facts import FACTS
from bitwise_core.ir.rules.proofs import PROOFS, checked, inference_digest, label, load, rule_digest
from bitwise_core.ir.rules.rule import Inference, Rule, RuleError, over

RULE = Rule(
    "mul_one", "mul.{r}.{f}(x, +1)", "x", over(f="fp16", r=("rn", "rz")), "The exact product is x.",
    where={"x": ("not_nan",)}, keeps="number", refuted=over(f="fp16", r="rn.ftz"),
)  # fmt: skip
INFERENCE = Inference("root", "sqrt.rn.fp16(x)", "not_negative", over(), "It is not.", {"x": ("not_negative",)})


def proofs(path: Path, *, instances: tuple[str, ...] = ("f=fp16 r=rn", "f=fp16 r=rz")) -> Path:
    """Write the proofs of the rule and of the inference."""

    def group(*labels: str) -> list[dict[str, Any]]:
        return [{"method": "solver", "seconds": 0.0, "instances": list(labels)}]

    rule = {"statement": rule_digest(RULE), "proved": group(*instances), "refuted": group("f=fp16 r=rn.ftz")}
    inference = {"statement": inference_digest(INFERENCE), "proved": group("-"), "refuted": []}
    path.write_text(json.dumps({"rules": {"mul_one": rule}, "inferences": {"root": inference}, "implications": {}}))
    return path


def rejection(path: Path, rule: Rule = RULE, inference: Inference = INFERENCE) -> str:
    with pytest.raises(RuleError) as error:
        checked((rule,), (inference,), path)
    return str(error.value)


def test_proved_statements_are_loaded(tmp_path: Path) -> None:
    assert checked((RULE,), (INFERENCE,), proofs(tmp_path / "proofs.json")) == ((RULE,), (INFERENCE,))


@pytest.mark.parametrize(
    "change",
    [
        {"left": "mul.{r}.{f}(x, +2)"},
        {"right": "neg.{f}(x)"},
        {"where": {}},
        {"where": {"x": ("finite",)}},
        {"keeps": "bits"},
        {"assumes": "finite"},
        {"evidence": "measured"},
        {"formats": {"x": "fp16"}},
    ],
    ids=str,
)
def test_an_edited_rule_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    path = proofs(tmp_path / "proofs.json")
    sentence = "the rule mul_one was changed after it was proved; `python -m bitwise_bench.proofs mul_one` proves it"
    assert rejection(path, replace(RULE, **change)) == sentence


@pytest.mark.parametrize("change", [{"term": "abs.fp16(x)"}, {"then": "not_nan"}, {"given": {}}, {"assumes": "finite"}])
def test_an_edited_inference_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    found = rejection(proofs(tmp_path / "proofs.json"), inference=replace(INFERENCE, **change))
    assert found.startswith("the inference root was changed after it was proved")


def test_a_changed_fact_rejects_the_rules_that_require_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = proofs(tmp_path / "proofs.json")
    monkeypatch.setitem(FACTS, "not_nan", "ord.{f}(x, +0)")
    assert rejection(path).startswith("the rule mul_one was changed")


def test_a_rule_without_a_proof_is_rejected(tmp_path: Path) -> None:
    found = rejection(proofs(tmp_path / "proofs.json"), replace(RULE, name="mul_two"))
    assert found == "the rule mul_two has no proof; `python -m bitwise_bench.proofs mul_two` proves it"


def test_an_instance_without_a_proof_is_rejected(tmp_path: Path) -> None:
    found = rejection(proofs(tmp_path / "proofs.json", instances=("f=fp16 r=rn",)))
    assert found.startswith("the rule mul_one has no proof for f=fp16 r=rz;")


def test_a_new_parameter_is_rejected(tmp_path: Path) -> None:
    found = rejection(proofs(tmp_path / "proofs.json"), replace(RULE, over=over(f=("fp16", "fp32"), r="rn")))
    assert found.startswith("the rule mul_one has no proof for f=fp32 r=rn;")


def test_a_refuted_parameter_without_a_counterexample_is_rejected(tmp_path: Path) -> None:
    found = rejection(proofs(tmp_path / "proofs.json"), replace(RULE, refuted=over(f="fp16", r="rd")))
    assert found.startswith("the rule mul_one has no counterexample for f=fp16 r=rd;")


def test_two_rules_of_one_name_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="two rules or inferences have the name mul_one"):
        checked((RULE, RULE), (), proofs(tmp_path / "proofs.json"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rules": {"mul_one": {}}}', '{"rules": {"mul_one": 3}}'])
def test_a_damaged_file_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "proofs.json"
    path.write_text(text)
    assert "`python -m bitwise_bench.proofs` writes them" in rejection(path)


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    assert rejection(tmp_path / "none.json").startswith("the proofs of the rules cannot be read from")


def test_the_rules_of_an_architecture_need_proofs_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="the rule mul_two has no proof"):
        table.register((replace(RULE, name="mul_two"),), (), proofs(tmp_path / "proofs.json"))


def test_the_labels_of_a_rule_differ() -> None:
    for rule in stated.STATED_RULES:
        labels = [label(each) for each in (*rule.over, *rule.refuted)]
        assert len(set(labels)) == len(labels), rule.name


def test_every_instance_of_the_table_is_consistent() -> None:
    for rule in stated.STATED_RULES:
        assert len(rule.instances) == len(rule.over)
    for inference in stated.INFERENCES:
        assert len(inference.instances) == len(inference.over)


def test_no_statement_is_only_sampled() -> None:
    content = load(PROOFS)
    methods = {
        group["method"]
        for section in ("rules", "inferences", "implications", "lemmas")
        for entry in content[section].values()
        for group in entry["proved"]
    }
    assert {method for method in methods if not method.startswith(("bitwuzla", "z3", "exhausted"))} <= {"measured"}


def test_at_most_three_rules_are_measured() -> None:
    names = [each.name for each in (*table.RULES, *table.INFERENCES) if each.evidence == "measured"]
    assert len(names) <= 3
