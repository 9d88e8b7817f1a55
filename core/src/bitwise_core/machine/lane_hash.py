"""Hashes of lanes: of the payload, of the value, and of the operations made from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.machine import hashing
from bitwise_core.machine.lanes import (
    ABSORBED,
    FLOAT_SETS,
    INTEGER,
    KIND,
    KNOWN,
    LEAF,
    LOOSE,
    NAN_BITS,
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
    TermRecorder,
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
    """The hash for an operation that reads bits, those of a NaN included; its result has `nan_bits` of the operand."""
    return _flagged(full_hash(lanes), lanes.meta, LOOSE, LOOSE_WORDS)


def nan_bits(lanes: Lanes) -> Meta:
    """NAN_BITS for the lanes that may hold a NaN that arithmetic made, else 0.

    Known numbers, what memory held, and what integer operations gave have the same bits on every architecture.
    """
    meta = lanes.meta
    if isinstance(meta, int):
        return 0 if _same_everywhere(meta) else NAN_BITS
    shared = _same_everywhere_by_lane(meta)
    return 0 if shared.all() else np.where(shared, np.uint32(0), np.uint32(NAN_BITS))


_PLAIN = KIND | PLUS_ZERO | NEGATED | WIDENED | LOOSE


def own_nans(words: hashing.Words, chosen: Array, architecture: str) -> hashing.Words:
    """The hashes of stored elements, the chosen ones made the architecture's own."""
    return np.where(chosen, _changed(words, hashing.constant(f"the bits of a NaN on {architecture}")), words)


def _same_everywhere(meta: int) -> bool:
    form, operation = meta & _PLAIN, meta >> SET_SHIFT & 255
    if form == SET:
        return FLOAT_SETS < operation < WINNERS
    return form in (LEAF, KNOWN) or (form == TERM and meta & INTEGER != 0)


def _same_everywhere_by_lane(meta: Array) -> Array:
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
    bits: int,
    tag: str,
    operands: Sequence[Lanes],
    meta: Meta = 0,
    *,
    commutes: bool = False,
    exact: bool = False,
    recorder: TermRecorder | None = None,
) -> Lanes:
    """An operation's term over its operands in order, or in any order where it commutes.

    `exact` says that the operation reads its operands' bits, those of a NaN included.  `recorder` is that of the replay
    that goes on, if any.
    """
    total = hashing.constant(tag)
    for position, operand in enumerate(operands):
        words = exact_hash(operand) if exact else full_hash(operand)
        total = total + (words if commutes else words * hashing.multiplier(position + 1))
        if exact:
            meta = meta | nan_bits(operand)
    if total.base is None and not operands:
        total = total.copy()
    result = Lanes(bits, hashing.finalise(total), TERM | meta | sticky(*operands))
    if recorder is not None:
        recorder.add(tag, result, operands, commutes)
    return result


def poison(bits: int, reason: str = "undefined") -> Lanes:
    """Lanes that nothing has written."""
    return Lanes(bits, hashing.constant(f"poison {reason}"), TERM | POISON)
