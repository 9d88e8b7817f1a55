"""The rows of mma.sync on Volta, Turing, Ampere and Ada, and how each was established.

The public vectors cover one step of 8 products (4 of tf32).  That a longer instruction is a chain of such steps is
taken from publications.
"""

from __future__ import annotations

from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_nvidia_ptx.matrix_rows import CHECKED, FP8, PUBLISHED, fp64, fused, integers

FAMILY = "mma.sync"


def _volta() -> list[MmaSpec]:
    rule = FusedSum(4, 23, 23, "rz")
    return [fused("sm_70", FAMILY, "fp16", result, 4, rule, CHECKED) for result in ("fp32", "fp16")]


def _turing() -> list[MmaSpec]:
    rule = FusedSum(8, 24, 23, "rz")
    rows = [fused("sm_75", FAMILY, "fp16", result, 8, rule, PUBLISHED) for result in ("fp32", "fp16")]
    return rows + integers("sm_75", FAMILY, (16,))


def _ampere(architecture: str) -> list[MmaSpec]:
    """Return the rows of sm_80 and its successors: fp16 and bf16 in steps of 8 products, tf32 in steps of 4."""
    eight, four = FusedSum(8, 24, 23, "rz"), FusedSum(4, 24, 23, "rz")
    rows = []
    for k, status in ((8, CHECKED), (16, PUBLISHED)):
        rows += [fused(architecture, FAMILY, "fp16", result, k, eight, status) for result in ("fp32", "fp16")]
        rows.append(fused(architecture, FAMILY, "bf16", "fp32", k, eight, status))
    for k, status in ((4, CHECKED), (8, PUBLISHED)):
        rows.append(fused(architecture, FAMILY, "tf32", "fp32", k, four, status))
    return rows + fp64(architecture, (4,)) + integers(architecture, FAMILY, (16, 32))


def _ada() -> list[MmaSpec]:
    """Return the rows of sm_89: those of sm_80, and fp8.

    An fp8 instruction of k 32 is two steps of 16 products, aligned and truncated at 13 fraction bits; fp32 results keep
    13 of their 23 fraction bits.
    """
    rule = FusedSum(16, 13, 13, "rz")
    rows = []
    for left, right in FP8:
        for k, status in ((16, PUBLISHED), (32, CHECKED if left == right else PUBLISHED)):
            rows += [fused("sm_89", FAMILY, left, result, k, rule, status, right) for result in ("fp32", "fp16")]
    return _ampere("sm_89") + rows


ROWS: tuple[MmaSpec, ...] = (*_volta(), *_turing(), *_ampere("sm_80"), *_ampere("sm_86"), *_ada())
