"""The MFMA rows of CDNA3, from two public models; not checked against vectors from the hardware.

On the hardware a NaN result keeps the payload of an operand; here every NaN is the canonical NaN.  fp8 formats are the
fnuz variants.
"""

from __future__ import annotations

from itertools import product

from bitwise_core.numerics.mma import Arithmetic, FlooredSum, IntegerSum, MmaSpec, SequentialMultiplyAdd

MODELS = "https://github.com/microsoft/MMA-Sim"
FP8 = tuple(product(("e4m3fnuz", "e5m2fnuz"), repeat=2))


def _row(left: str, right: str, result: str, k: int, arithmetic: Arithmetic) -> MmaSpec:
    return MmaSpec("gfx942", "mfma", left, right, result, result, k, arithmetic, "published only", MODELS)


def _rows() -> list[MmaSpec]:
    rows = [_row("fp32", "fp32", "fp32", k, SequentialMultiplyAdd()) for k in (1, 2, 4)]
    rows.append(_row("fp64", "fp64", "fp64", 4, SequentialMultiplyAdd()))
    rows += [
        _row(kind, kind, "fp32", k, FlooredSum(min(8, k), 24, 31, 24)) for kind in ("fp16", "bf16") for k in (4, 8, 16)
    ]
    rows += [_row("tf32", "tf32", "fp32", k, FlooredSum(4, 24, 31, 24)) for k in (4, 8)]
    split = FlooredSum(16, 24, 31, 24, parity_split=True)
    rows += [_row(left, right, "fp32", k, split) for left, right in FP8 for k in (16, 32)]
    return rows + [_row("s8", "s8", "s32", k, IntegerSum()) for k in (4, 8, 16, 32)]


def _integer_rows_of_gfx950() -> list[MmaSpec]:
    """The exact sums of gfx950.  How its other sums are rounded is not published, so they have no rows."""
    types, shapes = ("s8", "s8", "s32", "s32"), ((32, 16), (32, 32), (16, 32), (16, 64))
    folder = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/instruction-set-architectures"
    source = f"{folder}/amd-instinct-cdna4-instruction-set-architecture.pdf"
    return [
        MmaSpec("gfx950", f"mfma-{side}x{side}", *types, k, IntegerSum(), "published only", source)
        for side, k in shapes
    ]


ROWS: tuple[MmaSpec, ...] = (*_rows(), *_integer_rows_of_gfx950())
