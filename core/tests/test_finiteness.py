"""The finiteness assumption: operations that violate it, and operations that only propagate infinities and NaNs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution.domains.bits import lanewise
from bitwise_core.execution.finite_patterns import not_finite
from bitwise_core.execution.values.floats.finiteness import makes_non_finite, mma_makes_non_finite
from bitwise_core.numerics import FLOAT_FORMATS, operation
from bitwise_core.numerics.mma import multiply_accumulate
from bitwise_core.numerics.mma.spec import MmaSpec

INFINITY, MINUS, NAN, LARGEST, ONE, ZERO = 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x3F800000, 0


def lanes(*patterns: int, bits: int = 32) -> npt.NDArray[np.unsignedinteger]:
    return np.array(patterns, dtype=f"uint{bits}")


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("add.rn.fp32", (LARGEST, LARGEST), True),
        ("add.rn.fp32", (LARGEST, ONE), False),
        ("add.rn.fp32", (INFINITY, ONE), False),
        ("add.rn.fp32", (INFINITY, MINUS), True),
        ("add.rn.fp32", (NAN, ONE), True),
        ("mul.rn.fp32", (LARGEST, LARGEST), True),
        ("mul.rn.fp32", (ZERO, INFINITY), True),
        ("fma.rn.fp32", (LARGEST, LARGEST, ONE), True),
        ("fma.rn.fp32", (ONE, ONE, MINUS), False),
        ("max.fp32", (MINUS, ONE), False),
        ("lt.fp32", (LARGEST, INFINITY), False),
    ],
)
def test_scalar_operations(name: str, operands: tuple[int, ...], expected: bool) -> None:
    arrays = [lanes(each) for each in operands]
    assert makes_non_finite(operation(name), arrays, operation(name).evaluate(*arrays)) is expected


def test_one_violating_lane_is_sufficient() -> None:
    left, right = lanes(ONE, INFINITY, LARGEST), lanes(ONE, ONE, LARGEST)
    result = operation("add.rn.fp32").evaluate(left, right)
    assert makes_non_finite(operation("add.rn.fp32"), [left, right], result)
    assert not makes_non_finite(operation("add.rn.fp32"), [left[:2], right[:2]], result[:2])


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("convert.rn.fp16.fp32", 0x477FF000, True),
        ("convert.rn.fp16.fp32", 0x477FE000, False),
        ("convert.rn.fp16.fp32", INFINITY, False),
        ("convert.rn.bf16.fp32", LARGEST, True),
        ("convert.rn.bf16.fp32", NAN, True),
    ],
)
def test_conversions(name: str, pattern: int, expected: bool) -> None:
    operand = lanes(pattern)
    assert makes_non_finite(operation(name), [operand], operation(name).evaluate(operand)) is expected


def test_a_result_of_a_lanewise_function() -> None:
    found = lanewise(lambda each: each, [lanes(LARGEST)], 32)
    assert not makes_non_finite(operation("abs.fp32"), [lanes(LARGEST)], found)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp64", "e5m2", "e4m3"])
def test_not_finite_patterns(name: str) -> None:
    form = FLOAT_FORMATS[name]
    known = [0, 1, form.largest_magnitude, form.canonical_nan or 0, form.infinity or 0]
    found = not_finite(lanes(*known, bits=form.bits), form)
    assert found.tolist() == [False, False, False, True, form.infinity is not None]


def test_matrix_steps() -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs rows of a matrix unit")
    from bitwise_core.plugins import registry

    bits = registry.default().arch("sm_90").bits
    assert bits is not None
    unit: MmaSpec = next(each for each in bits.matrix_units if each.name == "mma.sync_k16_fp32_bf16_bf16_fp32_sm_90")

    def violates(left: int, right: int, accumulator: int) -> bool:
        a, b = (np.full((1, unit.k), each, dtype=np.uint16) for each in (left, right))
        c = np.array([[accumulator]], dtype=np.uint32)
        return mma_makes_non_finite(unit, a, b, c, multiply_accumulate(unit, a, b.T, c))

    assert violates(0x3F80, 0x3F80, ONE) is False
    assert violates(0x7F80, 0x3F80, ONE) is False
    assert violates(0x3F80, 0x3F80, INFINITY) is False
    assert violates(0x7F7F, 0x7F7F, ONE) is True
    assert violates(0, 0x7F80, ONE) is True
    assert violates(0x7FC0, 0x3F80, ONE) is True
