"""The domain of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

The rules of floating-point operations are in `float_rules`, of sets in `sets`, of linear forms in `linear_hash`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from bitwise_core.assumptions import FINITE
from bitwise_core.machine import guards, matrix
from bitwise_core.machine import lanes as L
from bitwise_core.machine.extrema import extremum
from bitwise_core.machine.float_rules import RULES, negated
from bitwise_core.machine.folding import Shape, fold, shape
from bitwise_core.machine.integer_steps import integer_terms
from bitwise_core.machine.lane_hash import WIDENING, nan_bits, term
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.linear_hash import linear_form
from bitwise_core.machine.pieces import as_lanes, choose, concat, cut, ends
from bitwise_core.machine.recording import Recorder, TermContext
from bitwise_core.machine.sets import SET_INDEX, union
from bitwise_core.machine.winners import Winners, beyond
from bitwise_core.machine.zero_signs import ZeroSigns


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

    def floating(self, name: str, operands: Sequence[Value], bits: int, properties: int = 0) -> Value:
        """See `Domain.floating`."""
        info = shape(name)
        if info.evaluate is not None and all(isinstance(operand, np.ndarray) for operand in operands):
            return info.evaluate(*operands)
        high = self._in_high_half(info, operands)
        if high is not None:
            return high
        if info.verb == "convert":
            widened = self._of_wide_source(name, operands[0], bits)
            if widened is not None:
                return widened
        values = [as_lanes(operand) for operand in operands]
        for value in values:
            value.meta = L.uniform(value.meta)
        if bits == 32 and not self.context.finite and info.verb in guards.STRICT and (info.plain or info.verb == "ex2"):
            parts = guards.split(info.verb, values, self.guards)
            if parts is not None:
                self.guards = True
                return self._guarded(info, values, parts, properties)
        return self._unguarded(info, operands, values, bits, properties)

    def _guarded(self, info: Shape, values: list[Lanes], parts: guards.Split, properties: int) -> Lanes:
        """An operation on guarded fp32 values."""
        inner = as_lanes(self._unguarded(info, parts.values, list(parts.values), 32, properties))
        if info.verb == "ex2":
            inner = guards.raised(parts, inner)
        result = guards.guarded(parts, inner)
        return self.context.note(info.name, result, values, commutes=info.verb in ("add", "mul", "fma"))

    def _unguarded(
        self, info: Shape, operands: Sequence[Value], values: list[Lanes], bits: int, properties: int
    ) -> Value:
        """An operation on operands (`values` are they as lanes) none of which is known to be guarded."""
        name = info.name
        finite = self.context.finite
        rule = RULES.get(info.verb) if info.plain else None
        result = rule(info, values, bits, self.context) if rule is not None else None
        if info.verb == "ex2" and finite and result is None and bits == 32:
            low = L.holds(values[0], 0xFF800000)
            if low is not False:
                powers = term(bits, name, values, properties, recorder=self.recorder)
                return L.settle(L.put(low, L.known_lanes(np.zeros((1, 1), dtype=np.uint32)), powers))
        if result is None:
            commutes = info.verb in ("add", "mul", "min", "max")
            if info.verb == "fma":
                product = term(bits, "product", values[:2], commutes=True, recorder=self.recorder)
                values = [product, values[2]]
            rounds = name.startswith(("convert.rn.", "convert.rz.", "convert.fp"))
            looks = ".tf32" in name or (info.verb == "convert" and not rounds)
            if info.verb == "convert" and _INTEGER.fullmatch(name.split(".")[-2]):
                # Whatever the bits of a NaN, one integer comes of it.
                looks, properties = False, properties | L.INTEGER
            result = term(bits, name, values, properties, commutes=commutes, exact=looks, recorder=self.recorder)
        if info.verb == "ldexp" and info.plain:
            for zero in (0, 1 << bits - 1):  # whatever the power
                result = L.put(L.holds(values[0], zero), values[0], result)
        return fold(info, operands, result)

    def _of_wide_source(self, name: str, value: Value, bits: int) -> Value | None:
        """A conversion between integers and floating-point numbers, its source of 8 or 16 bits widened to 32 first."""
        *verb, target, source = name.split(".")
        if source in ("fp16", "bf16") and _INTEGER.fullmatch(target) and "ftz" not in verb:
            zeros = np.zeros((1, 1), dtype=np.uint16)
            wide = self.floating(WIDENING, [value], 32) if source == "fp16" else concat([zeros, value])
            return self.floating(".".join([*verb, target, "fp32"]), [wide], bits)
        if not _INTEGER.fullmatch(source) or _INTEGER.fullmatch(target):
            return None
        exact = {"fp64": 32, "fp32": 16}.get(target, 0) >= int(source[1:])
        wide_name = ".".join(["convert.rn" if exact else ".".join(verb), target, f"{source[0]}32"])
        if source in ("s32", "u32") and wide_name != name:
            return self.floating(wide_name, [value], bits)
        if source in ("s8", "s16"):
            return self.floating(wide_name, [self.integer(f"convert.s32.{source}", [value], 32, _extension(32))], bits)
        if source in ("u8", "u16"):
            front = (16,) if source == "u16" else (8, 16)
            extended = concat([value, *(np.zeros((1, 1), dtype=L.UNSIGNED[each]) for each in front)])
            return self.floating(wide_name, [extended], bits)
        return None

    def _in_high_half(self, info: Shape, operands: Sequence[Value]) -> Value | None:
        """max, min, neg and abs of widened bf16 values, and their narrowing, act on the bf16 values."""
        if info.name in ("convert.rn.bf16.fp32", "convert.rz.bf16.fp32"):
            narrow = _high_half(operands[0]) if isinstance(operands[0], Pieces) else None
            return None if narrow is None else L.settle(L.flagged(as_lanes(narrow), L.LOOSE))
        if info.verb not in ("max", "min", "neg", "abs") or not info.name.endswith(".fp32"):
            return None
        if not any(isinstance(operand, Pieces) for operand in operands):
            return None
        halves = [_high_half(operand) for operand in operands]
        if any(half is None for half in halves):
            return None
        inner = self.floating(info.name.replace("fp32", "bf16"), [half for half in halves if half is not None], 16)
        return concat([np.zeros((1, 1), dtype=np.uint16), inner])

    def integer(
        self, name: str, operands: Sequence[Value], bits: int, evaluate: Callable[..., Array], *, gathers: bool = False
    ) -> Value:
        """See `Domain.integer`."""
        if name == "not.pred":
            predicate = as_lanes(operands[0])
            inverse = L.settle(negated(predicate, self.context))
            guards.opposite(predicate, inverse)
            return inverse
        extension = _EXTENSION.fullmatch(name)
        if extension is not None and isinstance(operands[0], Lanes) and operands[0].extends is not None:
            inner, narrow = operands[0].extends
            return self.integer(f"convert.{extension[1]}.{narrow}", [inner], bits, _extension(bits))
        values = [as_lanes(operand) for operand in operands]
        result = linear_form(name, values, bits)
        if result is not None:
            self.context.note(name, result, values, commutes=name.startswith(("add", "mul")))
        if result is None and gathers and len(values) == 2 and name in SET_INDEX:
            together = extremum if name.startswith(("min", "max")) else union
            result = together(name, values[0], values[1], bits, self.context)
        if result is None:
            looks = not name.startswith("compare.") or (".fp" not in name and ".bf" not in name)
            symmetric = name.startswith(("compare.eq.", "compare.ne.", "compare.num.", "mul.hi."))
            result = term(bits, name, values, L.INTEGER, commutes=symmetric, exact=looks, recorder=self.recorder)
        notes = self.winners is not None and (name.startswith("compare.") or name in ("and.pred", "or.pred"))
        if notes and name.startswith("compare."):
            result = beyond(name, values, result)
        settled = fold(Shape(name, "", False, False, evaluate), operands, result)
        if isinstance(settled, Lanes):
            if notes and self.winners is not None:
                self.winners.note(name, values, settled)
            if extension is not None:
                settled.extends = operands[0], extension[2]
            if self.guards and name.startswith("compare.") and name.endswith(".fp32"):
                guards.compared(values, evaluate, settled)
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


_INTEGER = re.compile(r"[su]\d+")
_EXTENSION = re.compile(r"convert\.(s\d+)\.(s\d+)")


def _extension(bits: int) -> Callable[[Array], Array]:
    """The sign extension of known numbers to `bits` bits."""

    def evaluate(pattern: Array) -> Array:
        signed: Array = pattern.view(f"i{pattern.dtype.itemsize}").astype(f"i{bits // 8}").view(L.UNSIGNED[bits])
        return signed

    return evaluate


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
