"""The approximate functions of sm_90, bit for bit: rcp, rsqrt, sqrt and ex2 in fp32, and division through rcp.

The multifunction unit computes four functions of a significand.  A table holds its results as differences, one signed
byte each, from a reference that IEEE arithmetic computes identically on every machine (`REFERENCES`).  The functions
here add the instructions that the assembler emits around the unit, as found in machine code: scaling of subnormal and
huge operands.  The tables were measured on an H100, and every function was compared with the GPU: on all 2**32 operands
for the forms with .ftz, on random operands for the others (`records/approximations-sm90-h100.json`).
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

NAN = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
MANTISSA = (1 << 23) - 1

DIGESTS = {
    "rcp": "c408381446132e07fa5581e930dc33fb790bea7ec4276ef3621e322df2492a55",
    "rsqrt": "218fc04d271773269367dedf4cff9ff719081b1218c3d67d248d8d6126040246",
    "sqrt": "4e017678de306e0be8bed66193c2ebf09e9c60a9600cad56cd05bb7b6c3f266f",
    "ex2": "b2a42c4a626469c986e33e43f16f41bde9d84de94347cd9ceaa1bd68d36bcdf0",
}
"""SHA-256 of each decoded table (little-endian 32-bit patterns)."""


def _significands() -> NDArray[np.float64]:
    return np.arange(1 << 23, dtype=np.float64) / 2.0**23 + 1.0


def _reference_rcp() -> NDArray[np.float64]:
    return 1.0 / _significands()


def _reference_sqrt() -> NDArray[np.float64]:
    one = _significands()
    roots: NDArray[np.float64] = np.sqrt(np.concatenate([one, 2.0 * one]))
    return roots


def _reference_rsqrt() -> NDArray[np.float64]:
    return 1.0 / _reference_sqrt()


def _reference_ex2() -> NDArray[np.float64]:
    """Return 2**(i / 2**23) as products of repeated square roots of two: the same doubles on every machine."""
    powers = np.ones(1)
    root = 2.0
    for _ in range(23):
        root = float(np.sqrt(root))
        powers = np.multiply.outer(powers, np.array([1.0, root])).reshape(-1)
    return powers


REFERENCES: Mapping[str, Callable[[], NDArray[np.float64]]] = {
    "rcp": _reference_rcp,
    "rsqrt": _reference_rsqrt,
    "sqrt": _reference_sqrt,
    "ex2": _reference_ex2,
}
"""The reference results of each function, for operands 1.m (rcp), 1.m and then 2 * 1.m (roots), i / 2**23 (ex2)."""


def encode(name: str, results: Words) -> bytes:
    """Encode measured results as compressed differences from the references.

    Raises ValueError if a difference does not fit in a signed byte.
    """
    difference = results.astype(np.int64) - REFERENCES[name]().astype(np.float32).view(np.uint32)
    if np.abs(difference).max() > 127:
        raise ValueError(f"the results of {name} are too far from the reference: a difference needs more than a byte")
    return lzma.compress(difference.astype(np.int8).tobytes(), preset=9)


@cache
def table(name: str) -> Words:
    """Return the unit's results for every significand.  Raises ValueError if the file is damaged."""
    stored = (files("bitwise_nvidia_sm90") / "approximation_tables" / f"{name}.xz").read_bytes()
    difference = np.frombuffer(lzma.decompress(stored), dtype=np.int8)
    found = (REFERENCES[name]().astype(np.float32).view(np.uint32).astype(np.int64) + difference).astype(np.uint32)
    if sha256(found.astype("<u4").tobytes()).hexdigest() != DIGESTS[name]:
        raise ValueError(f"the table of {name} is damaged; install bitwise-nvidia-sm90 again")
    found.setflags(write=False)
    return found


def _fields(x: Words) -> tuple[Words, NDArray[np.int64], NDArray[np.int64]]:
    """Return the sign bit in place, the biased exponent, and the mantissa."""
    wide = x.astype(np.int64)
    return x & SIGN, (wide >> 23) & 0xFF, wide & MANTISSA


def _packed(magnitude: NDArray[np.int64]) -> Words:
    """Return a biased magnitude as a bit pattern: flushed to zero below the normals, infinity above."""
    flushed = np.where(magnitude >> 23 < 1, 0, np.minimum(magnitude, int(INFINITY)))
    return flushed.astype(np.uint32)


def reciprocal(x: Words) -> Words:
    """rcp.approx.ftz.f32."""
    sign, exponent, mantissa = _fields(x)
    found = _packed(table("rcp")[mantissa].astype(np.int64) - ((exponent - 127) << 23))
    found = np.where(exponent == 0, INFINITY, np.where(exponent == 255, np.uint32(0), found)) | sign
    return np.where((exponent == 255) & (mantissa != 0), NAN, found)


def reciprocal_root(x: Words) -> Words:
    """rsqrt.approx.ftz.f32."""
    sign, exponent, mantissa = _fields(x)
    odd = (exponent - 127) & 1
    half = (exponent - 127 - odd) >> 1
    found = (table("rsqrt")[(odd << 23) + mantissa].astype(np.int64) - (half << 23)).astype(np.uint32)
    found = np.where(exponent == 255, np.uint32(0), found)
    found = np.where((exponent == 255) & (mantissa != 0) | (sign != 0), NAN, found)
    return np.where(exponent == 0, INFINITY | sign, found)


def root(x: Words) -> Words:
    """sqrt.approx.ftz.f32."""
    sign, exponent, mantissa = _fields(x)
    odd = (exponent - 127) & 1
    half = (exponent - 127 - odd) >> 1
    found = (table("sqrt")[(odd << 23) + mantissa].astype(np.int64) + (half << 23)).astype(np.uint32)
    found = np.where(exponent == 255, INFINITY, found)
    found = np.where((exponent == 255) & (mantissa != 0) | (sign != 0), NAN, found)
    return np.where(exponent == 0, sign, found)


def power_of_two(x: Words) -> Words:
    """ex2.approx.ftz.f32.

    The operand is truncated towards zero to a multiple of 2**-23.  A negative operand with a fraction is replaced by
    the complement of these bits, one multiple of 2**-23 lower than the negation.
    """
    sign, exponent, mantissa = _fields(x)
    significand = np.where(exponent == 0, 0, mantissa | (1 << 23))
    shift = exponent - 127
    cut = np.where(shift >= 0, significand << np.clip(shift, 0, 8), significand >> np.clip(-shift, 0, 24))
    cut = np.where((sign != 0) & (cut & MANTISSA != 0), ~cut, np.where(sign != 0, -cut, cut))
    found = _packed(table("ex2")[cut & MANTISSA].astype(np.int64) + ((cut >> 23) << 23))
    found = np.where(shift > 7, np.where(sign != 0, np.uint32(0), INFINITY), found)
    return np.where((exponent == 255) & (mantissa != 0), NAN, found)


def _multiply(x: Words, factor: NDArray[np.float32] | float) -> Words:
    """Return the fp32 product, rounded to nearest, with subnormals; a NaN is the canonical one."""
    with np.errstate(all="ignore"):
        found = x.view(np.float32) * np.asarray(factor, dtype=np.float32)
    return np.where(np.isnan(found), NAN, np.ascontiguousarray(found).view(np.uint32))


_TINY, _HUGE = np.float32(2.0**-126), np.float32(2.0**126)


def _with_subnormals(unit: Callable[[Words], Words], back: float, x: Words) -> Words:
    """Return a root with support for subnormal operands: the root of 2**24 times the operand, multiplied by `back`."""
    x = np.ascontiguousarray(x)
    small = np.abs(x.view(np.float32)) < _TINY
    found = unit(np.where(small, _multiply(x, 2.0**24), x))
    return np.where(small, _multiply(found, back), found)


def _divisor_scale(x: Words) -> NDArray[np.float32]:
    """Return the scale of a divisor: 2**24 if it is subnormal, 1/4 above 2**126, else 1."""
    magnitude = np.abs(np.ascontiguousarray(x).view(np.float32))
    large, one = np.float32(0.25), np.float32(1)
    return np.where(magnitude > _HUGE, large, np.where(magnitude < _TINY, np.float32(2.0**24), one))


def reciprocal_with_subnormals(x: Words) -> Words:
    """rcp.approx.f32."""
    scale = _divisor_scale(x)
    return _multiply(reciprocal(_multiply(np.ascontiguousarray(x), scale)), scale)


def power_of_two_with_subnormals(x: Words) -> Words:
    """ex2.approx.f32: below -126, the square of the result for half the operand."""
    x = np.ascontiguousarray(x)
    with np.errstate(invalid="ignore"):
        low = x.view(np.float32) < -126
    found = power_of_two(np.where(low, _multiply(x, 0.5), x))
    return np.where(low, _multiply(found, found.view(np.float32)), found)


def _exact_reciprocal(x: Words) -> Words:
    """Return 1 / x rounded to nearest, which the assembler computes for a literal divisor."""
    with np.errstate(all="ignore"):
        found = np.float32(1) / x.view(np.float32)
    return np.where(np.isnan(found), NAN, found.view(np.uint32))


def quotient(inverse: Callable[[Words], Words], left: Words, right: Words) -> Words:
    """div.full.f32: scale both operands, then multiply by the reciprocal of the divisor."""
    left, right = (np.ascontiguousarray(each) for each in (left, right))
    scale = _divisor_scale(right)
    factor = np.ascontiguousarray(inverse(_multiply(right, scale)))
    return _multiply(_multiply(left, scale), factor.view(np.float32))


FUNCTIONS: Mapping[str, Callable[..., Words]] = {
    "rcp.approx.ftz.fp32@sm_90": reciprocal,
    "rcp.approx.fp32@sm_90": reciprocal_with_subnormals,
    "rsqrt.approx.ftz.fp32@sm_90": reciprocal_root,
    "rsqrt.approx.fp32@sm_90": partial(_with_subnormals, reciprocal_root, 2.0**12),
    "sqrt.approx.ftz.fp32@sm_90": root,
    "sqrt.approx.fp32@sm_90": partial(_with_subnormals, root, 2.0**-12),
    "ex2.approx.ftz.fp32@sm_90": power_of_two,
    "ex2.approx.fp32@sm_90": power_of_two_with_subnormals,
    "div.full.fp32@sm_90": partial(quotient, reciprocal),
    "div.full.literal.fp32@sm_90": partial(quotient, _exact_reciprocal),
}
"""The bit-exact functions, by the full name of the operation.  Other approximations have no known exact function."""
