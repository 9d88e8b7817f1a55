"""Quotients of short integers: what their kernels are expected to leave is what the instructions one by one compute."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bitwise_bench.assembler import short_quotients
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry

COUNT = 1 << 10


@pytest.mark.parametrize("variant", random.Random(4).sample(list(short_quotients.variants()), 12))
def test_expected_numbers_are_those_of_the_instructions(variant: tuple[str, str, int, int]) -> None:
    arch = registry.default().arch("sm_90")
    buffers = [{"buffer": each, "dtype": "i32", "elements": COUNT} for each in ("a", "b")]
    launch = Launch.model_validate(
        {"file": "quotients.ptx", "entry": "quotients", "grid": [COUNT // 256, 1, 1], "block": [256, 1, 1]}
        | {"args": buffers}
    )
    numbers = np.arange(COUNT, dtype=np.int64)
    if variant[0] != "the number of a thread" and "sum" not in variant[1]:
        numbers = 31 * numbers
    contents = {"a": numbers.astype(np.int32).view(np.uint8), "b": np.zeros(4 * COUNT, dtype=np.uint8)}
    prepared = prepare_launch(arch.parse(short_quotients.text(*variant), "quotients.ptx"), arch, launch)
    found = simulate(prepared, contents).after["b"].view(np.int32)
    assert np.array_equal(found, short_quotients.expected(numbers, *variant[1:]))
