"""The recorded accesses of warps of an sm_90 GPU took effect in program order, in every form that the analysis uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitwise_bench.hardware_facts.measured_forms import recorded_forms
from bitwise_bench.hardware_facts.warp_order import (
    BEFORE,
    GUARDS,
    LOADS,
    ROUNDS,
    STORES,
    Form,
    expected,
    forms,
    given_bytes,
    numbers,
    text,
)
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.determined_runs import simulate_in_one_order
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_ptx.machine_code import access_order
from bitwise_nvidia_sm90.architecture import SM90
from workspace import ROOT

GPU, RECORDED = recorded_forms(ROOT / "records/warp-order-sm90-h200.json.xz", "forms", Form)


def test_accesses_took_effect_in_program_order() -> None:
    """The fact of the profile of sm_90 rests on every form that the record has, and on no other."""
    assert GPU == "NVIDIA H200"
    assert "measured on an H200" in str(SM90.warp_order)
    recorded = {form for form, _ in RECORDED}
    assert recorded == set(forms())
    assert {form.load_cache for form in recorded} == {*access_order.LOADS, ""} == set(LOADS)
    assert {form.store_cache for form in recorded} == {*access_order.STORES, ""} == set(STORES)
    assert {(form.before, form.guard) for form in recorded} == {(one, other) for one in BEFORE for other in GUARDS}
    for _, row in RECORDED:
        assert row["against program order"] == 0, row
        assert row["loads"] == 2 * ROUNDS * row["threads"] >= 12 * 2048, row


FORMS = (
    Form("b32", "b32", 4),
    Form("b8", "v4.b32", 16, before="a late address", guard="some lanes load"),
    Form("v4.b32", "b16", 32, before="a late value", guard="some lanes store"),
    Form("b64", "b64", 8, "cg", "wt", "warm places", warps=2),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_is_expected_is_what_an_execution_in_order_leaves(form: Form) -> None:
    small = replace(form, blocks=2)
    arguments = (Argument(kind="buffer", buffer="given"), Argument(kind="buffer", buffer="found"))
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(32 * form.warps, 1, 1), args=arguments)
    contents = {"given": given_bytes(small).view(np.uint8), "found": np.zeros(256 * form.warps, dtype=np.uint8)}
    done = simulate_in_one_order(prepare_launch(SM90.parse(text(small), "k.ptx"), SM90, launch), contents)
    assert (done.after["found"].view(np.uint32).reshape(-1, 32) == expected(small)).all()


def test_another_order_leaves_something_else() -> None:
    """Nearly every thread would show a store that takes effect before the load that precedes it, or after the next."""
    form = replace(FORMS[0], blocks=2)
    body = text(form)
    launch = Launch(
        file="k.ptx",
        entry="k",
        grid=(2, 1, 1),
        block=(32, 1, 1),
        args=(Argument(kind="buffer", buffer="given"), Argument(kind="buffer", buffer="found")),
    )
    rows = body.splitlines()
    stores = [place for place, row in enumerate(rows) if row.startswith("st.global") and "[%d5]" not in row]
    for place in stores:
        loads = [other for other in range(place - 1, 0, -1) if rows[other].startswith("ld.global")]
        rows[place], rows[loads[0]] = rows[loads[0]], rows[place]
    contents = {"given": given_bytes(form).view(np.uint8), "found": np.zeros(256, dtype=np.uint8)}
    other = "\n".join(rows)
    done = simulate_in_one_order(prepare_launch(SM90.parse(other, "k.ptx"), SM90, launch), contents)
    differing = done.after["found"].view(np.uint32).reshape(-1, 32) != expected(form)
    assert differing.mean() > 0.9
    assert numbers(2).shape == (2, 32)
