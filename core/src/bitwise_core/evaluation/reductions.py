"""The sum along one axis as a ReductionDesc says, on bit patterns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import DescriptorError, Fold, ReductionDesc
from bitwise_core.evaluation.patterns import convert, patterns, zeros
from bitwise_core.numeric import FLOAT_FORMATS, Bits, operation

Mask = npt.NDArray[np.bool_]


def evaluate_reduction(desc: ReductionDesc, x: npt.ArrayLike) -> Bits:
    """The patterns of the sums (...) along the last axis of x (..., length), in the descriptor's output type.

    Raises DescriptorError.
    """
    shape = np.shape(x)
    if not shape:
        raise DescriptorError(f"x has an axis of {desc.length} elements at least, and is a single value")
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
    ordered = sorted(desc.folds, key=lambda fold: -fold.stride)
    digits = [fold.count for fold in ordered]
    padded, present = padded.reshape(len(batch), *digits), present.reshape(digits)
    left = list(ordered)
    for fold in desc.folds:
        axis = left.index(fold)
        left.pop(axis)
        padded, present = _folded(fold, dtype, padded, present, axis)
    return convert(padded.reshape(len(batch)), dtype, desc.output_dtype).reshape(shape[:-1])


def _folded(fold: Fold, dtype: str, values: Bits, present: Mask, axis: int) -> tuple[Bits, Mask]:
    """One digit summed away: values (batch, digits...), present (digits...)."""
    plus = operation(f"add.rn.{dtype}")
    order = range(fold.count) if fold.order == "chain" else range(fold.count - 1, -1, -1)
    total = np.zeros_like(values.take(0, axis=axis + 1))
    taken = np.full(present.take(0, axis=axis).shape, fold.start == "zero")
    for digit in order:
        value, there = values.take(digit, axis=axis + 1), present.take(digit, axis=axis)
        summed = plus.evaluate(total, value)
        total = np.where(there, np.where(taken, summed, value), total)
        taken = taken | there
    return total, taken
