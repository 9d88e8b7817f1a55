"""Operands of a matrix instruction, gathered from the registers of its threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Array, Lanes, Value, width
from bitwise_core.machine.matrix import FusedStep, Vectors
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.machine.state import Machine


def operand_vectors(machine: Machine, elements: Sequence[Value], threads: Array) -> Vectors:
    """The operand vectors whose element k is `elements[k]` in thread `threads[vector, k]` of its block."""
    spread = [_spread(machine, each) for each in elements]
    blocks = max(each.words.shape[1] for each in spread)
    columns = range(threads.shape[1])
    words = np.stack(
        [np.broadcast_to(spread[k].words, (2, blocks, machine.threads))[..., threads[:, k]] for k in columns], axis=-1
    )
    metas = [np.broadcast_to(np.asarray(spread[k].meta, np.uint32), (blocks, machine.threads)) for k in columns]
    meta = np.stack([each[:, threads[:, k]] for k, each in enumerate(metas)], axis=-1)
    return machine.domain.vectors(Lanes(width(elements[0]), words, L.uniform(meta)))


def accumulate(
    machine: Machine, step: FusedStep, accumulator: Value, rows: Vectors, columns: Vectors, row: Array, column: Array
) -> Value:
    """One step with one accumulator a thread: thread t adds the products of `rows[row[t]]` and `columns[column[t]]`."""
    return machine.domain.fused(step, _spread(machine, accumulator), rows.take(row), columns.take(column))


def _spread(machine: Machine, value: Value) -> Lanes:
    lanes = as_lanes(value)
    words = np.broadcast_to(lanes.words, (*lanes.words.shape[:2], machine.threads))
    return Lanes(lanes.bits, words, lanes.meta)
