"""The scalar loop of the benchmark gives the results of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitwise_bench.matrix_units import throughput
from bitwise_bench.matrix_units.throughput import ROWS, measure, operands, scalar_element
from bitwise_core.numerics.mma import FusedSum, multiply_accumulate
from bitwise_core.plugins import registry

UNITS = registry.default().matrix_units


@pytest.mark.parametrize("name", ROWS)
def test_the_scalar_loop_has_the_bits_of_the_row(name: str) -> None:
    spec = UNITS[name]
    a, b, _ = operands(spec, 3, 4, 2 * spec.k)
    generator = np.random.default_rng(1)
    c = generator.standard_normal((3, 4)).astype(np.float32).view(np.uint32)
    expected = multiply_accumulate(spec, a, b, c)
    found = [[scalar_element(spec, a[i].tolist(), b[:, j].tolist(), int(c[i, j])) for j in range(4)] for i in range(3)]
    assert found == expected.tolist()


def test_a_loop_with_other_arithmetic_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("M", 8), ("N", 8), ("K", 64)):
        monkeypatch.setattr(throughput, name, value)
    monkeypatch.setattr(throughput.operands, "__defaults__", (8, 8, 64))
    spec = UNITS[ROWS[0]]
    assert set(measure(spec, 1)) == {"multiply_adds", "plain_loop", "ratio"}
    assert isinstance(spec.arithmetic, FusedSum)
    other = replace(spec, arithmetic=replace(spec.arithmetic, fraction_bits=23))
    monkeypatch.setattr(throughput, "multiply_accumulate", lambda _, *given: multiply_accumulate(other, *given))
    with pytest.raises(ValueError, match="the scalar loop and the row give different bits"):
        measure(spec, 1)
