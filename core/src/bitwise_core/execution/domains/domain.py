"""The interface of a value domain; the semantics of an instruction are stated once, in these operations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from bitwise_core.errors import BitwiseError
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import FloatFormat, Operation


class Unsupported(BitwiseError):
    """The analysis cannot continue: `reason` is a sentence, `line` the line of the text where it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line

    def occurred_at(self, line: int) -> None:
        """The instruction of a line raised this error, which knows none."""
        self.line = line

    def __str__(self) -> str:
        return self.reason if self.line is None else f"{self.reason} at line {self.line}"


class DataDependent(Unsupported):
    """The analysis cannot continue because a value that must be known depends on data.

    `values` are the values that do, as far as they are known; `row` is a row of them that does, and `block` its block.
    """

    def __init__(self, reason: str, line: int | None = None, values: Sequence[Value] = ()) -> None:
        super().__init__(reason, line)
        self.values, self.row = tuple(values), 0
        self.block: int | None = None


class Interrupted(Unsupported):
    """The reading stopped for a reason outside of the kernel, such as a missing or killed tool.

    Another run may go further, so that such a result is not kept.
    """


class Domain(Protocol):
    """The operations on values that depend on data.

    Integers that are constant in the launch are plain arrays in every domain and do not reach it.
    """

    name: str
    recorder: Recorder | None
    """The recorder of a recorded run, None in every other run."""

    def assumes(self, assumption: str) -> bool:
        """Return whether a run makes an assumption of `assumptions`; one on bit patterns is one case of each."""

    def assumed_finite(self, value: Value, form: FloatFormat) -> bool | Array:
        """Return which lanes the run's assumptions make finite numbers of a format; constants are not covered."""

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """Apply a floating-point operation per lane.

        `properties` are flags (see `values.symbolic_vector`) that every result has.
        """

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """Apply an integer operation, or a comparison of numbers of any type, with an operand that is not constant."""

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """Select per lane by a predicate that need not be constant."""

    def with_open_nans(self, value: Value, form: FloatFormat, note: str) -> Value:
        """Return a number of fp16, fp32 or fp64 whose NaN may have become the canonical one.

        `note` says so, for an execution in which that makes a difference.
        """

    def load(self, address: Array, bits: int) -> Value:
        """Return the initial content of global memory at constant addresses."""

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """Return the initial content of global memory at addresses that depend on data."""

    def note_stored(self, value: Value) -> None:
        """A value is stored in memory, which keeps no more than its hash."""

    def recalled(self, value: Value, mask: Array | None) -> Value:
        """Return a value that was loaded in some lanes (None: all) with what is known of stored values."""

    def operand_vectors(self, elements: SymbolicVector, form: str, parts: int = 1) -> OperandVectors:
        """Return the operand vectors of a matrix step along the last axis of elements of shape (blocks, vectors, k).

        `form` is the name of the elements' format.  The vectors are those of `parts` waves, one after the other.
        """

    def mma_step(
        self, step: MmaStep, accumulator: SymbolicVector, left: OperandVectors, right: OperandVectors
    ) -> SymbolicVector:
        """Return the new accumulator of one fused matrix step, elementwise over broadcastable shapes (blocks, ...).

        The vectors must be this domain's own.
        """


class StepsInOrder:
    """A base class of domains that compute matrix steps on one accumulator together, while `defers_steps` is true."""

    @property
    def defers_steps(self) -> bool:
        """Whether steps and operations may be computed later, and together with others: each is nothing but its result.

        A derived domain in which an operation depends on more than its operands, or has an effect, states False.
        """
        raise NotImplementedError

    def on_parts_of_lanes(self) -> AbstractContextManager[None]:
        """Take operations within the context, each on some lanes, as parts of operations on all lanes."""
        raise NotImplementedError

    def mma_steps_in_order(
        self,
        step: MmaStep,
        accumulator: SymbolicVector,
        lefts: Sequence[OperandVectors],
        rights: Sequence[OperandVectors],
        row: Array,
        column: Array,
    ) -> SymbolicVector:
        """Return the result of floating-point steps one after the other, as `Domain.mma_step` for each.

        An output takes the vectors `row` and `column` of each step's operands.
        """
        raise NotImplementedError


class OpaqueProducts:
    """A base class of domains in which matrix products are data without structure."""

    def opaque_products(self, bits: int, count: int, operands: Sequence[Value]) -> list[SymbolicVector]:
        """Return `count` registers of the result of a matrix instruction on these registers."""
        raise NotImplementedError
