"""Set algebra on lane masks, with the identities that structured control flow needs.

A lane mask that depends on data is a predicate over terms.  An intersection is remembered as a subset of its operands,
and a difference as the remainder of a partition, so that the union of the two halves is the original mask again, with
its original hash.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.registers import ALL_LANES, NO_LANES
from bitwise_core.execution.machine import Machine, invert
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash

_MAX_REMEMBERED = 512

_SUPERSETS = "supersets of lane masks"
"""The key of `machine.extra` for masks and the two masks that each is the intersection of."""

_PARTITIONS = "partitions of lane masks"
"""The key of `machine.extra` for differences: the mask that was subtracted, and the mask it was subtracted from."""


def _is_full(lanes: Value) -> bool:
    return lanes is ALL_LANES or (isinstance(lanes, np.ndarray) and bool(lanes.all()))


def _is_empty(lanes: Value) -> bool:
    return lanes is NO_LANES or (isinstance(lanes, np.ndarray) and not lanes.any())


def same_mask(left: Value, right: Value) -> bool:
    """Whether two masks are known to be equal."""
    if left is right:
        return True
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return bool(np.all(left == right))
    if not isinstance(left, SymbolicVector) or not isinstance(right, SymbolicVector):
        return False
    return bool((full_hash(left) == full_hash(right)).all())


def _remember(machine: Machine, what: str, value: Value, *about: Value) -> Value:
    """Remember a fact about a mask.  The key is the object's id, so the object is kept alive with the entry."""
    known = machine.extra.setdefault(what, {})
    if len(known) > _MAX_REMEMBERED:
        known.clear()
    known[id(value)] = (value, about)
    return value


def _remembered(machine: Machine, what: str, value: Value) -> tuple[Value, ...]:
    found = machine.extra.get(what, {}).get(id(value))
    return found[1] if found is not None and found[0] is value else ()


def is_subset(machine: Machine, part: Value, whole: Value) -> bool:
    """Whether `part` is known to be a subset of `whole`."""
    if part is whole or _is_full(whole) or _is_empty(part):
        return True
    if isinstance(part, np.ndarray) and isinstance(whole, np.ndarray):
        return not (part & ~whole).any()
    return any(is_subset(machine, each, whole) for each in _remembered(machine, _SUPERSETS, part))


def partitioned_mask(machine: Machine, left: Value, right: Value) -> Value | None:
    """The mask that was partitioned into these two, None if none is known."""
    for rest, part in ((left, right), (right, left)):
        partition = _remembered(machine, _PARTITIONS, rest)
        if partition and same_mask(partition[0], part):
            return partition[1]
    return None


def disjoint(machine: Machine, left: Value, right: Value) -> bool:
    """Whether two masks are known to have no lane in common."""
    if partitioned_mask(machine, left, right) is not None or same_mask(left, complement_mask(machine, right)):
        return True
    if any(disjoint(machine, left, each) for each in _remembered(machine, _SUPERSETS, right)):
        return True
    return any(disjoint(machine, each, right) for each in _remembered(machine, _SUPERSETS, left))


def intersection(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of both masks."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left & right
        return found
    if is_subset(machine, left, right):
        return left
    if is_subset(machine, right, left):
        return right
    if partitioned_mask(machine, left, right) is not None:
        return NO_LANES
    both = combine(machine, "and", left, right, 1)
    # Rules may return one of the masks: then it is the intersection, and no subset of itself to be followed.
    return both if both is left or both is right else _remember(machine, _SUPERSETS, both, left, right)


def union(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of either mask."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left | right
        return found
    if is_subset(machine, left, right):
        return right
    if is_subset(machine, right, left):
        return left
    whole = partitioned_mask(machine, left, right)
    if whole is not None:
        return whole
    if same_mask(left, complement_mask(machine, right)):
        return ALL_LANES
    return combine(machine, "or", left, right, 1)


def complement_mask(machine: Machine, lanes: Value) -> Value:
    """The lanes that are not in the mask."""
    if lanes is ALL_LANES:
        return NO_LANES
    if lanes is NO_LANES:
        return ALL_LANES
    return invert(machine.domain, lanes)


def difference(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes of the first mask that are not in the second."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left & ~right
        return found
    if is_subset(machine, left, right):
        return NO_LANES
    if partitioned_mask(machine, left, right) is not None:
        return left
    rest = intersection(machine, left, complement_mask(machine, right))
    if is_subset(machine, right, left):
        _remember(machine, _PARTITIONS, rest, right, left)
    return rest


def symmetric_difference(machine: Machine, left: Value, right: Value) -> Value:
    """The lanes that are in exactly one of the two masks."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        found: Array = left ^ right
        return found
    if same_mask(left, right):
        return NO_LANES
    for some, others in ((left, right), (right, left)):
        if _is_empty(some):
            return others
        if is_subset(machine, others, some):
            partition = _remembered(machine, _PARTITIONS, others)
            if partition and same_mask(partition[1], some):
                return partition[0]
            return difference(machine, some, others)
    whole = partitioned_mask(machine, left, right)
    return combine(machine, "xor", left, right, 1) if whole is None else whole


def logic(machine: Machine, name: str, left: Value, right: Value) -> Value:
    """Apply a logical operation by its name: and, or, xor, andn2, orn2, nand, nor, xnor, andn1, orn1."""
    if name in ("andn2", "andn1"):
        return difference(machine, *((left, right) if name == "andn2" else (right, left)))
    if name == "orn2":
        right, name = complement_mask(machine, right), "or"
    elif name == "orn1":
        left, name = complement_mask(machine, left), "or"
    opposite = name in ("nand", "nor", "xnor")
    if opposite:
        name = {"nand": "and", "nor": "or", "xnor": "xor"}[name]
    function = {"and": intersection, "or": union, "xor": symmetric_difference}[name]
    found = function(machine, left, right)
    return complement_mask(machine, found) if opposite else found
