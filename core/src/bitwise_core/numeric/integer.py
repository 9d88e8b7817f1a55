"""Integer operations on bit patterns, modulo 2**bits."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numeric.floating import relation
from bitwise_core.numeric.formats import IntegerFormat
from bitwise_core.numeric.modular import signed
from bitwise_core.numeric.words import Bits, Words, multiply_high_low, storage, words

Signed: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

SIGNLESS: dict[str, int] = {"add": 2, "sub": 2, "mul": 2, "and": 2, "or": 2, "xor": 2, "not": 1, "neg": 1, "shl": 2}
"""Operations on patterns, whatever the sign, and how many operands they take."""
SIGNED: dict[str, int] = {"min": 2, "max": 2, "mulhi": 2, "mulwide": 2, "shr": 2, "abs": 1}
"""Operations that need to know whether the highest bit is a sign."""


def signed_words(bits: Bits, form: IntegerFormat) -> Signed:
    """The values, as int64 where the format is signed and uint64 otherwise."""
    value = words(bits)
    if not form.signed:
        return value
    result: Signed = signed(value, form.bits)
    return result


def cut(value: Words, bits: int) -> Bits:
    """The low bits, in the storage type of that many bits."""
    return (value & np.uint64((1 << bits) - 1)).astype(storage(bits))


def pattern(verb: str, form: IntegerFormat, *operands: Bits) -> Bits:
    """Evaluate an operation of SIGNLESS; a shift by the width or more gives zero."""
    left, *others = (words(bits) for bits in operands)
    right = others[0] if others else left
    if verb == "add":
        result = left + right
    elif verb == "sub":
        result = left - right
    elif verb == "mul":
        result = left * right
    elif verb in ("and", "or", "xor"):
        result = {"and": left & right, "or": left | right, "xor": left ^ right}[verb]
    elif verb == "shl":
        result = np.where(right < form.bits, left << np.minimum(right, np.uint64(63)), np.uint64(0))
    else:
        result = ~left if verb == "not" else ~left + np.uint64(1)
    return cut(result, form.bits)


def arithmetic(verb: str, form: IntegerFormat, *operands: Bits) -> Bits:
    """Evaluate an operation of SIGNED; `abs` of the most negative value is itself.

    `mulhi` returns the high half of the product and `mulwide` the whole, twice as wide.
    A right shift by the width or more gives copies of the sign, or zero.
    """
    left, *others = (signed_words(bits, form) for bits in operands)
    right = others[0] if others else left
    if verb in ("min", "max"):
        return cut(words(np.minimum(left, right) if verb == "min" else np.maximum(left, right)), form.bits)
    if verb == "abs":
        return cut(words(np.where(left < 0, -left, left)), form.bits)
    if verb == "shr":
        amount = np.minimum(words(operands[1]), np.uint64(form.bits))
        # In two halves, because a shift by all 64 bits is not defined for a word.
        half = (amount >> np.uint64(1)).astype(left.dtype)
        return cut(words((left >> half) >> (amount.astype(left.dtype) - half)), form.bits)
    if form.bits <= 32:
        product = words(left * right)
        return cut(product, 2 * form.bits) if verb == "mulwide" else cut(product >> np.uint64(form.bits), form.bits)
    high, _ = multiply_high_low(words(left), words(right))
    if form.signed:
        high = high - np.where(left < 0, words(right), np.uint64(0)) - np.where(right < 0, words(left), np.uint64(0))
    return high


def compare(verb: str, form: IntegerFormat, left: Bits, right: Bits) -> Bits:
    """A comparison, as 0 or 1."""
    first, second = signed_words(left, form), signed_words(right, form)
    return relation(verb, first, second).astype(np.uint8)  # type: ignore[arg-type]
