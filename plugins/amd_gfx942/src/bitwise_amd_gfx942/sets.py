"""Sets of lanes: their algebra on predicates, with the identities that control flow rests on.

A set that depends on data is a predicate over terms.  A set made from another by leaving lanes out is remembered as a
part of it, so that joining the two again gives the very set back: `(E and c) or E` is E.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.registers import EVERYONE, NOBODY
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.logic import combine
from bitwise_core.machine.state import Machine, invert

_REMEMBERED = 512


def _everyone(lanes: Value) -> bool:
    return lanes is EVERYONE or (isinstance(lanes, np.ndarray) and bool(lanes.all()))


def _nobody(lanes: Value) -> bool:
    return lanes is NOBODY or (isinstance(lanes, np.ndarray) and not lanes.any())


def _remember(machine: Machine, part: Value, *wholes: Value) -> Value:
    """Notes that `part` lies inside each of `wholes`; the values are kept, so that no other takes their identity."""
    known = machine.extra.setdefault("parts of sets", {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(part)] = (part, wholes)
    return part


def inside(machine: Machine, part: Value, whole: Value) -> bool:
    """Whether `part` is known to hold no lane that `whole` has not."""
    if part is whole or _everyone(whole) or _nobody(part):
        return True
    if isinstance(part, np.ndarray) and isinstance(whole, np.ndarray):
        return not (part & ~whole).any()
    found = machine.extra.get("parts of sets", {}).get(id(part))
    return found is not None and found[0] is part and any(inside(machine, each, whole) for each in found[1])


def both_sets(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of both."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left & right
        return found
    if inside(machine, left, right):
        return left
    if inside(machine, right, left):
        return right
    return _remember(machine, combine(machine, "and", left, right, 1), left, right)


def either_set(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of one or of both."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left | right
        return found
    if inside(machine, left, right):
        return right
    if inside(machine, right, left):
        return left
    return combine(machine, "or", left, right, 1)


def other_set(machine: Machine, lanes: Value) -> Value:
    """The lanes that a set has not."""
    if lanes is EVERYONE:
        return NOBODY
    return invert(machine.domain, lanes)


def parting_set(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of one of two sets alone."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left ^ right
        return found
    if left is right:
        return NOBODY
    for some, others in ((left, right), (right, left)):
        if _nobody(some):
            return others
        if inside(machine, others, some):
            return _remember(machine, both_sets(machine, some, other_set(machine, others)), some)
    return combine(machine, "xor", left, right, 1)


def logic(machine: Machine, name: str, left: Value, right: Value) -> Value:
    """A logical instruction of two sets by its name: and, or, xor, andn2, orn2, nand, nor, xnor, andn1, orn1."""
    if name in ("andn2", "orn2"):
        right, name = other_set(machine, right), name[:-2]
    elif name in ("andn1", "orn1"):
        left, name = other_set(machine, left), name[:-2]
    opposite = name in ("nand", "nor", "xnor")
    if opposite:
        name = {"nand": "and", "nor": "or", "xnor": "xor"}[name]
    function = {"and": both_sets, "or": either_set, "xor": parting_set}[name]
    found = function(machine, left, right)
    return other_set(machine, found) if opposite else found
