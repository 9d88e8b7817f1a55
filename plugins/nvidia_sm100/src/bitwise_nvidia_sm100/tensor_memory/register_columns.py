"""The columns of tensor memory that the registers of threads stand for, and what stores leave in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_sm100.tensor_memory.column_values import identity, moved
from bitwise_nvidia_sm100.tensor_memory.places import LANES


def column_numbers(columns: Array, active: Array) -> list[list[int]]:
    """Return the numbers of the columns that active threads access, for each register, in ascending order."""
    own = columns[active]
    alike = (own == own[:1]).all(axis=0).tolist()
    return [
        [first] if one else np.unique(own[:, register]).tolist()
        for register, (first, one) in enumerate(zip(own[0].tolist(), alike, strict=True))
    ]


def are_in_place(lanes: Array) -> list[bool]:
    """Return for each register whether thread t accesses lane t, for all lanes."""
    if lanes.shape[0] != LANES:
        return [False] * lanes.shape[1]
    found: list[bool] = (lanes == identity(LANES)[:, None]).all(axis=0).tolist()
    return found


_EVERY_LANE = np.ones(LANES, dtype=bool)


def columns_of_registers(
    values: Sequence[Value], lanes: Array, columns: Array, active: Array, *, packed: bool
) -> Iterator[tuple[int, Value, Array]]:
    """Return what the registers of active threads leave in each column, and in which of its lanes.

    `lanes` and `columns` have the shape (threads, registers), `active` the shape (threads,).  `packed`: a register
    holds the low halves of two columns.
    """
    threads = lanes.shape[0]
    contents: dict[int, Value] = {}
    covered: dict[int, Array] = {}
    """The lanes of each column that are written."""
    numbers = column_numbers(columns, active)
    in_place = are_in_place(lanes) if active.all() else [False] * len(values)
    for register, value in enumerate(values):
        for number in numbers[register]:
            parts = (
                {
                    number: concat([extract(value, 0, 16), poison(16)]),
                    number + 1: concat([extract(value, 16, 16), poison(16)]),
                }
                if packed
                else {number: value}
            )
            if in_place[register] and len(numbers[register]) == 1:
                contents |= parts
                covered.update(dict.fromkeys(parts, _EVERY_LANE))
                continue
            chosen = np.flatnonzero(active & (columns[:, register] == number))
            index, written = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=bool)
            index[lanes[chosen, register]] = chosen
            written[lanes[chosen, register]] = True
            for place, part in parts.items():
                content = moved(part, index, threads)
                before = covered.get(place)
                if before is not None:
                    content = blend_values(written[None], content, contents[place])
                covered[place] = written if before is None else before | written
                contents[place] = content
    for place, content in contents.items():
        yield place, content, covered[place]
