"""Addresses that depend on data, with the buffers they were made from: a known pointer and an offset that is data."""

from __future__ import annotations

import numpy as np

from bitwise_core.machine.lanes import Value
from bitwise_core.machine.launch import POINTER_SHIFT
from bitwise_core.machine.state import Machine

_REMEMBERED = 1024


def remember_base(machine: Machine, result: Value, *summands: Value) -> None:
    """Notes the buffers of a sum of 64 bits in which one summand is a known pointer, or such a sum itself.

    The values are kept, so that no other takes their identity.
    """
    if isinstance(result, np.ndarray):
        return
    for each in summands:
        buffers = buffers_of(machine, each)
        if buffers is not None:
            known = machine.extra.setdefault("bases", {})
            if len(known) > _REMEMBERED:
                known.clear()
            known[id(result)] = (result, buffers)
            return


def buffers_of(machine: Machine, value: Value) -> list[int] | None:
    """The buffers that an address may point to: those of a known pointer, or of the one it was made from."""
    found = machine.extra.get("bases", {}).get(id(value))
    if found is not None and found[0] is value:
        buffers: list[int] = found[1]
        return buffers
    known = machine.known(value)
    if known is None or known.dtype != np.uint64:
        return None
    pointers = {int(each) >> POINTER_SHIFT for each in np.unique(known)}
    return None if 0 in pointers or len(pointers) > 4 else sorted(pointers)
