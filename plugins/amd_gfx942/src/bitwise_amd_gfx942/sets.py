"""Sets of lanes: their algebra on predicates, with the identities that control flow rests on.

A set that depends on data is a predicate over terms.  A set made from another by leaving lanes out is remembered as a
part of it, and what was left out as the rest, so that joining the two again gives the very set back.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.registers import EVERYONE, NOBODY
from bitwise_core.execution.machine import Machine, invert
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash

_REMEMBERED = 512


def _everyone(lanes: Value) -> bool:
    return lanes is EVERYONE or (isinstance(lanes, np.ndarray) and bool(lanes.all()))


def _nobody(lanes: Value) -> bool:
    return lanes is NOBODY or (isinstance(lanes, np.ndarray) and not lanes.any())


def alike(left: Value, right: Value) -> bool:
    """Whether two sets are known to be one."""
    if left is right:
        return True
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return bool(np.all(left == right))
    if not isinstance(left, SymbolicVector) or not isinstance(right, SymbolicVector):
        return False
    return bool((full_hash(left) == full_hash(right)).all())


def _note(machine: Machine, what: str, value: Value, *about: Value) -> Value:
    """Notes something of a set; the values are kept, so that no other takes their identity."""
    known = machine.extra.setdefault(what, {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(value)] = (value, about)
    return value


def _noted(machine: Machine, what: str, value: Value) -> tuple[Value, ...]:
    found = machine.extra.get(what, {}).get(id(value))
    return found[1] if found is not None and found[0] is value else ()


def inside(machine: Machine, part: Value, whole: Value) -> bool:
    """Whether `part` is known to hold no lane that `whole` has not."""
    if part is whole or _everyone(whole) or _nobody(part):
        return True
    if isinstance(part, np.ndarray) and isinstance(whole, np.ndarray):
        return not (part & ~whole).any()
    return any(inside(machine, each, whole) for each in _noted(machine, "parts of sets", part))


def whole_of(machine: Machine, left: Value, right: Value) -> Value | None:
    """The set of which these two are the parts, one what the other leaves."""
    for rest, part in ((left, right), (right, left)):
        noted = _noted(machine, "rests of sets", rest)
        if noted and alike(noted[0], part):
            return noted[1]
    return None


def apart(machine: Machine, left: Value, right: Value) -> bool:
    """Whether two sets are known to have no lane in common."""
    if whole_of(machine, left, right) is not None or alike(left, other_set(machine, right)):
        return True
    if any(apart(machine, left, each) for each in _noted(machine, "parts of sets", right)):
        return True
    return any(apart(machine, each, right) for each in _noted(machine, "parts of sets", left))


def both_sets(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of both."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left & right
        return found
    if inside(machine, left, right):
        return left
    if inside(machine, right, left):
        return right
    if whole_of(machine, left, right) is not None:
        return NOBODY
    return _note(machine, "parts of sets", combine(machine, "and", left, right, 1), left, right)


def either_set(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of one or of both."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left | right
        return found
    if inside(machine, left, right):
        return right
    if inside(machine, right, left):
        return left
    whole = whole_of(machine, left, right)
    if whole is not None:
        return whole
    if alike(left, other_set(machine, right)):
        return EVERYONE
    return combine(machine, "or", left, right, 1)


def other_set(machine: Machine, lanes: Value) -> Value:
    """The lanes that a set has not."""
    if lanes is EVERYONE:
        return NOBODY
    if lanes is NOBODY:
        return EVERYONE
    return invert(machine.domain, lanes)


def without(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of the first that the second has not."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left & ~right
        return found
    if inside(machine, left, right):
        return NOBODY
    if whole_of(machine, left, right) is not None:
        return left
    rest = both_sets(machine, left, other_set(machine, right))
    if inside(machine, right, left):
        _note(machine, "rests of sets", rest, right, left)
    return rest


def parting_set(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of one of two sets alone."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left ^ right
        return found
    if alike(left, right):
        return NOBODY
    for some, others in ((left, right), (right, left)):
        if _nobody(some):
            return others
        if inside(machine, others, some):
            noted = _noted(machine, "rests of sets", others)
            return noted[0] if noted and alike(noted[1], some) else without(machine, some, others)
    whole = whole_of(machine, left, right)
    return combine(machine, "xor", left, right, 1) if whole is None else whole


def logic(machine: Machine, name: str, left: Value, right: Value) -> Value:
    """A logical instruction of two sets by its name: and, or, xor, andn2, orn2, nand, nor, xnor, andn1, orn1."""
    if name in ("andn2", "andn1"):
        return without(machine, *((left, right) if name == "andn2" else (right, left)))
    if name == "orn2":
        right, name = other_set(machine, right), "or"
    elif name == "orn1":
        left, name = other_set(machine, left), "or"
    opposite = name in ("nand", "nor", "xnor")
    if opposite:
        name = {"nand": "and", "nor": "or", "xnor": "xor"}[name]
    function = {"and": both_sets, "or": either_set, "xor": parting_set}[name]
    found = function(machine, left, right)
    return other_set(machine, found) if opposite else found
