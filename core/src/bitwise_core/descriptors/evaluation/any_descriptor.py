"""The bits that a descriptor of any kind determines."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from bitwise_core.descriptors import AttentionDesc, DescriptorError, GEMMDesc, Record, ReductionDesc
from bitwise_core.descriptors.evaluation.attention import evaluate_attention
from bitwise_core.descriptors.evaluation.gemm import evaluate_gemm
from bitwise_core.descriptors.evaluation.reductions import evaluate_reduction
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.numerics import Bits


def evaluate(desc: Record, *operands: npt.ArrayLike, hardware: Hardware = IEEE, **options: Any) -> Bits:
    """Return the output's patterns of a GEMMDesc for a and b, a ReductionDesc for x, an AttentionDesc for q, k and v.

    Operands are patterns, unsigned integers of their types' width (fp16, fp32 and fp64 may be NumPy's floats).
    `hardware` holds the matrix units and functions that the descriptor may call; `plugins.installed.evaluate` takes
    those of the installed plugins.  Options are those of `evaluate_gemm` and `evaluate_attention`.  Raises
    DescriptorError.
    """
    counts: dict[type[Record], tuple[str, ...]] = {
        GEMMDesc: ("a", "b"),
        ReductionDesc: ("x",),
        AttentionDesc: ("q", "k", "v"),
    }
    names = counts.get(type(desc))
    if names is None:
        listed = ", ".join(kind.__name__ for kind in counts)
        raise DescriptorError(f"a {type(desc).__name__} cannot be evaluated: give one of {listed}")
    if len(operands) != len(names):
        raise DescriptorError(f"a {type(desc).__name__} takes {' and '.join(names)}, not {len(operands)} operands")
    if isinstance(desc, GEMMDesc):
        return evaluate_gemm(desc, *operands, hardware=hardware, **options)
    if isinstance(desc, AttentionDesc):
        return evaluate_attention(desc, *operands, hardware=hardware, **options)
    assert isinstance(desc, ReductionDesc)
    return evaluate_reduction(desc, *operands, **options)
