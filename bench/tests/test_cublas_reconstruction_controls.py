"""Random descriptors reconstructed, and the record of all families with their controls."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.cublas.orders.reconstruction_controls import FAMILIES, TESTS, _bytes, _caught, _draws, _wrong, read
from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Group
from bitwise_core.plugins import registry
from bitwise_core.probing.reconstruction import same_computation

UNITS = registry.default().matrix_units
RECORD = Path(__file__).parents[2] / "records" / "probe-controls.json"


@pytest.mark.parametrize(
    "family", ["single accumulator", "slices, parts of the output's type, from zero", "slices that drop a tail"]
)
def test_a_random_descriptor_is_reconstructed_and_wrong_ones_are_rejected(family: str) -> None:
    row = read((family, 0))
    assert row["outcome"] == "equal"
    assert row["controls"]
    for control in row["controls"]:
        assert any(control[test] for test in TESTS)


@pytest.mark.parametrize("family", FAMILIES)
def test_controls_compute_something_else(family: str) -> None:
    count = 0
    for seed in range(2):
        source = random.Random(f"{family}:{seed}")
        desc = FAMILIES[family](source)
        for change, wrong in _wrong(desc, source):
            caught = _caught(desc, change, wrong)
            assert any(caught[test] for test in TESTS), change
            assert wrong.k == desc.k
            count += 1
    assert count


def variants(desc: GEMMDesc) -> list[GEMMDesc]:
    """Descriptors with other text, some of which are equivalent."""
    changes: list[dict[str, Any]] = [{"use_fast_accum": False}, {"path": "mul_add"}]
    changes.append({"k_loop_step": None, "short_iteration": "last"})
    zero = Cut(count=1, start="zero")
    changes += [{"k_cuts": (*desc.k_cuts[:place], zero, *desc.k_cuts[place:])} for place in range(len(desc.k_cuts) + 1)]
    for place, cut in enumerate(desc.k_cuts):
        for change in (
            {"start": "zero"}, {"start": "first"}, {"count": (cut.count or 3) + 1}, {"merge": "chain"},
            {"merge": "chain-down"}, {"merge_dtype": "fp32"}, {"groups": (Group(count=2),)},
        ):  # fmt: skip
            try:
                other = Cut(**{**{name: getattr(cut, name) for name in Cut.model_fields}, **change})
            except DescriptorError:
                continue
            changes.append({"k_cuts": (*desc.k_cuts[:place], other, *desc.k_cuts[place + 1 :])})
    found = []
    for change in changes:
        try:
            found.append(GEMMDesc(**{**{name: getattr(desc, name) for name in GEMMDesc.model_fields}, **change}))
        except DescriptorError:
            continue
    return [each for each in found if each != desc]


@pytest.mark.parametrize("family", [name for name in FAMILIES if not name.startswith("fp8")])
def test_equivalent_descriptors_return_the_same_bytes(family: str) -> None:
    count = 0
    for seed in range(2):
        desc = FAMILIES[family](random.Random(f"{family}:variants {seed}"))
        alike = [each for each in variants(desc) if same_computation(each, desc, UNITS)]
        count += len(alike)
        for _, a, b in _draws(desc, 3, 2) if alike else ():
            assert {_bytes(each, a, b) for each in alike} == {_bytes(desc, a, b)}
    assert count


def test_every_family_is_recorded_without_a_wrong_reconstruction() -> None:
    recorded = json.loads(RECORD.read_text())["descriptors"]
    assert set(recorded["families"]) == set(FAMILIES)
    assert set(recorded["outcomes"]) <= {"equal", "undecided"}
    for found in recorded["families"].values():
        assert sum(found["outcomes"].values()) == found["descriptors"]
        assert found["caught"]["experiments"] <= found["caught"]["any"] <= found["controls"]
    assert recorded["controls"] == sum(found["controls"] for found in recorded["families"].values())
