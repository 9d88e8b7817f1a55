"""The domain of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

The rules of floating-point operations are in `values.float_rules`, those of associative and commutative operations in
`values.ac_terms` and `values.minmax`, those of linear forms in `values.linear_hash`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.term_recorder import Recorder, TermContext
from bitwise_core.execution.values import mma_steps, nan_guards, nan_marks
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.ac_terms import AC_INDEX, union
from bitwise_core.execution.values.argminmax import ArgMinMax, fold_infinity_comparison
from bitwise_core.execution.values.constant_folding import fold_constants
from bitwise_core.execution.values.float_rules import RULES, negated, sign_cleared, sign_flipped
from bitwise_core.execution.values.integer_mma_steps import integer_terms
from bitwise_core.execution.values.linear_hash import linear_form
from bitwise_core.execution.values.minmax import extremum
from bitwise_core.execution.values.packing import (
    as_symbolic_vector,
    blend_values,
    concat,
    extract,
    high_half,
    low_half_of_canonical,
    part_ends,
)
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import WIDENING, nan_bits, term
from bitwise_core.execution.values.zero_signs import ZeroSigns
from bitwise_core.numerics import IntegerFormat, Operation, operation


class TermDomain:
    """Terms over the initial content of memory.

    `assumptions` enable rules that need them (see `assumptions.FINITE`).  `recorder` is the recorder of a recorded run.
    """

    name = "terms"

    def __init__(self, assumptions: frozenset[str] = frozenset(), recorder: Recorder | None = None) -> None:
        self.assumptions, self.recorder = assumptions, recorder
        self.context = TermContext(FINITE in assumptions, recorder)
        self.has_guards = False
        self.zero_signs = ZeroSigns()
        self.argminmax = ArgMinMax() if self.context.finite else None

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`."""
        return assumption in self.assumptions

    # -- floating point -------------------------------------------------------------------------------------------

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        if operation.function is not None and all(isinstance(operand, np.ndarray) for operand in operands):
            return operation.function(*operands)
        return nan_marks.with_result_nans(
            self._floating(operation, self._operands(operation, operands), properties), operation
        )

    def _operands(self, info: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        """Return an operation's operands: a value with a NaN mark of another format is a term of its exact bits."""
        if not _has_foreign_marks(info):
            return operands
        return [
            nan_marks.as_operand(each, form.name, self.context)
            if isinstance(each, SymbolicVector) and nan_marks.foreign_marks(form.name)
            else each
            for each, form in zip(operands, info.operands, strict=True)
        ]

    def _floating(self, operation: Operation, operands: Sequence[Value], properties: int) -> Value:
        """Apply a floating-point operation; the marks of the result's NaNs have no meaning yet."""
        halves = self._on_high_halves(operation, operands)
        if halves is not None:
            return halves
        if operation.verb == "convert" and not operation.architecture:
            converted = self._convert_through_32_bits(operation, operands[0])
            if converted is not None:
                return converted
        values = [as_symbolic_vector(operand) for operand in operands]
        for value in values:
            value.flags = L.uniform_flags(value.flags)
        strict = operation.verb in nan_guards.STRICT and (operation.plain or operation.verb == "ex2")
        if strict and operation.bits == 32 and not self.context.finite:
            parts = nan_guards.split_guards(operation.verb, values, self.has_guards)
            if parts is not None:
                self.has_guards = True
                return self._guarded(operation, values, parts, properties)
        return self._unguarded(operation, operands, values, properties)

    def _guarded(
        self, info: Operation, values: list[SymbolicVector], parts: nan_guards.UnguardedOperands, properties: int
    ) -> SymbolicVector:
        """Apply an operation to fp32 values of which some are guarded (see `values.nan_guards`)."""
        inner = as_symbolic_vector(self._unguarded(info, parts.values, list(parts.values), properties))
        if info.verb == "ex2":
            inner = nan_guards.exp2_of_padding(parts, inner)
        result = nan_guards.with_guard(parts, inner)
        return self.context.note(info.name, result, values, commutes=info.commutative)

    def _unguarded(
        self, info: Operation, operands: Sequence[Value], values: list[SymbolicVector], properties: int
    ) -> Value:
        """Apply an operation to operands without guards; `values` are the same operands as symbolic vectors."""
        name, bits = info.name, info.bits
        finite = self.context.finite
        rule = RULES.get(info.verb) if info.plain else None
        result = rule(info, values, bits, self.context) if rule is not None else None
        if info.verb == "ex2" and finite and result is None and bits == 32:
            low = L.equals_constant(values[0], 0xFF800000)
            if low is not False:
                powers = term(bits, name, values, properties, recorder=self.recorder)
                return L.as_array_if_constant(
                    L.blend(low, L.constant_vector(np.zeros((1, 1), dtype=np.uint32)), powers)
                )
        if result is None:
            if info.verb == "fma":
                product = term(bits, "product", values[:2], commutes=True, recorder=self.recorder)
                values = [product, values[2]]
            if info.verb == "convert" and isinstance(info.result, IntegerFormat):
                properties |= L.INTEGER  # the payload of a NaN does not affect the integer
            commutes = info.commutative and info.arity == 2
            exact = _reads_nan_bits(info)
            result = term(bits, name, values, properties, commutes=commutes, exact=exact, recorder=self.recorder)
        if info.verb == "ldexp" and info.plain:
            for zero in (0, 1 << bits - 1):  # for every power
                result = L.blend(L.equals_constant(values[0], zero), values[0], result)
        return fold_constants(info, operands, result)

    def _convert_through_32_bits(self, info: Operation, value: Value) -> Value | None:
        """Convert between integers and floating-point numbers from a source of 8 or 16 bits, widened to 32 bits first.

        Return None for other conversions.
        """
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

    def _on_high_halves(self, info: Operation, operands: Sequence[Value]) -> Value | None:
        """Apply max, min, neg and abs of widened bf16 values, and their narrowing, to the bf16 values.

        Return None for other operations and operands.
        """
        if info in _NARROW_TO_HIGH_HALF:
            half = high_half(operands[0]) if isinstance(operands[0], PackedVector) else None
            if half is None:
                return None
            return L.as_array_if_constant(nan_marks.as_operand(as_symbolic_vector(half), "bf16", self.context))
        if info.verb not in ("max", "min", "neg", "abs") or info.result.name != "fp32" or info.architecture:
            return None
        if not any(isinstance(operand, PackedVector) for operand in operands):
            return None
        halves = [high_half(operand) for operand in operands]
        if any(half is None for half in halves):
            return None
        narrow = operation(info.name.replace("fp32", "bf16"))
        inner = self.floating(narrow, [half for half in halves if half is not None])
        if self.context.finite:
            return concat([np.zeros((1, 1), dtype=np.uint16), inner])
        return concat([low_half_of_canonical(inner), inner])

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        if operation is _NOT:
            predicate = as_symbolic_vector(operands[0])
            inverse = L.as_array_if_constant(negated(predicate, self.context))
            nan_guards.record_negation(predicate, inverse)
            return inverse
        extends = _is_sign_extension(operation)
        if extends and isinstance(operands[0], SymbolicVector) and operands[0].sign_extension_of is not None:
            inner, narrow = operands[0].sign_extension_of
            return self.integer(_sign_extension(narrow, operation.bits), [inner])
        values = [as_symbolic_vector(operand) for operand in operands]
        if operation.is_comparison and operation.is_float:
            values = [
                nan_marks.as_operand(value, form.name, self.context)
                for value, form in zip(values, operation.operands, strict=True)
            ]
        result = self._sign_bit_changed(operation, operands, values)
        if result is None:
            result = linear_form(operation, values)
        if result is not None:
            self.context.note(operation.name, result, values, commutes=operation.commutative)
        if result is None and operation.associative and operation.name in AC_INDEX:
            combine = extremum if operation.verb in ("min", "max") else union
            result = combine(operation.name, values[0], values[1], operation.bits, self.context)
        if result is None:
            exact = not operation.is_comparison or not operation.is_float
            symmetric = operation.commutative and operation.arity == 2
            result = term(
                operation.bits,
                operation.name,
                values,
                L.INTEGER,
                commutes=symmetric,
                exact=exact,
                recorder=self.recorder,
            )
        compares = operation.is_comparison
        records = self.argminmax is not None and (compares or operation in _PREDICATE_LOGIC)
        if records and compares and self.argminmax is not None:
            result = fold_infinity_comparison(operation, values, result, self.argminmax.formats)
        folded = fold_constants(operation, operands, result)
        if isinstance(folded, SymbolicVector):
            if records and self.argminmax is not None:
                self.argminmax.note(operation, values, folded)
            if extends:
                folded.sign_extension_of = operands[0], operation.operands[0].name
            if self.has_guards and compares and operation.operands[0].name == "fp32":
                nan_guards.record_comparison(operation, values, folded)
        return folded

    def _sign_bit_changed(
        self, info: Operation, operands: Sequence[Value], values: Sequence[SymbolicVector]
    ) -> SymbolicVector | None:
        """Return the exclusive or with the sign bit, or the and with its complement; None for another operation."""
        if info.verb not in ("xor", "and") or info.bits not in (16, 32, 64):
            return None
        sign = 1 << (info.bits - 1)
        change, mask = (sign_flipped, sign) if info.verb == "xor" else (sign_cleared, sign - 1)
        for place in (0, 1):
            given = operands[1 - place]
            if isinstance(given, np.ndarray) and given.size == 1 and int(given.reshape(())[()]) == mask:
                return change(values[place], self.context)
        return None

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        if isinstance(predicate, np.ndarray):
            return blend_values(predicate, if_true, if_false)
        if if_true is if_false:
            return if_true
        if isinstance(if_true, PackedVector) or isinstance(if_false, PackedVector):
            ends = sorted(set(part_ends(if_true)) | set(part_ends(if_false)))
            spans = list(zip([0, *ends[:-1]], ends, strict=True))
            return concat(
                [
                    self.select(predicate, extract(if_true, low, high - low), extract(if_false, low, high - low))
                    for low, high in spans
                ]
            )
        condition = as_symbolic_vector(predicate)
        left, right = as_symbolic_vector(if_true), as_symbolic_vector(if_false)
        inverted = L.nonempty(L.has_flag(condition, L.NEGATED))
        if inverted is not False:
            condition = L.without_flags(condition, L.NEGATED)
            left, right = L.blend(inverted, right, left), L.blend(inverted, left, right)
        left, right = nan_marks.as_selected(left, right, self.context)
        kept = (left.flags & right.flags & (L.NOT_NEGATIVE | L.HALF_RANGE | L.QUIET)) | _common_not_minus_zero(
            left.flags, right.flags
        )
        if not np.any(nan_bits(left)) and not np.any(nan_bits(right)):
            kept = kept | L.INTEGER
        kept = kept | (left.flags & L.NAN_MARK)
        result = term(left.bits, "select", [condition, left, right], kept, recorder=self.recorder)
        winner = self.argminmax.choose(condition, left, right) if self.argminmax is not None else None
        if winner is not None:
            result = L.blend(winner[0], self.context.note("select", winner[1], [condition, left, right]), result)
        known = L.constant_mask(condition)
        if known is not False:
            taken = condition.words[0] != 0
            result = L.blend(known & taken, left, result)
            result = L.blend(known & ~taken, right, result)
        elif left.slice_of is not None and right.slice_of is not None:
            self._trace(condition, left.slice_of, right.slice_of, result)
        nan_guards.record_selection(
            as_symbolic_vector(predicate), as_symbolic_vector(if_true), as_symbolic_vector(if_false), result
        )
        return result

    def _trace(
        self,
        condition: SymbolicVector,
        left: tuple[SymbolicVector, int],
        right: tuple[SymbolicVector, int],
        result: SymbolicVector,
    ) -> None:
        """Record that a select between slices of two values is a slice of the select between these values."""
        (whole, low), (other, other_low) = left, right
        if low != other_low or whole.bits != other.bits:
            return
        earlier = whole.last_selection
        if earlier is None or earlier[1] is not other or not _same_predicate(earlier[0], condition):
            found = self.select(condition, whole, other)
            if not isinstance(found, SymbolicVector):
                return
            whole.last_selection = earlier = (condition, other, found)
        result.slice_of = (earlier[2], low)

    # -- matrix units -----------------------------------------------------------------------------------------------

    def operand_vectors(self, elements: SymbolicVector, form: str) -> mma_steps.OperandVectors:
        """See `Domain.operand_vectors`."""
        return mma_steps.hashed_vectors(elements, form, self.context, self.zero_signs)

    def record_equal_except_zero_sign(self, value: Value, other: Value) -> None:
        """Record that two values of 16 bits are equal except for the sign of a zero.

        A matrix step without signed zeros does not distinguish them.
        """
        if isinstance(value, SymbolicVector) and isinstance(other, SymbolicVector):
            self.zero_signs.note(value, other)

    def mma_step(
        self,
        step: mma_steps.MmaStep,
        accumulator: SymbolicVector,
        left: mma_steps.OperandVectors,
        right: mma_steps.OperandVectors,
    ) -> SymbolicVector:
        """See `Domain.mma_step`."""
        assert isinstance(left, mma_steps.HashedVectors)
        assert isinstance(right, mma_steps.HashedVectors)
        if step.integers is not None:
            return integer_terms(step, accumulator, left, right, self.context)
        return mma_steps.mma_terms(step, accumulator, left, right, self.context)

    # -- memory -----------------------------------------------------------------------------------------------------

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return SymbolicVector(bits, np.broadcast_to(address[None], (2, *address.shape)), L.LOAD)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`."""
        where = as_symbolic_vector(address)
        result = term(bits, f"gather {bits}", [where], exact=True, recorder=self.recorder)
        known = L.constant_mask(where)
        if known is not False and np.any(known):
            result = L.blend(known, as_symbolic_vector(self.load(where.words[0], bits)), result)
        return result


_DISTINGUISHING = ~L.NAN_BITS & 0xFFFFFFFF
"""The flags in which two equal predicates must agree."""


def _same_predicate(left: SymbolicVector | Array, right: SymbolicVector) -> bool:
    """Return whether two predicates are equal."""
    if left is right:
        return True
    if not isinstance(left, SymbolicVector) or not np.array_equal(left.words, right.words):
        return False
    return not np.any((left.flags ^ right.flags) & _DISTINGUISHING)


_WIDEN = operation(WIDENING)
_NOT = operation("not.b1")
_PREDICATE_LOGIC = (operation("and.b1"), operation("or.b1"))
_NARROW_TO_HIGH_HALF = (operation("convert.rn.bf16.fp32"), operation("convert.rz.bf16.fp32"))


@cache
def _has_foreign_marks(info: Operation) -> bool:
    """Return whether an operand of an operation may have a mark of another format than its own."""
    return any(nan_marks.foreign_marks(form.name) for form in info.operands)


@cache
def _reads_nan_bits(info: Operation) -> bool:
    """Return whether the result of a floating-point operation may depend on the payload of a NaN operand."""
    if "signalling" in info.modifiers:
        return True
    if info.verb != "convert" or isinstance(info.result, IntegerFormat):
        return any(form.name == "tf32" for form in (info.result, *info.operands))
    rounds = info.rounding in ("rn", "rz") or (not info.modifiers and info.result.name.startswith("fp"))
    return not rounds or "tf32" in (info.result.name, info.operands[0].name)


@cache
def _is_sign_extension(info: Operation) -> bool:
    """Return whether an operation extends an integer by its sign."""
    source = info.operands[0]
    return info.verb == "convert" and not info.modifiers and isinstance(source, IntegerFormat) and bool(source.signed)


@cache
def _sign_extension(narrow: str, bits: int) -> Operation:
    """Return the extension of a signed format to `bits` bits."""
    return operation(f"convert.b{bits}.{narrow}")


def _common_not_minus_zero(left: L.Flags, right: L.Flags) -> L.Flags:
    """Return NOT_MINUS_ZERO where both of two values cannot be -0."""
    closed = L.NOT_MINUS_ZERO | L.PLUS_ZERO
    if isinstance(left, int) and isinstance(right, int):
        return L.NOT_MINUS_ZERO if left & closed and right & closed else 0
    both = ((left & closed) != 0) & ((right & closed) != 0)
    return np.where(both, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))
