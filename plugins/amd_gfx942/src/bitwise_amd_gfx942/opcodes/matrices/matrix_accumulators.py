"""Accumulators of MFMA: the steps of an instruction, and those of several instructions on one accumulator.

In the domain of terms the steps are computed when something reads their results.  Until then an accumulator keeps the
fragments of all instructions on it, so that a loop over k hashes its operands together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bitwise_amd_gfx942.opcodes.matrices.matrix_fragments import Fragment, compute_together
from bitwise_amd_gfx942.opcodes.matrices.matrix_layouts import (
    Tile,
    accumulators_of,
    registers_of,
    reshaped,
    row_and_column_indices,
    stacked_values,
)
from bitwise_amd_gfx942.registers import WAVE
from bitwise_core.execution.domains.domain import StepsInOrder
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.matrix_chains import bundled, shape_of
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value

MAXIMUM_DEFERRED = 64
"""How many instructions on one accumulator are computed together at most."""

_NO_WORDS: NDArray[np.uint64] = np.zeros((2, 1, 1), dtype=np.uint64)


def accumulate(
    machine: Machine,
    step: MmaStep,
    left: Fragment,
    right: Fragment,
    old: Sequence[Value],
    tile: Tile,
    a_blocks: Sequence[int],
) -> list[SymbolicVector]:
    """A lane's new accumulators: the products of all parts added in order to the `old` ones.

    `a_blocks` gives for each block of the result the block of A that it multiplies.
    """
    indices = row_and_column_indices(tile, machine.threads // WAVE, tuple(a_blocks))
    rows, columns, axes = indices
    whole = _whole(old)
    if may_be_deferred(machine, step, left):
        if not isinstance(whole, DeferredSteps) or not whole.may_continue(step, indices):
            whole = _arranged(old, whole, machine.threads, axes)
        deferred = DeferredSteps(whole, step, indices, left, right)
        return [DeferredRegister(deferred, index) for index in range(tile.accumulators)]
    total = _arranged(old, whole, machine.threads, axes)
    for one, other in zip(left.vectors, right.vectors, strict=True):
        total = machine.domain.mma_step(step, total, one.take(rows), other.take(columns))
    return registers_of(total, axes)


def may_be_deferred(machine: Machine, step: MmaStep, operand: Fragment) -> bool:
    """Whether the steps of an instruction may be computed when their results are read."""
    domain = machine.domain
    if not (isinstance(domain, StepsInOrder) and domain.defers_steps) or step.integers is not None:
        return False
    return machine.written_lanes is None and operand.bits <= 32


def _arranged(
    old: Sequence[Value], whole: SymbolicVector | None, threads: int, axes: tuple[int, ...]
) -> SymbolicVector:
    """Accumulators along the axes of `row_and_column_indices`; `whole` is the value of which they are all parts."""
    if isinstance(whole, DeferredSteps):
        whole = whole.value
    if whole is None:
        whole = stacked_values([as_symbolic_vector(each) for each in old], threads)
    return whole if shape_of(whole)[2:] == axes else reshaped(whole, axes)


class DeferredSteps(SymbolicVector):
    """The results of instructions on one accumulator, in the domain of terms, which are computed when they are read.

    The operands of all these instructions are hashed together.  `before` are the accumulators, `indices` what
    `row_and_column_indices` returns.
    """

    __slots__ = ("_before", "_computed", "_count", "_indices", "_operands", "_step")

    def __init__(
        self,
        before: SymbolicVector,
        step: MmaStep,
        indices: tuple[Array, Array, tuple[int, ...]],
        left: Fragment,
        right: Fragment,
    ) -> None:
        self._computed: tuple[SymbolicVector, list[SymbolicVector]] | None = None
        self._before, self._step, self._indices, self._operands = before, step, indices, (left, right)
        self._count: int = before._count + 1 if isinstance(before, DeferredSteps) else 1
        super().__init__(before.bits, _NO_WORDS, 0)

    def may_continue(self, step: MmaStep, indices: tuple[Array, Array, tuple[int, ...]]) -> bool:
        """Whether one more instruction of this step and these rows and columns may be computed together with these."""
        alike = self._indices is indices and (self._step is step or self._step == step)
        return alike and self._computed is None and self._count < MAXIMUM_DEFERRED

    @property
    def axes(self) -> tuple[int, ...]:
        """The extents of the results in a block."""
        return self._indices[2]

    @property
    def value(self) -> SymbolicVector:
        """The results."""
        return self._results()[0]

    @property
    def registers(self) -> list[SymbolicVector]:
        """The accumulators of a lane."""
        return self._results()[1]

    def _results(self) -> tuple[SymbolicVector, list[SymbolicVector]]:
        if self._computed is None:
            operands, before = [self._operands], self._before
            while isinstance(before, DeferredSteps) and before._computed is None:
                operands.append(before._operands)
                before = before._before
            operands.reverse()
            compute_together(each for both in operands for each in both)
            lefts, rights = ([each for both in operands for each in both[side].vectors] for side in (0, 1))
            domain, (rows, columns, axes) = operands[0][0].domain, self._indices
            assert isinstance(domain, StepsInOrder)
            start = before.value if isinstance(before, DeferredSteps) else before
            total = domain.mma_steps_in_order(self._step, start, lefts, rights, rows, columns)
            self._computed = total, registers_of(total, axes)
            self._before = total
        return self._computed

    @property
    def words(self) -> NDArray[np.uint64]:
        """The payload."""
        return self.value.words

    @words.setter
    def words(self, words: NDArray[np.uint64]) -> None:
        """Nothing is kept: the payload is that of the results."""

    @property
    def flags(self) -> L.Flags:
        """The flags."""
        return self.value.flags

    @flags.setter
    def flags(self, flags: L.Flags) -> None:
        """Nothing is kept: the flags are those of the results."""


class DeferredRegister(SymbolicVector):
    """One of the registers of each thread that hold the results of deferred steps."""

    __slots__ = ("_index", "_whole")

    def __init__(self, whole: DeferredSteps, index: int) -> None:
        self._whole, self._index = whole, index
        super().__init__(whole.bits, _NO_WORDS, 0)
        self.bundle = whole, index

    @property
    def words(self) -> NDArray[np.uint64]:
        """The payload."""
        return self._whole.registers[self._index].words

    @words.setter
    def words(self, words: NDArray[np.uint64]) -> None:
        """Nothing is kept: the payload is that of the results."""

    @property
    def flags(self) -> L.Flags:
        """The flags."""
        return self._whole.registers[self._index].flags

    @flags.setter
    def flags(self, flags: L.Flags) -> None:
        """Nothing is kept: the flags are those of the results."""


def _whole(values: Sequence[Value]) -> SymbolicVector | None:
    """The result of one instruction, where the values are all of its accumulators in order; None for any other."""
    whole = bundled(values)
    return whole if whole is not None and _count_of(whole) == len(values) else None


def _count_of(whole: SymbolicVector) -> int:
    """The number of accumulators of a lane, of stacked ones or along the axes of `row_and_column_indices`."""
    if isinstance(whole, DeferredSteps):
        return whole.axes[0] * whole.axes[1]
    shape = shape_of(whole)
    return shape[2] if len(shape) == 4 else shape[2] * shape[3]


def in_active_waves(mask: Array, new: Sequence[SymbolicVector], old: Sequence[Value]) -> list[SymbolicVector] | None:
    """A lane's new accumulators where the constant mask is set, else its old ones, as parts of one value.

    Each is what `blend_values` returns.  None where old accumulators have a structure besides their hashes.
    """
    total = _whole(new)
    before = [each for each in old if isinstance(each, SymbolicVector) and not each.origins and each.recorder is None]
    if total is None or total.recorder is not None or len(before) < len(old) or mask.ndim != 2:
        return None
    stacked = len(new), math.prod(shape_of(total)[2:]) // len(new)
    whole = _whole(before)
    whole = stacked_values(before, stacked[1]) if whole is None else reshaped(whole, stacked)
    total = reshaped(total, stacked)
    lanes = mask[:, None]
    words = np.where(lanes, total.words, whole.words)
    flags = L.uniform_flags(L.select_flags(lanes, total.flags, whole.flags))
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, words.shape[1:])
    found = accumulators_of(SymbolicVector(total.bits, words, flags), None)
    for each in found:
        each.flags = L.uniform_flags(each.flags)
    return found
