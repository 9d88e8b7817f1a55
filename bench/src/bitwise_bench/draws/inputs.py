"""Inputs for recorded launches, as raw bits, and hashes of what a launch returned.

Everything rests on the raw 64-bit stream of PCG64 and on exact double arithmetic, so one seed gives the same
bits on every machine and with every NumPy.
"""

from __future__ import annotations

import hashlib

import numpy as np

from bitwise_bench.corpus.cases import DTYPE_BYTES, FLOAT_DTYPES, Array, Case
from bitwise_bench.draws.distinguishing import DISTINGUISHING, INFINITE, KINDS, base, distinguishing
from bitwise_bench.draws.formats import FORMATS, Bits, bell, round_to_format

DRAWS: tuple[str, ...] = ("normal", "wide", "zeros", "negative_zero", "subnormal", "special", *DISTINGUISHING)
"""The kinds of input: every record holds one hash per output for each.  A number after a point is another variant."""

NOT_FINITE: frozenset[str] = frozenset({"special"} | {kind for kind in DISTINGUISHING if base(kind) in INFINITE})
"""Kinds with infinities or NaNs, in the input or in a sum that overflows."""

PATTERN = 0xA5
"""The byte that fills an output before the launch, so that an element left unwritten compares equal."""


def seed_of(group: str, buffer: str, draw: str) -> int:
    """The seed of one buffer of one draw: equal for all cases of a group."""
    return int.from_bytes(hashlib.sha256(f"{group}\0{buffer}\0{draw}".encode()).digest()[:16], "little")


def draw(array: Array, group: str, kind: str, place: int = 0) -> Bits:
    """The bits that `array` holds before a launch of a case of `group`, flat, unsigned, of its element width.

    `kind` is one of `DRAWS`; integers and indices ignore it but for the seed.  `place` counts the inputs before this
    one: the factors of a product are of other kinds where a draw wants it so.
    """
    width = f"u{DTYPE_BYTES[array.dtype]}"
    if array.role == "output":
        return np.full(array.elements * DTYPE_BYTES[array.dtype], PATTERN, dtype=np.uint8).view(width)
    if array.role == "scratch" or array.kind == "zero":
        return np.zeros(array.elements, dtype=width)
    stream = np.random.PCG64(seed_of(group, array.name, kind))
    raw = stream.random_raw(2 * array.elements).reshape(2, -1)
    if array.kind == "index":
        bits: Bits = raw[0] % np.uint64(array.below)
    elif array.dtype not in FLOAT_DTYPES:
        bits = raw[0] & np.uint64(1) if array.dtype == "i1" else raw[0]
    else:
        bits = _float_bits(array.dtype, raw, kind, place)
    if array.kind == "positive":
        bits = bits & np.array(FORMATS[array.dtype].sign - 1, dtype=width)
    return bits.astype(width)


def _float_bits(dtype: str, raw: Bits, kind: str, place: int) -> Bits:
    if base(kind) in KINDS:
        return distinguishing(dtype, raw, kind, place)
    form = FORMATS[dtype]
    width = f"u{DTYPE_BYTES[dtype]}"
    first, second = raw
    if kind == "normal":
        return round_to_format(bell(first, second), dtype)
    # The sign as an array of the element's width: NumPy refuses 2 ** 63 as a plain Python number.
    signs = np.where(first & np.uint64(1), np.array(form.sign, dtype=width), np.array(0, dtype=width))
    if kind == "zeros":
        small = round_to_format(bell(second, first) * 2.0**-5, dtype)
        return np.where((first >> np.uint64(60)) < 3, small, signs).astype(width)
    if kind == "negative_zero":
        return np.full(first.shape, form.sign, dtype=width)
    if kind == "subnormal":
        fractions: Bits = ((second >> np.uint64(8)) & np.uint64((1 << form.mantissa) - 1)).astype(width)
        both: Bits = signs | fractions
        return both
    if kind == "special":
        normal = round_to_format(bell(first, second), dtype)
        dice = (first ^ second) >> np.uint64(52)
        odd = np.where(dice == 0, form.quiet_nan, form.infinity if form.infinite else form.quiet_nan - 1)
        return np.where(dice < 3, odd.astype(width) | signs, normal).astype(width)
    raise ValueError(f"there is no draw called {kind!r}; use one of {', '.join(DRAWS)}")


def canonical(bits: Bits, dtype: str) -> Bits:
    """`bits` with every NaN of `dtype` replaced by one pattern; integers as they are."""
    if dtype not in FLOAT_DTYPES:
        return bits
    form = FORMATS[dtype]
    magnitude = bits & np.array(form.sign - 1, dtype=bits.dtype)
    limit = np.array(form.infinity if form.infinite else form.quiet_nan - 1, dtype=bits.dtype)
    return np.where(magnitude > limit, np.array(form.quiet_nan, dtype=bits.dtype), bits)


def digest_of(bits: Bits, dtype: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the canonical little-endian bytes."""
    return hashlib.sha256(np.ascontiguousarray(canonical(bits, dtype)).tobytes()).hexdigest()[:16]


def inputs_of(case: Case, kind: str) -> dict[str, Bits]:
    """The bits of every buffer of `case` before its launch, by buffer name."""
    group = f"{case.family}/{case.group}"
    return {array.name: draw(array, group, kind, place) for array, place in places(case)}


def places(case: Case) -> list[tuple[Array, int]]:
    """Every buffer of a case with the number of floating-point inputs before it."""
    found, place = [], 0
    for array in case.arrays:
        found.append((array, place))
        place += array.read and array.dtype in FLOAT_DTYPES
    return found
