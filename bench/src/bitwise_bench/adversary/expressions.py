"""Programs as expressions: operations over loaded values and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

WIDTHS: Mapping[str, int] = {
    "p": 1, "f16": 16, "bf16": 16, "i16": 16, "q2": 16, "f32": 32, "i32": 32, "h2": 32, "b2": 32, "f64": 64, "i64": 64,
}  # fmt: skip
"""The width in bits of each kind of value.

h2 and b2 are pairs of fp16 and bf16 values, q2 is a pair of fp8 values, p is a predicate.
"""

LEAF, CONSTANT = "leaf", "constant"


class Expression:
    """An operation over expressions, a constant or a loaded value; immutable, compared by structure.

    `operands` of a leaf is its name, of a constant its bit pattern.  A string among the operands of an operation is an
    immediate.
    """

    __slots__ = ("_hash", "kind", "opcode", "operands")

    def __init__(self, opcode: str, operands: tuple[Operand, ...], kind: str) -> None:
        self.opcode, self.operands, self.kind = opcode, operands, kind
        self._hash = hash((opcode, operands, kind))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expression) or self._hash != other._hash:
            return False
        return (self.opcode, self.kind, self.operands) == (other.opcode, other.kind, other.operands)

    def __repr__(self) -> str:
        if self.opcode in (LEAF, CONSTANT):
            return str(self.operands[0])
        return f"{self.opcode}({', '.join(str(each) for each in self.operands)})"

    @property
    def width(self) -> int:
        """The width in bits."""
        return WIDTHS[self.kind]

    @property
    def inner(self) -> tuple[Expression, ...]:
        """The operands that are expressions."""
        return tuple(each for each in self.operands if isinstance(each, Expression))


Operand: TypeAlias = Expression | str


def leaf(name: str, kind: str) -> Expression:
    """Return a loaded value."""
    return Expression(LEAF, (name,), kind)


def constant(bits: int, kind: str) -> Expression:
    """Return a constant with this bit pattern."""
    return Expression(CONSTANT, (f"0x{bits & ((1 << WIDTHS[kind]) - 1):x}",), kind)


def constant_bits(expression: Expression) -> int:
    """Return the bit pattern of a constant."""
    return int(str(expression.operands[0]), 16)


def nodes(root: Expression) -> tuple[Expression, ...]:
    """Return the different nodes of an expression, operands before the operations that use them."""
    found: dict[Expression, None] = {}

    def visit(node: Expression) -> None:
        if node not in found:
            for each in node.inner:
                visit(each)
            found[node] = None

    visit(root)
    return tuple(found)


def operations(root: Expression) -> tuple[Expression, ...]:
    """Return the different operations of an expression, without its leaves and constants."""
    return tuple(node for node in nodes(root) if node.opcode not in (LEAF, CONSTANT))


def replaced(root: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return the expression with each node for which `change` returns another one replaced by it."""
    known: dict[Expression, Expression] = {}

    def visit(node: Expression) -> Expression:
        if node in known:
            return known[node]
        made = change(node)
        if made is None:
            operands = tuple(visit(each) if isinstance(each, Expression) else each for each in node.operands)
            made = node if operands == node.operands else Expression(node.opcode, operands, node.kind)
        known[node] = made
        return made

    return visit(root)


def substituted(root: Expression, old: Expression, new: Expression) -> Expression:
    """Return the expression with every occurrence of `old` replaced by `new`."""
    return replaced(root, lambda node: new if node == old else None)


def leaves_of(roots: Iterator[Expression]) -> tuple[Expression, ...]:
    """Return the different loaded values of several expressions."""
    found = {node: None for root in roots for node in nodes(root) if node.opcode == LEAF}
    return tuple(found)
