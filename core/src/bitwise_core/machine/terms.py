"""The domain of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

Each rule here stands in `bitwise_core.tree.rules` with its reason and is tested there on bit patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine import hashing, recording
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import WIDENING, exact_hash, full_hash, signed_hash, term, unsigned_hash
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.pieces import as_lanes, choose, concat, cut, ends

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


@cache
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
    meta = L.uniform(L.select_meta(mask, new.meta, old.meta))  # type: ignore[arg-type]
    return Lanes(old.bits, np.where(mask, new.words, old.words), meta)


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

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`."""
        return assumption in self.assumptions

    # -- floating point -------------------------------------------------------------------------------------------

    def floating(self, name: str, operands: Sequence[Value], bits: int, properties: int = 0) -> Value:
        """See `Domain.floating`."""
        info = shape(name)
        if info.evaluate is not None and all(isinstance(operand, np.ndarray) for operand in operands):
            return info.evaluate(*operands)
        high = self._in_high_half(info, operands)
        if high is not None:
            return high
        rule = _RULES.get(info.verb)
        values = [as_lanes(operand) for operand in operands]
        for value in values:
            value.meta = L.uniform(value.meta)
        result = rule(self, info, values, bits) if rule is not None and info.plain else None
        if info.verb == "ex2" and "finite" in self.assumptions and result is None and bits == 32:
            low = _is(values[0], 0xFF800000)
            if low is not False:
                powers = term(bits, name, values, properties)
                return L.settle(_put(low, L.known_lanes(np.zeros((1, 1), dtype=np.uint32)), powers))
        if result is None:
            commutes = info.verb in ("add", "mul", "min", "max")
            if info.verb == "fma":
                product = term(bits, "product", values[:2], commutes=True)
                values = [product, values[2]]
            looks = ".tf32" in name or (
                info.verb == "convert" and not name.startswith(("convert.rn.", "convert.rz.", "convert.fp"))
            )
            result = term(bits, name, values, properties, commutes=commutes, exact=looks)
        return self._fold(info, operands, result)

    def _in_high_half(self, info: Shape, operands: Sequence[Value]) -> Value | None:
        """max, min, neg and abs of widened bf16 values, and their narrowing, act on the bf16 values."""
        if info.name in ("convert.rn.bf16.fp32", "convert.rz.bf16.fp32"):
            narrow = _high_half(operands[0]) if isinstance(operands[0], Pieces) else None
            return None if narrow is None else L.settle(_flag_where(as_lanes(narrow), L.LOOSE))
        if info.verb not in ("max", "min", "neg", "abs") or not info.name.endswith(".fp32"):
            return None
        if not any(isinstance(operand, Pieces) for operand in operands):
            return None
        halves = [_high_half(operand) for operand in operands]
        if any(half is None for half in halves):
            return None
        inner = self.floating(info.name.replace("fp32", "bf16"), [half for half in halves if half is not None], 16)
        return concat([np.zeros((1, 1), dtype=np.uint16), inner])

    def _fold(self, info: Shape, operands: Sequence[Value], result: Lanes) -> Value:
        """Lanes in which every operand is known hold the result's number."""
        result.meta = L.uniform(result.meta)
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
        numbers = [
            operand if isinstance(operand, np.ndarray) else L.numbers_of(as_lanes(operand)) for operand in operands
        ]
        return L.settle(_put(known, L.known_lanes(info.evaluate(*numbers)), result))

    def _add(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        left, right = values
        either = left.meta | right.meta
        flags = (either & (L.NOT_MINUS_ZERO | L.PLUS_ZERO | L.STICKY)) | _both(left.meta, right.meta, L.NOT_NEGATIVE)
        words = hashing.finalise(signed_hash(left) + signed_hash(right) + hashing.constant(info.name))
        result = Lanes(bits, words, _without(flags | L.TERM, L.PLUS_ZERO, L.NOT_MINUS_ZERO))
        recording.note(info.name, result, lambda: [_bare(each, L.PLUS_ZERO) for each in values], commutes=True)
        for zero, other in ((left, right), (right, left)):
            if "finite" in self.assumptions:
                result = _put(_infinite(zero, bits), zero, result)
                result = _put(_vanishes(zero, other), other, result)
            result = _put(_is(zero, 0), _plus_zero(other), result)
            result = _put(_is(zero, 1 << (bits - 1)), _flag_where(other, L.LOOSE), result)
        return result

    def _subtract(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        return self._add(
            shape(info.name.replace("sub.", "add.", 1)), [values[0], as_lanes(self._negated(values[1]))], bits
        )

    def _negated(self, value: Lanes) -> Lanes:
        meta = value.meta
        plus_zero = meta & L.PLUS_ZERO
        if plus_zero if isinstance(meta, int) else plus_zero.any():  # type: ignore[union-attr]
            closed = Lanes(value.bits, full_hash(value), L.TERM | L.sticky(value))
            recording.note(recording.SAME, closed, [value])
            mask = bool(plus_zero) if isinstance(meta, int) else plus_zero != 0
            value = _put(mask, closed, value)
            meta = value.meta
        cleared = (
            meta & ~(L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)
            if isinstance(meta, int)
            else meta & np.uint32(~(L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) & 0xFFFFFFFF)
        )
        result = Lanes(
            value.bits, value.words, cleared ^ (L.NEGATED if isinstance(meta, int) else np.uint32(L.NEGATED))
        )
        known = L.known_where(value)
        if known is not False and np.any(known):
            result = _put(
                known, L.known_lanes(L.numbers_of(value) ^ L.UNSIGNED[value.bits](1 << (value.bits - 1))), result
            )
        return result

    def _negate(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        return _flag_where(self._negated(values[0]), L.LOOSE)

    def _absolute(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        value = values[0]
        inner = Lanes(bits, unsigned_hash(value), L.TERM | L.sticky(value))
        recording.note(recording.SAME, inner, lambda: [_bare(value, L.NEGATED)])
        result = term(bits, info.name, [inner])
        result = _flag_where(result, L.NOT_NEGATIVE | L.NOT_MINUS_ZERO)
        half = _half(value) if info.name == "abs.fp32" else None
        if half is not None:
            inner = self._absolute(shape("abs.fp16"), [half], 16)
            assert inner is not None
            result = as_lanes(self.floating(WIDENING, [inner], 32))
        kept = value.meta & L.NOT_NEGATIVE
        return _put(bool(kept) if isinstance(kept, int) else kept != 0, _flag_where(value, L.LOOSE), result)

    def _multiply(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        left, right = (_magnitude(value) for value in values)
        flags = L.sticky(left, right) | ((left.meta ^ right.meta) & L.NEGATED)
        positive = _positive_product(left, right)
        flags = flags | positive | _implied(positive)
        words = hashing.finalise(unsigned_hash(left) + unsigned_hash(right) + hashing.constant(info.name))
        result = Lanes(bits, words, flags | L.TERM)
        recording.note(info.name, result, lambda: [_bare(each, L.NEGATED) for each in (left, right)], commutes=True)
        if "finite" in self.assumptions:
            zeroed = np.logical_or(_is(values[0], 0), _is(values[1], 0))
            if np.any(zeroed):
                result = _put(_some(zeroed), _flag_where(result, L.IS_ZERO), result)
        one = _ONE.get(info.name.rsplit(".", 1)[1])
        if one is not None:
            for unit, other in (values, values[::-1]):
                result = _put(_is(unit, one), _flag_where(other, L.LOOSE), result)
                result = _put(_is(unit, one | 1 << (bits - 1)), self._negated(other), result)
        return result

    def _fused(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        if not info.nearest_or_zero:
            return None
        left, right, addend = _magnitude(values[0]), _magnitude(values[1]), values[2]
        if "finite" in self.assumptions:
            absorbed = _infinite(addend, bits)
            zeroed = np.logical_or(_is(values[0], 0), _is(values[1], 0))
            if np.any(absorbed) or np.any(zeroed):
                result = self._fused_inexact(info, values, left, right, bits)
                closed = (addend.meta & (L.NOT_MINUS_ZERO | L.PLUS_ZERO)) != 0
                result = _put(_some(zeroed & np.asarray(closed)), addend, result)
                return _put(absorbed, addend, result)
        exact = _half_range(left) & _half_range(right) if bits == 32 else False
        if np.any(exact):
            modifiers = info.name.split(".", 1)[1]
            product = self._multiply(shape("mul." + modifiers), [left, right], bits)
            assert product is not None
            apart = self._add(shape("add." + modifiers), [product, addend], bits)
            if np.all(exact):
                return apart
            together = self._fused_inexact(info, values, left, right, bits)
            return _put(exact, as_lanes(apart), together)
        return self._fused_inexact(info, values, left, right, bits)

    def _fused_inexact(self, info: Shape, values: list[Lanes], left: Lanes, right: Lanes, bits: int) -> Lanes:
        addend = values[2]
        negative = (left.meta ^ right.meta) & L.NEGATED
        product = (unsigned_hash(left) + unsigned_hash(right)) * hashing.multiplier(1)
        tag = hashing.constant(info.name)
        if isinstance(negative, int):
            tag = hashing.constant(info.name + " negated product") if negative else tag
        else:
            tag = np.where(negative != 0, hashing.constant(info.name + " negated product"), tag)
        words = hashing.finalise(product + full_hash(addend) * hashing.multiplier(2) + tag)
        positive = _positive_product(left, right) & addend.meta
        flags = L.sticky(left, right, addend) | L.TERM | positive | _implied(positive)
        result = Lanes(bits, words, flags)
        recording.note(info.name, result, (*values[:2], addend), commutes=True)
        zero = _is(values[0], 0) & np.logical_and(_is(values[1], 0), True) if _is(values[0], 0) is not False else False
        return _put(zero if np.any(zero) else False, _plus_zero(addend), result)

    def _extremum(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        index = _SET_INDEX.get(info.name)
        if index is None:
            return None
        left, right = values
        if left is right:
            return _flag_where(left, L.LOOSE)
        halves = [_half(value) for value in values] if info.name.endswith(".fp32") else []
        if halves and halves[0] is not None and halves[1] is not None:
            inner = self._extremum(shape(info.name.replace("fp32", "fp16")), [halves[0], halves[1]], 16)
            assert inner is not None
            return as_lanes(self.floating(WIDENING, [inner], 32))
        neutral = _NEUTRAL.get(info.name)
        keeps = ".nan." not in info.name and "finite" not in self.assumptions
        return _set(info.name, index, left, right, bits, neutral, keeps_neutral=keeps)

    def _convert(self, info: Shape, values: list[Lanes], bits: int) -> Lanes | None:
        value = values[0]
        if info.name in ("convert.rn.fp16.fp32", "convert.rz.fp16.fp32"):
            widened = (value.meta & (L.WIDENED | L.PLUS_ZERO)) == L.WIDENED
            if not np.any(widened):
                return None
            whole = bool(widened) if isinstance(widened, bool) else widened
            return _put(whole, _flag_where(_payload(value), L.LOOSE), term(bits, info.name, [value]))
        if info.name == "convert.fp64.fp32":
            kept = value.meta & (L.NOT_MINUS_ZERO | L.NOT_NEGATIVE | L.NEGATED)
            inner = Lanes(value.bits, unsigned_hash(value), L.TERM | L.sticky(value))
            recording.note(recording.SAME, inner, lambda: [_bare(value, L.NEGATED)])
            return _closed(_flags(term(bits, info.name, [inner]), kept), value.meta)
        if info.name != WIDENING:
            return None
        plus_zero = value.meta & L.PLUS_ZERO
        if np.any(plus_zero):
            closed = Lanes(
                16,
                unsigned_hash(value),
                L.TERM | (value.meta & (L.STICKY | L.NEGATED | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)),
            )
            closed = _closed(closed, value.meta)
            recording.note(recording.SAME, closed, lambda: [_bare(value, L.NEGATED)])
            value = _put(bool(plus_zero) if isinstance(plus_zero, int) else plus_zero != 0, closed, value)
        return Lanes(bits, value.words, value.meta | (L.WIDENED | L.HALF_RANGE))

    # -- integers and choices ---------------------------------------------------------------------------------------

    def integer(
        self, name: str, operands: Sequence[Value], bits: int, evaluate: Callable[..., Array], *, gathers: bool = False
    ) -> Value:
        """See `Domain.integer`."""
        if name == "not.pred":
            return L.settle(self._negated(as_lanes(operands[0])))
        values = [as_lanes(operand) for operand in operands]
        result = linear(name, values, bits)
        index = _SET_INDEX.get(name) if gathers and len(values) == 2 else None
        if result is not None:
            recording.note(name, result, values, commutes=name.startswith(("add", "mul")))
        if result is None and index is not None:
            result = _set(name, index, values[0], values[1], bits, None, keeps_neutral=False)
        if result is None:
            looks = not name.startswith("compare.") or (".fp" not in name and ".bf" not in name)
            symmetric = name.startswith(("compare.eq.", "compare.ne.", "compare.num."))
            result = term(bits, name, values, commutes=symmetric, exact=looks)
        return self._fold(Shape(name, "", False, False, evaluate), operands, result)

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        if isinstance(predicate, np.ndarray):
            return choose(predicate, if_true, if_false)
        if if_true is if_false:
            return if_true
        if isinstance(if_true, Pieces) or isinstance(if_false, Pieces):
            cuts = sorted(set(ends(if_true)) | set(ends(if_false)))
            spans = list(zip([0, *cuts[:-1]], cuts, strict=True))
            return concat(
                [
                    self.select(predicate, cut(if_true, low, high - low), cut(if_false, low, high - low))
                    for low, high in spans
                ]
            )
        condition = as_lanes(predicate)
        left, right = as_lanes(if_true), as_lanes(if_false)
        negated = (condition.meta & L.NEGATED) != 0
        if np.any(negated):
            swapped = bool(negated) if isinstance(negated, bool) or np.all(negated) else negated
            condition = Lanes(1, condition.words, L.without(condition.meta, L.NEGATED))
            left, right = _put(swapped, right, left), _put(swapped, left, right)
        kept = _both(left.meta, right.meta, L.NOT_NEGATIVE | L.HALF_RANGE) | _implied_by_both(left.meta, right.meta)
        result = term(left.bits, "select", [condition, left, right], kept)
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
        result = term(bits, "gather", [where])
        known = L.known_where(where)
        if known is not False and np.any(known):
            result = _put(known, as_lanes(self.load(where.words[0], bits)), result)
        return result


def _bare(value: Lanes, flag: int) -> Lanes:
    """The value without a part of its form that stands outside the operation on it."""
    return Lanes(value.bits, value.words, L.without(value.meta, flag))


def _high_half(value: Value) -> Value | None:
    """The bf16 whose widening a value is, or None."""
    if isinstance(value, np.ndarray):
        return None if (value & np.uint32(0xFFFF)).any() else (value >> np.uint32(16)).astype(np.uint16)
    if isinstance(value, Lanes) or len(value.parts) != 2:
        return None
    low, high = value.parts
    if L.width(low) != 16:
        return None
    if isinstance(low, np.ndarray):
        return None if low.any() else high
    poisoned = (low.meta & L.POISON) != 0
    if not np.all(np.logical_or(_is(low, 0), poisoned)):
        return None
    return _flags(as_lanes(high), np.where(poisoned, np.uint32(L.POISON), np.uint32(0)))


def _some(mask: Array) -> bool | Array:
    return mask if mask.any() else False


def _infinite(value: Lanes, bits: int) -> bool | Array:
    """Which lanes hold a known infinity."""
    found = [_is(value, number) for number in _INFINITIES.get(bits, ())]
    return _some(np.logical_or(*found)) if len(found) == 2 else False


def _vanishes(zero: Lanes, other: Lanes) -> bool | Array:
    """Where `zero` is a zero of either sign and `other` is not -0, so that their sum is `other`."""
    found = np.logical_and((zero.meta & L.IS_ZERO) != 0, (other.meta & (L.NOT_MINUS_ZERO | L.PLUS_ZERO)) != 0)
    return _some(np.asarray(found))


def _positive_product(left: Lanes, right: Lanes) -> L.Meta:
    """Where a product of these factors (sign flips counted) is never negative: NOT_NEGATIVE, else 0."""
    flips = (left.meta ^ right.meta) & L.NEGATED
    if left.words is right.words and isinstance(left.meta, int) and left.meta == right.meta:
        return L.NOT_NEGATIVE
    positive = _both(left.meta, right.meta, L.NOT_NEGATIVE)
    if isinstance(flips, int) and isinstance(positive, int):
        return 0 if flips else positive
    return np.where(flips != 0, np.uint32(0), np.uint32(0) | positive)


def _half_range(value: Lanes) -> bool | Array:
    """Which lanes hold an fp32 that an fp16 holds exactly, as far as their form tells: widened ones and zeros."""
    flagged = value.meta & L.HALF_RANGE
    widened = bool(flagged) if isinstance(flagged, int) else flagged != 0
    if widened is True:
        return True
    return widened | _is(value, 0)


def _half(value: Lanes) -> Lanes | None:
    """A value whose every lane holds an fp16 exactly, as that fp16: widened values and the infinities."""
    meta = value.meta
    if isinstance(meta, int):
        if meta & (L.WIDENED | L.PLUS_ZERO | L.NEGATED) == L.WIDENED:
            return _payload(value)
        if meta & L.FORM != L.KNOWN:
            return None
    form = meta & L.FORM
    widened = (form & L.WIDENED) != 0
    plain = (form & (L.PLUS_ZERO | L.NEGATED)) == 0
    high = np.uint64(0xFF800000)
    infinite = (form == L.KNOWN) & ((value.words[0] == high) | (value.words[0] == np.uint64(0x7F800000)))
    poisoned = (meta & L.POISON) != 0
    if not np.all((widened & plain) | infinite | poisoned):
        return None
    half = np.where(value.words == high, np.uint64(0xFC00), np.uint64(0x7C00))
    words = np.where(infinite, half, value.words)
    kept = L.select_meta(infinite, L.known_meta(half[0], 16), meta)  # type: ignore[arg-type]
    return Lanes(16, words, L.without(kept, L.WIDENED | L.HALF_RANGE))


def _flags(lanes: Lanes, flags: L.Meta) -> Lanes:
    return Lanes(lanes.bits, lanes.words, lanes.meta | flags)


def _closed(lanes: Lanes, before: L.Meta) -> Lanes:
    """A value made from x + (+0) is not -0."""
    closed = before & L.PLUS_ZERO
    if isinstance(closed, int):
        return _flags(lanes, L.NOT_MINUS_ZERO if closed else 0)
    return _flags(lanes, np.where(closed != 0, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0)))


def _payload(value: Lanes) -> Lanes:
    """The fp16 behind a widened value."""
    return Lanes(16, value.words, L.without(value.meta, L.WIDENED | L.HALF_RANGE))


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


def linear(name: str, values: list[Lanes], bits: int) -> Lanes | None:
    """Sums, differences and products with known numbers as one linear form modulo 2**bits, or None."""
    verb = name.split(".")[0]
    if (
        bits not in (32, 64)
        or verb not in ("add", "sub", "mul", "shl", "neg")
        or name.startswith(("mul.wide", "mul.hi"))
    ):
        return None
    total = f"add.b{bits}"
    index = _SET_INDEX[total]
    if verb in ("add", "sub"):
        (left, left_flags), (right, right_flags) = (_members(total, index, value, None) for value in values)
        words = left + right if verb == "add" else left - right
        return Lanes(bits, words, left_flags | right_flags | L.SET | index << L.SET_SHIFT)
    if verb == "neg":
        words, flags = _members(total, index, values[0], None)
        return Lanes(bits, np.uint64(0) - words, flags | L.SET | index << L.SET_SHIFT)
    for value, factor in (values, values[::-1]):
        if L.known_where(factor) is not True:
            if verb == "shl":
                return None
            continue
        amount = factor.words[0]
        if verb == "shl":
            amount = np.where(
                amount >= np.uint64(bits), np.uint64(0), np.uint64(1) << np.minimum(amount, np.uint64(63))
            )
        words, flags = _members(total, index, value, None)
        return Lanes(bits, words * amount, flags | L.SET | index << L.SET_SHIFT)
    return None


_UNIT = hashing.constant("one in a linear form")


def _members(name: str, index: int, value: Lanes, neutral: int | None) -> tuple[hashing.Words, L.Meta]:
    """The sum of the hashes of a value's members in a set of `name`, and its flags."""
    meta = value.meta
    tag = hashing.constant("member of " + name)
    hash_of = full_hash if name.split(".")[-1].startswith(("fp", "bf")) else exact_hash
    own = L.SET | index << L.SET_SHIFT
    pattern = L.FORM | 255 << L.SET_SHIFT
    if isinstance(meta, int):
        if meta & pattern == own:
            return value.words, meta & (L.ABSORBED | L.STICKY)
        words = hashing.finalise(hash_of(value) * hashing.multiplier(3) + tag)
        flags: L.Meta = meta & L.STICKY
    else:
        inside = (meta & np.uint32(pattern)) == own
        words = hashing.finalise(hash_of(value) * hashing.multiplier(3) + tag)
        words = np.where(inside, value.words, words)
        flags = (meta & np.uint32(L.STICKY)) | np.where(inside, meta & np.uint32(L.ABSORBED), np.uint32(0))
    if name.startswith("add.b"):
        known = L.known_where(value)
        if known is not False:
            words = np.where(known, value.words * _UNIT, words)
    if neutral is not None:
        empty = _is(value, neutral)
        if empty is not False:
            words = np.where(empty, np.uint64(0), words)
            flags = L.select_meta(empty, L.WITH_IDENTITY, flags)  # type: ignore[arg-type]
        zero = _is(value, 0)
        if zero is not False:
            words = np.where(zero, np.uint64(0), words)
            flags = L.select_meta(zero, L.WITH_ZERO, flags)  # type: ignore[arg-type]
    return words, flags


def _set(
    name: str, index: int, left: Lanes, right: Lanes, bits: int, neutral: int | None, *, keeps_neutral: bool
) -> Lanes:
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
    recording.note(name, result, [left, right], commutes=True)
    if neutral is not None:
        left_empty, right_empty = _is(left, neutral), _is(right, neutral)
        if not keeps_neutral:
            result = _put(
                right_empty, _flag_where(left, L.LOOSE), _put(left_empty, _flag_where(right, L.LOOSE), result)
            )
        if left_empty is not False and right_empty is not False:
            result = _put(left_empty & right_empty, left, result)
    return result


_INFINITIES = {64: (0x7FF0000000000000, 0xFFF0000000000000), 32: (0x7F800000, 0xFF800000)}
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
