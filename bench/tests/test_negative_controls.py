"""The negative controls of the probes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.probing.negative_controls import FAMILIES, survey, wrong_plans
from bitwise_core.probing import reduction_instrument, reveal
from bitwise_core.probing.summation_tree import evaluate


@pytest.mark.parametrize("name", FAMILIES)
def test_the_order_of_every_family_is_inferred(name: str) -> None:
    tree = FAMILIES[name].tree()
    found = reveal(reduction_instrument(lambda x: evaluate(tree, x), 64, FAMILIES[name].length))
    assert (found.tree, found.unresolved) == (tree, ())


def test_every_control_is_a_different_tree() -> None:
    for plan in FAMILIES.values():
        changed = [other.tree() for _, other in wrong_plans(plan)]
        assert plan.tree() not in changed
        assert len(set(changed)) == len(changed) >= 2
        assert {tuple(each.leaves.tolist()) for each in changed} == {tuple(range(plan.length))}


def test_the_record_is_current() -> None:
    recorded = json.loads((Path(__file__).parents[2] / "records" / "probe-controls.json").read_text())
    recorded.pop("descriptors", None)
    assert survey() == recorded
    assert recorded["caught"]["experiments"] == recorded["controls"] == 56
