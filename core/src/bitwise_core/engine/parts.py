"""From what an address pass touched to parts of the grid whose blocks are translations of one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.engine.address_domain import Touch
from bitwise_core.engine.address_pass import Pass
from bitwise_core.engine.grid import Column, Limits, NotTranslations, distinct_rows
from bitwise_core.engine.spans import Runs, merged
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lanes import Array
from bitwise_core.machine.launch import POINTER_SHIFT


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks that differ by where they touch each buffer, and by nothing else.

    `shift[buffer][i]` is where block `blocks[i]` works in that buffer, in bytes from a zero that the part's blocks
    share; what it touches there lies at these runs plus the shift.  `loads` is known of written buffers only.
    `atomics` names the atomic operations by buffer.
    """

    blocks: Array
    shift: Mapping[int, Array]
    stores: Mapping[int, Runs]
    loads: Mapping[int, Runs]
    atomics: Mapping[int, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Use:
    """The touches of one buffer through one column."""

    column: Column | None
    touches: list[Touch]


def written_buffers(found: Sequence[Pass]) -> frozenset[int]:
    """The buffers that some block of the grid writes."""
    return frozenset(_buffer(each, touch) for each in found for touch in each.touched if touch.kind != "load")


def parts_of(found: Pass, written: frozenset[int], limits: Limits) -> list[Part]:
    """The parts of one pass; loads are kept of `written` buffers.

    Raises NotTranslations, or Unreadable where memory outside every buffer is touched.
    """
    uses: dict[int, dict[int, _Use]] = {}
    for touch in found.touched:
        buffer = _buffer(found, touch)
        by_column = uses.setdefault(buffer, {})
        key = 0 if touch.column is None else id(touch.column)
        if key not in by_column:
            by_column[key] = _Use(touch.column, [])
        by_column[key].touches.append(touch)
    places: dict[int, Array] = {}
    apart: dict[int, list[Array]] = {}
    for buffer, by_column in uses.items():
        numbers = [_places(found, use.column) for use in by_column.values()]
        places[buffer] = numbers[0]
        apart[buffer] = [each - numbers[0] for each in numbers]
    differences = [each for group in apart.values() for each in group[1:]]
    first, inverse = (
        distinct_rows(differences)
        if differences
        else (np.zeros(1, dtype=np.int64), np.zeros(found.grid.blocks.size, dtype=np.int64))
    )
    if len(first) > limits.parts:
        raise NotTranslations(f"accesses to one buffer shift in more than {limits.parts} ways from block to block")
    order = np.argsort(inverse, kind="stable") if len(first) > 1 else np.arange(inverse.size)
    groups = np.split(order, np.cumsum(np.bincount(inverse))[:-1]) if len(first) > 1 else [order]
    return [_part(found, uses, written, places, apart, group) for group in groups]


def _buffer(found: Pass, touch: Touch) -> int:
    """The one buffer that all blocks and lanes touch."""
    offsets = touch.thread.view(np.int64)
    low, high = int(offsets.min()), int(offsets.max())
    least, most = (0, 0) if touch.column is None else _signed_bounds(found, touch.column)
    first, last = low + least, high + most + touch.bits // 8 - 1
    if first < 1 << POINTER_SHIFT and first >= 0 and last < 1 << POINTER_SHIFT:
        raise Unreadable("memory outside every buffer of the launch is accessed", touch.line)
    if first < 0 or last >= 1 << 63 or first >> POINTER_SHIFT != last >> POINTER_SHIFT:
        raise NotTranslations("one access reaches several buffers", touch.line)
    return first >> POINTER_SHIFT


def _signed_bounds(found: Pass, column: Column) -> tuple[int, int]:
    signed = found.grid.derived("signed", lambda: column.values.view(np.int64), column)
    return found.grid.bounds(signed)


def _places(found: Pass, column: Column | None) -> Array:
    if column is None:
        return np.zeros(found.grid.blocks.size, dtype=np.int64)
    return found.grid.on(column).view(np.int64)


def _part(
    found: Pass,
    uses: Mapping[int, Mapping[int, _Use]],
    kept: frozenset[int],
    places: Mapping[int, Array],
    apart: Mapping[int, Sequence[Array]],
    group: Array,
) -> Part:
    stores: dict[int, Runs] = {}
    loads: dict[int, Runs] = {}
    atomics: dict[int, frozenset[str]] = {}
    for buffer, by_column in uses.items():
        written: list[tuple[Touch, int]] = []
        read: list[tuple[Touch, int]] = []
        for use, difference in zip(by_column.values(), apart[buffer], strict=True):
            offset = int(difference[group[0]])
            for touch in use.touches:
                (read if touch.kind == "load" else written).append((touch, offset))
        if written:
            stores[buffer] = _runs(written)
            names = frozenset(touch.operation for touch, _ in written if touch.kind == "atomic")
            if names:
                atomics[buffer] = names
        if read and buffer in kept:
            loads[buffer] = _runs(read)
    blocks = found.grid.blocks[group]
    return Part(blocks, {buffer: numbers[group] for buffer, numbers in places.items()}, stores, loads, atomics)


def _runs(touches: Sequence[tuple[Touch, int]]) -> Runs:
    pieces = [
        merged(start, start + touch.bits // 8)
        for touch, offset in touches
        for start in (touch.thread.view(np.int64) + offset,)
    ]
    return merged(np.concatenate([each.start for each in pieces]), np.concatenate([each.end for each in pieces]))
