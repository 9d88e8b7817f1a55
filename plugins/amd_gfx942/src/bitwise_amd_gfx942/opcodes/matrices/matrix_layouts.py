"""The layout of MFMA's operands in the registers of a wave.

Source: AMD Instinct MI300 ISA, "Matrix Arithmetic Instructions", and AMD's matrix instruction calculator
(https://github.com/ROCm/amd_matrix_instruction_calculator), combined into one formula.

The 64 lanes of a wave are blocks x groups x side.  A lane holds E elements of A: element e is in row lane % side of the
lane's block, at k = E * group + e.  The layout of B is the same with columns for rows.  Of an accumulator a lane holds
column lane % side of its block.  Its registers are runs of four rows (of one row for fp64): register r holds row
run * (groups * (r / run) + group) + r % run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from bitwise_amd_gfx942.registers import WAVE
from bitwise_core.execution.values.matrix_steps.matrix_chains import ChainedRegister, ChainedSteps
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, TermRecorder


@dataclass(frozen=True, slots=True)
class Tile:
    """An instruction's shape: rows (and columns) of a block, k, blocks, and the rows of a run of registers."""

    side: int
    k: int
    blocks: int
    run: int

    @property
    def groups(self) -> int:
        """The number of lanes of one block that hold elements of one row."""
        return WAVE // self.side // self.blocks

    @property
    def accumulators(self) -> int:
        """The number of accumulators of a lane."""
        return self.side * self.side * self.blocks // WAVE


@cache
def row_and_column_indices(tile: Tile, waves: int, a_blocks: tuple[int, ...]) -> tuple[Array, Array, tuple[int, ...]]:
    """The row and column index of every accumulator, and the extents of the axes along which they are given.

    The axes are runs, registers of a run, waves, blocks, groups and lanes of a side.
    """
    side, blocks, groups, run = tile.side, tile.blocks, tile.groups, tile.run
    axes = tile.accumulators // run, run, waves, blocks, groups, side
    runs, position, wave, block, group, lane = np.ogrid[tuple(slice(each) for each in axes)]
    row = run * (groups * runs + group) + position
    rows = (wave * blocks + np.array(a_blocks)[block]) * side + row
    columns = (wave * blocks + block) * side + lane
    return rows, columns, axes


def registers_of(total: SymbolicVector, axes: tuple[int, ...]) -> list[SymbolicVector]:
    """The accumulators of a lane, of results along the axes of `row_and_column_indices`."""
    count = axes[0] * axes[1]
    if isinstance(total, ChainedSteps) and total.shape[2:] == axes:
        return [ChainedRegister(total, count, index) for index in range(count)]
    return accumulators_of(reshaped(total, (count, math.prod(axes) // count)), total.recorder)


def accumulators_of(total: SymbolicVector, recorder: TermRecorder | None) -> list[SymbolicVector]:
    """The accumulators of a lane, stacked in words of shape (2, blocks, accumulators, threads)."""
    result = []
    for each in range(total.words.shape[2]):
        flags = total.flags if isinstance(total.flags, int) else total.flags[:, each]
        part = SymbolicVector(total.bits, total.words[:, :, each], flags)
        part.recorder = recorder
        result.append(part)
        result[-1].bundle = (total, each)
    return result


def reshaped(value: SymbolicVector, axes: tuple[int, ...]) -> SymbolicVector:
    """A vector with words (2, blocks, ...) reshaped to other axes."""
    flags, shape = value.flags, value.words.shape
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (flags.shape[0], *shape[2:])).reshape(-1, *axes)
    return SymbolicVector(value.bits, value.words.reshape(*shape[:2], *axes), flags)


def stacked_values(values: Sequence[SymbolicVector], threads: int) -> SymbolicVector:
    """The values of all threads, stacked: words (2, blocks, values, threads)."""
    blocks = max(each.words.shape[1] for each in values)
    words = np.empty((2, blocks, len(values), threads), dtype=np.uint64)
    for index, each in enumerate(values):
        words[:, :, index] = each.words
    first = values[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in values):
        return SymbolicVector(values[0].bits, words, first)
    flags = np.empty((blocks, len(values), threads), dtype=np.uint32)
    for index, each in enumerate(values):
        flags[:, index] = each.flags
    return SymbolicVector(values[0].bits, words, flags)
