"""Evaluation of a FinishedGEMM on bit patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from bitwise_core.descriptors.evaluation.epilogues import NO_FORMULAS, Formulas, evaluate_epilogue
from bitwise_core.descriptors.evaluation.gemm import evaluate_gemm
from bitwise_core.descriptors.evaluation.operands import convert, fp32, patterns
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.descriptors.problem import FinishedGEMM
from bitwise_core.numerics import Bits, operation


def evaluate_finished(
    desc: FinishedGEMM, a: npt.ArrayLike, b: npt.ArrayLike, operands: Sequence[npt.ArrayLike] = (), *,
    formulas: Formulas = NO_FORMULAS, hardware: Hardware = IEEE,
) -> Bits:  # fmt: skip
    """Return the patterns of the result (m, n) for patterns of A (m, k) and B (k, n), of the types of the call.

    `operands` are those of `desc.steps`.  Raises DescriptorError.
    """
    left = patterns("a", a, desc.operand_dtypes[0], (None, None))
    right = patterns("b", b, desc.operand_dtypes[1], (None, None))
    if desc.widened_from is not None:
        left, right = convert(left, desc.widened_from, "fp32"), convert(right, desc.widened_from, "fp32")
        scale, times = fp32("scale", desc.scale), operation("mul.rn.fp32")
        left = times.evaluate(left, scale) if desc.scaled == "a" else left
        right = times.evaluate(right, scale) if desc.scaled == "b" else right
    sums = evaluate_gemm(desc.product, left, right, hardware=hardware)
    return evaluate_epilogue(desc.steps, "fp32", sums, operands, formulas=formulas, hardware=hardware)
