"""The plan of a product whose sum has cuts, rotated or permuted iterations, or a tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc
from bitwise_core.descriptors.k_axis import FILL, Part, innermost_parts, instructions, parts_of

SIDES: Mapping[tuple[str, int], int] = {
    ("fp16", 8): 32, ("fp16", 16): 16, ("bf16", 8): 32, ("bf16", 16): 16, ("fp32", 2): 32, ("fp32", 4): 16,
    ("tf32", 4): 32, ("tf32", 8): 16, ("e4m3fnuz", 16): 32, ("e4m3fnuz", 32): 16, ("e5m2fnuz", 16): 32,
    ("e5m2fnuz", 32): 16,
}  # fmt: skip
"""Rows and columns of the MFMA instruction of a type and k."""
LEAST_K: Mapping[str, int] = {"tf32": 16}
"""The least k of a product in a type that the compiler takes.  Further zeros change no accumulator of such a unit."""
_LARGEST_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters of `kernels.ordered.ordered_product` that decide its order; see there."""

    native: int
    iterations: int
    depth: int
    slices: int = 1
    contiguous: bool = False
    waves: int = 1
    spread: int = 1
    each: int = 1
    period: int = 1
    step: int = 1
    halvings: int = 0
    tile: int = 1
    by_columns: bool = False
    from_zero: bool = False
    owner: int = 0

    @property
    def block(self) -> int:
        """The number of k in a block, which one wave takes."""
        return self.native * self.spread

    def loops(self, k: int, number: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield what each wave of each slice takes for an output tile, as `instructions` of core returns it."""
        quotient, more = divmod(self.iterations, self.slices)
        rest = k - self.iterations * self.depth
        rounds = -(-rest // (self.native * self.waves))
        at = np.arange(self.depth // self.waves)
        inner = at % self.native // self.each * (self.each * self.spread) + at % self.block // self.native * self.each
        inner += at % self.native % self.each
        for part in range(self.slices):
            own = quotient + (part < more)
            begin = part * quotient + min(part, more) if self.contiguous else part
            fitting = self.period
            for _ in range(self.halvings):
                fitting = fitting // 2 if fitting > 1 and fitting * self.step > own else fitting
            first = number % fitting * self.step % max(own, 1)
            turns = (np.arange(own) + first) % max(own, 1)
            bases = (begin + turns * (1 if self.contiguous else self.slices)) * self.depth
            for wave in range(self.waves):
                taken = (bases[:, None] + (at // self.block * self.waves + wave) * self.block + inner).reshape(-1)
                if part == self.owner:
                    places = np.arange(rounds * self.native)
                    tail = self.iterations * self.depth + (places // self.native * self.waves + wave) * self.native
                    tail += places % self.native
                    taken = np.concatenate([taken, np.where(tail < k, tail, FILL)])
                yield taken.reshape(-1, self.native)


def order_of(desc: GEMMDesc) -> Order | None:
    """Return the parameters of a descriptor's order; None where the kernel does not have it.

    The order that the parameters stand for is compared with that of the descriptor, k by k.
    """
    if desc.instruction is None or desc.instruction_k != desc.instruction.k or desc.short_iteration == "first":
        return None
    for found in _candidates(desc):
        if _same_order(found, desc):
            return found
    return None


def _candidates(desc: GEMMDesc) -> Iterator[Order]:
    assert desc.instruction is not None
    native, rotation, cuts = desc.instruction.k, desc.iteration_rotation, list(desc.k_cuts)
    # A single cut may be that of the slices or that of the waves.
    for number in {0: (0,), 1: (1, 0), 2: (1,)}.get(len(cuts), ()):
        outer, inner = cuts[:number], cuts[number:]
        waves = inner[0].count if inner else 1
        if waves is None or (inner and not _is_chain(inner[0], strided=True)):
            continue
        if outer and not _is_chain(outer[0], strided=outer[0].layout == "strided"):
            continue
        depth = outer[0].tile if outer else (desc.k_loop_step or native) * waves
        for spread, each in _spreads(desc.iteration_permutation, native):
            block = native * spread
            if depth % (waves * block) or (desc.k_loop_step is not None and desc.k_loop_step * waves != depth):
                continue
            if inner and inner[0].tile != block and len(desc.positions()):
                continue
            count = len(desc.positions()) // depth
            slices = (outer[0].count or 1) if outer else 1
            found = Order(native, count, depth, waves=waves, spread=spread, each=each)
            if outer:
                found = replace(
                    found, slices=slices, contiguous=outer[0].layout == "contiguous",
                    from_zero=outer[0].start == "zero",
                    owner=desc.tail.shares[0].part if desc.tail else count % slices,
                )  # fmt: skip
            if rotation is not None:
                halvings = rotation.period.bit_length() - 1 if rotation.halved else 0
                found = replace(
                    found, period=rotation.period, step=rotation.step, halvings=halvings, tile=rotation.tile,
                    by_columns=rotation.axis == "columns",
                )  # fmt: skip
            yield found


def _is_chain(cut: Cut, *, strided: bool) -> bool:
    plain = cut.merge == "chain" and not cut.groups and cut.partial_dtype == cut.merge_dtype == "fp32"
    return plain and (cut.layout == "strided") == strided and cut.count is not None


def _spreads(permutation: tuple[int, ...], native: int) -> Iterator[tuple[int, int]]:
    """Yield how many instructions a block of permuted k has, and how many k a group of lanes gives to each."""
    if not permutation:
        yield 1, native
        return
    for spread in (1, 2, 4, 8, 16):
        for each in (each for each in (1, 2, 4, 8, 16) if not native % each and spread > 1):
            at = np.arange(native * spread)
            block = at % native // each * (each * spread) + at // native * each + at % native % each
            if tuple(block.tolist()) == permutation[: len(block)]:
                yield spread, each


def _same_order(order: Order, desc: GEMMDesc) -> bool:
    parts = list(innermost_parts(parts_of(desc)))
    if len(parts) != order.slices * order.waves:
        # Core does not cut an empty slice into waves: its value is +0 as well.
        parts = _with_empty_waves(desc, order)
    if len(parts) != order.slices * order.waves:
        return False
    for number in {0, 1, 2, 3, order.period // 2, order.period - 1, order.period}:
        for mine, part in zip(order.loops(desc.k - desc.k_dropped, number), parts, strict=True):
            wanted = instructions(desc, part, number)
            wanted = wanted[:0] if part.empty else wanted
            if not np.array_equal(mine, wanted):
                return False
    return True


def _with_empty_waves(desc: GEMMDesc, order: Order) -> list[Part]:
    found: list[Part] = []
    for part in parts_of(desc).parts:
        found += list(innermost_parts(part)) if part.cut is not None else [part] * order.waves
    return found


def constants_of(order: Order, least: int) -> dict[str, int]:
    """Return the compile-time arguments of the kernel, besides its block; `least` is the least k of a product."""
    return {
        "TAIL_K": max(order.native, least), "NATIVE": order.native, "WAVES": order.waves, "SPREAD": order.spread,
        "EACH": order.each,
    }  # fmt: skip


def arguments_of(order: Order) -> list[int]:
    """Return the integer arguments of the kernel after M, N and K."""
    return [
        order.iterations, order.depth, order.slices, int(order.contiguous), order.period, order.step, order.halvings,
        order.tile, int(order.by_columns), int(order.from_zero), order.owner,
    ]  # fmt: skip


def block_of(order: Order, side: int) -> tuple[int, int]:
    """Return the rows and columns of a program's block, which lies in one tile of the rotation.

    Raises DescriptorError where a tile holds no whole matrix instruction.
    """
    rotated = gcd(order.tile, _LARGEST_BLOCK) if order.period > 1 else _LARGEST_BLOCK
    if rotated < side:
        raise DescriptorError(
            f"a rotation by tiles of {order.tile} cuts through an instruction of {side} rows and columns: choose "
            "another tile"
        )
    return (_LARGEST_BLOCK, rotated) if order.by_columns else (rotated, _LARGEST_BLOCK)
