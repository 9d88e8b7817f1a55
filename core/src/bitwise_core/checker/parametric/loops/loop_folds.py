"""Folds: the value of an accumulator after a loop, by its initial value and by what every iteration computes from it.

A fold is a normal form.  It is determined by the initial value, the bound, and the function that one iteration, or one
matrix step, computes at each position.  Instances of the launch show that this is one function of the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bitwise_core.checker.parametric.loops.induction_variables import LoopBody
from bitwise_core.checker.parametric.loops.loop_dependence import MatrixStep
from bitwise_core.checker.parametric.loops.loop_state import hash_of
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash

INSTANCES = 6
NEXT, ITERATION, MATRIX_STEP, ENTRY, BEYOND, NO_ITERATION = range(INSTANCES)
"""Instances of the launch by the position of the loop: a period later, an iteration later, a matrix step later, 0,
beyond the bound; in the last instance, the loop has no iteration."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a loop as two atoms, which may be the same.

    An iteration adds `step` to `symbol`, and `per_iteration`, the number of its elements of k, to `elements`.
    """

    symbol: int
    elements: int
    step: int
    per_iteration: int


@dataclass(frozen=True, slots=True)
class LoopCondition:
    """The iteration at a position is executed if `condition` is nonnegative.

    If `symbol` (a scalar that occurs once in the bound) is not None, the condition is `bound` - position - 1.
    """

    condition: Polynomial
    bound: Polynomial
    symbol: int | None


@dataclass(frozen=True, slots=True)
class IterationValues:
    """The value that each iteration, or matrix step, computes from the accumulator symbol.

    `values` holds them by accumulator, `live_out` the values after each iteration of other registers that are read
    after the loop.  `flags` are the properties of each accumulator symbol.
    """

    values: dict[str, list[Value]]
    matrix_only: frozenset[str]
    period: int
    flags: Mapping[str, int]
    live_out: dict[str, list[Value]]

    def equal_in_all_iterations(self, name: str, other: str) -> bool:
        """Whether the other register is equal to the accumulator after every iteration."""
        pairs = list(zip(self.values[name], self.live_out[other], strict=False))
        return len(pairs) == self.period and all(np.array_equal(hash_of(a)[0], hash_of(b)[0]) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class RecordedMatrixStep:
    """A matrix step whose accumulators are replaced by symbols before and recorded after it."""

    step: MatrixStep
    recorded: IterationValues

    def prepare(self, machine: Machine) -> None:
        """Set the accumulators to their symbols."""
        for (_, source), owners in zip(self.step.sources, self.step.owners, strict=True):
            bits = L.width(machine.registers[source]) // len(owners)
            machine.registers[source] = concat([accumulator_symbol(bits, self.recorded.flags[name]) for name in owners])

    def record(self, machine: Machine) -> None:
        """Record the accumulators."""
        for (target, _), owners in zip(self.step.sources, self.step.owners, strict=True):
            value = machine.registers[target]
            bits = L.width(value) // len(owners)
            for place, name in enumerate(owners):
                part = value if len(owners) == 1 else extract(value, place * bits, bits)
                self.recorded.values[name].append(part)


def accumulator_symbol(bits: int, flags: int) -> SymbolicVector:
    """The symbol of an accumulator's value before an iteration, with the properties that every iteration preserves."""
    return SymbolicVector(bits, hashing.constant("accumulator of a fold"), L.TERM | flags)


@dataclass(frozen=True, slots=True)
class Fold:
    """The normal form of an accumulator after the loop: a fold over iterations, or over matrix steps.

    `step_depth` is the number of elements of k of a matrix step.  `always_entered`: the first iteration is always
    executed.  `rows` are the rows of the instances.
    """

    body: LoopBody
    end: LoopCondition
    step_depth: int
    always_entered: bool
    position: Position
    rows: list[int]

    def normal_forms(self, name: str, start: Value, recorded: IterationValues) -> tuple[SymbolicVector, SymbolicVector]:
        """The value of an accumulator after the loop, and before an iteration.  Raises Unsupported."""
        values = recorded.values[name]
        hashes = [hash_of(value)[0] for value in values]
        count = len(values) // recorded.period
        rows = self.rows
        for index in range(len(values) - count):
            if not _equal_rows(hashes[index], rows[ITERATION], hashes[index + count], 0):
                raise self.body.fail("iterations differ from each other")
        bits = L.width(start)
        initial = hash_of(start)[0] * hashing.multiplier(61)
        if self._is_fold_of_steps(name, hashes, recorded):
            bound = self.body.integers.words_of(self.end.bound)
            total = hashes[0] * hashing.multiplier(62) + bound * hashing.multiplier(63) + initial
            words = hashing.mix(total + hashing.constant(f"fold of steps of {self.step_depth} {self.always_entered}"))
        else:
            total = initial + self.body.integers.words_of(self.end.condition) * hashing.multiplier(63)
            for place, each in enumerate(hashes[:count]):
                total = total + each * hashing.multiplier(100 + place)
            words = hashing.mix(
                total
                + hashing.constant(f"fold of {count} a turn of {self.position.per_iteration} {self.always_entered}")
            )
        flags = _inherited_flags([start, *values]) | np.uint32(L.TERM | recorded.flags[name])
        return self._result(bits, words, flags, start), self._accumulator_name(bits, words, flags)

    def with_initial_value(self, result: SymbolicVector, initial: Value, start: Value) -> SymbolicVector:
        """The fold that starts from `initial`, for a register that holds `start` if the loop has no iteration."""
        left, right = hash_of(initial)[0], hash_of(start)[0]
        if self.always_entered or (left.shape == right.shape and np.array_equal(left, right)):
            return result
        words = hashing.mix(
            result.words * hashing.multiplier(65)
            + right * hashing.multiplier(66)
            + hashing.constant("or without a turn")
        )
        return self._without_iteration(SymbolicVector(result.bits, words, result.flags), start)

    def _accumulator_name(self, bits: int, words: hashing.Words, flags: Array) -> SymbolicVector:
        """The value of the accumulator before an iteration, for accumulators that depend on it.

        A fold is determined by its initial value and by the function that an iteration computes at each position, so
        its hash identifies the values before all iterations as well as the final one.  The instances of the loop are
        other positions of the same fold.
        """
        name = hashing.mix(words * hashing.multiplier(64) + hashing.constant("an accumulator before a turn"))
        if name.shape[1] > 1:
            name[:, self.rows] = name[:, :1]
        return SymbolicVector(bits, name, L.uniform_flags(flags))

    def _result(self, bits: int, words: hashing.Words, flags: Array, start: Value) -> SymbolicVector:
        """The fold; in the instance NO_ITERATION the initial value, if a branch before the loop guards it."""
        if not self.always_entered:
            return self._without_iteration(SymbolicVector(bits, words, flags), start)
        words = np.broadcast_to(words, (2, self.body.domain.rows, words.shape[2])).copy()
        words[:, self.rows[NO_ITERATION]] = hashing.constant("a loop that has a turn")[:, 0]
        return SymbolicVector(bits, words, L.uniform_flags(flags))

    def _without_iteration(self, result: SymbolicVector, start: Value) -> SymbolicVector:
        before, row = as_symbolic_vector(start), self.rows[NO_ITERATION]
        own_flags = np.atleast_2d(np.asarray(result.flags, dtype=np.uint32))
        shape = (self.body.domain.rows, max(result.words.shape[2], before.words.shape[2], own_flags.shape[1]))
        words, flags = np.broadcast_to(result.words, (2, *shape)).copy(), np.broadcast_to(own_flags, shape).copy()
        words[:, row] = before.words[:, 0]
        flags[row] = before.flags if isinstance(before.flags, int) else before.flags[0]
        return SymbolicVector(result.bits, words, flags)

    def _is_fold_of_steps(self, name: str, hashes: list[hashing.Words], recorded: IterationValues) -> bool:
        """Whether all matrix steps are one function of the position, and steps beyond the bound are the identity."""
        if name not in recorded.matrix_only or self.end.symbol is None or not self.step_depth:
            return False
        if self.step_depth * len(hashes) != self.position.per_iteration * recorded.period:
            return False
        rows = self.rows
        if not all(_equal_rows(first, rows[MATRIX_STEP], second, 0) for first, second in pairwise(hashes)):
            return False
        symbol = exact_hash(accumulator_symbol(L.width(recorded.values[name][0]), recorded.flags[name]))
        return _equal_rows(hashes[0], rows[BEYOND], symbol, 0)


def _inherited_flags(values: list[Value]) -> Array:
    """The sticky flags that a result inherits from these values, of shape (rows or 1, threads or 1)."""
    found = np.zeros((1, 1), dtype=np.uint32)
    for value in values:
        found = found | (
            np.atleast_2d(np.asarray(as_symbolic_vector(value).flags, dtype=np.uint32)) & np.uint32(L.STICKY)
        )
    return found


def _equal_rows(left: hashing.Words, left_row: int, right: hashing.Words, right_row: int) -> bool:
    first = left[:, min(left_row, left.shape[1] - 1)]
    second = right[:, min(right_row, right.shape[1] - 1)]
    return bool((first == second).all())
