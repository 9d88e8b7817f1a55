"""Evaluation of a ReductionDesc, the sum along one axis, on bit patterns."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import DescriptorError, Fold, ReductionDesc
from bitwise_core.descriptors.evaluation.operands import convert, patterns, zeros
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation

Mask: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.int64]


def evaluate_reduction(desc: ReductionDesc, x: npt.ArrayLike) -> Bits:
    """Return the patterns of the sums (...) along the last axis of x (..., length), in the descriptor's output type.

    Raises DescriptorError.
    """
    shape = np.shape(x)
    if not shape:
        raise DescriptorError(f"x must have an axis of {desc.length} elements, and is a single value")
    values = patterns("x", x, desc.dtype, (*(None,) * (len(shape) - 1), desc.length))
    dtype = desc.accumulator_dtype
    batch = values.reshape(-1, desc.length)
    padded = zeros(dtype, (len(batch), desc.reach))
    padded[:, : desc.length] = convert(batch, desc.dtype, dtype)
    present = np.ones(desc.reach, dtype=np.bool_)
    if desc.padding == "absent":
        present[desc.length :] = False
    elif desc.padding == "negative-zero":
        padded[:, desc.length :] = FLOAT_FORMATS[dtype].negative_zero or 0
    indices = np.arange(desc.reach)
    for fold in desc.folds:
        indices, padded, present = _folded(fold, dtype, indices, padded, present)
    return convert(padded[:, 0], dtype, desc.output_dtype).reshape(shape[:-1])


def _folded(fold: Fold, dtype: str, indices: Indices, values: Bits, present: Mask) -> tuple[Indices, Bits, Mask]:
    """Apply one fold.  Returns the remaining indices (n), their values (batch, n) and whether they are present (n)."""
    plus = operation(f"add.rn.{dtype}")
    places = np.full(int(indices.max()) + 1, -1)
    places[indices] = np.arange(len(indices))
    left = indices
    for digit in fold.digits:
        left = left[left // digit.stride % digit.count == 0]
    total = np.zeros((len(values), len(left)), dtype=values.dtype)
    taken = np.full(len(left), fold.start == "zero")
    for offset in fold.offsets:
        chosen = places[left + offset]
        value, there = values[:, chosen], present[chosen]
        summed = plus.evaluate(total, value)
        total = np.where(there, np.where(taken, summed, value), total)
        taken = taken | there
    return left, total, taken
