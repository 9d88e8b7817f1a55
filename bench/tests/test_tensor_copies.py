"""The recorded copies of every element type agree with what the analysis takes them to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.hardware_facts.tensor_copies import TYPES, patterns
from bitwise_nvidia_ptx.opcodes.copies.tensor_maps import ELEMENT_BYTES, ROUNDED_ELEMENTS

CODES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
)  # fmt: skip
"""The types in the order of their codes in `tensormap.replace`, from the PTX ISA."""
RECORD = json.loads(Path(__file__).parents[2].joinpath("records/tensor-copies-sm90-h200.json").read_text())["types"]


@pytest.mark.parametrize(("code", "name"), list(enumerate(CODES)))
def test_types_that_are_modelled_keep_all_bits(code: int, name: str) -> None:
    assert (code in ELEMENT_BYTES) != (code in ROUNDED_ELEMENTS)
    assert set(CODES) == set(TYPES)
    found = RECORD[name]
    assert all(each["elements"] == (1 << 20) // TYPES[name] for each in found.values())
    assert found["store"]["changed"] == 0
    assert (found["load"]["changed"] > 0) == (code in ROUNDED_ELEMENTS)
    assert ELEMENT_BYTES.get(code, 4) == TYPES[name]


def test_patterns_are_of_every_kind() -> None:
    words = patterns(4)
    magnitude = words & np.uint32(0x7FFFFFFF)
    assert all(each.sum() > 1000 for each in (magnitude > 0x7F800000, magnitude < 0x800000, magnitude == magnitude))
    assert {int(each) for each in patterns(2)} == set(range(1 << 16))
