"""Which bit patterns are infinities and NaNs, and bytes without them, for the assumption of finite numbers."""

from __future__ import annotations

import numpy as np

from bitwise_core.numerics import Bits, FloatFormat, nan_of, storage


def not_finite(patterns: Bits, form: FloatFormat) -> Bits:
    """Return which patterns are infinities or NaNs."""
    found = nan_of(patterns, form)
    if form.infinity is not None:
        sign = patterns.dtype.type(1 << (form.bits - 1))
        found = found | ((patterns & ~sign) == patterns.dtype.type(form.infinity))
    return np.asarray(found)


def replace_non_finite(content: Bits, form: FloatFormat) -> Bits:
    """Return the bytes of elements of a format with each infinity and NaN replaced by the largest finite number."""
    patterns = content[: content.size // (form.bits // 8) * (form.bits // 8)].view(storage(form.bits)).copy()
    sign = patterns.dtype.type(1 << (form.bits - 1))
    largest = patterns.dtype.type(form.largest_magnitude << form.padding)
    found: Bits = np.where(not_finite(patterns, form), patterns & sign | largest, patterns).view(np.uint8)
    return found
