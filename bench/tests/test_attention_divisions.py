"""The times of divisions of few rows of attention, and the choices that are fitted to them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bitwise_bench.attention.__main__ import _numbers
from bitwise_bench.attention.divisions import DIVISIONS, division_of_text, divisions_of
from bitwise_bench.attention.fitting import BRANCH, Measured, choices_of, fitted, module_of
from bitwise_bench.attention.races import CASES, calls
from bitwise_nvidia_sm90.attention import few_rows_choices
from bitwise_nvidia_sm90.attention.few_rows import Choices, Division, Work, division_of

RECORD = Path(__file__).parents[2] / "records/attention-divisions-sm90-h200.json"
SPLIT, WHOLE, OTHER = Division(True, 1, 2, 3), Division(False, 1, 1, 6), Division(False, 4, 1, 1)


def cases(*of: tuple[int, int, dict[Division, float]]) -> list[Measured]:
    return [Measured(Work(rows, keys, 4, 128, 128, False), seconds) for rows, keys, seconds in of]


def chosen(choice: Any, rows: int, keys: int) -> Division:
    choices = Choices(choice, choice, choice, choice)
    return division_of(Work(rows, keys, 4, 128, 128, False), 132, choices)


def test_a_choice_follows_what_decides_the_times() -> None:
    """Few rows are faster divided, and many rows whole."""
    measured = cases(
        *((rows, keys, {SPLIT: 1.0, WHOLE: 2.0}) for rows in (4, 20, 50) for keys in (2000, 9000)),
        *((rows, keys, {SPLIT: 1.5, WHOLE: 1.0}) for rows in (300, 800, 2000) for keys in (2000, 9000)),
    )
    loss, choice = fitted(measured, 2)
    assert loss == BRANCH
    for rows in (1, 60):
        assert chosen(choice, rows, 30000) == SPLIT
    for rows in (250, 5000):
        assert chosen(choice, rows, 600) == WHOLE


def test_a_single_case_makes_no_branch() -> None:
    measured = cases(
        *((rows, 3000, {SPLIT: 1.0, WHOLE: 1.3}) for rows in range(10, 20)), (900, 3000, {SPLIT: 3.0, WHOLE: 1.0})
    )
    assert fitted(measured, 2)[1] == SPLIT


def test_a_division_that_was_timed_in_few_cases_is_not_chosen() -> None:
    few = [(rows, 3000, {SPLIT: 1.0, WHOLE: 1.1} | ({OTHER: 0.5} if rows < 12 else {})) for rows in range(10, 20)]
    assert fitted(cases(*few), 0)[1] == SPLIT


def test_rows_of_one_chunk_are_not_divided() -> None:
    measured = cases(*((rows, 700, {SPLIT: 1.0, WHOLE: 1.2, OTHER: 1.3}) for rows in range(10, 16)))
    measured += [Measured(Work(9, 700, 4, 128, 128, True), each.seconds) for each in measured]
    found = choices_of(measured)
    assert (found["equal"], found["equal_chunk"]) == (SPLIT, WHOLE)
    assert (found["ragged"], found["ragged_chunk"]) == (SPLIT, WHOLE)


def test_the_choices_are_those_of_the_record() -> None:
    assert Path(few_rows_choices.__file__).read_text() == module_of(json.loads(RECORD.read_text()))


def test_divisions_that_are_measured_are_distinct() -> None:
    for texts in DIVISIONS.values():
        found = [division_of_text(each) for each in texts]
        assert len(set(found)) == len(texts)
        assert {each.split for each in found} == {False, True}


def test_every_division_of_a_case_is_repeated_under_load() -> None:
    repeated = {(str(case), text) for _, case, text, _ in calls()}
    assert len(repeated) == sum(len(divisions_of(dict(case))) for _, case in CASES)
    assert {ordered for kind, _, _, ordered in calls() if kind == "uneven"} == {False, True}


def test_configurations_are_numbers_and_ranges() -> None:
    assert _numbers("3,5-7") == [3, 5, 6, 7]


def test_a_loss_is_the_logarithm_over_the_fastest_division() -> None:
    (measured,) = cases((9, 3000, {SPLIT: 1.0, WHOLE: 1.5}))
    assert measured.loss(SPLIT) == 0
    assert measured.loss(WHOLE) == math.log(1.5)
    assert measured.loss(OTHER) is None
