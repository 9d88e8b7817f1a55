"""The class test of floating-point numbers, in canonical form.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (V_CMP_CLASS_F32).  A mask that treats both signs of each class
alike is a test of the absolute value.  Classes of negative numbers are dropped for a value that is never negative.  The
test for a finite number is the ordered comparison `!= infinity`, which is false for a NaN.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.operands.constants import BITS, MANTISSA_BITS
from bitwise_amd_gfx942.opcodes.operands.operand_access import apply_sign
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers.comparisons import compare_as_floats
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.numerics import operation

_CLASSES = (
    "signalling NaN", "quiet NaN", "-infinity", "-normal", "-subnormal", "-0", "+0", "+subnormal", "+normal",
    "+infinity",
)  # fmt: skip
_NEGATIVE, _FINITE = 0b0000111100, 0b0111000000


def in_float_class(machine: Machine, kind: str, value: Value, mask: Value, architecture: str) -> Value:
    """The predicate that a number of the format `kind` is in one of the classes whose bits are set in the mask."""
    bits = BITS[kind]
    if isinstance(value, SymbolicVector) and isinstance(mask, np.ndarray) and mask.size == 1:
        classes = int(mask.flat[0]) & (1 << len(_CLASSES)) - 1
        if bool(np.all(L.has_flag(value, L.NOT_NEGATIVE))):
            classes &= ~_NEGATIVE
        elif classes & _NEGATIVE and classes & _NEGATIVE == _exchange_signs(classes) & _NEGATIVE:
            value, classes = apply_sign(machine, operation(f"abs.{kind}"), value), classes & ~_NEGATIVE
        if classes == _FINITE and bool(np.all(L.has_flag(as_symbolic_vector(value), L.NOT_NEGATIVE))):
            infinity = ((1 << bits - 1 - MANTISSA_BITS[bits]) - 1) << MANTISSA_BITS[bits]
            return compare_as_floats(machine, "ne", kind, value, literal(infinity, bits))
        mask = literal(classes, 32)

    return apply_integer(machine, operation(f"class.{kind}@{architecture}"), [value, mask])


def _exchange_signs(mask: int) -> int:
    """The mask with the classes of positive and negative numbers exchanged."""
    return sum(1 << 11 - each for each in range(2, 10) if mask >> each & 1)
