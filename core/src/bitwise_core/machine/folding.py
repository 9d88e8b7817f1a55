"""Operations on known numbers among lanes that hold terms: their results in the lanes where every operand is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import WIDENING
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.pieces import as_lanes


@dataclass(frozen=True, slots=True)
class Shape:
    """A floating-point operation's name, taken apart."""

    name: str
    verb: str
    nearest_or_zero: bool
    plain: bool
    evaluate: Callable[..., Array] | None


@cache
def shape(name: str) -> Shape:
    """Takes an operation's name apart once."""
    verb, *modifiers = name.split(".")
    evaluate: Callable[..., Array] | None
    try:
        evaluate = numeric.operation(name).evaluate
    except (KeyError, numeric.Unevaluable):
        evaluate = None
    plain = not {"ftz", "sat", "satfinite", "relu", "xorsign", "atomic", "signalling"} & set(modifiers)
    return Shape(name, verb, bool({"rn", "rz"} & set(modifiers)), plain, evaluate)


def fold(info: Shape, operands: Sequence[Value], result: Lanes) -> Value:
    """Lanes in which every operand is known hold the result's number."""
    result.meta = L.uniform(result.meta)
    if info.evaluate is None:
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


def evaluated(info: Shape, numbers: Sequence[Array], where: bool | Array) -> Array:
    """An operation's results in the lanes of `where`, which is set in some; what other lanes get means nothing.

    Where each operand is one number, as in the lanes that a mask fills up, the result is computed once.
    """
    assert info.evaluate is not None
    if isinstance(where, bool):
        return info.evaluate(*numbers)
    ones = [one_number(each, where) for each in numbers]
    if any(each is None for each in ones):
        return info.evaluate(*numbers)
    alone = [each for each in ones if each is not None]
    if not info.verb:  # an operation on integers: its name need not say all that it does
        return info.evaluate(*alone)
    return _remembered(info.name, *((each.item(), each.dtype) for each in alone))


def one_number(numbers: Array, where: Array) -> Array | None:
    """The one number that stands in all lanes of `where`, which is set in some, in the shape (1, 1); else None."""
    if numbers.size == 1:
        return numbers.reshape(1, 1)
    shape_of = np.broadcast_shapes(numbers.shape, where.shape)
    first = np.broadcast_to(numbers, shape_of).flat[int(np.broadcast_to(where, shape_of).argmax())]
    return first.reshape(1, 1) if bool(((numbers == first) | ~where).all()) else None


@lru_cache(maxsize=1 << 12)
def _remembered(name: str, *numbers: tuple[int, np.dtype[Any]]) -> Array:
    """The result of a floating-point operation on one number each, in the shape (1, 1)."""
    evaluate = shape(name).evaluate
    assert evaluate is not None
    found = evaluate(*(np.full((1, 1), number, dtype=kind) for number, kind in numbers))
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
        narrow, widen = shape("convert.rn.fp16.fp32").evaluate, shape(WIDENING).evaluate
        assert narrow is not None
        assert widen is not None
        of_nans = narrow(numbers)
        found, kept = np.where(nans, of_nans, found), np.where(nans, widen(of_nans) == numbers, kept)
    return found.astype(np.uint64), kept
