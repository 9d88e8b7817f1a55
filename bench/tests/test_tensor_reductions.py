"""The recorded reductions of tensor copies are the operations by which the analysis models them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.hardware_facts.tensor_reductions import ELEMENTS, cases, compared, is_nan, operands
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.opcodes.copies.tensor_copy import name_of_reduction

RECORD = Path(__file__).parents[2].joinpath("records/tensor-reductions-sm90-h200.json")


def test_every_modelled_reduction_was_measured_without_a_difference() -> None:
    found = json.loads(RECORD.read_text())["reductions"]
    assert found == {f"{verb} {kind}": {"elements": ELEMENTS, "different": 0} for verb, kind in cases()}


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_floats_are_of_every_kind(kind: str) -> None:
    given, before = operands(kind, 0), operands(kind, 1)
    top, fraction = {"f32": (31, 23), "f16": (15, 10), "bf16": (15, 7)}[kind]
    small = (given & given.dtype.type((1 << top) - 1)) < 1 << fraction
    assert min(small.sum(), is_nan(kind, given).sum(), (small & ~is_nan(kind, before)).sum()) > 10_000


def test_another_result_is_counted() -> None:
    given, before = operands("f32", 0), operands("f32", 1)
    found = operation(name_of_reduction("add", "f32")).evaluate(before, given)
    assert compared("add", "f32", given, before, found)["different"] == 0
    flushed = operation("add.rn.ftz.atomic.fp32").evaluate(before, given)
    assert compared("add", "f32", given, before, flushed)["different"] > 1000
    other = np.where(is_nan("f32", found), found.dtype.type(0x7FC00001), found)
    assert compared("add", "f32", given, before, other)["different"] == 0
    other[is_nan("f32", found)] = 0
    assert compared("add", "f32", given, before, other)["different"] == is_nan("f32", found).sum()
