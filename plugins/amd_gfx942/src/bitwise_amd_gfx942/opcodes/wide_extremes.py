"""Extremes of integers of 64 bits: there is no such instruction, so that compilers compare and choose both halves.

Of two integers the one that a comparison names is the greater or the lesser, whichever is named where they are equal.
"""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.roundings import same_value
from bitwise_amd_gfx942.opcodes.vector_integers import of_two
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import extract
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value

_REMEMBERED = 256
_KEY = "orders"
_FIRST_IS_GREATER = {"gt": True, "ge": True, "lt": False, "le": False}


def note_order(machine: Machine, predicate: Value, operator: str, kind: str, left: Value, right: Value) -> None:
    """Remembers which of two integers a predicate says to be the greater, in every lane."""
    if operator not in _FIRST_IS_GREATER or not isinstance(predicate, SymbolicVector) or machine.domain.name != "terms":
        return
    known = machine.extra.setdefault(_KEY, {})
    if len(known) > _REMEMBERED:
        known.clear()
    # The values are kept, so that no other takes their identity.
    known[id(predicate)] = (predicate, _FIRST_IS_GREATER[operator], kind, left, right, {})


def chosen_extreme(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value | None:
    """A half of the extreme that a choice by such a predicate is a half of."""
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
                made[verb] = of_two(verb, kind)(machine, left, right)
            whole: Value = made[verb]
            return extract(whole, low, 32) if isinstance(whole, SymbolicVector | PackedVector) else None
    return None
