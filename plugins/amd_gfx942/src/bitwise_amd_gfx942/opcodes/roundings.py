"""What compilers write in several instructions: a rounding to bf16 by integers, and maxima that hand NaNs on.

gfx942 has no conversion from fp32 to bf16.  LLVM adds 0x7fff and the lowest bit that is kept, takes the high half, and
puts a NaN where the operand is one.  The sum carries into the high half exactly where rounding to nearest even goes up:
above half a unit always, at half a unit where the kept bit is odd; an overflow gives infinity, which has the next
pattern after the largest number.  The sign is not touched, since no pattern of a number is so great.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import full_hash
from bitwise_core.machine.lanes import Lanes, Pieces, Value
from bitwise_core.machine.logic import combine
from bitwise_core.machine.pieces import as_lanes, concat, cut
from bitwise_core.machine.shifts import shifted
from bitwise_core.machine.state import Machine, literal
from bitwise_core.machine.steps import apply_integer

_REMEMBERED = 1024
_NAN, _BF16_NAN = 0x7FC00000, 0x7FFF
"""The NaNs that compilers write: only these count, so that one form stands for one pattern."""


def same_value(left: Value, right: Value) -> bool:
    """Whether two values are known to be one number in every lane, or NaN both."""
    if left is right:
        return True
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray) or L.width(left) != L.width(right):
        return False
    if L.other_form(left) is not None or L.other_form(right) is not None:
        return False
    one, other = full_hash(as_lanes(left)), full_hash(as_lanes(right))
    return one.shape == other.shape and bool((one == other).all())


def note_numbers(machine: Machine, predicate: Value, kind: str, values: tuple[Value, Value], negated: bool) -> None:
    """Remembers that a predicate says of two values that none is a NaN; `negated`: that one is."""
    known = machine.extra.setdefault("numbers", {})
    if len(known) > _REMEMBERED:
        known.clear()
    # The values are kept, so that no other takes their identity.
    known[id(predicate)] = (predicate, kind, values, negated)


def _lowest_kept(machine: Machine, value: Value) -> Value:
    return combine(machine, "and", shifted(machine, "shr", value, literal(16, 32), 32), literal(1, 32), 32)


def _rounding(machine: Machine, value: Value) -> Value:
    """The high half of x + (bit 16 of x) + 0x7fff."""
    total = value
    for each in (_lowest_kept(machine, value), literal(0x7FFF, 32)):
        total = apply_integer(machine, "add.b32", [total, each], 32, np.add, gathers=True)
    return cut(total, 16, 16)


def rounding_sum(machine: Machine, total: Value, value: Value, bit: Value, constant: Value) -> Value:
    """`total`, the sum of the others, its high half as a rounding where they are a number x, its bit 16 and 0x7fff."""
    if machine.domain.name != "terms" or isinstance(total, np.ndarray) or L.other_form(total) is not None:
        return total
    if not isinstance(constant, np.ndarray) or not (constant == np.uint32(0x7FFF)).all():
        return total
    for x, kept in ((value, bit), (bit, value)):
        if _is_number(machine, x) and same_value(_lowest_kept(machine, x), kept):
            return concat([cut(total, 0, 16), _as_bf16(machine, x)])
    return total


def _as_bf16(machine: Machine, value: Value) -> Value:
    return _quiet(machine.domain.floating("convert.rn.bf16.fp32", [value], 16))


def _quiet(value: Value) -> Value:
    """The value of an operation: no signalling NaN, and the bits of a NaN are not those of another machine's."""
    return L.flagged(value, L.QUIET | L.LOOSE) if isinstance(value, Lanes) else value


def note_number(machine: Machine, value: Value) -> None:
    """Remembers that a value is no NaN."""
    known = machine.extra.setdefault("no NaN", {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(value)] = value


def _is_number(machine: Machine, value: Value) -> bool:
    return machine.extra.get("no NaN", {}).get(id(value)) is value


def chosen_number(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value | None:
    """A choice that puts a NaN where an operand is one, as the operation that hands NaNs on; None for any other."""
    if machine.domain.name != "terms":
        return None
    found = machine.extra.get("numbers", {}).get(id(predicate))
    if found is None or found[0] is not predicate:
        return None
    _, kind, (left, right), negated = found
    if negated:
        if_true, if_false = if_false, if_true
    if kind != "fp32" or not isinstance(if_false, np.ndarray) or if_false.size != 1:
        return None
    constant = int(if_false.flat[0])
    if isinstance(if_true, Pieces):
        return _chosen_half(machine, left, if_true, constant) if same_value(left, right) else None
    if not isinstance(if_true, Lanes) or constant != _NAN:
        return None
    for verb in ("max", "min"):
        if same_value(machine.domain.floating(f"{verb}.fp32", [left, right], 32), if_true):
            return _quiet(machine.domain.floating(f"{verb}.nan.fp32", [left, right], 32))
    return None


def _chosen_half(machine: Machine, value: Value, pieces: Pieces, constant: int) -> Value | None:
    halves = [cut(pieces, low, 16) for low in (0, 16)]
    for place, half in enumerate(halves):
        other = halves[1 - place]
        nan, rest = constant >> 16 * place & 0xFFFF, constant >> 16 * (1 - place) & 0xFFFF
        if rest or nan != _BF16_NAN or not isinstance(other, np.ndarray) or other.any():
            continue
        if same_value(half, _rounding(machine, value)):
            rounded = _as_bf16(machine, value)
            return concat([rounded, other] if place == 0 else [other, rounded])
    return None
