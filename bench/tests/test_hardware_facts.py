"""The recorded facts of an sm_90 GPU agree with what the analysis takes them to be."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench import hardware_facts
from bitwise_bench.adversary.device import Device
from bitwise_bench.hardware_facts import (
    COLLIDING_STORES,
    accumulators,
    after_zeros,
    colliding_text,
    collisions_given,
    differences,
    elections,
    lanes_at_once,
    masks,
    of_lowest_lanes,
    step_of_zeros,
    steps,
)
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.assumptions import LOWEST_LANE
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.races.colliding_lanes import MAXIMUM_BITS
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_ptx.assembler import Ptxas
from bitwise_nvidia_ptx.special_registers import fixed_by_launch
from bitwise_nvidia_sm90.architecture import SM90

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


def test_the_lowest_lane_of_the_last_group_remains() -> None:
    recorded = RECORD["colliding lanes"]
    assert {(each["memory"], each["store"]) for each in recorded} == set(
        product(("shared", "global"), COLLIDING_STORES)
    )
    for each in recorded:
        assert each["collisions"] > 9000
        assert each["other differences"] == 0
        assert 8 * COLLIDING_STORES[each["store"]][0] <= MAXIMUM_BITS
        group = lanes_at_once(each["store"])
        assert each["lanes of a group"] == group
        assert (each["not the lowest lane's value"] == 0) == (group == 32), each
        assert each["not the value of the lowest lane of the last group"] == 0


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


def _simulated(text: str, given: np.ndarray, results: np.ndarray, blocks: int, threads: int) -> np.ndarray:
    """Stand for `launched` by an execution on bit patterns that assumes the lowest lane."""
    arguments = tuple(Argument(kind="buffer", buffer=name) for name in ("given", "found"))
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
    prepared = prepare(
        Source("k.ptx", text, launch), SM90, Options(assume=frozenset({LOWEST_LANE}), audit_contraction=False)
    )
    contents = {"given": given.view(np.uint8).ravel(), "found": results.view(np.uint8).ravel()}
    return np.asarray(simulate(prepared, contents).after["found"].view(results.dtype).reshape(results.shape))


def test_the_last_group_of_lanes_decides() -> None:
    """The recorded numbers of wide stores are those of groups that store one after another, each its lowest lane's."""
    words = collisions_given(512, 128)
    for each in RECORD["colliding lanes"]:
        if each["store"] not in ("b64", "v4.b32"):
            continue
        lowest, several = of_lowest_lanes(words, each["store"], each["lanes"])
        grouped, _ = of_lowest_lanes(words, each["store"], each["lanes"], lanes_at_once(each["store"]))
        # Slots of two distances were measured with the same words.
        assert 2 * differences(grouped, lowest, several)[1] == each["not the lowest lane's value"]


@pytest.mark.parametrize("control", ["all lanes", "a predicate"])
@pytest.mark.parametrize("space", ["shared", "global"])
def test_colliding_lanes_are_counted(space: str, control: str) -> None:
    """What is expected of a GPU is what the analysis assumes; another lane's value, or none, is counted."""
    blocks, threads, stride = 8, 128, 16
    words = collisions_given(blocks, threads)
    given = np.concatenate([words.ravel(), np.zeros(blocks * threads * stride // 4, np.uint32)])
    empty = np.zeros((blocks, threads, 4), np.uint32)
    seen = _simulated(colliding_text(space, "b32", control, stride), given, empty, blocks, threads)
    expected, several = of_lowest_lanes(words, "b32", control)
    assert several.sum() > 20
    assert differences(seen, expected, several) == (int(several.sum()), 0, 0)
    changed = np.where(several[..., None], expected ^ 1, expected)
    assert differences(changed, expected, several) == (int(several.sum()), int(several.sum()), 0)
    assert differences(expected ^ 1, expected, several)[2] == (~several).sum()
