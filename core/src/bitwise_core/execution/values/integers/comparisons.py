"""Canonical forms of comparisons: `greater` of one instruction set and swapped `less` of another are the same."""

from __future__ import annotations

from bitwise_core.execution.machine import Machine, invert
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

INTEGER_COMPARISONS = {
    "eq": ("eq", False, False), "ne": ("eq", False, True), "lt": ("lt", False, False), "le": ("le", False, False),
    "gt": ("lt", True, False), "ge": ("le", True, False),
}  # fmt: skip
"""Comparison of integers -> (base, swap the operands, negate)."""

FLOAT_COMPARISONS = {
    "eq": ("eq", False, False), "lt": ("lt", False, False), "le": ("le", False, False), "gt": ("lt", True, False),
    "ge": ("le", True, False), "neu": ("eq", False, True), "geu": ("lt", False, True), "gtu": ("le", False, True),
    "leu": ("lt", True, True), "ltu": ("le", True, True), "num": ("ord", False, False), "nan": ("ord", False, True),
    "ne": ("ne", False, False), "equ": ("ne", False, True),
}  # fmt: skip
"""Comparison of floating-point numbers -> (base, swap the operands, negate).

Comparisons that end in u are true for NaNs as well; num and nan test only for NaNs.
"""


def compare_as_integers(machine: Machine, operator: str, kind: str, left: Value, right: Value) -> Value:
    """Return the predicate `left operator right` for a type such as s32, u64 or b16 (eq and ne ignore the sign)."""
    base, swap, negate = INTEGER_COMPARISONS[operator]
    pair = (right, left) if swap else (left, right)
    result = apply_integer(machine, operation(f"{base}.{kind}"), pair)
    return invert(machine.domain, result) if negate else result


def compare_as_floats(
    machine: Machine, operator: str, form: str, left: Value, right: Value, *, flush: bool = False
) -> Value:
    """Return the predicate `left operator right` of two numbers of a format; `flush` treats subnormals as zeros."""
    base, swap, negate = FLOAT_COMPARISONS[operator]
    meaning = operation(f"{base}{'.ftz' if flush else ''}.{form}")
    if base == "ord" and left is not right:
        # Two numbers are ordered if each of them is a number.
        one, other = (apply_integer(machine, meaning, (value, value)) for value in (left, right))
        result = combine(machine, "and", one, other, 1)
    else:
        result = apply_integer(machine, meaning, (right, left) if swap else (left, right))
    return invert(machine.domain, result) if negate else result
