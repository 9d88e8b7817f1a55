"""Operands of MFMA: fragments of matrices in registers, and their vectors along k.

The vectors of fragments that are alike, those of several instructions, are computed in one pass over all elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from bitwise_amd_gfx942.opcodes.matrices.matrix_layouts import Tile, stacked_values
from bitwise_amd_gfx942.opcodes.operands.deferred_bytes import OF_SOURCE, DeferredBytes
from bitwise_amd_gfx942.registers import WAVE
from bitwise_core.execution.active_lanes import WholeBlocks
from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.loads_and_zeros import LoadsAndZeros, alike_blocks, elements_of, parts_of_registers
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, OperandVectors, of_blocks
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.repeated_lanes import RepeatedLanes, repeated_lanes
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

Vectors = TypeVar("Vectors", bound=OperandVectors)

_CACHE_SIZE = 512
"""The number of cached operands; consecutive instructions often share an operand."""


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
    found = _loaded_elements((of,), [_loads_of(of)])
    if found is None:
        elements, numbers = _elements_of_registers((of,))
    else:
        elements, numbers = found[0], found[1][0]
    return _of_all_blocks(_vectors_of_k(elements, of), numbers, of)


def _of_all_blocks(vectors: Sequence[Vectors], numbers: Array, of: Fragment) -> list[Vectors]:
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
    kinds: dict[tuple[object, ...], dict[int, tuple[Fragment, _Loads | None]]] = {}
    for each in fragments:
        if each.computed is None:
            loads = _loads_of(each)
            kind = each.bits, each.form, each.tile, each.step, id(each.blocks), None if loads is None else loads[0]
            kinds.setdefault(kind, {})[id(each)] = each, loads
    for members in kinds.values():
        if len(members) > 1:
            alike, loads_of_all = zip(*members.values(), strict=True)
            _compute_alike(alike, loads_of_all)


def _compute_alike(alike: Sequence[Fragment], loads: Sequence[_Loads | None]) -> None:
    """Compute the vectors of fragments of one kind, if those of one fragment are known from those of all."""
    found = _loaded_elements(alike, loads)
    elements, numbers = found or _elements_of_registers(alike)
    vectors = [each for each in _vectors_of_k(elements, alike[0]) if isinstance(each, HashedVectors)]
    # Where some vectors are zeros, facts about all together need not be those about the vectors of one fragment.
    if any(each.zero is not None and (each.signed or alike[0].domain.assumes(FINITE)) for each in vectors):
        return
    if found is None:
        for of, own in zip(alike, np.split(numbers, len(alike)), strict=True):
            of.computed = [each.settled() for each in _of_all_blocks(vectors, own, of)]
        return
    rows, (place, *_) = elements.words.shape[1] // len(alike), numbers
    if alike[0].blocks is not None and len(place) > 1:
        place = place[alike[0].blocks.place]
    for index, of in enumerate(alike):
        of.computed = [each.placed(index * rows, rows, place).settled() for each in vectors]


_Loads: TypeAlias = tuple[int, list[LoadsAndZeros]]
"""The width of the loads and zeros of which the registers of a fragment consist, and what each loads."""


def _loads_of(of: Fragment) -> _Loads | None:
    """What the registers of a fragment load; None if some element is neither a load nor zero."""
    return None if of.bits > 32 or of.domain.recorder is not None else parts_of_registers(of.registers, of.bits)


def _loaded_elements(alike: Sequence[Fragment], loads: Sequence[_Loads | None]) -> tuple[SymbolicVector, Array] | None:
    """The elements of fragments by wave, block, row and k, for some of their blocks, and the number of each block.

    The blocks of the fragments follow each other, and so do the numbers of each.  None if some element is neither a
    load nor zero.
    """
    known = [each for each in loads if each is not None]
    if len(known) < len(alike):
        return None
    size, loaded = known[0][0], [each for _, own in known for each in own]
    zeros = any(each.zeros for each in loaded)
    if zeros and not all(each.is_apart for each in loaded):
        return None
    first, (_, threads) = alike[0], alike[0].shape
    tile, chosen = first.tile, first.blocks
    lanes = [each.addresses for each in loaded]
    if chosen is not None:
        lanes = [each if len(each) == 1 else each[chosen.numbers] for each in lanes]
    blocks = max(map(len, lanes))
    place: Array | None = None
    together = alike_blocks(lanes, blocks)
    if together is not None:
        place = together[1]
        lanes = [each if len(each) == 1 else each[together[0]] for each in lanes]
    rows, count = max(map(len, lanes)), len(lanes) // len(alike)
    whole = np.concatenate([np.broadcast_to(each, (rows, threads)) for each in lanes])
    axes = len(alike), count, rows, threads // WAVE, tile.blocks, tile.groups, tile.side
    addresses = _moved(whole, axes, (0, 2, 3, 4, 6, 5, 1), (len(alike) * rows, -1, tile.groups * count))
    elements = elements_of(addresses, zeros, first.bits, size)
    numbers = np.arange(rows) if place is None else place
    return elements, numbers + rows * np.arange(len(alike))[:, None]


def _elements_of_registers(alike: Sequence[Fragment]) -> tuple[SymbolicVector, Array]:
    """The elements as `_loaded_elements`, for all of their blocks, whatever they are."""
    first, (_, threads) = alike[0], alike[0].shape
    tile, chosen = first.tile, first.blocks
    registers_of_all = [each for of in alike for each in of.registers]
    registers = [each if _has_elements_of_bytes(each, first.bits) else _settled(each) for each in registers_of_all]
    stacked = _elements_of_stack(registers, first.bits, threads) if len(alike) > 1 else None
    if stacked is None:
        stacked = stacked_values(_elements([L.settled(each) for each in registers], first.bits), threads)
    if chosen is not None:
        stacked = of_blocks(stacked, chosen.numbers)
    rows, count = stacked.words.shape[1], len(alike)
    axes = rows, count, stacked.words.shape[2] // count, threads // WAVE, tile.blocks, tile.groups, tile.side
    order, shape = (1, 0, 3, 4, 6, 5, 2), (count * rows, -1, tile.k)
    planes = [_moved(each, axes, order, shape) for each in _planes(stacked)]
    words = np.stack(planes) if len(planes) > 1 else L.both_words(planes[0])
    flags = stacked.flags
    if not isinstance(flags, int):
        spread = np.broadcast_to(flags, (rows, *stacked.words.shape[2:]))
        flags = L.uniform_flags(_moved(spread, axes, order, shape))
    return SymbolicVector(first.bits, words, flags), np.arange(count * rows)


def _settled(value: Value) -> Value:
    """A register as it is read in all lanes."""
    found = L.settled(value)
    is_whole = type(found) is PackedVector and found.whole is not None and found.whole.all()
    return as_symbolic_vector(found) if is_whole else found


def _moved(lanes: Array, axes: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """An array reshaped to `axes`, transposed to `order`, and reshaped to `shape`."""
    found: Array = lanes.reshape(axes).transpose(order).reshape(shape)
    return found


def _planes(value: SymbolicVector) -> Array:
    """The words of a value, only the first of both where they are the same, as of loads and constants."""
    words = value.words
    same = words.strides[0] == 0 or (_is_of_memory(value) and np.array_equal(words[0], words[1]))
    return words[:1] if same else words


def _elements(registers: Sequence[Value], bits: int) -> list[SymbolicVector]:
    if bits == 64:
        return [as_symbolic_vector(concat(registers[each : each + 2])) for each in range(0, len(registers), 2)]
    if bits == 32:
        return [as_symbolic_vector(each) for each in registers]
    return [as_symbolic_vector(extract(each, low, bits)) for each in registers for low in range(0, 32, bits)]


def _elements_of_stack(registers: Sequence[Value], bits: int, threads: int) -> SymbolicVector | None:
    """The elements of registers, stacked, from one extraction for all that are alike; None where there is none."""
    if bits > 16:
        return None
    groups: dict[Hashable, list[int]] = {}
    for index, each in enumerate(registers):
        groups.setdefault(_structure(each), []).append(index)
    found: list[tuple[list[int], list[SymbolicVector]]] = []
    for members in groups.values():
        alike = [registers[index] for index in members]
        moved = [each for each in alike if type(each) is DeferredBytes]
        if len(moved) == len(alike):
            found.append((members, _elements_of_bytes(moved, threads)))
            continue
        stack = _alike_registers(alike, threads)
        if stack is None:
            return None
        found.append((members, _extracted(stack, bits)))
    count = 32 // bits
    blocks = max(each.words.shape[1] for _, parts in found for each in parts)
    planes = [[_planes(each) for each in parts] for _, parts in found]
    kept = max(len(each) for parts in planes for each in parts)
    words = np.empty((kept, blocks, len(registers), count, threads), dtype=np.uint64)
    first = found[0][1][0].flags
    same = all(isinstance(each.flags, int) and each.flags == first for _, parts in found for each in parts)
    flags = first if same else np.empty(words.shape[1:], dtype=np.uint32)
    for (members, parts), own in zip(found, planes, strict=True):
        shape = blocks, len(members), threads
        for place, each in enumerate(parts):
            words[:, :, members, place] = _spread(own[place], (kept, *shape))
            if not isinstance(flags, int):
                flags[:, members, place] = _spread(np.asarray(each.flags, dtype=np.uint32), shape)
    if not isinstance(flags, int):
        flags = flags.reshape(blocks, -1, threads)
    stacked = words.reshape(kept, blocks, -1, threads)
    return SymbolicVector(bits, stacked if kept > 1 else L.both_words(stacked[0]), flags)


def _extracted(stack: Value, bits: int) -> list[SymbolicVector]:
    """The elements of a stack of registers.  Those that are joined are so once for all waves that hold the same."""
    repeated = _repeated(stack.parts, bits) if type(stack) is PackedVector else None
    if repeated is None:
        return [as_symbolic_vector(extract(stack, low, bits)) for low in range(0, 32, bits)]
    assert type(stack) is PackedVector
    parts = [repeated.reduced(each) if type(each) is SymbolicVector else each for each in stack.parts]
    few = PackedVector(tuple(parts))
    return [repeated.whole(as_symbolic_vector(extract(few, low, bits))) for low in range(0, 32, bits)]


def _has_elements_of_bytes(value: Value, bits: int) -> bool:
    """Whether a register has moved bytes that nothing has read, one in each element of 16 bits beside a number."""
    if type(value) is not DeferredBytes or value.is_computed or bits != 16:
        return False
    places = value.bytes_of_source
    return all((low < OF_SOURCE) != (high < OF_SOURCE) for low, high in (places[:2], places[2:]))


def _elements_of_bytes(registers: Sequence[DeferredBytes], threads: int) -> list[SymbolicVector]:
    """The elements of registers with moved bytes at the same places, side by side, from the words that were loaded."""
    loads = [each.loads for each in registers]
    blocks = max(len(each.addresses) for each in loads)
    addresses = np.concatenate([np.broadcast_to(each.addresses, (blocks, threads)) for each in loads], axis=1)
    words = elements_of(addresses, any(each.zeros for each in loads), 32, 32)
    repeated = repeated_lanes([words])
    few = words if repeated is None else repeated.reduced(words)
    found = []
    places = registers[0].bytes_of_source
    for element in (places[:2], places[2:]):
        parts: list[Value] = [
            np.full((1, 1), each, dtype=np.uint8) if each < OF_SOURCE else extract(few, 8 * (each - OF_SOURCE), 8)
            for each in element
        ]
        value = as_symbolic_vector(concat(parts))
        found.append(value if repeated is None else repeated.whole(value))
    return found


def _repeated(parts: Sequence[Array | SymbolicVector], bits: int) -> RepeatedLanes | None:
    """The waves that hold the same in parts of which an element has several; None where there are few."""
    vectors = [each for each in parts if type(each) is SymbolicVector]
    plain = all(type(each) is SymbolicVector or (type(each) is np.ndarray and each.size == 1) for each in parts)
    joined = any(L.width(each) < bits for each in parts)
    return repeated_lanes(vectors) if vectors and plain and joined else None


def _spread(lanes: Array, shape: tuple[int, ...]) -> Array:
    """The lanes of registers side by side, or of one value for all of them, along axes of registers and threads."""
    whole: Array = np.broadcast_to(lanes, (*shape[:-2], shape[-2] * shape[-1])).reshape(shape)
    return whole


def _structure(value: Value) -> Hashable:
    """What registers have in common whose values may be stacked."""
    if isinstance(value, np.ndarray):
        return "number", value.dtype
    if type(value) is DeferredBytes:
        return "bytes", value.bytes_of_source
    if type(value) is PackedVector and value.whole is None:
        return tuple([(isinstance(each, np.ndarray), L.width(each)) for each in value.parts])
    return type(value).__name__


def _alike_registers(values: Sequence[Value], threads: int) -> Value | None:
    """The values of registers side by side, as threads of one register; None where they are not of one structure."""
    first = values[0]
    if isinstance(first, np.ndarray):
        numbers = [each for each in values if isinstance(each, np.ndarray) and each.dtype == first.dtype]
        if len(numbers) < len(values):
            return None
        if first.size == 1 and all(np.array_equal(each, first) for each in numbers):
            return first
        blocks = max(len(each) for each in numbers)
        return np.concatenate([np.broadcast_to(each, (blocks, threads)) for each in numbers], axis=1)
    if type(first) is PackedVector:
        widths = [L.width(part) for part in first.parts]
        packed = [each for each in values if type(each) is PackedVector and each.whole is None]
        if len(packed) < len(values) or any([L.width(part) for part in each.parts] != widths for each in packed):
            return None
        parts = [_alike_registers([each.parts[index] for each in packed], threads) for index in range(len(widths))]
        plain = [each for each in parts if isinstance(each, np.ndarray | SymbolicVector)]
        return PackedVector(tuple(plain)) if len(plain) == len(parts) else None
    vectors = [each for each in values if type(each) is SymbolicVector and (not each.origins or _is_of_memory(each))]
    if len(vectors) < len(values):
        return None
    stacked = stacked_values(vectors, threads)
    flags = stacked.flags if isinstance(stacked.flags, int) else stacked.flags.reshape(len(stacked.flags), -1)
    return SymbolicVector(stacked.bits, stacked.words.reshape(2, stacked.words.shape[1], -1), flags)


def _is_of_memory(value: SymbolicVector) -> bool:
    """Whether each lane is a load or a constant: its parts are such, and joined again without their origins."""
    form = value.flags & L.FORM
    return bool(np.all((form == L.LOAD) | (form == L.CONST)))
