"""Covering sets have every pair of values that all cases have, and no case whose pairs the others have."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import pytest

from covering import covering, covering_params, pairs_of, rows_of

PARAMETERS = {
    "rows": (64, 128),
    "packed": (False, True),
    "mask": ("none", "causal", "window"),
    "type": ("bf16", "fp16"),
}


def drawn(seed: int) -> list[dict[str, Any]]:
    """Return some combinations of values, of which some are not there and some are there twice."""
    rows, draw = list(rows_of(PARAMETERS)), Random(seed)
    return [draw.choice(rows) for _ in range(draw.randrange(1, 40))]


@pytest.mark.parametrize("seed", range(20))
def test_every_pair_of_values_is_covered_and_no_case_is_superfluous(seed: int) -> None:
    cases = drawn(seed)
    places = covering(cases, [1 + place % 3 for place in range(len(cases))])
    wanted = {pair for each in cases for pair in combinations(sorted(each.items()), 2)}
    assert {pair for place in places for pair in combinations(sorted(cases[place].items()), 2)} == wanted
    for left_out in places:
        others = {pair for place in places if place != left_out for pair in pairs_of(cases[place])}
        assert others != wanted


def test_a_product_of_parameters_is_covered_by_few_rows() -> None:
    rows = list(rows_of(PARAMETERS))
    assert len(rows) == 24
    assert 6 <= len(covering(rows)) <= 8


def test_of_cases_with_the_same_pairs_the_cheaper_one_is_taken() -> None:
    assert covering([{"a": 1, "b": 2}, {"a": 1, "b": 2}], [3, 1]) == [1]
    assert covering([{"a": 1}, {"a": 1}, {"a": 2}]) == [0, 2]


def test_the_other_cases_are_exhaustive() -> None:
    found = covering_params([1, 2, 3], lambda case: {"odd": case % 2})
    assert [[mark.name for mark in each.marks] for each in found] == [[], [], ["exhaustive"]]
    assert [each.values for each in found] == [(1,), (2,), (3,)]
