"""The bytes of programs that the checker calls Equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_bench.adversary.execution import Executed
from bitwise_bench.adversary.patterns import Array
from bitwise_core.execution.element_types import element_type
from bitwise_core.numerics import FLOAT_FORMATS, nan_of


@dataclass(frozen=True, slots=True)
class Difference:
    """A sample in which two programs return different bytes.

    `covered`: both elements are NaNs of one format in a buffer of integers, where different NaNs are expected.
    `with_nan`: the programs differ only where an operation had a NaN as an operand or as its result.
    """

    sample: int
    covered: bool
    with_nan: bool


def canonical(rows: Array, dtype: str) -> Array:
    """Return the elements of rows of bytes as patterns, with one pattern for all NaNs of the element type."""
    form = element_type(dtype)
    assert form.kind is not None
    patterns = np.ascontiguousarray(rows).view(f"u{form.kind.itemsize}")
    if form.format is None:
        return patterns
    return np.where(nan_of(patterns, form.format), patterns.dtype.type(form.format.canonical_nan or 0), patterns)


def _payloads_only(left: Array, right: Array, dtype: str) -> Array:
    """Return the elements that are NaNs of one floating-point format in both, in a buffer of integers."""
    if element_type(dtype).format is not None:
        return np.zeros(left.shape, dtype=bool)
    found = np.zeros(left.shape, dtype=bool)
    for form in FLOAT_FORMATS.values():
        if form.name in ("fp64", "fp32", "fp16", "bf16") and form.bits == 8 * left.dtype.itemsize:
            found |= nan_of(left, form) & nan_of(right, form)
    if left.dtype.itemsize == 4:
        halves = [each.view(np.uint16).reshape(*each.shape, 2) for each in (left, right)]
        same = halves[0] == halves[1]
        for name in ("fp16", "bf16"):
            nans = nan_of(halves[0], FLOAT_FORMATS[name]) & nan_of(halves[1], FLOAT_FORMATS[name])
            found |= (same | nans).all(axis=-1)
    return found


def difference(
    left: Array,
    right: Array,
    dtype: str,
    allowed: Array | None = None,
    nans: Array | None = None,
    *,
    cover: bool = False,
) -> Difference | None:
    """Return a sample in which two programs return different bytes, the most serious one.

    `left` and `right` are rows of bytes.  `allowed` holds the samples that count, `nans` those with a NaN.  `cover`:
    different NaNs in a buffer of integers are covered.
    """
    first, second = canonical(left, dtype), canonical(right, dtype)
    unequal = first != second
    if not unequal.any():
        return None
    counts = np.ones(len(first), dtype=bool) if allowed is None else allowed
    covered = np.zeros(unequal.shape, dtype=bool)
    if cover:
        covered = unequal & _payloads_only(first, second, dtype)
    plain = (unequal & ~covered).any(axis=1) & counts
    numbers = plain if nans is None else plain & ~nans
    payloads = covered.any(axis=1) & counts
    for chosen, known, nan in (
        (numbers, False, False),
        (plain, False, True),
        (payloads, True, True),
    ):
        samples = np.flatnonzero(chosen)
        if samples.size:
            return Difference(int(samples[0]), known, nan)
    return None


def pair_difference(executed: Executed, left: int, right: int, dtype: str) -> Difference | None:
    """Return the most serious difference of two programs of one execution, given by their indices."""
    first, second = executed.allowed[left], executed.allowed[right]
    allowed = None if first is None or second is None else first & second
    nans = executed.nans[left] | executed.nans[right]
    return difference(executed.results[left], executed.results[right], dtype, allowed, nans)
