"""Constructors of matrix-unit rows, shared by the NVIDIA plugins; each plugin supplies the parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

from bitwise_core.numerics.mma import FusedSum, IntegerSum, MmaSpec, SequentialMultiplyAdd
from bitwise_core.numerics.mma.spec import Status

VECTORS = "https://github.com/north-numerical-computing/MATLAB-tensor-core"
"""Public vectors from hardware (Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004)."""
MODELS = "https://github.com/microsoft/MMA-Sim"
"""Public models of the instructions (Xie et al., arXiv 2511.10909)."""
PTX = "https://docs.nvidia.com/cuda/parallel-thread-execution/"
"""The PTX ISA: integer products and sums are exact, modulo 2**32 or clamped."""

CHECKED: Status = "checked on vectors"
MEASURED: Status = "measured by us"
PUBLISHED: Status = "published only"

FP8 = tuple(product(("e4m3", "e5m2"), repeat=2))
"""The pairs of operand types of an fp8 instruction."""


def step_result(rule: FusedSum, result: str) -> FusedSum:
    """Return the rule with the rounding of a result: fp16 to nearest even, fp32 towards zero."""
    return replace(rule, mantissa_bits=10, rounding="rn") if result == "fp16" else rule


def fused(
    architecture: str, family: str, left: str, result: str, k: int, rule: FusedSum, status: Status, right: str = ""
) -> MmaSpec:
    """Return the row of a fused sum; `rule` is the rule for fp32 results."""
    source = VECTORS if status == CHECKED else MODELS
    return MmaSpec(
        architecture, family, left, right or left, result, result, k, step_result(rule, result), status, source
    )


def fp64(
    architecture: str,
    ks: Iterable[int],
    rule: SequentialMultiplyAdd = SequentialMultiplyAdd(),  # noqa: B008
    status: Status = PUBLISHED,
) -> list[MmaSpec]:
    """Return the rows of mma.sync of fp64: one fused multiply-add for each k, in ascending order."""
    types = ("fp64",) * 4
    return [MmaSpec(architecture, "mma.sync", *types, k, rule, status, MODELS) for k in ks]


def integers(architecture: str, family: str, ks: Iterable[int], measured: Iterable[str] = ()) -> list[MmaSpec]:
    """Return the rows of sums of 8-bit integer products in s32, wrapping and clamped.

    `measured` lists the types whose rows with two operands of that type were measured.
    """
    kinds = ("s8", "u8")

    def status(left: str, right: str) -> Status:
        return MEASURED if left == right and left in measured else PUBLISHED

    return [
        MmaSpec(architecture, family, left, right, "s32", "s32", k, IntegerSum(saturate), status(left, right), PTX)
        for k in ks
        for left in kinds
        for right in kinds
        for saturate in (False, True)
    ]
