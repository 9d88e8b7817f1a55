"""The selects that produced a value: a select of an offset that is out of bounds on one side is a mask."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from bitwise_core.execution.deferred_selects import DeferredSelect
from bitwise_core.execution.machine import Machine, invert
from bitwise_core.execution.values.symbolic_vector import Array, Value

_TABLE_SIZE = 4096


Select: TypeAlias = tuple[Value, Value, Value]
"""A predicate, the value where it holds, and the value where it does not."""


def record_select(
    machine: Machine,
    result: Value,
    predicate: Value,
    if_true: Value,
    if_false: Value,
    others: tuple[Select, ...] = (),
) -> None:
    """Record that `result` is this select, and `others` where given.

    The record keeps the values alive, so that no other value reuses their ids.
    """
    if result is if_true or result is if_false:
        return  # the select returned an operand
    known = machine.extra.setdefault("selections", {})
    if len(known) > _TABLE_SIZE:
        known.clear()
    known[id(result)] = (result, predicate, if_true, if_false, others)


def selects_of(machine: Machine, value: Value) -> tuple[Select, ...]:
    """The selects that a value is known to be, the latest first."""
    found = machine.extra.get("selections", {}).get(id(value))
    return ((found[1], found[2], found[3]), *found[4]) if found is not None and found[0] is value else ()


def read_select(machine: Machine, value: DeferredSelect) -> Value:
    """The value of a deferred select, which is known to be the same selects."""
    result, known = value.value, machine.extra.get("selections", {})
    found = known.get(id(value))
    if found is not None and found[0] is value:
        record_select(machine, result, *found[1:])
    return result


def split_out_of_bounds(machine: Machine, value: Value, bound: Array) -> tuple[Value, Value | None]:
    """Split a selected offset into the side that may be in bounds and the predicate that selects it.

    The other side is known and at or above the bound in every active lane.  (value, None) where no side is.
    """
    found = machine.extra.get("selections", {}).get(id(value))
    if found is None or found[0] is not value:
        return value, None
    _, predicate, if_true, if_false, _ = found
    for kept, other, condition in ((if_true, if_false, predicate), (if_false, if_true, None)):
        known = machine.known(other)
        if known is None:
            continue
        out_of_bounds = known >= bound
        if machine.mask is not None:
            out_of_bounds = out_of_bounds | ~machine.mask
        if np.all(out_of_bounds):
            return kept, invert(machine.domain, predicate) if condition is None else condition
    return value, None
