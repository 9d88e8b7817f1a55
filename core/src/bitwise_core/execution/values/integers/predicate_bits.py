"""Integers whose bits are predicates, as a compiler packs the predicates of many elements into one register.

A select of two constants of each lane has the bits of its predicate, its negation, and constants.  Masks, shifts by
constants and the concatenation of parts move such bits, and a comparison with a constant reads them again: it is a
conjunction of predicates.  So a predicate that passed through a register is the predicate itself.  The number of bits
that are set is the sum of the predicates as numbers.

An operation on integers of which each is one of two constants, by the same predicate, is such an integer too, and so is
a slice or an extension of one.

An integer of which only the lowest bit may be set is 0 or 1.  Its canonical form is the select of 1 and 0 by the
predicate of this bit, so predicates may be combined as such or as numbers.

`PredicateBits` is the term of such an integer with its bits beside it.  Exchanges between threads and merges of lanes
keep the bits.  Memory keeps a hash only, and `PredicateNumbers` holds which predicates were stored as 0 or 1.  Where
the bits are lost, the term remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, extract_vector, parts_of, slices_of
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, poison
from bitwise_core.numerics import Operation

Apply: TypeAlias = Callable[[str, Sequence[Value]], Value]
"""The domain's operation of a name on predicates and integers."""

_BITWISE = ("and", "or", "xor")
_SHIFTS = ("shl", "shr")
_COMPARISONS = ("eq", "lt", "le")
_OF_ZERO_AND_ONE = {"max": "or", "min": "and", "mul": "and"}
"""Operations on the numbers 0 and 1, and what they are on predicates."""
_OF_CHOICES = frozenset(
    [*_BITWISE, *_SHIFTS, "add", "sub", "mul", "neg", "not", "min", "max", "mulwide", "mulhi", "convert"]
)
"""The operations that are applied to both numbers of a choice; each has a result for all integers."""
VERBS = frozenset([*_BITWISE, *_SHIFTS, *_COMPARISONS, *_OF_ZERO_AND_ONE, "popc"])
"""The operations that move or read bits."""


@dataclass(frozen=True, slots=True)
class Builder:
    """The domain's operation of a name, and its select of two numbers in a number of bits by a predicate."""

    apply: Apply
    select: Callable[[Value, Array | int, Array | int, int], Value]

    def number(self, predicate: Value, bits: int) -> Value:
        """Return 1 in `bits` bits where a predicate holds, else 0."""
        return self.select(predicate, 1, 0, bits)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a select of two constants of each lane selects: `high` where the predicate holds, else `low`."""

    predicate: SymbolicVector
    high: Array
    low: Array


class PredicateBits(SymbolicVector):
    """An integer and its bits, lowest first: predicates, or constants of each lane.

    They are computed when they are read.  `ones` has the bits that may be set, except in undefined lanes.
    `choice` is that of a select of two constants, else None.
    """

    __slots__ = ("_bits_of", "_builder", "_found", "choice", "ones")

    def __init__(
        self,
        value: SymbolicVector,
        bits_of: Callable[[], tuple[Value, ...]],
        ones: int,
        builder: Builder,
        choice: Choice | None = None,
    ) -> None:
        super().__init__(value.bits, value.words, value.flags)
        self.origins, self.recorder, self.cached_hash = value.origins, value.recorder, value.cached_hash
        self.maximum = value.maximum
        self.ones, self.choice = ones, choice
        self._bits_of, self._builder = bits_of, builder
        self._found: tuple[Value, ...] = ()

    @property
    def predicates(self) -> tuple[Value, ...]:
        """The predicate of each bit."""
        if not self._found:
            self._found = self._bits_of()
        return self._found

    def part(self, low: int, bits: int) -> Value | None:
        """See `SymbolicVector.part`."""
        if low == 0 and self.ones == 1:
            return self._builder.number(_inheriting(self.predicates[0], (self,)), bits)
        if self.choice is not None and bits > 1:
            high, low_number = (
                each >> each.dtype.type(low) & each.dtype.type((1 << bits) - 1)
                for each in (self.choice.high, self.choice.low)
            )
            return self._builder.select(self.choice.predicate, high, low_number, bits)
        ones = self.ones >> low & (1 << bits) - 1
        return PredicateBits(
            extract_vector(self, low, bits), lambda: self.predicates[low : low + bits], ones, self._builder
        )

    def extended(self, bits: int) -> Value | None:
        """See `SymbolicVector.extended`."""
        if self.ones == 1:
            return self._builder.number(_inheriting(self.predicates[0], (self,)), bits)
        if self.choice is None:
            return None
        return self._builder.select(self.choice.predicate, self.choice.high, self.choice.low, bits)

    def with_zeros_above(self, whole: SymbolicVector) -> SymbolicVector:
        """See `SymbolicVector.with_zeros_above`."""
        if isinstance(whole, PredicateBits):
            return whole
        zeros = (_constant(False),) * (whole.bits - self.bits)
        return PredicateBits(whole, lambda: (*self.predicates, *zeros), self.ones, self._builder)

    def taken(self, index: Array, result: SymbolicVector) -> SymbolicVector:
        """See `SymbolicVector.taken`."""
        return PredicateBits(
            result, lambda: _each(self.predicates, lambda bit: take_threads(bit, index)), self.ones, self._builder
        )

    def blended(self, mask: Array, other: SymbolicVector, result: SymbolicVector) -> SymbolicVector:
        """See `SymbolicVector.blended`."""
        others = _bits_of(other, self.bits)
        if others is None:
            return result
        return PredicateBits(
            result,
            lambda: _each_pair(self.predicates, others(), lambda one, another: blend_values(mask, one, another)),
            self.ones | _ones_of(other),
            self._builder,
        )


class PredicateNumbers:
    """The predicates that were stored as 0 or 1, by the hash of the number."""

    def __init__(self) -> None:
        self._known = HashTable()

    def note(self, value: Value) -> None:
        """Keep the predicate of each part of a stored value that is 0 or 1."""
        for part in value.parts if isinstance(value, PackedVector) else (value,):
            if isinstance(part, PredicateBits) and part.ones == 1:
                predicate = as_symbolic_vector(part.predicates[0])
                keys = exact_hash(part)
                shape = np.broadcast_shapes(keys.shape[1:], predicate.words.shape[1:])
                shape = np.broadcast_shapes(shape, np.shape(predicate.flags))
                self._known.add(
                    np.broadcast_to(keys, (2, *shape)).reshape(2, -1).copy(),
                    np.broadcast_to(predicate.words, (2, *shape)).reshape(2, -1).copy(),
                    L.flags_of_lanes(predicate.flags, shape).reshape(-1).copy(),
                )

    def recalled(self, value: Value, mask: Array | None, builder: Builder) -> Value:
        """Return a loaded value with its bits, where all active lanes hold numbers that were stored, 0 or 1."""
        if self._known.is_empty or isinstance(value, np.ndarray):
            return value
        if isinstance(value, PackedVector):
            parts = tuple(self._recalled(part, mask, builder) for part in value.parts)
            if all(one is another for one, another in zip(parts, value.parts, strict=True)):
                return value
            found = PackedVector(parts)
            found.whole, found.joined = value.whole, value.joined
            return found
        return value if L.lazy_integers(value) is not None else self._recalled(value, mask, builder)

    def _recalled(self, value: Array | SymbolicVector, mask: Array | None, builder: Builder) -> Array | SymbolicVector:
        if not isinstance(value, SymbolicVector) or isinstance(value, PredicateBits) or value.bits < 8:
            return value
        for each in slices_of(value):
            whole = self._recalled(each.whole, mask, builder) if each.low == 0 and np.all(each.lanes) else None
            if isinstance(whole, PredicateBits):
                part = whole.part(0, value.bits)
                assert not isinstance(part, PackedVector | None)
                return part
        entries = self._known.find(exact_hash(value))
        if entries is None:
            return value
        found, (words, flags) = entries
        known = np.asarray(L.constant_mask(value)) & (value.words[0] <= 1)
        undefined = np.asarray(L.has_flag(value, L.POISON))
        if not (found | known | undefined | (False if mask is None else ~mask)).all():
            return value
        predicate: Value = blend_values(found, SymbolicVector(1, words, flags), poison(1))
        if known.any():
            predicate = blend_values(known, value.words[0] != 0, predicate)
        lowest, others = _inheriting(predicate, (value,)), (_constant(False),) * (value.bits - 1)
        return PredicateBits(value, lambda: (lowest, *others), 1, builder)


def without_bits(value: Value) -> Value:
    """Return an integer without its bits, as an exchange through memory gives it back."""
    return SymbolicVector(value.bits, value.words, value.flags) if isinstance(value, PredicateBits) else value


def selected_constants(
    selected: Value, predicate: SymbolicVector, if_true: Array, if_false: Array, builder: Builder
) -> Value:
    """Return a select of two constants of each lane with its bits."""
    if not isinstance(selected, SymbolicVector):
        return selected

    def bits_of() -> tuple[Value, ...]:
        found: dict[tuple[bytes, bytes], Value] = {}
        opposite = builder.apply("not.b1", [predicate])
        bits = []
        for high, low in zip(*(_bits_of_numbers(each, selected.bits) for each in (if_true, if_false)), strict=True):
            key = np.asarray(high).tobytes(), np.asarray(low).tobytes()
            if key not in found:
                found[key] = _bit_of_choice(predicate, opposite, np.asarray(high), np.asarray(low), builder.apply)
            bits.append(found[key])
        return tuple(bits)

    if np.all(L.has_flag(predicate, L.NEGATED)):
        choice = Choice(L.without_flags(predicate, L.NEGATED), if_false, if_true)
    else:
        choice = Choice(predicate, if_true, if_false)
    return PredicateBits(selected, bits_of, _ones_of_numbers(if_true) | _ones_of_numbers(if_false), builder, choice)


def _bit_of_choice(predicate: Value, opposite: Value, high: Array, low: Array, apply: Apply) -> Value:
    """Return a bit that is `high` where a predicate holds, else `low`."""
    holds, fails = combined("and", high & ~low, predicate, apply), combined("and", low & ~high, opposite, apply)
    return combined("or", high & low, combined("or", holds, fails, apply), apply)


def choice_of(value: Value) -> Choice | None:
    """Return what a value selects if it is a select of two constants, else None."""
    return value.choice if isinstance(value, PredicateBits) else None


def number_choice(value: Value) -> Choice | None:
    """Return what a value selects, also where only its lowest bit may be set, so that it is 1 or 0 by this bit."""
    choice = choice_of(value)
    if choice is not None or not isinstance(value, PredicateBits) or value.ones != 1:
        return choice
    one, zero = (np.full((1, 1), each, dtype=L.UNSIGNED[value.bits]) for each in (1, 0))
    return Choice(as_symbolic_vector(_inheriting(value.predicates[0], (value,))), one, zero)


def of_choices(info: Operation, operands: Sequence[Value], builder: Builder) -> Value | None:
    """Return an operation on constants and selects of constants by one predicate, as such a select.

    None for other operands, and for predicates as results.
    """
    if info.function is None or info.bits == 1 or info.verb not in _OF_CHOICES:
        return None
    choices = [choice_of(each) for each in operands]
    first = next((each for each in choices if each is not None), None)
    if first is None:
        return None
    pairs: list[tuple[Array, ...]] = []
    for operand, choice in zip(operands, choices, strict=True):
        if choice is not None and _same_predicate(choice.predicate, first.predicate):
            pairs.append((choice.high, choice.low))
        elif isinstance(operand, np.ndarray):
            pairs.append((np.atleast_2d(operand),) * 2)
        else:
            return None
    high, low = (info.function(*each) for each in zip(*pairs, strict=True))
    return builder.select(first.predicate, high, low, info.bits)


def _same_predicate(one: SymbolicVector, other: SymbolicVector) -> bool:
    return one is other or (
        np.array_equal(one.words, other.words) and np.array_equal(np.asarray(one.flags), np.asarray(other.flags))
    )


def with_bits(info: Operation, operands: Sequence[Value], builder: Builder, otherwise: Callable[[], Value]) -> Value:
    """Return the result of an operation of `VERBS`; `otherwise` computes it without the bits of its operands."""
    if not any(_has_bits(each) for each in operands):
        return otherwise()
    if info.verb not in _BITWISE and info.verb not in _SHIFTS:
        read = _read(info, operands, builder)
        return otherwise() if read is None else read
    if info.verb in _SHIFTS and _shift_count(info, operands) is None:
        return otherwise()
    if any(_bits_of(each, info.bits) is None for each in (operands if info.verb in _BITWISE else operands[:1])):
        return otherwise()
    ones = _ones_of_result(info, operands)
    if ones == 1:
        return builder.number(_inheriting(_moved(info, operands, builder.apply)[0], operands), info.bits)
    result = otherwise()
    if not isinstance(result, SymbolicVector):
        return result
    return PredicateBits(result, lambda: _moved(info, operands, builder.apply), ones, builder)


def _read(info: Operation, operands: Sequence[Value], builder: Builder) -> Value | None:
    """Return the result of an operation that reads bits and does not move them, None where it is not known."""
    if info.verb == "popc":
        return _counted(operands[0], info, builder)
    if info.verb in _OF_ZERO_AND_ONE:
        return _combined_numbers(info, operands, builder)
    compared = _compared_number(info, operands, builder)
    return _equal(operands, builder.apply) if compared is None and info.verb == "eq" else compared


def _constant(value: bool) -> Array:
    return np.full((1, 1), value, dtype=np.bool_)


def _inheriting(predicate: Value, operands: Sequence[Value]) -> Value:
    """Return a predicate that is undefined where an operand is, whatever its own value."""
    sticky = _undefined(operands)
    return L.with_flags(as_symbolic_vector(predicate), sticky) if L.any_flag(sticky) else predicate


def _undefined(operands: Sequence[Value]) -> L.Flags:
    """Return the flags of a result whose operands are undefined in some lanes."""
    symbolic = (as_symbolic_vector(each) for each in operands if not isinstance(each, np.ndarray))
    return L.clear_flags(L.sticky_flags(*symbolic), L.NONDETERMINISTIC)


def _each_pair(
    left: Sequence[Value], right: Sequence[Value], function: Callable[[Value, Value], Value]
) -> tuple[Value, ...]:
    """Return the results of a function, which is applied once to pairs that are the same two objects."""
    pairs = list(zip(left, right, strict=True))
    results: dict[tuple[int, int], Value] = {}
    for one, another in pairs:
        if (id(one), id(another)) not in results:
            results[id(one), id(another)] = function(one, another)
    return tuple(results[id(one), id(another)] for one, another in pairs)


def _each(bits: Sequence[Value], function: Callable[[Value], Value]) -> tuple[Value, ...]:
    """Return the results of a function, which is applied once to bits that are one object."""
    found = {id(bit): bit for bit in bits}
    results = {key: function(bit) for key, bit in found.items()}
    return tuple(results[id(bit)] for bit in bits)


def _has_bits(value: Value) -> bool:
    if isinstance(value, PredicateBits):
        return True
    parts = parts_of(value)
    return parts is not None and any(isinstance(each, PredicateBits) for each in parts)


def _bits_of_numbers(numbers: Array, bits: int) -> tuple[Value, ...]:
    return tuple(numbers >> numbers.dtype.type(place) & numbers.dtype.type(1) != 0 for place in range(bits))


def _ones_of_numbers(numbers: Array) -> int:
    return int(np.bitwise_or.reduce(numbers, axis=None))


def _is_settled(value: SymbolicVector) -> bool:
    """Return whether each lane of a value is a constant or undefined."""
    return bool(np.all(np.logical_or(L.constant_mask(value), L.has_flag(value, L.POISON))))


def _bits_of_known_lanes(value: SymbolicVector) -> Callable[[], tuple[Value, ...]]:
    """Return the function that computes the bits of a value whose lanes are constants or undefined."""
    known, undefined = np.asarray(L.constant_mask(value)), poison(1)
    numbers = _bits_of_numbers(L.constants_of(value), value.bits)
    return lambda: _each(numbers, lambda bit: blend_values(known, bit, undefined))


def _bits_of(value: Value, bits: int) -> Callable[[], tuple[Value, ...]] | None:
    """Return the function that computes the bits of a value of this width, None if they are not known."""
    if isinstance(value, np.ndarray):
        return lambda: _bits_of_numbers(value, bits)
    if isinstance(value, PredicateBits):
        return lambda: value.predicates
    if isinstance(value, SymbolicVector) and parts_of(value) is None:
        return _bits_of_known_lanes(value) if _is_settled(value) else None
    parts = parts_of(value)
    found = [_bits_of(each, L.width(each)) for each in parts or ()]
    if not found or any(each is None for each in found):
        return None
    return lambda: tuple(bit for each in found if each is not None for bit in each())


def _ones_of(value: Value) -> int:
    """Return which bits of a value whose bits are known may be set, except in undefined lanes."""
    if isinstance(value, np.ndarray):
        return _ones_of_numbers(value)
    if isinstance(value, PredicateBits):
        return value.ones
    if isinstance(value, SymbolicVector) and parts_of(value) is None:
        return _ones_of_numbers(np.where(L.constant_mask(value), L.constants_of(value), 0))
    ones = low = 0
    for part in parts_of(value) or ():
        ones |= _ones_of(part) << low
        low += L.width(part)
    return ones


def _ones_of_result(info: Operation, operands: Sequence[Value]) -> int:
    """Return which bits of the result of a shift or of an operation on each bit may be set."""
    one = _ones_of(operands[0])
    if info.verb in _SHIFTS:
        count = _shift_count(info, operands) or 0
        return one << count & (1 << info.bits) - 1 if info.verb == "shl" else one >> count
    other = _ones_of(operands[1])
    return one & other if info.verb == "and" else one | other


def _known_bits(value: Value, bits: int) -> tuple[Value, ...]:
    found = _bits_of(value, bits)
    assert found is not None
    return found()


def _zero_or_one(value: Value) -> Value | None:
    """Return the predicate of a value that is 0 or 1, except in undefined lanes; None if that is not known."""
    bits = L.width(value)
    if _bits_of(value, bits) is None or _ones_of(value) & ~1:
        return None
    return _known_bits(value, bits)[0]


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
    other = _known_bits(operands[1], info.bits)
    return _each_pair(one, other, lambda left, right: combined(info.verb, left, right, apply))


def combined(verb: str, left: Value, right: Value, apply: Apply) -> Value:
    """Return `left verb right` of two predicates, without a term where a constant decides."""
    for known, other in ((left, right), (right, left)):
        if isinstance(known, np.ndarray):
            return _with_known(verb, known, other, apply)
    result = apply(f"{verb}.b1", [left, right])
    if verb not in ("and", "or") or not isinstance(left, SymbolicVector) or not isinstance(right, SymbolicVector):
        return result
    for some, others in ((left, right), (right, left)):
        where = np.asarray(L.constant_mask(some))
        if not where.any():
            continue
        numbers = L.constants_of(some)
        absorbs = where & (numbers if verb == "or" else ~numbers)
        result = blend_values(where & ~absorbs, others, blend_values(absorbs, some, result))
    return result


def _with_known(verb: str, known: Array, other: Value, apply: Apply) -> Value:
    if verb == "xor":
        if not known.any():
            return other
        opposite = apply("not.b1", [other])
        return opposite if known.all() else blend_values(known, opposite, other)
    absorbing = known if verb == "or" else ~known
    if absorbing.all():
        return known
    return blend_values(absorbing, known, other) if absorbing.any() else other


def _compared_number(info: Operation, operands: Sequence[Value], builder: Builder) -> Value | None:
    """Return a comparison of an integer that is 0 or 1 with constants, None for other operands."""
    for place, number in enumerate(operands):
        predicate = None if isinstance(operands[1 - place], np.ndarray) else _zero_or_one(operands[1 - place])
        if predicate is None or not isinstance(number, np.ndarray):
            continue
        assert info.function is not None
        of: list[Array] = []
        for each in (0, 1):
            compared = np.full((1, 1), each, dtype=number.dtype)
            pair = (number, compared) if place == 0 else (compared, number)
            of.append(info.function(*pair))
        holds = combined("and", of[1] & ~of[0], predicate, builder.apply)
        fails = combined("and", of[0] & ~of[1], builder.apply("not.b1", [predicate]), builder.apply)
        return _inheriting(
            combined("or", of[0] & of[1], combined("or", holds, fails, builder.apply), builder.apply), operands
        )
    return None


def _combined_numbers(info: Operation, operands: Sequence[Value], builder: Builder) -> Value | None:
    """Return the result of an operation of `_OF_ZERO_AND_ONE` on integers that are 0 or 1, None for others."""
    if info.modifiers or any(L.width(each) != info.bits for each in operands):
        return None
    left, right = (_zero_or_one(each) for each in operands)
    if left is None or right is None:
        return None
    both = combined(_OF_ZERO_AND_ONE[info.verb], left, right, builder.apply)
    return builder.number(_inheriting(both, operands), info.bits)


def _counted(value: Value, info: Operation, builder: Builder) -> Value | None:
    """Return the number of bits that are set as a sum of predicates, None if the bits are not known."""
    found = _bits_of(value, L.width(value))
    if found is None or info.bits != 32:
        return None
    total: Value = np.zeros((1, 1), dtype=np.uint32)
    for bit in found():
        if isinstance(bit, np.ndarray) and not bit.any():
            continue
        total = _sum(total, builder.number(bit, 32), builder.apply)
    sticky = _undefined((value,))
    return L.with_flags(as_symbolic_vector(total), sticky) if L.any_flag(sticky) else total


def _sum(total: Value, number: Value, apply: Apply) -> Value:
    if isinstance(total, np.ndarray) and isinstance(number, np.ndarray):
        return total + number
    return number if isinstance(total, np.ndarray) and not total.any() else apply("add.b32", [total, number])


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
            equal = combined("and", equal, same, apply)
        return _inheriting(equal, (value,))
    return None
