"""The domain of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

Operations and selects are in `term_arithmetic`; here are the assumptions, matrix units and memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from bitwise_core.execution.assumptions import FINITE, MATRIX_ARITHMETIC, UNITS_APART
from bitwise_core.execution.domains.term_arithmetic import TermArithmetic
from bitwise_core.execution.term_recorder import Recorder, TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers import predicate_bits
from bitwise_core.execution.values.integers.stored_bounds import StoredBounds
from bitwise_core.execution.values.matrix_steps import deferred_steps, mma_steps
from bitwise_core.execution.values.matrix_steps.integer_mma_steps import integer_terms
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.sets.member_sets import MemberSets, RepeatedMembers
from bitwise_core.execution.values.stored_operations import StoredOperations
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import term
from bitwise_core.numerics import FloatFormat


class TermDomain(TermArithmetic):
    """Terms over the initial content of memory.

    `assumptions` enable rules that need them (see `assumptions`).  `recorder` is the recorder of a recorded run.
    `follows_members`: the members of all sets under idempotent operations are followed (`values.sets.member_sets`),
    which takes time (`stop_where_members_repeat`).
    """

    name = "terms"

    def __init__(
        self,
        assumptions: frozenset[str] = frozenset(),
        recorder: Recorder | None = None,
        *,
        follows_members: bool = False,
    ) -> None:
        super().__init__(
            TermContext(
                FINITE in assumptions,
                recorder,
                member_sets=MemberSets() if follows_members else None,
                repeated_members=None if follows_members or recorder is not None else RepeatedMembers(),
            )
        )
        self._assumptions = assumptions
        self._steps_by_arithmetic: dict[mma_steps.MmaStep, mma_steps.MmaStep] = {}
        self.predicate_numbers = predicate_bits.PredicateNumbers()
        self.stored_operations = StoredOperations()
        self.stored_bounds = StoredBounds()

    def set_formats(self, formats: Mapping[int, FloatFormat]) -> None:
        """Set the formats of the buffers' elements, by the buffer's number, where the launch states them."""
        self.context = replace(self.context, formats=formats)

    def stop_where_members_repeat(self) -> None:
        """Raise MembersRepeat in the operation after which sets may share members that were not followed."""
        if self.context.repeated_members is not None:
            self.context.repeated_members.stops = True

    def begin_group(self, lanes: Array | None) -> None:
        """Some lanes are executed from here on: an array of shape (blocks, threads), None for all."""
        if self.context.repeated_members is not None:
            self.context.repeated_members.group = lanes

    @contextmanager
    def following_members(self) -> Iterator[None]:
        """Follow the members of sets under idempotent operations (`values.sets.member_sets`)."""
        before = self.context
        self.context = replace(before, member_sets=before.member_sets or MemberSets())
        try:
            yield
        finally:
            self.context = before

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`."""
        return assumption in self._assumptions

    # -- matrix units -----------------------------------------------------------------------------------------------

    def operand_vectors(self, elements: SymbolicVector, form: str, parts: int = 1) -> mma_steps.OperandVectors:
        """See `Domain.operand_vectors`."""
        if self.defers_steps:
            loaded: mma_steps.HashedVectors | None = deferred_steps.loaded_vectors(
                elements, form, self.context, self.zero_signs, parts
            )
            if loaded is not None:
                return loaded
        return mma_steps.hashed_vectors(elements, form, self.context, self.zero_signs, parts)

    def mma_step(
        self,
        step: mma_steps.MmaStep,
        accumulator: SymbolicVector,
        left: mma_steps.OperandVectors,
        right: mma_steps.OperandVectors,
    ) -> SymbolicVector:
        """See `Domain.mma_step`."""
        assert isinstance(left, mma_steps.HashedVectors)
        assert isinstance(right, mma_steps.HashedVectors)
        if step.integers is not None:
            return integer_terms(step, accumulator, left, right, self.context)
        step = self._by_arithmetic(step)
        found = (
            deferred_steps.deferred_step(step, accumulator, left, right, self.context) if self.defers_steps else None
        )
        return mma_steps.mma_terms(step, accumulator, left, right, self.context) if found is None else found

    @property
    def defers_steps(self) -> bool:
        """See `StepsInOrder`.  A recorder sees each operation when it is executed."""
        return self.recorder is None

    def on_parts_of_lanes(self) -> AbstractContextManager[None]:
        """See `StepsInOrder.on_parts_of_lanes`: a part may hold a value once that other lanes hold too."""
        repeated = self.context.repeated_members
        return nullcontext() if repeated is None else repeated.together()

    def mma_steps_in_order(
        self,
        step: mma_steps.MmaStep,
        accumulator: SymbolicVector,
        lefts: Sequence[mma_steps.OperandVectors],
        rights: Sequence[mma_steps.OperandVectors],
        row: Array,
        column: Array,
    ) -> SymbolicVector:
        """See `StepsInOrder.mma_steps_in_order`."""
        of_a = [each for each in lefts if isinstance(each, mma_steps.HashedVectors)]
        of_b = [each for each in rights if isinstance(each, mma_steps.HashedVectors)]
        step = self._by_arithmetic(step)
        return mma_steps.mma_terms_in_order(step, accumulator, of_a, of_b, row, column, self.context)

    def _by_arithmetic(self, step: mma_steps.MmaStep) -> mma_steps.MmaStep:
        """Return the step under the name that the assumptions give it: its own, of its arithmetic, or of its unit."""
        if self.assumes(MATRIX_ARITHMETIC):
            renamed = mma_steps.with_arithmetic
        elif self.assumes(UNITS_APART):
            renamed = mma_steps.of_its_unit
        else:
            return step
        found = self._steps_by_arithmetic.get(step)
        if found is None:
            found = self._steps_by_arithmetic[step] = renamed(step)
        return found

    # -- memory -----------------------------------------------------------------------------------------------------

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return SymbolicVector(bits, L.both_words(address), L.LOAD)

    def note_stored(self, value: Value) -> None:
        """See `Domain.note_stored`."""
        self.predicate_numbers.note(value)
        self.stored_operations.note(value)
        self.stored_bounds.note(value)

    def recalled(self, value: Value, mask: Array | None) -> Value:
        """See `Domain.recalled`."""
        found = self.stored_operations.recalled(self.predicate_numbers.recalled(value, mask, self._bit_builder))
        return self.stored_bounds.recalled(found)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        where = as_symbolic_vector(address)
        result = term(bits, f"gather {bits}", [where], L.INTEGER, exact=True, recorder=self.recorder)
        known = L.constant_mask(where)
        if known is not False and np.any(known):
            result = L.blend(known, as_symbolic_vector(self.load(where.words[0], bits)), result)
        return result
