"""The times of divisions of few rows of attention, and the numbers that are fitted to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitwise_bench.attention.__main__ import _numbers
from bitwise_bench.attention.divisions import divisions_of
from bitwise_bench.attention.fitting import Measured, bare, chosen_divisions, described, expected, fit, regret
from bitwise_bench.attention.races import CASES, calls
from bitwise_nvidia_sm90.attention.few_rows import DEVICES, Division, Work

WORKS = [Work(rows, keys, 4, 128, 128, False) for rows in (8, 40, 130, 250, 600) for keys in (700, 3000, 9000, 40000)]
"""Shapes of decoding."""


@pytest.mark.parametrize("kind", [{}, {"once": True}, {"alone": True, "once": True}])
def test_numbers_of_a_division_are_found_from_its_times(kind: dict[str, bool]) -> None:
    division = Division(True, 1, 2, 3, 1, 30.0, 0.95, 1.0, **kind)
    found = fit(bare(division), [(work, expected(work, division)) for work in WORKS])
    for work in WORKS:
        assert 0.97 < expected(work, found) / expected(work, division) < 1.03


def test_fitted_tables_choose_as_the_times_they_are_fitted_to() -> None:
    device = DEVICES[128]
    cases = [Measured(work, {bare(each): expected(work, each) for each in device.equal}, 1.0) for work in WORKS]
    kept = chosen_divisions(device, False, cases)
    assert regret(device, kept, False, cases) < 1.01


def test_divisions_that_are_measured_are_distinct_and_have_a_text() -> None:
    for depth in DEVICES:
        case = {"depth": depth, "heads": 8, "groups": 2, "batch": 1, "keys": 9000}
        found = divisions_of(case)
        assert len({replace(each, rate=0.0, share=0.0, start=0.0) for each in found}) == len(found)
        assert all(described(each).startswith("Division(_") for each in found)


def test_every_division_of_a_case_is_repeated_under_load() -> None:
    places = {(str(case), place) for _, case, place in calls()}
    assert len(places) == sum(len(divisions_of(case)) for _, case in CASES)


def test_configurations_are_numbers_and_ranges() -> None:
    assert _numbers("3,5-7") == [3, 5, 6, 7]
