"""Operands of a matrix instruction, gathered from the registers of its threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, width


def operand_vectors(machine: Machine, elements: Sequence[Value], form: str, threads: Array) -> OperandVectors:
    """Return the operand vectors of a format.

    Element k of a vector is `elements[k]` in thread `threads[vector, k]` of its block.
    """
    spread = [_broadcast_threads(machine, each) for each in elements]
    blocks = max(each.words.shape[1] for each in spread)
    columns = range(threads.shape[1])
    words = np.stack(
        [np.broadcast_to(spread[k].words, (2, blocks, machine.threads))[..., threads[:, k]] for k in columns], axis=-1
    )
    metas = [np.broadcast_to(np.asarray(spread[k].flags, np.uint32), (blocks, machine.threads)) for k in columns]
    flags = np.stack([each[:, threads[:, k]] for k, each in enumerate(metas)], axis=-1)
    return machine.domain.operand_vectors(SymbolicVector(width(elements[0]), words, L.uniform_flags(flags)), form)


def accumulate(
    machine: Machine,
    step: MmaStep,
    accumulator: Value,
    rows: OperandVectors,
    columns: OperandVectors,
    row: Array,
    column: Array,
) -> Value:
    """Return the accumulators after one step with one accumulator per thread.

    Thread t adds the products of `rows[row[t]]` and `columns[column[t]]`.
    """
    return machine.domain.mma_step(step, _broadcast_threads(machine, accumulator), rows.take(row), columns.take(column))


def _broadcast_threads(machine: Machine, value: Value) -> SymbolicVector:
    lanes = as_symbolic_vector(value)
    words = np.broadcast_to(lanes.words, (*lanes.words.shape[:2], machine.threads))
    return SymbolicVector(lanes.bits, words, lanes.flags)
