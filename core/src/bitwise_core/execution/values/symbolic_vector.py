"""The value of a register in every lane of a batch of blocks.

A value is one of three things:

- a NumPy array of unsigned integers (bool for a predicate): the bits are constant in every lane;
- `SymbolicVector`: each lane holds a constant, a load (the initial content of memory at an address), or a term, with a
  word of flags that the canonical rules need;
- `PackedVector`: a little-endian sequence of narrower values, for registers packed from halves or bytes.

Arrays have the shape (blocks, threads).  Either axis has length 1 if all lanes along it agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.values import hashing

Array: TypeAlias = npt.NDArray[Any]
Flags: TypeAlias = int | Array
"""Flags: one number if all lanes share them, else uint32 of the shape (blocks, threads)."""

KIND = 3
CONST, LOAD, TERM, AC_TERMS = 0, 1, 2, 3

NAN_BITS = 1 << 2
"""The value depends on the payload of a possible NaN from arithmetic, which differs between architectures."""
POISON = 1 << 3
"""The lane depends on a register or memory that nothing has written."""
PLUS_ZERO = 1 << 4
"""The value is (payload) + (+0): the payload may be -0, the value is not."""
NEGATED = 1 << 5
"""The value is the payload with its sign flipped."""
NOT_MINUS_ZERO = 1 << 6
"""The payload cannot be -0 (PLUS_ZERO is never set together with this flag)."""
NOT_NEGATIVE = 1 << 7
"""The value is NaN or its sign bit is clear."""
HALF_RANGE = 1 << 8
"""The value was widened from fp16: a product of two such values does not underflow in fp32."""
WITH_IDENTITY = 1 << 9
"""An AC term that also has its operation's identity element (an infinity) as a member."""
NONDETERMINISTIC = 1 << 10
"""The value depends on the order in which threads run."""
WIDENED = 1 << 11
"""The value is an fp32 that holds the payload, an fp16, exactly."""
CANONICAL_NAN = 1 << 12
"""The value is (payload, with its flags), except that a NaN of fp16, fp32 or fp64, by width, is the canonical NaN."""
WITH_CONSTANT = 1 << 13
"""A set of maxima or minima that also has a constant as a member (`values.sets.minmax`)."""
ABSORBED = WITH_IDENTITY | WITH_CONSTANT
UNSPECIFIED_NAN = 1 << 14
"""The value depends on bits of a NaN that no document specifies: an assembler may return an operand for a result."""
QUIET = 1 << 15
"""The value, interpreted as a floating-point number, is not a signalling NaN."""
INTEGER = 1 << 31
"""A term whose bits are not those of an arithmetic NaN: of an integer operation, or of moved bits.

With a mark, a NaN has either the bits of the term or those of the canonical NaN, as the assembler chooses.
"""
CANONICAL_BF16_NAN = 1 << 29
"""The same for a NaN of bf16: in a value of 16 bits, or in the high half of one of 32 bits whose low half is zero."""
FLIPPED_NAN = 1 << 30
"""With one of the former two: the sign of the canonical NaN is flipped."""
NAN_MARK = CANONICAL_NAN | CANONICAL_BF16_NAN | FLIPPED_NAN
"""The mark of a value whose NaNs are not those of its payload.

Operations of a format ignore marks of that format (`values.floats.nan_marks`); operations that read bits do not.
"""
VALUE = ~(NAN_MARK | QUIET | INTEGER | NAN_BITS | UNSPECIFIED_NAN) & 0xFFFFFFFF
"""The flags that determine which number a value is."""
STICKY = POISON | NONDETERMINISTIC
"""The flags of a value that is undefined or nondeterministic."""
INHERITED = STICKY | NAN_BITS | UNSPECIFIED_NAN
"""The flags that a result inherits from each of its operands."""
WRAPPERS = PLUS_ZERO | NEGATED | WIDENED
"""The flags that hold an operation on the payload."""
NUMBER_FORM = KIND | WRAPPERS
"""The flags that say what the payload is, for operations of the value's own format."""
FORM = NUMBER_FORM | NAN_MARK
"""The flags that say what the payload is, NaNs included."""
OPERATION_SHIFT = 16
"""Bits 16 to 23 hold the operation of an AC term; bits 24 to 28 are free for use by memories."""
FLOAT_AC_TERMS = 17
"""AC operations up to this number are floating-point, those from here to `ARGMINMAX` are on integers."""
CHAINED = 1 << OPERATION_SHIFT
"""With TERM: the payload is a sum over a chain of matrix steps that is not mixed (`matrix_steps.matrix_chains`)."""
CUT = 2 << OPERATION_SHIFT
"""With CHAINED: the last step cuts results to fewer bits than their format has (`MmaStep.cuts`)."""
GUARDED, GUARDED_CONSTANT = 254, 255
"""Operation numbers of guarded values (`values.floats.nan_guards`): of a term, and of a constant."""
ARGMINMAX = 240
"""Operation numbers from here on: the extremum of a set of elements, or its index (`values.sets.argminmax`)."""

UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class TermRecorder(Protocol):
    """The recorder that a value carries in a recorded run (`term_recorder.Recorder`)."""

    def add(self, name: str, result: SymbolicVector, operands: Sequence[SymbolicVector], commutes: bool) -> None:
        """Record that the operation `name` made `result` from `operands`."""


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The operation that made a value, in some lanes (True: in all), and its operands.

    Which operations are kept, and how deep, follows from the patterns of the rules
    (`rewriting.rule_plans.kept_depths`).
    """

    name: str
    operands: tuple[SymbolicVector, ...]
    lanes: Literal[True] | Array = True


class SymbolicVector:
    """Lanes of `bits` width: payload words of shape (2, blocks, threads) and `flags`.

    The payload of a constant or of a load is that number or address in both words; of a term, its hash; of an AC term,
    the sum of its members' hashes.  `flags` is one int if all lanes share them.

    Structure that is kept next to the hash:

    - `origins`: the operations that made the value, each for its own lanes, with their operands as deep as the patterns
      of the rules reach.
    - `bundle`: a whole value of which this one is an element, and the index of the element.
    - `last_take`: the last permutation of this value's threads and its result.
    - `cached_numbers`: the numbers of the constant lanes, once they have been looked up (`constant_numbers`).
    - `cached_constants`: which lanes are constant, once that has been computed (`constant_mask`).
    - `cached_union`, `cached_intersection`: the flags that some lane has, and those that every lane has, once they have
      been computed (`flags_of_some_lane`, `flags_of_every_lane`).
    - `maximum`: no lane exceeds this number as an unsigned integer; None where nothing is known (`integers.bounds`).
    - `cached_hash`: the hash of the payload, once it has been computed.
    - `recorder`: the recorder of the recorded run in which the value was made, else None.
    """

    __slots__ = (
        "bits",
        "bundle",
        "cached_constants",
        "cached_hash",
        "cached_intersection",
        "cached_numbers",
        "cached_union",
        "flags",
        "last_take",
        "maximum",
        "origins",
        "recorder",
        "words",
    )  # fmt: skip

    def __init__(self, bits: int, words: hashing.Words, flags: Flags) -> None:
        self.bits, self.words, self.flags = bits, words, flags
        self.bundle: tuple[SymbolicVector, int] | None = None
        self.last_take: tuple[bytes, SymbolicVector] | None = None
        self.cached_hash: hashing.Words | None = None
        self.recorder: TermRecorder | None = None
        self.origins: tuple[Origin, ...] = ()
        self.cached_numbers: frozenset[int] | Literal[False] | None = False
        self.cached_constants: bool | Array | None = None
        self.cached_union: int | None = None
        self.cached_intersection: int | None = None
        self.maximum: int | None = None

    def __deepcopy__(self, memo: object) -> SymbolicVector:
        """Return the value itself: values are never changed."""
        return self

    def settled(self) -> Value:
        """Return the value itself, or what a value that is computed when it is read turns out to be."""
        return self

    def in_lanes(self, mask: Array | None) -> Value:
        """Return a value that is the same in the lanes of a mask (None: in all); other lanes are arbitrary."""
        return self.settled()

    def part(self, low: int, bits: int) -> Value | None:
        """Return the `bits` bits from bit `low` if the value has its own way to extract them, else None."""
        return None

    def extended(self, bits: int) -> Value | None:
        """Return the value with zeros above it, in `bits` bits, if it has its own way to extend it, else None."""
        return None

    def with_zeros_above(self, whole: SymbolicVector) -> SymbolicVector:
        """Return `whole`, of which this value is the low bits and whose others are zeros, with what is kept here."""
        return whole

    def taken(self, index: Array, result: SymbolicVector) -> SymbolicVector:
        """Return `result`, what threads read of this value in thread `index`, with what is kept beside the value."""
        return result

    def blended(self, mask: Array, other: SymbolicVector, result: SymbolicVector) -> SymbolicVector:
        """Return `result`, this value where the mask is set, else `other`, with what is kept beside this value."""
        return result


class PackedVector:
    """A sequence of narrower values, least significant first.

    `whole` marks the lanes, if any, in which the parts are the slices of a single term; `joined` holds that term, or a
    function that returns it.
    """

    __slots__ = ("bits", "joined", "parts", "whole")

    def __init__(self, parts: tuple[Array | SymbolicVector, ...]) -> None:
        self.parts = parts
        self.bits = sum(width(part) for part in parts)
        self.joined: SymbolicVector | Callable[[], SymbolicVector] | None = None
        self.whole: Array | None = None


Value: TypeAlias = Array | SymbolicVector | PackedVector


class LazyIntegers:
    """Constants in another representation than one array, usable wherever an array is.

    Implementations are `checker.block_symmetry.block_affine` and those of plugins.
    """

    __slots__ = ()

    def known_numbers(self, active: Array | None = None) -> Array | None:
        """Return the numbers as an array for a decision or an address (see `Machine.known`), or None.

        They must be right in the `active` lanes, None for all of them.
        """
        raise NotImplementedError

    def symbolic_vector(self) -> SymbolicVector:
        """Return the numbers as a symbolic vector, for use as data."""
        raise NotImplementedError

    def apply(self, values: Sequence[Any], evaluate: Callable[..., Array]) -> Any:
        """Return a function of constants, self among them, or None if this representation cannot hold the result."""
        return None

    def extract(self, low: int, bits: int) -> Value:
        """See `packing.extract`."""
        raise NotImplementedError

    def blend(self, mask: Array, new: Any, old: Any) -> Value:
        """See `packing.blend_values`; self is `new` or `old`."""
        raise NotImplementedError

    def concat(self, parts: Sequence[Any]) -> Any:
        """Return constant parts concatenated, least significant first; self is one of them."""
        raise NotImplementedError

    def take_threads(self, index: Array) -> Value:
        """See `lane_selection.take_threads`."""
        raise NotImplementedError

    def numbers_of_thread(self, thread: int) -> Array:
        """Return the numbers of one thread."""
        raise NotImplementedError

    def equality_key(self) -> int:
        """Return a key that two numbers of one thread share only if they are equal in every block."""
        raise NotImplementedError


def lazy_integers(value: object) -> LazyIntegers | None:
    """Return the value if it is a LazyIntegers, else None."""
    return value if isinstance(value, LazyIntegers) else None


def width(value: Value) -> int:
    """Return the value's width in bits (1 for a predicate)."""
    if isinstance(value, np.ndarray):
        return 1 if value.dtype == np.bool_ else value.dtype.itemsize * 8
    return value.bits


def settled(value: Value) -> Value:
    """Return a value in the form in which it was computed; see `SymbolicVector.settled`."""
    return value.settled() if isinstance(value, SymbolicVector) else value


def some(mask: Array) -> bool:
    """Return whether an element is set; NumPy's own `any` takes three times as long on the lanes of a block."""
    return bool(np.count_nonzero(mask))


def every(mask: Array) -> bool:
    """Return whether all elements are set; see `some`."""
    return bool(np.count_nonzero(mask) == mask.size)


def both_words(numbers: Array) -> hashing.Words:
    """Return the payload of constants or loads: these numbers in both words."""
    words: hashing.Words = numbers.astype(np.uint64, copy=False)
    if not words.flags.c_contiguous:
        return words[None].repeat(2, axis=0)
    found: hashing.Words = np.ndarray((2, *words.shape), np.uint64, words, 0, (0, *words.strides))
    found.setflags(write=False)
    return found


def load_addresses(value: object) -> Array | None:
    """Return the addresses of the loads that a value consists of; None for a value with anything else in some lane.

    In the launch-parametric analysis the words of a load may hold more than its address, and differ.
    """
    if type(value) is not SymbolicVector or not isinstance(value.flags, int) or value.flags != LOAD:
        return None
    words = value.words
    return words[0] if words.strides[0] == 0 or np.array_equal(words[0], words[1]) else None


def constant_flags(numbers: Array, bits: int) -> Flags:
    """Return the flags of constants interpreted as floating-point patterns of `bits` bits."""
    if bits == 1:
        return CONST
    sign = 1 << (bits - 1)
    if numbers.size == 1:
        number = int(numbers.reshape(())[()])
        return CONST | (NOT_MINUS_ZERO if number != sign else 0) | (NOT_NEGATIVE if number < sign else 0)
    wide = numbers.astype(np.uint64, copy=False)
    flags: Array = np.multiply(wide != np.uint64(sign), np.uint32(NOT_MINUS_ZERO))
    flags |= np.multiply(wide < np.uint64(sign), np.uint32(NOT_NEGATIVE))
    return flags


def constant_vector(numbers: Array) -> SymbolicVector:
    """Return constants as a symbolic vector."""
    bits = width(numbers)
    return SymbolicVector(bits, both_words(numbers), constant_flags(numbers, bits))


def constants_of(lanes: SymbolicVector) -> Array:
    """Return the numbers of constant lanes, in their unsigned type."""
    numbers: Array = lanes.words[0].astype(UNSIGNED[lanes.bits])
    return numbers


def as_array_if_constant(value: Value) -> Value:
    """Return a plain array if every lane is constant, else the value itself."""
    if isinstance(value, SymbolicVector) and value.bits in UNSIGNED:
        flags = value.flags
        found = flags if isinstance(flags, int) else flags_of_some_lane(value)
        if found & (FORM | STICKY) == CONST:
            return constants_of(value)
    return value


def flags_of_lanes(flags: Flags, shape: tuple[int, ...]) -> Array:
    """Return the flags of each lane of a shape."""
    return np.broadcast_to(np.uint32(flags) if isinstance(flags, int) else flags, shape)


def chosen_lanes(lanes: SymbolicVector, chosen: Array) -> SymbolicVector:
    """Return the chosen lanes, of a mask of all lanes, as a value of shape (1, lanes)."""
    flags = lanes.flags
    if lanes.words.shape[1:] == chosen.shape:
        # On several lanes of many, a list of places takes a fraction of the time of a mask.
        words = lanes.words.reshape(2, 1, -1).take(np.flatnonzero(chosen), axis=2)
    else:
        words = np.broadcast_to(lanes.words, (2, *chosen.shape))[:, chosen][:, None]
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, chosen.shape)[chosen][None]
    return SymbolicVector(lanes.bits, words, flags)


def flags_of_some_lane(lanes: SymbolicVector) -> int:
    """Return the flags that some lane has."""
    if lanes.cached_union is None:
        flags = lanes.flags
        lanes.cached_union = flags if isinstance(flags, int) else int(np.bitwise_or.reduce(flags, axis=None))
    return lanes.cached_union


def flags_of_every_lane(lanes: SymbolicVector) -> int:
    """Return the flags that every lane has."""
    if lanes.cached_intersection is None:
        flags = lanes.flags
        lanes.cached_intersection = flags if isinstance(flags, int) else int(np.bitwise_and.reduce(flags, axis=None))
    return lanes.cached_intersection


def constant_mask(lanes: SymbolicVector) -> bool | Array:
    """Return which lanes hold a constant; False if none does."""
    flags = lanes.flags
    if isinstance(flags, int):
        return flags & (FORM | STICKY) == CONST
    if lanes.cached_constants is None:
        lanes.cached_constants = nonempty((flags & np.uint32(FORM | STICKY)) == CONST)
    return lanes.cached_constants


def constant_numbers(lanes: SymbolicVector) -> frozenset[int] | None:
    """Return the numbers of the lanes that hold a constant, None if there are several different ones."""
    if lanes.cached_numbers is False:
        known = constant_mask(lanes)
        number = None if known is False else common_number(lanes.words[0], known)
        lanes.cached_numbers = frozenset() if known is False else None if number is None else frozenset([number])
    return lanes.cached_numbers


def common_number(numbers: Array, where: bool | Array) -> int | None:
    """Return the one number in all lanes of `where`, None if there are several.  At least one lane must be set."""
    if numbers.size == 1 or isinstance(where, bool):
        first: int = numbers.item(0)
        return first if numbers.size == 1 or every(numbers == first) else None
    if numbers.shape != where.shape:
        numbers, where = np.broadcast_arrays(numbers, where)
    first = numbers.item(int(where.argmax()))
    return first if every((numbers == first) | ~where) else None


def sticky_flags(*lanes: SymbolicVector) -> Flags:
    """Return the flags that every result inherits."""
    result: Flags = 0
    for each in lanes:
        if flags_of_some_lane(each) & INHERITED:
            result = result | (each.flags & INHERITED)
    return result


def clear_flags(flags: Flags, cleared: int) -> Flags:
    """Return flags with some of them cleared."""
    return flags & ~cleared if isinstance(flags, int) else flags & np.uint32(~cleared & 0xFFFFFFFF)


def select_flags(mask: Array, new: Flags, old: Flags) -> Flags:
    """Select per lane: `new` where the mask is set, else `old`."""
    if isinstance(new, int) and isinstance(old, int) and new == old:
        return new
    return np.where(
        mask, np.uint32(new) if isinstance(new, int) else new, np.uint32(old) if isinstance(old, int) else old
    )


def uniform_flags(flags: Flags) -> Flags:
    """Return one int if all lanes share their flags."""
    if isinstance(flags, int):
        return flags
    first: int = flags.item(0)
    return first if every(flags == first) else flags


def settle_flags(lanes: SymbolicVector) -> None:
    """Hold the flags as one int if all lanes share them."""
    if not isinstance(lanes.flags, int) and flags_of_some_lane(lanes) == flags_of_every_lane(lanes):
        lanes.flags = flags_of_some_lane(lanes)


def equals_constant(lanes: SymbolicVector, number: int) -> Array | Literal[False]:
    """Return which lanes hold the constant `number`; False if none does."""
    numbers = constant_numbers(lanes)
    if numbers is not None and number not in numbers:
        return False
    known = constant_mask(lanes)
    if numbers is not None:
        return known if isinstance(known, np.ndarray) else np.ones((1,) * (lanes.words.ndim - 1), dtype=bool)
    found: Array = (lanes.words[0] == np.uint64(number)) & known
    return found if some(found) else False


def has_flag(lanes: SymbolicVector, flag: int) -> bool | Array:
    """Return which lanes have one of these flags; False if none does."""
    if not flags_of_some_lane(lanes) & flag:
        return False
    return True if flags_of_every_lane(lanes) & flag else np.not_equal(lanes.flags & np.uint32(flag), 0)


def any_flag(flags: Flags) -> bool:
    """Return whether some lane has a flag."""
    return flags != 0 if isinstance(flags, int) else some(flags)


def nonempty(mask: bool | Array) -> bool | Array:
    """Return the mask, or False if it is set in no lane."""
    return mask if isinstance(mask, bool) or some(mask) else False


def blend(mask: bool | Array, new: SymbolicVector, old: SymbolicVector) -> SymbolicVector:
    """Select per lane: `new` where the mask is set, else `old`; the width is that of `old`."""
    if isinstance(mask, bool):
        return new if mask else old
    if every(mask):
        return new
    flags = uniform_flags(select_flags(mask, new.flags, old.flags))
    result = SymbolicVector(old.bits, np.where(mask, new.words, old.words), flags)
    result.recorder = new.recorder or old.recorder
    if new.origins or old.origins:
        result.origins = blended_origins(mask, new.origins, old.origins)
    return result


def blended_origins(mask: Array, new: tuple[Origin, ...], old: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """Return the origins of a value that is `new` where the mask is set, else `old`."""
    found = []
    for origins, chosen in ((new, mask), (old, ~mask)):
        for each in origins:
            lanes = chosen if each.lanes is True else each.lanes & chosen
            if some(lanes):
                found.append(Origin(each.name, each.operands, lanes))
    return tuple(found)


HASHED = KIND | WIDENED | ABSORBED | 255 << OPERATION_SHIFT
"""The flags that the hash of a payload depends on."""


def _changed_flags(lanes: SymbolicVector, flags: Flags, changed: Flags) -> SymbolicVector:
    result = SymbolicVector(lanes.bits, lanes.words, flags)
    result.recorder, result.origins = lanes.recorder, lanes.origins
    if isinstance(changed, int) and not changed & HASHED:
        result.cached_hash = lanes.cached_hash
    return result


def with_flags(lanes: SymbolicVector, flags: Flags) -> SymbolicVector:
    """Return the lanes with additional flags."""
    return _changed_flags(lanes, lanes.flags | flags, flags)


def without_flags(lanes: SymbolicVector, flags: int) -> SymbolicVector:
    """Return the lanes without some of their flags."""
    return _changed_flags(lanes, clear_flags(lanes.flags, flags), flags)


def clear_flags_where(flags: Flags, flag: int, when: int) -> Flags:
    """Return flags with `flag` cleared wherever `when` is set."""
    if isinstance(flags, int):
        return flags & ~flag if flags & when else flags
    return np.where((flags & np.uint32(when)) != 0, flags & np.uint32(~flag & 0xFFFFFFFF), flags)


def plus_zero(lanes: SymbolicVector) -> SymbolicVector:
    """Return x + (+0)."""
    return SymbolicVector(
        lanes.bits, lanes.words, clear_flags_where(lanes.flags | PLUS_ZERO, PLUS_ZERO, NOT_MINUS_ZERO)
    )
