"""Where the elements of matrix operands lie in the registers of a warp.

Source: PTX ISA 8.7, "Matrix Fragments for mma", drawn together in one formula: with q = lane / 4, c = lane % 4 and
E elements in a register (1 where an element fills it), register i of A holds rows q + 8 * (i % 2) and
k = 4E * (i / 2) + E * c + e; register i of B holds column q and k = 4E * i + E * c + e; an accumulator's element
2 * half + e has row q + 8 * half and column 2c + e.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Lanes, Value
from bitwise_core.machine.matrix import FusedStep, Vectors
from bitwise_core.machine.pieces import as_lanes, cut
from bitwise_core.machine.state import Machine

_FOUR = 4
"""Lanes that hold one vector."""


def vectors(machine: Machine, registers: Sequence[Value], element_bits: int, halves: int) -> list[Vectors]:
    """The operand vectors of a fragment: per half, eight of each warp by lane / 4."""
    cache: dict[tuple[int, ...], tuple[tuple[Value, ...], list[Vectors]]] = machine.extra.setdefault("fragments", {})
    key = (element_bits, halves, *(id(register) for register in registers))
    found = cache.get(key)
    if found is not None:
        return found[1]
    if len(cache) > 512:
        cache.clear()
    result = [
        machine.domain.vectors(_elements(machine, registers[half::halves], element_bits)) for half in range(halves)
    ]
    cache[key] = (tuple(registers), result)
    return result


def _elements(machine: Machine, registers: Sequence[Value], bits: int) -> Lanes:
    """The elements of each vector in the order of k: words (2, blocks, warps * 8, k)."""
    per_register = max(32, bits) // bits
    parts = [
        [as_lanes(cut(register, low * bits, bits)) for low in range(per_register)] if per_register > 1
        else [as_lanes(register)]
        for register in registers
    ]  # fmt: skip
    flat = [each for row in parts for each in row]
    blocks = max(each.words.shape[1] for each in flat)
    count = machine.threads // _FOUR
    words = np.empty((2, blocks, count, len(registers), _FOUR, per_register), dtype=np.uint64)
    for block, row in enumerate(parts):
        for element, each in enumerate(row):
            spread = np.broadcast_to(each.words, (2, blocks, machine.threads))
            words[:, :, :, block, :, element] = spread.reshape(2, blocks, count, _FOUR)
    first = flat[0].meta
    if all(isinstance(each.meta, int) and each.meta == first for each in flat):
        return Lanes(bits, words.reshape(2, blocks, count, -1), first)
    meta = np.empty(words.shape[1:], dtype=np.uint32)
    for block, row in enumerate(parts):
        for element, each in enumerate(row):
            spread = np.broadcast_to(np.asarray(each.meta, dtype=np.uint32), (blocks, machine.threads))
            meta[:, :, block, :, element] = spread.reshape(blocks, count, _FOUR)
    return Lanes(bits, words.reshape(2, blocks, count, -1), meta.reshape(blocks, count, -1))


def accumulate(
    machine: Machine, step: FusedStep, left: Sequence[Vectors], right: Vectors, accumulators: Sequence[Value]
) -> list[Lanes]:
    """One warp-level step m16n8 (or m8n8): new accumulator elements in the order 2 * half + e."""
    halves, warps = len(left), machine.threads // 32
    rows = np.arange(halves * warps * 8).reshape(halves, 1, warps, 8, 1)
    columns = np.arange(warps * 8).reshape(warps, _FOUR, 2).transpose(2, 0, 1)[None, :, :, None]
    old = _beside([as_lanes(each) for each in accumulators], (halves, 2, warps, 8, _FOUR))
    new = machine.domain.fused(step, old, left[0].beside(left[1:]).take(rows), right.take(columns))
    count = 2 * halves
    words = new.words.reshape(2, new.words.shape[1], count, machine.threads)
    meta = new.meta
    if not isinstance(meta, int):
        meta = np.broadcast_to(meta, (meta.shape[0], *old.words.shape[2:])).reshape(meta.shape[0], count, -1)
    return [
        Lanes(new.bits, words[:, :, index], meta if isinstance(meta, int) else L.uniform(meta[:, index]))
        for index in range(count)
    ]


def _beside(values: Sequence[Lanes], shape: tuple[int, ...]) -> Lanes:
    """Values of all threads as words of (2, blocks, *shape), one value after the other."""
    blocks, threads = max(each.words.shape[1] for each in values), math.prod(shape) // len(values)
    words = np.empty((2, blocks, len(values), threads), dtype=np.uint64)
    for index, each in enumerate(values):
        words[:, :, index] = each.words
    first = values[0].meta
    if all(isinstance(each.meta, int) and each.meta == first for each in values):
        return Lanes(values[0].bits, words.reshape(2, blocks, *shape), first)
    meta = np.empty((blocks, len(values), threads), dtype=np.uint32)
    for index, each in enumerate(values):
        meta[:, index] = each.meta
    return Lanes(values[0].bits, words.reshape(2, blocks, *shape), meta.reshape(blocks, *shape))
