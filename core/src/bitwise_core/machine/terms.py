"""The domain of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

The rules of floating-point operations are in `float_rules`, of sets in `sets`, of linear forms in `linear_hash`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from bitwise_core.assumptions import FINITE
from bitwise_core.machine import guards, matrix
from bitwise_core.machine import lanes as L
from bitwise_core.machine.extrema import extremum
from bitwise_core.machine.float_rules import RULES, negated
from bitwise_core.machine.folding import fold
from bitwise_core.machine.integer_steps import integer_terms
from bitwise_core.machine.lane_hash import WIDENING, nan_bits, term
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.linear_hash import linear_form
from bitwise_core.machine.pieces import as_lanes, choose, concat, cut, ends
from bitwise_core.machine.recording import Recorder, TermContext
from bitwise_core.machine.sets import SET_INDEX, union
from bitwise_core.machine.winners import Winners, beyond
from bitwise_core.machine.zero_signs import ZeroSigns
from bitwise_core.numeric import IntegerFormat, Operation, operation


class TermDomain:
    """Terms over the initial content of memory; `assumptions` enable rules that need them (see `assumptions.FINITE`).

    `recorder` is that of a replay.
    """

    name = "terms"

    def __init__(self, assumptions: frozenset[str] = frozenset(), recorder: Recorder | None = None) -> None:
        self.assumptions, self.recorder = assumptions, recorder
        self.context = TermContext(FINITE in assumptions, recorder)
        self.guards = False
        self.zero_signs = ZeroSigns()
        self.winners = Winners() if self.context.finite else None

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`."""
        return assumption in self.assumptions

    # -- floating point -------------------------------------------------------------------------------------------

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        if operation.function is not None and all(isinstance(operand, np.ndarray) for operand in operands):
            return operation.function(*operands)
        high = self._in_high_half(operation, operands)
        if high is not None:
            return high
        if operation.verb == "convert" and not operation.architecture:
            widened = self._of_wide_source(operation, operands[0])
            if widened is not None:
                return widened
        values = [as_lanes(operand) for operand in operands]
        for value in values:
            value.meta = L.uniform(value.meta)
        strict = operation.verb in guards.STRICT and (operation.plain or operation.verb == "ex2")
        if strict and operation.bits == 32 and not self.context.finite:
            parts = guards.split(operation.verb, values, self.guards)
            if parts is not None:
                self.guards = True
                return self._guarded(operation, values, parts, properties)
        return self._unguarded(operation, operands, values, properties)

    def _guarded(self, info: Operation, values: list[Lanes], parts: guards.Split, properties: int) -> Lanes:
        """An operation on guarded fp32 values."""
        inner = as_lanes(self._unguarded(info, parts.values, list(parts.values), properties))
        if info.verb == "ex2":
            inner = guards.raised(parts, inner)
        result = guards.guarded(parts, inner)
        return self.context.note(info.name, result, values, commutes=info.commutative)

    def _unguarded(self, info: Operation, operands: Sequence[Value], values: list[Lanes], properties: int) -> Value:
        """An operation on operands (`values` are they as lanes) none of which is known to be guarded."""
        name, bits = info.name, info.bits
        finite = self.context.finite
        rule = RULES.get(info.verb) if info.plain else None
        result = rule(info, values, bits, self.context) if rule is not None else None
        if info.verb == "ex2" and finite and result is None and bits == 32:
            low = L.holds(values[0], 0xFF800000)
            if low is not False:
                powers = term(bits, name, values, properties, recorder=self.recorder)
                return L.settle(L.put(low, L.known_lanes(np.zeros((1, 1), dtype=np.uint32)), powers))
        if result is None:
            if info.verb == "fma":
                product = term(bits, "product", values[:2], commutes=True, recorder=self.recorder)
                values = [product, values[2]]
            if info.verb == "convert" and isinstance(info.result, IntegerFormat):
                properties |= L.INTEGER  # whatever the bits of a NaN, one integer comes of it
            commutes = info.commutative and info.arity == 2
            looks = _looks_at_bits(info)
            result = term(bits, name, values, properties, commutes=commutes, exact=looks, recorder=self.recorder)
        if info.verb == "ldexp" and info.plain:
            for zero in (0, 1 << bits - 1):  # whatever the power
                result = L.put(L.holds(values[0], zero), values[0], result)
        return fold(info, operands, result)

    def _of_wide_source(self, info: Operation, value: Value) -> Value | None:
        """A conversion between integers and floating-point numbers, its source of 8 or 16 bits widened to 32 first."""
        source, target = info.operands[0], info.result
        of_integer, to_integer = isinstance(source, IntegerFormat), isinstance(target, IntegerFormat)
        words = ("convert", *info.modifiers, target.name)
        if source.name in ("fp16", "bf16") and to_integer and "ftz" not in info.modifiers:
            zeros = np.zeros((1, 1), dtype=np.uint16)
            wide = self.floating(_WIDEN, [value]) if source.name == "fp16" else concat([zeros, value])
            return self.floating(operation(".".join((*words, "fp32"))), [wide])
        if not of_integer or to_integer:
            return None
        exact = {"fp64": 32, "fp32": 16}.get(target.name, 0) >= source.bits
        if exact:
            words = ("convert", "rn", target.name)
        wider = operation(".".join((*words, f"{source.name[0]}32")))
        if source.bits == 32 and wider is not info:
            return self.floating(wider, [value])
        if source.name in ("s8", "s16"):
            return self.floating(wider, [self.integer(operation(f"convert.b32.{source.name}"), [value])])
        if source.name in ("u8", "u16"):
            front = (16,) if source.name == "u16" else (8, 16)
            extended = concat([value, *(np.zeros((1, 1), dtype=L.UNSIGNED[each]) for each in front)])
            return self.floating(wider, [extended])
        return None

    def _in_high_half(self, info: Operation, operands: Sequence[Value]) -> Value | None:
        """max, min, neg and abs of widened bf16 values, and their narrowing, act on the bf16 values."""
        if info in _NARROW_TO_HIGH_HALF:
            half = _high_half(operands[0]) if isinstance(operands[0], Pieces) else None
            return None if half is None else L.settle(L.flagged(as_lanes(half), L.LOOSE))
        if info.verb not in ("max", "min", "neg", "abs") or info.result.name != "fp32" or info.architecture:
            return None
        if not any(isinstance(operand, Pieces) for operand in operands):
            return None
        halves = [_high_half(operand) for operand in operands]
        if any(half is None for half in halves):
            return None
        narrow = operation(info.name.replace("fp32", "bf16"))
        inner = self.floating(narrow, [half for half in halves if half is not None])
        return concat([np.zeros((1, 1), dtype=np.uint16), inner])

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        if operation is _NOT:
            predicate = as_lanes(operands[0])
            inverse = L.settle(negated(predicate, self.context))
            guards.opposite(predicate, inverse)
            return inverse
        extends = _extends(operation)
        if extends and isinstance(operands[0], Lanes) and operands[0].extends is not None:
            inner, narrow = operands[0].extends
            return self.integer(_extension(narrow, operation.bits), [inner])
        values = [as_lanes(operand) for operand in operands]
        result = linear_form(operation, values)
        if result is not None:
            self.context.note(operation.name, result, values, commutes=operation.commutative)
        if result is None and operation.associative and operation.name in SET_INDEX:
            together = extremum if operation.verb in ("min", "max") else union
            result = together(operation.name, values[0], values[1], operation.bits, self.context)
        if result is None:
            looks = not operation.is_comparison or not operation.is_float
            symmetric = operation.commutative and operation.arity == 2
            result = term(
                operation.bits,
                operation.name,
                values,
                L.INTEGER,
                commutes=symmetric,
                exact=looks,
                recorder=self.recorder,
            )
        compares = operation.is_comparison
        notes = self.winners is not None and (compares or operation in _OF_PREDICATES)
        if notes and compares:
            result = beyond(operation, values, result)
        settled = fold(operation, operands, result)
        if isinstance(settled, Lanes):
            if notes and self.winners is not None:
                self.winners.note(operation, values, settled)
            if extends:
                settled.extends = operands[0], operation.operands[0].name
            if self.guards and compares and operation.operands[0].name == "fp32":
                guards.compared(operation, values, settled)
        return settled

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
        opposite = L.some(L.has(condition, L.NEGATED))
        if opposite is not False:
            condition = L.bare(condition, L.NEGATED)
            left, right = L.put(opposite, right, left), L.put(opposite, left, right)
        kept = (left.meta & right.meta & (L.NOT_NEGATIVE | L.HALF_RANGE | L.QUIET)) | _implied_by_both(
            left.meta, right.meta
        )
        if not np.any(nan_bits(left)) and not np.any(nan_bits(right)):
            kept = kept | L.INTEGER
        result = term(left.bits, "select", [condition, left, right], kept, recorder=self.recorder)
        won = self.winners.choose(condition, left, right) if self.winners is not None else None
        if won is not None:
            result = L.put(won[0], self.context.note("select", won[1], [condition, left, right]), result)
        known = L.known_where(condition)
        if known is not False:
            taken = condition.words[0] != 0
            result = L.put(known & taken, left, result)
            result = L.put(known & ~taken, right, result)
        elif left.origin is not None and right.origin is not None:
            self._trace(condition, left.origin, right.origin, result)
        guards.chosen(as_lanes(predicate), as_lanes(if_true), as_lanes(if_false), result)
        return result

    def _trace(self, condition: Lanes, left: tuple[Lanes, int], right: tuple[Lanes, int], result: Lanes) -> None:
        """Slices of two values, chosen by one predicate, are slices of the value that is chosen so."""
        (whole, low), (other, other_low) = left, right
        if low != other_low or whole.bits != other.bits:
            return
        earlier = whole.chosen
        if earlier is None or earlier[1] is not other or not _alike(earlier[0], condition):
            found = self.select(condition, whole, other)
            if not isinstance(found, Lanes):
                return
            whole.chosen = earlier = (condition, other, found)
        result.origin = (earlier[2], low)

    # -- matrix units -----------------------------------------------------------------------------------------------

    def vectors(self, elements: Lanes) -> matrix.Vectors:
        """See `Domain.vectors`."""
        return matrix.hashed_vectors(elements, self.context, self.zero_signs)

    def but_for_zeros(self, value: Value, other: Value) -> None:
        """Two values of 16 bits, of which no matrix step without signed zeros can tell one from the other."""
        if isinstance(value, Lanes) and isinstance(other, Lanes):
            self.zero_signs.note(value, other)

    def fused(self, step: matrix.FusedStep, accumulator: Lanes, left: matrix.Vectors, right: matrix.Vectors) -> Lanes:
        """See `Domain.fused`."""
        assert isinstance(left, matrix.Hashed)
        assert isinstance(right, matrix.Hashed)
        if step.integers is not None:
            return integer_terms(step, accumulator, left, right, self.context)
        return matrix.fused_terms(step, accumulator, left, right, self.context)

    # -- memory -----------------------------------------------------------------------------------------------------

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return Lanes(bits, np.broadcast_to(address[None], (2, *address.shape)), L.LEAF)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        where = as_lanes(address)
        result = term(bits, f"gather {bits}", [where], recorder=self.recorder)
        known = L.known_where(where)
        if known is not False and np.any(known):
            result = L.put(known, as_lanes(self.load(where.words[0], bits)), result)
        return result


_TELLING = ~L.NAN_BITS & 0xFFFFFFFF
"""The properties in which two predicates must agree to be one."""


def _alike(left: Lanes | Array, right: Lanes) -> bool:
    """Whether two predicates are one."""
    if left is right:
        return True
    if not isinstance(left, Lanes) or not np.array_equal(left.words, right.words):
        return False
    return not np.any((left.meta ^ right.meta) & _TELLING)


_WIDEN = operation(WIDENING)
_NOT = operation("not.b1")
_OF_PREDICATES = (operation("and.b1"), operation("or.b1"))
_NARROW_TO_HIGH_HALF = (operation("convert.rn.bf16.fp32"), operation("convert.rz.bf16.fp32"))


@cache
def _looks_at_bits(info: Operation) -> bool:
    """Whether a floating-point operation may tell the bits of one NaN from those of another."""
    if info.verb != "convert" or isinstance(info.result, IntegerFormat):
        return any(form.name == "tf32" for form in (info.result, *info.operands))
    rounds = info.rounding in ("rn", "rz") or (not info.modifiers and info.result.name.startswith("fp"))
    return not rounds or "tf32" in (info.result.name, info.operands[0].name)


@cache
def _extends(info: Operation) -> bool:
    """Whether it extends an integer by its sign."""
    source = info.operands[0]
    return info.verb == "convert" and not info.modifiers and isinstance(source, IntegerFormat) and bool(source.signed)


@cache
def _extension(narrow: str, bits: int) -> Operation:
    """The extension of a signed format."""
    return operation(f"convert.b{bits}.{narrow}")


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
    if not np.all(np.logical_or(L.holds(low, 0), poisoned)):
        return None
    return L.flagged(as_lanes(high), np.where(poisoned, np.uint32(L.POISON), np.uint32(0)))


def _implied_by_both(left: L.Meta, right: L.Meta) -> L.Meta:
    closed = L.NOT_MINUS_ZERO | L.PLUS_ZERO
    if isinstance(left, int) and isinstance(right, int):
        return L.NOT_MINUS_ZERO if left & closed and right & closed else 0
    both = ((left & closed) != 0) & ((right & closed) != 0)
    return np.where(both, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))
