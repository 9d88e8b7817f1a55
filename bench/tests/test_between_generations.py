"""The table of kernels that keep their bits between two generations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.readings import between_generations as table

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "records" / "bits-sm90-sm100.json"


def test_the_page_is_that_of_the_record() -> None:
    assert (ROOT / "docs" / "blackwell.md").read_text() == table.page(json.loads(RECORD.read_text()))


def test_every_configuration_has_one_of_the_results() -> None:
    entries = json.loads(RECORD.read_text())["configurations"]
    assert sum(table.summary(entries).values()) == len(entries)
    assert all(each["draws"] for each in entries if each["result"] == table.DIFFERENT)
    assert all("why" in each for each in entries if each["result"] in (table.OPEN, table.UNKNOWN))


@pytest.mark.parametrize(
    ("family", "result"), [("row_sum", table.EQUAL), ("gemm_fp8e4nv", table.DIFFERENT), ("softmax_row", table.OPEN)]
)
def test_a_configuration_is_compared_and_executed(family: str, result: str) -> None:
    (name,) = table.chosen_ids(("sm_90", "sm_100"), 1, [family])
    entry = next(each for each in json.loads(RECORD.read_text())["configurations"] if each["id"] == name)
    found = table._job((name, ("sm_90", "sm_100")))
    assert found["result"] == entry["result"] == result
