"""Real trees out of a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bitwise_core.checker.divergence import buffer_name
from bitwise_core.checker.provenance import Part, Provenance, Scalar
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.values import mma_steps
from bitwise_core.ir.nodes import (
    Concat,
    Constant,
    Gather,
    Load,
    Matrix,
    Node,
    OpaqueOperation,
    Operation,
    Select,
    Slice,
    Undefined,
)

MAXIMUM_NODES = 200_000
"""A tree of more nodes is cut: what lies deeper stands as undefined, with that reason."""

LEFT_OUT = "left out: the tree is larger than was asked for"


@dataclass(slots=True)
class Tree:
    """A tree, the assembly's line of each node that an instruction made, and whether something was left out."""

    root: Node
    lines: dict[Node, int] = field(default_factory=dict)
    complete: bool = True


def build_tree(replay: Provenance, root: Scalar, maximum: int | None = MAXIMUM_NODES) -> Tree:
    """The tree of a value, of at most `maximum` values taken apart, those nearest to the root first (None: all)."""
    parts, complete = _unfold(replay, root, maximum)
    nodes: dict[Scalar, Node] = {}
    lines: dict[Node, int] = {}
    stack = [(root, False)]
    while stack:
        scalar, opened = stack.pop()
        if scalar in nodes:
            continue
        part = parts.get(scalar)
        if part is None:
            nodes[scalar] = Undefined(LEFT_OUT, scalar.bits)
            continue
        operands = _all_operands(part, parts)
        if not opened:
            stack.append((scalar, True))
            stack.extend((each, False) for each in reversed(operands) if each not in nodes)
            continue
        node = _node(replay, part, tuple(nodes[each] for each in operands))
        nodes[scalar] = node
        if part.line:
            lines.setdefault(node, part.line)
    return Tree(nodes[root], lines, complete)


def _unfold(replay: Provenance, root: Scalar, maximum: int | None) -> tuple[dict[Scalar, Part], bool]:
    """Values taken apart level by level from the root."""
    parts: dict[Scalar, Part] = {}
    level = [root]
    while level:
        following: dict[Scalar, None] = {}
        for scalar in level:
            if scalar in parts:
                continue
            if maximum is not None and len(parts) >= maximum:
                return parts, False
            parts[scalar] = replay.part(scalar)
            following.update(dict.fromkeys(parts[scalar].operands))
        level = [scalar for scalar in following if scalar not in parts]
    return parts, True


def _all_operands(part: Part, parts: dict[Scalar, Part]) -> tuple[Scalar, ...]:
    """The operands; of a matrix step the accumulator and the factors of both vectors, where all of them are there."""
    if not part.name.startswith(mma_steps.MATRIX):
        return part.operands
    vectors = [parts.get(each) for each in part.operands[1:]]
    if any(each is None or each.name != mma_steps.VECTOR for each in vectors):
        return part.operands[:1]
    return (part.operands[0], *(factor for each in vectors if each is not None for factor in each.operands))


def _node(replay: Provenance, part: Part, operands: tuple[Node, ...]) -> Node:
    scalar = part.scalar
    if part.name == "load":
        offset = scalar.first & ((1 << POINTER_SHIFT) - 1)
        return Load(buffer_name(replay, scalar.first >> POINTER_SHIFT), offset, scalar.bits)
    if part.name == "constant":
        return Constant(scalar.bits, scalar.first & ((1 << scalar.bits) - 1))
    if part.name == "undefined":
        return Undefined("nothing wrote it", scalar.bits)
    if part.name.startswith(mma_steps.MATRIX):
        factors = operands[1:]
        if not factors:
            return Undefined(LEFT_OUT, scalar.bits)
        half = len(factors) // 2
        return Matrix(_one_word(part.name.removeprefix(mma_steps.MATRIX)), operands[0], factors[:half], factors[half:])
    verb, *rest = part.name.split()
    if verb in _STRUCTURE:
        return _STRUCTURE[verb](operands, [int(each) for each in rest if each.isdigit()], scalar.bits)
    if rest:
        return OpaqueOperation(_one_word(part.name), operands, scalar.bits)
    return _operation(part, operands)


def _one_word(name: str) -> str:
    return "_".join(name.split())


def _operation(part: Part, operands: tuple[Node, ...]) -> Node:
    if len(operands) > 2 and part.commuting and len(part.commuting) == len(operands):
        # The members of a set, in the order in which they were met: the order does not matter.
        total = operands[0]
        for each in operands[1:]:
            total = Operation(part.name, (total, each))
        return total
    return Operation(part.name, operands)


def _select(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Select(*operands)


def _slice(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Slice(operands[0], numbers[0], bits)


def _concat(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Concat(operands)


def _gather(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Gather(operands[0], bits)


_STRUCTURE: dict[str, Callable[[tuple[Node, ...], list[int], int], Node]] = {
    "select": _select,
    "slice": _slice,
    "concat": _concat,
    "gather": _gather,
}
