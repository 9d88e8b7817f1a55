"""The arithmetic of terms: a floating-point value is a hash of its dependence tree, kept in canonical form.

The canonical form is computed by the rules of `ir.rules`, which `values.rewriting` compiles for each operation and
matches.  What no rule replaces becomes a term, a set of members (`values.sets`) or a linear form
(`values.integers.linear_hash`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.domains.domain import StepsInOrder
from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.constant_folding import fold_constants, without_unspecified_nans
from bitwise_core.execution.values.constant_lanes import without_constant_lanes
from bitwise_core.execution.values.floats import nan_guards, nan_marks, nan_sources
from bitwise_core.execution.values.floats.assumed_finite import assumed_finite
from bitwise_core.execution.values.floats.open_nans import with_open_nans
from bitwise_core.execution.values.floats.sign_bits import (
    magnitude,
    magnitude_of_constants,
    negated,
    sign_cleared,
    sign_flipped,
    widened,
    without_negated_plus_zero,
)
from bitwise_core.execution.values.floats.zero_signs import FOLLOWED, ZeroSigns, without_zero_signs
from bitwise_core.execution.values.integers import choice_trees, narrow_integers, numbers_below, predicate_bits
from bitwise_core.execution.values.integers.bounds import (
    BOUNDED,
    maximum_of_either,
    maximum_of_result,
    signed_extremum,
    without_mask,
)
from bitwise_core.execution.values.integers.linear_hash import constant_of_sum, linear_form, with_neutral_numbers
from bitwise_core.execution.values.packing import (
    as_symbolic_vector,
    blend_values,
    concat,
    extract,
    is_number_beside_widened,
    low_half_of_canonical,
    part_ends,
)
from bitwise_core.execution.values.rewriting.result_facts import (
    common_not_minus_zero,
    with_facts,
    with_origin,
    with_second_origin,
)
from bitwise_core.execution.values.rewriting.rule_matching import Bindings, Lanes, both, matches, may_match
from bitwise_core.execution.values.rewriting.rule_plans import (
    WIDENING,
    WIDENING_BF16,
    Plan,
    RuleSet,
    plan_of,
    rules_of_select,
    rules_on_origins,
)
from bitwise_core.execution.values.sets.ac_terms import AC_INDEX, union
from bitwise_core.execution.values.sets.argminmax import choose, fold_infinity_comparison
from bitwise_core.execution.values.sets.exact_sums import ExactSums
from bitwise_core.execution.values.sets.first_extrema import FirstExtrema, chosen_place
from bitwise_core.execution.values.sets.minmax import extremum
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, nan_bits, term
from bitwise_core.ir.rules.patterns import Term
from bitwise_core.numerics import FloatFormat, Format, IntegerFormat, Operation, operation

Otherwise: TypeAlias = Callable[[], SymbolicVector]
Builder: TypeAlias = Callable[[Term, Bindings], Value]
Special: TypeAlias = Callable[[Operation, Sequence[SymbolicVector], TermContext], SymbolicVector | None]


class TermArithmetic(StepsInOrder):
    """Operations and selects on terms.

    `context` holds the assumptions, the recorder of a recorded run, and the sets that are followed.  `zero_signs` and
    `first_extrema` hold what matrix steps and selects know of values by their hashes.
    """

    def __init__(self, context: TermContext) -> None:
        self.context = context
        self.recorder = context.recorder
        self.zero_signs = ZeroSigns()
        self.first_extrema = FirstExtrema()
        self.exact_sums = ExactSums()

    @property
    def _bit_builder(self) -> predicate_bits.Builder:
        """Made for each use: a domain that held it would be in a cycle, with all its tables, after the analysis."""
        return predicate_bits.Builder(self._applied, self._choice)

    def assumed_finite(self, value: Value, form: FloatFormat) -> bool | Array:
        """See `Domain.assumed_finite`."""
        if not self.context.finite or isinstance(value, np.ndarray) or L.lazy_integers(value) is not None:
            return False
        return assumed_finite(as_symbolic_vector(value), form, self.context.formats)

    # -- floating point -------------------------------------------------------------------------------------------

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        numbers = [operand for operand in operands if isinstance(operand, np.ndarray)]
        if operation.function is not None and len(numbers) == len(operands):
            folded = without_unspecified_nans(operation, numbers, operation.function(*numbers))
            return nan_marks.with_result_nans(folded, operation)
        operands = self._operands(operation, operands)
        result = self._apply(operation, operands, properties)
        if operation.verb != "neg" or not nan_marks.is_no_nan(operands[0]):
            result = nan_marks.with_result_nans(result, operation)
        if operation.name in FOLLOWED:
            result = without_zero_signs(operation, operands, result, self.floating)
        form = operation.result
        if form.bits == 16 and isinstance(form, FloatFormat) and isinstance(result, SymbolicVector) and result.origins:
            self._note_zero_sign(result, form.name)
        return result

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

    def _apply(self, info: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """Return the result of an operation: rewritten where rules match, elsewhere a term; constants are folded."""
        plan = plan_of(info.name, self.context.finite)
        return self._replaced(plan, info, operands, lambda: self._rewritten_float(plan, info, operands, properties))

    def _rewritten_float(self, plan: Plan, info: Operation, operands: Sequence[Value], properties: int) -> Value:
        """Return the result of an operation to which no rule of `_replaced` applies, see `_apply`."""
        if info.name == WIDENING_BF16:
            if self.context.finite:
                return concat([np.zeros((1, 1), dtype=np.uint16), operands[0]])
            half = nan_marks.with_bf16_nans(as_symbolic_vector(operands[0]))
            return concat([low_half_of_canonical(half), half])
        values = [as_symbolic_vector(operand) for operand in operands]
        for value in values:
            L.settle_flags(value)
        others = without_constant_lanes(info, values) if self.recorder is None else None
        if others is not None:
            result = self._rewritten(plan.rules, others, info, lambda: self._term(info, plan, others, properties))
            if not isinstance(result, PackedVector):
                return fold_constants(info, operands, as_symbolic_vector(result))
        result = self._rewritten(plan.rules, values, info, lambda: self._term(info, plan, values, properties))
        if isinstance(result, PackedVector):
            return result
        return fold_constants(info, operands, as_symbolic_vector(result))

    def _replaced(
        self, plan: Plan, info: Operation, operands: Sequence[Value], otherwise: Callable[[], Value]
    ) -> Value:
        """Return the right side of a rule that always applies, or those of the rules of widened bf16 where they match.

        In other lanes, and where no rule matches, it is `otherwise()`.
        """
        if plan.redirect is not None:
            named = zip(plan.redirect.left.operands, operands, strict=True)
            return self._build(plan.redirect.right, {each.word: value for each, value in named}, info)
        if not plan.bf16_rules or not any(_may_be_widened(operand) for operand in operands):
            return otherwise()
        found: list[tuple[Lanes, Value]] = []
        rest: Lanes = True
        for rule in plan.bf16_rules:
            for matched, bindings in matches(rule, operands, self._builder(info), self.context):
                lanes = both(matched, rest)
                if lanes is False:
                    continue
                found.append((lanes, self._build(rule.instance.right, bindings, info)))
                rest = False if lanes is True or np.all(lanes) else both(rest, ~lanes)
                if rest is False:
                    break
            if rest is False:
                break
        result = found.pop()[1] if rest is False else otherwise()
        for lanes, value in reversed(found):
            assert not isinstance(lanes, bool)
            result = blend_values(lanes, value, result)
        return result

    def _rewritten(
        self,
        rules: RuleSet,
        values: Sequence[SymbolicVector],
        info: Operation | None,
        otherwise: Otherwise,
    ) -> Value:
        """Return the right sides of the first rules that match, lane by lane, and `otherwise()` where none matches."""
        found: list[tuple[Lanes, Value]] = []
        rest: Lanes = True
        for rule in rules.admitted(values):
            if not may_match(rule, values):
                continue
            for matched, bindings in matches(rule, values, self._builder(info), self.context):
                lanes = both(matched, rest)
                if lanes is False:
                    continue
                compared = [as_symbolic_vector(bindings[each]) for each in rule.cancelled]
                if compared and info is not None and not info.is_float and _may_have_other_nans(compared):
                    continue
                built = self._build(rule.instance.right, bindings, info, rule.instance.left)
                if compared and L.any_flag(sticky := L.sticky_flags(*compared)):
                    built = L.with_flags(as_symbolic_vector(built), sticky)
                if info is None and rule.instance.rule.keeps == "number":
                    built = _with_moved_nans(as_symbolic_vector(built))
                found.append((lanes, built))
                rest = False if lanes is True or np.all(lanes) else both(rest, ~lanes)
                if rest is False:
                    break
            if rest is False:
                break
        if rest is False and len(found) == 1:
            return found[0][1]
        result: Value = otherwise() if rest is not False else found.pop()[1]
        for lanes, value in reversed(found):
            if isinstance(value, PackedVector) or isinstance(result, PackedVector):
                result = value if isinstance(lanes, bool) else blend_values(lanes, value, result)
            else:
                result = L.blend(lanes, as_symbolic_vector(value), as_symbolic_vector(result))
        return result

    def _builder(self, info: Operation | None) -> Builder:
        return lambda pattern, bindings: self._build(pattern, bindings, info)

    def _build(
        self, pattern: Term, bindings: Bindings, info: Operation | None = None, matched: Term | None = None
    ) -> Value:
        """Return the value of a pattern.

        `info` is the operation that is being rewritten, for which the pattern may have a more general name.  The term
        `matched` was matched by a rule already: it is not rewritten again.
        """
        if pattern.kind == "variable":
            return bindings[pattern.word]
        if pattern.kind == "number":
            return np.full((1, 1), pattern.number, dtype=L.UNSIGNED[pattern.bits])
        below = [self._build(each, bindings, info, matched) for each in pattern.operands]
        if pattern.kind == "select":
            return self.select(*below)
        if pattern.kind == "concat":
            return concat(below)
        if pattern.kind == "slice":
            return extract(below[0], pattern.low, pattern.bits)
        meaning = pattern.operation
        if meaning.function is None and info is not None and meaning.verb == info.verb:
            meaning = info
        if pattern == matched:
            values = [as_symbolic_vector(each) for each in below]
            if not isinstance(meaning.result, FloatFormat):
                return fold_constants(meaning, below, self._integer_term(meaning, below, values))
            return self._term(meaning, plan_of(meaning.name, self.context.finite), values, 0)
        if isinstance(meaning.result, FloatFormat) or (meaning.is_float and not meaning.is_comparison):
            return self.floating(meaning, below)
        return self.integer(meaning, below)

    def _term(self, info: Operation, plan: Plan, values: Sequence[SymbolicVector], properties: int) -> SymbolicVector:
        """Return the result of an operation that no rule replaces."""
        special = _SPECIAL.get(info.verb)
        if special is not None:
            result = special(info, values, self.context)
            if result is not None:
                result = L.with_flags(result, properties) if properties else result
                return with_second_origin(info.name, result, values, self.context) if info.verb == "abs" else result
        if info.name in AC_INDEX and info.verb in ("max", "min"):
            keeps = "nan" not in info.modifiers and not self._some_operand_is_finite(info, values)
            result = extremum(info.name, values[0], values[1], info.bits, self.context, keeps_identity=keeps)
            facts = with_facts(0, plan, values, self.context)
            # The extremum of one value is the value itself, whose flags are about the number inside of its wrappers.
            wrapped = L.has_flag(result, L.WRAPPERS)
            if wrapped is not True:
                result = L.with_flags(result, facts if wrapped is False else L.select_flags(wrapped, 0, facts))
            return with_origin(info.name, result, values, self.context)
        exact = self.exact_sums.sum_of(info, list(values), self.context)
        if exact is not None and exact[0] is True:
            return exact[1]
        result = self._hoisted(info, plan, list(values), properties)
        if exact is not None:
            result = L.blend(exact[0], exact[1], result)
        if info.verb == "convert":
            self.exact_sums.note_conversion(result, info, values[0].maximum)
        if plan.drops_zero:
            for zero, other in ((values[0], values[1]), (values[1], values[0])):
                lanes = L.equals_constant(zero, 0)
                if lanes is not False:
                    result = L.blend(lanes, L.plus_zero(other), result)
        return result

    def _some_operand_is_finite(self, info: Operation, values: Sequence[SymbolicVector]) -> bool:
        """Return whether in every lane some operand is assumed to be a finite number."""
        if not isinstance(info.result, FloatFormat):
            return False
        one, other = (self.assumed_finite(value, info.result) for value in values)
        return bool(np.all(np.logical_or(one, other)))

    def _hoisted(self, info: Operation, plan: Plan, values: list[SymbolicVector], properties: int) -> SymbolicVector:
        """Return the term of an operation over operands without the wrappers that rules move or drop."""
        same = len(values) > 1 and values[0] is values[1]
        moved: L.Flags = 0
        switched: L.Flags = 0
        target: Operation | None = None
        for place, hoists in enumerate(plan.hoists):
            for hoist in hoists:
                value = values[place]
                if hoist.flag == L.NEGATED:
                    if hoist.action != "drop":
                        value = magnitude_of_constants(value)
                    value = without_negated_plus_zero(value, self.context)
                values[place] = value
                if not L.flags_of_some_lane(value) & hoist.flag:
                    continue
                present = value.flags & hoist.flag
                values[place] = L.without_flags(value, hoist.flag)
                if hoist.action == "switch":
                    switched, target = switched ^ present, hoist.target
                elif hoist.action == "move":
                    moved = moved ^ present if hoist.flag == L.NEGATED else moved | present
        if same and plan.hoists[0]:
            values[1] = values[0]
        reads_bits = _reads_nan_bits(info)
        words = _term_words(info, values, exact=reads_bits)
        if target is not None and L.any_flag(switched):
            other = _term_words(target, values, exact=False)
            words = other if isinstance(switched, int) else np.where(switched != 0, other, words)
        # No integer has the bits of a NaN.  A conversion from fp64 may keep a NaN's payload; one to tf32 cuts it.
        passes_on = info.verb == "convert" and (info.operands[0].name == "fp64" or info.result.name == "tf32")
        if isinstance(info.result, IntegerFormat) or passes_on:
            properties |= L.INTEGER
        divided: L.Flags = 0
        if info.function is None and info.verb == "div":
            divided = _moved_dividend(values[1], info.operands[1])
        facts = with_facts(0, plan, values, self.context)
        if target is not None:
            facts = L.select_flags(np.asarray(switched != 0), 0, facts)
        flags = L.TERM | properties | divided | L.sticky_flags(*values) | facts
        if reads_bits:
            for value in values:
                flags = flags | nan_bits(value)
        if L.any_flag(moved):
            # A sum with +0 of a value that is not -0 is the value; the facts are those of the number without its sign.
            flags = L.clear_flags_where(flags | moved, L.PLUS_ZERO, L.NOT_MINUS_ZERO)
            flags = L.clear_flags_where(flags, L.NOT_MINUS_ZERO | L.NOT_NEGATIVE, L.NEGATED)
        result = SymbolicVector(info.bits, words, flags)
        name = target.name if target is not None and np.all(switched) else info.name
        self.context.note(name, result, values, commutes=info.commutative)
        if target is None or not np.any(switched):
            result = with_origin(info.name, result, values, self.context)
        elif np.all(switched):
            result = with_origin(target.name, result, values, self.context)
        return nan_sources.with_source(result, values, reads_bits=reads_bits)

    # -- integers and predicates --------------------------------------------------------------------------------------

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        if operation is _NOT:
            return L.as_array_if_constant(negated(as_symbolic_vector(operands[0]), self.context))
        if not isinstance(operation.result, IntegerFormat):
            return self.floating(operation, operands)
        operation = signed_extremum(operation, operands)
        chosen = predicate_bits.of_choices(operation, operands, self._bit_builder)
        if chosen is None:
            chosen = choice_trees.of_tree(operation, operands, self.select)
        if chosen is not None:
            return chosen
        wide = narrow_integers.wide_operation(operation, operands)
        if wide is not None:
            found = self._applied(wide.name, wide.operands)
            return found if wide.bits == 1 else extract(found, 0, wide.bits)
        below = numbers_below.sum_below(operation, operands)
        if below is not None:
            joined = numbers_below.joined(*below)
            return numbers_below.with_parts(self._integer(operation, operands), *below) if joined is None else joined
        halves = narrow_integers.low_halves(operation, operands)
        if halves is not None:
            low = self._applied(f"{operation.verb}.b{narrow_integers.WIDE}", halves)
            return concat([low, np.zeros((1, 1), dtype=np.uint32)])
        if operation.verb in predicate_bits.VERBS and not operation.is_float and operation.operands[0].bits > 1:
            return predicate_bits.with_bits(
                operation, operands, self._bit_builder, lambda: self._integer(operation, operands)
            )
        return self._integer(operation, operands)

    def _integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """Return the result of an operation on integers, with its bound."""
        result = self._rewritten_integer(operation, operands)
        if operation.verb in BOUNDED and isinstance(result, SymbolicVector) and result.maximum is None:
            result.maximum = maximum_of_result(operation, operands)
        return result

    def _rewritten_integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """Return the result of an operation on integers: rewritten where rules match, elsewhere a term."""
        plan = plan_of(operation.name, self.context.finite)
        return self._replaced(plan, operation, operands, lambda: self._rewritten_number(plan, operation, operands))

    def _rewritten_number(self, plan: Plan, operation: Operation, operands: Sequence[Value]) -> Value:
        """Return the result of an operation on integers to which no rule of `_replaced` applies."""
        unmasked = without_mask(operation, operands)
        if unmasked is not None:
            return unmasked
        values = [as_symbolic_vector(operand) for operand in operands]
        if operation.is_comparison and operation.is_float:
            values = [
                nan_marks.as_operand(value, form.name, self.context)
                for value, form in zip(values, operation.operands, strict=True)
            ]
        if plan.rules.rules:
            for value in values:
                L.settle_flags(value)
            found = self._rewritten(
                plan.rules, values, operation, lambda: self._integer_term(operation, operands, values)
            )
            if isinstance(found, PackedVector):
                return found
            folded = self._folded(operation, operands, values, as_symbolic_vector(found))
            return L.as_array_if_constant(folded) if operation.bits == 1 else folded
        return self._folded(operation, operands, values, self._integer_term(operation, operands, values))

    def _folded(
        self, info: Operation, operands: Sequence[Value], values: Sequence[SymbolicVector], result: SymbolicVector
    ) -> Value:
        """Return a result with constants of constant operands, and a comparison with the numbers that it tests."""
        folded = fold_constants(info, operands, result)
        if not info.is_comparison or not isinstance(folded, SymbolicVector):
            return folded
        return nan_sources.with_number_test(folded, info, values)

    def _integer_term(
        self, info: Operation, operands: Sequence[Value], values: Sequence[SymbolicVector]
    ) -> SymbolicVector:
        """Return the result of an operation on integers, or of a comparison, that no rule replaces."""
        result = self._sign_bit_changed(info, operands, values)
        is_linear = result is None
        if is_linear:
            result = linear_form(info, [self._linear_operand(value) for value in values])
        if result is not None:
            self.context.note(info.name, result, values, commutes=info.commutative)
            if is_linear:
                result = with_neutral_numbers(info, values, result)
                if any(result is value for value in values):
                    return result
        elif info.name in AC_INDEX:
            combine = extremum if info.verb in ("min", "max") else union
            result = combine(info.name, values[0], values[1], info.bits, self.context)
        else:
            exact = not info.is_comparison or not info.is_float
            words = _term_words(info, values, exact=exact)
            flags = L.TERM | L.INTEGER | L.sticky_flags(*values)
            if exact and not nan_sources.tests_only_numbers(info, values):
                for value in values:
                    flags = flags | nan_bits(value)
            result = SymbolicVector(info.bits, words, flags)
            self.context.note(info.name, result, values, commutes=info.commutative)
        if self.context.finite and info.is_comparison:
            result = fold_infinity_comparison(info, values, result, self.context.formats)
        result = with_origin(info.name, result, values, self.context)
        number = constant_of_sum(info, operands) if is_linear else None
        if number is not None:
            result.origins = (*result.origins, number)
        return result if info.is_comparison else nan_sources.with_source(result, values, reads_bits=True)

    def _linear_operand(self, value: SymbolicVector) -> SymbolicVector:
        """Return a select of two constants as the multiple of the number of its predicate plus a constant.

        A negated predicate is 1 less the number of the predicate, so that a sum with both has one form.
        """
        choice = predicate_bits.number_choice(value)
        if choice is None or value.bits not in (32, 64):
            return value
        bits = value.bits
        negated = L.nonempty(L.has_flag(choice.predicate, L.NEGATED))
        if negated is False and (choice.high == 1).all() and (choice.low == 0).all():
            return value
        one = L.constant_vector(np.full((1, 1), 1, dtype=L.UNSIGNED[bits]))
        factor, offset = (L.constant_vector(each) for each in (choice.high - choice.low, choice.low))
        number = as_symbolic_vector(self._choice(L.without_flags(choice.predicate, L.NEGATED), 1, 0, bits))
        number = L.blend(negated, _linear(f"sub.b{bits}", one, number), number)
        return _linear(f"add.b{bits}", _linear(f"mul.b{bits}", number, factor), offset)

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
        if_true, if_false = L.settled(if_true), L.settled(if_false)
        if if_true is if_false:
            return if_true
        bits = L.width(if_true)
        if bits in (8, 16):
            wide = narrow_integers.wide_operands((if_true, if_false))
            if wide is not None:
                return extract(self.select(predicate, *wide), 0, bits)
        if isinstance(if_true, PackedVector) or isinstance(if_false, PackedVector):
            if is_number_beside_widened(if_true, if_false) or is_number_beside_widened(if_false, if_true):
                return self.select(predicate, as_symbolic_vector(if_true), as_symbolic_vector(if_false))
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
        left = nan_sources.where_number(condition, left, truth=True)
        right = nan_sources.where_number(condition, right, truth=False)
        rules = rules_of_select(left.bits, self.context.finite)
        if L.constant_mask(left) is True and L.constant_mask(right) is True and (left.words != right.words).all():
            rules = _NO_RULES  # two numbers are not widened from another format
        values = (condition, left, right)
        selected: list[SymbolicVector] = []

        def otherwise() -> SymbolicVector:
            selected.append(self._selected(*values))
            return selected[0]

        result = as_symbolic_vector(self._rewritten(rules, values, None, otherwise))
        if not selected and result.origins:
            result = with_second_origin("select", result, values, self.context)
        known = L.constant_mask(condition)
        if known is not False:
            taken = condition.words[0] != 0
            result = L.blend(known & taken, left, result)
            result = L.blend(known & ~taken, right, result)
        if left.bits > 1 and result.maximum is None:
            result.maximum = maximum_of_either(if_true, if_false)
        if left.bits > 1:
            self.first_extrema.note_select(*values, result)
        if isinstance(if_true, np.ndarray) and isinstance(if_false, np.ndarray) and left.bits > 1:
            condition = as_symbolic_vector(predicate)
            chosen = predicate_bits.selected_constants(result, condition, if_true, if_false, self._bit_builder)
            self.exact_sums.note_select(as_symbolic_vector(chosen), if_true, if_false)
            return chosen
        return choice_trees.with_choices(result, predicate, if_true, if_false)

    def with_open_nans(self, value: Value, form: FloatFormat, note: str) -> Value:
        """See `Domain.with_open_nans`."""
        return with_open_nans(value, form, self.context)

    def _selected(self, condition: SymbolicVector, left: SymbolicVector, right: SymbolicVector) -> SymbolicVector:
        """Return the term of a select that no rule replaces; it has the facts that both values have."""
        given = (condition, left, right)
        left, right = nan_marks.as_selected(left, right, self.context)
        kept = (left.flags & right.flags & (L.NOT_NEGATIVE | L.HALF_RANGE | L.QUIET)) | common_not_minus_zero(
            left.flags, right.flags
        )
        kept = kept | _moved_flag(nan_bits(left) | nan_bits(right))
        kept = kept | (left.flags & L.NAN_MARK)
        values = (condition, left, right)
        result = term(left.bits, "select", values, kept, recorder=self.recorder)
        winner = choose(condition, left, right, self.context.formats) if self.context.finite else None
        if winner is not None:
            result = L.blend(winner[0], self.context.note("select", winner[1], values), result)
        finite = self.context.finite
        first = None if finite else chosen_place(self.first_extrema, *given, self._applied, self.select)
        if first is not None:
            result = L.blend(L.nonempty(first[0]), self.context.note("select", first[1], values), result)
        # The marks of the operands do not change their bits: a rule compares them with values that have none.
        return with_origin("select", result, given, self.context)

    def _applied(self, name: str, operands: Sequence[Value]) -> Value:
        """Return the operation of a name on integers or predicates, or a comparison."""
        return self.integer(operation(name), operands)

    def _choice(self, predicate: Value, high: Array | int, low: Array | int, bits: int) -> Value:
        """Return one of two numbers of each lane in `bits` bits: `high` where a predicate holds, else `low`."""
        return self.select(predicate, *(np.atleast_2d(np.asarray(each, L.UNSIGNED[bits])) for each in (high, low)))

    def _note_zero_sign(self, value: SymbolicVector, form: str) -> None:
        """Note what a value of 16 bits is as an operand of a matrix step without signed zeros.

        Such an operand stands for its sum with +0, which the rules of that sum may replace.  Memory keeps no origins,
        so the values are noted by their hashes.
        """
        info = operation(f"add.rn.{form}")
        rules = rules_on_origins(info.name, self.context.finite)
        found = as_symbolic_vector(self._rewritten(rules, (value, _ZERO), info, lambda: value))
        if found is not value:
            self.zero_signs.note(value, L.without_flags(found, L.PLUS_ZERO))


def _may_have_other_nans(values: Sequence[SymbolicVector]) -> bool:
    """Return whether some values that were found equal may differ in bits of a NaN that an assembler decides."""
    return any(bool(np.any(np.asarray(nan_bits(value)) & np.uint32(L.UNSPECIFIED_NAN))) for value in values)


def _term_words(info: Operation, values: Sequence[SymbolicVector], *, exact: bool) -> hashing.Words:
    """Return the hash of an operation's term over its operands; the first two have no order if it commutes."""
    hash_of = exact_hash if exact else full_hash
    hashes = [hash_of(value) for value in values]
    if info.commutative and len(hashes) > 1:
        hashes[:2] = [hashes[0] + hashes[1]]
    commutes = info.commutative and len(hashes) == 1 and len(values) > 1
    total = hashes[0] if commutes else hashes[0] * hashing.multiplier(1)
    for position, words in enumerate(hashes[1:], 2):
        factor = words * hashing.multiplier(position)
        if factor.shape == total.shape:
            total += factor
        else:
            total = total + factor
    total += hashing.constant(info.name)
    return hashing.mix(total)


def _linear(name: str, *values: SymbolicVector) -> SymbolicVector:
    found = linear_form(operation(name), list(values))
    assert found is not None
    return found


def _may_be_widened(value: Value) -> bool:
    """Return whether a value may be the widening of a bf16."""
    return isinstance(value, PackedVector) or (isinstance(value, SymbolicVector) and value.origins != ())


def _negate(info: Operation, values: Sequence[SymbolicVector], context: TermContext) -> SymbolicVector | None:
    return negated(values[0], context) if info.plain else None


def _magnitude(info: Operation, values: Sequence[SymbolicVector], context: TermContext) -> SymbolicVector | None:
    return magnitude(values[0], context) if info.plain else None


def _convert(info: Operation, values: Sequence[SymbolicVector], context: TermContext) -> SymbolicVector | None:
    return widened(values[0], context) if info.name == WIDENING else None


def _guard(info: Operation, values: Sequence[SymbolicVector], context: TermContext) -> SymbolicVector | None:
    return context.note(info.name, nan_guards.guarded(values[0], values[1]), values)


def _with_moved_nans(value: SymbolicVector) -> SymbolicVector:
    """Return the number that a select selects, as an operation of numbers: a NaN has the bits of the selected one."""
    return L.with_flags(L.without_flags(value, L.QUIET), L.INTEGER)


def _moved_flag(read: L.Flags) -> L.Flags:
    """Return INTEGER where a select has no arithmetic NaN, or one with bits that no document specifies."""
    if isinstance(read, int):
        return L.INTEGER if not read or read & L.UNSPECIFIED_NAN else 0
    return np.where((read == 0) | ((read & np.uint32(L.UNSPECIFIED_NAN)) != 0), np.uint32(L.INTEGER), np.uint32(0))


_SPECIAL: Mapping[str, Special] = {"neg": _negate, "abs": _magnitude, "convert": _convert, "guard": _guard}
"""Operations whose results are values in another form, or sets, by their verbs."""

_NOT = operation("not.b1")
_ZERO = L.constant_vector(np.zeros((1, 1), dtype=np.uint16))
_NO_RULES = RuleSet(())


@cache
def _has_foreign_marks(info: Operation) -> bool:
    """Return whether an operand of an operation may have a mark of another format than its own."""
    return any(nan_marks.foreign_marks(form.name) for form in info.operands)


def _moved_dividend(divisor: SymbolicVector, form: Format) -> L.Flags:
    """Return INTEGER where a divisor is the constant 1 or -1: an assembler may return the dividend."""
    if not isinstance(form, FloatFormat) or not np.any(L.constant_mask(divisor)):
        return 0
    one = form.bias << form.mantissa_bits
    minus_one = one | 1 << (form.bits - 1)
    lanes = np.logical_or(L.equals_constant(divisor, one), L.equals_constant(divisor, minus_one))
    return L.INTEGER if np.all(lanes) else np.where(lanes, np.uint32(L.INTEGER), np.uint32(0)) if np.any(lanes) else 0


@cache
def _reads_nan_bits(info: Operation) -> bool:
    """Return whether the result of a floating-point operation may depend on the payload of a NaN operand."""
    # A median is a NaN for a signalling NaN among its operands, and may be a number for a quiet one.
    if "signalling" in info.modifiers or info.verb == "med3":
        return True
    if info.verb != "convert" or isinstance(info.result, IntegerFormat):
        return any(form.name == "tf32" for form in (info.result, *info.operands))
    rounds = info.rounding in ("rn", "rz") or (not info.modifiers and info.result.name.startswith("fp"))
    return not rounds or "tf32" in (info.result.name, info.operands[0].name)
