"""AC terms: terms of associative and commutative operations (`minmax`: maxima and minima; `linear_hash`: integer sums).

The payload of an AC term is the sum of its members' hashes (`hashing.sum_of_members`), so an AC term of AC terms is
the AC term of all members.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, nan_bits

_FORMATS = ("fp64", "fp32", "fp16", "bf16")
_SIGNED = ("s8", "s16", "s32", "s64")
_UNSIGNED = ("u8", "u16", "u32", "u64")
_BITS = ("b8", "b16", "b32", "b64", "b1")
AC_OPERATIONS: tuple[str, ...] = (
    "",
    *(f"{verb}{nan}.{fmt}" for verb in ("max", "min") for nan in ("", ".nan") for fmt in _FORMATS),
    "count.fp32",
    *(f"{verb}.{fmt}" for verb in ("max", "min") for fmt in _SIGNED + _UNSIGNED),
    *(f"{verb}.{fmt}" for verb in ("add", "mul", "and", "or", "xor") for fmt in _BITS),
    "products.b32",
    *(f"{verb}bysign.{fmt}" for verb in ("max", "min") for fmt in ("b32", "b64")),
)
"""Operations that are associative and commutative bit for bit (NaNs count as one value)."""

AC_INDEX = {name: index for index, name in enumerate(AC_OPERATIONS) if name}
"""The number of each operation in the flags of its AC terms.

`symbolic_vector.FLOAT_AC_TERMS` is the last number of a floating-point operation.
"""

_IDEMPOTENT = ("and", "or", "maxbysign", "minbysign")
_IDENTITY = {"and": "1" * 64, "or": "0" * 64, "xor": "0" * 64, "maxbysign": "1" * 64, "minbysign": "0" + "1" * 63}
"""The bits of the identity element, from the first one; an element of fewer bits has as many of them."""


def member_hashes(name: str, index: int, value: SymbolicVector) -> tuple[hashing.Words, L.Flags]:
    """Return the sum of the hashes of a value's members under `name`, and the flags inherited from them."""
    value_flags = value.flags
    tag = hashing.constant("member of " + name)
    floats = is_float(name)
    hash_of = full_hash if floats else exact_hash
    own = L.AC_TERMS | index << L.OPERATION_SHIFT
    pattern = (L.NUMBER_FORM if floats else L.FORM) | 255 << L.OPERATION_SHIFT
    if isinstance(value_flags, int):
        if value_flags & pattern == own:
            return value.words, value_flags & (L.ABSORBED | L.INHERITED)
        own_bits = 0 if floats else nan_bits(value)
        return hashing.mix(hash_of(value) * hashing.multiplier(3) + tag), value_flags & L.INHERITED | own_bits
    inside = (value_flags & np.uint32(pattern)) == own
    words = hashing.mix(hash_of(value) * hashing.multiplier(3) + tag)
    flags = (value_flags & np.uint32(L.INHERITED)) | np.where(inside, value_flags & np.uint32(L.ABSORBED), np.uint32(0))
    if not floats:
        flags = np.bitwise_or(flags, nan_bits(value))
    return np.where(inside, value.words, words), flags


def is_float(name: str) -> bool:
    """Return whether an operation is on floating-point numbers."""
    return name.split(".")[-1].startswith(("fp", "bf"))


def union(name: str, left: SymbolicVector, right: SymbolicVector, bits: int, context: TermContext) -> SymbolicVector:
    """Return the AC term of two values' members under an associative and commutative integer operation."""
    index = AC_INDEX[name]
    left_words, left_flags = member_hashes(name, index, left)
    right_words, right_flags = member_hashes(name, index, right)
    words = hashing.sum_of_members(left_words, right_words)
    if context.member_sets is not None and name.split(".")[0] in _IDEMPOTENT:
        words = context.member_sets.union(left_words, right_words, words)
    flags = left_flags | right_flags | L.AC_TERMS | index << L.OPERATION_SHIFT
    result = context.note(name, SymbolicVector(bits, words, flags), [left, right], commutes=True)
    verb = name.split(".")[0]
    if verb in _IDEMPOTENT:
        same = hashing.same_lanes(left_words, right_words)
        if same is not False:
            result = L.blend(L.nonempty(same & ((left_flags ^ right_flags) & L.VALUE == 0)), left, result)
    if verb in _IDENTITY:
        neutral = int(_IDENTITY[verb][:bits], 2)
        result = L.blend(
            L.equals_constant(left, neutral), right, L.blend(L.equals_constant(right, neutral), left, result)
        )
    return result
