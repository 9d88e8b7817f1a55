"""What a register holds in every lane of a batch of blocks.

A value is one of three things:

- a NumPy array of unsigned integers (bool for a predicate): every lane's bits are known;
- `Lanes`: each lane holds a known number, the initial content of memory at an address (a leaf), or a term,
  with a word of properties that the canonical rules need;
- `Pieces`: a little-endian row of narrower values, for registers packed from halves or bytes.

Arrays have the shape (blocks, threads); either axis may have length 1 where all lanes agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.machine import hashing, recording

Array: TypeAlias = npt.NDArray[Any]
Meta: TypeAlias = int | npt.NDArray[np.uint32]

KIND = 3
KNOWN, LEAF, TERM, SET = 0, 1, 2, 3

POISON = 1 << 3
"""The lane depends on a register or memory that nothing has written."""
PLUS_ZERO = 1 << 4
"""The value is (payload) + (+0): the payload itself may be -0, the value may not."""
NEGATED = 1 << 5
"""The value is the payload with its sign flipped."""
NOT_MINUS_ZERO = 1 << 6
"""The payload cannot be -0 (PLUS_ZERO is never set beside this)."""
NOT_NEGATIVE = 1 << 7
"""The value is NaN or its sign bit is clear."""
HALF_RANGE = 1 << 8
"""The value was widened from fp16: a product of two such values does not underflow in fp32."""
WITH_IDENTITY = 1 << 9
"""A set that also holds its operation's neutral infinity."""
UNDETERMINED = 1 << 10
"""The value depends on the order in which threads happened to run."""
WIDENED = 1 << 11
"""The value is an fp32 that holds the payload, an fp16, exactly."""
LOOSE = 1 << 12
"""A rule gave back an operand for an arithmetic result: equal but for the bits of a NaN."""
WITH_ZERO = 1 << 13
"""A set of numbers that also holds +0, however often."""
ABSORBED = WITH_IDENTITY | WITH_ZERO
IS_ZERO = 1 << 14
"""The value is a zero of one sign or the other (under an assumption)."""
STICKY = POISON | UNDETERMINED
FORM = KIND | PLUS_ZERO | NEGATED | WIDENED
SET_SHIFT = 16
"""Bits 16 to 23 number the operation of a set; bits 24 to 31 are free for memory."""

UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class Lanes:
    """Lanes of `bits` width: payload words of shape (2, blocks, threads) and properties.

    The payload of a known number or of a leaf is that number or address in both words; of a term, its hash;
    of a set, the sum of its members' hashes.  `meta` is one int where all lanes share it.
    """

    __slots__ = ("_hash", "bits", "bundle", "meta", "origin", "words")

    def __init__(self, bits: int, words: hashing.Words, meta: Meta) -> None:
        self.bits, self.words, self.meta = bits, words, meta
        self.origin: tuple[Lanes, int] | None = None
        self.bundle: tuple[Lanes, int] | None = None
        self._hash: hashing.Words | None = None

    def part(self, low: int, bits: int) -> Value | None:
        """The `bits` bits from bit `low` where the value knows how to cut itself, else None."""
        return None


class Pieces:
    """A row of narrower values, least significant first."""

    __slots__ = ("_joined", "bits", "parts")

    def __init__(self, parts: tuple[Array | Lanes, ...]) -> None:
        self.parts = parts
        self.bits = sum(width(part) for part in parts)
        self._joined: Lanes | None = None


Value: TypeAlias = Array | Lanes | Pieces


class Numbers:
    """Known numbers kept in another form than one array, standing wherever an array may (`engine.separable`)."""

    __slots__ = ()

    def settled(self) -> Any:
        """The numbers as a decision or an address: what `Machine.known` gives back."""
        raise NotImplementedError

    def lanes(self) -> Lanes:
        """The numbers among data."""
        raise NotImplementedError

    def cut(self, low: int, bits: int) -> Any:
        """See `cut`."""
        raise NotImplementedError

    def choose(self, mask: Array, new: Any, old: Any) -> Any:
        """See `choose`; self is `new` or `old`."""
        raise NotImplementedError

    def join(self, parts: Sequence[Any]) -> Any:
        """Known parts side by side, least significant first; self is one of them."""
        raise NotImplementedError

    def take_threads(self, index: Array) -> Any:
        """See `take_threads`."""
        raise NotImplementedError

    def of_thread(self, thread: int) -> Any:
        """The numbers of one thread."""
        raise NotImplementedError

    def identity(self) -> int:
        """A key that two numbers of one thread share only where they are equal in every block."""
        raise NotImplementedError


def other_form(value: object) -> Numbers | None:
    """The value if it is known numbers in a form of their own."""
    return value if isinstance(value, Numbers) else None


def width(value: Value) -> int:
    """The value's width in bits (1 for a predicate)."""
    if isinstance(value, np.ndarray):
        return 1 if value.dtype == np.bool_ else value.dtype.itemsize * 8
    return value.bits


def known_meta(numbers: Array, bits: int) -> Meta:
    """The properties of known numbers seen as floating-point patterns of `bits` bits."""
    if bits == 1:
        return KNOWN
    sign = 1 << (bits - 1)
    if numbers.size == 1:
        number = int(numbers.reshape(())[()])
        return KNOWN | (NOT_MINUS_ZERO if number != sign else 0) | (NOT_NEGATIVE if number < sign else 0)
    wide = numbers.astype(np.uint64, copy=False)
    meta = np.where(wide != np.uint64(sign), np.uint32(NOT_MINUS_ZERO), np.uint32(0))
    meta |= np.where(wide < np.uint64(sign), np.uint32(NOT_NEGATIVE), np.uint32(0))
    return meta


def known_lanes(numbers: Array) -> Lanes:
    """Known numbers in the form of lanes."""
    bits = width(numbers)
    wide = numbers.astype(np.uint64, copy=False)
    return Lanes(bits, np.broadcast_to(wide[None], (2, *wide.shape)), known_meta(numbers, bits))


def as_lanes(value: Value) -> Lanes:
    """Any value in the form of lanes; pieces are joined into one term or leaf."""
    if isinstance(value, np.ndarray):
        return known_lanes(value)
    if isinstance(value, Lanes):
        return value
    special = other_form(value)
    if special is not None:
        return special.lanes()
    if value._joined is None:
        value._joined = _join(value)
    return value._joined


def numbers_of(lanes: Lanes) -> Array:
    """The known numbers of lanes whose kind is KNOWN, in their unsigned type."""
    words = lanes.words[0]
    return words.astype(np.bool_) if lanes.bits == 1 else words.astype(UNSIGNED[lanes.bits])


def settle(value: Value) -> Value:
    """The plain array where every lane is known, else the value itself."""
    if isinstance(value, Lanes) and value.bits in UNSIGNED:
        meta = value.meta
        known = meta & (FORM | STICKY) == KNOWN if isinstance(meta, int) else not (meta & (FORM | STICKY)).any()
        if known:
            return numbers_of(value)
    return value


def known_where(lanes: Lanes) -> bool | npt.NDArray[np.bool_]:
    """Which lanes hold a known number."""
    meta = lanes.meta
    if isinstance(meta, int):
        return meta & (FORM | STICKY) == KNOWN
    return (meta & np.uint32(FORM | STICKY)) == KNOWN


_TERM_FLAGS = (PLUS_ZERO, NEGATED)


def kind_constant(kind: int, bits: int, operation: int = 0) -> hashing.Words:
    """The hash constant of a payload that is not a term's hash."""
    return hashing.constant(f"kind {kind} bits {bits} operation {operation}")


PLUS_ZERO_WORDS = hashing.constant("plus zero")
NEGATED_WORDS = hashing.constant("negated")
LOOSE_WORDS = hashing.constant("up to the bits of a NaN")
ZERO_WORDS = hashing.constant("with zero")
IDENTITY_WORDS = hashing.constant("with identity")


def base_hash(lanes: Lanes) -> hashing.Words:
    """The hash of the payload alone: PLUS_ZERO and NEGATED are left out."""
    if lanes._hash is not None:
        return lanes._hash
    meta = lanes.meta
    if isinstance(meta, int):
        words = _base_hash_uniform(lanes.words, meta, lanes.bits)
    else:
        kinds = meta & np.uint32(KIND | WIDENED | ABSORBED | (255 << SET_SHIFT))
        present = np.unique(kinds)
        words = _base_hash_uniform(lanes.words, int(present[0]), lanes.bits)
        for kind in present[1:]:
            words = np.where(kinds == kind, _base_hash_uniform(lanes.words, int(kind), lanes.bits), words)
    lanes._hash = words
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
    tag = kind_constant(kind, bits, (meta >> SET_SHIFT) & 255)
    factor = hashing.multiplier(0)
    if words.ndim != 3:
        tag, factor = hashing.shaped(tag, words.ndim), hashing.shaped(factor, words.ndim)
    hashed = hashing.finalise(words * factor + tag)
    for flag, change in ((WITH_IDENTITY, IDENTITY_WORDS), (WITH_ZERO, ZERO_WORDS)):
        if meta & flag:
            hashed ^= hashing.shaped(change, words.ndim)
    return hashed


def signed_hash(lanes: Lanes) -> hashing.Words:
    """The hash with the sign flip counted and +0 left out: the operand of an addition."""
    return _flagged(base_hash(lanes), lanes.meta, NEGATED, NEGATED_WORDS)


def unsigned_hash(lanes: Lanes) -> hashing.Words:
    """The hash with +0 counted and the sign flip left out: the factor of a product."""
    return _flagged(base_hash(lanes), lanes.meta, PLUS_ZERO, PLUS_ZERO_WORDS)


def full_hash(lanes: Lanes) -> hashing.Words:
    """The hash of the value itself."""
    words = _flagged(base_hash(lanes), lanes.meta, NEGATED, NEGATED_WORDS)
    return _flagged(words, lanes.meta, PLUS_ZERO, PLUS_ZERO_WORDS)


def exact_hash(lanes: Lanes) -> hashing.Words:
    """The hash for an operation that looks at bits, those of a NaN included."""
    return _flagged(full_hash(lanes), lanes.meta, LOOSE, LOOSE_WORDS)


def _flagged(words: hashing.Words, meta: Meta, flag: int, change: hashing.Words) -> hashing.Words:
    change = change if words.ndim == 3 else hashing.shaped(change, words.ndim)
    if isinstance(meta, int):
        return words ^ change if meta & flag else words
    chosen = (meta & np.uint32(flag)) != 0
    return np.where(chosen, words ^ change, words) if chosen.any() else words


def sticky(*lanes: Lanes) -> Meta:
    """The properties that every result inherits."""
    result: Meta = 0
    for each in lanes:
        result = result | (each.meta & STICKY)
    return result


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


def without(meta: Meta, flags: int) -> Meta:
    """Properties with some of them cleared."""
    return meta & ~flags if isinstance(meta, int) else meta & np.uint32(~flags & 0xFFFFFFFF)


def select_meta(mask: Array, new: Meta, old: Meta) -> Meta:
    """Lane by lane: `new` where the mask is set."""
    if isinstance(new, int) and isinstance(old, int) and new == old:
        return new
    return np.where(
        mask, np.uint32(new) if isinstance(new, int) else new, np.uint32(old) if isinstance(old, int) else old
    )


def choose(mask: Array, new: Value, old: Value) -> Value:
    """Lane by lane: `new` where the known mask is set, else `old`."""
    if isinstance(new, np.ndarray) and isinstance(old, np.ndarray):
        return np.where(mask, new, old)
    special = other_form(new)
    if special is None:
        special = other_form(old)
    if special is not None:
        return special.choose(mask, new, old)  # type: ignore[no-any-return]
    if isinstance(new, Pieces) or isinstance(old, Pieces):
        cuts = sorted(set(_cuts(new)) | set(_cuts(old)))
        starts = [0, *cuts[:-1]]
        parts = [
            choose(mask, cut(new, low, high - low), cut(old, low, high - low))
            for low, high in zip(starts, cuts, strict=True)
        ]
        return concat(parts)
    if new is old:
        return new
    left, right = as_lanes(new), as_lanes(old)
    meta = select_meta(mask, left.meta, right.meta)
    return Lanes(left.bits, np.where(mask, left.words, right.words), uniform(meta))


def uniform(meta: Meta) -> Meta:
    """One int where all lanes share their properties."""
    if isinstance(meta, int):
        return meta
    first = meta.flat[0]
    return int(first) if (meta == first).all() else meta


def _cuts(value: Value) -> list[int]:
    if not isinstance(value, Pieces):
        return [width(value)]
    cuts, total = [], 0
    for part in value.parts:
        total += width(part)
        cuts.append(total)
    return cuts


def cut(value: Value, low: int, bits: int) -> Value:
    """The `bits` bits of the value that start at bit `low`."""
    if low == 0 and bits == width(value):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype == np.bool_:
            raise ValueError("a predicate has no bits to cut")
        return (
            (value >> value.dtype.type(low)).astype(UNSIGNED[bits])
            if bits in UNSIGNED and bits > 1
            else _odd_cut(value, low, bits)
        )
    if isinstance(value, Pieces):
        return _cut_pieces(value, low, bits)
    special = other_form(value)
    if special is not None:
        return special.cut(low, bits)  # type: ignore[no-any-return]
    part = value.part(low, bits)
    return _cut_lanes(value, low, bits) if part is None else part


def _odd_cut(value: Array, low: int, bits: int) -> Array:
    raise ValueError(f"no register is {bits} bits wide")


def _cut_pieces(value: Pieces, low: int, bits: int) -> Value:
    parts: list[Value] = []
    start = 0
    for part in value.parts:
        end = start + width(part)
        first, last = max(start, low), min(end, low + bits)
        if first < last:
            parts.append(cut(part, first - start, last - first))
        start = end
    return concat(parts)


def _cut_lanes(value: Lanes, low: int, bits: int) -> Lanes:
    meta = value.meta
    if isinstance(meta, int):
        form = meta & (FORM | ABSORBED)
        if form == LEAF and low % 8 == 0 and bits % 8 == 0:
            result = Lanes(bits, value.words + np.uint64(low // 8), LEAF | (meta & STICKY))
        elif form == KNOWN:
            result = _cut_known(value, low, bits)
        else:
            result = term(bits, f"slice {low} {bits} of {value.bits}", [value], exact=True)
    else:
        form_array = meta & np.uint32(FORM)
        result = term(bits, f"slice {low} {bits} of {value.bits}", [value], exact=True)
        if low % 8 == 0 and bits % 8 == 0:
            leaf = Lanes(bits, value.words + np.uint64(low // 8), LEAF | (meta & np.uint32(STICKY)))
            result = as_lanes(choose(form_array == LEAF, leaf, result))
        result = as_lanes(choose(form_array == KNOWN, _cut_known(value, low, bits), result))
    result.origin = (value, low)
    return result


def _cut_known(value: Lanes, low: int, bits: int) -> Lanes:
    numbers = (value.words[0] >> np.uint64(low)) & np.uint64((1 << bits) - 1)
    meta = known_meta(numbers, bits)
    return Lanes(bits, np.broadcast_to(numbers[None], (2, *numbers.shape)), meta | (value.meta & STICKY))


def concat(parts: Sequence[Value]) -> Value:
    """The values side by side, least significant first; known parts and slices of one value are joined."""
    flat: list[Array | Lanes] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Pieces) else (part,))
    merged = _merge_neighbours(flat)
    if len(merged) == 1:
        return merged[0]
    return Pieces(tuple(merged))


def _merge_neighbours(parts: list[Array | Lanes]) -> list[Array | Lanes]:
    result: list[Array | Lanes] = []
    index = 0
    while index < len(parts):
        part = parts[index]
        if isinstance(part, Lanes) and part.origin is not None and part.origin[1] == 0:
            whole, total, end = part.origin[0], 0, index
            while end < len(parts) and total < whole.bits:
                other = parts[end]
                if not (isinstance(other, Lanes) and other.origin == (whole, total)):
                    break
                total += other.bits
                end += 1
            if total == whole.bits:
                result.append(whole)
                index = end
                continue
        result.append(part)
        index += 1
    special = next((part for part in result if isinstance(part, Numbers)), None)
    if len(result) > 1 and special is not None and all(isinstance(part, np.ndarray | Numbers) for part in result):
        return [special.join(result)]
    if len(result) > 1 and all(isinstance(part, np.ndarray) for part in result):
        total_bits = sum(width(part) for part in result)
        if total_bits in UNSIGNED:
            dtype = UNSIGNED[total_bits]
            joined = result[0].astype(dtype)  # type: ignore[union-attr]
            shift = width(result[0])
            for part in result[1:]:
                joined = joined | (part.astype(dtype) << dtype(shift))  # type: ignore[union-attr]
                shift += width(part)
            return [joined]
    return result


def _join(pieces: Pieces) -> Lanes:
    parts = [as_lanes(part) for part in pieces.parts]
    first = parts[0]
    if all(isinstance(part.meta, int) and part.meta & FORM == LEAF for part in parts):
        offset = 0
        for part in parts:
            if part is not first and not np.array_equal(part.words, first.words + np.uint64(offset)):
                break
            offset += part.bits // 8
        else:
            return Lanes(pieces.bits, first.words, LEAF | sticky(*parts))
    layout = " ".join(str(part.bits) for part in parts)
    meta: Meta = 0
    low = pieces.parts[0]
    if len(parts) == 2 and parts[0].bits == 16 and isinstance(low, np.ndarray) and not low.any():
        meta = parts[1].meta & (NOT_MINUS_ZERO | NOT_NEGATIVE)
        zero_safe = parts[1].meta & PLUS_ZERO
        meta = meta | (NOT_MINUS_ZERO if isinstance(zero_safe, int) and zero_safe else 0)
    joined = term(pieces.bits, f"concat {layout}", parts, meta)
    return _exact_lanes(parts, pieces.bits, joined)


def _exact_lanes(parts: list[Lanes], bits: int, joined: Lanes) -> Lanes:
    """The joined term, but for lanes in which all parts are leaves side by side, or all are known."""
    forms = [part.meta & FORM for part in parts]
    if bits > 64 or any(isinstance(form, int) and form not in (LEAF, KNOWN) for form in forms):
        return joined
    first = parts[0].words[0]
    leaf: Any = True
    known: Any = True
    number = np.zeros((1, 1), dtype=np.uint64)
    low = 0
    for part, form in zip(parts, forms, strict=True):
        leaf = leaf & (form == LEAF) & (part.words[0] == first + np.uint64(low // 8))
        known = known & (form == KNOWN)
        number = number | part.words[0] << np.uint64(low)
        low += part.bits
    inherited = sticky(*parts)
    for mask, words, flags in ((leaf, first, LEAF), (known, number, known_meta(number, bits))):
        if np.any(mask):
            both = np.broadcast_to(words[None], (2, *words.shape))
            meta = uniform(select_meta(mask, flags | inherited, joined.meta))
            joined = Lanes(bits, np.where(mask, both, joined.words), meta)
    return joined


def take_threads(value: Value, index: Array) -> Value:
    """The value each thread reads from thread `index` of its own block; index has shape (1, threads) or (blocks, threads)."""
    if isinstance(value, np.ndarray):
        return _take(value, index)
    if isinstance(value, Pieces):
        return concat([take_threads(part, index) for part in value.parts])
    special = other_form(value)
    if special is not None:
        return special.take_threads(index)  # type: ignore[no-any-return]
    meta = value.meta
    words = np.stack([_take(value.words[0], index), _take(value.words[1], index)])
    return Lanes(value.bits, words, meta if isinstance(meta, int) else _take(meta, index))


def _take(array: Array, index: Array) -> Array:
    if array.shape[1] == 1:
        return array
    if index.shape[0] == 1:
        return array[:, index[0]]
    return np.take_along_axis(np.broadcast_to(array, (index.shape[0], array.shape[1])), index, axis=1)
