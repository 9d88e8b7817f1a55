"""Facts about a value, inferred from its tree: the conditions of the canonical rules use them.

A fact is about a node as numbers of one format.  Loaded values have no facts.  The reason of every inference is stated
here, and the tests draw trees and compare every inferred fact with the values of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bitwise_core import numerics
from bitwise_core.ir.nodes import Concat, Constant, Node, Operation, Select
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, IntegerFormat


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the numbers that a value can have.

    `never_minus_zero`: it is not -0.  `never_negative`: it is not below zero and not -0 (NaN is allowed).
    `never_nan`: it is not NaN.  `never_subnormal`: it is not subnormal.
    `unit`: if finite, it is a multiple of 2**unit.
    """

    never_minus_zero: bool = False
    never_negative: bool = False
    never_nan: bool = False
    never_subnormal: bool = False
    unit: int = -(1 << 30)

    def hold(self, pattern: int, form: FloatFormat) -> bool:
        """Return whether the facts hold for one pattern."""
        magnitude = pattern >> form.padding & ((1 << form.magnitude_bits) - 1)
        negative = form.signed and bool(pattern >> (form.bits - 1))
        if form.is_nan(pattern):
            return not self.never_nan
        if negative and (self.never_negative or (self.never_minus_zero and magnitude == 0)):
            return False
        if self.never_subnormal and 0 < magnitude < 1 << form.mantissa_bits and form.subnormals:
            return False
        return form.infinity == magnitude << form.padding or _multiple(magnitude, form, self.unit)


NOTHING = Facts()


def _multiple(magnitude: int, form: FloatFormat, unit: int) -> bool:
    field, fraction = magnitude >> form.mantissa_bits, magnitude & ((1 << form.mantissa_bits) - 1)
    if field and form.subnormals:
        fraction |= 1 << form.mantissa_bits
    lowest = max(field, 1) - form.bias - form.mantissa_bits
    return fraction == 0 or unit <= lowest or fraction % (1 << (unit - lowest)) == 0


def facts(node: Node, form: FloatFormat, known: dict[tuple[Node, str], Facts] | None = None) -> Facts:
    """Return the facts of `node` in the format `form`; `known` caches facts between calls."""
    known = {} if known is None else known
    stack = [(node, form)]
    while stack:
        current, reading = stack[-1]
        if (current, reading.name) in known:
            stack.pop()
            continue
        needed = [pair for pair in _needed(current, reading) if (pair[0], pair[1].name) not in known]
        if needed:
            stack.extend(needed)
            continue
        stack.pop()
        below = [known[child, shape.name] for child, shape in _needed(current, reading)]
        known[current, reading.name] = _closed(_infer(current, reading, below), reading)
    return known[node, form.name]


def _closed(found: Facts, form: FloatFormat) -> Facts:
    """Return the facts with their consequences: never negative implies never -0; a format has a smallest unit."""
    return replace(
        found,
        never_minus_zero=found.never_minus_zero or found.never_negative,
        never_subnormal=found.never_subnormal or found.unit >= form.smallest_exponent,
        unit=max(found.unit, form.smallest_bit),
    )


def _widened(node: Node, form: FloatFormat) -> tuple[Node, FloatFormat] | None:
    """Return the bf16 value whose bits above sixteen zeros form this fp32 node: both are the same number."""
    if form.name == "fp32" and isinstance(node, Concat) and [part.bits for part in node.parts] == [16, 16]:
        low, high = node.parts
        if isinstance(low, Constant) and low.value == 0:
            return high, FLOAT_FORMATS["bf16"]
    return None


def _needed(node: Node, form: FloatFormat) -> list[tuple[Node, FloatFormat]]:
    """Return the nodes and formats whose facts `_infer` needs."""
    if isinstance(node, Select):
        return [(node.if_true, form), (node.if_false, form)]
    widened = _widened(node, form)
    if widened is not None:
        return [widened]
    if isinstance(node, Operation) and node.meaning.result == form:
        pairs = zip(node.operands, node.meaning.operands, strict=True)
        return [(child, shape) for child, shape in pairs if isinstance(shape, FloatFormat)]
    return []


def _infer(node: Node, form: FloatFormat, below: list[Facts]) -> Facts:
    if isinstance(node, Constant):
        return _of_constant(node.value, form)
    if isinstance(node, Select):
        left, right = below
        return Facts(
            left.never_minus_zero and right.never_minus_zero,
            left.never_negative and right.never_negative,
            left.never_nan and right.never_nan,
            left.never_subnormal and right.never_subnormal,
            min(left.unit, right.unit),
        )
    if _widened(node, form) is not None:
        return below[0]
    if isinstance(node, Operation) and node.meaning.result == form:
        meaning = node.meaning
        rule = _OF_APPROXIMATION if not meaning.evaluable else _OF_VERB
        found = rule.get(meaning.verb, _nothing)(node, meaning, below)
        # A flushed result is zero or normal, for every operation; a conversion flushes the 32-bit format only.
        flushed = "ftz" in meaning.modifiers and (meaning.verb != "convert" or form.name == "fp32")
        if "sat" in meaning.modifiers:
            found = replace(found, never_negative=True, never_nan=True)
        if "relu" in meaning.modifiers:
            found = replace(found, never_negative=True)
        return replace(found, never_subnormal=found.never_subnormal or flushed)
    return NOTHING


def _of_constant(value: int, form: FloatFormat) -> Facts:
    found = NOTHING
    for name in ("never_minus_zero", "never_negative", "never_nan", "never_subnormal"):
        claim = replace(NOTHING, **{name: True})
        if claim.hold(value, form):
            found = replace(found, **{name: True})
    if form.subnormals and not form.is_nan(value) and value << 1 & ((1 << form.bits) - 1) == 0:
        return replace(found, unit=1 << 30)  # a zero is a multiple of everything
    return found


def _nothing(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    return NOTHING


def _of_sum(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """Sums do not underflow: a zero sum is exact, and is -0 only for two operands -0, unless rounded down.

    This does not hold under flushing: a negative subnormal sum becomes -0.
    """
    left, right = below
    not_down = meaning.rounding != "rd"
    gradual = "ftz" not in meaning.modifiers
    positive = left.never_negative and right.never_negative and not_down
    return Facts(
        never_minus_zero=positive or (not_down and gradual and (left.never_minus_zero or right.never_minus_zero)),
        never_negative=positive,
    )


def _of_product(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """A square, or a product of numbers that are not negative, is not negative, even where it underflows."""
    return Facts(never_negative=node.operands[0] is node.operands[1] or all(f.never_negative for f in below))


def _of_fused(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """A tiny negative fused sum underflows to -0, unless its terms are multiples of the format's smallest number.

    It is never -0 where both terms are never negative.
    """
    left, right, addend = below
    product = node.operands[0] is node.operands[1] or (left.never_negative and right.never_negative)
    not_down = meaning.rounding != "rd"
    positive = product and addend.never_negative and not_down
    form = meaning.result
    assert isinstance(form, FloatFormat)
    exact_zero = left.unit + right.unit >= form.smallest_bit and "ftz" not in meaning.modifiers
    closed = exact_zero and not_down and (addend.never_minus_zero or product)
    return Facts(never_minus_zero=positive or closed, never_negative=positive)


def _of_absolute(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    (operand,) = below
    return replace(operand, never_negative=True)


def _of_negation(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    (operand,) = below
    return Facts(never_nan=operand.never_nan, never_subnormal=operand.never_subnormal, unit=operand.unit)


def _of_maximum(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """The result is an operand; if one operand is never negative, the result is not negative.

    Where a NaN operand is dropped, that operand must never be NaN.
    """
    left, right = below
    propagates = "nan" in meaning.modifiers
    least = any(fact.never_negative and (propagates or fact.never_nan) for fact in below)
    return replace(_of_minimum(node, meaning, below), never_negative=least or _both_not_negative(left, right))


def _both_not_negative(left: Facts, right: Facts) -> bool:
    return left.never_negative and right.never_negative


def _of_minimum(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """The result is an operand.  A flushed negative subnormal is -0."""
    left, right = below
    gradual = "ftz" not in meaning.modifiers
    some = left.never_nan or right.never_nan
    return Facts(
        never_minus_zero=gradual and left.never_minus_zero and right.never_minus_zero,
        never_negative=_both_not_negative(left, right),
        never_nan=(left.never_nan and right.never_nan) if "nan" in meaning.modifiers else some,
        never_subnormal=left.never_subnormal and right.never_subnormal,
        unit=min(left.unit, right.unit),
    )


def _of_root(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """The root of -0 is -0, of other negative numbers NaN; a flushed operand may become -0."""
    (operand,) = below
    gradual = "ftz" not in meaning.modifiers
    return Facts(never_negative=operand.never_negative or (gradual and operand.never_minus_zero))


def _of_quotient(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    return Facts(never_negative=all(fact.never_negative for fact in below))


def _of_conversion(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """Exact widening keeps every fact; rounding keeps signs; integers give no -0 and no NaN."""
    form, source = meaning.result, meaning.operands[0]
    assert isinstance(form, FloatFormat)
    if isinstance(source, IntegerFormat):
        return Facts(never_minus_zero=True, never_negative=not source.signed, never_nan=True, unit=0)
    (operand,) = below
    if meaning.rounding is None and not meaning.modifiers and form.holds(source):
        return replace(operand, never_subnormal=False)
    return Facts(never_negative=operand.never_negative)


def _of_exponential(node: Operation, meaning: numerics.Operation, below: list[Facts]) -> Facts:
    """An approximate power of two is never negative."""
    return Facts(never_negative=True)


_OF_VERB: dict[str, Callable[[Operation, numerics.Operation, list[Facts]], Facts]] = {
    "add": _of_sum,
    "mul": _of_product,
    "fma": _of_fused,
    "abs": _of_absolute,
    "neg": _of_negation,
    "max": _of_maximum,
    "min": _of_minimum,
    "sqrt": _of_root,
    "div": _of_quotient,
    "rcp": _of_quotient,
    "convert": _of_conversion,
}
_OF_APPROXIMATION: dict[str, Callable[[Operation, numerics.Operation, list[Facts]], Facts]] = {"ex2": _of_exponential}
