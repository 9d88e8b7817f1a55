"""Numbers whose NaN an assembler may have made canonical, where its own text moves the bits."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.constant_folding import open_nans
from bitwise_core.execution.values.floats.nan_marks import exact_term
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import may_be_moved
from bitwise_core.numerics import FloatFormat, nan_of


def other_nans(numbers: Array, form: FloatFormat) -> Array:
    """Return which patterns are NaNs of a format other than the canonical one."""
    found: Array = nan_of(numbers, form) & (numbers != form.canonical_nan)
    return found


def with_open_nans(value: Value, form: FloatFormat, context: TermContext) -> Value:
    """Return a number of fp16, fp32 or fp64 whose NaN has its own bits or those of the canonical one.

    It is the same number for operations and buffers of the format.  A NaN that is canonical already stays known.
    """
    if isinstance(value, np.ndarray):
        return open_nans(value, form, other_nans(value, form))
    lanes = as_symbolic_vector(value)
    known: Array = np.asarray(L.constant_mask(lanes))
    flags = np.asarray(lanes.flags, dtype=np.uint32)
    canonical = ((flags & np.uint32(L.NAN_MARK)) == L.CANONICAL_NAN) & np.logical_not(may_be_moved(flags))
    changed = ~known & ~canonical
    found = SymbolicVector(lanes.bits, lanes.words, lanes.flags)
    found.recorder, found.origins = lanes.recorder, lanes.origins
    if changed.any():
        marked = _marked(found.flags)
        closed = changed & np.logical_not(may_be_moved(np.asarray(marked, dtype=np.uint32)))
        opened = SymbolicVector(lanes.bits, lanes.words, marked)
        opened.recorder, opened.origins = lanes.recorder, lanes.origins
        if closed.any():
            term = exact_term(found, context)
            exact = SymbolicVector(lanes.bits, term.words, L.with_flags(term, L.CANONICAL_NAN).flags)
            opened = L.blend(L.nonempty(closed), exact, opened)
        found = L.blend(L.nonempty(changed), opened, found)
    if known.any():
        numbers = L.constants_of(found)
        chosen = known & other_nans(numbers, form)
        if chosen.any():
            found = L.blend(L.nonempty(chosen), as_symbolic_vector(open_nans(numbers, form, chosen)), found)
    return found


def _marked(flags: L.Flags) -> L.Flags:
    """Return flags with the mark of the canonical NaN, with which the bits of a term may be its own as well."""
    if isinstance(flags, int):
        moved = L.INTEGER if flags & L.KIND in (L.TERM, L.AC_TERMS) else 0
        return flags & ~L.NAN_MARK | L.CANONICAL_NAN | moved
    kinds = flags & np.uint32(L.KIND)
    moved_lanes = np.where((kinds == L.TERM) | (kinds == L.AC_TERMS), np.uint32(L.INTEGER), np.uint32(0))
    found: Array = flags & np.uint32(~L.NAN_MARK & 0xFFFFFFFF) | np.uint32(L.CANONICAL_NAN) | moved_lanes
    return found
