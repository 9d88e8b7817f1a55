"""Matrix-unit steps: ordered operand vectors, and one fused step for all outputs at once.

A fused step adds the products of a row of A and a column of B to an accumulator; within one step the hardware's sum has
no order.  An instruction gathers the elements of its operands and passes them to the domain, which keeps them in its
own representation (`OperandVectors`) and computes the step.

In the domain of terms, an output is a term of the instruction's own operation over the accumulator, the row's vector
and the column's vector.  The two vectors commute if their element types are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeAlias

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats import nan_marks
from bitwise_core.execution.values.floats.assumed_finite import assumed_finite
from bitwise_core.execution.values.floats.zero_signs import ZeroSigns
from bitwise_core.execution.values.matrix_steps.matrix_chains import (
    ChainedSteps,
    more_steps,
    next_steps,
    shape_of,
    step_payload,
)
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, nan_bits
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import MmaSpec

VECTOR, MATRIX = "vector", "matrix "
"""The recorded name of operand vectors, and the prefix of the recorded name of a fused step."""


@dataclass(frozen=True, slots=True)
class IntegerProducts:
    """What determines the bits of an integer unit's step: the operand types, and whether the result is clamped.

    `largest` is the largest magnitude of the sum of one step's products.
    """

    types: str
    largest: int
    clamps: bool


@dataclass(frozen=True, slots=True)
class MmaStep:
    """One fused step of a matrix unit.

    `name` identifies everything that determines its bits.  `positive_zero`: the unit's zero results are +0, also on
    underflow (one exact sum that is normalised once has no other zero).  `commutes`: rows and columns have elements of
    one type.  `integers` is None for floating-point units.  `signed_zeros`: the sign of a zero product affects the
    result, so a step of zeros is known to add +0 only if all of them are +0.  `cuts`: the unit cuts results to fewer
    bits than their format has, so a step of zeros cuts the accumulator; that of another step of such a unit of the
    architecture is cut already.  `opaque`: nothing is known of the unit's sums, so a step of zeros is a step like any
    other; its operand vectors are gathered as bits, without a format.
    `own_name` is the name of the step of its unit alone where `name` is that of several units whose results are only
    published to be the same, and empty otherwise.
    `units` are the rows of the architecture, of which one may state the arithmetic of the step.  Steps of one
    `arithmetic` are one operation, whatever their names.
    """

    name: str
    positive_zero: bool
    commutes: bool
    integers: IntegerProducts | None = None
    signed_zeros: bool = False
    cuts: bool = False
    opaque: bool = False
    units: tuple[MmaSpec, ...] = field(default=(), compare=False, repr=False)
    arithmetic: str = ""
    own_name: str = ""


def row_of(name: str, units: Sequence[MmaSpec]) -> MmaSpec | None:
    """Return the row of a step's name, None if there is none."""
    found = _ROWS.get(id(units))
    if found is None or found[0] is not units:
        if len(_ROWS) >= _MAXIMUM_TABLES:
            _ROWS.clear()
        # The first row of a name counts.
        found = _ROWS[id(units)] = units, {each.name: each for each in reversed(units)}
    return found[1].get("_".join(name.split()))


_ROWS: dict[int, tuple[Sequence[MmaSpec], Mapping[str, MmaSpec]]] = {}
"""The rows of an architecture by name, by the identity of their sequence."""

_MAXIMUM_TABLES = 32


def with_arithmetic(step: MmaStep) -> MmaStep:
    """Return the step with the arithmetic that its row states; without a row, the step itself."""
    row = row_of(step.name, step.units)
    return step if row is None else replace(step, arithmetic=row.arithmetic_name)


def of_its_unit(step: MmaStep) -> MmaStep:
    """Return the step under the name of its own unit, apart from those that are only published to be the same."""
    return replace(step, name=step.own_name) if step.own_name else step


class OperandVectors(Protocol):
    """Operand vectors in a domain's own representation.

    They are an array of vectors for each block, flat until `take` arranges them.
    """

    def take(self, index: Array) -> Self:
        """Return the vectors with these numbers, in the shape of `index`."""

    def of_blocks(self, blocks: Array) -> Self:
        """Return the vectors that each block of a batch takes from block `blocks[block]`."""

    def concatenated(self, others: Sequence[Self]) -> Self:
        """Return these vectors followed by the others', flat."""

    def same_in(self, blocks: Array, other: Self) -> bool:
        """Return whether these vectors are the same as others in some blocks, a boolean array."""


@dataclass(frozen=True, slots=True)
class HashedVectors:
    """Operand vectors in the domain of terms: hashes of shape (2, blocks, ...).

    `zero` marks the vectors that are constant zeros only (None: none is), and `signed` says whether any of these zeros
    is -0.  `sticky` holds the inherited flags.  `finite`: every element is a finite number, by assumption or as a
    constant.

    `place` is the number of the vectors that each block of the batch takes, for vectors of some of the blocks (None:
    those at its own number, or the only ones); see `placed`.
    """

    words: hashing.Words
    zero: Array | None
    sticky: L.Flags
    signed: bool = False
    finite: bool = False
    place: Array | None = None

    def take(self, index: Array) -> HashedVectors:
        """See `OperandVectors.take`."""
        if self.place is not None:
            return self.spread().take(index)
        words = self.words.reshape(2, self.words.shape[1], -1)[:, :, index]
        zero = None if self.zero is None else self.zero.reshape(self.zero.shape[0], -1)[:, index]
        return HashedVectors(words, zero, self.sticky, self.signed, self.finite)

    def placed(self, first: int, count: int, place: Array | None) -> HashedVectors:
        """Return vectors of `count` blocks from block `first` on, of which each block of the batch takes one.

        They stay vectors of these blocks until `take` arranges them.
        """
        chosen = slice(first, first + count)
        words = self.words if self.words.shape[1] == 1 else self.words[:, chosen]
        zero = self.zero if self.zero is None or self.zero.shape[0] == 1 else self.zero[chosen]
        sticky = self.sticky if isinstance(self.sticky, int) or len(self.sticky) == 1 else self.sticky[chosen]
        return HashedVectors(words, zero, sticky, self.signed, self.finite, None if count == 1 else place)

    def plain(self) -> HashedVectors:
        """Return the vectors as computed ones, where they are computed when they are read."""
        return self

    def spread(self) -> HashedVectors:
        """Return the vectors with those of every block of the batch."""
        return self if self.place is None else replace(self, place=None).of_blocks(self.place)

    def of_blocks(self, blocks: Array) -> HashedVectors:
        """See `OperandVectors.of_blocks`."""
        blocks = blocks if self.place is None else self.place[blocks]
        words = self.words if self.words.shape[1] == 1 else self.words[:, blocks]
        zero = self.zero if self.zero is None or self.zero.shape[0] == 1 else self.zero[blocks]
        sticky = self.sticky if isinstance(self.sticky, int) or len(self.sticky) == 1 else self.sticky[blocks]
        return HashedVectors(words, zero, sticky, self.signed, self.finite)

    def settled(self) -> HashedVectors:
        """Return the vectors with no more than is known of them: no array where no vector is zeros."""
        zero = None if self.zero is None or not self.zero.any() else self.zero
        return HashedVectors(self.words, zero, L.uniform_flags(self.sticky), self.signed, self.finite, self.place)

    def joined(self, parts: int) -> HashedVectors:
        """Return the vectors of blocks of which each `parts` together are one."""
        if parts == 1:
            return self
        if self.place is not None:
            return self.spread().joined(parts)
        words = np.stack([_joined(each, parts) for each in self.words])
        zero = None if self.zero is None else _joined(self.zero, parts)
        sticky = self.sticky
        if not isinstance(sticky, int):
            sticky = L.uniform_flags(np.bitwise_or.reduce(_joined(sticky[:, None], parts), axis=1))
        return HashedVectors(words, zero, sticky, self.signed, self.finite)

    def concatenated(self, others: Sequence[HashedVectors]) -> HashedVectors:
        """See `OperandVectors.concatenated`."""
        if not others:
            return self
        together = [each.plain() for each in (self, *others)]
        place = self.place
        same = place is not None and all(
            each.place is not None and np.array_equal(place, each.place) for each in others
        )
        parts = [replace(each, place=None) if same else each.spread() for each in together]
        sticky: L.Flags = 0
        for each in parts:
            sticky = sticky | each.sticky
        # Vectors that agree in all blocks have one row.
        blocks = max(each.words.shape[1] for each in parts)
        flat = [each.words.reshape(2, each.words.shape[1], -1) for each in parts]
        words = np.concatenate([np.broadcast_to(each, (2, blocks, each.shape[2])) for each in flat], axis=2)
        signed = any(each.signed for each in parts)
        finite = all(each.finite for each in parts)
        place = place if same else None
        if all(each.zero is None for each in parts):
            return HashedVectors(words, None, sticky, signed, finite, place)
        none = [np.zeros((1, each.shape[2]), dtype=bool) for each in flat]
        zeros = [
            without if each.zero is None else each.zero.reshape(each.zero.shape[0], -1)
            for each, without in zip(parts, none, strict=True)
        ]
        blocks = max(each.shape[0] for each in zeros)
        spread = [np.broadcast_to(each, (blocks, each.shape[1])) for each in zeros]
        return HashedVectors(words, np.concatenate(spread, axis=1), sticky, signed, finite, place)

    def same_in(self, blocks: Array, other: HashedVectors) -> bool:
        """See `OperandVectors.same_in`."""
        both = zip(self.spread().words, other.spread().words, strict=True)
        return all(same_in_blocks(blocks, *each) for each in both)


def same_in_blocks(blocks: Array, left: Array, right: Array) -> bool:
    """Return whether arrays of rows for blocks agree in some blocks (boolean); one row stands for every block."""
    if left.shape[1:] != right.shape[1:]:
        return False
    one, other = (each if each.shape[0] == 1 else each[blocks] for each in (left, right))
    return bool((one == other).all())


def _joined(array: Array, parts: int) -> Array:
    """Return an array whose rows are `parts` rows of another one together; its only row stands for each of them."""
    if array.shape[0] == 1:
        array = np.broadcast_to(array, (parts, *array.shape[1:]))
    return array.reshape(array.shape[0] // parts, -1)


def known_zero(lanes: SymbolicVector) -> Array | None:
    """Return which lanes hold a constant zero, or None if none does.

    In formats of 16 and 32 bits either sign counts.  A value of 8 bits may be an integer, whose top bit is not the sign
    of a zero, and in fp64 the sign of a zero product affects the sum.
    """
    known = L.constant_mask(lanes)
    if known is False:
        return None
    signless = lanes.bits in (16, 32)
    found = (lanes.words[0] << np.uint64(64 - lanes.bits + 1) if signless else lanes.words[0]) == 0
    found = found if known is True else found & known
    return found if found.any() else None


def sticky_of(flags: L.Flags) -> L.Flags:
    """Return the union of the inherited flags of all lanes, one number for each block.

    A matrix step passes the flags of one element to its whole tile.
    """
    if isinstance(flags, int):
        return flags & L.INHERITED
    flat = flags.reshape(flags.shape[0], -1)
    return L.uniform_flags(np.bitwise_or.reduce(flat, axis=1) & np.uint32(L.INHERITED))


def hashed_vectors(
    elements: SymbolicVector, form: str, context: TermContext, signs: ZeroSigns | None = None, parts: int = 1
) -> HashedVectors:
    """Return vectors along the last axis of elements of a format whose words have shape (2, blocks, rows, k).

    `signs` removes the signs of zeros from elements of a floating-point format.  The rows are those of `parts` waves,
    one after the other, of which several may hold the same tile.
    """
    if context.recorder is not None:
        return _hashed_vectors(elements, form, context, signs)
    divided = _divided(elements, parts)
    alike = _alike_blocks(divided)
    if alike is None:
        return _hashed_vectors(elements, form, context, signs)
    chosen, place = alike
    return _hashed_vectors(of_blocks(divided, chosen), form, context, signs).of_blocks(place).joined(parts)


def _divided(elements: SymbolicVector, parts: int) -> SymbolicVector:
    """Return elements with each part of the rows of a block as a block."""
    if parts == 1:
        return elements
    words, flags = elements.words, elements.flags
    _, blocks, rows, count = words.shape
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, words.shape[1:]).reshape(blocks * parts, rows // parts, count)
    return SymbolicVector(elements.bits, words.reshape(2, blocks * parts, rows // parts, count), flags)


_FEW_BLOCKS = 4
"""Elements of fewer blocks are not compared between blocks."""


def _alike_blocks(elements: SymbolicVector) -> tuple[Array, Array] | None:
    """Return some blocks whose elements those of all others equal, and for each block its place among them.

    The blocks of a matrix product that share rows or columns have equal tiles, and so have its waves.  None where few
    are alike.
    """
    words, flags = elements.words, elements.flags
    count = words.shape[1]
    if count < _FEW_BLOCKS or words.shape[2] * words.shape[3] == 0:
        return None
    places: dict[int, int] = {}
    firsts = [places.setdefault(each, block) for block, each in enumerate(words[0, :, 0, 0].tolist())]
    if 2 * len(places) > count:
        return None
    chosen = np.array(list(places.values()))
    first = np.array(firsts)
    others = np.flatnonzero(first != np.arange(count))
    # Both words of a load are its address.
    planes = words[:1] if isinstance(flags, int) and flags & L.FORM == L.LOAD else words
    if not all(np.array_equal(each[others], each[first[others]]) for each in planes):
        return None
    if not isinstance(flags, int) and flags.shape[0] > 1 and not np.array_equal(flags, flags[first]):
        return None
    return chosen, np.searchsorted(chosen, first)


def distinct_rows(rows: Array) -> tuple[Array, Array]:
    """Return the first of each set of equal rows, and for each row the number of its set.

    The blocks of a matrix product that share rows or columns load equal tiles.
    """
    numbers: dict[bytes, int] = {}
    number: list[int] = []
    firsts: list[int] = []
    for row, each in enumerate(rows):
        found = numbers.setdefault(each.tobytes(), len(numbers))
        if found == len(firsts):
            firsts.append(row)
        number.append(found)
    return np.array(firsts), np.array(number)


def of_blocks(elements: SymbolicVector, blocks: Array) -> SymbolicVector:
    """Return the elements of some blocks; one row stands for the elements of every block."""
    if elements.words.shape[1] == 1:
        return elements
    flags = elements.flags
    chosen = flags if isinstance(flags, int) or flags.shape[0] == 1 else flags[blocks]
    return SymbolicVector(elements.bits, elements.words[:, blocks], chosen)


def _hashed_vectors(
    elements: SymbolicVector, form: str, context: TermContext, signs: ZeroSigns | None = None
) -> HashedVectors:
    """See `hashed_vectors`."""
    elements = nan_marks.as_operand(elements, form, context)
    sticky = sticky_of(elements.flags)
    if elements.bits == 32:
        hashed = exact_hash(elements)
        sticky = sticky | sticky_of(nan_bits(elements))
    else:
        hashed = full_hash(elements)
    loads = isinstance(elements.flags, int) and elements.flags == L.LOAD
    if signs is not None and elements.bits == 16 and form in FLOAT_FORMATS and (signs.has_loads or not loads):
        hashed = signs.without(hashed)
    count = hashed.shape[-1]
    factors = hashing.row_multipliers(count).reshape(2, *(1,) * (hashed.ndim - 3), count, 1)
    total: hashing.Words = np.matmul(hashed, factors)[..., 0]  # modulo 2**64
    zero = known_zero(elements)
    words = hashing.mix(total + hashing.constant(f"vector {count} of {elements.bits}"))
    context.note(
        VECTOR, SymbolicVector(elements.bits, words, L.TERM), lambda: [_element(elements, k) for k in range(count)]
    )
    signed = zero is not None and bool((elements.words[0] != 0)[np.broadcast_to(zero, elements.words.shape[1:])].any())
    finite = context.finite and _all_finite(elements, form, context)
    return HashedVectors(words, None if zero is None else np.all(zero, axis=-1), sticky, signed, finite)


def _all_finite(elements: SymbolicVector, form: str, context: TermContext) -> bool:
    """Return whether every element is a finite number of a format, by assumption or as a constant."""
    number = FLOAT_FORMATS.get(form)
    if number is None:
        return False
    known = np.asarray(L.constant_mask(elements))
    magnitude = elements.words[0] & np.uint64((1 << (elements.bits - 1)) - 1)
    infinity = np.uint64(number.infinity if number.infinity is not None else 0)
    constants = known & (magnitude < infinity)
    return bool(np.all(assumed_finite(elements, number, context.formats) | constants))


def _element(elements: SymbolicVector, k: int) -> SymbolicVector:
    flags = elements.flags
    return SymbolicVector(elements.bits, elements.words[..., k], flags if isinstance(flags, int) else flags[..., k])


def mma_terms(
    step: MmaStep, accumulator: SymbolicVector, left: HashedVectors, right: HashedVectors, context: TermContext
) -> SymbolicVector:
    """Compute one fused step, elementwise over broadcastable shapes, with accumulator words (2, blocks, ...).

    If both vectors are all zeros, the step adds +0 to the accumulator (measured: an accumulator of -0 is returned as
    +0, every other one unchanged, unless the step cuts it).  If the elements of both are finite, one vector of zeros is
    sufficient.
    """
    if step.integers is None:
        accumulator = nan_marks.accumulator_operand(accumulator, context)
    flags = _flags_of_step(step, accumulator, left, right)
    chained = _chained(step)
    name, rows = "fused " + (step.arithmetic or step.name), left.words
    columns = right.words if step.commutes else right.words * hashing.shaped(hashing.multiplier(3), right.words.ndim)
    unchanged = _adds_nothing(step, left, right, context)
    if unchanged is not None and step.cuts:
        unchanged = _where_cut(accumulator, unchanged)
    if step.integers is not None:
        start = exact_hash(accumulator)
        named = rows + hashing.shaped(hashing.constant(name), rows.ndim)
        words = hashing.mix(start * hashing.shaped(hashing.multiplier(2), start.ndim) + named + columns)
        out = SymbolicVector(accumulator.bits, words, flags)
    elif isinstance(flags, int) and unchanged is None and context.recorder is None:
        marked = nan_marks.with_ieee_nans(SymbolicVector(accumulator.bits, rows, flags | chained)).flags
        assert isinstance(marked, int)
        return next_steps(accumulator, marked, name, rows, columns)
    else:
        out = SymbolicVector(accumulator.bits, step_payload(accumulator, name, rows, columns), flags | chained)
    context.note(
        MATRIX + step.name,
        out,
        lambda: [accumulator, *(SymbolicVector(out.bits, each.words, L.TERM) for each in (left, right))],
    )
    if step.integers is not None:
        return out
    out = nan_marks.with_ieee_nans(out)
    if unchanged is None:
        return out
    return _where_unchanged(unchanged, accumulator, out)


def _chained(step: MmaStep) -> int:
    return L.CHAINED | L.CUT * step.cuts


def _flags_of_step(step: MmaStep, accumulator: SymbolicVector, left: HashedVectors, right: HashedVectors) -> L.Flags:
    """Return the flags of a step's results, without those of a chain and the marks of their NaNs."""
    dimensions = len(shape_of(accumulator))
    if not all(isinstance(each.sticky, int) for each in (left, right)):
        dimensions = max(dimensions, left.words.ndim)
    # Accumulators that began with different flags have the same ones after a step.
    flags = L.TERM | L.uniform_flags(step_flags(accumulator.flags, left, right, dimensions - 1))
    return flags | (L.NOT_MINUS_ZERO * step.positive_zero)


def flags_of_chain(
    step: MmaStep, accumulator: SymbolicVector, left: HashedVectors, right: HashedVectors
) -> L.Flags | None:
    """Return the flags of the results of a floating-point step, none of which only adds zeros, if all share them."""
    flags = _flags_of_step(step, accumulator, left, right)
    if not isinstance(flags, int):
        return None
    return nan_marks.with_ieee_nans(SymbolicVector(accumulator.bits, _NO_WORDS, flags | _chained(step))).flags


_NO_WORDS: hashing.Words = np.zeros((2, 1, 1), dtype=np.uint64)


def _where_unchanged(unchanged: Array, accumulator: SymbolicVector, out: SymbolicVector) -> SymbolicVector:
    """Return the accumulator plus +0 in some outputs, a step's or several steps' results in all others."""
    unchanged = np.broadcast_to(unchanged, out.words.shape[1:])
    accumulator = nan_marks.with_ieee_nans(L.plus_zero(accumulator))
    if unchanged.all():
        return accumulator
    return L.blend(unchanged, accumulator, out)


def mma_terms_in_order(
    step: MmaStep,
    accumulator: SymbolicVector,
    lefts: Sequence[HashedVectors],
    rights: Sequence[HashedVectors],
    row: Array,
    column: Array,
    context: TermContext,
) -> SymbolicVector:
    """Compute fused steps one after the other, where an output takes the vectors `row` and `column` of each step.

    Equal to a loop over `mma_terms`, in a few operations for steps that follow each other, pass no flags on, and add
    zeros alone in the same outputs.
    """
    result, place = accumulator, 0
    lefts, rights = ([each.plain() for each in side] for side in (lefts, rights))
    while place < len(lefts):
        end = place + 1
        if context.recorder is None and not step.cuts and accumulator.bits > 16:
            facts = _facts_of_step(lefts[place], rights[place])
            while end < len(lefts) and facts and _same_facts(facts, _facts_of_step(lefts[end], rights[end])):
                end += 1
        found = None
        if end - place > 1:
            found = _similar_steps(step, result, lefts[place:end], rights[place:end], row, column, context)
        if found is None:
            end = place + 1
            found = mma_terms(step, result, lefts[place].take(row), rights[place].take(column), context)
        result, place = found, end
    return result


_Facts: TypeAlias = tuple[tuple[Array | None, ...], tuple[bool, ...]]


def _facts_of_step(left: HashedVectors, right: HashedVectors) -> _Facts | None:
    """Return what decides in which outputs a step adds zeros alone; None where the vectors have inherited flags."""
    both = (left, right)
    if not all(isinstance(each.sticky, int) and not each.sticky for each in both):
        return None
    places = tuple([array for each in both for array in (each.zero, each.place)])
    return places, tuple([fact for each in both for fact in (each.signed, each.finite)])


def _same_facts(one: _Facts, other: _Facts | None) -> bool:
    if other is None or one[1] != other[1]:
        return False
    pairs = zip(one[0], other[0], strict=True)
    return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)


def _similar_steps(
    step: MmaStep,
    accumulator: SymbolicVector,
    lefts: Sequence[HashedVectors],
    rights: Sequence[HashedVectors],
    row: Array,
    column: Array,
    context: TermContext,
) -> SymbolicVector | None:
    """Return the result of steps that add zeros alone in the same outputs; None where it is no chain."""
    one, other = lefts[0].take(row), rights[0].take(column)
    unchanged = _adds_nothing(step, one, other, context)
    chain = mma_terms(step, accumulator, replace(one, zero=None), replace(other, zero=None), context)
    if not isinstance(chain, ChainedSteps):
        return None
    rows, columns = _stacked_words(lefts[1:]), _stacked_words(rights[1:])
    if not step.commutes:
        columns = columns * hashing.shaped(hashing.multiplier(3), columns.ndim)
    places = lefts[0].place, rights[0].place
    chain = more_steps(chain, "fused " + (step.arithmetic or step.name), rows, columns, row, column, places)
    return chain if unchanged is None else _where_unchanged(unchanged, accumulator, chain)


def _stacked_words(vectors: Sequence[HashedVectors]) -> hashing.Words:
    """Return the words of flat vectors along a new axis, shape (2, vectors, blocks, rows)."""
    blocks = max(each.words.shape[1] for each in vectors)
    flat = [each.words.reshape(2, each.words.shape[1], -1) for each in vectors]
    return np.stack([np.broadcast_to(each, (2, blocks, each.shape[2])) for each in flat], axis=1)


def _adds_nothing(step: MmaStep, left: HashedVectors, right: HashedVectors, context: TermContext) -> Array | None:
    """Return in which outputs a step adds zeros alone, None if in no output."""
    zeros = [each.zero for each in (left, right) if each.zero is not None]
    if step.opaque or step.integers is not None or not zeros:
        return None
    if step.signed_zeros and (left.signed or right.signed or len(zeros) < 2):
        return None
    finite = context.finite and not step.signed_zeros and left.finite and right.finite
    if len(zeros) == 1 and not finite:
        return None
    both = zeros[0] if len(zeros) == 1 else zeros[0] | zeros[1] if finite else zeros[0] & zeros[1]
    return both if both.any() else None


def _where_cut(accumulator: SymbolicVector, unchanged: Array) -> Array | None:
    """Return in which of these outputs a step that cuts its accumulator leaves it as it is, None if in no output."""
    form = np.asarray(accumulator.flags & (L.NUMBER_FORM | 255 << L.OPERATION_SHIFT))
    found: Array = form == (L.TERM | L.CHAINED | L.CUT)
    zero = known_zero(accumulator)
    if zero is not None:
        found = found | zero
    found = found & unchanged
    return found if found.any() else None


def step_words(step: MmaStep, left: HashedVectors, right: HashedVectors) -> hashing.Words:
    """Return a step's two vectors as one hash that is not mixed yet."""
    if step.commutes:
        return left.words + right.words
    return left.words + right.words * hashing.shaped(hashing.multiplier(3), right.words.ndim)


def step_flags(flags: L.Flags, left: HashedVectors, right: HashedVectors, dimensions: int) -> L.Flags:
    """Return the inherited flags of a step's accumulator and vectors."""
    total = flags & L.INHERITED
    for each in (left.sticky, right.sticky):
        total = total | (each if isinstance(each, int) else each.reshape(-1, *(1,) * (dimensions - 1)))
    return total
