"""Hashes of linear forms: sums of data-dependent integers times constant factors, modulo a power of two.

A form is an AC term of `add`.  Only its hash is kept: one number modulo 2**128 (low word first), the sum of its
members' hashes times their factors.  Modulo 2**64, a factor of 2**63 would keep only one bit of a member's hash, and
different forms would collide.

Forms with readable coefficients are in `checker.parametric.polynomial`; integers that are constant in every block are
in `checker.block_symmetry.block_affine`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.sets.ac_terms import AC_INDEX, member_hashes
from bitwise_core.execution.values.symbolic_vector import Origin, SymbolicVector, Value
from bitwise_core.numerics import Operation
from bitwise_core.numerics.modular import signed
from bitwise_core.numerics.word_arithmetic import multiply_high_low

_ONE_HASH = hashing.constant("one in a linear form")

_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "shl": 0}
"""The number that leaves the other operand as it is, as the second operand."""

_COMMUTATIVE = ("add", "mul")

CONSTANT = "number of a sum"
"""The name of the origin of a sum that holds its number."""


def linear_form(operation: Operation, values: list[SymbolicVector]) -> SymbolicVector | None:
    """Return the linear form of a sum, a difference, a negation or a product with a constant, modulo 2**bits.

    None for any other operation.
    """
    verb, bits = operation.verb, operation.bits
    if bits not in (32, 64) or verb not in ("add", "sub", "mul", "shl", "neg"):
        return None
    total = f"add.b{bits}"
    index = AC_INDEX[total]
    if verb in ("add", "sub"):
        (left, left_flags), (right, right_flags) = (_linear_words(total, index, value) for value in values)
        words = _sum(left, right if verb == "add" else _negated(right))
        return SymbolicVector(bits, words, left_flags | right_flags | L.AC_TERMS | index << L.OPERATION_SHIFT)
    if verb == "neg":
        words, flags = _linear_words(total, index, values[0])
        return SymbolicVector(bits, _negated(words), flags | L.AC_TERMS | index << L.OPERATION_SHIFT)
    for value, factor in (values, values[::-1]):
        if not np.all(L.constant_mask(factor)):
            if verb == "shl":
                return None
            continue
        amount = factor.words[0]
        if verb == "shl":
            amount = np.where(
                amount >= np.uint64(bits), np.uint64(0), np.uint64(1) << np.minimum(amount, np.uint64(63))
            )
        words, flags = _linear_words(total, index, value)
        return SymbolicVector(
            bits, _scaled(words, _sign_extended(amount, bits)), flags | L.AC_TERMS | index << L.OPERATION_SHIFT
        )
    return None


def with_neutral_numbers(
    operation: Operation, values: Sequence[SymbolicVector], form: SymbolicVector
) -> SymbolicVector:
    """Return a linear form with its operand in the lanes where a neutral number leaves it, and 0 where it is 0.

    `form` is the linear form of the operation on these values.  A form of one member is no member of itself.
    """
    if operation.verb not in _NEUTRAL:
        return form
    empty = ~form.words.any(axis=0) & (np.asarray(form.flags) & np.uint32(L.INHERITED) == 0)
    for place in (1, 0) if operation.verb in _COMMUTATIVE else (1,):
        form = L.blend(L.equals_constant(values[place], _NEUTRAL[operation.verb]), values[1 - place], form)
    zero = L.constant_vector(np.zeros((1, 1), dtype=L.UNSIGNED[operation.bits]))
    return L.blend(L.nonempty(empty), zero, form)


def constant_of_sum(operation: Operation, operands: Sequence[Value]) -> Origin | None:
    """Return the number that a sum or a difference of 32 bits has as one operand in all lanes, None for another one."""
    if operation.name not in ("add.b32", "sub.b32"):
        return None
    for operand, sign in zip(operands, (1, 1 if operation.verb == "add" else -1), strict=True):
        if isinstance(operand, np.ndarray) and operand.size == 1:
            number = np.uint32(sign * int(operand.reshape(())[()]) & 0xFFFFFFFF)
            return Origin(CONSTANT, (L.constant_vector(np.full((1, 1), number, dtype=np.uint32)),))
    return None


def with_least_number(form: SymbolicVector, number: SymbolicVector, bits: int) -> SymbolicVector:
    """Return a sum of 32 bits with another number, which is the same modulo 2**bits, of the least magnitude.

    `number` is that of the sum, one for all lanes.
    """
    own = int(signed(number.words[0], 32).flat[0])
    least = (own + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    if least == own:
        return form
    change = np.full((1, 1), least - own, dtype=np.int64).view(np.uint64)
    result = SymbolicVector(form.bits, _sum(form.words, _scaled(_ONE_HASH, change)), form.flags)
    if form.recorder is not None:
        result.recorder = form.recorder
        form.recorder.add("add.b32", result, [form, L.constant_vector(change.astype(np.uint32))], commutes=True)
    return result


def _sum(left: hashing.Words, right: hashing.Words) -> hashing.Words:
    low = left[0] + right[0]
    return np.stack([low, left[1] + right[1] + (low < left[0])])


def _negated(words: hashing.Words) -> hashing.Words:
    return np.stack([np.uint64(0) - words[0], ~words[1] + (words[0] == 0)])


def _scaled(words: hashing.Words, factor: npt.NDArray[np.uint64]) -> hashing.Words:
    """Return the payload times a factor; the factor is a signed number of 64 bits."""
    low, high = words[0], words[1]
    carried, product = multiply_high_low(low, factor)
    top = high * factor + carried - np.where(factor >> np.uint64(63), low, np.uint64(0))
    return np.stack([product, top])


def _sign_extended(number: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """Return a number of `bits` bits, sign-extended to 64."""
    extended: npt.NDArray[np.uint64] = signed(number, bits).view(np.uint64)
    return extended


def _linear_words(total: str, index: int, value: SymbolicVector) -> tuple[hashing.Words, L.Flags]:
    """Return a value as a linear form; a constant is that multiple of one."""
    words, flags = member_hashes(total, index, value)
    known = L.constant_mask(value)
    if known is not False:
        words = np.where(known, _scaled(_ONE_HASH, _sign_extended(value.words[0], value.bits)), words)
    return words, flags
