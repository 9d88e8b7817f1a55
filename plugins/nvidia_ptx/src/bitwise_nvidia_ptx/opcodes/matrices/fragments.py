"""The layout of matrix fragments in the registers of a warp.

Source: PTX ISA 8.7, "Matrix Fragments for mma".  One formula covers all of its figures.  Let q = lane / 4, c = lane %
4, and E the number of elements in a register (1 if an element fills it).  Register i of A holds row q + 8 * (i % 2) and
k = 4E * (i / 2) + E * c + e; register i of B holds column q and k = 4E * i + E * c + e; element 2 * half + e of an
accumulator has row q + 8 * half and column 2c + e.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.loads_and_zeros import alike_blocks, elements_of, parts_of_registers
from bitwise_core.execution.values.matrix_steps.matrix_chains import ChainedRegister, ChainedSteps, bundled, shape_of
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep, OperandVectors, of_blocks
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value

_LANES_PER_VECTOR = 4
"""The number of lanes that hold the elements of one operand vector."""


def fragment_vectors(
    machine: Machine, registers: Sequence[Value], element_bits: int, form: str, halves: int
) -> list[OperandVectors]:
    """Return the operand vectors of a fragment of a format: for each half, eight vectors per warp, by lane / 4."""
    cache: dict[tuple[object, ...], tuple[tuple[object, ...], list[OperandVectors]]] = machine.extra.setdefault(
        "fragments", {}
    )
    blocks = machine.active_whole_blocks()
    key = (element_bits, form, halves, id(blocks), *(id(register) for register in registers))
    found = cache.get(key)
    if found is not None:
        return found[1]
    if len(cache) > 512:
        cache.clear()
    result, warps = [], machine.threads // 32
    for half in range(halves):
        chosen = registers[half::halves]
        loads = _loaded_elements(machine, chosen, element_bits) if blocks is None else None
        if loads is not None:
            result.append(machine.domain.operand_vectors(loads[0], form, warps).of_blocks(loads[1]))
            continue
        vectors = machine.domain.operand_vectors(_elements(machine, chosen, element_bits), form)
        result.append(vectors if blocks is None else vectors.of_blocks(blocks.place))
    cache[key] = ((*registers, blocks), result)
    return result


def _loaded_elements(machine: Machine, registers: Sequence[Value], bits: int) -> tuple[SymbolicVector, Array] | None:
    """Return what `_elements` returns, for some blocks, and the number among them of the one that each block is like.

    None unless all elements are loads and zeros.
    """
    loads = None if machine.domain.recorder is not None else parts_of_registers(registers, bits)
    if loads is None:
        return None
    size, parts = loads
    lanes = [each.addresses for each in parts]
    alike = alike_blocks(lanes, max(map(len, lanes)))
    if alike is not None:
        lanes = [each if len(each) == 1 else each[alike[0]] for each in lanes]
    rows, count, per_register = max(map(len, lanes)), machine.threads // _LANES_PER_VECTOR, len(lanes) // len(registers)
    whole = np.concatenate([np.broadcast_to(each, (rows, machine.threads)) for each in lanes])
    axes = len(registers), per_register, rows, count, _LANES_PER_VECTOR
    addresses = whole.reshape(axes).transpose(2, 3, 0, 4, 1).reshape(rows, count, -1)
    elements = elements_of(addresses, any(each.zeros for each in parts), bits, size)
    return elements, np.arange(rows) if alike is None else alike[1]


def _elements(machine: Machine, registers: Sequence[Value], bits: int) -> SymbolicVector:
    """Return the elements of each vector in order of k, in the active blocks: words (2, blocks, warps * 8, k)."""
    per_register = max(32, bits) // bits
    parts = [
        [as_symbolic_vector(extract(register, low * bits, bits)) for low in range(per_register)] if per_register > 1
        else [as_symbolic_vector(register)]
        for register in registers
    ]  # fmt: skip
    active = machine.active_whole_blocks()
    if active is not None:
        parts = [[of_blocks(each, active.numbers) for each in row] for row in parts]
    flat = [each for row in parts for each in row]
    blocks = max(each.words.shape[1] for each in flat)
    count = machine.threads // _LANES_PER_VECTOR
    words = np.empty((2, blocks, count, len(registers), _LANES_PER_VECTOR, per_register), dtype=np.uint64)
    for block, row in enumerate(parts):
        for element, each in enumerate(row):
            spread = each.words
            if spread.shape[1:] != (blocks, machine.threads):
                spread = np.broadcast_to(spread, (2, blocks, machine.threads))
            words[:, :, :, block, :, element] = spread.reshape(2, blocks, count, _LANES_PER_VECTOR)
    first = flat[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in flat):
        return SymbolicVector(bits, words.reshape(2, blocks, count, -1), first)
    flags = np.empty(words.shape[1:], dtype=np.uint32)
    for block, row in enumerate(parts):
        for element, each in enumerate(row):
            spread = np.broadcast_to(np.asarray(each.flags, dtype=np.uint32), (blocks, machine.threads))
            flags[:, :, block, :, element] = spread.reshape(blocks, count, _LANES_PER_VECTOR)
    return SymbolicVector(bits, words.reshape(2, blocks, count, -1), flags.reshape(blocks, count, -1))


@cache
def _rows_and_columns(halves: int, warps: int) -> tuple[Array, Array]:
    """Return the indices of the rows and columns of accumulators, by half, element, warp, lane / 4 and lane % 4."""
    rows = np.arange(halves * warps * 8).reshape(halves, 1, warps, 8, 1)
    return rows, np.arange(warps * 8).reshape(warps, _LANES_PER_VECTOR, 2).transpose(2, 0, 1)[None, :, :, None]


def accumulate(
    machine: Machine,
    step: MmaStep,
    left: Sequence[OperandVectors],
    right: OperandVectors,
    accumulators: Sequence[Value],
) -> list[SymbolicVector]:
    """Apply one warp-level step m16n8 or m8n8; return the new accumulator elements in the order 2 * half + e."""
    halves, warps = len(left), machine.threads // 32
    rows, columns = _rows_and_columns(halves, warps)
    shape = (halves, 2, warps, 8, _LANES_PER_VECTOR)
    before = [as_symbolic_vector(each) for each in accumulators]
    whole = bundled(before)
    old = whole if whole is not None and shape_of(whole)[2:] == shape else _stacked(before, shape)
    new = machine.domain.mma_step(step, old, left[0].concatenated(left[1:]).take(rows), right.take(columns))
    count = 2 * halves
    if isinstance(new, ChainedSteps) and new.shape[2:] == shape:
        return [ChainedRegister(new, count, index) for index in range(count)]
    words = np.broadcast_to(new.words, (*new.words.shape[:2], *shape)).reshape(2, -1, count, machine.threads)
    flags = new.flags
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (flags.shape[0], *shape)).reshape(flags.shape[0], count, -1)
    return [
        SymbolicVector(
            new.bits, words[:, :, index], flags if isinstance(flags, int) else L.uniform_flags(flags[:, index])
        )
        for index in range(count)
    ]


def _stacked(values: Sequence[SymbolicVector], shape: tuple[int, ...]) -> SymbolicVector:
    """Stack values of all threads along a new axis and reshape them to (2, blocks, *shape)."""
    blocks, threads = max(each.words.shape[1] for each in values), math.prod(shape) // len(values)
    words = np.empty((2, blocks, len(values), threads), dtype=np.uint64)
    for index, each in enumerate(values):
        words[:, :, index] = each.words
    first = values[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in values):
        return SymbolicVector(values[0].bits, words.reshape(2, blocks, *shape), first)
    flags = np.empty((blocks, len(values), threads), dtype=np.uint32)
    for index, each in enumerate(values):
        flags[:, index] = each.flags
    return SymbolicVector(values[0].bits, words.reshape(2, blocks, *shape), flags.reshape(blocks, *shape))
