"""The order of a kernel's sum, written as the kernel runs: loops over slices, iterations, blocks and waves.

It uses nothing of `describe` or of descriptors: a second implementation of the published rules, on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import MmaSpec, multiply_accumulate

ZERO = -1


@dataclass
class Sums:
    """The k of each instruction of each wave of each slice, -1 for a zero."""

    slices: list[list[list[list[int]]]] = field(default_factory=list)


def start_of(bits: Mapping[str, Any], lite: bool, own: int, common: int, tile: tuple[int, int], inverted: bool) -> int:
    """Return the first iteration of a slice for the output tile (along M, along N)."""
    stagger, shift, mapping = bits["StaggerU"], bits["_staggerStrideShift"], bits["StaggerUMapping"]
    iterations = own if lite else common
    while stagger > 1 and iterations < stagger << shift:
        stagger >>= 1
    mask = max(stagger - 1, 0)
    counted = {0: tile[1], 1: tile[0], 2: tile[0]} if lite and inverted else {0: tile[0], 1: tile[1], 2: 0}
    number = counted[mapping]
    return (number & mask) << shift


def order_of(bits: Mapping[str, Any], lite: bool, k: int, tile: tuple[int, int], inverted: bool) -> Sums:
    """Return the order of an output tile's sums."""
    depth, waves, slices = bits["DepthU"], bits["LocalSplitU"], bits["GlobalSplitU"]
    native, each = bits["MatrixInstruction"][2], bits["MIInputPerThread"]
    wide = bits["LocalReadVectorWidth"] if bits["UnrollMajorLDSA"] or bits["UnrollMajorLDSB"] else each
    count, rest = k // depth, k % depth
    mine: list[list[int]] = [[] for _ in range(slices)]
    if lite and bits["GlobalSplitUCoalesced"]:
        quotient, more = count // slices, count % slices
        for number in range(slices):
            begin = (quotient + 1) * number if number < more else quotient * number + more
            mine[number] = list(range(begin, begin + quotient + (number < more)))
        owner = slices - 1 if quotient else more
    else:
        for iteration in range(count):
            mine[iteration % slices].append(iteration)
        owner = count % slices
    found = Sums()
    for number in range(slices):
        own = len(mine[number])
        lists: list[list[list[int]]] = [[] for _ in range(waves)]
        if own:
            first = start_of(bits, lite, own, count // slices, tile, inverted)
            assert first < own
            for turn in range(own):
                base = mine[number][(first + turn) % own] * depth
                blocks = range(0, depth, native * (wide // each))
                for place, block in enumerate(blocks):
                    lists[place % waves] += _instructions(base + block, native, each, wide)
        if number == owner and rest:
            begin = count * depth
            step = native * waves
            for low in range(begin, begin + -(-rest // step) * step, native):
                taken = [at if at < k else ZERO for at in range(low, low + native)]
                lists[(low - begin) // native % waves].append(taken)
        found.slices.append(lists)
    return found


def _instructions(base: int, native: int, each: int, wide: int) -> list[list[int]]:
    """Return the k of the instructions of one block: a lane reads `wide` k, of which each instruction takes `each`."""
    made = []
    for instruction in range(wide // each):
        taken = [0] * native
        for lane in range(native // each):
            for number in range(each):
                taken[lane * each + number] = base + lane * wide + instruction * each + number
        made.append(taken)
    return made


def accumulate(unit: MmaSpec, orders: Sums, a: Bits, b: Bits, from_zero: bool) -> npt.NDArray[np.float32]:
    """Return the fp32 sums of a tile, for its rows of A and its columns of B."""
    partial = []
    for slice_ in orders.slices:
        summed = []
        for wave in slice_:
            total = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint32)
            for taken in wave:
                left, right = a[:, taken].copy(), b[taken].copy()
                zeros = [place for place, at in enumerate(taken) if at == ZERO]
                left[:, zeros], right[zeros] = 0, 0
                total = multiply_accumulate(unit, left, right, total)
            summed.append(total.view(np.float32))
        value = summed[0]
        for other in summed[1:]:
            value = value + other
        partial.append(value)
    if len(partial) == 1:
        return partial[0]
    result = np.zeros_like(partial[0]) + partial[0] if from_zero else partial[0]
    for other in partial[1:]:
        result = result + other
    return result
