"""Sums of the corpus as descriptors: the thread and register of an element are digits of its index."""

from __future__ import annotations

from typing import Literal, TypeAlias

from bitwise_core.descriptors import Digit, Fold, ReductionDesc

Loop: TypeAlias = Literal["elements", "sums"]


def thread_sum(
    length: int,
    block: int,
    warps: int,
    vector: int,
    *,
    dtype: str,
    accumulator_dtype: str,
    output_dtype: str,
    loop: Loop | None = None,
) -> ReductionDesc:
    """Return the sum of one row by one program in blocks of `block` elements, padded with +0.

    A thread holds `vector` adjacent elements; the index is distributed over the lanes of a warp, then over the warps,
    then over further registers.  Registers are added in one chain, then lanes and then warps pairwise, the largest
    distance first.  A loop over blocks starts from +0 and adds elements (`elements`) or the sums of blocks (`sums`).
    """
    vector = min(vector, max(1, block // (32 * warps)))
    lanes = min(32, block // vector)
    used = min(warps, max(1, block // (vector * lanes)))
    iterations = block // (vector * lanes * used)
    registers = [Digit(stride=vector * lanes * used, count=iterations)] if iterations > 1 else []
    registers += [Digit(stride=1, count=vector)] if vector > 1 else []
    folds = [Fold(**dict(registers[0]), within=tuple(registers[1:]))] if registers else []
    for step, count in ((vector, lanes), (vector * lanes, used)):
        folds += [Fold(stride=step << bit) for bit in reversed(range((count - 1).bit_length()))]
    blocks = -(-length // block)
    if loop is not None:
        chain = Fold(stride=block, count=blocks, start="zero")
        folds = [chain, *folds] if loop == "elements" else [*folds, chain]
    return ReductionDesc(
        length=length,
        dtype=dtype,
        accumulator_dtype=accumulator_dtype,
        output_dtype=output_dtype,
        folds=tuple(folds),
        padding="zero" if block * blocks > length else "absent",
    )
