"""Evaluation of a FinishedGEMM on bit patterns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.evaluation.epilogues import NO_FORMULAS, Formulas, evaluate_epilogue
from bitwise_core.descriptors.evaluation.gemm import evaluate_gemm
from bitwise_core.descriptors.evaluation.operands import convert, fp32, patterns
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.descriptors.problem import BLOCK_K, FinishedGEMM
from bitwise_core.numerics import Bits, operation


def evaluate_finished(
    desc: FinishedGEMM, a: npt.ArrayLike, b: npt.ArrayLike, operands: Sequence[npt.ArrayLike] = (), *,
    formulas: Formulas = NO_FORMULAS, hardware: Hardware = IEEE,
) -> Bits:  # fmt: skip
    """Return the patterns of the result (m, n) for patterns of A (m, k) and B (k, n), of the types of the call.

    `operands` are those of the description.  Raises DescriptorError.
    """
    left = patterns("a", a, desc.operand_dtypes[0], (None, None))
    right = patterns("b", b, desc.operand_dtypes[1], (None, None))
    if desc.widened_from is not None:
        left, right = convert(left, desc.widened_from, "fp32"), convert(right, desc.widened_from, "fp32")
        scale, times = fp32("scale", desc.scale), operation("mul.rn.fp32")
        left = times.evaluate(left, scale) if desc.scaled == "a" else left
        right = times.evaluate(right, scale) if desc.scaled == "b" else right
    if desc.onto_addend:
        under, others = operands[: int(desc.starts_from_addend)], operands[int(desc.starts_from_addend) :]
        for place, (low, product, steps) in enumerate(desc.slices):
            k = slice(low, low + product.k)
            sums = evaluate_gemm(product, left[:, k], right[k], hardware=hardware)
            given = [*under, *(others if place == len(desc.slices) - 1 else ())]
            under = [evaluate_epilogue(steps, "fp32", sums, given, formulas=formulas, hardware=hardware)]
        return np.asarray(under[0])
    if desc.block_scaling != "none":
        sums = _scaled_blocks(desc, left, right, *operands[:2], hardware=hardware)
        operands = operands[2:]
    else:
        sums = evaluate_gemm(desc.product, left, right, hardware=hardware)
    return evaluate_epilogue(desc.steps, "fp32", sums, operands, formulas=formulas, hardware=hardware)


def _scaled_blocks(
    desc: FinishedGEMM, left: Bits, right: Bits, scales_a: npt.ArrayLike, scales_b: npt.ArrayLike, *,
    hardware: Hardware,
) -> Bits:  # fmt: skip
    """Return the sums of blocks of k, each multiplied by its scales."""
    times, fma, plus = (operation(f"{name}.rn.fp32") for name in ("mul", "fma", "add"))
    shape, blocks = (left.shape[0], right.shape[1]), -(-desc.product.k // BLOCK_K)
    slice_span = desc.product.k_cuts[0].span if len(desc.product.k_cuts) > 1 else None
    down = patterns("the scales of a", scales_a, "fp32", (shape[0], blocks))
    across = patterns("the scales of b", scales_b, "fp32", (blocks, shape[1]))
    fields = {name: getattr(desc.product, name) for name in type(desc.product).model_fields} | {"k_cuts": ()}
    slices, total = [], np.zeros(shape, down.dtype)
    for block in range(blocks):
        first = block * BLOCK_K
        if first and slice_span is not None and first % slice_span == 0:
            slices.append(total)
            total = np.zeros(shape, down.dtype)
        part = slice(first, min(first + BLOCK_K, desc.product.k))
        sums = evaluate_gemm(
            GEMMDesc(**(fields | {"k": part.stop - part.start})), left[:, part], right[part], hardware=hardware
        )  # fmt: skip
        x, y = np.broadcast_to(down[:, block, None], shape), np.broadcast_to(across[None, block], shape)
        if desc.block_scaling == "left_first":
            total = fma.evaluate(times.evaluate(sums, x), y, total)
        else:
            total = fma.evaluate(sums, times.evaluate(x, y), total)
    return reduce(plus.evaluate, [*slices, total])
