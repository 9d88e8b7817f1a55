"""Loads and stores of tensor memory: between the registers of threads and the places that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_nvidia_sm100.tensor_memory.memory import StoredRegisters, TensorMemory
from bitwise_nvidia_sm100.tensor_memory.places import LANES
from bitwise_nvidia_sm100.tensor_memory.register_columns import are_in_place, column_numbers, columns_of_registers


def loaded(
    memory: TensorMemory, lanes: Array, columns: Array, active: Array, packed: bool, rows: Array
) -> Sequence[Value]:
    """Return the registers, of all threads, that a load of these blocks fills from each active thread's places.

    `lanes` and `columns` have the shape (threads, registers), `active` the shape (threads,).
    """
    whole = None if packed else memory.registers_at(lanes, columns, active, rows)
    if whole is not None:
        return whole
    found = []
    index = np.where(active[:, None], lanes, 0)
    numbers, in_place = column_numbers(columns, active), are_in_place(index)
    for register in range(lanes.shape[1]):
        value: Value | None = None
        for number in numbers[register]:
            content = memory.column(number)
            if packed:
                content = concat([extract(content, 0, 16), extract(memory.column(number + 1), 0, 16)])
            content = content if in_place[register] else take_threads(content, index[None, :, register])
            chosen = columns[:, register] == number
            value = content if value is None else blend_values(chosen[None], content, value)
        assert value is not None
        found.append(value)
    return found


def stored(
    memory: TensorMemory,
    values: Sequence[Value],
    lanes: Array,
    columns: Array,
    active: Array,
    packed: bool,
    rows: Array,
) -> None:
    """Store the registers of each active thread at these lanes and columns in these blocks; see `loaded`."""
    if not packed:
        own = columns[active]
        first, count = int(own.min()), int(own.max()) + 1 - int(own.min())
        source = np.full((count, LANES), -1)
        # A later register, and a later thread of one register, is written last.
        number = np.arange(columns.size).reshape(columns.shape[::-1]).T
        source[own.T - first, lanes[active].T] = number[active].T
        chosen = np.flatnonzero((source >= 0).any(axis=0))
        if (source[:, chosen] >= 0).all():
            places = lanes, columns, active
            memory.hold(StoredRegisters(first, count, chosen, rows, values, *places, source[:, chosen]))
            return
    for place, content, covered in columns_of_registers(values, lanes, columns, active, packed=packed):
        memory.put(place, content, rows, covered)
