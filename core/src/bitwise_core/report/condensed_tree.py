"""A tree made small enough to look at: matrix steps with their operand rows in one piece, long chains cut short."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_core.ir.nodes import Load, Matrix, Node, OpaqueOperation, Operation, descendants
from bitwise_core.ir.svg import label

CHAIN = 2
"""So many steps of a chain of one operation are drawn at its top; the rest stands as a count."""


def condense(root: Node, depth: int = 7) -> Node:
    """The upper `depth` levels of the tree, for a picture: its nodes name values and are not to be evaluated."""
    lengths = _chains(root)
    made: dict[tuple[Node, int, int], Node] = {}
    stack: list[tuple[tuple[Node, int, int], bool]] = [((root, depth, 0), False)]
    while stack:
        key, opened = stack.pop()
        if key in made:
            continue
        node, left, step = key
        below = _below(node, left, step, lengths)
        if not opened:
            stack.append((key, True))
            stack.extend((each, False) for each in below if each not in made)
            continue
        made[key] = _drawn(node, left, step, lengths, [made[each] for each in below])
    return made[root, depth, 0]


def _name(node: Node) -> str:
    """What makes two nodes steps of one chain."""
    return node.instruction if isinstance(node, Matrix) else node.name if isinstance(node, Operation) else ""


def _next(node: Node) -> Node | None:
    """The operand that continues a chain."""
    candidates = node.children[:1] if isinstance(node, Matrix) else node.children
    same = [child for child in candidates if _name(child) == _name(node) != ""]
    return same[0] if len(same) == 1 else None


def _chains(root: Node) -> dict[Node, int]:
    """How many steps of a chain lie below each node."""
    lengths: dict[Node, int] = {}
    for node in descendants(root):
        following = _next(node)
        lengths[node] = 0 if following is None else lengths[following] + 1
    return lengths


def _cut_here(node: Node, step: int, lengths: dict[Node, int]) -> bool:
    return step == CHAIN and lengths[node] > 2


def _last(node: Node) -> Node:
    following = _next(node)
    while following is not None:
        node, following = following, _next(following)
    return node


def _below(node: Node, left: int, step: int, lengths: dict[Node, int]) -> list[tuple[Node, int, int]]:
    if left == 0 or not node.children:
        return []
    if _cut_here(node, step, lengths):
        return [(_last(node), left - 1, 0)]
    following = _next(node)
    children = node.children[:1] if isinstance(node, Matrix) else node.children
    return [(child, left - 1, step + 1 if child is following else 0) for child in children]


class _Box(OpaqueOperation):
    """A node of a picture: unlike others it is not interned, so that what looks alike stays apart."""

    __slots__ = ("kind",)
    kind: str  # type: ignore[misc]

    def __new__(cls, name: str, operands: Sequence[Node], like: Node, kind: str | None = None) -> _Box:
        made = object.__new__(cls)
        fields = ("name", name), ("operands", tuple(operands)), ("bits", like.bits), ("kind", kind or like.kind)
        for field, value in fields:
            object.__setattr__(made, field, value)
        return made


def _drawn(node: Node, left: int, step: int, lengths: dict[Node, int], below: Sequence[Node]) -> Node:
    if not node.children:
        return node
    if left == 0:
        return _Box(f"{_words(node)} …", (), node)
    if _cut_here(node, step, lengths):
        return _Box(f"{lengths[node]} more of them", below, node, "concat")
    if isinstance(node, Matrix):
        rows = [_Box(_row(side), (), side[0]) for side in (node.left, node.right)]
        return _Box(_words(node), (*below, *rows), node)
    return _Box(_words(node), below, node)


def _words(node: Node) -> str:
    return node.instruction.replace("_", " ") if isinstance(node, Matrix) else label(node)


def _row(side: Sequence[Node]) -> str:
    """The factors of one side in a few words."""
    if all(isinstance(node, Load) for node in side):
        return f"{label(side[0])} … {label(side[-1])}"
    return f"{len(side)} values, first {label(side[0])}"
