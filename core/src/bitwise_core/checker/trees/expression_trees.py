"""Expression trees built from provenance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bitwise_core.checker.trees.divergence import buffer_name
from bitwise_core.checker.trees.provenance import Definition, Provenance, Scalar
from bitwise_core.execution.launch import buffer_at, offset_at
from bitwise_core.execution.values.matrix_steps import mma_steps
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
"""A tree of more nodes is truncated: deeper values become undefined nodes with that reason."""

TRUNCATED = "truncated: the tree has more nodes than requested"


@dataclass(slots=True)
class Tree:
    """A tree, the assembly line of each node that is the result of an instruction, and whether the tree is complete.

    `nodes` are the nodes of values.
    """

    root: Node
    lines: dict[Node, int] = field(default_factory=dict)
    complete: bool = True
    nodes: dict[Scalar, Node] = field(default_factory=dict)


def build_tree(provenance: Provenance, root: Scalar, maximum: int | None = MAXIMUM_NODES) -> Tree:
    """Build the tree of a value from at most `maximum` definitions, nearest to the root first (None: all)."""
    definitions, complete = _collect_definitions(provenance, root, maximum)
    nodes: dict[Scalar, Node] = {}
    lines: dict[Node, int] = {}
    stack = [(root, False)]
    while stack:
        scalar, expanded = stack.pop()
        if scalar in nodes:
            continue
        definition = definitions.get(scalar)
        if definition is None:
            nodes[scalar] = Undefined(TRUNCATED, scalar.bits)
            continue
        operands = _tree_operands(definition, definitions)
        if not expanded:
            stack.append((scalar, True))
            stack.extend((each, False) for each in reversed(operands) if each not in nodes)
            continue
        node = _node(
            provenance, definition, tuple(nodes[each] for each in operands), _left_count(definition, definitions)
        )
        nodes[scalar] = nodes[definition.scalar] = node
        if definition.line:
            lines.setdefault(node, definition.line)
    return Tree(nodes[root], lines, complete, nodes)


def _collect_definitions(
    provenance: Provenance, root: Scalar, maximum: int | None
) -> tuple[dict[Scalar, Definition], bool]:
    """The definitions of values, level by level from the root, and whether they are complete."""
    definitions: dict[Scalar, Definition] = {}
    level = [root]
    while level:
        following: dict[Scalar, None] = {}
        for scalar in level:
            if scalar in definitions:
                continue
            if maximum is not None and len(definitions) >= maximum:
                return definitions, False
            definitions[scalar] = provenance.definition(scalar)
            following.update(dict.fromkeys(definitions[scalar].operands))
        level = [scalar for scalar in following if scalar not in definitions]
    return definitions, True


def _tree_operands(definition: Definition, definitions: dict[Scalar, Definition]) -> tuple[Scalar, ...]:
    """The operands; for a matrix step, the accumulator and the factors of both vectors if both are defined."""
    if not definition.name.startswith(mma_steps.MATRIX):
        return definition.operands
    vectors = [definitions.get(each) for each in definition.operands[1:]]
    if any(each is None or each.name != mma_steps.VECTOR for each in vectors):
        return definition.operands[:1]
    return (definition.operands[0], *(factor for each in vectors if each is not None for factor in each.operands))


def _left_count(definition: Definition, definitions: dict[Scalar, Definition]) -> int:
    """Return the number of left factors of a matrix step whose vectors are both defined, else 0."""
    if not definition.name.startswith(mma_steps.MATRIX) or definition.operands[1] not in definitions:
        return 0
    return len(definitions[definition.operands[1]].operands)


def _node(provenance: Provenance, definition: Definition, operands: tuple[Node, ...], left_count: int) -> Node:
    """Return the node of a definition; `left_count` is the number of left factors of a matrix step."""
    scalar = definition.scalar
    if definition.name == "load":
        return Load(buffer_name(provenance, buffer_at(scalar.first)), offset_at(scalar.first), scalar.bits)
    if definition.name == "constant":
        return Constant(scalar.bits, scalar.first & ((1 << scalar.bits) - 1))
    if definition.name == "undefined":
        return Undefined("nothing wrote it", scalar.bits)
    if definition.name.startswith(mma_steps.MATRIX):
        factors = operands[1:]
        if not factors:
            return Undefined(TRUNCATED, scalar.bits)
        name = _joined_name(definition.name.removeprefix(mma_steps.MATRIX))
        return Matrix(name, operands[0], factors[:left_count], factors[left_count:])
    operation_name, *rest = definition.name.split()
    if operation_name in _STRUCTURAL_NODES:
        return _STRUCTURAL_NODES[operation_name](operands, [int(each) for each in rest if each.isdigit()], scalar.bits)
    if rest:
        return OpaqueOperation(_joined_name(definition.name), operands, scalar.bits)
    return _operation(definition, operands)


def _joined_name(name: str) -> str:
    return "_".join(name.split())


def _operation(definition: Definition, operands: tuple[Node, ...]) -> Node:
    if len(operands) > 2 and definition.commutative and len(definition.commutative) == len(operands):
        # The operands of a flattened AC operation; their order does not matter.
        total = operands[0]
        for each in operands[1:]:
            total = Operation(definition.name, (total, each))
        return total
    return Operation(definition.name, operands)


def _select(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Select(*operands)


def _slice(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Slice(operands[0], numbers[0], bits)


def _concat(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Concat(operands)


def _gather(operands: tuple[Node, ...], numbers: list[int], bits: int) -> Node:
    return Gather(operands[0], bits)


_STRUCTURAL_NODES: dict[str, Callable[[tuple[Node, ...], list[int], int], Node]] = {
    "select": _select,
    "slice": _slice,
    "concat": _concat,
    "gather": _gather,
}
