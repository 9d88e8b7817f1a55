"""Where the elements of matrix operands lie in the registers of a warp.

Source: PTX ISA 8.7, "Matrix Fragments for mma", drawn together in one formula: with q = lane / 4, c = lane % 4 and
E elements in a register (1 where an element fills it), register i of A holds rows q + 8 * (i % 2) and
k = 4E * (i / 2) + E * c + e; register i of B holds column q and k = 4E * i + E * c + e; an accumulator's element
2 * half + e has row q + 8 * half and column 2c + e.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from bitwise_core.machine import hashing, matrix, recording
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import exact_hash, full_hash
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.matrix import Vectors
from bitwise_core.machine.pieces import as_lanes, cut
from bitwise_core.machine.state import Machine


@cache
def _coefficients(count: int, per_register: int, element: int, block: int, threads: int) -> hashing.Words:
    """The multiplier of each thread's element, shape (2, 1, threads)."""
    lane = np.arange(threads) % 4
    place = 4 * per_register * block + per_register * lane + element
    multipliers = hashing.row_multipliers(count).reshape(2, count)
    return multipliers[:, place][:, None, :]


def vectors(machine: Machine, registers: Sequence[Value], element_bits: int, halves: int) -> list[Vectors]:
    """The operand vectors of a fragment: per half, words of shape (2, blocks, warps, 8) by lane / 4."""
    cache: dict[tuple[int, ...], tuple[tuple[Value, ...], list[Vectors]]] = machine.extra.setdefault("fragments", {})
    key = (element_bits, halves, *(id(register) for register in registers))
    found = cache.get(key)
    if found is not None:
        return found[1]
    if len(cache) > 512:
        cache.clear()
    result = [_vector(machine, registers[half::halves], element_bits) for half in range(halves)]
    cache[key] = (tuple(registers), result)
    return result


def _vector(machine: Machine, registers: Sequence[Value], element_bits: int) -> Vectors:
    register_bits = max(32, element_bits)
    per_register = register_bits // element_bits
    count = 4 * per_register * len(registers)
    total: hashing.Words | None = None
    zero: Array | None = np.ones((1, 1), dtype=bool)
    sticky: L.Meta = 0
    for block, register in enumerate(registers):
        for element in range(per_register):
            value = as_lanes(cut(register, element * element_bits, element_bits))
            words = (exact_hash(value) if element_bits == 32 else full_hash(value)) * _coefficients(
                count, per_register, element, block, machine.threads
            )
            total = words if total is None else total + words
            found = matrix.known_zero(value)
            zero = None if zero is None or found is None else zero & found
            sticky = sticky | matrix.sticky_of(value.meta)
    assert total is not None
    blocks = total.shape[1]
    grouped = total.reshape(2, blocks, -1, 8, 4).sum(axis=-1, dtype=np.uint64)
    tag = hashing.shaped(hashing.constant(f"vector {count} of {element_bits}"), grouped.ndim)
    all_zero = None
    if zero is not None:
        spread = np.broadcast_to(zero, (zero.shape[0], machine.threads))
        all_zero = np.all(spread.reshape(zero.shape[0], -1, 8, 4), axis=-1)
    result = hashing.finalise(grouped + tag)
    recording.note(
        matrix.VECTOR,
        Lanes(element_bits, result, L.TERM),
        lambda: _elements(machine, registers, element_bits, per_register),
    )
    return Vectors(result, all_zero, sticky)


def _elements(machine: Machine, registers: Sequence[Value], element_bits: int, per_register: int) -> list[Lanes]:
    """The elements of each vector in the order of k, each of shape (blocks, warps, 8)."""
    found = []
    for register in registers:
        elements = [
            _by_lane(machine, as_lanes(cut(register, e * element_bits, element_bits))) for e in range(per_register)
        ]
        for lane in range(4):
            for each in elements:
                meta = each.meta if isinstance(each.meta, int) else each.meta[..., lane]
                found.append(Lanes(element_bits, each.words[..., lane], meta))
    return found


def accumulate(
    machine: Machine,
    name: str,
    left: Sequence[Vectors],
    right: Vectors,
    accumulators: Sequence[Value],
    bits: int,
    *,
    commutes: bool,
) -> list[Lanes]:
    """One warp-level step m16n8 (or m8n8): new accumulator elements in the order 2 * half + e."""
    result = []
    finite = machine.domain.assumes("finite")
    for half, vector in enumerate(left):
        for element in range(2):
            old = _by_lane(machine, as_lanes(accumulators[2 * half + element]))
            row = Vectors(
                vector.words[..., None], None if vector.zero is None else vector.zero[..., None], vector.sticky
            )
            words = right.words.reshape(*right.words.shape[:-1], 4, 2)[..., element][..., None, :]
            zero = (
                None
                if right.zero is None
                else right.zero.reshape(*right.zero.shape[:-1], 4, 2)[..., element][..., None, :]
            )
            new = matrix.fused(
                name,
                old,
                row,
                Vectors(words, zero, right.sticky),
                positive_zero=bits == 32,
                finite=finite,
                commutes=commutes,
            )
            result.append(_by_thread(new))
    assert bits == result[0].bits
    return result


def _by_lane(machine: Machine, value: Lanes) -> Lanes:
    """Words (2, blocks, threads) as (2, blocks, warps, 8, 4)."""
    words = np.broadcast_to(value.words, (2, value.words.shape[1], machine.threads)).reshape(
        2, value.words.shape[1], -1, 8, 4
    )
    meta = value.meta
    if not isinstance(meta, int):
        meta = np.broadcast_to(meta, (meta.shape[0], machine.threads)).reshape(meta.shape[0], -1, 8, 4)
    return Lanes(value.bits, words, meta)


def _by_thread(value: Lanes) -> Lanes:
    words = value.words.reshape(2, value.words.shape[1], -1)
    meta = value.meta
    if not isinstance(meta, int):
        meta = np.broadcast_to(meta, (meta.shape[0], *value.words.shape[2:])).reshape(meta.shape[0], -1)
    return Lanes(value.bits, words, meta)
