"""Bit patterns of inputs: special values in every lane, ties, values of similar magnitude, and arbitrary ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_bench.adversary.expressions import WIDTHS
from bitwise_core.execution.finite_patterns import replace_non_finite
from bitwise_core.numerics import FLOAT_FORMATS

Array: TypeAlias = npt.NDArray[Any]

_SPECIAL: Mapping[str, tuple[int, ...]] = {
    "f32": (0, 0x7F800000, 0x7FC00000, 0x7FC00001, 0x7F800001, 0x7FBFFFFF, 0x7FFFFFFF, 0x7FA00000, 1, 0x007FFFFF,
            0x00800000, 0x00800001, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x40000000, 0x7F7FFFFF, 0x33800000, 0x34000000,
            0x4B800000, 0x4F000000, 0x477FE000, 0x477FF000, 0x38800000, 0x387FC000, 0x33000000, 0x3F000000, 0x3FC00000,
            0x42FE0000, 0x7F000000, 0x0D800000),
    "f64": (0, 0x7FF0000000000000, 0x7FF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF, 1,
            0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0x3FF0000010000000, 0x3FF0000030000000,
            0x7FEFFFFFFFFFFFFF, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x36A0000000000000, 0x3690000000000000,
            0x4330000000000000, 0x43E0000000000000, 0x3FE0000000000000),
    "f16": (0, 0x7C00, 0x7E00, 0x7E01, 0x7C01, 0x7DFF, 0x7FFF, 1, 0x03FF, 0x0400, 0x0401, 0x3C00, 0x3C01, 0x3BFF,
            0x4000, 0x7BFF, 0x1400, 0x6800, 0x3800, 0x3E00, 0x7F62, 0x5BF0),
    "bf16": (0, 0x7F80, 0x7FC0, 0x7FC1, 0x7F81, 0x7FBF, 0x7FFF, 1, 0x007F, 0x0080, 0x0081, 0x3F80, 0x3F81, 0x3F7F,
             0x4000, 0x7F7F, 0x3B80, 0x4300, 0x3F00, 0x3FC0, 0x7C01, 0x7E00),
    "i32": (0, 1, 2, 31, 32, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x01000001, 0x00FF00FF,
            0x7F800001, 0x7C017C01),
    "i64": (0, 1, 2, 31, 32, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 2**63 - 1, 0x20000000000001,
            0xFFFF0000FFFF),
    "i16": (0, 1, 2, 7, 8, 15, 16, 0x7F, 0x80, 0xFF, 0x7FFF, 0x100, 0x7C01, 0x7F81),
}  # fmt: skip
"""Special patterns of each kind; those with the sign bit, or the complement of an integer, are added to them."""

_FIRST: Mapping[str, tuple[int, ...]] = {
    "f32": (0, 0x7F800000, 0x7FC00000, 0x7F800001, 1, 0x3F800000, 0x7F7FFFFF),
    "f64": (0, 0x7FF << 52, 0x7FF8 << 48, (0x7FF << 52) + 1, 1, 0x3FF0 << 48, 0x7FEFFFFFFFFFFFFF),
    "f16": (0, 0x7C00, 0x7E00, 0x7C01, 1, 0x3C00, 0x7BFF),
    "bf16": (0, 0x7F80, 0x7FC0, 0x7F81, 1, 0x3F80, 0x7F7F),
    "i32": (0, 1, 0x7FFFFFFF, 0xFFFF, 31),
    "i64": (0, 1, 2**63 - 1, 0xFFFFFFFF, 31),
    "i16": (0, 1, 0x7FFF, 0xFF, 15),
}
"""A few special patterns of each kind, of which all pairs shall occur: zero, infinity, NaNs, the extremes and one."""


def special(kind: str, *, first: bool = False) -> Array:
    """Return the special patterns of a kind, or the first of them."""
    bits = WIDTHS[kind]
    unsigned = np.dtype(f"u{bits // 8}")
    if kind in ("h2", "b2"):
        halves = special({"h2": "f16", "b2": "bf16"}[kind], first=first).astype(np.uint32)
        return (halves[:, None] | halves[None, ::-1] << np.uint32(16)).reshape(-1)
    found = np.array((_FIRST if first else _SPECIAL)[kind], dtype=np.uint64).astype(unsigned)
    others = ~found if kind.startswith("i") else found | unsigned.type(1 << (bits - 1))
    return np.concatenate([found, others])


_NEAR = MappingProxyType({"f32": (0x3F000000, 0x02000000), "f16": (0x3800, 0x1000), "bf16": (0x3F00, 0x0200),
                          "f64": (0x3FE0000000000000, 0x0040000000000000)})  # fmt: skip
"""The first pattern and the number of patterns around 1, for each floating-point kind."""


def drawn(kind: str, count: int, dice: np.random.Generator) -> Array:
    """Return `count` patterns of a kind: a third of them first special ones; special, ordinary and arbitrary ones."""
    bits = WIDTHS[kind]
    unsigned = np.dtype(f"u{bits // 8}")
    anything = dice.integers(0, 2**64, count, dtype=np.uint64)
    near = anything.astype(unsigned)
    if kind in _NEAR:
        first, extent = _NEAR[kind]
        sign = (anything >> np.uint64(63)) << np.uint64(bits - 1)
        # Short significands make ties.
        kept = np.where(
            anything >> np.uint64(62) & np.uint64(1) == 1, np.uint64(2**64 - 1), ~np.uint64(0) << np.uint64(bits // 4)
        )
        near = ((np.uint64(first) + anything % np.uint64(extent)) & kept | sign).astype(unsigned)
    elif kind in ("h2", "b2"):
        half = {"h2": "f16", "b2": "bf16"}[kind]
        pair = [drawn(half, count, dice).astype(np.uint32) for _ in range(2)]
        near = pair[0] | pair[1] << np.uint32(16)
    elif kind.startswith("i"):
        small = (anything % np.uint64(64)).astype(unsigned) - unsigned.type(32)
        near = np.where(anything >> np.uint64(63) == 1, small, near)
    every, few = special(kind), special(kind, first=True)
    listed = every[dice.integers(0, every.size, count)]
    common = few[dice.integers(0, few.size, count)]
    which = dice.integers(0, 6, count)
    return np.select([which < 2, which == 2, which == 3], [common, listed, near], anything.astype(unsigned))


def inputs(
    leaves: Mapping[str, tuple[str, int]], kinds: tuple[str, ...], threads: int, seed: int, *, finite: bool = False
) -> dict[str, Array]:
    """Return the bytes of the input buffers of these kinds for `threads` threads.

    The loaded values of a thread are drawn independently, except that a quarter of the threads repeat or negate one of
    them.  With `finite`, infinities and NaNs are replaced by numbers.
    """
    found = {}
    for kind in kinds:
        dice = np.random.default_rng([seed, sorted(WIDTHS).index(kind)])
        count, bits = leaves[kind][1], WIDTHS[kind]
        values = drawn(kind, threads * count, dice).reshape(threads, count)
        sign = values.dtype.type(1 << (bits - 1))
        same = dice.integers(0, 8, threads)
        values = np.where((same == 0)[:, None], values[:, :1], values)
        negated = np.concatenate([values[:, :1], values[:, :1] ^ sign, values[:, 2:]], axis=1)
        values = np.where((same == 1)[:, None], negated, values)
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        form = FLOAT_FORMATS.get(leaves[kind][0])
        if finite and form is not None:
            content = replace_non_finite(content, form)
        found[f"in_{kind}"] = content.copy()
    return found
