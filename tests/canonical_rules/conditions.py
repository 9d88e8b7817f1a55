"""Canonical rules as records: two sides, operation families, conditions, assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from bitwise_core.execution import assumptions
from bitwise_core.ir.nodes import Constant, Matrix, Node
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat
from canonical_rules.facts import Facts, facts
from canonical_rules.patterns import Bindings, Family, Pattern

Assumption: TypeAlias = Literal["finite", "bounded"]
ASSUMPTIONS: dict[Assumption, str] = {
    "finite": assumptions.ASSUMPTIONS[assumptions.FINITE],
    "bounded": "every score is greater than the number that represents a masked score",
}
"""The assumptions of conditional verdicts."""

Known: TypeAlias = dict[tuple[Node, str], Facts]


class Condition(Protocol):
    """A condition on the variables of a rule."""

    @property
    def statement(self) -> str:
        """The condition in words."""

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """Return whether it is proved for these nodes; False does not disprove it."""


@dataclass(frozen=True, slots=True)
class Requires:
    """Required facts of one variable, by the names of the fields of `Facts`."""

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
        """Return whether one pattern of the variable satisfies it."""
        return all(Facts(**{name: True}).hold(pattern, form) for name in self.facts)


_BY_WIDTH = {16: "fp16", 32: "fp32", 64: "fp64"}
"""The formats of accumulators."""


@dataclass(frozen=True, slots=True)
class ZeroProducts:
    """Every product of a matrix step is a zero: one factor is a constant zero and the other a finite constant.

    Without `other_finite` the other factor may be any value, for rules that assume finite values.  The accumulator is
    proved not to be -0, in the format of its width.
    """

    accumulator: str
    left: str
    right: str
    other_finite: bool

    @property
    def statement(self) -> str:
        """The condition in words."""
        other = "and the other a finite constant" if self.other_finite else "the other is any value"
        return f"{self.accumulator} is never minus zero, and one factor of every pair is a constant zero, {other}"

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """See Condition."""
        form, (accumulator,) = family.form, bindings[self.accumulator]
        assert form is not None
        wide = _BY_WIDTH.get(accumulator.bits)
        if wide is None or not facts(accumulator, FLOAT_FORMATS[wide], known).never_minus_zero:
            return False
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


@dataclass(frozen=True, slots=True)
class ZeroFactors:
    """All factors on one side of an integer step are constant zeros."""

    side: str

    @property
    def statement(self) -> str:
        """The condition in words."""
        return f"{self.side} are zeros"

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """See Condition."""
        return all(isinstance(node, Constant) and node.value == 0 for node in bindings[self.side])


@dataclass(frozen=True, slots=True)
class SmallSums:
    """The magnitudes of all products of integer steps from zero sum to less than 2**31, so nothing is clamped.

    `largest` is the largest magnitude of a product; `accumulator` and `left` are the variables of the step.
    """

    accumulator: str
    left: str
    largest: int

    @property
    def statement(self) -> str:
        """The condition in words."""
        return (
            f"{self.accumulator} is a sum of products that starts from zero, "
            "and the magnitudes of all products sum to less than 2**31"
        )

    def proved(self, family: Family, bindings: Bindings, known: Known) -> bool:
        """See Condition."""
        node: Node = bindings[self.accumulator][0]
        count = len(bindings[self.left])
        while isinstance(node, Matrix) and node.instruction in family.operations.values():
            count += len(node.left)
            node = node.accumulator
        return node is Constant(32, 0) and count * self.largest < 1 << 31


def _magnitude(node: Constant, form: FloatFormat) -> int:
    return node.value >> form.padding & ((1 << form.magnitude_bits) - 1)


def _is_zero(node: Node, form: FloatFormat) -> bool:
    return isinstance(node, Constant) and node.bits == form.bits and _magnitude(node, form) == 0


@dataclass(frozen=True, slots=True)
class Rule:
    """`left` equals `right`, in every family, where the condition holds and the assumption, if any, is made.

    `rewrites` says that `right` is the canonical form of `left`; otherwise the rule says that the order of operands
    is irrelevant.  `evidence` is "proved", or "measured" for a rule that rests on measurements of hardware.
    """

    name: str
    reason: str
    left: Pattern
    right: Pattern
    families: tuple[Family, ...]
    condition: Requires | ZeroProducts | ZeroFactors | SmallSums | None = None
    assumption: Assumption | None = None
    up_to_nan: bool = False
    rewrites: bool = True
    refuted: tuple[Family, ...] = ()
    evidence: Literal["proved", "measured"] = "proved"

    def apply(self, node: Node, known: Known | None = None) -> Node | None:
        """Return the other side if `left` matches this node and the condition is proved, otherwise None.

        The caller must have made the assumption and must ensure that no user of the node depends on NaN patterns.
        `known` caches facts between calls.
        """
        for family in self.families:
            bindings = self.left.match(family, node)
            if bindings is None:
                continue
            if self.condition is None or self.condition.proved(family, bindings, {} if known is None else known):
                return self.right.build(family, bindings)
        return None


def make_rule(name: str, left: str, right: str, families: tuple[Family, ...], reason: str, **more: object) -> Rule:
    """Return a rule from the text of its sides; `more` are the other fields of `Rule`."""
    return Rule(name, reason, Pattern(left), Pattern(right), families, **more)  # type: ignore[arg-type]
