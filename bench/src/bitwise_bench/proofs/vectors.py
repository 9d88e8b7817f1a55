"""Patterns on which expressions and functions are compared: special values, their neighbours, and random bits."""

from __future__ import annotations

import numpy as np

from bitwise_bench.proofs.bitvectors import Array
from bitwise_core.numerics import FloatFormat, Format, storage


def special(form: Format) -> list[int]:
    """Return patterns at the borders of a format, each with both signs."""
    bits = form.bits
    whole = (1 << bits) - 1
    if not isinstance(form, FloatFormat):
        near = [0, 1, 2, 3, bits - 1, bits, bits + 1, whole >> 1, (whole >> 1) + 1, whole - 1, whole]
        return sorted({each & whole for each in near})
    low = form.mantissa_bits + form.padding
    mantissa = (1 << low) - 1
    fields = {0, 1, 2, form.bias - 1, form.bias, form.bias + 1, form.bias + low, form.largest_exponent_field - 1,
              form.largest_exponent_field}  # fmt: skip
    found = {field << low | part for field in fields for part in (0, 1, mantissa // 2, mantissa // 2 + 1, mantissa)}
    return sorted({(each | sign) & whole for each in found for sign in (0, 1 << bits - 1)})


def patterns(form: Format, count: int, generator: np.random.Generator) -> Array:
    """Return `count` patterns, about half of them special."""
    kind = storage(form.bits)
    random = generator.integers(0, 1 << 64, size=count, dtype=np.uint64) & np.uint64((1 << form.bits) - 1)
    chosen = generator.choice(np.array(special(form), dtype=np.uint64), size=count)
    return np.where(generator.random(count) < 0.5, random, chosen).astype(kind)
