"""Attention of the corpus as descriptors."""

from __future__ import annotations

import numpy as np

from bitwise_core.descriptors import AttentionDesc, Digit, Fold, Instruction, ReductionDesc, single_pass

EXPONENTIAL, QUOTIENT = "ex2.approx.ftz.fp32@sm_90", "div.full.fp32@sm_90"


def row_sum(width: int, warps: int) -> ReductionDesc:
    """Return the sum of a row of scores in the layout of matrix fragments, 8 columns per warp and iteration.

    A thread adds its pairs of adjacent elements in one chain; then four lanes are reduced pairwise, the larger distance
    first, and then the warps.
    """
    iterations = width // (8 * warps)
    pair = Digit(stride=1, count=2)
    chain = Fold(stride=8 * warps, count=iterations, within=(pair,)) if iterations > 1 else Fold(**dict(pair))
    across = [Fold(stride=8 << bit) for bit in reversed(range((warps - 1).bit_length()))]
    return ReductionDesc(length=width, dtype="fp32", folds=(chain, Fold(stride=4), Fold(stride=2), *across))


def attention(
    dtype: str,
    head: int,
    tile: tuple[int, int],
    warps: int,
    *,
    scale: float,
    causal: bool,
    fill: float,
    skip: bool,
    output_dtype: str,
) -> AttentionDesc:
    """Return the descriptor of the forward kernel of the corpus with a tile of (queries, keys).

    For small tiles of wide heads, a row of scores is divided between warps.  If the keys before the diagonal are
    processed without a mask (`skip`), the compiler contracts scale and subtraction there; it always contracts the row
    sum.
    """
    queries, keys = tile
    unit = Instruction(architecture="sm_90", family="fused", k=16)
    return AttentionDesc(
        key_block=keys,
        masking="causal" if causal else "none",
        query_block=queries if skip else None,
        mask_value=fill,
        scores=single_pass(head, dtype, unit, output_dtype="fp32"),
        score_scale=float(np.float32(scale)),
        fused_exponent=skip,
        row_sum=row_sum(keys, warps if queries < 64 and head > 32 else 1),
        fused_sum=True,
        probabilities_dtype=dtype,
        values=single_pass(keys, dtype, unit, output_dtype="fp32"),
        exponential=EXPONENTIAL,
        quotient=QUOTIENT,
        output_dtype=output_dtype,
    )
