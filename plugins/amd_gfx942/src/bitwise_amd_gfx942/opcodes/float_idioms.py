"""Matching of floating-point idioms of several instructions: bf16 rounding by integers, minima and maxima of NaNs.

gfx942 has no conversion from fp32 to bf16.  LLVM adds 0x7fff and the lowest kept bit, takes the high half, and selects
a NaN where the operand is one.  The sum carries into the high half exactly where rounding to nearest even rounds up:
always above half an ulp, and at half an ulp where the kept bit is 1.  An overflow gives infinity, whose pattern follows
that of the largest number.  The sum never carries into the sign, since a pattern of a number is too small for that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.shifts import shifted
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import operation

_TABLE_SIZE, _SEARCHED = 1024, 8
_NAN, _BF16_NAN = 0x7FC00000, 0x7FFF
"""The NaN patterns that compilers select: only these match, so that a matched idiom has a single bit pattern."""


def same_value(left: Value, right: Value, mask: Array | None = None) -> bool:
    """Whether two values are known to be the same number, or both NaN, in every lane (of `mask`)."""
    if left is right:
        return True
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray) or L.width(left) != L.width(right):
        return False
    if L.lazy_integers(left) is not None or L.lazy_integers(right) is not None:
        return False
    one, other = full_hash(as_symbolic_vector(left)), full_hash(as_symbolic_vector(right))
    if mask is None:
        return one.shape == other.shape and bool((one == other).all())
    same = (one == other).all(axis=0)
    shape = np.broadcast_shapes(same.shape, mask.shape)
    return bool(np.broadcast_to(same, shape)[np.broadcast_to(mask, shape)].all())


def record_nan_test(
    machine: Machine, predicate: Value, kind: str, values: tuple[Value, Value], negated: bool, where: Array | None
) -> None:
    """Record that a predicate tests two values: that neither is a NaN, or, if `negated`, that one is.

    The record holds in the lanes `where` (None: in all).
    """
    known = machine.extra.setdefault("numbers", {})
    if len(known) > _TABLE_SIZE:
        known.clear()
    # The record keeps the values alive, so that no other value reuses their ids.
    known[id(predicate)] = (predicate, kind, values, negated, where)


def _lowest_kept_bit(machine: Machine, value: Value) -> Value:
    return combine(machine, "and", shifted(machine, "shr", value, literal(16, 32), 32), literal(1, 32), 32)


def _rounding_idiom(machine: Machine, value: Value) -> Value:
    """The high half of x + (bit 16 of x) + 0x7fff."""
    total = value
    for each in (_lowest_kept_bit(machine, value), literal(0x7FFF, 32)):
        total = apply_integer(machine, operation("add.b32"), [total, each])
    return extract(total, 16, 16)


def match_rounding_sum(machine: Machine, total: Value, value: Value, bit: Value, constant: Value) -> Value:
    """The sum `total` of the three others, with its high half as a bf16 rounding of x where the idiom matches.

    The summands are then x, which is known not to be a NaN, its bit 16, and 0x7fff.
    """
    if machine.domain.name != "terms" or isinstance(total, np.ndarray) or L.lazy_integers(total) is not None:
        return total
    if not isinstance(constant, np.ndarray) or not (constant == np.uint32(0x7FFF)).all():
        return total
    for x, kept in ((value, bit), (bit, value)):
        if _is_not_nan(machine, x) and same_value(_lowest_kept_bit(machine, x), kept, machine.mask):
            return concat([extract(total, 0, 16), _as_bf16(machine, x)])
    return total


def _as_bf16(machine: Machine, value: Value) -> Value:
    return _mark_quiet(machine.domain.floating(operation("convert.rn.bf16.fp32"), [value]))


def _mark_quiet(value: Value) -> Value:
    """Mark the value of an operation as no signalling NaN."""
    return L.with_flags(value, L.QUIET) if isinstance(value, SymbolicVector) else value


def constant_bounds(values: Sequence[Value]) -> tuple[Value, Value, Value] | None:
    """The value and the two constant bounds of a median of three fp32 that is a clamp; None for any other.

    One of the three is not constant, the bounds differ, and the upper bound is not a zero.  The median is then
    min(max(value, lower), upper): it is the maximum of the two that remain without the greatest, which is the upper
    bound only if the value is at or above it, and then both are the upper bound.  Among two zeros the median chooses as
    the maximum does.  For a quiet NaN both return the lower bound.
    """
    known = [each for each in values if isinstance(each, np.ndarray)]
    rest = [each for each in values if not isinstance(each, np.ndarray)]
    if len(rest) != 1 or any(each.size != 1 for each in known):
        return None
    low, high = sorted(known, key=lambda each: float(each.view(np.float32).flat[0]))
    numbers = [float(each.view(np.float32).flat[0]) for each in (low, high)]
    if not numbers[0] < numbers[1] or numbers[1] == 0:
        return None
    return rest[0], low, high


def record_not_nan(machine: Machine, value: Value) -> None:
    """Record that a value is not a NaN."""
    known = machine.extra.setdefault("no NaN", {})
    if len(known) > _TABLE_SIZE:
        known.clear()
    known[id(value)] = value


def _is_not_nan(machine: Machine, value: Value) -> bool:
    return machine.extra.get("no NaN", {}).get(id(value)) is value


def _nan_test_of(machine: Machine, predicate: Value) -> tuple[str, tuple[Value, Value], bool] | None:
    """The NaN test that a predicate is recorded as: format, values, negated; None where there is no record.

    A recent predicate that is equal in every active lane counts as well.
    """
    known = machine.extra.get("numbers")
    if not known:
        return None
    found, mask = known.get(id(predicate)), machine.mask
    if found is not None and found[0] is predicate and _mask_inside(mask, found[4]):
        return found[1], found[2], found[3]
    if mask is None or not isinstance(predicate, SymbolicVector):
        return None
    for earlier, kind, values, negated, where in list(known.values())[: -_SEARCHED - 1 : -1]:
        if _mask_inside(mask, where) and same_value(earlier, predicate, mask):
            return kind, values, negated
    return None


def _mask_inside(mask: Array | None, where: Array | None) -> bool:
    """Whether all active lanes are among the lanes `where`."""
    return where is None or (mask is not None and not (mask & ~where).any())


def _uniform_constant(machine: Machine, value: Value) -> int | None:
    """The constant that all active lanes hold; None where they differ or it is unknown."""
    known = machine.known(value)
    if known is None:
        return None
    if machine.mask is not None and known.size > 1:
        shape = np.broadcast_shapes(known.shape, machine.mask.shape)
        known = np.broadcast_to(known, shape)[np.broadcast_to(machine.mask, shape)]
    return int(known.flat[0]) if known.size and (known == known.flat[0]).all() else None


def match_nan_propagation(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value | None:
    """A select of a NaN where an operand is one, as the operation that propagates NaNs; None for any other select."""
    if machine.domain.name != "terms":
        return None
    found = _nan_test_of(machine, predicate)
    if found is None:
        return None
    kind, (left, right), negated = found
    if negated:
        if_true, if_false = if_false, if_true
    constant = _uniform_constant(machine, if_false)
    if kind != "fp32" or constant is None:
        return None
    if isinstance(if_true, PackedVector):
        return _match_bf16_rounding(machine, left, if_true, constant) if same_value(left, right, machine.mask) else None
    if not isinstance(if_true, SymbolicVector) or constant != _NAN:
        return None
    for verb in ("max", "min"):
        if same_value(machine.domain.floating(operation(f"{verb}.fp32"), [left, right]), if_true, machine.mask):
            return _mark_quiet(machine.domain.floating(operation(f"{verb}.nan.fp32"), [left, right]))
    return _minmax_of_tested(machine, if_true, (left, right))


def _minmax_of_tested(machine: Machine, value: Value, tested: tuple[Value, Value]) -> Value | None:
    """The NaN-propagating form of a recorded minimum or maximum, where the tested values are exactly its operands.

    A constant operand that is not a NaN need not be tested.
    """
    found = machine.extra.get("extremes", {}).get(id(value))
    if found is None or found[0] is not value:
        return None
    _, verb, *values = found
    matches = [[same_value(each, other, machine.mask) for other in tested] for each in values]
    all_tested = all(any(row) or _is_constant_number(each) for row, each in zip(matches, values, strict=True))
    if not all_tested or not all(any(row[index] for row in matches) for index in range(len(tested))):
        return None
    return _mark_quiet(machine.domain.floating(operation(f"{verb}.nan.fp32"), values))


def record_minmax(machine: Machine, verb: str, values: Sequence[Value], result: Value) -> None:
    """Record the fp32 operands of a max or min, and that it is not a NaN where an operand is a constant number."""
    known = machine.extra.setdefault("extremes", {})
    if len(known) > _TABLE_SIZE:
        known.clear()
    known[id(result)] = (result, verb, *values)
    if any(_is_constant_number(each) for each in values):
        record_not_nan(machine, result)


def _is_constant_number(value: Value) -> bool:
    """Whether an fp32 is constant and not a NaN in every lane."""
    return isinstance(value, np.ndarray) and bool(((value & np.uint32(0x7FFFFFFF)) <= np.uint32(0x7F800000)).all())


def _is_zero(value: Value, mask: Array | None) -> bool:
    """Whether a value is known to be 0 in every lane of the mask (None: in every lane)."""
    zero = L.equals_constant(as_symbolic_vector(value), 0)
    return bool(np.all(zero if mask is None else zero | ~mask))


def _match_bf16_rounding(machine: Machine, value: Value, pieces: PackedVector, constant: int) -> Value | None:
    halves = [extract(pieces, low, 16) for low in (0, 16)]
    for index, half in enumerate(halves):
        other = halves[1 - index]
        nan, rest = constant >> 16 * index & 0xFFFF, constant >> 16 * (1 - index) & 0xFFFF
        if rest or nan != _BF16_NAN or not _is_zero(other, machine.mask):
            continue
        if same_value(half, _rounding_idiom(machine, value), machine.mask):
            rounded = _as_bf16(machine, value)
            zero = literal(0, 16)
            return concat([rounded, zero] if index == 0 else [zero, rounded])
    return None
