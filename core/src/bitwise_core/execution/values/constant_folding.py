"""Constant folding per lane: the results of operations in the lanes where every operand is constant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.nan_marks import mark_of
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import WIDENING
from bitwise_core.numerics import FloatFormat, Operation, nan_of, operation

_NARROW, _WIDEN = operation("convert.rn.fp16.fp32"), operation(WIDENING)


def fold_constants(info: Operation, operands: Sequence[Value], result: SymbolicVector) -> Value:
    """Return the result with constants in the lanes where every operand is constant."""
    L.settle_flags(result)
    if info.function is None:
        return result
    known: bool | Array = True
    for operand in operands:
        if isinstance(operand, np.ndarray):
            continue
        lanes = as_symbolic_vector(operand)
        if isinstance(lanes.flags, int) and lanes.flags & L.KIND != L.CONST:
            return result
        known = known & L.constant_mask(lanes)
    if known is False or (known is not True and not L.some(known)):
        return result
    one = None if known is True else _one_result(info, operands, known)
    if one is not None:
        return L.as_array_if_constant(L.blend(known, one, result))
    numbers = [
        operand if isinstance(operand, np.ndarray) else L.constants_of(as_symbolic_vector(operand))
        for operand in operands
    ]
    folded = as_symbolic_vector(without_unspecified_nans(info, numbers, evaluate_constants(info, numbers, known)))
    return L.as_array_if_constant(L.blend(known, folded, result))


def _one_result(info: Operation, operands: Sequence[Value], known: Array) -> SymbolicVector | None:
    """Return the result where each operand is one number in the known lanes, as under a mask; None for a NaN."""
    found: list[tuple[int, np.dtype[Any]]] = []
    for operand in operands:
        if isinstance(operand, np.ndarray):
            number, kind = L.common_number(operand, known), operand.dtype
        else:
            lanes = as_symbolic_vector(operand)
            numbers = L.constant_numbers(lanes)
            number = next(iter(numbers)) if numbers else L.common_number(L.constants_of(lanes), known)
            kind = np.dtype(L.UNSIGNED[lanes.bits])
        if number is None:
            return None
        found.append((number, kind))
    return _number_cached(info, *found)


def without_unspecified_nans(info: Operation, numbers: Sequence[Array], result: Array) -> Value:
    """Return the results of an operation on constants, with a term for a NaN whose bits the assembler decides.

    An assembler evaluates operations on literals itself: it may return a NaN operand where the unit returns the
    canonical NaN, and it may or may not flip the sign of a NaN.  ptxas does all of these, and its NaNs of fp64 have
    another pattern than those of the unit.
    """
    form = info.result
    if not isinstance(form, FloatFormat):
        return result
    chosen: bool | Array = form.bits == 64
    for number, kind in zip(numbers, info.operands, strict=True):
        if isinstance(kind, FloatFormat):
            kept = nan_of(number, kind)
            if info.verb not in _SIGN_CHANGES and kind.canonical_nan is not None:
                kept &= number != kind.canonical_nan
            chosen = chosen | kept
    return open_nans(result, form, chosen, info.name, numbers)


def open_nans(
    result: Array, form: FloatFormat, where: bool | Array = True, name: str = "", numbers: Sequence[Array] = ()
) -> Value:
    """Return constants of a format with a term for a NaN, in some lanes, whose bits the assembler decides.

    The term is one of the result, and of the operation and the numbers of which it is one, if any.
    """
    chosen = where & nan_of(result, form)
    if not np.any(chosen):
        return result
    words = hashing.constant(f"a NaN of {form.name} from constants {name}")
    for place, number in enumerate((result, *numbers)):
        words = words + number.astype(np.uint64)[None] * hashing.multiplier(place)
    flags = L.TERM | L.INTEGER | (mark_of(form) or L.UNSPECIFIED_NAN)
    return L.blend(chosen, SymbolicVector(form.bits, hashing.mix(words), flags), L.constant_vector(result))


_SIGN_CHANGES = ("neg", "abs")


def evaluate_constants(info: Operation, numbers: Sequence[Array], where: bool | Array) -> Array:
    """Return an operation's results in the lanes of `where`; other lanes are arbitrary.  At least one lane must be set.

    If each operand is one number in all these lanes, as under a mask, the result is computed once.
    """
    assert info.function is not None
    if isinstance(where, bool):
        return info.function(*numbers)
    found: list[tuple[int, np.dtype[Any]]] = []
    for each in numbers:
        number = L.common_number(each, where)
        if number is None:
            return info.function(*numbers)
        found.append((number, each.dtype))
    return _evaluate_cached(info, *found)


@lru_cache(maxsize=1 << 12)
def _evaluate_cached(info: Operation, *numbers: tuple[int, np.dtype[Any]]) -> Array:
    """Return the result of an operation on one number per operand, shape (1, 1)."""
    assert info.function is not None
    found = info.function(*(np.full((1, 1), number, dtype=kind) for number, kind in numbers))
    found.setflags(write=False)
    return found


@lru_cache(maxsize=1 << 12)
def _number_cached(info: Operation, *numbers: tuple[int, np.dtype[Any]]) -> SymbolicVector | None:
    """Return the result of an operation on one number per operand, shape (1, 1), None for a NaN."""
    found = _evaluate_cached(info, *numbers)
    form = info.result
    return None if isinstance(form, FloatFormat) and nan_of(found, form).any() else L.constant_vector(found)


def rounded_to_half(numbers: Array) -> tuple[Array, Array]:
    """Return fp32 patterns rounded to fp16, as uint64 patterns, and which of them the rounding leaves unchanged."""
    single = numbers.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # NumPy rounds as IEEE 754 does; NaNs are handled below
        half = single.astype(np.float16)
        found, kept = half.view(np.uint16), half.astype(np.float32).view(np.uint32) == numbers
    nans = np.isnan(single)
    if nans.any():
        of_nans = _NARROW.evaluate(numbers)
        found, kept = np.where(nans, of_nans, found), np.where(nans, _WIDEN.evaluate(of_nans) == numbers, kept)
    return found.astype(np.uint64), kept
