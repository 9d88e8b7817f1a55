"""A tree condensed for readers.

Matrix steps show each operand row as one node, long chains are abbreviated, and so is an operand that repeats the
operations of the first one on other elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.ir.element_names import NO_WIDTHS
from bitwise_core.ir.nodes import Label, Load, Matrix, Node, Operation, descendants
from bitwise_core.ir.svg import label

CHAIN = 2
"""The number of steps that are drawn at the top of a chain of one operation; the others are shown as a count."""

REPETITION = 7
"""The least number of nodes of an operand that is shown as a repetition."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tree without the indices of its elements: a number for each shape, and its number of nodes.

    Nodes that the tree uses several times count several times.
    """

    number: int
    nodes: int


def condense(root: Node, depth: int = 7, widths: Mapping[str, int] = NO_WIDTHS) -> Node:
    """Return the upper `depth` levels of the tree for readers; its nodes are labels and cannot be evaluated.

    `widths` are the widths of the buffers' elements in bytes, by default those of the loads.
    """
    lengths, shapes = _chains(root), _shapes(root)
    made: dict[tuple[Node, int, int], Node] = {}
    stack: list[tuple[tuple[Node, int, int], bool]] = [((root, depth, 0), False)]
    while stack:
        key, opened = stack.pop()
        if key in made:
            continue
        node, left, step = key
        below = _drawn_children(node, left, step, lengths, shapes)
        if not opened:
            stack.append((key, True))
            stack.extend((each, False) for each in below if each not in made)
            continue
        made[key] = _box(node, left, step, lengths, shapes, [made[each] for each in below], widths)
    return made[root, depth, 0]


def chain_key(node: Node) -> str:
    """Return the operation that two nodes must share to be steps of one chain; empty for a node of no chain."""
    return node.instruction if isinstance(node, Matrix) else node.name if isinstance(node, Operation) else ""


def _chain_operand(node: Node) -> Node | None:
    """Return the operand that continues the chain, None if there is none or several."""
    candidates = node.children[:1] if isinstance(node, Matrix) else node.children
    same = [child for child in candidates if chain_key(child) == chain_key(node) != ""]
    return same[0] if len(same) == 1 else None


def _chains(root: Node) -> dict[Node, int]:
    """Return the number of steps of its chain below each node."""
    lengths: dict[Node, int] = {}
    for node in descendants(root):
        following = _chain_operand(node)
        lengths[node] = 0 if following is None else lengths[following] + 1
    return lengths


def _shapes(root: Node) -> dict[Node, _Shape]:
    """Return the shape of each node."""
    numbers: dict[object, int] = {}
    shapes: dict[Node, _Shape] = {}
    for node in descendants(root):
        below = [shapes[child] for child in node.children]
        what = (node.kind, node.bits, node.buffer) if isinstance(node, Load) else label(node)
        number = numbers.setdefault((what, *(each.number for each in below)), len(numbers))
        shapes[node] = _Shape(number, 1 + sum(each.nodes for each in below))
    return shapes


def _is_repetition(node: Node, place: int, shapes: dict[Node, _Shape]) -> bool:
    """Return whether an operand repeats the operations of the first one."""
    if place == 0 or isinstance(node, Matrix):
        return False
    first, other = shapes[node.children[0]], shapes[node.children[place]]
    return first.number == other.number and other.nodes >= REPETITION and node.children[0] is not node.children[place]


def _is_abbreviated(node: Node, step: int, lengths: dict[Node, int]) -> bool:
    return step == CHAIN and lengths[node] > 2


def _chain_end(node: Node) -> Node:
    following = _chain_operand(node)
    while following is not None:
        node, following = following, _chain_operand(following)
    return node


def _drawn_children(
    node: Node, left: int, step: int, lengths: dict[Node, int], shapes: dict[Node, _Shape]
) -> list[tuple[Node, int, int]]:
    if left == 0 or not node.children:
        return []
    if _is_abbreviated(node, step, lengths):
        return [(_chain_end(node), left - 1, 0)]
    following = _chain_operand(node)
    children = node.children[:1] if isinstance(node, Matrix) else node.children
    return [
        (child, left - 1, step + 1 if child is following else 0)
        for place, child in enumerate(children)
        if not _is_repetition(node, place, shapes)
    ]


def _box(
    node: Node, left: int, step: int, lengths: dict[Node, int], shapes: dict[Node, _Shape], below: Sequence[Node],
    widths: Mapping[str, int],
) -> Node:  # fmt: skip
    if not node.children:
        return node
    if left == 0:
        return Label(f"{label_of(node)} …", (), node)
    if _is_abbreviated(node, step, lengths):
        return Label(f"{lengths[node]} more of them", below, node, "concat")
    if isinstance(node, Matrix):
        rows = [Label(factors_label(side, widths), (), side[0]) for side in (node.left, node.right)]
        return Label(label_of(node), (*below, *rows), node)
    drawn = iter(below)
    operands = [
        _repetition(node.children[0], child, widths) if _is_repetition(node, place, shapes) else next(drawn)
        for place, child in enumerate(node.children)
    ]
    return Label(label_of(node), operands, node)


def _repetition(first: Node, node: Node, widths: Mapping[str, int]) -> Label:
    """Return the label of an operand that repeats the operations of the first one on other elements."""
    others = _other_loads(first, node)
    if not others:  # they differ in a leaf of another kind, whose label is cut
        return Label("the same operations on other values", (), node, "concat")
    ends = " … ".join(label(each, widths) for each in dict.fromkeys((others[0], others[-1])))
    count = f"{len(others)} elements, " if len(others) > 1 else ""
    return Label(f"the same operations on {count}{ends}", (), node, "concat")


def _other_loads(first: Node, node: Node) -> list[Load]:
    """Return the loads of a tree where those of another tree of its shape differ, from left to right."""
    found: dict[Load, None] = {}
    done: set[tuple[Node, Node]] = set()
    stack = [(first, node)]
    while stack:
        pair = stack.pop()
        left, right = pair
        if left is right or pair in done:
            continue
        done.add(pair)
        if isinstance(right, Load):
            found[right] = None
        stack.extend(reversed(list(zip(left.children, right.children, strict=True))))
    return list(found)


def label_of(node: Node) -> str:
    """Return the label of a node with operands."""
    return node.instruction.replace("_", " ") if isinstance(node, Matrix) else label(node)


def factors_label(side: Sequence[Node], widths: Mapping[str, int]) -> str:
    """Return a label for the factors of one side of a matrix step."""
    if all(isinstance(node, Load) for node in side):
        return f"{label(side[0], widths)} … {label(side[-1], widths)}"
    return f"{len(side)} values, first {label(side[0], widths)}"
