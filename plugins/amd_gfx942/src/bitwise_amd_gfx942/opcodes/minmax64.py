"""Matching of 64-bit integer minima and maxima: without such an instruction, compilers compare and select both halves.

Where both integers are equal, both operands of the select are, so strict and non-strict comparisons give the same.
"""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.float_idioms import same_value
from bitwise_amd_gfx942.opcodes.vector_integers import minmax_operation
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import extract
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value

_TABLE_SIZE = 256
_KEY = "orderings"
_FIRST_IS_GREATER = {"gt": True, "ge": True, "lt": False, "le": False}


def record_ordering(machine: Machine, predicate: Value, operator: str, kind: str, left: Value, right: Value) -> None:
    """Record the comparison of two integers, of the type `kind`, that a predicate is in every lane."""
    if operator not in _FIRST_IS_GREATER or not isinstance(predicate, SymbolicVector) or machine.domain.name != "terms":
        return
    known = machine.extra.setdefault(_KEY, {})
    if len(known) > _TABLE_SIZE:
        known.clear()
    # The record keeps the values alive, so that no other value reuses their ids.
    known[id(predicate)] = (predicate, _FIRST_IS_GREATER[operator], kind, left, right, {})


def match_minmax64(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value | None:
    """The half of a 64-bit minimum or maximum that a select by such a predicate is; None for any other select."""
    found = machine.extra.get(_KEY, {}).get(id(predicate))
    if found is None or found[0] is not predicate:
        return None
    _, greater, kind, left, right, made = found
    for low in (0, 32):
        for one, other, verb in (
            (left, right, "max" if greater else "min"),
            (right, left, "min" if greater else "max"),
        ):
            if not (same_value(if_true, extract(one, low, 32)) and same_value(if_false, extract(other, low, 32))):
                continue
            if verb not in made:
                made[verb] = minmax_operation(verb, kind)(machine, left, right)
            whole: Value = made[verb]
            return extract(whole, low, 32) if isinstance(whole, SymbolicVector | PackedVector) else None
    return None
