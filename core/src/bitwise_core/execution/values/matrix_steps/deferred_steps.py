"""Matrix steps on loads that are computed when a result is read, those of one accumulator together.

An operand that consists of loads has no zeros and no inherited flags, so that everything about a step's results but
their payload is known before the operands are hashed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.zero_signs import ZeroSigns
from bitwise_core.execution.values.matrix_steps.matrix_chains import ChainedSteps, shape_of
from bitwise_core.execution.values.matrix_steps.mma_steps import (
    HashedVectors,
    MmaStep,
    flags_of_chain,
    hashed_vectors,
    mma_terms_in_order,
)
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector

MAXIMUM_STEPS = 64
"""How many steps on one accumulator are computed together at most."""

_NO_WORDS: hashing.Words = np.zeros((2, 1, 1), dtype=np.uint64)


@dataclass(slots=True, eq=False)
class _Loads:
    """Elements that are loads, as arguments of `hashed_vectors`, and their vectors once they are computed."""

    elements: SymbolicVector
    form: str
    context: TermContext
    signs: ZeroSigns | None
    parts: int
    computed: HashedVectors | None = None

    @property
    def vectors(self) -> HashedVectors:
        """The vectors of the elements."""
        if self.computed is None:
            self.computed = hashed_vectors(self.elements, self.form, self.context, self.signs, self.parts)
        return self.computed


def _compute_together(loads: Iterable[_Loads]) -> None:
    """Compute the vectors of loads, those of one shape in one pass."""
    kinds: dict[tuple[object, ...], dict[int, _Loads]] = {}
    for each in loads:
        if each.computed is None:
            own = each.elements.bits, each.elements.words.shape[2:], each.parts
            kind = *own, each.form, id(each.context), id(each.signs)
            kinds.setdefault(kind, {})[id(each)] = each
    for members in kinds.values():
        alike = list(members.values())
        words = np.concatenate([each.elements.words[0] for each in alike])
        one, first = alike[0], 0
        together = SymbolicVector(one.elements.bits, L.both_words(words), L.LOAD)
        found = hashed_vectors(together, one.form, one.context, one.signs, one.parts)
        for each in alike:
            count = each.elements.words.shape[1]
            each.computed = found.placed(first, count, None)
            first += count


class LoadedVectors(HashedVectors):
    """Vectors of loads, which are hashed when they are read.

    `parts` are loads, each with the place of every block of the batch among their blocks (None: its own), of which the
    vectors follow each other.  `index` arranges them as `take` does; None: they are flat.
    """

    __slots__ = ("_found", "index", "parts")

    index: Array | None
    parts: tuple[tuple[_Loads, Array | None], ...]
    _found: hashing.Words | None

    def __init__(self, parts: Sequence[tuple[_Loads, Array | None]], index: Array | None = None) -> None:
        own = {"parts": tuple(parts), "index": index, "_found": None}
        facts = {"zero": None, "sticky": 0, "signed": False, "finite": False, "place": None}
        for name, value in {**own, **facts}.items():
            object.__setattr__(self, name, value)

    @property
    def words(self) -> hashing.Words:
        """The hashes."""
        if self._found is None:
            object.__setattr__(self, "_found", self.plain().spread().words)
        assert self._found is not None
        return self._found

    def plain(self) -> HashedVectors:
        """See `HashedVectors.plain`."""
        flat = self.flat()
        return flat if self.index is None else flat.take(self.index)

    @property
    def loads(self) -> tuple[_Loads, ...]:
        """The loads of which these are the vectors."""
        return tuple([each for each, _ in self.parts])

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of blocks, or 1 for vectors that agree in all of them, and the extents of the index."""
        return max(map(_blocks_of, self.parts)), *(() if self.index is None else self.index.shape)

    def flat(self) -> HashedVectors:
        """Return the vectors before they are arranged."""
        first, *others = [
            each.vectors if place is None else each.vectors.placed(0, each.elements.words.shape[1], place)
            for each, place in self.parts
        ]
        return first.concatenated(others)

    def take(self, index: Array) -> HashedVectors:
        """See `OperandVectors.take`."""
        return super().take(index) if self.index is not None else LoadedVectors(self.parts, index)

    def of_blocks(self, blocks: Array) -> HashedVectors:
        """See `OperandVectors.of_blocks`."""
        if self.index is not None or len(self.parts) > 1:
            return super().of_blocks(blocks)
        ((loads, place),) = self.parts
        return LoadedVectors([(loads, blocks if place is None else place[blocks])])

    def concatenated(self, others: Sequence[HashedVectors]) -> HashedVectors:
        """See `OperandVectors.concatenated`."""
        known = [each for each in (self, *others) if isinstance(each, LoadedVectors) and each.index is None]
        if len(known) <= len(others):
            return super().concatenated(others)
        return self if not others else LoadedVectors([part for each in known for part in each.parts])


def _blocks_of(part: tuple[_Loads, Array | None]) -> int:
    loads, place = part
    blocks = loads.elements.words.shape[1]
    return blocks if place is None or blocks == 1 else len(place)


def loaded_vectors(
    elements: SymbolicVector, form: str, context: TermContext, signs: ZeroSigns | None, parts: int
) -> LoadedVectors | None:
    """Return the vectors of elements as `hashed_vectors` does, computed when they are read; None if some is no load."""
    if context.recorder is not None or context.finite or elements.bits > 32:
        return None
    if not isinstance(elements.flags, int) or elements.flags != L.LOAD or elements.words.strides[0]:
        return None
    return LoadedVectors([(_Loads(elements, form, context, signs, parts), None)])


class DeferredChain(ChainedSteps):
    """The results of a step on loads and of those before it on its accumulator, which are computed when they are read.

    `before` is the accumulator, `left` and `right` are the vectors of the step's operands.
    """

    __slots__ = ("_before", "_context", "_found", "_left", "_length", "_right", "_step")

    def __init__(
        self,
        before: SymbolicVector,
        step: MmaStep,
        left: LoadedVectors,
        right: LoadedVectors,
        flags: int,
        context: TermContext,
    ) -> None:
        self._found: ChainedSteps | None = None
        self._before, self._step, self._left, self._right, self._context = before, step, left, right, context
        self.shape = (2, *np.broadcast_shapes(shape_of(before)[1:], left.shape, right.shape))
        SymbolicVector.__init__(self, before.bits, _NO_WORDS, flags)
        self._computed, self._of_registers = None, None
        self._length: int = 1
        if isinstance(before, DeferredChain) and before._found is None and before._is_like(self):
            self._length = before._length + 1
            if self._length > MAXIMUM_STEPS:
                before.settle()
                self._length = 1

    def _is_like(self, other: DeferredChain) -> bool:
        """Whether a step may be computed together with this one."""
        return self._step == other._step and all(
            one.index is another.index for one, another in ((self._left, other._left), (self._right, other._right))
        )

    def settle(self) -> ChainedSteps:
        """Return the results, computed."""
        if self._found is None:
            steps, before = [self], self._before
            while isinstance(before, DeferredChain) and before._found is None and before._is_like(self):
                steps.append(before)
                before = before._before
            steps.reverse()
            start = before.settle() if isinstance(before, DeferredChain) else before
            _compute_together(each for step in steps for both in (step._left, step._right) for each in both.loads)
            lefts, rights = ([side.flat() for side in sides] for sides in zip(*map(_sides, steps), strict=True))
            row, column = self._left.index, self._right.index
            assert row is not None
            assert column is not None
            found = mma_terms_in_order(self._step, start, lefts, rights, row, column, self._context)
            assert isinstance(found, ChainedSteps)
            assert found.shape == self.shape
            self._found = self._before = found
        return self._found

    @property
    def words(self) -> hashing.Words:
        """The payload."""
        return self.settle().words if self._computed is None else self._computed

    @words.setter
    def words(self, words: hashing.Words) -> None:
        self._computed, self._of_registers = words, None

    @property
    def _start(self) -> hashing.Words:  # type: ignore[override]
        return self.settle()._start

    @property
    def _count(self) -> int:  # type: ignore[override]
        return self.settle()._count

    @property
    def _rows(self) -> Array:  # type: ignore[override]
        return self.settle()._rows

    @property
    def _columns(self) -> Array:  # type: ignore[override]
        return self.settle()._columns


def _sides(step: DeferredChain) -> tuple[LoadedVectors, LoadedVectors]:
    return step._left, step._right


def deferred_step(
    step: MmaStep, accumulator: SymbolicVector, left: HashedVectors, right: HashedVectors, context: TermContext
) -> DeferredChain | None:
    """Return the result of a step that is computed when it is read, None for one that is computed at once."""
    loads = isinstance(left, LoadedVectors) and isinstance(right, LoadedVectors)
    if not loads or step.integers is not None or step.cuts or accumulator.bits <= 16:
        return None
    assert isinstance(left, LoadedVectors)
    assert isinstance(right, LoadedVectors)
    if left.index is None or right.index is None or context.recorder is not None:
        return None
    flags = flags_of_chain(step, accumulator, left, right)
    return DeferredChain(accumulator, step, left, right, flags, context) if isinstance(flags, int) else None
