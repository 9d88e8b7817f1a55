"""The recorded colliding stores of an sm_90 GPU leave what the analysis takes them to leave."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bitwise_bench.adversary.device import Device
from bitwise_bench.hardware_facts import colliding_stores
from bitwise_bench.hardware_facts.colliding_stores import (
    CACHE,
    CONTROL,
    STORES,
    Form,
    differences,
    expected,
    forms,
    lanes_at_once,
    measured,
)
from bitwise_bench.hardware_facts.measured_forms import recorded_forms
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.assumptions import LOWEST_LANE
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.races.colliding_lanes import MAXIMUM_BITS
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90
from workspace import ROOT

GPU, RECORDED = recorded_forms(ROOT / "records/colliding-stores-sm90-h200.json.xz", "stores", Form)
OF_GROUP = "not the value of the lowest lane of the last group"


def test_the_lowest_lane_of_the_last_group_remains() -> None:
    """The fact of the profile of sm_90 rests on every form that the record has, and on no other."""
    assert GPU == "NVIDIA H200"
    assert "measured on an H200" in str(SM90.lowest_lane)
    recorded = {form for form, _ in RECORDED}
    assert recorded == set(forms())
    assert {(form.memory, form.store, form.lanes) for form in recorded} == set(
        product(("shared", "global"), STORES, CONTROL)
    )
    assert {form.cache for form in recorded} == set(CACHE)
    for _, row in RECORDED:
        assert row[OF_GROUP] == row["other differences"] == 0, row
        assert row["collisions"] > 500, row
        assert 8 * STORES[row["store"]][0] <= MAXIMUM_BITS
        # Wide stores show the groups: the lowest lane of the warp is not the one that remains.
        assert (row["not the lowest lane's value"] == 0) == (lanes_at_once(row["store"]) == 32), row
    assert sum(row["collisions"] for _, row in RECORDED) == 20_520_508


class NoDevice(Device):
    """No GPU: the launches are replaced."""

    def __init__(self) -> None:
        pass


def _simulated(
    device: Device, text: str, given: np.ndarray, results: np.ndarray, blocks: int, threads: int
) -> np.ndarray:
    """Stand for `launched` by an execution on bit patterns that assumes the lowest lane."""
    arguments = tuple(Argument(kind="buffer", buffer=name) for name in ("given", "found"))
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
    prepared = prepare(
        Source("k.ptx", text, launch), SM90, Options(assume=frozenset({LOWEST_LANE}), audit_contraction=False)
    )
    contents = {"given": given.view(np.uint8).ravel(), "found": results.view(np.uint8).ravel()}
    return np.asarray(simulate(prepared, contents).after["found"].view(results.dtype).reshape(results.shape))


FORMS = [
    Form("shared", "b32", "all lanes", 16, blocks=8),
    Form("shared", "v2.b8", "a predicate", 2, mixed=True, blocks=8),
    Form("shared", "v4.b16", "all lanes", 8, blocks=8),
    Form("global", "b8", "a predicate", 1, "cs", blocks=8),
    Form("global", "b64", "a predicate", 128, blocks=8),
    Form("global", "v4.b32", "all lanes", 16, mixed=True, blocks=8),
    Form("global", "v2.b64", "all lanes", 32, "L1::no_allocate", before="loads of the places", blocks=8),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_colliding_lanes_are_counted(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected of a GPU is what the analysis states; another lane's value, or none, is counted."""
    monkeypatch.setattr(colliding_stores, "launched", _simulated)
    found = measured(NoDevice(), form)
    kept, several = expected(form.blocks, form.store, form.lanes, lanes_at_once(form.store))
    assert found["collisions"] == several.sum() > 20
    assert found["not the value of the lowest lane of the last group"] == found["other differences"] == 0
    assert (found["not the lowest lane's value"] == 0) == (lanes_at_once(form.store) == 32)
    changed = np.where(several[..., None], kept ^ 1, kept)
    assert differences(changed, kept, several) == (int(several.sum()), int(several.sum()), 0)
    assert differences(kept ^ 1, kept, several)[2] == (~several).sum()
