"""The sum that a value is, read from its provenance."""

from __future__ import annotations

import re
from collections.abc import Hashable

from bitwise_core.checker.trees.divergence import expression_text
from bitwise_core.checker.trees.provenance import Definition, Provenance, Scalar
from bitwise_core.checker.trees.sum_orders import Entry, Summation, Term
from bitwise_core.execution.values.matrix_steps import mma_steps
from bitwise_core.execution.values.term_hash import WIDENING

MAXIMUM_TERMS = 4096
"""A sum of more terms is not read."""

_SUM = re.compile(r"(add|fma|sub)\.(?:.*\.)?(?:fp\d+|bf16|tf32)(?:@.*)?\Z")
_PRODUCT = re.compile(r"mul\.(?:.*\.)?(?:fp\d+|bf16|tf32)(?:@.*)?\Z")
_PLACE_DEPTH = 16


def is_addition(definition: Definition) -> bool:
    """Return whether a value is a floating-point addition: add, sub, fma, or a step of a matrix unit."""
    return definition.name.startswith(mma_steps.MATRIX) or _SUM.match(definition.name) is not None


def is_part_of_sum(definition: Definition) -> bool:
    """Return whether a value is an addition, or the rounding or widening of a value."""
    return is_addition(definition) or definition.name.startswith("convert.")


class _TermsNotKnown(Exception):
    """The sum has too many terms, or products whose factors are not known."""


class _Reader:
    """Reads one sum; `values` are the definitions found so far."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance
        self.values: dict[Scalar, Definition] = {}
        self.terms: list[Term] = []
        self.additions: list[tuple[int, ...]] = []
        self.operations: list[str] = []
        self.conversions: list[str] = []

    def definition(self, scalar: Scalar) -> Definition:
        found = self.values.get(scalar)
        if found is None:
            found = self.values[scalar] = self.provenance.definition(scalar)
        return found

    def read(self, root: Scalar) -> Summation:
        """Read the sum without recursion: the additions are visited after their operands."""
        results: list[int] = []
        stack: list[tuple[Scalar, Definition | None]] = [(root, None)]
        while stack:
            scalar, addition = stack.pop()
            if addition is not None:
                self._add(addition, results)
                continue
            definition = self._summand(scalar)
            if not is_addition(definition):
                results.append(self._value(definition))
                continue
            stack.append((scalar, definition))
            stack.extend((each, None) for each in reversed(self._partial_sums(definition)))
        return Summation(tuple(self.terms), tuple(self.additions), tuple(self.operations), tuple(self.conversions))

    def _summand(self, scalar: Scalar) -> Definition:
        """Return the addition below the conversions of a value, whose roundings are noted; else the value itself."""
        definition = whole = self.definition(scalar)
        roundings = []
        while definition.name.startswith("convert.") and definition.operands:
            if definition.name != WIDENING and not _widens(definition, self.definition(definition.operands[0])):
                roundings.append(definition.name)
            definition = self.definition(definition.operands[0])
        if not is_addition(definition):
            return whole
        self.conversions += roundings
        return definition

    def _partial_sums(self, definition: Definition) -> tuple[Scalar, ...]:
        """Return the operands of an addition that may be sums themselves."""
        if definition.name.startswith(mma_steps.MATRIX):
            return definition.operands[:1]
        if definition.name.startswith("fma."):
            return definition.operands[2:]
        if definition.name.startswith("sub."):
            return definition.operands[:1]
        return definition.operands

    def _add(self, definition: Definition, results: list[int]) -> None:
        count = len(self._partial_sums(definition))
        children = results[len(results) - count :]
        del results[len(results) - count :]
        if definition.name.startswith(mma_steps.MATRIX):
            vectors = [self.definition(each) for each in definition.operands[1:]]
            steps = re.search(r" k(\d+) ", definition.name)
            factors = {int(steps[1]) if steps else 0, *(len(each.operands) for each in vectors)}
            if any(each.name != mma_steps.VECTOR for each in vectors) or len(factors) != 1:
                raise _TermsNotKnown  # operands with block scales, and vectors that were not recorded
            for pair in zip(*(each.operands for each in vectors), strict=True):
                children.append(self._product(pair, "unit"))
        elif definition.name.startswith("fma."):
            children.append(self._product(definition.operands[:2], "fused"))
        elif definition.name.startswith("sub."):
            children.append(self._value(self.definition(definition.operands[1]), negated=True))
        self.additions.append(tuple(children))
        self.operations.append(definition.name.removeprefix(mma_steps.MATRIX))
        results.append(~(len(self.additions) - 1))

    def _value(self, definition: Definition, *, negated: bool = False) -> int:
        if _PRODUCT.match(definition.name) and len(definition.operands) == 2 and not negated:
            return self._product(definition.operands, "rounded")
        stripped = self.definition(self._stripped(definition.scalar))
        key: Hashable = (definition.scalar.bits, stripped.scalar.hash)
        text = self._text(stripped)
        constant = definition.name == "constant"
        return self._term(
            Term(("negated", key) if negated else key, f"-{text}" if negated else text,
                 self._place(definition.scalar), constant=constant)
        )  # fmt: skip

    def _product(self, factors: tuple[Scalar, ...], entry: Entry) -> int:
        stripped = [self._stripped(each) for each in factors]
        texts = [self._text(self.definition(each)) for each in stripped]
        key = ("product", *sorted(each.hash for each in stripped))
        places = sorted(self._place(each) for each in stripped)
        return self._term(Term(key, " * ".join(texts), tuple(each for place in places for each in place), entry))

    def _term(self, term: Term) -> int:
        if len(self.terms) == MAXIMUM_TERMS:
            raise _TermsNotKnown
        self.terms.append(term)
        return len(self.terms) - 1

    def _stripped(self, scalar: Scalar) -> Scalar:
        """Return a value without the exact conversions to wider types around it."""
        definition = self.definition(scalar)
        while definition.operands and (inner := self._widened(definition)) is not None:
            definition = inner
        return definition.scalar

    def _widened(self, definition: Definition) -> Definition | None:
        """Return the value of which another one is the exact conversion to a wider type, None for other values."""
        if definition.name == "concat 16 16":  # a bf16 is the high half of an fp32
            low, high = map(self.definition, definition.operands)
            return high if low.name == "constant" and not low.scalar.first else None
        inner = self.definition(definition.operands[0])
        return inner if definition.name == WIDENING or _widens(definition, inner) else None

    def _text(self, definition: Definition) -> str:
        """Return a value as text: a load, a constant, or an operation with the first load below it."""
        load = self._first_load(definition.scalar)
        if not definition.operands or load is None:
            return expression_text(self.provenance, definition, f"fp{definition.scalar.bits}", 1)
        name = definition.name.partition("@")[0].removeprefix(mma_steps.MATRIX)
        return f"{name}(…{expression_text(self.provenance, load)}…)"

    def _place(self, scalar: Scalar) -> tuple[int, ...]:
        """Return the address of the first load below a value."""
        load = self._first_load(scalar)
        return (1 << 63,) if load is None else (load.scalar.first,)

    def _first_load(self, scalar: Scalar) -> Definition | None:
        """Return the first load below a value, following its first operand that is no constant."""
        definition = self.definition(scalar)
        for _ in range(_PLACE_DEPTH):
            if definition.name == "load":
                return definition
            below = (self.definition(each) for each in definition.operands)
            found = next((each for each in below if each.name != "constant"), None)
            if found is None:
                break
            definition = found
        return None


def _widens(definition: Definition, operand: Definition) -> bool:
    """Return whether a value is an exact conversion of a floating-point value to a wider type."""
    if not definition.name.startswith("convert.") or len(definition.operands) != 1:
        return False
    parts = definition.name.partition("@")[0].split(".")
    return len(parts) == 3 and definition.scalar.bits > operand.scalar.bits


def summation(provenance: Provenance, root: Scalar) -> Summation | None:
    """Return the sum that a value is; None for a sum of too many terms, and one whose products are not known."""
    try:
        return _Reader(provenance).read(root)
    except _TermsNotKnown:
        return None
