"""Records of the loads of a launch, and the elements of a stored value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bitwise_core.execution.active_lanes import active_values, whole_mask
from bitwise_core.execution.memory.store_forwarding import Access, Flight
from bitwise_core.execution.races.epochs import Epoch, epochs_of_lanes
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

NEVER_COMPLETE = Flight(np.iinfo(np.int32).max, 0, 0)
"""The flight of a load that may read at any later time."""


def stored_elements(value: Value) -> list[tuple[int, SymbolicVector]]:
    """Return the elements of a stored value with their byte offsets."""
    if isinstance(value, PackedVector):
        result: list[tuple[int, SymbolicVector]] = []
        offset = 0
        for part in value.parts:
            result.extend((offset + inner, lanes) for inner, lanes in stored_elements(part))
            offset += L.width(part) // 8
        return result
    return [(0, as_symbolic_vector(value))]


@dataclass(frozen=True, slots=True)
class Load:
    """One load of a batch, as the machine executed it, and its value; `shape` is that of all its lanes.

    A value of None stands for the initial content, which is computed again where it is needed: it takes much memory.
    """

    address: Array
    mask: Array | None
    thread: Array
    shape: tuple[int, ...]
    epoch: Epoch
    value: Value | None
    bits: int
    line: int
    flight: Flight | None = None
    """See `Access.flight`."""
    issue: int = 0
    """See `Access.issue`."""

    def bytes(self) -> int:
        """Return about how many bytes of memory the load and its value take."""
        if self.flight is not None:  # it shares the arrays of the load that was issued
            return 0
        lanes = 0 if self.value is None else self.shape[0] * self.shape[1]
        return 8 * self.address.size + 20 * lanes * max(1, self.bits // 64)

    def accesses(self, with_values: bool) -> list[Access]:
        """Return the load, or the loads of the elements of its value."""
        active = whole_mask(self.mask, self.shape)
        where, who = active_values(self.address, active), active_values(self.thread, active)
        epochs, flight = epochs_of_lanes(self.epoch, active), self.flight
        if flight is not None:
            flight = replace(flight, until=epochs_of_lanes(flight.until, active))
        if not with_values or self.value is None:
            return [Access(where, who, epochs, None, self.bits, self.line, flight=flight, issue=self.issue)]
        return [
            Access(
                where + np.uint64(offset),
                who,
                epochs,
                L.chosen_lanes(lanes, active),
                lanes.bits,
                self.line,
                flight=flight,
                issue=self.issue,
            )
            for offset, lanes in stored_elements(self.value)
        ]

    def of_ended(self, threads: Array) -> list[Load]:
        """Return the load of these threads as one that is never complete; none if they do not take part."""
        active = whole_mask(self.mask, self.shape) & np.isin(self.thread, threads)
        return [replace(self, mask=active, flight=NEVER_COMPLETE)] if active.any() else []


@dataclass(frozen=True, slots=True)
class LoadInFlight:
    """An asynchronous load that nothing has waited for; `stores` is how many stores to each buffer came before it."""

    load: Load
    stores: Mapping[int, int]
