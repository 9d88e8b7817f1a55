"""Which values the assumption of finite numbers covers, as numbers of a format (see `assumptions`).

It covers elements of buffers of that format, and results of operations of that format.  Bits of another format are no
numbers of this one: an fp32 may have the pattern of an fp16 NaN in its low half.  A select that is represented as an
extremum is no operation on numbers: it is finite where what it selects is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_core.execution.finite_patterns import not_finite
from bitwise_core.execution.launch import buffers_at
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat

_BF16 = FLOAT_FORMATS["bf16"]
_MARKS = {"fp16": L.CANONICAL_NAN, "fp32": L.CANONICAL_NAN, "tf32": L.CANONICAL_NAN, "fp64": L.CANONICAL_NAN,
          "bf16": L.CANONICAL_BF16_NAN}  # fmt: skip


def elements_of(value: SymbolicVector, form: str, formats: Mapping[int, FloatFormat]) -> Array:
    """Return which lanes hold a loaded element, up to its sign, of a buffer whose elements have this format."""
    found = np.asarray((value.flags & np.uint32(L.KIND)) == L.LOAD)
    if not found.any():
        return found
    stored = "fp32" if form == "tf32" else form
    if value.bits == 32 and np.any(np.bitwise_and(value.flags, L.WIDENED)):
        stored = "fp16"
    numbers = [number for number, each in formats.items() if each.name == stored]
    buffers = buffers_at(value.words[0])
    known: Array = found & np.isin(buffers, np.array(numbers, dtype=np.uint64))
    return known


def assumed_finite(value: SymbolicVector, form: FloatFormat, formats: Mapping[int, FloatFormat]) -> bool | Array:
    """Return which lanes are assumed to be finite numbers of a format; constants are not covered."""
    mark = _MARKS.get(form.name, 0)
    flags = value.flags
    known = L.constant_mask(value)
    if isinstance(flags, int):
        if known is True:
            return False
        if flags & mark and not flags & L.INTEGER:
            return True
    marked = np.asarray((flags & np.uint32(mark)) != 0)
    selected = marked & np.asarray((flags & np.uint32(L.INTEGER)) != 0)
    if selected.any():
        marked = marked & (~selected | _of_finite_operands(value, form, formats))
    covered = (marked | elements_of(value, form.name, formats) | _widened(value, form, formats)) & np.logical_not(known)
    return bool(covered) if covered.ndim == 0 else True if covered.all() else L.nonempty(covered)


def _of_finite_operands(value: SymbolicVector, form: FloatFormat, formats: Mapping[int, FloatFormat]) -> Array:
    """Return which lanes hold the result of an operation whose operands are finite, by assumption or as constants."""
    result = np.zeros((1, 1), dtype=bool)
    for origin in value.origins:
        lanes = np.asarray(origin.lanes)
        for operand in origin.operands:
            constants: Array = np.asarray(L.constant_mask(operand)) & (operand.bits == form.bits)
            if constants.any():
                constants = constants & ~not_finite(L.constants_of(operand), form)
            lanes = lanes & (np.asarray(assumed_finite(operand, form, formats)) | constants)
        result = result | lanes
    return result


def _widened(value: SymbolicVector, form: FloatFormat, formats: Mapping[int, FloatFormat]) -> Array:
    """Return which lanes hold a bf16, assumed to be finite, widened to fp32."""
    result = np.zeros((1, 1), dtype=bool)
    for origin in value.origins:
        if form.name == "fp32" and origin.name == "convert.fp32.bf16":
            inner = assumed_finite(origin.operands[0], _BF16, formats) | np.asarray(L.constant_mask(origin.operands[0]))
            result = result | (np.asarray(inner) & np.asarray(origin.lanes))
    return result
