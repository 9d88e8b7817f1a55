"""The recorded facts of an sm_90 GPU agree with what the analysis takes them to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.adversary.device import Device
from bitwise_bench.hardware_facts import instruction_facts as hardware_facts
from bitwise_bench.hardware_facts.instruction_facts import (
    accumulators,
    after_zeros,
    elections,
    masks,
    step_of_zeros,
    steps,
)
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.special_registers import fixed_by_launch

RECORD = json.loads(Path(__file__).parents[2].joinpath("records/hardware-facts-sm90-h200.json").read_text())


def test_the_first_lane_of_a_mask_is_elected() -> None:
    found = RECORD["elect.sync"]
    assert found["masks"] == len(masks())
    assert found["masks that do not elect their first lane"] == 0


def test_no_number_of_a_warp_is_fixed_by_the_launch() -> None:
    for each in RECORD["warp numbers"]:
        for name in ("%warpid", "%nwarpid"):
            differ = next(count for key, count in each.items() if key.startswith(name))
            assert (2 * differ > each["threads"]) != fixed_by_launch(name)


def test_steps_of_zeros_are_those_of_the_rows() -> None:
    recorded = RECORD["steps of zeros"]
    rows = {row.name: row for row in steps()}
    assert {name.split("_")[0] for name in recorded} == {"mma.sync", "wgmma"}
    for name, found in recorded.items():
        assert found["not as the row states"] == 0, name
        # A step that keeps an accumulator changes -0 only.
        assert (found["changed"] <= 8) == rows[name].keeps_accumulator, name
        given = accumulators(rows[name], found["accumulators"])
        kept = after_zeros(rows[name], given[:1024])
        assert (kept[1024 // 8 :] == given[1024 // 8 : 1024]).all() <= rows[name].keeps_accumulator
        text, _, _ = step_of_zeros(rows[name])
        assert Ptxas.locate("sm_90a").digest(text)


class NoDevice(Device):
    """No GPU: the launches are replaced."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("changed", [0, 1])
def test_another_elected_lane_is_found(monkeypatch: pytest.MonkeyPatch, changed: int) -> None:
    lanes = np.arange(32)
    inside = (masks()[:, None] >> lanes.astype(np.uint32) & 1).astype(bool)
    first = np.argmax(inside, axis=1)[:, None]
    results = np.where(inside, 65536 + (first << 8) + (lanes == first), 0).astype(np.uint32)
    results[:changed] = 0
    monkeypatch.setattr(hardware_facts, "launched", lambda *arguments, **options: results)
    assert elections(NoDevice())["masks that do not elect their first lane"] == changed
