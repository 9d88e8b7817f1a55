"""Records of rules and inferences, and their instances in formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import Literal, TypeAlias

from bitwise_core.ir.rules.facts import FACTS, fact
from bitwise_core.ir.rules.patterns import Term, parse, variables
from bitwise_core.numerics import FORMATS, FloatFormat, Format

Keeps: TypeAlias = Literal["bits", "number"]
Evidence: TypeAlias = Literal["proof", "measured"]
Execution: TypeAlias = Literal["match", "order", "set", "ring", "representation"]
Parameters: TypeAlias = Mapping[str, str]

NEAREST_OR_ZERO = ("rn", "rz")
IEEE = ("fp64", "fp32", "fp16", "bf16")


class RuleError(ValueError):
    """A rule is invalid: the message names the rule and says why."""


def over(**choices: str | tuple[str, ...]) -> tuple[Parameters, ...]:
    """Return every combination of these values of the parameters of a rule.

    A parameter is written {name} in the patterns; {b} is the width in bits of the format {f}.
    """
    names = list(choices)
    values = [(each,) if isinstance(each, str) else each for each in choices.values()]
    return tuple(_with_width(dict(zip(names, chosen, strict=True))) for chosen in product(*values))


def pairs(first: str, second: str, *chosen: tuple[str, str], **more: str | tuple[str, ...]) -> tuple[Parameters, ...]:
    """Return `over` for two parameters that vary together, combined with further ones."""
    return tuple(
        _with_width({first: one, second: other, **dict(rest)}) for one, other in chosen for rest in over(**more)
    )


def _with_width(parameters: dict[str, str]) -> Parameters:
    if "f" in parameters:
        parameters["b"] = str(FORMATS[parameters["f"]].bits)
    return MappingProxyType(parameters)


@dataclass(frozen=True, slots=True)
class Condition:
    """A fact that a rule requires of one variable."""

    variable: str
    fact: str


@dataclass(frozen=True)
class Instance:
    """A rule for one choice of its parameters.

    `left` and `right` are equal for all values of the variables that satisfy `conditions`, each a predicate over its
    variable.  `formats` are those of the variables.
    """

    rule: Rule
    parameters: Parameters
    left: Term
    right: Term
    formats: Mapping[str, Format]

    @property
    def name(self) -> str:
        """The name of the rule and the values of its parameters."""
        shown = " ".join(value for name, value in self.parameters.items() if name != "b")
        return f"{self.rule.name} {shown}".rstrip()

    @property
    def conditions(self) -> tuple[tuple[Condition, Term], ...]:
        """The conditions, each with its predicate over the variable x."""
        return tuple((each, fact(each.fact, self.formats[each.variable])) for each in self.rule.conditions)


@dataclass(frozen=True)
class Rule:
    """`left` is replaced by `right`, for every combination of parameters in `over`, where the conditions hold.

    - `where` maps variables to the facts that they require.
    - `formats` are the formats of variables that the patterns do not determine, or where bits are numbers.
    - `keeps`: "bits", or "number" if both sides may be different NaNs.
    - `assumes`: "" or the name of an assumption under which alone the rule is applied.
    - `reason` says why both sides are equal.
    - `evidence`: "proof", or "measured" for a rule that states how hardware behaves; `reason` then names the source.
    - `refuted` are parameters for which the sides are known to differ.
    - `execution` says how the rule is applied.  "match": it is matched against values.  "order": the order of operands
      has no effect on a hash.  "set" and "ring": it is built into the representation of sets (of the members of an
      associative operation) or of linear forms.  "representation": it is built into that of other values.

    Raises RuleError where the rule is inconsistent; `instance` raises it where the patterns are.
    """

    name: str
    left: str
    right: str
    over: tuple[Parameters, ...]
    reason: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    keeps: Keeps = "bits"
    assumes: Literal["", "finite"] = ""
    evidence: Evidence = "proof"
    refuted: tuple[Parameters, ...] = ()
    execution: Execution = "match"

    def __post_init__(self) -> None:
        if not self.over:
            raise RuleError(f"the rule {self.name} has no instance")
        if not self.reason.endswith("."):
            raise RuleError(f"the rule {self.name} gives no reason as a sentence")
        for condition in self.conditions:
            if condition.fact not in FACTS:
                raise RuleError(f"the rule {self.name} requires the unknown fact {condition.fact!r}")

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The facts that the rule requires."""
        return tuple(Condition(name, each) for name, facts in self.where.items() for each in facts)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """The rule for every combination of its parameters."""
        return tuple(self.instance(parameters) for parameters in self.over)

    def instance(self, parameters: Parameters) -> Instance:
        """Return the rule for one choice of its parameters."""
        given = {name: FORMATS[form.format(**parameters)] for name, form in self.formats.items()}
        left = parse(self.left.format(**parameters), None, given)
        known = {name: given.get(name, form) for name, form in variables(left).items()}
        right = parse(self.right.format(**parameters), left.format, known)
        unbound = sorted(set(variables(right)) - set(known))
        if unbound:
            raise RuleError(f"the rule {self.name} has variables on its right side only: {', '.join(unbound)}")
        missing = sorted({each.variable for each in self.conditions} - set(known))
        if missing:
            raise RuleError(f"the rule {self.name} has conditions on unknown variables: {', '.join(missing)}")
        if left.bits != right.bits:
            raise RuleError(f"the sides of the rule {self.name} have {left.bits} and {right.bits} bits")
        return Instance(self, parameters, left, right, known)


@dataclass(frozen=True)
class Inference:
    """A fact about the result of an operation: `term` satisfies `then` where its variables satisfy `given`.

    The other fields are those of `Rule`.
    """

    name: str
    term: str
    then: str
    over: tuple[Parameters, ...]
    reason: str
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    assumes: Literal["", "finite"] = ""
    evidence: Evidence = "proof"

    def __post_init__(self) -> None:
        for each in (self.then, *(each for facts in self.given.values() for each in facts)):
            if each not in FACTS:
                raise RuleError(f"the inference {self.name} names the unknown fact {each!r}")
        if not self.reason.endswith("."):
            raise RuleError(f"the inference {self.name} gives no reason as a sentence")

    @cached_property
    def instances(self) -> tuple[InferenceInstance, ...]:
        """The inference for every combination of its parameters."""
        return tuple(InferenceInstance(self, each, parse(self.term.format(**each))) for each in self.over)


@dataclass(frozen=True)
class InferenceInstance:
    """An inference for one choice of its parameters."""

    inference: Inference
    parameters: Parameters
    term: Term

    @property
    def name(self) -> str:
        """The name of the inference and the values of its parameters."""
        shown = " ".join(value for name, value in self.parameters.items() if name != "b")
        return f"{self.inference.name} {shown}".rstrip()

    @property
    def formats(self) -> dict[str, Format]:
        """The formats of the variables."""
        return variables(self.term)

    @property
    def conditions(self) -> tuple[tuple[Condition, Term], ...]:
        """The required facts, each with its predicate over the variable x."""
        formats = self.formats
        return tuple(
            (Condition(name, each), fact(each, formats[name]))
            for name, facts in self.inference.given.items()
            for each in facts
        )

    @property
    def conclusion(self) -> Term:
        """The predicate that the term satisfies, over the variable x."""
        form = self.term.format
        assert isinstance(form, FloatFormat)
        return fact(self.inference.then, form)
