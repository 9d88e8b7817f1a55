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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from bitwise_amd_gfx942.registers import WAVE
from bitwise_core.execution.active_lanes import WholeBlocks
from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_chains import ChainedRegister, ChainedSteps, bundled, shape_of
from bitwise_core.execution.values.mma_steps import HashedVectors, MmaStep, OperandVectors, loaded_elements, of_blocks
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, TermRecorder, Value

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


@dataclass(slots=True, eq=False)
class Fragment:
    """An operand of an instruction: its registers, and its vectors by wave, block and row once they are computed.

    `vectors` has one entry for each consecutive part of `step` k.  `shape` is that of the machine's lanes (blocks,
    threads).  `blocks` are those to which the registers belong; None: all.
    """

    registers: Sequence[Value]
    bits: int
    form: str
    tile: Tile
    step: int
    domain: Domain
    shape: tuple[int, int]
    blocks: WholeBlocks | None
    computed: list[OperandVectors] | None = None

    @property
    def vectors(self) -> list[OperandVectors]:
        """The vectors, one entry for each part of k."""
        if self.computed is None:
            self.computed = _vectors_of(self)
        return self.computed


def fragment(machine: Machine, registers: Sequence[Value], bits: int, form: str, tile: Tile, step: int) -> Fragment:
    """The fragment of these registers, whose elements have `bits` bits in the format `form`."""
    fragments: dict[tuple[object, ...], Fragment] = machine.extra.setdefault("fragments", {})
    blocks = machine.active_whole_blocks()
    key = (bits, form, tile, step, id(blocks), *(id(register) for register in registers))
    found = fragments.get(key)
    if found is None:
        if len(fragments) > _CACHE_SIZE:
            fragments.clear()
        shape = machine.blocks, machine.threads
        found = fragments[key] = Fragment(registers, bits, form, tile, step, machine.domain, shape, blocks)
    return found


def _vectors_of(of: Fragment) -> list[OperandVectors]:
    elements, numbers = _loaded_elements((of,)) or _elements_of_registers((of,))
    return _of_all_blocks(_vectors_of_k(elements, of), numbers, of)


def _of_all_blocks(vectors: Sequence[OperandVectors], numbers: Array, of: Fragment) -> list[OperandVectors]:
    """The vectors of a fragment for all blocks of the machine; its own blocks, or one for all, have these numbers."""
    if of.blocks is not None and len(numbers) > 1:
        numbers = numbers[of.blocks.place]
    return [each.of_blocks(numbers) for each in vectors]


def _vectors_of_k(elements: SymbolicVector, of: Fragment) -> list[OperandVectors]:
    """The vectors of each part of k, of elements with words (2, blocks, rows, k)."""
    flags, result = elements.flags, []
    for low in range(0, of.tile.k, of.step):
        part = flags if isinstance(flags, int) else L.uniform_flags(flags[..., low : low + of.step])
        vectors = SymbolicVector(of.bits, elements.words[..., low : low + of.step], part)
        result.append(of.domain.operand_vectors(vectors, of.form, of.shape[1] // WAVE))
    return result


def compute_together(fragments: Iterable[Fragment]) -> None:
    """Compute the vectors of fragments in the domain of terms, those of one kind in one pass."""
    kinds: dict[tuple[object, ...], dict[int, Fragment]] = {}
    for each in fragments:
        if each.computed is None:
            loads = all(L.load_addresses(register) is not None for register in each.registers)
            kind = each.bits, each.form, each.tile, each.step, id(each.blocks), loads
            kinds.setdefault(kind, {})[id(each)] = each
    for members in kinds.values():
        alike = tuple(members.values())
        if len(alike) == 1:
            continue
        elements, numbers = _loaded_elements(alike) or _elements_of_registers(alike)
        if not isinstance(elements.flags, int):
            continue
        vectors = _vectors_of_k(elements, alike[0])
        # Facts about all vectors together matter where some are zeros, and are then those of one fragment.
        if all(isinstance(each, HashedVectors) and each.zero is None for each in vectors):
            for of, own in zip(alike, np.split(numbers, len(alike)), strict=True):
                of.computed = _of_all_blocks(vectors, own, of)


def _loaded_elements(alike: Sequence[Fragment]) -> tuple[SymbolicVector, Array] | None:
    """The elements of fragments by wave, block, row and k, for some of their blocks, and the number of each block.

    The blocks of the fragments follow each other.  None if some element is no load.
    """
    first, (blocks, threads) = alike[0], alike[0].shape
    tile, count, chosen = first.tile, len(first.registers), first.blocks
    if first.bits > 32 or first.domain.recorder is not None:
        return None
    axes = threads // WAVE, tile.blocks, tile.groups, tile.side
    rows = blocks if chosen is None else len(chosen.numbers)
    words = np.empty((len(alike), rows, axes[0], axes[1], axes[3], axes[2], count), dtype=np.uint64)
    for number, of in enumerate(alike):
        for index, each in enumerate(of.registers):
            addresses = L.load_addresses(each)
            if addresses is None:
                return None
            spread = np.broadcast_to(addresses, (blocks, threads)).reshape(blocks, *axes)
            own = spread if chosen is None else spread[chosen.numbers]
            words[number, ..., index] = own.transpose(0, 1, 2, 4, 3)
    return loaded_elements(words.reshape(len(alike) * rows, -1, tile.groups * count), first.bits, 32 // first.bits)


def _elements_of_registers(alike: Sequence[Fragment]) -> tuple[SymbolicVector, Array]:
    """The elements as `_loaded_elements`, for all of their blocks, whatever they are."""
    first, (_, threads) = alike[0], alike[0].shape
    tile, chosen = first.tile, first.blocks
    registers = [each for of in alike for each in of.registers]
    stacked = _elements_of_stack(registers, first.bits, threads) if len(alike) > 1 else None
    if stacked is None:
        stacked = _stacked([each for of in alike for each in _elements(of.registers, of.bits)], threads)
    if chosen is not None:
        stacked = of_blocks(stacked, chosen.numbers)
    rows, count = stacked.words.shape[1], len(alike)
    axes = count, stacked.words.shape[2] // count, threads // WAVE, tile.blocks, tile.groups, tile.side
    joined = _transposed(stacked, axes, (0, 2, 3, 5, 4, 1), (count, -1, tile.k))
    flags, words = joined.flags, joined.words.swapaxes(1, 2).reshape(2, count * rows, -1, tile.k)
    if not isinstance(flags, int):
        flags = flags.swapaxes(0, 1).reshape(-1, *words.shape[2:])
    return SymbolicVector(first.bits, words, flags), np.arange(count * rows)


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
    rows, columns, axes = _row_and_column_indices(tile, machine.threads // WAVE, tuple(a_blocks))
    whole = _whole(old)
    if may_be_deferred(machine, step, left):
        if not isinstance(whole, DeferredSteps) or not whole.may_continue(step, axes):
            whole = _arranged(old, whole, machine.threads, axes)
        deferred = DeferredSteps(whole, step, (rows, columns, axes), left, right)
        return [DeferredRegister(deferred, index) for index in range(tile.accumulators)]
    total = _arranged(old, whole, machine.threads, axes)
    for one, other in zip(left.vectors, right.vectors, strict=True):
        total = machine.domain.mma_step(step, total, one.take(rows), other.take(columns))
    return registers_of(total, axes)


def may_be_deferred(machine: Machine, step: MmaStep, operand: Fragment) -> bool:
    """Whether the steps of an instruction may be computed when their results are read."""
    domain = machine.domain
    if not isinstance(domain, TermDomain) or domain.recorder is not None or step.integers is not None:
        return False
    return machine.written_lanes is None and operand.bits <= 32


def _arranged(
    old: Sequence[Value], whole: SymbolicVector | None, threads: int, axes: tuple[int, ...]
) -> SymbolicVector:
    """Accumulators along the axes of `_row_and_column_indices`; `whole` is the value of which they are all parts."""
    if isinstance(whole, DeferredSteps):
        whole = whole.value
    if whole is None:
        whole = _stacked([as_symbolic_vector(each) for each in old], threads)
    return whole if shape_of(whole)[2:] == axes else _reshaped(whole, axes)


def registers_of(total: SymbolicVector, axes: tuple[int, ...]) -> list[SymbolicVector]:
    """The accumulators of a lane, of results along the axes of `_row_and_column_indices`."""
    count = axes[0] * axes[1]
    if isinstance(total, ChainedSteps) and total.shape[2:] == axes:
        return [ChainedRegister(total, count, index) for index in range(count)]
    return _accumulators(_reshaped(total, (count, math.prod(axes) // count)), total.recorder)


MAXIMUM_DEFERRED = 64
"""How many instructions on one accumulator are computed together at most."""


class DeferredSteps(SymbolicVector):
    """The results of instructions on one accumulator, in the domain of terms, which are computed when they are read.

    The operands of all these instructions are hashed together.  `before` are the accumulators, `indices` what
    `_row_and_column_indices` returns.
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

    def may_continue(self, step: MmaStep, axes: tuple[int, ...]) -> bool:
        """Whether the results may be those of one more step of this kind, before they are computed."""
        alike = self._step is step or self._step == step
        return alike and self._indices[2] == axes and self._computed is None and self._count < MAXIMUM_DEFERRED

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
            assert isinstance(domain, TermDomain)
            start = before.value if isinstance(before, DeferredSteps) else before
            total = domain.mma_steps_in_order(self._step, start, lefts, rights, rows, columns)
            self._computed = total, registers_of(total, axes)
            self._before = total
        return self._computed

    @property
    def words(self) -> hashing.Words:
        """The payload."""
        return self.value.words

    @words.setter
    def words(self, words: hashing.Words) -> None:
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
    def words(self) -> hashing.Words:
        """The payload."""
        return self._whole.registers[self._index].words

    @words.setter
    def words(self, words: hashing.Words) -> None:
        """Nothing is kept: the payload is that of the results."""

    @property
    def flags(self) -> L.Flags:
        """The flags."""
        return self._whole.registers[self._index].flags

    @flags.setter
    def flags(self, flags: L.Flags) -> None:
        """Nothing is kept: the flags are those of the results."""


_NO_WORDS: hashing.Words = np.zeros((2, 1, 1), dtype=np.uint64)


def _whole(values: Sequence[Value]) -> SymbolicVector | None:
    """The result of one instruction, where the values are all of its accumulators in order; None for any other."""
    whole = bundled(values)
    return whole if whole is not None and _count_of(whole) == len(values) else None


def _count_of(whole: SymbolicVector) -> int:
    """The number of accumulators of a lane, of stacked ones or along the axes of `_row_and_column_indices`."""
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


def _elements_of_stack(registers: Sequence[Value], bits: int, threads: int) -> SymbolicVector | None:
    """The elements of registers, stacked, from one extraction for all; None where the registers are not alike."""
    if bits > 16:
        return None
    stack = _alike_registers(registers, threads)
    if stack is None:
        return None
    parts = [as_symbolic_vector(extract(stack, low, bits)) for low in range(0, 32, bits)]
    flags = parts[0].flags
    if not isinstance(flags, int) or not all(isinstance(each.flags, int) and each.flags == flags for each in parts):
        return None
    lanes = len(registers) * threads
    blocks = max(each.words.shape[1] for each in parts)
    words = np.empty((2, blocks, len(registers), len(parts), threads), dtype=np.uint64)
    for index, each in enumerate(parts):
        whole = np.broadcast_to(each.words, (2, blocks, lanes))
        words[:, :, :, index] = whole.reshape(2, blocks, len(registers), threads)
    return SymbolicVector(bits, words.reshape(2, blocks, -1, threads), flags)


def _alike_registers(values: Sequence[Value], threads: int) -> Value | None:
    """The values of registers side by side, as threads of one register; None where they are not of one structure."""
    first = values[0]
    if isinstance(first, np.ndarray):
        same = first.size == 1 and all(isinstance(each, np.ndarray) and np.array_equal(each, first) for each in values)
        return first if same else None
    if type(first) is PackedVector:
        widths = [L.width(part) for part in first.parts]
        packed = [each for each in values if type(each) is PackedVector and each.whole is None]
        if len(packed) < len(values) or any([L.width(part) for part in each.parts] != widths for each in packed):
            return None
        parts = [_alike_registers([each.parts[index] for each in packed], threads) for index in range(len(widths))]
        plain = [each for each in parts if isinstance(each, np.ndarray | SymbolicVector)]
        return PackedVector(tuple(plain)) if len(plain) == len(parts) else None
    vectors = [each for each in values if type(each) is SymbolicVector and not each.origins]
    if len(vectors) < len(values) or not isinstance(first, SymbolicVector) or not isinstance(first.flags, int):
        return None
    if any(not isinstance(each.flags, int) or each.flags != first.flags for each in vectors):
        return None
    stacked = _stacked(vectors, threads)
    return SymbolicVector(stacked.bits, stacked.words.reshape(2, stacked.words.shape[1], -1), stacked.flags)


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
