"""Inputs of recorded launches as bit patterns, and hashes of outputs.

Only the raw 64-bit stream of PCG64 and exact double arithmetic are used, so a seed gives the same bits on every machine
and with every version of NumPy.
"""

from __future__ import annotations

import hashlib

import numpy as np

from bitwise_bench.corpus.cases import DTYPE_BYTES, FLOAT_DTYPES, Array, Case
from bitwise_bench.draws.distinguishing import DISTINGUISHING, INFINITE, KINDS, base, distinguishing
from bitwise_bench.draws.formats import FORMATS, Bits, bell, round_to_format

DRAWS: tuple[str, ...] = ("normal", "wide", "zeros", "negative_zero", "subnormal", "special", *DISTINGUISHING)
"""The kinds of input; a record has one hash per output for each.  A number after a point denotes a variant."""

NOT_FINITE: frozenset[str] = frozenset({"special"} | {kind for kind in DISTINGUISHING if base(kind) in INFINITE})
"""Kinds with infinities or NaNs, in the input or through overflow of a sum."""

PATTERN = 0xA5
"""The byte that fills outputs before a launch, so that elements that are not written compare equal."""


def seed_of(group: str, buffer: str, draw: str) -> int:
    """Return the seed of one buffer and kind of input, which all configurations of a group share."""
    return int.from_bytes(hashlib.sha256(f"{group}\0{buffer}\0{draw}".encode()).digest()[:16], "little")


def draw(array: Array, group: str, kind: str, place: int = 0) -> Bits:
    """Return the contents of `array` before a launch: a flat array of unsigned patterns of its element width.

    `kind` is one of `DRAWS`; for integers and indices it affects only the seed.  `place` is the number of
    floating-point inputs before this one: some kinds draw the factors of a product from different distributions.
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
    # The sign is an array of the element width, since NumPy rejects 2 ** 63 as a Python int.
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
    raise ValueError(f"there is no kind of input {kind!r}; use one of {', '.join(DRAWS)}")


def canonical(bits: Bits, dtype: str) -> Bits:
    """Return `bits` with every NaN of `dtype` replaced by one pattern; integers are unchanged."""
    if dtype not in FLOAT_DTYPES:
        return bits
    form = FORMATS[dtype]
    magnitude = bits & np.array(form.sign - 1, dtype=bits.dtype)
    limit = np.array(form.infinity if form.infinite else form.quiet_nan - 1, dtype=bits.dtype)
    return np.where(magnitude > limit, np.array(form.quiet_nan, dtype=bits.dtype), bits)


def digest_of(bits: Bits, dtype: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the canonical little-endian bytes."""
    return hashlib.sha256(np.ascontiguousarray(canonical(bits, dtype)).tobytes()).hexdigest()[:16]


def inputs_of(case: Case, kind: str) -> dict[str, Bits]:
    """Return the contents of every buffer of a configuration before its launch, by buffer name."""
    group = f"{case.family}/{case.group}"
    return {array.name: draw(array, group, kind, place) for array, place in input_positions(case)}


def input_positions(case: Case) -> list[tuple[Array, int]]:
    """Return every buffer of a configuration with the number of floating-point inputs before it."""
    found, place = [], 0
    for array in case.arrays:
        found.append((array, place))
        place += array.read and array.dtype in FLOAT_DTYPES
    return found
