"""The values on which an error depends: data that would decide it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, constant_mask, width


def noted(error: DataDependent, machine: Machine) -> DataDependent:
    """Return an error with the values on which it depends."""
    note_values(error, machine, ())
    return error


def note_values(error: DataDependent, machine: Machine, registers: Iterable[str]) -> None:
    """Note the values on which an error depends: by default the condition, or what the instruction read of data.

    Predicates decide before other registers do.  Nothing is noted in other domains than that of terms.
    """
    if machine.domain.name != "terms":
        return
    if not error.values and machine.condition is not None:
        error.values = (machine.condition,)
    if not error.values:
        read = [machine.registers[name] for name in sorted(registers) if name in machine.registers]
        unknown = [each for each in read if machine.known(each) is None]
        error.values = tuple([each for each in unknown if width(each) == 1] or unknown)
    for value in error.values:
        rows = np.flatnonzero(np.any(unknown_lanes(machine, value), axis=1))
        if rows.size:
            error.row = int(rows[0])
            return


def unknown_lanes(machine: Machine, value: Value) -> Array:
    """Return the active lanes in which a value is no number, of the shape of the value and of the mask together."""
    if isinstance(value, np.ndarray):
        return np.zeros((1, 1), dtype=bool)
    vector = as_symbolic_vector(value)
    unknown: Array = np.broadcast_to(~np.asarray(constant_mask(vector)), vector.words.shape[1:])
    return unknown if machine.mask is None else unknown & machine.mask
