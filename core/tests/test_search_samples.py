"""Contents of memory for trees: every element has patterns, special ones where they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.counterexamples.memory_contents import SAMPLES, Place, elsewhere, fed_back, near, with_special
from bitwise_core.checker.counterexamples.value_distributions import telling_patterns
from bitwise_core.execution.buffers import element_type

FORMS = {"X": element_type("fp32"), "H": element_type("fp16"), "N": element_type("i32"), "B": element_type("bf16")}
PLACES: list[Place] = [(name, index) for name in FORMS for index in range(5)]


@pytest.mark.parametrize("seed", range(3))
def test_every_element_has_a_pattern_in_every_content(seed: int) -> None:
    random = np.random.default_rng(seed)
    for found in (near(PLACES, FORMS, random), elsewhere(PLACES, FORMS, random, near(PLACES, FORMS, random))):
        assert list(found) == PLACES
        for (name, _), patterns in found.items():
            assert (patterns.shape, patterns.dtype.itemsize) == ((SAMPLES,), FORMS[name].bytes)


def test_no_elements() -> None:
    random = np.random.default_rng(0)
    assert near([], FORMS, random) == elsewhere([], FORMS, random, {}) == with_special([], [], FORMS, random) == {}


def test_special_values_lie_where_they_are_asked_for() -> None:
    random = np.random.default_rng(1)
    special: list[Place] = [("X", 1), ("X", 3)]
    found = with_special(PLACES, special, FORMS, random)
    described = FORMS["X"].format
    assert described is not None
    telling = set(telling_patterns(described).tolist())
    hits = np.array([[int(each) in telling for each in found[place]] for place in special])
    assert (hits.sum(axis=0) >= 1).all()
    others = [int(each) for place in PLACES if place[0] == "X" and place not in special for each in found[place]]
    assert not telling & {each for each in others if each not in (0x3F800000, 0xBF800000)}


def test_a_result_is_taken_from_one_element() -> None:
    random = np.random.default_rng(2)
    places: list[Place] = [("X", 0), ("X", 1), ("B", 0)]
    before = {
        ("X", 0): np.full(SAMPLES, 3, dtype=np.float32).view(np.uint32),
        ("X", 1): np.full(SAMPLES, np.inf, dtype=np.float32).view(np.uint32),
        ("B", 0): np.full(SAMPLES, 0x4040, dtype=np.uint16),
    }
    results = np.full(SAMPLES, 1.0009765625, dtype=np.float16).view(np.uint16)
    described = FORMS["H"].format
    assert described is not None
    found = fed_back(before, results, described, places, FORMS, random)
    single = found["X", 0].view(np.float32)
    assert set(single.tolist()) == {3.0, 1.9990234375}
    assert (found["X", 1] == before["X", 1]).all()
    assert set(found["B", 0].tolist()) == {0x4040, 0x4000}
    changed = (single != 3).astype(int) + (found["B", 0] != 0x4040)
    assert set(changed.tolist()) <= {0, 1}


def test_nothing_is_taken_from_integers_and_no_infinity_is_made() -> None:
    random = np.random.default_rng(3)
    described = FORMS["X"].format
    assert described is not None
    results = np.full(SAMPLES, -3e38, dtype=np.float32).view(np.uint32)
    before: dict[Place, np.ndarray[tuple[int, ...], np.dtype[np.uint32]]] = {
        ("X", 0): np.full(SAMPLES, 3e38, dtype=np.float32).view(np.uint32),
        ("N", 0): np.ones(SAMPLES, dtype=np.uint32),
    }
    found = fed_back(before, results, described, list(before), FORMS, random)
    assert all((found[place] == before[place]).all() for place in before)
    assert fed_back(before, results, described, [("N", 0)], FORMS, random) == before
