"""Values that a choice by data gave, with the choice: an offset that is out of bounds on one side is a mask."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from bitwise_core.execution.machine import Machine, invert
from bitwise_core.execution.values.symbolic_vector import Array, Value

_REMEMBERED = 4096


Choice: TypeAlias = tuple[Value, Value, Value]
"""A predicate, what a value is where it holds, and what it is where it does not."""


def remember(
    machine: Machine,
    result: Value,
    predicate: Value,
    if_true: Value,
    if_false: Value,
    others: tuple[Choice, ...] = (),
) -> None:
    """Notes that `result` is these choices; the values are kept, so that no other takes their identity."""
    if result is if_true or result is if_false:
        return  # the choice made no difference
    known = machine.extra.setdefault("selections", {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(result)] = (result, predicate, if_true, if_false, others)


def choices_of(machine: Machine, value: Value) -> tuple[Choice, ...]:
    """The choices that a value is known to be, the one made last first."""
    found = machine.extra.get("selections", {}).get(id(value))
    return ((found[1], found[2], found[3]), *found[4]) if found is not None and found[0] is value else ()


def without_choice(machine: Machine, value: Value, bound: Array) -> tuple[Value, Value | None]:
    """An offset that is chosen by data, as the side that may lie below the bound and the predicate that takes it.

    The other side is known and lies at the bound or above, in every active lane; (value, None) where it is not so.
    """
    found = machine.extra.get("selections", {}).get(id(value))
    if found is None or found[0] is not value:
        return value, None
    _, predicate, if_true, if_false, _ = found
    for kept, other, condition in ((if_true, if_false, predicate), (if_false, if_true, None)):
        known = machine.known(other)
        if known is None:
            continue
        beyond = known >= bound
        if machine.mask is not None:
            beyond = beyond | ~machine.mask
        if np.all(beyond):
            return kept, invert(machine.domain, predicate) if condition is None else condition
    return value, None
