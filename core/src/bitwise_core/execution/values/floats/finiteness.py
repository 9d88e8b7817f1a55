"""Checks of the finiteness assumption on bit patterns (see `assumptions`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.finite_patterns import not_finite
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, Operation, nan_of
from bitwise_core.numerics.mma import BlockScaledSpec, MatrixUnit


def makes_non_finite(operation: Operation, operands: Sequence[Value], result: Value) -> bool:
    """Return whether a floating-point operation violates finiteness in some lane."""
    return bool(np.any(non_finite_lanes(operation, operands, result)))


def non_finite_lanes(operation: Operation, operands: Sequence[Value], result: Value) -> bool | Array:
    """Return the lanes in which a floating-point operation violates finiteness.

    It does if it makes an infinity from finite numbers, or a NaN: no NaN follows from finite numbers and infinities of
    the text alone, unless an earlier operation made one.
    """
    made = operation.result
    if not isinstance(made, FloatFormat) or not operation.is_float:
        return False
    patterns, bad = _patterns(result)
    bad = not_finite(patterns, made) & bad
    nan = nan_of(patterns, made) & bad
    for operand, form in zip(operands, operation.operands, strict=True):
        if bad.any() and isinstance(form, FloatFormat):
            given, _ = _patterns(operand)
            bad = bad & ~not_finite(given, form)
    found: Array = bad | nan
    return found


def mma_makes_non_finite(unit: MatrixUnit, left: Array, right: Array, accumulators: Array, result: Array) -> bool:
    """Return whether a step of a matrix unit violates finiteness, judged over all its operands and results.

    It does if it makes an infinity from finite numbers, or a NaN; with block scales, if it makes any of them.
    """
    if isinstance(unit, BlockScaledSpec):
        return bool(not_finite(result, FLOAT_FORMATS["fp32"]).any())
    made = FLOAT_FORMATS.get(unit.result)
    if made is None or not not_finite(result, made).any():
        return False
    named = ((left, unit.left), (right, unit.right), (accumulators, unit.accumulator))
    taken = [(patterns, FLOAT_FORMATS[name]) for patterns, name in named if name in FLOAT_FORMATS]
    if nan_of(result, made).any():
        return True
    return not any(not_finite(patterns, form).any() for patterns, form in taken)


def _patterns(value: Value) -> tuple[Array, Array]:
    """Return a value's patterns, and the lanes in which they are defined."""
    if isinstance(value, np.ndarray):
        return value, np.ones(1, dtype=np.bool_)
    lanes = as_symbolic_vector(value)
    return L.constants_of(lanes), np.asarray(L.constant_mask(lanes))
