"""Packed operands: the plan of a product whose operands a first kernel packs into aligned memory.

Each row of a packed operand holds the values of k of one row of A, or of one column of B, in groups of 16: the values
of one instruction, then zeros.  A group is what one instruction of k 16 takes.  Every slice is padded with zeros to the
same whole number of stages.  Zeros add nothing, so the product of the packed operands has the bits of the plan.
"""

from __future__ import annotations

from dataclasses import replace

from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import STAGE_BYTES
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, UnsupportedGEMM

STAGE = STAGE_BYTES // 2
"""The values of k of a stage of 16-bit operands."""
GROUP = 16
"""The values of k of a group."""


def packed_plan(plan: MatrixPlan) -> MatrixPlan:
    """Return the plan of the product of packed operands, with the same bits.  Raises UnsupportedGEMM for fp8.

    It is `plan` itself where packing keeps the order of k.  Then an operand may also stay as it is.
    """
    span = _packed_span(plan)
    if not plan.short_first and not plan.instruction_k8 and (plan.slices.number == 1 or span == plan.slices.span):
        return plan
    return MatrixPlan(plan.slices.number * span, replace(plan.slices, span=span), 0, False, 0)


def packed_slices(plan: MatrixPlan) -> tuple[int, int]:
    """Return the number of values of a row of a packed operand, and of one slice of it.  Raises UnsupportedGEMM."""
    span = _packed_span(plan)
    return plan.slices.number * span, span


def _packed_span(plan: MatrixPlan) -> int:
    if plan.accumulator_k:
        raise UnsupportedGEMM("packed operands of fp8: only operands of 16 bits are packed")
    # An iteration is whole instructions, except the last one of a slice, or with short_first the first one.
    instructions = -(-plan.slices.span // (8 if plan.instruction_k8 else GROUP))
    return -(-instructions * GROUP // STAGE) * STAGE
