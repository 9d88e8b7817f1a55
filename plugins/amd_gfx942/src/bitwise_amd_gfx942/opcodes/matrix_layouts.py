"""Where the elements of MFMA's operands lie in the registers of a wave.

Source: AMD Instinct MI300 ISA, "Matrix Arithmetic Instructions", and AMD's matrix instruction calculator
(https://github.com/ROCm/amd_matrix_instruction_calculator), drawn together in one formula.

The 64 lanes of a wave are blocks x groups x side.  A lane holds E elements of A: of its block, row lane % side and
k = E * group + e; B is the same with columns.  Of an accumulator a lane holds column lane % side of its block; its
registers are runs of four rows (of one for fp64): register r holds row run * (groups * (r / run) + group) + r % run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from bitwise_amd_gfx942.registers import WAVE
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value

_KEPT = 512
"""Operands whose vectors are kept: an operand serves several instructions in a row."""


@dataclass(frozen=True, slots=True)
class Tile:
    """An instruction's shape: rows and columns of a block, its k, the blocks, and how many accumulators a lane has."""

    side: int
    k: int
    blocks: int
    run: int

    @property
    def groups(self) -> int:
        """How many lanes of one block hold elements of one row."""
        return WAVE // self.side // self.blocks

    @property
    def accumulators(self) -> int:
        """The accumulators of a lane."""
        return self.side * self.side * self.blocks // WAVE


def vectors(machine: Machine, registers: Sequence[Value], bits: int, tile: Tile, step: int) -> list[OperandVectors]:
    """The operand vectors of a fragment by wave, block and row, one part of `step` k after the other."""
    cache: dict[tuple[object, ...], tuple[tuple[Value, ...], list[OperandVectors]]] = machine.extra.setdefault(
        "fragments", {}
    )
    key = (bits, tile, step, *(id(register) for register in registers))
    found = cache.get(key)
    if found is not None:
        return found[1]
    if len(cache) > _KEPT:
        cache.clear()
    elements = _elements(registers, bits)
    axes = len(elements), machine.threads // WAVE, tile.blocks, tile.groups, tile.side
    joined = _moved(_joined(elements, machine.threads), axes, (1, 2, 4, 3, 0), (-1, tile.k))
    flags = joined.flags
    result = []
    for low in range(0, tile.k, step):
        part = flags if isinstance(flags, int) else L.uniform_flags(flags[..., low : low + step])
        result.append(machine.domain.operand_vectors(SymbolicVector(bits, joined.words[..., low : low + step], part)))
    cache[key] = (tuple(registers), result)
    return result


def accumulate(
    machine: Machine,
    step: MmaStep,
    left: Sequence[OperandVectors],
    right: Sequence[OperandVectors],
    old: Sequence[Value],
    tile: Tile,
    taken: Sequence[int],
) -> list[SymbolicVector]:
    """A lane's new accumulators: the `old` ones and, one after the other, the products of the parts.

    `taken` says for each block of the result which block of A it multiplies.
    """
    rows, columns, axes = _places(tile, machine.threads // WAVE, tuple(taken))
    total = _bundle(old)
    total = _seen_along(
        _joined([as_symbolic_vector(each) for each in old], machine.threads) if total is None else total, axes
    )
    for one, other in zip(left, right, strict=True):
        total = machine.domain.mma_step(step, total, one.take(rows), other.take(columns))
    recorder = total.recorder
    total = _seen_along(total, (tile.accumulators, machine.threads))
    result = []
    for each in range(tile.accumulators):
        flags = total.flags if isinstance(total.flags, int) else total.flags[:, each]
        part = SymbolicVector(total.bits, total.words[:, :, each], flags)
        part.recorder = recorder
        result.append(part)
        result[-1].bundle = (total, each)
    return result


@cache
def _places(tile: Tile, waves: int, taken: tuple[int, ...]) -> tuple[Array, Array, tuple[int, ...]]:
    """The number of the row and of the column of every accumulator, along the axes that are given with them.

    The axes are runs, registers of a run, waves, blocks, groups and the lanes of a side.
    """
    side, blocks, groups, run = tile.side, tile.blocks, tile.groups, tile.run
    axes = tile.accumulators // run, run, waves, blocks, groups, side
    runs, place, wave, block, group, lane = np.ogrid[tuple(slice(each) for each in axes)]
    row = run * (groups * runs + group) + place
    rows = (wave * blocks + np.array(taken)[block]) * side + row
    columns = (wave * blocks + block) * side + lane
    return rows, columns, axes


def _bundle(values: Sequence[Value]) -> SymbolicVector | None:
    """The accumulators that one instruction gave, all of them and in order, as they were then."""
    whole = None
    for index, value in enumerate(values):
        if not isinstance(value, SymbolicVector) or value.bundle is None or value.bundle[1] != index:
            return None
        if whole is not None and value.bundle[0] is not whole:
            return None
        whole = value.bundle[0]
    return whole if whole is not None and whole.words.shape[2] == len(values) else None


def _seen_along(value: SymbolicVector, axes: tuple[int, ...]) -> SymbolicVector:
    """Words (2, blocks, ...) with other axes for the same elements in the same order."""
    flags, shape = value.flags, value.words.shape
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (flags.shape[0], *shape[2:])).reshape(-1, *axes)
    return SymbolicVector(value.bits, value.words.reshape(*shape[:2], *axes), flags)


def _moved(
    value: SymbolicVector, axes: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]
) -> SymbolicVector:
    """Words (2, blocks, ...) seen along these axes, brought into another order, and then into a shape."""
    blocks = value.words.shape[1]
    words = np.broadcast_to(value.words, (2, blocks, *value.words.shape[2:])).reshape(2, blocks, *axes)
    moved = words.transpose(0, 1, *(each + 2 for each in order)).reshape(2, blocks, *shape)
    flags = value.flags
    if not isinstance(flags, int):
        spread = np.broadcast_to(flags, (flags.shape[0], *value.words.shape[2:])).reshape(-1, *axes)
        flags = L.uniform_flags(spread.transpose(0, *(each + 1 for each in order)).reshape(spread.shape[0], *shape))
    return SymbolicVector(value.bits, moved, flags)


def _elements(registers: Sequence[Value], bits: int) -> list[SymbolicVector]:
    if bits == 64:
        return [as_symbolic_vector(concat(registers[each : each + 2])) for each in range(0, len(registers), 2)]
    if bits == 32:
        return [as_symbolic_vector(each) for each in registers]
    return [as_symbolic_vector(extract(each, low, bits)) for each in registers for low in range(0, 32, bits)]


def _joined(values: Sequence[SymbolicVector], threads: int) -> SymbolicVector:
    """Values of all threads beside one another: words (2, blocks, values, threads)."""
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
