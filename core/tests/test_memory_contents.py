"""Memory contents for the evaluation of trees."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.counterexamples.memory_contents import (
    SAMPLES,
    ElementIndex,
    contents_elsewhere,
    contents_near_divergence,
    contents_with_special,
    with_feedback,
)
from bitwise_core.checker.counterexamples.value_distributions import special_patterns
from bitwise_core.execution.element_types import element_type

FORMS = {"X": element_type("fp32"), "H": element_type("fp16"), "N": element_type("i32"), "B": element_type("bf16")}
ELEMENTS: list[ElementIndex] = [(name, index) for name in FORMS for index in range(5)]


@pytest.mark.parametrize("seed", range(3))
def test_every_element_has_one_pattern_per_memory_content(seed: int) -> None:
    random = np.random.default_rng(seed)
    for found in (
        contents_near_divergence(ELEMENTS, FORMS, random),
        contents_elsewhere(ELEMENTS, FORMS, random, contents_near_divergence(ELEMENTS, FORMS, random)),
    ):
        assert list(found) == ELEMENTS
        for (name, _), patterns in found.items():
            assert (patterns.shape, patterns.dtype.itemsize) == ((SAMPLES,), FORMS[name].bytes)


def test_no_elements_give_no_patterns() -> None:
    random = np.random.default_rng(0)
    assert (
        contents_near_divergence([], FORMS, random)
        == contents_elsewhere([], FORMS, random, {})
        == contents_with_special([], [], FORMS, random)
        == {}
    )


def test_special_values_are_in_requested_elements_only() -> None:
    random = np.random.default_rng(1)
    special: list[ElementIndex] = [("X", 1), ("X", 3)]
    found = contents_with_special(ELEMENTS, special, FORMS, random)
    float_format = FORMS["X"].format
    assert float_format is not None
    special_values = set(special_patterns(float_format).tolist())
    hits = np.array([[int(each) in special_values for each in found[element]] for element in special])
    assert (hits.sum(axis=0) >= 1).all()
    others = [
        int(each) for element in ELEMENTS if element[0] == "X" and element not in special for each in found[element]
    ]
    assert not special_values & {each for each in others if each not in (0x3F800000, 0xBF800000)}


def test_feedback_subtracts_the_result_from_one_element() -> None:
    random = np.random.default_rng(2)
    elements: list[ElementIndex] = [("X", 0), ("X", 1), ("B", 0)]
    before = {
        ("X", 0): np.full(SAMPLES, 3, dtype=np.float32).view(np.uint32),
        ("X", 1): np.full(SAMPLES, np.inf, dtype=np.float32).view(np.uint32),
        ("B", 0): np.full(SAMPLES, 0x4040, dtype=np.uint16),
    }
    results = np.full(SAMPLES, 1.0009765625, dtype=np.float16).view(np.uint16)
    float_format = FORMS["H"].format
    assert float_format is not None
    found = with_feedback(before, results, float_format, elements, FORMS, random)
    single = found["X", 0].view(np.float32)
    assert set(single.tolist()) == {3.0, 1.9990234375}
    assert (found["X", 1] == before["X", 1]).all()
    assert set(found["B", 0].tolist()) == {0x4040, 0x4000}
    changed = (single != 3).astype(int) + (found["B", 0] != 0x4040)
    assert set(changed.tolist()) <= {0, 1}


def test_feedback_keeps_integers_and_creates_no_infinity() -> None:
    random = np.random.default_rng(3)
    float_format = FORMS["X"].format
    assert float_format is not None
    results = np.full(SAMPLES, -3e38, dtype=np.float32).view(np.uint32)
    before: dict[ElementIndex, np.ndarray[tuple[int, ...], np.dtype[np.uint32]]] = {
        ("X", 0): np.full(SAMPLES, 3e38, dtype=np.float32).view(np.uint32),
        ("N", 0): np.ones(SAMPLES, dtype=np.uint32),
    }
    found = with_feedback(before, results, float_format, list(before), FORMS, random)
    assert all((found[element] == before[element]).all() for element in before)
    assert with_feedback(before, results, float_format, [("N", 0)], FORMS, random) == before
