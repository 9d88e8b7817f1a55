"""Rewriting of expressions: rules as text, their matching and their application."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_bench.adversary.expressions import (
    CONSTANT,
    WIDTHS,
    Expression,
    constant,
    constant_bits,
    nodes,
    substituted,
)
from bitwise_bench.adversary.instruction_sets.vocabulary import Spec, Vocabulary

Bindings: TypeAlias = dict[str, Expression | str]


@dataclass(frozen=True, slots=True)
class Term:
    """A pattern: a variable (its name only), a number (`bits`, and its kind as the name) or an operation (`spec`)."""

    name: str
    operands: tuple[Term, ...] = ()
    bits: int | None = None
    spec: Spec | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Two patterns of one kind; `holds` if they are equal for every input, else they differ in corner cases."""

    kind: str
    left: Term
    right: Term
    holds: bool
    text: str


_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w.]*(?: [\w.]+)*)|(?P<number>[-+]?[\d.]+\w*|[-+]inf)|(?P<mark>[(),]))")


def _numbers(kind: str) -> Mapping[str, int]:
    """Return the patterns of the numbers that rules name, for a kind."""
    floats = {
        "f32": (0x3F800000, 0x40000000, 0x3F000000, 0x7F800000, 31),
        "f64": (0x3FF0 << 48, 0x4000 << 48, 0x3FE0 << 48, 0x7FF0 << 48, 63),
        "f16": (0x3C00, 0x4000, 0x3800, 0x7C00, 15),
        "bf16": (0x3F80, 0x4000, 0x3F00, 0x7F80, 15),
        "h2": (0x3C003C00, 0x40004000, 0x38003800, 0x7C007C00, 15),
        "b2": (0x3F803F80, 0x40004000, 0x3F003F00, 0x7F807F80, 15),
    }
    if kind not in floats:
        return {}
    one, two, half, infinity, top = floats[kind]
    sign = 1 << top | (1 << 31 if kind in ("h2", "b2") else 0)
    return {
        "0.0": 0, "-0.0": sign, "1.0": one, "-1.0": one | sign, "2.0": two, "0.5": half, "+inf": infinity,
        "-inf": infinity | sign,
    }  # fmt: skip


class _Reader:
    """A reader of one pattern."""

    def __init__(self, text: str, words: Vocabulary) -> None:
        self.text, self.place, self.words = text, 0, words

    def token(self) -> tuple[str, str]:
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            raise ValueError(f"the pattern {self.text!r} has no token at {self.place}")
        self.place = found.end()
        group = str(found.lastgroup)
        return group, found.group(group)

    def term(self, kind: str) -> Term:
        group, value = self.token()
        if group == "number":
            number = _numbers(kind).get(value)
            if number is None:
                number = int(value, 0) & ((1 << WIDTHS[kind]) - 1) if not kind.startswith("#") else int(value, 0)
            return Term(kind, bits=number)
        if not self.text[self.place :].lstrip().startswith("("):
            return Term(value)
        spec = self.words.specs[value]
        self.token()
        operands = []
        for each in spec.operands:
            operands.append(self.term(each))
            self.token()
        return Term(value, tuple(operands), spec=spec)


def rules(lines: Iterable[str], words: Vocabulary) -> Iterator[Rule]:
    """Return the rules of lines such as `f32: add.rn.f32(x, -0.0) = x`; `~` instead of `=` marks one that may fail."""
    for line in lines:
        kind, _, rest = line.partition(":")
        holds = " = " in rest
        left, _, right = rest.partition(" = " if holds else " ~ ")
        for first, second in ((left, right), (right, left)):
            found = Rule(kind, _Reader(first, words).term(kind), _Reader(second, words).term(kind), holds, line)
            if _variables(found.right) <= _variables(found.left):
                yield found


def _variables(term: Term) -> set[str]:
    if term.spec is not None:
        return {name for each in term.operands for name in _variables(each)}
    return set() if term.bits is not None else {term.name}


def matched(term: Term, node: Expression | str, kind: str, bound: Bindings) -> bool:
    """Return whether a pattern matches; adds the values of its variables to `bound`."""
    if term.spec is not None:
        if not isinstance(node, Expression) or node.opcode != term.name:
            return False
        kinds = term.spec.operands
        return all(matched(t, o, k, bound) for t, o, k in zip(term.operands, node.operands, kinds, strict=True))
    if term.bits is not None:
        if isinstance(node, str):
            return int(node, 0) == term.bits
        return node.opcode == CONSTANT and constant_bits(node) == term.bits
    if isinstance(node, Expression) and not kind.startswith("#") and node.width != WIDTHS[kind]:
        return False
    return bound.setdefault(term.name, node) == node


def built(term: Term, bound: Mapping[str, Expression | str]) -> Expression | str:
    """Return the expression of a pattern with these values of its variables."""
    if term.spec is not None:
        return Expression(term.name, tuple(built(each, bound) for each in term.operands), term.spec.result)
    if term.bits is not None:
        return str(term.bits) if term.name.startswith("#") else constant(term.bits, term.name)
    return bound[term.name]


def applications(root: Expression, table: Iterable[Rule], retyped: bool = False) -> list[tuple[Expression, Rule]]:
    """Return the places of an expression to which rules apply: the node, and the rule.

    A rule on a value applies to nodes of its kind, with `retyped` to all nodes of its width.
    """
    found = []
    every = nodes(root)
    for rule in table:
        for node in every:
            if rule.left.spec is not None:
                if rule.left.name == node.opcode and matched(rule.left, node, rule.kind, {}):
                    found.append((node, rule))
            elif rule.left.bits is None and (node.kind == rule.kind or (retyped and node.width == WIDTHS[rule.kind])):
                found.append((node, rule))
    return found


def rewritten(root: Expression, node: Expression, rule: Rule) -> Expression:
    """Return the expression with a node rewritten by a rule that applies to it."""
    bound: Bindings = {}
    if not matched(rule.left, node, rule.kind, bound):
        raise ValueError(f"the rule {rule.text!r} does not apply to {node}")
    made = built(rule.right, bound)
    assert isinstance(made, Expression)
    return substituted(root, node, made)


def chain(
    root: Expression, table: Iterable[Rule], length: int, dice: random.Random, retyped: bool = False
) -> Expression:
    """Return the expression after up to `length` random rewritings; sizes are limited."""
    for _ in range(length):
        found = applications(root, table, retyped)
        if not found:
            break
        # Rules on operations are rarer than rules on values, and are chosen as often.
        operations = [each for each in found if each[1].left.spec is not None]
        node, rule = dice.choice(operations if operations and dice.random() < 0.6 else found)
        made = rewritten(root, node, rule)
        if len(nodes(made)) <= 30:
            root = made
    return root
