"""A known number in the lower half of a register whose upper half depends on data, as a place below a key in a sort.

It may be put there by an `or`, or by sums and differences, of which some may leave the lower half for a while.  As
`high << 16` has zeros below, `(high << 16) + number` is the concatenation of both where the number fits the half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.values.packing import concat, exact_lanes
from bitwise_core.execution.values.symbolic_vector import (
    UNSIGNED,
    Array,
    Origin,
    PackedVector,
    SymbolicVector,
    Value,
    constant_mask,
    constant_vector,
    width,
)
from bitwise_core.numerics import Operation

BELOW = "number below a half"
"""The name of the origin of a sum of an upper half and a number: its operands are both."""


def sum_below(operation: Operation, operands: Sequence[Value]) -> tuple[SymbolicVector, Array] | None:
    """Return the upper half and the number that a sum or a difference consists of in all lanes, None for another one.

    The number is one of the width of the sum, and modulo a power of two.
    """
    if operation.verb not in ("add", "sub") or operation.bits not in (32, 64):
        return None
    for value, other in (operands, operands[::-1]) if operation.verb == "add" else (operands,):
        if not isinstance(other, np.ndarray):
            continue
        parts = _parts(value)
        if parts is not None:
            high, number = parts
            return high, number + other if operation.verb == "add" else number - other
    return None


def _parts(value: Value) -> tuple[SymbolicVector, Array] | None:
    """Return the upper half and the number of a value that consists of them in all lanes."""
    if isinstance(value, PackedVector):
        if len(value.parts) != 2 or value.whole is not None:
            return None
        low, high = value.parts
        if not isinstance(low, np.ndarray) or not isinstance(high, SymbolicVector) or width(low) != high.bits:
            return None
        return high, low.astype(UNSIGNED[value.bits])
    if not isinstance(value, SymbolicVector):
        return None
    for origin in value.origins:
        if origin.name == BELOW and exact_lanes(value, origin) is True:
            high, number = origin.operands
            if constant_mask(number) is True:
                return high, number.words[0].astype(UNSIGNED[value.bits])
    return None


def joined(high: SymbolicVector, number: Array) -> Value | None:
    """Return an upper half above a number, None where the number does not fit the lower half in some lane."""
    if np.any(number >> number.dtype.type(high.bits)):
        return None
    return concat([number.astype(UNSIGNED[high.bits]), high])


def with_parts(result: Value, high: SymbolicVector, number: Array) -> Value:
    """Return a sum with the upper half and the number that it consists of."""
    if isinstance(result, SymbolicVector):
        result.origins = (*result.origins, Origin(BELOW, (high, constant_vector(number))))
    return result
