"""What a register holds in every lane of a batch of blocks.

A value is one of three things:

- a NumPy array of unsigned integers (bool for a predicate): every lane's bits are known;
- `SymbolicVector`: each lane holds a known number, the initial content of memory at an address (a leaf), or a term,
  with a word of properties that the canonical rules need;
- `PackedVector`: a little-endian row of narrower values, for registers packed from halves or bytes.

Arrays have the shape (blocks, threads); either axis may have length 1 where all lanes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.values import hashing

Array: TypeAlias = npt.NDArray[Any]
Flags: TypeAlias = int | Array
"""Properties: one number where all lanes share them, else uint32 of the shape (blocks, threads)."""

KIND = 3
CONST, LOAD, TERM, AC_TERMS = 0, 1, 2, 3

NAN_BITS = 1 << 2
"""The value depends on the bits of what may be a NaN that arithmetic made: each architecture has its own."""
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
NONDETERMINISTIC = 1 << 10
"""The value depends on the order in which threads happened to run."""
WIDENED = 1 << 11
"""The value is an fp32 that holds the payload, an fp16, exactly."""
MODULO_NAN_PAYLOAD = 1 << 12
"""A rule gave back an operand for an arithmetic result: equal but for the bits of a NaN."""
WITH_CONSTANT = 1 << 13
"""A set of maxima or minima that also holds a known number (`extrema`)."""
ABSORBED = WITH_IDENTITY | WITH_CONSTANT
IS_ZERO = 1 << 14
"""The value is a zero of one sign or the other (under an assumption)."""
QUIET = 1 << 15
"""The value, read as a floating-point number, is no signalling NaN."""
INTEGER = 1 << 31
"""A term of an operation on integers: its bits are those of no NaN that an architecture makes."""
VALUE = ~(MODULO_NAN_PAYLOAD | QUIET | INTEGER | NAN_BITS) & 0xFFFFFFFF
"""The properties that decide which number a value is."""
STICKY = POISON | NONDETERMINISTIC
"""The properties of a value that is not determined."""
INHERITED = STICKY | NAN_BITS
"""The properties that a result has from each of its operands."""
FORM = KIND | PLUS_ZERO | NEGATED | WIDENED
OPERATION_SHIFT = 16
"""Bits 16 to 23 number the operation of a set; bits 24 to 30 are free for memory."""
FLOAT_AC_TERMS = 16
"""Operations up to this number are of floating-point numbers, those from here to `WINNERS` of integers."""
GUARDED, GUARDED_CONSTANT = 254, 255
"""The numbers of sets that are guarded values (`guards`): of a term, and of a known number."""
ARGMINMAX = 240
"""From here on, sets of elements of which one wins, and its place (`winners`)."""

UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class TermRecorder(Protocol):
    """What a value carries in a run whose terms are recorded (`recording.Recorder`)."""

    def add(self, name: str, result: SymbolicVector, operands: Sequence[SymbolicVector], commutes: bool) -> None:
        """Records that the operation `name` made `result` of `operands`."""


class SymbolicVector:
    """Lanes of `bits` width: payload words of shape (2, blocks, threads) and properties.

    The payload of a known number or of a leaf is that number or address in both words; of a term, its hash;
    of a set, the sum of its members' hashes.  `meta` is one int where all lanes share it.
    `origin` is the wider value of which this one is the bits from that bit on, `partly` such a one and the lanes in
    which that holds.  `chosen` remembers the value last chosen between this one and another, and by what.  `beside`
    says in which lanes, beside which guard, the value may be taken for another one (`guards`).
    `extends` is the narrower integer, with its type, of which this one has the sign in front.  `recorder` is that of
    the replay in which the value was made, None anywhere else.
    """

    __slots__ = (
        "bits",
        "bundle",
        "cached_hash",
        "flags",
        "guarded_alternative",
        "last_selection",
        "last_take",
        "partial_slice_of",
        "recorder",
        "sign_extension_of",
        "slice_of",
        "words",
    )  # fmt: skip

    def __init__(self, bits: int, words: hashing.Words, flags: Flags) -> None:
        self.bits, self.words, self.flags = bits, words, flags
        self.slice_of: tuple[SymbolicVector, int] | None = None
        self.partial_slice_of: tuple[SymbolicVector, int, Array] | None = None
        self.guarded_alternative: tuple[Array, Array, SymbolicVector] | None = None
        self.last_selection: tuple[Array | SymbolicVector, SymbolicVector, SymbolicVector] | None = None
        self.bundle: tuple[SymbolicVector, int] | None = None
        self.last_take: tuple[bytes, SymbolicVector] | None = None
        self.cached_hash: hashing.Words | None = None
        self.sign_extension_of: tuple[Value, str] | None = None
        self.recorder: TermRecorder | None = None

    def part(self, low: int, bits: int) -> Value | None:
        """The `bits` bits from bit `low` where the value knows how to cut itself, else None."""
        return None


class PackedVector:
    """A row of narrower values, least significant first.

    `whole` says in which lanes, if any, the parts are slices of one term: the one that `joined` holds there.
    """

    __slots__ = ("bits", "joined", "parts", "whole")

    def __init__(self, parts: tuple[Array | SymbolicVector, ...]) -> None:
        self.parts = parts
        self.bits = sum(width(part) for part in parts)
        self.joined: SymbolicVector | None = None
        self.whole: Array | None = None


Value: TypeAlias = Array | SymbolicVector | PackedVector


class LazyIntegers:
    """Known numbers kept in another form than one array, standing wherever an array may (`engine.block_affine`)."""

    __slots__ = ()

    def known_numbers(self) -> Array | None:
        """The numbers as a decision or an address: what `Machine.known` gives back."""
        raise NotImplementedError

    def symbolic_vector(self) -> SymbolicVector:
        """The numbers among data."""
        raise NotImplementedError

    def apply(self, values: Sequence[Any], evaluate: Callable[..., Array]) -> Any:
        """The function of known numbers, self among them, or None where this form has no way to keep its result."""
        return None

    def extract(self, low: int, bits: int) -> Value:
        """See `pieces.cut`."""
        raise NotImplementedError

    def blend(self, mask: Array, new: Any, old: Any) -> Value:
        """See `pieces.choose`; self is `new` or `old`."""
        raise NotImplementedError

    def concat(self, parts: Sequence[Any]) -> Any:
        """Known parts side by side, least significant first; self is one of them."""
        raise NotImplementedError

    def take_threads(self, index: Array) -> Value:
        """See `pieces.take_threads`."""
        raise NotImplementedError

    def numbers_of_thread(self, thread: int) -> Array:
        """The numbers of one thread."""
        raise NotImplementedError

    def equality_key(self) -> int:
        """A key that two numbers of one thread share only where they are equal in every block."""
        raise NotImplementedError


def lazy_integers(value: object) -> LazyIntegers | None:
    """The value if it is known numbers in a form of their own."""
    return value if isinstance(value, LazyIntegers) else None


def width(value: Value) -> int:
    """The value's width in bits (1 for a predicate)."""
    if isinstance(value, np.ndarray):
        return 1 if value.dtype == np.bool_ else value.dtype.itemsize * 8
    return value.bits


def constant_flags(numbers: Array, bits: int) -> Flags:
    """The properties of known numbers seen as floating-point patterns of `bits` bits."""
    if bits == 1:
        return CONST
    sign = 1 << (bits - 1)
    if numbers.size == 1:
        number = int(numbers.reshape(())[()])
        return CONST | (NOT_MINUS_ZERO if number != sign else 0) | (NOT_NEGATIVE if number < sign else 0)
    wide = numbers.astype(np.uint64, copy=False)
    flags = np.where(wide != np.uint64(sign), np.uint32(NOT_MINUS_ZERO), np.uint32(0))
    flags |= np.where(wide < np.uint64(sign), np.uint32(NOT_NEGATIVE), np.uint32(0))
    return flags


def constant_vector(numbers: Array) -> SymbolicVector:
    """Known numbers in the form of lanes."""
    bits = width(numbers)
    wide = numbers.astype(np.uint64, copy=False)
    return SymbolicVector(bits, np.broadcast_to(wide[None], (2, *wide.shape)), constant_flags(numbers, bits))


def constants_of(lanes: SymbolicVector) -> Array:
    """The known numbers of lanes whose kind is KNOWN, in their unsigned type."""
    numbers: Array = lanes.words[0].astype(UNSIGNED[lanes.bits])
    return numbers


def as_array_if_constant(value: Value) -> Value:
    """The plain array where every lane is known, else the value itself."""
    if isinstance(value, SymbolicVector) and value.bits in UNSIGNED:
        flags = value.flags
        known = flags & (FORM | STICKY) == CONST if isinstance(flags, int) else not (flags & (FORM | STICKY)).any()
        if known:
            return constants_of(value)
    return value


def constant_mask(lanes: SymbolicVector) -> bool | Array:
    """Which lanes hold a known number."""
    flags = lanes.flags
    if isinstance(flags, int):
        return flags & (FORM | STICKY) == CONST
    known: Array = (flags & np.uint32(FORM | STICKY)) == CONST
    return known


def sticky_flags(*lanes: SymbolicVector) -> Flags:
    """The properties that every result inherits."""
    result: Flags = 0
    for each in lanes:
        result = result | (each.flags & INHERITED)
    return result


def clear_flags(meta: Flags, flags: int) -> Flags:
    """Properties with some of them cleared."""
    return meta & ~flags if isinstance(meta, int) else meta & np.uint32(~flags & 0xFFFFFFFF)


def select_flags(mask: Array, new: Flags, old: Flags) -> Flags:
    """Lane by lane: `new` where the mask is set."""
    if isinstance(new, int) and isinstance(old, int) and new == old:
        return new
    return np.where(
        mask, np.uint32(new) if isinstance(new, int) else new, np.uint32(old) if isinstance(old, int) else old
    )


def uniform_flags(flags: Flags) -> Flags:
    """One int where all lanes share their properties."""
    if isinstance(flags, int):
        return flags
    first = flags.flat[0]
    return int(first) if (flags == first).all() else flags


def equals_constant(lanes: SymbolicVector, number: int) -> Array | Literal[False]:
    """Which lanes are known to hold `number`; False where none does."""
    known = constant_mask(lanes)
    if known is False:
        return False
    equal = lanes.words[0] == np.uint64(number)
    found = equal if known is True else equal & known
    return found if found.any() else False


def has_flag(lanes: SymbolicVector, flag: int) -> bool | Array:
    """Which lanes have one of these properties."""
    found = lanes.flags & flag
    return found != 0


def nonempty(mask: bool | Array) -> bool | Array:
    """The mask, or False where it is set in no lane."""
    return mask if isinstance(mask, bool) or mask.any() else False


def blend(mask: bool | Array, new: SymbolicVector, old: SymbolicVector) -> SymbolicVector:
    """Lane by lane: `new` where the mask is set; the width is that of `old`."""
    if isinstance(mask, bool):
        return new if mask else old
    if mask.all():
        return new
    flags = uniform_flags(select_flags(mask, new.flags, old.flags))
    return _with_recorder(
        new.recorder or old.recorder, SymbolicVector(old.bits, np.where(mask, new.words, old.words), flags)
    )


def _with_recorder(recorder: TermRecorder | None, lanes: SymbolicVector) -> SymbolicVector:
    lanes.recorder = recorder
    return lanes


def with_flags(lanes: SymbolicVector, flags: Flags) -> SymbolicVector:
    """The lanes with more properties."""
    return _with_recorder(lanes.recorder, SymbolicVector(lanes.bits, lanes.words, lanes.flags | flags))


def without_flags(lanes: SymbolicVector, flags: int) -> SymbolicVector:
    """The lanes without some of their properties."""
    return _with_recorder(lanes.recorder, SymbolicVector(lanes.bits, lanes.words, clear_flags(lanes.flags, flags)))


def clear_flags_where(flags: Flags, flag: int, when: int) -> Flags:
    """Properties with `flag` cleared wherever `when` is set."""
    if isinstance(flags, int):
        return flags & ~flag if flags & when else flags
    return np.where((flags & np.uint32(when)) != 0, flags & np.uint32(~flag & 0xFFFFFFFF), flags)


def plus_zero(lanes: SymbolicVector) -> SymbolicVector:
    """X + (+0)."""
    return SymbolicVector(
        lanes.bits, lanes.words, clear_flags_where(lanes.flags | PLUS_ZERO, PLUS_ZERO, NOT_MINUS_ZERO)
    )


def implied_flags(positive: Flags) -> Flags:
    """A value that is never negative is never -0: NOT_MINUS_ZERO where `positive` is set."""
    if isinstance(positive, int):
        return NOT_MINUS_ZERO if positive else 0
    return np.where(positive != 0, np.uint32(NOT_MINUS_ZERO), np.uint32(0))
