"""Patterns of trees, such as `add(add(x, +0), y)`, which build nodes and match nodes.

A word with brackets is an operation, looked up in a family; a sign or a digit begins a number in the family's format;
any other word is a variable.  `concat(zero16, x)` puts x above sixteen zero bits, `choose(p, x, y)` is x where the
predicate p holds and y elsewhere, and `matrix(c, a*, b*)` is a matrix step whose left and right factors are bound to
`a*` and `b*`, `clamped(c, a*, b*)` one whose result is clamped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.ir.nodes import Concat, Constant, Matrix, Node, Operation, Select
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat

Bindings: TypeAlias = Mapping[str, tuple[Node, ...]]
"""The nodes of each variable: one node, or the factors of one side of a matrix step."""

_STEPS = ("matrix", "clamped")
_TOKEN = re.compile(r"\s*([A-Za-z]\w*\*?|[+-]\w+|[(),])")


@dataclass(frozen=True, slots=True)
class Family:
    """One instance of a rule: the operation of each word, and the format of its numbers and of its result.

    `format` is None for integers.  `bits` is the width of the variables, except for those in `narrow`, which maps
    them to their formats.
    """

    name: str
    operations: Mapping[str, str]
    format: str | None
    bits: int
    narrow: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> FloatFormat | None:
        """The format, None for integers."""
        return None if self.format is None else FLOAT_FORMATS[self.format]

    def number(self, word: str) -> Constant:
        """A number such as +0, -0, +1, -inf in the family's format.  Raises ValueError where it has no such number."""
        form = self.form
        magnitude = None
        if form is not None:
            magnitude = {"0": 0, "1": form.one, "inf": form.infinity}.get(word[1:])
        if form is None or magnitude is None:
            raise ValueError(f"the family {self.name} has no number {word}")
        return Constant(form.bits, magnitude | (1 << (form.bits - 1) if word[0] == "-" else 0))


@dataclass(frozen=True, slots=True)
class Term:
    """One place of a pattern: a word and what it applies to (None for variables and numbers)."""

    word: str
    operands: tuple[Term, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A tree with holes.  Raises ValueError for text outside the notation."""

    text: str
    term: Term = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "term", _parse(self.text))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of its variables, each once, in order."""
        found: dict[str, None] = {}
        stack = [self.term]
        while stack:
            term = stack.pop()
            if term.operands is not None:
                stack.extend(reversed(term.operands))
            elif term.word[0] not in "+-" and term.word != "zero16":
                found[term.word] = None
        return tuple(found)

    def build(self, family: Family, bindings: Bindings) -> Node:
        """Return the node of the pattern for these bindings."""
        return _build(self.term, family, bindings)

    def match(self, family: Family, node: Node) -> dict[str, tuple[Node, ...]] | None:
        """Return the bindings of the variables if the pattern matches a node, otherwise None."""
        bindings: dict[str, tuple[Node, ...]] = {}
        stack = [(self.term, node)]
        while stack:
            term, current = stack.pop()
            if term.operands is None:
                if not _bind(term.word, (current,), family, bindings):
                    return None
                continue
            children = _children(term, current, family)
            if children is None:
                return None
            for operand, group in zip(term.operands, children, strict=True):
                if operand.word.endswith("*"):
                    if not _bind(operand.word, group, family, bindings):
                        return None
                else:
                    stack.append((operand, group[0]))
        return bindings


def _parse(text: str) -> Term:
    """Parse a pattern with an explicit stack of open brackets."""
    opened: list[tuple[str, list[Term]]] = [("", [])]
    position, word = 0, ""
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"the pattern {text!r} cannot be read from {text[position:]!r} on")
        token, position = found.group(1), found.end()
        if (token == "(") != bool(word) and token not in ",)" and (word or token == "("):
            raise ValueError(f"the pattern {text!r} has {token!r} where an operand ends or begins")
        if token == "(":
            opened.append((word, []))
            word = ""
        elif token in ",)":
            if word:
                opened[-1][1].append(Term(word))
            word = ""
            if token == ")":
                if len(opened) == 1:
                    raise ValueError(f"the pattern {text!r} closes a bracket that it did not open")
                verb, operands = opened.pop()
                opened[-1][1].append(Term(verb, tuple(operands)))
        else:
            word = token
    if word:
        opened[-1][1].append(Term(word))
    if len(opened) != 1 or len(opened[0][1]) != 1:
        raise ValueError(f"the pattern {text!r} is not one term with its brackets closed")
    return opened[0][1][0]


def _build(term: Term, family: Family, bindings: Bindings) -> Node:
    if term.operands is None:
        if term.word == "zero16":
            return Constant(16, 0)
        return family.number(term.word) if term.word[0] in "+-" else bindings[term.word][0]
    if term.word in _STEPS:
        accumulator, left, right = term.operands
        instruction = family.operations[term.word]
        return Matrix(instruction, _build(accumulator, family, bindings), bindings[left.word], bindings[right.word])
    operands = tuple(_build(operand, family, bindings) for operand in term.operands)
    if term.word == "choose":
        return Select(*operands)
    return Concat(operands) if term.word == "concat" else Operation(family.operations[term.word], operands)


def _bind(word: str, nodes: tuple[Node, ...], family: Family, bindings: dict[str, tuple[Node, ...]]) -> bool:
    if word == "zero16":
        return nodes[0] is Constant(16, 0)
    if word[0] in "+-":
        return nodes[0] is family.number(word)
    return bindings.setdefault(word, nodes) == nodes


def _children(term: Term, node: Node, family: Family) -> list[tuple[Node, ...]] | None:
    """Return the nodes at each operand of a term's operation, None where the node has another operation."""
    assert term.operands is not None
    if term.word in _STEPS:
        if not isinstance(node, Matrix):
            return None
        instruction = node.instruction
        fits = (
            instruction == family.operations[term.word]
            if family.form is None
            else (family.format in instruction.split("."))
        )
        return [(node.accumulator,), node.left, node.right] if fits else None
    if term.word == "concat":
        fits = isinstance(node, Concat) and len(node.children) == len(term.operands)
    elif term.word == "choose":
        fits = isinstance(node, Select)
    else:
        fits = isinstance(node, Operation) and node.name == family.operations[term.word]
    return [(child,) for child in node.children] if fits else None
