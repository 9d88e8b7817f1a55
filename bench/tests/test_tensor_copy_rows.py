"""The simulation puts the rows of tensor copies where a GPU has put them, and refuses what it does not execute."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.hardware_facts.tensor_copy_rows import OUTPUT, SPANS, Configuration, given, launch, text, units
from bitwise_core.api import run
from bitwise_core.execution.domains.domain import Unsupported

COPIES = json.loads(Path(__file__).parents[2].joinpath("records/tensor-copy-rows-sm90-h200.json").read_text())["copies"]
NARROW = [each for each in COPIES if "units" in each and each["mode"] and 4 * each["width"] < SPANS[each["mode"]]]
ILLEGAL = [each for each in COPIES if "units" not in each]


def configuration(each: dict[str, int]) -> Configuration:
    return Configuration(**{field.name: each[field.name] for field in fields(Configuration)})


def simulated(of: Configuration) -> list[int]:
    buffers = {"out": np.zeros(OUTPUT // 4, np.uint32), "in": given()}
    return units(run(text(of), buffers, launch(), target="sm_90", audit_contraction=False)["out"], of)


@pytest.mark.parametrize("number", range(0, len(COPIES), 9))
def test_rows_are_where_the_gpu_has_put_them(number: int) -> None:
    each = (NARROW + COPIES)[number]
    if "units" in each:
        assert simulated(configuration(each)) == each["units"]


def test_copies_that_the_gpu_does_not_execute_have_no_result() -> None:
    assert all(each["store"] and (each["x"] < 0 or each["y"] < 0) for each in ILLEGAL)
    with pytest.raises(Unsupported, match="negative coordinate"):
        simulated(configuration(ILLEGAL[0]))


def test_short_rows_in_each_mode_are_recorded() -> None:
    assert {(each["mode"], each["width"]) for each in NARROW} == {(1, 4), (2, 4), (2, 8), (3, 4), (3, 8), (3, 16)}
