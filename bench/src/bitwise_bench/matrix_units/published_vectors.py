"""Published test vectors of matrix units against the rows: every result must have the bits of the hardware.

The vectors are those of https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-Clause; Khattak and
Mikaitis, arXiv 2512.07004), folder model_validation, converted to one file GPU_FORMAT.npz for each GPU and format:
- `a`, `b` (count, K) and `c` (count): uint32, fp32 patterns of the operands' values;
- `d_fp32`, `d_fp16` (count): uint32, fp32 patterns of the results with accumulators of that format, where published.
`records/matrix-vectors` holds the files of a B200, with their licence.
Each result is c + sum of a[k] * b[k].  For fp16 results c was rounded to fp16 first.  For fp8 on H100 and H200,
`d_fp32` comes from wgmma with zero accumulators and `d_fp16` from mma.sync; all others come from mma.sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitwise_core.numerics import Bits, operation
from bitwise_core.numerics.mma import MmaSpec, multiply_accumulate

VARIABLE = "BITWISE_MATRIX_VECTORS"
"""The environment variable with the path of the folder."""

ARCHITECTURES: Mapping[str, str] = {
    "V100": "sm_70", "A100": "sm_80", "A2": "sm_86", "Ada": "sm_89", "L40S": "sm_89", "H100": "sm_90", "H200": "sm_90",
    "B200": "sm_100",
}  # fmt: skip
_FORMATS: Mapping[str, tuple[str, ...]] = {
    "V100": ("fp16",), "A100": ("fp16", "bf16", "tf32"), "A2": ("fp16", "bf16", "tf32"),
}  # fmt: skip
_DEPTHS: Mapping[str, int] = {"sm_70": 4, "sm_80": 8, "sm_86": 8, "sm_89": 8, "sm_90": 16, "sm_100": 16}


@dataclass(frozen=True, slots=True)
class Vectors:
    """One result format of one file, with the row that must give it."""

    gpu: str
    format: str
    result: str

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.gpu}_{self.format}.npz"

    @property
    def from_zero(self) -> bool:
        """Whether the results come from wgmma with zero accumulators."""
        return self.gpu in ("H100", "H200") and self.format in ("e4m3", "e5m2") and self.result == "fp32"

    @property
    def row(self) -> str:
        """The name of the row."""
        architecture = ARCHITECTURES[self.gpu]
        depth = {"tf32": 4, "e4m3": 32, "e5m2": 32}.get(self.format, _DEPTHS[architecture])
        family = "wgmma" if self.from_zero else "mma.sync"
        return f"{family}_k{depth}_{self.result}_{self.format}_{self.format}_{self.result}_{architecture}"


def published() -> list[Vectors]:
    """Return all published vectors."""
    found = []
    for gpu in ARCHITECTURES:
        for form in _FORMATS.get(gpu, ("fp16", "bf16", "tf32", "e4m3", "e5m2")):
            both = form == "fp16" or (form in ("e4m3", "e5m2") and gpu != "L40S")
            found += [Vectors(gpu, form, result) for result in (("fp32", "fp16") if both else ("fp32",))]
    return found


def differing(folder: Path, vectors: Vectors, spec: MmaSpec) -> tuple[int, int]:
    """Return how many results differ from those of the row, and how many there are."""
    with np.load(folder / vectors.file) as file:
        a, b = _narrowed(file["a"], spec.left), _narrowed(file["b"], spec.right)
        c, expected = file["c"], _narrowed(file[f"d_{vectors.result}"], spec.result)
    start = _narrowed(np.zeros_like(c) if vectors.from_zero else c, spec.accumulator)
    found = multiply_accumulate(spec, a[:, None, :], b[:, :, None], start[:, None, None])[:, 0, 0]
    return int((found != expected).sum()), len(expected)


def _narrowed(patterns: Bits, form: str) -> Bits:
    """Convert fp32 patterns to another format, rounding to nearest; only values of c are inexact."""
    if form in ("fp32", "tf32"):  # the low bits of a tf32 operand are ignored
        return patterns
    return operation(f"convert.rn.{form}.fp32").evaluate(patterns)
