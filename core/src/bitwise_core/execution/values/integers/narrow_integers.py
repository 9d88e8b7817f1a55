"""Operations on integers of 8 and 16 bits as the low bits of operations on 32 bits.

Compilers compute small numbers in registers of any width: a code of four bits is an integer of 32 bits in one kernel,
and a half or a byte of a packed register in another.  The low bits of a sum, of a bitwise operation, of a shift to the
left and of a selection depend on the low bits of the operands only.  So an operation on slices of values of 32 bits,
selects of constants and constants is the slice of the operation on 32 bits.  A comparison of unsigned halves is the one
of 32 bits where these values fit them (the rules of `ir.rules.integers.NARROW`).

Counts are also added in 64 bits: where a result on 64 bits is known to fit 32, it is that on the low halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers.bounds import maximum_of, maximum_of_result
from bitwise_core.execution.values.integers.predicate_bits import PredicateBits
from bitwise_core.execution.values.packing import Slice, extract, is_wide_term, slices_of
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value
from bitwise_core.numerics import Operation

WIDE = 32
"""The width of the operations."""

_VERBS = frozenset({"add", "sub", "and", "or", "xor", "shl"})


_OF_TWO_HALVES = frozenset(f"{verb}.b{2 * WIDE}" for verb in ("add", "and", "or", "xor"))

_COMPARISONS = frozenset({"lt", "le", "eq"})
_MOVES = frozenset({"and", "or", "xor", "shl", "eq"})
"""The verbs that move or read bits: what they return for predicates as bits has one form in every width."""


@dataclass(frozen=True, slots=True)
class WideOperation:
    """An operation on 32 bits by its name, and its operands; the result is its low `bits` bits."""

    name: str
    operands: list[Value]
    bits: int


def wide_operation(info: Operation, operands: Sequence[Value]) -> WideOperation | None:
    """Return the operation on 32 bits that stands for one of 8 or 16 bits, None if there is none."""
    form = info.operands[0]
    if form.bits not in (8, 16) or info.is_float:
        return None
    verb, kind = info.verb, form.name[0]
    if verb in _MOVES and all(isinstance(each, np.ndarray | PredicateBits) for each in operands):
        return None
    if info.name not in (f"{verb}.b{form.bits}", f"{verb}.{kind}{form.bits}"):
        return None
    if info.bits == form.bits and verb in _VERBS:
        wide = wide_operands(operands)
        return None if wide is None else WideOperation(f"{verb}.b{WIDE}", wide, info.bits)
    if info.bits != 1 or verb not in _COMPARISONS or form.bits != 16 or kind == "s":
        return None
    wide = wide_operands(operands)
    if wide is None or any(bound is None or bound >> 16 for bound in map(maximum_of, wide)):
        return None
    return WideOperation(f"{verb}.{kind}{WIDE}", wide, info.bits)


def low_halves(info: Operation, operands: Sequence[Value]) -> list[Value] | None:
    """Return the operands of the operation on 32 bits that an operation on 64 is where its high half is 0, else None.

    The high half of a sum or a bitwise operation of values of 32 bits is 0 if no lane of the result exceeds 32 bits.
    """
    if info.is_float or info.bits != 2 * WIDE or info.name not in _OF_TWO_HALVES:
        return None
    if not any(isinstance(each, PackedVector) for each in operands) or not all(map(_is_extended, operands)):
        return None
    bound = maximum_of_result(info, operands)
    return None if bound is None or bound >> WIDE else [extract(each, 0, WIDE) for each in operands]


def _is_extended(value: Value) -> bool:
    """Return whether 64 bits are numbers or a value of 32 that zeros extend, which is no slice of one of 64."""
    if not isinstance(value, PackedVector):
        return isinstance(value, np.ndarray)
    return L.width(value.parts[0]) == WIDE and all(each.whole.bits == WIDE for each in slices_of(value.parts[0]))


def wide_operands(operands: Sequence[Value]) -> list[Value] | None:
    """Return values of 32 bits whose low bits the operands are, None if some operand has none that is known.

    One of the operands must be a slice of such a value, or have predicates as bits.
    """
    if all(isinstance(each, np.ndarray) for each in operands):
        return None
    found: list[Value] = []
    for each in operands:
        wide = _wide(each)
        if wide is None:
            return None
        found.append(wide)
    return found


def _wide(value: Value) -> Value | None:
    if isinstance(value, np.ndarray):
        return value.astype(np.uint32)
    whole = _whole(value)
    if whole is not None:
        return whole
    return value.extended(WIDE) if isinstance(value, PredicateBits) else None


def _whole(value: Value) -> SymbolicVector | None:
    """Return the term of 32 bits of which a value is the low bits, also one that was cut and extended by zeros."""
    low, bits = value, L.width(value)
    if isinstance(value, PackedVector):
        low, bits = value.parts[0], L.width(value.parts[0])
        if not all(isinstance(part, np.ndarray) and not part.any() for part in value.parts[1:]):
            return None
    for each in slices_of(low):
        if each.low or not is_wide_term(each.whole):
            continue
        whole = _with_numbers(each, low)
        if whole is not None:
            bound = maximum_of(whole)
            if low is value or (bound is not None and bound >> bits == 0):
                return whole
    return None


def _with_numbers(found: Slice, low: Value) -> SymbolicVector | None:
    """Return the value of which another is a slice, with the numbers of the lanes that hold one; None for others."""
    if found.lanes is True:
        return found.whole
    known = L.constant_mask(low) if isinstance(low, SymbolicVector) else False
    if not isinstance(low, SymbolicVector) or not np.all(found.lanes | np.asarray(known)):
        return None
    numbers = np.where(known, L.constants_of(low), 0).astype(np.uint32)
    result = L.blend(found.lanes, found.whole, L.constant_vector(numbers))
    if found.whole.maximum is not None:
        result.maximum = max(found.whole.maximum, int(numbers.max(initial=0)))
    return result
