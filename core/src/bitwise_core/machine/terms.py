"""The domain of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

Each rule here stands in `bitwise_core.tree.rules` with its reason and is tested there on bit patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value, as_lanes

_FORMATS = ("fp64", "fp32", "fp16", "bf16")
_SIGNED = ("s8", "s16", "s32", "s64")
_UNSIGNED = ("u8", "u16", "u32", "u64")
_BITS = ("b8", "b16", "b32", "b64", "pred")
SET_OPERATIONS: tuple[str, ...] = (
    "",
    *(f"{verb}{nan}.{fmt}" for verb in ("max", "min") for nan in ("", ".nan") for fmt in _FORMATS),
    *(f"{verb}.{fmt}" for verb in ("max", "min") for fmt in _SIGNED + _UNSIGNED),
    *(f"{verb}.{fmt}" for verb in ("add", "mul", "and", "or", "xor") for fmt in _BITS),
)
"""Operations whose operands form a set: associative and commutative to the bit (NaNs are one value)."""

_SET_INDEX = {name: index for index, name in enumerate(SET_OPERATIONS) if name}


@dataclass(frozen=True, slots=True)
class Shape:
    """A floating-point operation's name, taken apart."""

    name: str
    verb: str
    nearest_or_zero: bool
    plain: bool
    evaluate: Callable[..., Array] | None


@lru_cache(maxsize=None)
def shape(name: str) -> Shape:
    """Takes an operation's name apart once."""
    verb, *modifiers = name.split(".")
    evaluate: Callable[..., Array] | None
    try:
        evaluate = numeric.operation(name).evaluate
    except (KeyError, numeric.Unevaluable):
        evaluate = None
    plain = not {"ftz", "sat", "satfinite", "relu", "xorsign"} & set(modifiers)
    return Shape(name, verb, bool({"rn", "rz"} & set(modifiers)), plain, evaluate)


def _is(lanes: Lanes, number: int) -> bool | Array:
    """Which lanes are known to hold `number`; False where none does."""
    known = L.known_where(lanes)
    if known is False:
        return False
    equal = lanes.words[0] == np.uint64(number)
    found = equal if known is True else equal & known
    return found if found.any() else False


def _put(mask: bool | Array, new: Lanes, old: Lanes) -> Lanes:
    if mask is False:
        return old
    if mask is True or mask.all():  # type: ignore[union-attr]
        return new
    return Lanes(old.bits, np.where(mask, new.words, old.words), L.select_meta(mask, new.meta, old.meta))  # type: ignore[arg-type]


def _flag_where(lanes: Lanes, flag: int) -> Lanes:
    return Lanes(lanes.bits, lanes.words, lanes.meta | (flag if isinstance(lanes.meta, int) else np.uint32(flag)))


def _without(meta: L.Meta, flag: int, when: int) -> L.Meta:
    """`meta` with `flag` cleared wherever `when` is set."""
    if isinstance(meta, int):
        return meta & ~flag if meta & when else meta
    return np.where((meta & np.uint32(when)) != 0, meta & np.uint32(~flag & 0xFFFFFFFF), meta)


def _plus_zero(lanes: Lanes) -> Lanes:
    """x + (+0)."""
    return Lanes(lanes.bits, lanes.words, _without(lanes.meta | L.PLUS_ZERO, L.PLUS_ZERO, L.NOT_MINUS_ZERO))


def _both(left: L.Meta, right: L.Meta, flag: int) -> L.Meta:
    return left & right & flag


class TermDomain:
    """Terms over the initial content of memory; `assumptions` enable rules that need them ("finite")."""

    name = "terms"

    def __init__(self, assumptions: frozenset[str] = frozenset()) -> None:
        self.assumptions = assumptions

    # -- floating point -------------------------------------------------------------------------------------------

    def floating(self, name: str, operands: Sequence[Value], bits: int, properties: int = 0) -> Value:
        """See `Domain.floating`."""
        info = shape(name)
        if info.evaluate is not None and all(isinstance(operand, np.ndarray) for operand in operands):
            return info.evaluate(*operands)
        rule = _RULES.get(info.verb)
        values = [as_lanes(operand) for operand in operands]
        result = rule(self, info, values, bits) if rule is not None and info.plain else None
        if result is None:
            commutes = info.verb in ("add", "mul", "min", "max")
            if info.verb == "fma":
                product = L.term(bits, "product", values[:2], commutes=True)
                values = [product, values[2]]
            result = L.term(bits, name, values, properties, commutes=commutes)
        return self._fold(info, operands, result)

    def _fold(self, info: Shape, operands: Sequence[Value], result: Lanes) -> Value:
        """Lanes in which every operand is known hold the result's number."""
        if info.evaluate is None:
            return result
        known: bool | Array = True
        for operand in operands:
            if isinstance(operand, np.ndarray):
                continue
            if isinstance(operand, Pieces) or (isinstance(operand.meta, int) and operand.meta & L.KIND != L.KNOWN):
                return result
            known = known & L.known_where(operand)
        if known is False or not np.any(known):
            return result
        numbers = [operand if isinstance(operand, np.ndarray) else L.numbers_of(as_lanes(operand)) for operand in operands]
        return L.settle(_put(known, L.known_lanes(info.evaluate(*numbers)), result))

    def _add(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        left, right = values
        either = left.meta | right.meta
        flags = (either & (L.NOT_MINUS_ZERO | L.PLUS_ZERO | L.STICKY)) | _both(left.meta, right.meta, L.NOT_NEGATIVE)
        words = hashing.finalise(L.signed_hash(left) + L.signed_hash(right) + hashing.constant(info.name))
        result = Lanes(bits, words, _without(flags | L.TERM, L.PLUS_ZERO, L.NOT_MINUS_ZERO))
        for zero, other in ((left, right), (right, left)):
            result = _put(_is(zero, 0), _plus_zero(other), result)
            result = _put(_is(zero, 1 << (bits - 1)), other, result)
        return result

    def _subtract(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        return self._add(shape(info.name.replace("sub.", "add.", 1)), [values[0], as_lanes(self._negated(values[1]))], bits)

    def _negated(self, value: Lanes) -> Lanes:
        meta = value.meta
        plus_zero = meta & L.PLUS_ZERO
        if (plus_zero if isinstance(meta, int) else plus_zero.any()):  # type: ignore[union-attr]
            closed = Lanes(value.bits, L.full_hash(value), L.TERM | L.sticky(value))
            mask = bool(plus_zero) if isinstance(meta, int) else plus_zero != 0
            value = _put(mask, closed, value)
            meta = value.meta
        cleared = meta & ~(L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) if isinstance(meta, int) else meta & np.uint32(
            ~(L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) & 0xFFFFFFFF
        )
        result = Lanes(value.bits, value.words, cleared ^ (L.NEGATED if isinstance(meta, int) else np.uint32(L.NEGATED)))
        known = L.known_where(value)
        if known is not False and np.any(known):
            result = _put(known, L.known_lanes(L.numbers_of(value) ^ L.UNSIGNED[value.bits](1 << (value.bits - 1))), result)
        return result

    def _negate(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        return self._negated(values[0])

    def _absolute(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        value = values[0]
        result = L.term(bits, info.name, [Lanes(bits, L.unsigned_hash(value), L.TERM | L.sticky(value))])
        result = _flag_where(result, L.NOT_NEGATIVE | L.NOT_MINUS_ZERO)
        kept = value.meta & L.NOT_NEGATIVE
        return _put(bool(kept) if isinstance(kept, int) else kept != 0, value, result)

    def _multiply(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        left, right = (_magnitude(value) for value in values)
        flags = L.sticky(left, right) | ((left.meta ^ right.meta) & L.NEGATED)
        positive = _both(left.meta, right.meta, L.NOT_NEGATIVE)
        if left.words is right.words:
            positive = L.NOT_NEGATIVE
        flags = flags | positive | _implied(positive)
        words = hashing.finalise(L.unsigned_hash(left) + L.unsigned_hash(right) + hashing.constant(info.name))
        result = Lanes(bits, words, flags | L.TERM)
        one = _ONE.get(info.name.rsplit(".", 1)[1])
        if one is not None:
            for unit, other in (values, values[::-1]):
                result = _put(_is(unit, one), other, result)
                result = _put(_is(unit, one | 1 << (bits - 1)), self._negated(other), result)
        return result

    def _fused(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        left, right, addend = _magnitude(values[0]), _magnitude(values[1]), values[2]
        negative = (left.meta ^ right.meta) & L.NEGATED
        product = (L.unsigned_hash(left) + L.unsigned_hash(right)) * hashing.multiplier(1)
        tag = hashing.constant(info.name)
        if isinstance(negative, int):
            tag = hashing.constant(info.name + " negated product") if negative else tag
        else:
            tag = np.where(negative != 0, hashing.constant(info.name + " negated product"), tag)
        words = hashing.finalise(product + L.full_hash(addend) * hashing.multiplier(2) + tag)
        positive = _both(left.meta, right.meta, L.NOT_NEGATIVE)
        if left.words is right.words:
            positive = L.NOT_NEGATIVE
        if not isinstance(negative, int) or negative:
            positive = 0
        positive = positive & addend.meta
        flags = L.sticky(left, right, addend) | L.TERM | positive | _implied(positive)
        safe = left.meta & right.meta & L.HALF_RANGE
        closed = addend.meta & (L.NOT_MINUS_ZERO | L.PLUS_ZERO)
        if isinstance(safe, int) and isinstance(closed, int):
            flags = flags | (L.NOT_MINUS_ZERO if safe and closed else 0)
        else:
            flags = flags | np.where((safe != 0) & (closed != 0), np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))  # type: ignore[operator]
        return Lanes(bits, words, flags)

    def _extremum(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        index = _SET_INDEX.get(info.name)
        if index is None:
            return None
        left, right = values
        if left is right:
            return left
        neutral = _NEUTRAL.get(info.name)
        return _set(info.name, index, left, right, bits, neutral, keeps_neutral=".nan." not in info.name)

    def _convert(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if info.name != "convert.fp32.fp16" and info.name != "convert.fp64.fp32":
            return None
        value = values[0]
        kept = value.meta & (L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)
        widened = L.term(bits, info.name, [Lanes(value.bits, L.unsigned_hash(value), L.TERM | L.sticky(value))])
        flags = kept | (value.meta & L.NEGATED) | (L.HALF_RANGE if info.name == "convert.fp32.fp16" else 0)
        closed = value.meta & L.PLUS_ZERO
        if isinstance(closed, int):
            flags = flags | (L.NOT_MINUS_ZERO if closed else 0)
        else:
            flags = flags | np.where(closed != 0, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))
        return Lanes(bits, widened.words, widened.meta | flags)

    # -- integers and choices ---------------------------------------------------------------------------------------

    def integer(
        self, name: str, operands: Sequence[Value], bits: int, evaluate: Callable[..., Array], *, gathers: bool = False
    ) -> Value:
        """See `Domain.integer`."""
        values = [as_lanes(operand) for operand in operands]
        index = _SET_INDEX.get(name) if gathers and len(values) == 2 else None
        if index is not None:
            result = _set(name, index, values[0], values[1], bits, None, keeps_neutral=False)
        else:
            result = L.term(bits, name, values)
        return self._fold(Shape(name, "", False, False, evaluate), operands, result)

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        if isinstance(predicate, np.ndarray):
            return L.choose(predicate, if_true, if_false)
        if if_true is if_false:
            return if_true
        if isinstance(if_true, Pieces) or isinstance(if_false, Pieces):
            cuts = sorted(set(L._cuts(if_true)) | set(L._cuts(if_false)))
            spans = list(zip([0, *cuts[:-1]], cuts, strict=True))
            return L.concat([
                self.select(predicate, L.cut(if_true, low, high - low), L.cut(if_false, low, high - low))
                for low, high in spans
            ])
        condition = as_lanes(predicate)
        left, right = as_lanes(if_true), as_lanes(if_false)
        kept = _both(left.meta, right.meta, L.NOT_NEGATIVE | L.HALF_RANGE) | _implied_by_both(left.meta, right.meta)
        result = L.term(left.bits, "select", [condition, left, right], kept)
        known = L.known_where(condition)
        if known is not False:
            taken = condition.words[0] != 0
            result = _put(known & taken, left, result)
            result = _put(known & ~taken, right, result)
        return result

    # -- memory -----------------------------------------------------------------------------------------------------

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return Lanes(bits, np.broadcast_to(address[None], (2, *address.shape)), L.LEAF)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        where = as_lanes(address)
        result = L.term(bits, "gather", [where])
        known = L.known_where(where)
        if known is not False and np.any(known):
            result = _put(known, as_lanes(self.load(where.words[0], bits)), result)
        return result


def _implied(positive: L.Meta) -> L.Meta:
    """A value that is never negative is never -0."""
    if isinstance(positive, int):
        return L.NOT_MINUS_ZERO if positive else 0
    return np.where(positive != 0, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))


def _implied_by_both(left: L.Meta, right: L.Meta) -> L.Meta:
    closed = L.NOT_MINUS_ZERO | L.PLUS_ZERO
    if isinstance(left, int) and isinstance(right, int):
        return L.NOT_MINUS_ZERO if left & closed and right & closed else 0
    both = ((left & closed) != 0) & ((right & closed) != 0)
    return np.where(both, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))


def _magnitude(value: Lanes) -> Lanes:
    """A known negative number as the negation of its magnitude, so that signs leave a product."""
    if not isinstance(value.meta, int) or value.meta & L.KIND != L.KNOWN:
        return value
    if value.words.size > 2 and value.words.strides[-1] != 0:
        return value
    number = int(value.words[0].reshape(-1)[0])
    sign = 1 << (value.bits - 1)
    if number < sign:
        return value
    positive = L.known_lanes(np.full((1, 1), number - sign, dtype=L.UNSIGNED[value.bits]))
    meta = positive.meta & ~(L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)
    return Lanes(value.bits, positive.words, meta | L.NEGATED)


_MEMBER = hashing.constant("set member")


def _members(name: str, index: int, value: Lanes, neutral: int | None) -> tuple[hashing.Words, L.Meta]:
    """The sum of the hashes of a value's members in a set of `name`, and its flags."""
    meta = value.meta
    tag = hashing.constant("member of " + name)
    own = L.SET | index << L.SET_SHIFT
    pattern = L.FORM | 255 << L.SET_SHIFT
    if isinstance(meta, int):
        if meta & pattern == own:
            return value.words, meta & (L.WITH_IDENTITY | L.STICKY)
        words = hashing.finalise(L.full_hash(value) * hashing.multiplier(3) + tag)
        flags: L.Meta = meta & L.STICKY
    else:
        inside = (meta & np.uint32(pattern)) == own
        words = hashing.finalise(L.full_hash(value) * hashing.multiplier(3) + tag)
        words = np.where(inside, value.words, words)
        flags = (meta & np.uint32(L.STICKY)) | np.where(inside, meta & np.uint32(L.WITH_IDENTITY), np.uint32(0))
    if neutral is not None:
        empty = _is(value, neutral)
        if empty is not False:
            words = np.where(empty, np.uint64(0), words)
            flags = L.select_meta(empty, L.WITH_IDENTITY, flags)  # type: ignore[arg-type]
    return words, flags


def _set(name: str, index: int, left: Lanes, right: Lanes, bits: int, neutral: int | None, *, keeps_neutral: bool) -> Lanes:
    """The set of two values' members under an operation that is associative and commutes."""
    left_words, left_flags = _members(name, index, left, neutral)
    right_words, right_flags = _members(name, index, right, neutral)
    positive = _both(left.meta, right.meta, L.NOT_NEGATIVE)
    flags = left_flags | right_flags
    if not keeps_neutral:
        flags = flags & ~L.WITH_IDENTITY if isinstance(flags, int) else flags & np.uint32(~L.WITH_IDENTITY & 0xFFFFFFFF)
    meta = flags | L.SET | index << L.SET_SHIFT
    if name.split(".")[-1].startswith(("fp", "bf")):
        meta = meta | positive | _implied(positive)
    result = Lanes(bits, left_words + right_words, meta)
    if neutral is not None:
        left_empty, right_empty = _is(left, neutral), _is(right, neutral)
        if not keeps_neutral:
            result = _put(right_empty, left, _put(left_empty, right, result))
        if left_empty is not False and right_empty is not False:
            result = _put(left_empty & right_empty, left, result)
    return result


_ONE = {"fp64": 0x3FF0000000000000, "fp32": 0x3F800000, "fp16": 0x3C00, "bf16": 0x3F80}
_MINUS_INFINITY = {"fp64": 0xFFF0000000000000, "fp32": 0xFF800000, "fp16": 0xFC00, "bf16": 0xFF80}
_NEUTRAL = {
    f"{verb}{nan}.{fmt}": number if verb == "max" else number ^ 1 << (int(fmt[2:]) - 1)
    for verb in ("max", "min")
    for nan in ("", ".nan")
    for fmt, number in _MINUS_INFINITY.items()
}

_RULES: dict[str, Callable[[TermDomain, Shape, list[Lanes], int], Lanes | None]] = {
    "add": TermDomain._add,
    "sub": TermDomain._subtract,
    "mul": TermDomain._multiply,
    "fma": TermDomain._fused,
    "neg": TermDomain._negate,
    "abs": TermDomain._absolute,
    "max": TermDomain._extremum,
    "min": TermDomain._extremum,
    "convert": TermDomain._convert,
}
