"""Whether a number is of one of some classes, in one form for one question.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (V_CMP_CLASS_F32).  A mask that takes in each class of either
sign or of neither asks for the number's size alone; of a number that is never negative the other half tells nothing;
finite is what is apart from infinity, a NaN being no number that compares.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.constants import BITS
from bitwise_amd_gfx942.opcodes.sources import changed_sign
from bitwise_amd_gfx942.target_operations import ARCHITECTURE
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.comparisons import compare_as_floats
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.numerics import operation

_CLASSES = (
    "signalling NaN", "quiet NaN", "-infinity", "-normal", "-subnormal", "-0", "+0", "+subnormal", "+normal",
    "+infinity",
)  # fmt: skip
_NEGATIVE, _FINITE = 0b0000111100, 0b0111000000
_MANTISSA = {16: 10, 32: 23, 64: 52}


def of_class(machine: Machine, kind: str, value: Value, mask: Value) -> Value:
    """Whether numbers of a format are of the classes whose bits the mask has set."""
    bits = BITS[kind]
    if isinstance(value, SymbolicVector) and isinstance(mask, np.ndarray) and mask.size == 1:
        asked = int(mask.flat[0]) & (1 << len(_CLASSES)) - 1
        if bool(np.all(L.has_flag(value, L.NOT_NEGATIVE))):
            asked &= ~_NEGATIVE
        elif asked & _NEGATIVE and asked & _NEGATIVE == _mirrored(asked) & _NEGATIVE:
            value, asked = changed_sign(machine, operation(f"abs.{kind}"), value), asked & ~_NEGATIVE
        if asked == _FINITE and bool(np.all(L.has_flag(as_symbolic_vector(value), L.NOT_NEGATIVE))):
            infinity = ((1 << bits - 1 - _MANTISSA[bits]) - 1) << _MANTISSA[bits]
            return compare_as_floats(machine, "ne", kind, value, literal(infinity, bits))
        mask = literal(asked, 32)

    return apply_integer(machine, operation(f"class.{kind}@{ARCHITECTURE}"), [value, mask])


def _mirrored(mask: int) -> int:
    """The mask with the classes of both signs exchanged."""
    return sum(1 << 11 - each for each in range(2, 10) if mask >> each & 1)
