"""What a domain of values must say; the meaning of an instruction is written once against this interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bitwise_core.errors import BitwiseError
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import Operation


class Unsupported(BitwiseError):
    """The reading cannot go on: the reason is a sentence, the line is filled in where it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line

    def __str__(self) -> str:
        return self.reason if self.line is None else f"{self.reason} at line {self.line}"


class Domain(Protocol):
    """Values of floating-point numbers and of whatever an instruction computes from data.

    Integers that the launch fixes are plain arrays in every domain and never come here.
    """

    name: str
    recorder: Recorder | None
    """That of a replay, None in every other run."""

    def assumes(self, assumption: str) -> bool:
        """Whether rules that need the assumption may be used."""

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """A floating-point operation lane by lane; `properties` are flags (`machine.lanes`) of every result."""

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """An integer operation, or a comparison of numbers of any kind, where some operand is not known."""

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """Lane by lane a choice by a predicate that need not be known."""

    def load(self, address: Array, bits: int) -> Value:
        """The initial content of global memory at known addresses."""

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """The initial content of global memory at addresses that depend on data."""

    def operand_vectors(self, elements: SymbolicVector) -> OperandVectors:
        """Operand vectors of a matrix step along the last axis: elements of shape (blocks, vectors, k)."""

    def mma_step(
        self, step: MmaStep, accumulator: SymbolicVector, left: OperandVectors, right: OperandVectors
    ) -> SymbolicVector:
        """One fused matrix step, elementwise over broadcastable shapes (blocks, ...): the new accumulator.

        The vectors are this domain's own.
        """
