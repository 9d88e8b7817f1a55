"""Integers whose bits are predicates, as a compiler packs the predicates of many elements into one register.

A select of two constants has the bits of its predicate, its negation, and constants.  Masks, shifts by constants and
the concatenation of parts move such bits, and a comparison with a constant reads them again: it is a conjunction of
predicates.  So a predicate that passed through a register is the predicate itself.

`PredicateBits` is the term of such an integer with its bits beside it.  Where they are lost, the term remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import extract_vector, parts_of
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import Operation

Apply: TypeAlias = Callable[[str, Sequence[Value]], Value]
"""The domain's operation of a name on predicates."""

_BITWISE = ("and", "or", "xor")
_SHIFTS = ("shl", "shr")
VERBS = frozenset([*_BITWISE, *_SHIFTS, "eq"])
"""The operations that move or read bits."""


class PredicateBits(SymbolicVector):
    """An integer and its bits, lowest first: predicates, or constants of each lane.

    They are computed when they are asked for.
    """

    __slots__ = ("_bits_of", "_found")

    def __init__(self, value: SymbolicVector, bits_of: Callable[[], tuple[Value, ...]]) -> None:
        super().__init__(value.bits, value.words, value.flags)
        self.origins, self.recorder, self.cached_hash = value.origins, value.recorder, value.cached_hash
        self._bits_of = bits_of
        self._found: tuple[Value, ...] = ()

    @property
    def predicates(self) -> tuple[Value, ...]:
        """The predicate of each bit."""
        if not self._found:
            self._found = self._bits_of()
        return self._found

    def part(self, low: int, bits: int) -> Value | None:
        """See `SymbolicVector.part`."""
        return PredicateBits(extract_vector(self, low, bits), lambda: self.predicates[low : low + bits])


def without_bits(value: Value) -> Value:
    """Return an integer without its bits, as an exchange between lanes or through memory gives it back."""
    return SymbolicVector(value.bits, value.words, value.flags) if isinstance(value, PredicateBits) else value


def selected_constants(
    selected: Value, predicate: SymbolicVector, if_true: Array, if_false: Array, apply: Apply
) -> Value:
    """Return a select of two constants, one for all lanes, with its bits."""
    if not isinstance(selected, SymbolicVector) or if_true.size != 1 or if_false.size != 1:
        return selected

    def bits_of() -> tuple[Value, ...]:
        high, low = int(if_true.reshape(())[()]), int(if_false.reshape(())[()])
        choices: dict[tuple[int, int], Value] = {(1, 0): predicate, (0, 0): _constant(False), (1, 1): _constant(True)}
        if ~high & low:
            choices[0, 1] = apply("not.b1", [predicate])
        return tuple(choices[high >> place & 1, low >> place & 1] for place in range(selected.bits))

    return PredicateBits(selected, bits_of)


def with_bits(info: Operation, operands: Sequence[Value], apply: Apply, otherwise: Callable[[], Value]) -> Value:
    """Return the result of an operation of `VERBS`; `otherwise` computes it without the bits of its operands."""
    if not any(_has_bits(each) for each in operands):
        return otherwise()
    if info.verb == "eq":
        compared = _equal(operands, apply)
        return otherwise() if compared is None else compared
    result = otherwise()
    if not isinstance(result, SymbolicVector) or (info.verb in _SHIFTS and _shift_count(info, operands) is None):
        return result
    if any(_bits_of(each, info.bits) is None for each in (operands if info.verb in _BITWISE else operands[:1])):
        return result
    return PredicateBits(result, lambda: _moved(info, operands, apply))


def _constant(value: bool) -> Array:
    return np.full((1, 1), value, dtype=np.bool_)


def _has_bits(value: Value) -> bool:
    if isinstance(value, PredicateBits):
        return True
    parts = parts_of(value)
    return parts is not None and any(isinstance(each, PredicateBits) for each in parts)


def _bits_of(value: Value, bits: int) -> Callable[[], tuple[Value, ...]] | None:
    """Return the function that computes the bits of a value of this width, None if they are not known."""
    if isinstance(value, np.ndarray):
        return lambda: tuple(value >> value.dtype.type(place) & value.dtype.type(1) != 0 for place in range(bits))
    if isinstance(value, PredicateBits):
        return lambda: value.predicates
    parts = parts_of(value)
    found = [_bits_of(each, L.width(each)) for each in parts or ()]
    if not found or any(each is None for each in found):
        return None
    return lambda: tuple(bit for each in found if each is not None for bit in each())


def _known_bits(value: Value, bits: int) -> tuple[Value, ...]:
    found = _bits_of(value, bits)
    assert found is not None
    return found()


def _shift_count(info: Operation, operands: Sequence[Value]) -> int | None:
    """Return the number of places of a logical shift by one constant."""
    by = operands[1]
    if info.operands[0].name.startswith("s") or not isinstance(by, np.ndarray) or by.size != 1:
        return None
    return int(by.reshape(())[()])


def _moved(info: Operation, operands: Sequence[Value], apply: Apply) -> tuple[Value, ...]:
    """Return the bits of the result of a shift or of an operation on each bit."""
    one = _known_bits(operands[0], info.bits)
    if info.verb in _SHIFTS:
        count = _shift_count(info, operands)
        assert count is not None
        fill = (_constant(False),) * min(count, info.bits)
        return (*fill, *one)[: info.bits] if info.verb == "shl" else (*one[count:], *fill)
    found: dict[tuple[int, int], Value] = {}
    pairs = list(zip(one, _known_bits(operands[1], info.bits), strict=True))
    for left, right in pairs:
        if (id(left), id(right)) not in found:
            found[id(left), id(right)] = _combined(info.verb, left, right, apply)
    return tuple(found[id(left), id(right)] for left, right in pairs)


def _combined(verb: str, left: Value, right: Value, apply: Apply) -> Value:
    for known, other in ((left, right), (right, left)):
        if not isinstance(known, np.ndarray) or known.size != 1:
            continue
        if known.all():
            return other if verb == "and" else known if verb == "or" else apply("not.b1", [other])
        return known if verb == "and" else other
    return apply(f"{verb}.b1", [left, right])


def _equal(operands: Sequence[Value], apply: Apply) -> Value | None:
    """Return whether an integer of predicates equals a constant: the conjunction of its bits, or their negations."""
    for value, number in (operands, operands[::-1]):
        if not isinstance(number, np.ndarray) or number.size != 1:
            continue
        found = _bits_of(value, L.width(value))
        if found is None:
            return None
        wanted = int(number.reshape(())[()])
        equal: Value = _constant(True)
        tested: set[tuple[int, int]] = set()
        for place, bit in enumerate(found()):
            expected = wanted >> place & 1
            if (id(bit), expected) in tested:
                continue
            tested.add((id(bit), expected))
            same = bit if expected else apply("not.b1", [bit])
            equal = _combined("and", equal, same, apply)
        return equal
    return None
