"""Writes in some lanes as blends that are computed when something reads other lanes, in the domain of terms.

An instruction under a known execution mask leaves its destination unchanged in the other lanes.  Most of these
registers are temporary: only lanes of the same mask read them before the next write, and nothing needs the blend.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value, every, width

_MAXIMUM_DEPTH = 16
"""How many blends of blends are deferred."""


class DeferredBlend(DeferredValue):
    """`new` in the lanes of a constant mask, and an old value in the others."""

    __slots__ = ("_new", "_old", "lanes")

    def __init__(self, lanes: Array, new: Value, old: Value) -> None:
        self.lanes, self._new = lanes, new
        self._old: Value = old
        super().__init__(width(new), 1 + max(_depth(new), _depth(old)))

    def compute(self) -> Value:
        """Return the blend."""
        found = blend_values(self.lanes, L.settled(self._new), L.settled(self._old))
        self._old = found
        return found

    def in_lanes(self, mask: Array | None) -> Value:
        """See `SymbolicVector.in_lanes`."""
        return L.settled(self._new) if self._covers(mask) else self.value

    def written_in(self, mask: Array | None) -> Value:
        """Return what was written last in the lanes of a mask, unread, where one write covers them; else the blend."""
        return self._new if self._covers(mask) else self

    def below(self, mask: Array) -> Value:
        """Return a value that is the same in the lanes that are not in a mask."""
        return self._old if every(~self.lanes | mask) else self

    def _covers(self, mask: Array | None) -> bool:
        return mask is self.lanes or (mask is not None and every(~mask | self.lanes))


def _depth(value: Value) -> int:
    return value.depth if isinstance(value, DeferredValue) and not value.is_computed else 0


def deferred_blend(machine: Machine, lanes: Array, new: Value, old: Value) -> Value:
    """Return the blend of a register's new and old value by a constant mask, deferred where that may save something.

    Lazy integers have blends of their own, and those of numbers are cheap.
    """
    if (
        (type(new) is np.ndarray and type(old) is np.ndarray)
        or L.lazy_integers(new) is not None
        or L.lazy_integers(old) is not None
        or machine.condition is not None
        or machine.path is not None
        or not getattr(machine.domain, "defers_steps", False)
    ):
        return blend_values(lanes, new, old)
    if type(old) is DeferredBlend:
        old = old.below(lanes)
    if max(_depth(new), _depth(old)) >= _MAXIMUM_DEPTH:
        return blend_values(lanes, new, old)
    return DeferredBlend(lanes, new, old)
