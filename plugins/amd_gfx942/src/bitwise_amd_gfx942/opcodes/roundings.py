"""What compilers write in several instructions: a rounding to bf16 by integers, and maxima that hand NaNs on.

gfx942 has no conversion from fp32 to bf16.  LLVM adds 0x7fff and the lowest bit that is kept, takes the high half, and
puts a NaN where the operand is one.  The sum carries into the high half exactly where rounding to nearest even goes up:
above half a unit always, at half a unit where the kept bit is odd; an overflow gives infinity, which has the next
pattern after the largest number.  The sign is not touched, since no pattern of a number is so great.
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

_REMEMBERED, _LOOKED_AT = 1024, 8
_NAN, _BF16_NAN = 0x7FC00000, 0x7FFF
"""The NaNs that compilers write: only these count, so that one form stands for one pattern."""


def same_value(left: Value, right: Value, mask: Array | None = None) -> bool:
    """Whether two values are known to be one number in every lane (of `mask`), or NaN both."""
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


def note_numbers(
    machine: Machine, predicate: Value, kind: str, values: tuple[Value, Value], negated: bool, where: Array | None
) -> None:
    """Remembers that a predicate says of two values that none is a NaN; `negated`: that one is.

    It does so in the lanes `where`, in all of them where that is None.
    """
    known = machine.extra.setdefault("numbers", {})
    if len(known) > _REMEMBERED:
        known.clear()
    # The values are kept, so that no other takes their identity.
    known[id(predicate)] = (predicate, kind, values, negated, where)


def _lowest_kept(machine: Machine, value: Value) -> Value:
    return combine(machine, "and", shifted(machine, "shr", value, literal(16, 32), 32), literal(1, 32), 32)


def _rounding(machine: Machine, value: Value) -> Value:
    """The high half of x + (bit 16 of x) + 0x7fff."""
    total = value
    for each in (_lowest_kept(machine, value), literal(0x7FFF, 32)):
        total = apply_integer(machine, operation("add.b32"), [total, each])
    return extract(total, 16, 16)


def rounding_sum(machine: Machine, total: Value, value: Value, bit: Value, constant: Value) -> Value:
    """`total`, the sum of the others, its high half as a rounding where they are a number x, its bit 16 and 0x7fff."""
    if machine.domain.name != "terms" or isinstance(total, np.ndarray) or L.lazy_integers(total) is not None:
        return total
    if not isinstance(constant, np.ndarray) or not (constant == np.uint32(0x7FFF)).all():
        return total
    for x, kept in ((value, bit), (bit, value)):
        if _is_number(machine, x) and same_value(_lowest_kept(machine, x), kept, machine.mask):
            return concat([extract(total, 0, 16), _as_bf16(machine, x)])
    return total


def _as_bf16(machine: Machine, value: Value) -> Value:
    return _quiet(machine.domain.floating(operation("convert.rn.bf16.fp32"), [value]))


def _quiet(value: Value) -> Value:
    """The value of an operation: no signalling NaN, and the bits of a NaN are not those of another machine's."""
    return L.with_flags(value, L.QUIET | L.MODULO_NAN_PAYLOAD) if isinstance(value, SymbolicVector) else value


def between_bounds(values: Sequence[Value]) -> tuple[Value, Value, Value] | None:
    """Of three fp32 the one that is not known, and the others in order, where the upper one is no zero.

    Their median is then the lesser of the upper bound and the greater of the lower bound and the value: the median is
    the greater of the two that are not the greatest, which is the upper bound only from there on, where both give it.
    Two zeros it takes as the greater of two does.  Of a quiet NaN both make the lower bound.
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


def note_number(machine: Machine, value: Value) -> None:
    """Remembers that a value is no NaN."""
    known = machine.extra.setdefault("no NaN", {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(value)] = value


def _is_number(machine: Machine, value: Value) -> bool:
    return machine.extra.get("no NaN", {}).get(id(value)) is value


def _noted(machine: Machine, predicate: Value) -> tuple[str, tuple[Value, Value], bool] | None:
    """What is noted of a predicate, or of one noted lately that is the same in every active lane."""
    known = machine.extra.get("numbers")
    if not known:
        return None
    found, mask = known.get(id(predicate)), machine.mask
    if found is not None and found[0] is predicate and _within(mask, found[4]):
        return found[1], found[2], found[3]
    if mask is None or not isinstance(predicate, SymbolicVector):
        return None
    for earlier, kind, values, negated, where in list(known.values())[: -_LOOKED_AT - 1 : -1]:
        if _within(mask, where) and same_value(earlier, predicate, mask):
            return kind, values, negated
    return None


def _within(mask: Array | None, where: Array | None) -> bool:
    """Whether the active lanes are among those."""
    return where is None or (mask is not None and not (mask & ~where).any())


def _one_number(machine: Machine, value: Value) -> int | None:
    """The number that all active lanes hold."""
    known = machine.known(value)
    if known is None:
        return None
    if machine.mask is not None and known.size > 1:
        shape = np.broadcast_shapes(known.shape, machine.mask.shape)
        known = np.broadcast_to(known, shape)[np.broadcast_to(machine.mask, shape)]
    return int(known.flat[0]) if known.size and (known == known.flat[0]).all() else None


def chosen_number(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value | None:
    """A choice that puts a NaN where an operand is one, as the operation that hands NaNs on; None for any other."""
    if machine.domain.name != "terms":
        return None
    found = _noted(machine, predicate)
    if found is None:
        return None
    kind, (left, right), negated = found
    if negated:
        if_true, if_false = if_false, if_true
    constant = _one_number(machine, if_false)
    if kind != "fp32" or constant is None:
        return None
    if isinstance(if_true, PackedVector):
        return _chosen_half(machine, left, if_true, constant) if same_value(left, right, machine.mask) else None
    if not isinstance(if_true, SymbolicVector) or constant != _NAN:
        return None
    for verb in ("max", "min"):
        if same_value(machine.domain.floating(operation(f"{verb}.fp32"), [left, right]), if_true, machine.mask):
            return _quiet(machine.domain.floating(operation(f"{verb}.nan.fp32"), [left, right]))
    return _extreme_of_tested(machine, if_true, (left, right))


def _extreme_of_tested(machine: Machine, value: Value, tested: tuple[Value, Value]) -> Value | None:
    """The extreme that hands NaNs on of what a value is noted to be one of, where just that is tested, or a number."""
    found = machine.extra.get("extremes", {}).get(id(value))
    if found is None or found[0] is not value:
        return None
    _, verb, *values = found
    alike = [[same_value(each, other, machine.mask) for other in tested] for each in values]
    told = all(any(row) or _known_number(each) for row, each in zip(alike, values, strict=True))
    if not told or not all(any(row[place] for row in alike) for place in range(len(tested))):
        return None
    return _quiet(machine.domain.floating(operation(f"{verb}.nan.fp32"), values))


def note_extreme(machine: Machine, verb: str, values: Sequence[Value], result: Value) -> None:
    """Remembers of which fp32 a result is the extreme (max or min), and whether it is no NaN."""
    known = machine.extra.setdefault("extremes", {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(result)] = (result, verb, *values)
    if any(_known_number(each) for each in values):
        note_number(machine, result)


def _known_number(value: Value) -> bool:
    """Whether every lane of an fp32 is known and no NaN."""
    return isinstance(value, np.ndarray) and bool(((value & np.uint32(0x7FFFFFFF)) <= np.uint32(0x7F800000)).all())


def _is_zero(value: Value, mask: Array | None) -> bool:
    """Whether a value is known to be 0 in every lane (of `mask`)."""
    zero = L.equals_constant(as_symbolic_vector(value), 0)
    return bool(np.all(zero if mask is None else zero | ~mask))


def _chosen_half(machine: Machine, value: Value, pieces: PackedVector, constant: int) -> Value | None:
    halves = [extract(pieces, low, 16) for low in (0, 16)]
    for place, half in enumerate(halves):
        other = halves[1 - place]
        nan, rest = constant >> 16 * place & 0xFFFF, constant >> 16 * (1 - place) & 0xFFFF
        if rest or nan != _BF16_NAN or not _is_zero(other, machine.mask):
            continue
        if same_value(half, _rounding(machine, value), machine.mask):
            rounded = _as_bf16(machine, value)
            zero = literal(0, 16)
            return concat([rounded, zero] if place == 0 else [zero, rounded])
    return None
