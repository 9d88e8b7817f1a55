"""The canonical rules, as a table.  Each says why the bits stay, for which operations, and under which condition.

A rule's two sides are equal for all patterns of the variables that meet its condition.  Where `up_to_nan` is set, one
side may be another NaN than the other: then they may take each other's place only under operations that do not see
NaN patterns (`numeric.Operation.sees_nan_patterns`), and not under slices, concatenations or addresses.
`refuted` names families for which the rule is known to fail; the tests show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from bitwise_core.numeric import FLOAT_FORMATS, FloatFormat, operation
from bitwise_core.tree.facts import Facts, facts
from bitwise_core.tree.nodes import Constant, Node
from bitwise_core.tree.patterns import Bindings, Family, Pattern

Assumption: TypeAlias = Literal["finite", "bounded"]
ASSUMPTIONS: dict[Assumption, str] = {
    "finite": "no input and no computed value is infinite or NaN",
    "bounded": "no score is as low as the number that stands for a masked one",
}
"""What a conditional verdict takes for granted."""

Known: TypeAlias = dict[tuple[Node, str], Facts]


class Condition(Protocol):
    """What must be certain of the variables."""

    @property
    def statement(self) -> str:
        """The condition in words."""

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """Whether it is certain of these nodes; False where it may still be true."""


@dataclass(frozen=True, slots=True)
class Requires:
    """Certainties about one variable, by the names of the fields of `Facts`."""

    variable: str
    facts: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The condition in words."""
        return " and ".join(f"{self.variable} is {name.replace('_', ' ')}" for name in self.facts)

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """See Condition."""
        assert family.form is not None
        found = facts(bindings[self.variable][0], family.form, known)
        return all(getattr(found, name) for name in self.facts)

    def holds(self, pattern: int, form: FloatFormat) -> bool:
        """Whether one pattern of the variable meets it."""
        return all(Facts(**{name: True}).hold(pattern, form) for name in self.facts)


@dataclass(frozen=True, slots=True)
class ZeroProducts:
    """Every product of a matrix step is a zero: one factor is a known zero, the other, unless assumed, known finite."""

    left: str
    right: str
    other_finite: bool

    @property
    def statement(self) -> str:
        """The condition in words."""
        other = "and the other a finite constant" if self.other_finite else "whatever the other is"
        return f"of every pair of factors one is a constant zero, {other}"

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """See Condition."""
        form = family.form
        assert form is not None
        pairs = zip(bindings[self.left], bindings[self.right], strict=True)
        return all(
            (_is_zero(one, form) and self._harmless(other, form))
            or (_is_zero(other, form) and self._harmless(one, form))
            for one, other in pairs
        )

    def _harmless(self, node: Node, form: FloatFormat) -> bool:
        if not self.other_finite:
            return True
        return (
            isinstance(node, Constant) and node.bits == form.bits and _magnitude(node, form) <= form.largest_magnitude
        )


def _magnitude(node: Constant, form: FloatFormat) -> int:
    return node.value >> form.padding & ((1 << form.magnitude_bits) - 1)


def _is_zero(node: Node, form: FloatFormat) -> bool:
    return isinstance(node, Constant) and node.bits == form.bits and _magnitude(node, form) == 0


@dataclass(frozen=True, slots=True)
class Rule:
    """`left` equals `right`, in every family, where the condition holds and the assumption, if any, is made.

    `rewrites` says that `right` is the canonical form of `left`; otherwise the rule gives a freedom of order.
    `evidence` is "proved", or "measured" where hardware was asked.
    """

    name: str
    reason: str
    left: Pattern
    right: Pattern
    families: tuple[Family, ...]
    condition: Requires | ZeroProducts | None = None
    assumption: Assumption | None = None
    up_to_nan: bool = False
    rewrites: bool = True
    refuted: tuple[Family, ...] = ()
    evidence: Literal["proved", "measured"] = "proved"

    def apply(self, node: Node, known: Known | None = None) -> Node | None:
        """The other side, where `left` is this node and the condition is certain; otherwise None.

        It is for the caller to have made the assumption, and to see that no user of the node sees NaN patterns.
        `known` keeps facts from call to call.
        """
        for family in self.families:
            bindings = self.left.match(family, node)
            if bindings is None:
                continue
            if self.condition is None or self.condition.proved(family, bindings, {} if known is None else known):
                return self.right.build(family, bindings)
        return None


_FORMATS = ("fp64", "fp32", "fp16", "bf16")
_NOT_DOWN = ("rn", "rz", "ru", "rna")
_SYMMETRIC = ("rn", "rz", "rna")
_ALL = ("rn", "rz", "ru", "rd", "rna")


def _rounded(roundings: tuple[str, ...], flush: bool = False) -> tuple[Family, ...]:
    """Arithmetic of one rounding in every format."""
    families = []
    for name in _FORMATS:
        for rounding in roundings:
            suffix = f"{rounding}{'.ftz' * flush}.{name}"
            operations = {verb: f"{verb}.{suffix}" for verb in ("add", "sub", "mul", "fma")}
            operations |= {verb: f"{verb}.{name}" for verb in ("neg", "abs")}
            families.append(Family(suffix, operations, name, FLOAT_FORMATS[name].bits))
    return tuple(families)


def _choosing(verb: str, *modifiers: str) -> tuple[Family, ...]:
    """Minimum or maximum, with the modifiers, in every format."""
    return tuple(
        Family(f"{verb}{modifier}.{name}", {"max": f"{verb}{modifier}.{name}"}, name, FLOAT_FORMATS[name].bits)
        for name in _FORMATS
        for modifier in modifiers
    )


def _named(*names: str) -> tuple[Family, ...]:
    """One operation each, called `op` in the pattern."""
    families = []
    for name in names:
        form = operation(name).operands[0]
        families.append(Family(name, {"op": name}, form.name if isinstance(form, FloatFormat) else None, form.bits))
    return tuple(families)


def _integers(*verbs: str) -> tuple[Family, ...]:
    kinds = {"min": "su", "max": "su"}
    return _named(
        *(f"{verb}.{letter}{bits}" for verb in verbs for letter in kinds.get(verb, "b") for bits in (8, 16, 32, 64))
    )


def _widened(*pairs: tuple[str, str]) -> tuple[Family, ...]:
    """Conversions of the narrow format to the wide one and back, in every rounding."""
    return tuple(
        Family(
            f"{rounding}.{narrow}.{wide}",
            {"narrow": f"convert.{rounding}.{narrow}.{wide}", "widen": f"convert.{wide}.{narrow}"},
            narrow,
            FLOAT_FORMATS[narrow].bits,
        )
        for narrow, wide in pairs
        for rounding in _ALL
    )


def _signs() -> tuple[Family, ...]:
    return tuple(
        Family(name, {verb: f"{verb}.{name}" for verb in ("neg", "abs")}, name, FLOAT_FORMATS[name].bits)
        for name in _FORMATS
    )


_BF16_IN_FP32 = {"widen": "convert.fp32.bf16"}
_EXTREMA = ("", ".nan", ".ftz", ".ftz.nan")


def _rule(name: str, left: str, right: str, families: tuple[Family, ...], reason: str, **more: object) -> Rule:
    return Rule(name, reason, Pattern(left), Pattern(right), families, **more)  # type: ignore[arg-type]


_SUMS = (
    _rule(
        "add_minus_zero",
        "add(x, -0)",
        "x",
        _rounded(_NOT_DOWN),
        "-0 is the neutral element: it changes no number, and +0 + (-0) is +0 unless rounded down.",
        up_to_nan=True,
        refuted=_rounded(("rd",)) + _rounded(("rn",), flush=True),
    ),
    _rule(
        "add_minus_zero_flushed",
        "add(x, -0)",
        "x",
        _rounded(_NOT_DOWN, flush=True),
        "As add_minus_zero, for numbers that flushing leaves alone.",
        condition=Requires("x", ("never_subnormal",)),
        up_to_nan=True,
    ),
    _rule(
        "add_plus_zero",
        "add(x, +0)",
        "x",
        _rounded(_NOT_DOWN),
        "+0 changes only -0, which becomes +0.",
        condition=Requires("x", ("never_minus_zero",)),
        up_to_nan=True,
        refuted=_rounded(("rn",), flush=True),
    ),
    _rule(
        "add_plus_zero_flushed",
        "add(x, +0)",
        "x",
        _rounded(_NOT_DOWN, flush=True),
        "As add_plus_zero, for numbers that flushing leaves alone.",
        condition=Requires("x", ("never_minus_zero", "never_subnormal")),
        up_to_nan=True,
    ),
    _rule(
        "add_plus_zero_down",
        "add(x, +0)",
        "x",
        _rounded(("rd",)),
        "Rounded down, zeros of both signs add up to -0, so +0 is neutral.",
        up_to_nan=True,
        refuted=_rounded(("rn", "rz", "ru")),
    ),
    _rule(
        "add_plus_zero_outward",
        "add(add(x, +0), y)",
        "add(add(x, y), +0)",
        _rounded(_ALL),
        "+0 only turns -0 into +0, and a sum is -0 only if both operands are: sums do not underflow.",
        refuted=_rounded(("rn", "rz", "ru"), flush=True),
    ),
    _rule(
        "add_plus_zero_twice",
        "add(add(x, +0), +0)",
        "add(x, +0)",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "After one +0 there is nothing left to change.",
    ),
    _rule(
        "sub_is_add",
        "sub(x, y)",
        "add(x, neg(y))",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "IEEE 754 defines the difference as this sum; flushing keeps signs.",
    ),
    _rule(
        "add_commutes",
        "add(x, y)",
        "add(y, x)",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "The exact sum is commutative, and so is the rule for the sign of a zero.",
        rewrites=False,
    ),
)

_PRODUCTS = (
    _rule(
        "neg_neg",
        "neg(neg(x))",
        "x",
        _signs(),
        "Turning the sign twice turns it back.",
        up_to_nan=True,
    ),
    _rule(
        "mul_neg",
        "mul(neg(x), y)",
        "neg(mul(x, y))",
        _rounded(_SYMMETRIC) + _rounded(_SYMMETRIC, flush=True),
        "A rounding that does not see the sign treats a product and its negative alike.",
        up_to_nan=True,
        refuted=_rounded(("ru", "rd")),
    ),
    _rule(
        "mul_one",
        "mul(x, +1)",
        "x",
        _rounded(_ALL),
        "The exact product is x, which the format holds.",
        up_to_nan=True,
        refuted=_rounded(("rn",), flush=True),
    ),
    _rule(
        "mul_one_flushed",
        "mul(x, +1)",
        "x",
        _rounded(_ALL, flush=True),
        "As mul_one, for numbers that flushing leaves alone.",
        condition=Requires("x", ("never_subnormal",)),
        up_to_nan=True,
    ),
    _rule(
        "mul_commutes",
        "mul(x, y)",
        "mul(y, x)",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "The exact product is commutative.",
        rewrites=False,
    ),
    _rule(
        "fma_factors_commute",
        "fma(x, y, z)",
        "fma(y, x, z)",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "The exact product is commutative.",
        rewrites=False,
    ),
)


def _extremum(verb: str, neutral: str) -> tuple[Rule, ...]:
    """Rules of the maximum and -inf, or of the minimum and +inf; the patterns say `max` for both."""
    dropping = _choosing(verb, "", ".ftz")
    plain, propagating = _choosing(verb, ""), _choosing(verb, ".nan")
    every = _choosing(verb, *_EXTREMA)
    return (
        _rule(
            f"{verb}_commutes",
            "max(x, y)",
            "max(y, x)",
            every,
            "Numbers, with -0 below +0, are totally ordered, and NaN is treated alike on both sides.",
            rewrites=False,
        ),
        _rule(
            f"{verb}_associates",
            "max(max(x, y), z)",
            "max(x, max(y, z))",
            every,
            "The outermost of totally ordered numbers; NaN is the neutral or the absorbing element.",
            rewrites=False,
            refuted=() if verb == "min" else _named("add.rn.fp32", "mul.rn.fp32"),
        ),
        _rule(
            f"{verb}_idempotent",
            "max(x, x)",
            "x",
            plain + propagating,
            "The result is one of its operands.",
            up_to_nan=True,
            refuted=_choosing(verb, ".ftz"),
        ),
        _rule(
            f"{verb}_nan_neutral",
            f"max(x, {neutral})",
            "x",
            propagating,
            f"{neutral} is on the far side of every number, and a NaN stays.",
            up_to_nan=True,
            refuted=plain,
        ),
        _rule(
            f"{verb}_neutral",
            f"max(x, {neutral})",
            "x",
            plain,
            f"{neutral} is on the far side of every number; it would take the place of a NaN.",
            condition=Requires("x", ("never_nan",)),
        ),
        _rule(
            f"{verb}_neutral_twice",
            f"max(max(x, {neutral}), {neutral})",
            f"max(x, {neutral})",
            every,
            f"One {neutral} is enough: it stands for the case in which all else is NaN.",
        ),
        _rule(
            f"{verb}_neutral_outward",
            f"max(max(x, {neutral}), y)",
            f"max(max(x, y), {neutral})",
            every,
            f"Order does not matter, so {neutral} may come last.",
        ),
        _rule(
            f"{verb}_neutral_absorbed",
            f"max(max(x, y), {neutral})",
            "max(x, y)",
            dropping,
            f"Where one operand is not NaN, {neutral} is never the result.",
            condition=Requires("y", ("never_nan",)),
        ),
    )


_SET_VERBS = ("add", "mul", "and", "or", "xor", "min", "max")
_INTEGERS = (
    _rule(
        "integers_associate",
        "op(op(x, y), z)",
        "op(x, op(y, z))",
        _integers(*_SET_VERBS),
        "Arithmetic modulo a power of two is a ring; bits and ordered integers are lattices.",
        rewrites=False,
        refuted=_named("sub.b32", "mulhi.u32"),
    ),
    _rule(
        "integers_commute",
        "op(x, y)",
        "op(y, x)",
        _integers(*_SET_VERBS),
        "Arithmetic modulo a power of two is a commutative ring; bits and ordered integers are lattices.",
        rewrites=False,
        refuted=_named("sub.b32", "shl.b32"),
    ),
)

_CONVERSIONS = (
    _rule(
        "narrow_of_widened",
        "narrow(widen(x))",
        "x",
        _widened(("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp64"), ("fp16", "fp64"), ("bf16", "fp64")),
        "Widening is exact, and a number that the narrow format holds is not rounded.",
        up_to_nan=True,
    ),
    _rule(
        "widened_bf16_is_its_bits",
        "widen(x)",
        "concat(zero16, x)",
        (Family("fp32.bf16", _BF16_IN_FP32, "fp32", 16),),
        "bf16 is the upper half of fp32: subnormal numbers and infinities too.",
        up_to_nan=True,
    ),
    _rule(
        "narrow_of_bf16_bits",
        "narrow(concat(zero16, x))",
        "x",
        _widened(("bf16", "fp32")),
        "The value is a bf16 number already, so nothing is rounded.",
        up_to_nan=True,
    ),
)

_ZERO_FACTORS = (
    _rule(
        "product_with_zero",
        "mul(x, +0)",
        "+0",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "A finite number times zero is zero, of the number's sign.",
        condition=Requires("x", ("never_negative",)),
        assumption="finite",
    ),
    _rule(
        "sum_with_zero_product",
        "add(mul(x, +0), y)",
        "y",
        _rounded(_NOT_DOWN),
        "The product is a zero of some sign, which changes no number but -0.",
        condition=Requires("y", ("never_minus_zero",)),
        assumption="finite",
    ),
    _rule(
        "fma_with_zero_product",
        "fma(x, +0, y)",
        "y",
        _rounded(_NOT_DOWN),
        "The product is a zero of some sign, which changes no number but -0.",
        condition=Requires("y", ("never_minus_zero",)),
        assumption="finite",
    ),
    _rule(
        "size_of_zero_product",
        "abs(mul(x, +0))",
        "+0",
        _rounded(_ALL) + _rounded(_ALL, flush=True),
        "The product is a zero of some sign.",
        assumption="finite",
    ),
)

_MATRIX_FAMILIES = tuple(
    Family(name, {"matrix": f"matrix.{name}"}, name, FLOAT_FORMATS[name].bits) for name in ("fp16", "tf32")
)
_MATRIX = (
    _rule(
        "matrix_step_of_zeros",
        "matrix(c, a*, b*)",
        "c",
        _MATRIX_FAMILIES,
        "A matrix step whose products are all exact zeros returns its accumulator, -0 too.",
        condition=ZeroProducts("a*", "b*", other_finite=True),
        up_to_nan=True,
        evidence="measured",
    ),
    _rule(
        "matrix_step_of_zeros_and_finite_numbers",
        "matrix(c, a*, b*)",
        "c",
        _MATRIX_FAMILIES,
        "A zero times a finite number is a zero, and zeros return the accumulator.",
        condition=ZeroProducts("a*", "b*", other_finite=False),
        assumption="finite",
        evidence="measured",
    ),
)

RULES: tuple[Rule, ...] = (
    *_SUMS,
    *_PRODUCTS,
    *_extremum("max", "-inf"),
    *_extremum("min", "+inf"),
    *_INTEGERS,
    *_CONVERSIONS,
    *_ZERO_FACTORS,
    *_MATRIX,
)


def rule(name: str) -> Rule:
    """The rule of that name.  Raises KeyError with a sentence."""
    for found in RULES:
        if found.name == name:
            return found
    raise KeyError(f"no canonical rule is called {name!r}; there are {', '.join(found.name for found in RULES)}")
