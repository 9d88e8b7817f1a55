"""Operations on known numbers among lanes that hold terms: their results in the lanes where every operand is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import WIDENING
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.numeric import Operation, operation

_NARROW, _WIDEN = operation("convert.rn.fp16.fp32"), operation(WIDENING)


def fold(info: Operation, operands: Sequence[Value], result: Lanes) -> Value:
    """Lanes in which every operand is known hold the result's number."""
    result.meta = L.uniform(result.meta)
    if info.function is None:
        return result
    known: bool | Array = True
    for operand in operands:
        if isinstance(operand, np.ndarray):
            continue
        lanes = as_lanes(operand)
        if isinstance(lanes.meta, int) and lanes.meta & L.KIND != L.KNOWN:
            return result
        known = known & L.known_where(lanes)
    if known is False or not np.any(known):
        return result
    numbers = [operand if isinstance(operand, np.ndarray) else L.numbers_of(as_lanes(operand)) for operand in operands]
    return L.settle(L.put(known, L.known_lanes(evaluated(info, numbers, known)), result))


def evaluated(info: Operation, numbers: Sequence[Array], where: bool | Array) -> Array:
    """An operation's results in the lanes of `where`, which is set in some; what other lanes get means nothing.

    Where each operand is one number, as in the lanes that a mask fills up, the result is computed once.
    """
    assert info.function is not None
    if isinstance(where, bool):
        return info.function(*numbers)
    ones = [one_number(each, where) for each in numbers]
    if any(each is None for each in ones):
        return info.function(*numbers)
    alone = [each for each in ones if each is not None]
    return _remembered(info, *((each.item(), each.dtype) for each in alone))


def one_number(numbers: Array, where: Array) -> Array | None:
    """The one number that stands in all lanes of `where`, which is set in some, in the shape (1, 1); else None."""
    if numbers.size == 1:
        return numbers.reshape(1, 1)
    shape_of = np.broadcast_shapes(numbers.shape, where.shape)
    first = np.broadcast_to(numbers, shape_of).flat[int(np.broadcast_to(where, shape_of).argmax())]
    return first.reshape(1, 1) if bool(((numbers == first) | ~where).all()) else None


@lru_cache(maxsize=1 << 12)
def _remembered(info: Operation, *numbers: tuple[int, np.dtype[Any]]) -> Array:
    """The result of an operation on one number each, in the shape (1, 1)."""
    assert info.function is not None
    found = info.function(*(np.full((1, 1), number, dtype=kind) for number, kind in numbers))
    found.setflags(write=False)
    return found


def rounded_to_half(numbers: Array) -> tuple[Array, Array]:
    """Patterns of fp32 rounded to fp16, as uint64 patterns, and which of them that leaves as they were."""
    single = numbers.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # NumPy rounds as IEEE 754 does; NaNs are looked at below
        half = single.astype(np.float16)
        found, kept = half.view(np.uint16), half.astype(np.float32).view(np.uint32) == numbers
    nans = np.isnan(single)
    if nans.any():
        of_nans = _NARROW.evaluate(numbers)
        found, kept = np.where(nans, of_nans, found), np.where(nans, _WIDEN.evaluate(of_nans) == numbers, kept)
    return found.astype(np.uint64), kept
