"""Whether an operation on bit patterns makes an infinity or a NaN of finite operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.mma import MmaSpec
from bitwise_core.numeric import FLOAT_FORMATS, FloatFormat, Operation, nan_of


def not_finite(patterns: Array, form: FloatFormat) -> Array:
    """Which patterns are infinities or NaNs."""
    found = nan_of(patterns, form)
    if form.infinity is not None:
        sign = patterns.dtype.type(1 << (form.bits - 1))
        found = found | ((patterns & ~sign) == patterns.dtype.type(form.infinity))
    return np.asarray(found)


def overflows(operation: Operation, operands: Sequence[Value], result: Value) -> bool:
    """Whether a floating-point operation gives an infinity or a NaN in a lane in which no operand is one."""
    made = operation.result
    if not isinstance(made, FloatFormat) or not operation.is_float:
        return False
    patterns, bad = _patterns(result)
    bad = not_finite(patterns, made) & bad
    for operand, form in zip(operands, operation.operands, strict=True):
        if bad.any() and isinstance(form, FloatFormat):
            bad = bad & ~not_finite(_patterns(operand)[0], form)
    return bool(bad.any())


def step_overflows(unit: MmaSpec, left: Array, right: Array, accumulators: Array, result: Array) -> bool:
    """Whether a step of a matrix unit gives an infinity or a NaN though all that it takes is finite."""
    made = FLOAT_FORMATS.get(unit.result)
    if made is None or not not_finite(result, made).any():
        return False
    taken = ((left, unit.left), (right, unit.right), (accumulators, unit.accumulator))
    return not any(not_finite(patterns, FLOAT_FORMATS[name]).any() for patterns, name in taken if name in FLOAT_FORMATS)


def _patterns(value: Value) -> tuple[Array, Array]:
    """The patterns of a value, and in which lanes it has one."""
    if isinstance(value, np.ndarray):
        return value, np.ones(1, dtype=np.bool_)
    lanes = as_lanes(value)
    return L.numbers_of(lanes), np.asarray(L.known_where(lanes))
