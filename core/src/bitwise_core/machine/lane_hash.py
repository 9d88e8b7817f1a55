"""Hashes of lanes: of the payload, of the value, and of the operations made from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bitwise_core.machine import hashing, recording
from bitwise_core.machine.lanes import (
    ABSORBED,
    FLOAT_SETS,
    INTEGER,
    KIND,
    KNOWN,
    LEAF,
    LOOSE,
    NEGATED,
    PLUS_ZERO,
    POISON,
    SET,
    SET_SHIFT,
    TERM,
    WIDENED,
    WINNERS,
    WITH_IDENTITY,
    WITH_NUMBER,
    Array,
    Lanes,
    Meta,
    sticky,
)


def kind_constant(kind: int, bits: int, operation: int = 0) -> hashing.Words:
    """The hash constant of a payload that is not a term's hash."""
    return hashing.constant(f"kind {kind} bits {bits} operation {operation}")


PLUS_ZERO_WORDS = hashing.constant("plus zero")
NEGATED_WORDS = hashing.constant("negated")
LOOSE_WORDS = hashing.constant("up to the bits of a NaN")
NUMBER_WORDS = hashing.constant("with a number")
IDENTITY_WORDS = hashing.constant("with identity")


def base_hash(lanes: Lanes) -> hashing.Words:
    """The hash of the payload alone: PLUS_ZERO and NEGATED are left out."""
    if lanes.hashed is not None:
        return lanes.hashed
    meta = lanes.meta
    if isinstance(meta, int):
        words = _base_hash_uniform(lanes.words, meta, lanes.bits)
    else:
        kinds = meta & np.uint32(KIND | WIDENED | ABSORBED | (255 << SET_SHIFT))
        words = _base_hash_uniform(lanes.words, int(kinds.flat[0]), lanes.bits)
        others = kinds != kinds.flat[0]
        while others.any():  # there are few kinds, and to sort them out costs less than to sort them
            kind = kinds.flat[int(others.argmax())]
            here = kinds == kind
            words = np.where(here, _base_hash_uniform(lanes.words, int(kind), lanes.bits), words)
            others &= ~here
    lanes.hashed = words
    return words


WIDENING = "convert.fp32.fp16"


def _base_hash_uniform(words: hashing.Words, meta: int, bits: int) -> hashing.Words:
    kind = meta & KIND
    if meta & WIDENED:
        inner = _base_hash_uniform(words, meta & ~WIDENED, 16)
        factor, tag = hashing.multiplier(1), hashing.constant(WIDENING)
        return hashing.finalise(inner * hashing.shaped(factor, inner.ndim) + hashing.shaped(tag, inner.ndim))
    if kind == TERM:
        return words
    operation = (meta >> SET_SHIFT) & 255
    if kind == SET and (operation >= WINNERS or meta & WITH_NUMBER):
        # One word holds no hash of the value, or no other, or no number: what is made of the value may keep only one.
        words = words + words[::-1] * hashing.shaped(hashing.multiplier(4), words.ndim)
    tag = kind_constant(kind, bits, operation)
    factor = hashing.multiplier(0)
    if words.ndim != 3:
        tag, factor = hashing.shaped(tag, words.ndim), hashing.shaped(factor, words.ndim)
    hashed = hashing.finalise(words * factor + tag)
    for flag, change in ((WITH_IDENTITY, IDENTITY_WORDS), (WITH_NUMBER, NUMBER_WORDS)):
        if meta & flag:
            hashed = _changed(hashed, change)
    return hashed


def signed_hash(lanes: Lanes) -> hashing.Words:
    """The hash with the sign flip counted and +0 left out: the operand of an addition."""
    return _flagged(base_hash(lanes), lanes.meta, NEGATED, NEGATED_WORDS)


def unsigned_hash(lanes: Lanes) -> hashing.Words:
    """The hash with +0 counted and the sign flip left out: the factor of a product."""
    return _flagged(base_hash(lanes), lanes.meta, PLUS_ZERO, PLUS_ZERO_WORDS)


def full_hash(lanes: Lanes) -> hashing.Words:
    """The hash of the value itself."""
    return _flagged(signed_hash(lanes), lanes.meta, PLUS_ZERO, PLUS_ZERO_WORDS)


def exact_hash(lanes: Lanes) -> hashing.Words:
    """The hash for an operation that looks at bits, those of a NaN included."""
    words = _flagged(full_hash(lanes), lanes.meta, LOOSE, LOOSE_WORDS)
    return words if nans_of is None else own_nans(words, lanes.meta, nans_of)


nans_of: str | None = None
"""The architecture whose NaNs are told from those of others; None, and nothing is told apart, where there is one."""


@contextmanager
def telling_nans(architecture: str | None) -> Iterator[None]:
    """While kernels of several architectures are compared: the bits of a NaN that one makes are its own."""
    global nans_of
    before, nans_of = nans_of, architecture
    try:
        yield
    finally:
        nans_of = before


def nans_told() -> bool:
    """Whether the NaNs of architectures are told apart now."""
    return nans_of is not None


def same_everywhere(lanes: Lanes) -> bool:
    """Whether no lane's bits may be those of a NaN that an architecture made."""
    return bool(np.all(_same_everywhere(np.asarray(lanes.meta, dtype=np.uint32))))


_PLAIN = KIND | PLUS_ZERO | NEGATED | WIDENED | LOOSE


def own_nans(words: hashing.Words, meta: Meta, architecture: str) -> hashing.Words:
    """The hashes of values whose bits are looked at, those of possible NaNs of arithmetic made the architecture's own.

    Known numbers, what memory held, and what integer operations gave are the same everywhere.
    """
    change = hashing.constant(f"the bits of a NaN on {architecture}")
    if isinstance(meta, int):
        return words if bool(_same_everywhere(np.array(meta, dtype=np.uint32))) else _changed(words, change)
    shared = _same_everywhere(meta)
    return words if shared.all() else np.where(shared, words, _changed(words, change))


def _same_everywhere(meta: Array) -> Array:
    form = meta & np.uint32(_PLAIN)
    operation = (meta >> np.uint32(SET_SHIFT)) & np.uint32(255)
    integers = (form == TERM) & ((meta & np.uint32(INTEGER)) != 0)
    integers |= (form == SET) & (operation > FLOAT_SETS) & (operation < WINNERS)
    found: Array = (form == LEAF) | (form == KNOWN) | integers
    return found


def _flagged(words: hashing.Words, meta: Meta, flag: int, change: hashing.Words) -> hashing.Words:
    """The hash of `words` changed where the flag is set."""
    if isinstance(meta, int):
        return _changed(words, change) if meta & flag else words
    chosen = (meta & np.uint32(flag)) != 0
    return np.where(chosen, _changed(words, change), words) if chosen.any() else words


def _changed(words: hashing.Words, change: hashing.Words) -> hashing.Words:
    """A bijection of hashes that neither commutes with another change nor is linear.

    Operands enter their operation's hash by sums.  Were a change to add or flip some bits, as xor does, -a + b and
    a + -b would agree wherever a and b agree in those bits.
    """
    return hashing.scramble(words + hashing.shaped(change, words.ndim))


def term(
    bits: int, tag: str, operands: Sequence[Lanes], meta: Meta = 0, *, commutes: bool = False, exact: bool = False
) -> Lanes:
    """An operation's term over its operands in order, or in any order where it commutes.

    `exact` says that the operation looks at its operands' bits, those of a NaN included.
    """
    total = hashing.constant(tag)
    for position, operand in enumerate(operands):
        words = exact_hash(operand) if exact else full_hash(operand)
        total = total + (words if commutes else words * hashing.multiplier(position + 1))
    if total.base is None and not operands:
        total = total.copy()
    result = Lanes(bits, hashing.finalise(total), TERM | meta | sticky(*operands))
    return recording.note(tag, result, operands, commutes=commutes)


def poison(bits: int, reason: str = "undefined") -> Lanes:
    """Lanes that nothing has written."""
    return Lanes(bits, hashing.constant(f"poison {reason}"), TERM | POISON)
