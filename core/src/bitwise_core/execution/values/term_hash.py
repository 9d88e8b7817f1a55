"""Hashes of symbolic vectors: of the payload, of the value, and of terms over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import (
    AC_TERMS,
    ARGMINMAX,
    CANONICAL_BF16_NAN,
    CANONICAL_NAN,
    CHAINED,
    CONST,
    FLIPPED_NAN,
    FLOAT_AC_TERMS,
    HASHED,
    INTEGER,
    KIND,
    LOAD,
    NAN_BITS,
    NAN_MARK,
    NEGATED,
    OPERATION_SHIFT,
    PLUS_ZERO,
    POISON,
    QUIET,
    TERM,
    UNSPECIFIED_NAN,
    WIDENED,
    WITH_CONSTANT,
    WITH_IDENTITY,
    Array,
    Flags,
    SymbolicVector,
    TermRecorder,
    clear_flags,
    constant_mask,
    constant_numbers,
    every,
    flags_of_some_lane,
    has_flag,
    some,
    sticky_flags,
)


@cache
def kind_constant(kind: int, bits: int, operation: int = 0) -> hashing.Words:
    """Return the hash constant of a payload that is not the hash of a term."""
    return hashing.constant(f"kind {kind} bits {bits} operation {operation}")


PLUS_ZERO_WORDS = hashing.constant("plus zero")
NEGATED_WORDS = hashing.constant("negated")
MARK_WORDS = {
    width | bf16 | flipped: hashing.constant(f"canonical NaN {width} {bf16} {flipped}")
    for width, bf16, flipped in product((0, CANONICAL_NAN), (0, CANONICAL_BF16_NAN), (0, FLIPPED_NAN))
    if width | bf16 | flipped
}
"""How each mark of a value's NaNs changes the hash that identifies its bits."""
CHAINED_WORDS = hashing.constant("a chain of matrix steps")
CONSTANT_WORDS = hashing.constant("with a number")
IDENTITY_WORDS = hashing.constant("with identity")


def base_hash(lanes: SymbolicVector) -> hashing.Words:
    """Return the hash of the payload alone, without PLUS_ZERO and NEGATED."""
    if lanes.cached_hash is not None:
        return lanes.cached_hash
    flags = lanes.flags
    if isinstance(flags, int):
        words = _base_hash_uniform(lanes.words, flags, lanes.bits)
    else:
        kinds = flags & np.uint32(HASHED)
        kind = kinds.item(0)
        others = kinds != kind
        words = _base_hash_of_kind(lanes, kind, others)
        while some(others):  # there are few kinds, and selecting each costs less than sorting
            kind = kinds.item(int(others.argmax()))
            elsewhere = kinds != kind
            words = np.where(elsewhere, words, _base_hash_of_kind(lanes, kind, elsewhere))
            others &= elsewhere
    lanes.cached_hash = words
    return words


def _base_hash_of_kind(lanes: SymbolicVector, kind: int, elsewhere: Array) -> hashing.Words:
    """Return the hashes of the lanes of a kind, of which the constants are often one number; others are arbitrary."""
    numbers = constant_numbers(lanes) if kind == CONST and lanes.words.ndim == 3 else None
    if numbers:
        others = int(np.count_nonzero(elsewhere))
        if others and others + np.count_nonzero(constant_mask(lanes)) == elsewhere.size:
            return _base_hash_of_number(*numbers, lanes.bits)
    return _base_hash_uniform(lanes.words, kind, lanes.bits)


@lru_cache(maxsize=1 << 12)
def _base_hash_of_number(number: int, bits: int) -> hashing.Words:
    """Return the hash of a constant, shape (2, 1, 1)."""
    found = _base_hash_uniform(np.full((2, 1, 1), number, dtype=np.uint64), CONST, bits)
    found.setflags(write=False)
    return found


WIDENING = "convert.fp32.fp16"


def _base_hash_uniform(words: hashing.Words, flags: int, bits: int) -> hashing.Words:
    kind = flags & KIND
    if flags & WIDENED:
        inner = _base_hash_uniform(words, flags & ~WIDENED, 16)
        factor, tag = hashing.multiplier(1), hashing.constant(WIDENING)
        return hashing.mix(inner * hashing.shaped(factor, inner.ndim) + hashing.shaped(tag, inner.ndim))
    if kind == TERM:
        return _changed(words, CHAINED_WORDS) if flags & CHAINED else words
    operation = (flags >> OPERATION_SHIFT) & 255
    if kind == AC_TERMS and (operation >= ARGMINMAX or flags & WITH_CONSTANT):
        # One word of the payload alone does not identify the value, but a term over it may keep only one word.
        words = words + words[::-1] * hashing.shaped(hashing.multiplier(4), words.ndim)
    tag = kind_constant(kind, bits, operation)
    factor = hashing.multiplier(0)
    if words.ndim != 3:
        tag, factor = hashing.shaped(tag, words.ndim), hashing.shaped(factor, words.ndim)
    hashed = hashing.mix(words * factor + tag)
    for flag, change in ((WITH_IDENTITY, IDENTITY_WORDS), (WITH_CONSTANT, CONSTANT_WORDS)):
        if flags & flag:
            hashed = _changed(hashed, change)
    return hashed


def unsigned_hash(lanes: SymbolicVector) -> hashing.Words:
    """Return the hash with PLUS_ZERO and without NEGATED: the factor of a product."""
    return _changed_where(base_hash(lanes), lanes, PLUS_ZERO, PLUS_ZERO_WORDS)


def full_hash(lanes: SymbolicVector) -> hashing.Words:
    """Return the hash of the value itself."""
    words = base_hash(lanes)
    if flags_of_some_lane(lanes) & (NEGATED | PLUS_ZERO):
        words = _changed_where(words, lanes, NEGATED, NEGATED_WORDS)
        words = _changed_where(words, lanes, PLUS_ZERO, PLUS_ZERO_WORDS)
    return words


def exact_hash(lanes: SymbolicVector) -> hashing.Words:
    """Return the hash for an operation that reads the bits of its operand, including those of a NaN.

    The operation's result has the operand's `nan_bits`.
    """
    words, present = full_hash(lanes), flags_of_some_lane(lanes) & NAN_MARK
    if isinstance(lanes.flags, int) or not present:
        return _changed(words, MARK_WORDS[present]) if present else words
    marks = lanes.flags & np.uint32(NAN_MARK)
    result = words
    for mark, change in MARK_WORDS.items():
        if not mark & ~present:
            chosen = marks == np.uint32(mark)
            if some(chosen):
                result = np.where(chosen, _changed(words, change), result)
    return result


def nan_bits(lanes: SymbolicVector) -> Flags:
    """Return the flags of an operation that reads the bits of these lanes, those of a NaN included.

    NAN_BITS, for lanes that may hold a NaN from arithmetic: constants, loads and results of integer operations have the
    same bits on every architecture.  UNSPECIFIED_NAN, for lanes in which an assembler decides the bits: where it may
    return an operand for an arithmetic result (max(x, x), x * 1), and in fp64, whose units pass on a payload.
    The negation of a predicate depends on the bits that the predicate depends on.
    """
    flags = lanes.flags if lanes.bits > 1 else clear_flags(lanes.flags, NEGATED)
    if isinstance(flags, int):
        if _architecture_independent(flags):
            return 0
        return NAN_BITS | UNSPECIFIED_NAN if _unspecified(flags, lanes.bits) else NAN_BITS
    shared = _architecture_independent_by_lane(flags)
    if every(shared):
        return 0
    found = np.where(shared, np.uint32(0), np.uint32(NAN_BITS))
    if not flags_of_some_lane(lanes) & NAN_MARK:
        return found
    return found | np.where(_unspecified(flags, lanes.bits), np.uint32(UNSPECIFIED_NAN), np.uint32(0))


def unspecified_nans(flags: Array, bits: Array) -> Array:
    """Return which stored elements depend on bits of a NaN that no document specifies; `bits` are their widths."""
    if not (flags & np.uint32(NAN_MARK | UNSPECIFIED_NAN)).any():
        return np.zeros(flags.shape, dtype=bool)
    own = np.where(bits == 64, _unspecified(flags, 64), _unspecified(flags, 32))
    found: Array = ((flags & np.uint32(UNSPECIFIED_NAN)) != 0) | own
    return found


def _unspecified(flags: Flags, bits: int) -> bool | Array:
    """Return where a value has a mark, but may have other bits of a NaN than the canonical ones."""
    marked = (flags & NAN_MARK) != 0
    return marked if bits == 64 else marked & may_be_moved(flags)


def may_be_moved(flags: Flags) -> bool | Array:
    """Return where the bits of a value, its sign aside, are not those of an arithmetic result.

    With a mark, an assembler may have returned an operand for such a value.
    """
    kind = flags & (KIND | PLUS_ZERO)
    number = (flags >> OPERATION_SHIFT) & 255
    of_integers = (kind == AC_TERMS) & (number > FLOAT_AC_TERMS) & (number < ARGMINMAX)
    return (
        ((flags & (KIND | PLUS_ZERO | WIDENED)) == LOAD)
        | (((kind == TERM) | (kind == AC_TERMS)) & ((flags & INTEGER) != 0))
        | of_integers
    )


def is_quiet(lanes: SymbolicVector, mark: int = CANONICAL_NAN) -> bool | Array:
    """Return where a value is known to be no signalling NaN of the format of a mark.

    It is none where it is an arithmetic result; with a mark, moved bits may still be those of the term.
    """
    marked = has_flag(lanes, mark)
    if marked is False:
        return has_flag(lanes, QUIET)
    return np.logical_or(has_flag(lanes, QUIET), np.logical_and(marked, np.logical_not(may_be_moved(lanes.flags))))


_PLAIN = KIND | PLUS_ZERO | NEGATED | WIDENED | NAN_MARK


def with_unspecified_nans(words: hashing.Words, chosen: Array, text: str, line: Array) -> hashing.Words:
    """Return the hashes of stored elements with the chosen ones made specific to a text and the line of their store.

    `text` is a digest; `words` has shape (2, elements), `chosen` and `line` (elements,).
    """
    place = hashing.constant(f"the bits of a NaN in {text}").reshape(2, 1) + line.astype(np.uint64) * np.uint64(2)
    return np.where(chosen, hashing.mix(words + place), words)


def with_architecture_nans(words: hashing.Words, chosen: Array, architecture: str) -> hashing.Words:
    """Return the hashes of stored elements with the chosen ones made specific to the architecture."""
    return np.where(chosen, _changed(words, hashing.constant(f"the bits of a NaN on {architecture}")), words)


def _architecture_independent(flags: int) -> bool:
    form, operation = flags & _PLAIN, flags >> OPERATION_SHIFT & 255
    if form == AC_TERMS:
        return FLOAT_AC_TERMS < operation < ARGMINMAX
    return form in (LOAD, CONST) or (form == TERM and flags & INTEGER != 0)


def _architecture_independent_by_lane(flags: Array) -> Array:
    form = flags & np.uint32(_PLAIN)
    operation = (flags >> np.uint32(OPERATION_SHIFT)) & np.uint32(255)
    integers = (form == TERM) & ((flags & np.uint32(INTEGER)) != 0)
    integers |= (form == AC_TERMS) & (operation > FLOAT_AC_TERMS) & (operation < ARGMINMAX)
    found: Array = (form == LOAD) | (form == CONST) | integers
    return found


def _changed_where(words: hashing.Words, lanes: SymbolicVector, flag: int, change: hashing.Words) -> hashing.Words:
    """Return the hashes of lanes, changed where the flag is set."""
    chosen = has_flag(lanes, flag)
    if isinstance(chosen, bool):
        return _changed(words, change) if chosen else words
    return np.where(chosen, _changed(words, change), words)


def _changed(words: hashing.Words, change: hashing.Words) -> hashing.Words:
    """Apply a bijection of hashes that is not linear and does not commute with another change.

    Operands enter the hash of their operation in sums.  If a change added or flipped some bits (as xor does), -a + b
    and a + -b would have the same hash whenever a and b agree in those bits.
    """
    return hashing.mix(words + hashing.shaped(change, words.ndim))


def term(
    bits: int,
    tag: str,
    operands: Sequence[SymbolicVector],
    flags: Flags = 0,
    *,
    commutes: bool = False,
    exact: bool = False,
    recorder: TermRecorder | None = None,
) -> SymbolicVector:
    """Return an operation's term over its operands in order, or in any order if it commutes.

    `exact` means that the operation reads its operands' bits, including those of a NaN. `recorder` is the recorder of a
    recorded run, if any.
    """
    total = hashing.constant(tag)
    for position, operand in enumerate(operands):
        words = exact_hash(operand) if exact else full_hash(operand)
        total = total + (words if commutes else words * hashing.multiplier(position + 1))
        if exact:
            flags = flags | nan_bits(operand)
    if total.base is None and not operands:
        total = total.copy()
    result = SymbolicVector(bits, hashing.mix(total), TERM | flags | sticky_flags(*operands))
    if recorder is not None:
        recorder.add(tag, result, operands, commutes)
    return result


def poison(bits: int, reason: str = "undefined") -> SymbolicVector:
    """Return lanes that nothing has written."""
    return SymbolicVector(bits, hashing.constant(f"poison {reason}"), TERM | POISON)
