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
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_chains import ChainedRegister, ChainedSteps, bundled, shape_of
from bitwise_core.execution.values.mma_steps import MmaStep, OperandVectors, loaded_elements, of_blocks
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, TermRecorder, Value

_CACHE_SIZE = 512
"""The number of cached operands; consecutive instructions often share an operand."""


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


def operand_vectors(
    machine: Machine, registers: Sequence[Value], bits: int, form: str, tile: Tile, step: int
) -> list[OperandVectors]:
    """The operand vectors of a fragment by wave, block and row, one for each consecutive part of `step` k."""
    fragments: dict[tuple[object, ...], tuple[tuple[object, ...], list[OperandVectors]]] = machine.extra.setdefault(
        "fragments", {}
    )
    blocks = machine.active_whole_blocks()
    waves = machine.threads // WAVE
    key = (bits, form, tile, step, id(blocks), *(id(register) for register in registers))
    found = fragments.get(key)
    if found is not None:
        return found[1]
    if len(fragments) > _CACHE_SIZE:
        fragments.clear()
    loads = _loaded_elements(machine, registers, bits, tile) if blocks is None else None
    if loads is not None:
        elements_of_k, numbers = loads
        result = []
        for low in range(0, tile.k, step):
            part_of_k = SymbolicVector(bits, elements_of_k.words[..., low : low + step], elements_of_k.flags)
            result.append(machine.domain.operand_vectors(part_of_k, form, waves).of_blocks(numbers))
        fragments[key] = ((*registers, blocks), result)
        return result
    elements = _elements(registers, bits)
    if blocks is not None:
        elements = [of_blocks(each, blocks.numbers) for each in elements]
    axes = len(elements), waves, tile.blocks, tile.groups, tile.side
    joined = _transposed(_stacked(elements, machine.threads), axes, (1, 2, 4, 3, 0), (-1, tile.k))
    flags = joined.flags
    result = []
    for low in range(0, tile.k, step):
        part = flags if isinstance(flags, int) else L.uniform_flags(flags[..., low : low + step])
        vectors = SymbolicVector(bits, joined.words[..., low : low + step], part)
        hashed = machine.domain.operand_vectors(vectors, form, waves)
        result.append(hashed if blocks is None else hashed.of_blocks(blocks.place))
    fragments[key] = ((*registers, blocks), result)
    return result


def _loaded_elements(
    machine: Machine, registers: Sequence[Value], bits: int, tile: Tile
) -> tuple[SymbolicVector, Array] | None:
    """The elements by wave, block, row and k, for distinct blocks, and each block's number; None if some is no load."""
    if bits > 32 or machine.domain.recorder is not None:
        return None
    addresses = [L.load_addresses(each) for each in registers]
    axes = machine.threads // WAVE, tile.blocks, tile.groups, tile.side
    words = np.empty((machine.blocks, axes[0], axes[1], axes[3], axes[2], len(registers)), dtype=np.uint64)
    for index, each in enumerate(addresses):
        if each is None:
            return None
        spread = np.broadcast_to(each, (machine.blocks, machine.threads)).reshape(machine.blocks, *axes)
        words[..., index] = spread.transpose(0, 1, 2, 4, 3)
    return loaded_elements(words.reshape(machine.blocks, -1, tile.groups * len(registers)), bits, 32 // bits)


def accumulate(
    machine: Machine,
    step: MmaStep,
    left: Sequence[OperandVectors],
    right: Sequence[OperandVectors],
    old: Sequence[Value],
    tile: Tile,
    a_blocks: Sequence[int],
) -> list[SymbolicVector]:
    """A lane's new accumulators: the products of all parts added in order to the `old` ones.

    `a_blocks` gives for each block of the result the block of A that it multiplies.
    """
    rows, columns, axes = _row_and_column_indices(tile, machine.threads // WAVE, tuple(a_blocks))
    total = _whole(old)
    if total is None:
        total = _stacked([as_symbolic_vector(each) for each in old], machine.threads)
    if shape_of(total)[2:] != axes:
        total = _reshaped(total, axes)
    for one, other in zip(left, right, strict=True):
        total = machine.domain.mma_step(step, total, one.take(rows), other.take(columns))
    if isinstance(total, ChainedSteps) and total.shape[2:] == axes:
        return [ChainedRegister(total, tile.accumulators, index) for index in range(tile.accumulators)]
    return _accumulators(_reshaped(total, (tile.accumulators, machine.threads)), total.recorder)


def _whole(values: Sequence[Value]) -> SymbolicVector | None:
    """The result of one instruction, where the values are all of its accumulators in order; None for any other."""
    whole = bundled(values)
    return whole if whole is not None and _registers_of(whole) == len(values) else None


def _registers_of(whole: SymbolicVector) -> int:
    """The number of accumulators of a lane, of stacked ones or along the axes of `_row_and_column_indices`."""
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
    whole = _stacked(before, stacked[1]) if whole is None else _reshaped(whole, stacked)
    total = _reshaped(total, stacked)
    lanes = mask[:, None]
    words = np.where(lanes, total.words, whole.words)
    flags = L.uniform_flags(L.select_flags(lanes, total.flags, whole.flags))
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, words.shape[1:])
    found = _accumulators(SymbolicVector(total.bits, words, flags), None)
    for each in found:
        each.flags = L.uniform_flags(each.flags)
    return found


def _accumulators(total: SymbolicVector, recorder: TermRecorder | None) -> list[SymbolicVector]:
    """The accumulators of a lane, stacked in words of shape (2, blocks, accumulators, threads)."""
    result = []
    for each in range(total.words.shape[2]):
        flags = total.flags if isinstance(total.flags, int) else total.flags[:, each]
        part = SymbolicVector(total.bits, total.words[:, :, each], flags)
        part.recorder = recorder
        result.append(part)
        result[-1].bundle = (total, each)
    return result


@cache
def _row_and_column_indices(tile: Tile, waves: int, a_blocks: tuple[int, ...]) -> tuple[Array, Array, tuple[int, ...]]:
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


def _reshaped(value: SymbolicVector, axes: tuple[int, ...]) -> SymbolicVector:
    """A vector with words (2, blocks, ...) reshaped to other axes."""
    flags, shape = value.flags, value.words.shape
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (flags.shape[0], *shape[2:])).reshape(-1, *axes)
    return SymbolicVector(value.bits, value.words.reshape(*shape[:2], *axes), flags)


def _transposed(
    value: SymbolicVector, axes: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]
) -> SymbolicVector:
    """A vector with words (2, blocks, ...) reshaped to `axes`, transposed to `order`, and reshaped to `shape`."""
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


def _stacked(values: Sequence[SymbolicVector], threads: int) -> SymbolicVector:
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
