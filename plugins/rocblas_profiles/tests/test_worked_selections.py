"""The 200 worked selections: kernel, distance, and the order of the sum that follows."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_rocblas_profiles.describe import describe, types_of
from bitwise_rocblas_profiles.errors import Declined
from bitwise_rocblas_profiles.libraries import DEVICES, Library, libraries
from bitwise_rocblas_profiles.problem import Call
from bitwise_rocblas_profiles.selection import Selected

WORKED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "worked_selections.json").read_text())


def library_of(worked: dict[str, Any]) -> Library:
    return libraries()[("rocblas", "6.2") if worked["library"] == "rocBLAS" else ("hipblaslt", "2024-10")]


def call_of(worked: dict[str, Any]) -> Call:
    a, b = (each == "T" for each in worked["transposes"])
    file = next(
        file
        for file in library_of(worked).table.files
        if file.tag == worked["types"] and (file.problem["TransposeA"], file.problem["TransposeB"]) == (a, b)
    )
    types = types_of(file.problem)
    return Call(
        worked["m"], worked["n"], worked["k"], types.a, types.b, types.d, types.compute, a, b, worked["batch"],
        multiplied=types.multiplied, workspace=worked["workspace"],
    )  # fmt: skip


def selected(worked: dict[str, Any]) -> Selected:
    device = DEVICES["MI300A" if worked["device"] == "MI300A" else "MI300X"]
    types = None if worked["library"] == "rocBLAS" else worked["types"]
    return library_of(worked).select(call_of(worked), device, types)


def test_there_are_two_hundred() -> None:
    assert len(WORKED) == len({each["id"] for each in WORKED}) == 200


def test_how_many_are_described() -> None:
    reasons = Counter[str]()
    for worked in WORKED:
        found = selected(worked)
        try:
            describe(found.solution, found.file, call_of(worked), "N")
        except Declined as error:
            reasons[error.reason] += 1
    assert reasons == {"vector ALU": 4, "stochastic rounding": 4, "direct to registers": 2}


@pytest.mark.parametrize("worked", WORKED, ids=lambda each: str(each["id"]))
def test_the_selected_kernel_and_its_order(worked: dict[str, Any]) -> None:
    found = selected(worked)
    row = found.row
    assert found.file.path.endswith(worked["file"])
    assert (found.number, [row.m, row.n, row.batch, row.k]) == (worked["solution"], worked["row"])
    assert found.distance == worked["distance"]
    with suppress(Declined):
        desc = describe(found.solution, found.file, call_of(worked), "N")
        check_order(desc, worked["derived"], found.solution.bits, call_of(worked))


def check_order(desc: GEMMDesc, derived: dict[str, Any], bits: Any, call: Call) -> None:
    """Compare a descriptor with the order that was worked out."""
    depth, count, tail = bits["DepthU"], derived["iterations"], derived["tail"]
    assert desc.k == count * depth + tail
    assert desc.instruction is not None
    assert desc.instruction.k == int(derived["instruction"].split("x")[2])
    assert bool(desc.iteration_permutation) == (derived["k_permute"] > 1 and count > 0)
    cuts = list(desc.k_cuts)
    outer = derived.get("outer_cut")
    if outer is not None:
        cut = cuts.pop(0)
        assert (cut.count, cut.tile) == (outer["count"], depth)
        assert (cut.layout, cut.start) == (
            outer["layout"], "first" if bits["GlobalSplitUAlgorithm"] == "MultipleBufferSingleKernel" else "zero",
        )  # fmt: skip
        parts = [len(part) for part in cut.parts(desc.positions())]
        wanted = [each * depth for each in outer["slice_iterations"]]
        if desc.tail is None and tail:
            wanted[outer["tail_owner"]] += tail
        assert parts == wanted
        if desc.tail is not None:
            assert desc.tail.shares[0].part == outer["tail_owner"]
    inner = derived.get("inner_cut")
    assert len(cuts) == (inner is not None)
    if inner is not None:
        block = desc.instruction.k * (derived["k_permute"] if count else 1)
        assert cuts == [Cut(layout="strided", count=inner["count"], tile=block)]
    check_rotation(desc, derived.get("rotation"), bits, call)


def check_rotation(desc: GEMMDesc, rotation: Any, bits: Any, call: Call) -> None:
    found = desc.iteration_rotation
    if rotation is None or not rotation["mask"]:
        assert found is None
        return
    if "tiles" in rotation:  # rocBLAS
        assert (found is not None) == rotation["in_effect"]
        axis = "columns" if rotation["mapping"] == 1 else "rows"
    else:
        axis = "rows" if rotation["mapping"] else "columns"
        size, tile = (call.m, bits["MacroTile0"]) if axis == "rows" else (call.n, bits["MacroTile1"])
        assert (found is not None) == (size > tile)
    if found is not None:
        tile = bits["MacroTile0" if axis == "rows" else "MacroTile1"]
        assert (found.axis, found.period, found.step, found.tile) == (
            axis, rotation["mask"] + 1, 1 << rotation["shift"], tile,
        )  # fmt: skip
        assert not found.halved
