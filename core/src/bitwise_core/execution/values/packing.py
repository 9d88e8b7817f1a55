"""Concatenation, extraction and selection of values: operations that move bits and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.integers.linear_hash import CONSTANT, linear_form, with_least_number
from bitwise_core.execution.values.symbolic_vector import (
    ABSORBED,
    CANONICAL_BF16_NAN,
    CANONICAL_NAN,
    CONST,
    FLIPPED_NAN,
    FORM,
    INHERITED,
    INTEGER,
    KIND,
    LOAD,
    NAN_BITS,
    NAN_MARK,
    NOT_MINUS_ZERO,
    NOT_NEGATIVE,
    PLUS_ZERO,
    POISON,
    QUIET,
    STICKY,
    TERM,
    UNSIGNED,
    WRAPPERS,
    Array,
    LazyIntegers,
    Origin,
    PackedVector,
    SymbolicVector,
    TermRecorder,
    Value,
    any_flag,
    blend,
    blended_origins,
    both_words,
    clear_flags,
    constant_flags,
    constant_mask,
    constant_vector,
    every,
    has_flag,
    lazy_integers,
    load_addresses,
    nonempty,
    select_flags,
    settled,
    some,
    sticky_flags,
    uniform_flags,
    width,
    with_flags,
)
from bitwise_core.execution.values.term_hash import may_be_moved, nan_bits, term, unsigned_hash
from bitwise_core.numerics import operation


class _Joined(SymbolicVector):
    """The term of a packed vector; its parts are the bits of the packed vector."""

    __slots__ = ("parts",)

    def __init__(self, joined: SymbolicVector, packed: PackedVector) -> None:
        super().__init__(joined.bits, joined.words, joined.flags)
        self.origins, self.recorder, self.cached_hash = joined.origins, joined.recorder, joined.cached_hash
        self.parts = packed.parts

    def part(self, low: int, bits: int) -> Value | None:
        """See `SymbolicVector.part`."""
        packed = PackedVector(self.parts)
        ends = [0, *part_ends(packed)]
        return _extract_packed(packed, low, bits) if low in ends and low + bits in ends else None


def as_symbolic_vector(value: Value) -> SymbolicVector:
    """Return any value as a symbolic vector; the parts of a packed vector are joined into one term or load."""
    if isinstance(value, np.ndarray):
        return constant_vector(value)
    if isinstance(value, SymbolicVector):
        return value
    lazy = lazy_integers(value)
    if lazy is not None:
        return lazy.symbolic_vector()
    if not isinstance(value.joined, SymbolicVector):
        value.joined = _Joined(_concat_term(value), value) if value.joined is None else value.joined()
    return value.joined


def blend_values(mask: Array, new: Value, old: Value) -> Value:
    """Select per lane: `new` where the constant mask is set, else `old`."""
    if isinstance(new, np.ndarray) and isinstance(old, np.ndarray):
        return np.where(mask, new, old)
    if mask.size == 1:
        return new if mask.item() else old
    lazy = lazy_integers(new)
    if lazy is None:
        lazy = lazy_integers(old)
    if lazy is not None:
        return lazy.blend(mask, new, old)
    new, old = settled(new), settled(old)
    if isinstance(new, PackedVector) or isinstance(old, PackedVector):
        ends = sorted(set(part_ends(new)) | set(part_ends(old)))
        starts = [0, *ends[:-1]]
        parts = [
            blend_values(mask, extract(new, low, high - low), extract(old, low, high - low))
            for low, high in zip(starts, ends, strict=True)
        ]
        return _keep_joined_lanes(mask, new, old, concat(parts))
    if new is old:
        return new
    left, right = as_symbolic_vector(new), as_symbolic_vector(old)
    flags = select_flags(mask, left.flags, right.flags)
    result = SymbolicVector(left.bits, np.where(mask, left.words, right.words), uniform_flags(flags))
    result.recorder = left.recorder or right.recorder
    if left.origins or right.origins:
        result.origins = blended_origins(mask, left.origins, right.origins)
    kept = left.blended(mask, right, result)
    return right.blended(~mask, left, result) if kept is result else kept


@dataclass(frozen=True, slots=True)
class Slice:
    """A wider value of which a value is the bits from bit `low` up, in some lanes (True: in all)."""

    whole: SymbolicVector
    low: int
    lanes: bool | Array


def slices_of(value: Value, low: int | None = None) -> tuple[Slice, ...]:
    """Return the wider values that a value is known to be a slice of, bit for bit; from bit `low` if it is given."""
    if not isinstance(value, SymbolicVector) or not value.origins:
        return ()
    found = []
    prefix = "slice." if low is None else f"slice.{low}."
    for each in value.origins:
        lanes = exact_lanes(value, each) if each.name.startswith(prefix) else False
        if lanes is not False:
            found.append(Slice(each.operands[0], int(each.name.split(".")[1]) if low is None else low, lanes))
    return tuple(found)


def is_wide_term(value: SymbolicVector) -> bool:
    """Return whether a value is a term of 32 bits, also beside lanes with numbers, which are folded in every width.

    Parts of loads are loads, in every width too.
    """
    form = value.flags & KIND
    return value.bits == 32 and not np.any(form == LOAD) and not np.all(form == CONST)


_CHANGES = WRAPPERS | NAN_MARK


def exact_lanes(value: SymbolicVector, origin: Origin) -> bool | Array:
    """Return the lanes in which a value is the result of an operation that made it, bit for bit."""
    unchanged = (value.flags & _CHANGES) == 0
    if isinstance(unchanged, bool):
        return origin.lanes if unchanged else False
    lanes = unchanged if origin.lanes is True else unchanged & origin.lanes
    return True if lanes.all() else nonempty(lanes)


def _same_whole(left: SymbolicVector, right: SymbolicVector) -> bool:
    """Return whether two values are equal in every lane."""
    if left is right:
        return True
    return (
        left.bits == right.bits
        and np.array_equal(left.words, right.words)
        and np.array_equal(clear_flags(left.flags, NAN_BITS), clear_flags(right.flags, NAN_BITS))
    )


def _contiguous(parts: Sequence[Array | SymbolicVector], first: Slice) -> Literal[False, True] | Array:
    """Return the lanes in which parts are the consecutive slices of one value, which `first` is of the first part."""
    lanes: Literal[False, True] | Array = first.lanes
    low = first.low
    for part in parts:
        found = next((each for each in slices_of(part, low) if _same_whole(each.whole, first.whole)), None)
        if found is None:
            return False
        if found.lanes is not True:
            lanes = found.lanes if lanes is True else lanes & found.lanes
        low += width(part)
    return lanes


def _keep_joined_lanes(mask: Array, new: Value, old: Value, chosen: Value) -> Value:
    """Return the result of a selection by parts, with the lanes recorded in which the parts are slices of one term."""
    if not isinstance(chosen, PackedVector):
        return chosen
    whole: Array = np.where(mask, _single_term_lanes(new), _single_term_lanes(old))
    if whole.any():
        joined = blend_values(mask, as_symbolic_vector(new), as_symbolic_vector(old))
        assert isinstance(joined, SymbolicVector)
        chosen.whole, chosen.joined = whole, joined
    return chosen


def _single_term_lanes(value: Value) -> bool | Array:
    """Return the lanes in which a value is a single term, whose parts can only be slices of it."""
    if isinstance(value, PackedVector):
        return False if value.whole is None else value.whole
    if not isinstance(value, SymbolicVector):
        return False
    form = value.flags & FORM
    return (form != LOAD) & (form != CONST)


def parts_of(value: Value) -> tuple[Array | SymbolicVector, ...] | None:
    """Return the parts of a value that was packed, least significant first, None for another value."""
    return value.parts if isinstance(value, PackedVector | _Joined) else None


def is_term_of_parts(value: PackedVector) -> bool:
    """Return whether the term of a packed vector is that of its parts in all lanes."""
    return value.whole is None and (value.joined is None or isinstance(value.joined, _Joined))


def part_ends(value: Value) -> list[int]:
    """Return the bit positions at which the value's parts end."""
    if not isinstance(value, PackedVector):
        return [width(value)]
    ends, total = [], 0
    for part in value.parts:
        total += width(part)
        ends.append(total)
    return ends


def is_number_beside_widened(value: Value, other: Value) -> bool:
    """Return whether a value is one number of 32 bits that is no bf16, and the other one is a bf16 that was widened."""
    if isinstance(value, PackedVector) or width(value) != 32 or not isinstance(other, PackedVector):
        return False
    return high_half(value) is None and high_half(other) is not None


def extract(value: Value, low: int, bits: int) -> Value:
    """Return the `bits` bits of the value that start at bit `low`."""
    if low == 0 and bits == width(value):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype == np.bool_:
            raise ValueError("a predicate has no bits to extract")
        if bits == 1 or bits not in UNSIGNED:
            raise ValueError(f"no register is {bits} bits wide")
        part: Array = (value >> value.dtype.type(low)).astype(UNSIGNED[bits])
        return part
    if isinstance(value, PackedVector):
        return _extract_packed(value, low, bits)
    lazy = lazy_integers(value)
    if lazy is not None:
        return lazy.extract(low, bits)
    if bits > 1 and value.maximum is not None and not value.maximum >> low and not any_flag(value.flags & STICKY):
        return np.zeros((1, 1), dtype=UNSIGNED[bits])  # bits beyond those of the greatest number
    for origin in value.origins:
        if (
            origin.name.startswith("convert.b")
            and exact_lanes(value, origin) is True
            and low + bits <= origin.operands[0].bits
        ):
            return extract(origin.operands[0], low, bits)  # the low bits of a sign-extended integer
    masked = _masked(value, bits) if low == 0 else None
    if masked is not None:
        return extract(masked, 0, bits)
    own = value.part(low, bits)
    return extract_vector(value, low, bits) if own is None else own


def _masked(value: SymbolicVector, bits: int) -> SymbolicVector | None:
    """Return the operand of a bitwise and whose other one keeps the low `bits` bits, None for another value.

    The low bits of a magnitude remain a part of it, so that both halves together are found to be the magnitude.
    """
    magnitude = np.uint64((1 << value.bits - 1) - 1)
    for origin in value.origins:
        if not origin.name.startswith("and.b"):
            continue
        lanes = exact_lanes(value, origin)
        if lanes is False or not np.all(np.asarray(lanes) | constant_mask(value)):
            continue
        for kept, mask in (origin.operands, origin.operands[::-1]):
            if constant_mask(mask) is not True or every(mask.words[0] == magnitude):
                continue
            if every(~mask.words[0] & np.uint64((1 << bits) - 1) == 0):
                return blend(lanes, kept, value)
    return None


def _for_low_bits(value: SymbolicVector, bits: int) -> SymbolicVector:
    """Return a value with the same low bits: a sum whose number is the same modulo 2**bits, and the least."""
    origin = next((each for each in value.origins if each.name == CONSTANT), None)
    lanes = False if origin is None else exact_lanes(value, origin)
    if origin is None or lanes is False or not np.all(np.asarray(lanes) | constant_mask(value)):
        return value
    return blend(lanes, with_least_number(value, origin.operands[0], bits), value)


def _extract_packed(value: PackedVector, low: int, bits: int) -> Value:
    parts: list[Value] = []
    start = 0
    for part in value.parts:
        end = start + width(part)
        if start == low and end == low + bits:
            return part
        first, last = max(start, low), min(end, low + bits)
        while first < last:
            size = last - first
            while size not in UNSIGNED or (first - low) % size:
                size = 1 << ((size - 1).bit_length() - 1) if size not in UNSIGNED else size // 2
            parts.append(extract(part, first - start, size))
            first += size
        start = end
    return concat(parts)


def extract_vector(value: SymbolicVector, low: int, bits: int) -> SymbolicVector:
    """See `extract`: exact for constants and loads, a slice of a term; a slice of a slice is one of the whole."""
    outer = next((each for each in slices_of(value) if each.lanes is True), None)
    if outer is None:
        return _extract_vector(value if low else _for_low_bits(value, bits), low, bits)
    whole = outer.whole
    if outer.low + low == 0:
        whole = _for_low_bits(_masked(whole, bits) or whole, bits)
    result = _extract_vector(whole, outer.low + low, bits)
    if any_flag(value.flags & INHERITED):
        result = with_flags(result, value.flags & INHERITED)
    result.origins = (*result.origins, Origin(f"slice.{low}.{bits}", (value,)))
    return result


def _extract_vector(value: SymbolicVector, low: int, bits: int) -> SymbolicVector:
    flags = value.flags
    if isinstance(flags, int):
        form = flags & (FORM | ABSORBED)
        if form == LOAD and low % 8 == 0 and bits % 8 == 0:
            start = load_addresses(value)
            words = value.words + np.uint64(low // 8) if start is None else both_words(start + np.uint64(low // 8))
            result = SymbolicVector(bits, words, LOAD | (flags & STICKY))
        elif form == CONST:
            result = _extract_constants(value, low, bits)
        else:
            result = term(
                bits, f"slice {low} {bits} of {value.bits}", [value], INTEGER, exact=True, recorder=value.recorder
            )
    else:
        result = _extract_loads_and_zeros(value, flags, low, bits) or _extract_by_form(value, flags, low, bits)
    whole = value
    if value.origins and not slices_of(value):
        whole = SymbolicVector(value.bits, value.words, value.flags)
        whole.cached_hash, whole.recorder, whole.maximum = value.cached_hash, value.recorder, value.maximum
        whole.origins = tuple(each for each in value.origins if each.name == CONSTANT or each.name.startswith("and.b"))
    result.origins = (Origin(f"slice.{low}.{bits}", (whole,)),)
    result.recorder = value.recorder
    if value.maximum is not None:
        result.maximum = min(value.maximum >> low, (1 << bits) - 1)
    return result


def _extract_loads_and_zeros(value: SymbolicVector, flags: Array, low: int, bits: int) -> SymbolicVector | None:
    """Return bits of a value of which each lane is a load or zero, None for any other value and for parts of bytes."""
    if low % 8 or bits % 8 or value.recorder is not None:
        return None
    form = flags & np.uint32(FORM)
    constant = form == CONST
    words = value.words[:1] if value.words.strides[0] == 0 else value.words
    if not every(constant | (form == LOAD)) or some(constant & (words[0] != 0)):
        return None
    if low:
        words = np.where(constant, np.uint64(0), words + np.uint64(low // 8))
    zero = np.uint32(0) | constant_flags(np.zeros(1, dtype=np.uint64), bits)
    found = np.where(constant, zero, np.uint32(LOAD)) | (flags & np.uint32(STICKY))
    return SymbolicVector(bits, both_words(words[0]) if len(words) == 1 else words, uniform_flags(found))


def _extract_by_form(value: SymbolicVector, flags: Array, low: int, bits: int) -> SymbolicVector:
    """Return bits of a value whose lanes have several forms."""
    form = flags & np.uint32(FORM)
    constant, loaded = form == CONST, form == LOAD
    load = None
    if low % 8 == 0 and bits % 8 == 0:
        load = SymbolicVector(bits, value.words + np.uint64(low // 8), LOAD | (flags & np.uint32(STICKY)))
    if load is not None and value.recorder is None and every(constant | loaded):
        result = load
    else:
        tag = f"slice {low} {bits} of {value.bits}"
        result = term(bits, tag, [value], INTEGER, exact=True, recorder=value.recorder)
        if load is not None:
            result = as_symbolic_vector(blend_values(loaded, load, result))
    return as_symbolic_vector(blend_values(constant, _extract_constants(value, low, bits), result))


def _extract_constants(value: SymbolicVector, low: int, bits: int) -> SymbolicVector:
    numbers = (value.words[0] >> np.uint64(low)) & np.uint64((1 << bits) - 1)
    flags = constant_flags(numbers, bits)
    return SymbolicVector(bits, both_words(numbers), flags | (value.flags & STICKY))


def concat(parts: Sequence[Value]) -> Value:
    """Concatenate values, least significant first; constants and all slices of one value are joined."""
    if len(parts) == 1:
        return parts[0]
    if type(parts[0]) is np.ndarray and all(type(part) is np.ndarray for part in parts):
        numbers = _joined_numbers(parts)  # type: ignore[arg-type]
        return PackedVector(tuple(parts)) if numbers is None else numbers  # type: ignore[arg-type]
    if all(type(part) is np.ndarray or (type(part) is SymbolicVector and not part.origins) for part in parts):
        return PackedVector(tuple(parts))  # type: ignore[arg-type]  # nothing is known that would join them
    flat: list[Array | SymbolicVector] = []
    for part in map(settled, parts):
        if isinstance(part, PackedVector):
            flat.extend((as_symbolic_vector(part),) if _has_whole_lane(part) else part.parts)
        else:
            flat.append(part)
    merged = _merge_neighbours(flat)
    if len(merged) == 1:
        return merged[0]
    whole: Value | None = _whole_of_low_slice(merged)
    if whole is None:
        whole = _extended(merged)
    return _join_sliced_lanes(PackedVector(tuple(merged))) if whole is None else whole


def _extended(parts: Sequence[Array | SymbolicVector]) -> Value | None:
    """Return the first part with zeros above it, as it extends itself; None if it does not, or for other parts."""
    first, bits = parts[0], sum(map(width, parts))
    if not isinstance(first, SymbolicVector) or bits not in UNSIGNED:
        return None
    return first.extended(bits) if all(isinstance(part, np.ndarray) and not part.any() for part in parts[1:]) else None


def _has_whole_lane(value: PackedVector) -> bool:
    """Return whether the parts of a packed vector are the slices of one defined term in some lane."""
    if value.whole is None:
        return False
    defined = (as_symbolic_vector(value).flags & POISON) == 0
    return bool(np.any(value.whole & defined))


def _whole_of_low_slice(parts: Sequence[Array | SymbolicVector]) -> SymbolicVector | None:
    """Return the value whose low bits the first part is, if the other parts are zeros and so are its other bits."""
    low, bits = width(parts[0]), sum(map(width, parts))
    for found in slices_of(parts[0], 0):
        whole = found.whole
        if found.lanes is True and whole.bits == bits:
            if whole.maximum is None or whole.maximum >> low:
                return None
            zeros = all(isinstance(part, np.ndarray) and not part.any() for part in parts[1:])
            return as_symbolic_vector(parts[0]).with_zeros_above(whole) if zeros else None
    return None


def _join_sliced_lanes(value: PackedVector) -> PackedVector:
    """Record in which lanes the parts are the slices of one value from end to end."""
    found: list[tuple[Array, SymbolicVector]] = []
    for first in slices_of(value.parts[0], 0):
        if first.whole.bits != value.bits:
            continue
        lanes = _contiguous(value.parts, first)
        if lanes is False or not np.any(lanes):
            continue
        found.append((np.asarray(lanes), first.whole))
    if found:
        value.whole = reduce(np.logical_or, [lanes for lanes, _ in found], np.zeros((1, 1), dtype=bool))
        value.joined = partial(_with_wholes, value.parts, found)
    return value


def _with_wholes(
    parts: tuple[Array | SymbolicVector, ...], wholes: Sequence[tuple[Array, SymbolicVector]]
) -> SymbolicVector:
    """Return the term of packed parts, with the value of which they are the slices in the lanes where there is one."""
    joined = _concat_term(PackedVector(parts))
    for lanes, whole in wholes:
        joined = as_symbolic_vector(blend_values(lanes, whole, joined))
    return joined


def _merge_neighbours(parts: list[Array | SymbolicVector]) -> list[Array | SymbolicVector]:
    result: list[Array | SymbolicVector] = []
    index = 0
    while index < len(parts):
        part = parts[index]
        found = _whole_of_parts(parts, index)
        if found is not None:
            whole, index = found
            result.append(whole)
            continue
        result.append(part)
        index += 1
    lazy = next((part for part in result if isinstance(part, LazyIntegers)), None)
    if len(result) > 1 and lazy is not None and all(isinstance(part, np.ndarray | LazyIntegers) for part in result):
        return [lazy.concat(result)] if sum(width(part) for part in result) in UNSIGNED else result
    known = [part for part in result if isinstance(part, np.ndarray)]
    if len(result) > 1 and len(known) == len(result):
        joined = _joined_numbers(known)
        return result if joined is None else [joined]
    return result


def _joined_numbers(numbers: Sequence[Array]) -> Array | None:
    """Return known numbers as one of the sum of their widths, least significant first; None if there is no such width.

    Numbers are slices of nothing, so that nothing else has to be known of them.
    """
    widths = list(map(width, numbers))
    dtype = UNSIGNED.get(sum(widths))
    if dtype is None:
        return None
    joined: Array = numbers[0].astype(dtype)
    shift = widths[0]
    for number, bits in zip(numbers[1:], widths[1:], strict=True):
        joined = joined | (number.astype(dtype) << dtype(shift))
        shift += bits
    return joined


def _whole_of_parts(parts: Sequence[Array | SymbolicVector], start: int) -> tuple[SymbolicVector, int] | None:
    """Return the widest value whose slices begin at a part, and where they end; None if there is no such value."""
    best: tuple[SymbolicVector, int] | None = None
    for found in slices_of(parts[start], 0):
        if found.lanes is not True:
            continue
        total, end = 0, start
        while end < len(parts) and total < found.whole.bits:
            total += width(parts[end])
            end += 1
        if (
            total == found.whole.bits
            and _contiguous(parts[start:end], found) is True
            and (best is None or best[1] < end)
        ):
            best = found.whole, end
    return best


def _with_aligned_numbers(value: PackedVector) -> PackedVector:
    """Return a value whose known numbers are cut where their width divides their position, into as few as possible.

    The cut depends only on which bits are known numbers, and so does the term of the value.
    """
    parts: list[Array | SymbolicVector] = []
    start, position, changed = 0, 0, False
    for end, part in enumerate((*value.parts, None)):
        if isinstance(part, np.ndarray):
            continue
        run = value.parts[start:end]
        if len(run) > 1 or (run and position % width(run[0])):
            bytes_: list[Array | SymbolicVector] = []
            for each in run:
                bytes_ += [_byte_of(each, low) for low in range(0, width(each), 8)]
            place = position // 8
            while bytes_:
                count = 1
                while count < 8 and place % (2 * count) == 0 and 2 * count <= len(bytes_):
                    count *= 2
                parts += _merge_neighbours(bytes_[:count])
                bytes_, place = bytes_[count:], place + count
            changed = True
        else:
            parts += run
        if part is not None:
            parts.append(part)
            position += sum(map(width, run)) + width(part)
        start = end + 1
    return PackedVector(tuple(parts)) if changed else value


def _byte_of(number: Array | SymbolicVector, low: int) -> Array:
    found = extract(number, low, 8)
    assert isinstance(found, np.ndarray)
    return found


def _concat_term(value: PackedVector) -> SymbolicVector:
    value = _with_aligned_numbers(value)
    parts = [as_symbolic_vector(part) for part in value.parts]
    first = parts[0]
    if all(isinstance(part.flags, int) and part.flags & FORM == LOAD for part in parts):
        offset = 0
        for index, part in enumerate(parts):
            # The first part may occur again, as in a register packed with itself.
            if index and not np.array_equal(part.words, first.words + np.uint64(offset)):
                break
            offset += part.bits // 8
        else:
            return SymbolicVector(value.bits, first.words, LOAD | sticky_flags(*parts))
    layout = " ".join(str(part.bits) for part in parts)
    recorder = next((part.recorder for part in parts if part.recorder is not None), None)
    joined = _widened_term(value, parts, f"concat {layout}", recorder)
    if joined is None:
        joined = term(value.bits, f"concat {layout}", parts, INTEGER, exact=True, recorder=recorder)
    origins = joined.origins
    joined = _concat_exact_lanes(parts, value.bits, _with_number_below(value, parts, joined, recorder))
    joined.recorder, joined.origins = recorder, origins
    return joined


def _with_number_below(
    value: PackedVector, parts: list[SymbolicVector], joined: SymbolicVector, recorder: TermRecorder | None
) -> SymbolicVector:
    """Return the term of two halves, of which the lower one is a number in some lanes, as a sum in these lanes.

    It is the sum of that number and of the upper half above zeros, as a key and a place in one register are made.
    """
    if len(parts) != 2 or parts[0].bits != parts[1].bits or value.bits not in (32, 64):
        return joined
    low, high = parts
    if constant_mask(low) is False:
        return joined
    # Of a sum with an undetermined half nothing is determined; of the concatenation the number is.
    varies = ~np.asarray(constant_mask(high)) & ~np.asarray(has_flag(high, STICKY))
    lanes = np.asarray(constant_mask(low)) & (low.words[0] != 0) & varies
    if not lanes.any():
        return joined
    zeros: Array = np.zeros((1, 1), dtype=UNSIGNED[low.bits])
    above = as_symbolic_vector(PackedVector((zeros, value.parts[1])))
    numbers = constant_vector(np.where(lanes, low.words[0], np.uint64(0)).astype(UNSIGNED[value.bits]))
    total = linear_form(operation(f"add.b{value.bits}"), [above, numbers])
    assert total is not None
    if recorder is not None:
        recorder.add(f"add.b{value.bits}", total, [above, numbers], commutes=True)
    return blend(nonempty(lanes), total, joined)


def _widened_term(
    value: PackedVector, parts: list[SymbolicVector], tag: str, recorder: TermRecorder | None
) -> SymbolicVector | None:
    """Return the term of a bf16 that was widened to fp32, None for any other value.

    The mark of the bf16 becomes one of the fp32, whose other operations ignore it.
    """
    canonical = _canonical_lanes(value)
    if canonical is None:
        return None
    high = parts[1]
    foreign = (high.flags & CANONICAL_NAN) != 0
    if np.any(foreign):
        return None
    flags = high.flags & (NOT_MINUS_ZERO | NOT_NEGATIVE | CANONICAL_BF16_NAN | FLIPPED_NAN)
    # The quiet bit of a bf16 is that of the fp32.  That of an fp16, which has no such mark, is another one.
    flags = flags | np.where((high.flags & CANONICAL_BF16_NAN) != 0, high.flags & np.uint32(QUIET), np.uint32(0))
    zero_safe = high.flags & PLUS_ZERO
    flags = flags | (NOT_MINUS_ZERO if isinstance(zero_safe, int) and zero_safe else 0)
    if np.any(canonical):
        both = CANONICAL_BF16_NAN | CANONICAL_NAN
        flags = select_flags(np.asarray(canonical), clear_flags(flags, both) | CANONICAL_NAN, flags)
    zeros = constant_vector(np.zeros((1, 1), dtype=np.uint16))
    flags = flags | (parts[0].flags & STICKY)
    moved = np.logical_or((high.flags & NAN_MARK) == 0, may_be_moved(high.flags))
    moved = moved if moved.ndim else bool(moved)
    flags = flags | (
        np.where(moved, np.uint32(INTEGER), np.uint32(0)) if isinstance(moved, np.ndarray) else INTEGER * moved
    )
    joined = term(value.bits, tag, [zeros, high], uniform_flags(flags), recorder=recorder)
    joined.origins = (Origin("convert.fp32.bf16", (high,)),)
    return joined


def low_half_of_canonical(high: Value) -> Value:
    """Return the low half of an fp32 that holds a bf16 and is the canonical NaN if the bf16 is a NaN.

    It is zero except for a NaN.  `high_half` recognises it by its hash.
    """
    if isinstance(high, np.ndarray):
        return np.where(_is_bf16_nan(high), np.uint16(0xFFFF), np.uint16(0))
    lanes = as_symbolic_vector(high)
    words = hashing.mix(unsigned_hash(lanes) * hashing.multiplier(7) + _LOW_HALF)
    result = SymbolicVector(16, words, TERM | sticky_flags(lanes) | nan_bits(lanes))
    result.recorder = lanes.recorder
    if lanes.recorder is not None:
        lanes.recorder.add("low half of a canonical NaN", result, [lanes], commutes=False)
    known = np.asarray((lanes.flags & (FORM | STICKY)) == CONST)
    if not known.any():
        return result
    return blend_values(known, low_half_of_canonical(lanes.words[0].astype(np.uint16)), result)


_LOW_HALF = hashing.constant("the low half of a canonical NaN widened from bf16")


def _is_bf16_nan(patterns: Array) -> Array:
    found: Array = (patterns & np.uint16(0x7FFF)) > np.uint16(0x7F80)
    return found


def _canonical_lanes(value: PackedVector) -> bool | Array | None:
    """Return in which lanes the fp32 that holds a bf16 has the low half of the canonical NaN; in the others it is 0.

    Return None if the value is not such an fp32 in every lane that is not poisoned.
    """
    if len(value.parts) != 2 or [width(part) for part in value.parts] != [16, 16]:
        return None
    low, high = value.parts
    if isinstance(low, np.ndarray):
        return None if low.any() else False
    form, poisoned = low.flags & FORM, has_flag(low, POISON)
    if not np.all((form == TERM) | (form == CONST) | poisoned):
        return None  # the low half of the canonical NaN is a term or a constant
    zero = ((low.flags & (FORM | STICKY)) == CONST) & (low.words[0] == 0)
    zero = zero | poisoned
    if zero.all():
        return False
    expected = as_symbolic_vector(low_half_of_canonical(high))
    same = (low.words == expected.words).all(axis=0) & ((low.flags ^ expected.flags) & FORM == 0)
    if isinstance(high, SymbolicVector):
        same = same & (((high.flags & CANONICAL_BF16_NAN) != 0) | ((high.flags & FORM) == CONST))
    return same & ~zero if (zero | same).all() else None


def high_half(value: Value) -> Value | None:
    """Return the bf16 of which an fp32 is the widening, or None.

    The low half of the fp32 is 0, or that of the canonical NaN if the bf16 is a NaN.
    """
    if isinstance(value, np.ndarray):
        return None if (value & np.uint32(0xFFFF)).any() else (value >> np.uint32(16)).astype(np.uint16)
    packed = PackedVector(value.parts) if isinstance(value, _Joined) else value
    if not isinstance(packed, PackedVector) or _canonical_lanes(packed) is None:
        return None
    low, high = packed.parts
    if isinstance(low, np.ndarray):
        return high
    return with_flags(as_symbolic_vector(high), low.flags & POISON)


def _concat_exact_lanes(parts: list[SymbolicVector], bits: int, joined: SymbolicVector) -> SymbolicVector:
    """Return the joined term, with exact values in lanes where all parts are adjacent loads or all are constant."""
    forms = [part.flags & FORM for part in parts]
    if bits > 64 or any(isinstance(form, int) and form not in (LOAD, CONST) for form in forms):
        return joined
    first = parts[0].words[0]
    load: Any = True
    known: Any = True
    number = np.zeros((1, 1), dtype=np.uint64)
    low = 0
    for part, form in zip(parts, forms, strict=True):
        load = load & (form == LOAD) & (part.words[0] == first + np.uint64(low // 8))
        known = known & (form == CONST)
        number = number | part.words[0] << np.uint64(low)
        low += part.bits
    inherited = sticky_flags(*parts)
    for mask, words, flags in ((load, first, LOAD), (known, number, constant_flags(number, bits))):
        if np.any(mask):
            meta = uniform_flags(select_flags(mask, flags | inherited, joined.flags))
            joined = SymbolicVector(bits, np.where(mask, words, joined.words), meta)
    return joined
