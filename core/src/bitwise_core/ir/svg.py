"""A drawing of a tree as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from bitwise_core.ir.constant_text import constant_text
from bitwise_core.ir.element_names import NO_WIDTHS, element_name
from bitwise_core.ir.nodes import Constant, Load, Matrix, Node, OpaqueOperation, Operation, descendants
from bitwise_core.ir.text import head

COLOURS: dict[str, str] = {
    "load": "#cfe8d5",
    "constant": "#eeeeee",
    "operation": "#d6e4f7",
    "matrix": "#f7ddc4",
    "instruction": "#dcd6f7",
    "select": "#f4e9b8",
    "slice": "#e6dcf2",
    "concat": "#e6dcf2",
    "gather": "#bfe3e6",
    "undefined": "#f4c7c7",
    "more": "#ffffff",
}
"""The fill colour of each kind of node; `more` is for omitted operands."""

_CHARACTER, _HEIGHT, _ROW, _GAP, _MARGIN = 7, 22, 54, 14, 12
_LONGEST = 40


@dataclass(slots=True)
class _Box:
    label: str
    kind: str
    depth: int
    node: Node | None
    children: list[_Box] = field(default_factory=list)
    x: float = 0.0

    @property
    def width(self) -> int:
        return _CHARACTER * len(self.label) + 2 * _GAP // 2


def label(node: Node, widths: Mapping[str, int] = NO_WIDTHS, parent: Node | None = None, place: int = 0) -> str:
    """Return the short text in a node's box: `X[6]` for a load.

    `widths` are the widths of the buffers' elements in bytes, by default those of the loads.  The operand `place` of
    `parent` is a number in the format that it reads.
    """
    if isinstance(node, Load):
        text = element_name(node.buffer, node.offset, node.bits // 8, widths.get(node.buffer))
    elif isinstance(node, Constant):
        text = constant_text(node, parent, place)
    elif isinstance(node, Operation | OpaqueOperation):
        text = node.name
    elif isinstance(node, Matrix):
        text = f"{node.instruction} ({len(node.left)} products)"
    else:
        text = head(node)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def to_svg(node: Node, max_nodes: int = 200, widths: Mapping[str, int] = NO_WIDTHS) -> str:
    """Return the tree as a complete SVG document, with the root at the top; for `widths` see `label`.

    The `max_nodes` boxes nearest to the root are drawn; a box "…" represents omitted operands, and "see ..." an inner
    node that is drawn elsewhere.  Raises ValueError where `max_nodes` is not positive.
    """
    if max_nodes < 1:
        raise ValueError(f"a picture has at least one node, not {max_nodes}")
    levels = _unfold(node, max_nodes, widths)
    width = _place(levels)
    height = 2 * _MARGIN + _HEIGHT + _ROW * (len(levels) - 1)
    total = sum(1 for _ in descendants(node))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="monospace" font-size="12" text-anchor="middle" role="img">',
        f"<title>{escape(label(node, widths))}: {total} nodes</title>",
    ]
    boxes = [box for level in levels for box in level]
    lines.extend(_edge(box, child) for box in boxes for child in box.children)
    for box in boxes:
        dashed = ' stroke-dasharray="3 2"' if box.kind == "more" else ""
        title = escape(head(box.node)) if box.node is not None else "operands left out"
        lines.append(
            f'<g><title>{title}</title><rect x="{box.x:g}" y="{_top(box):g}" width="{box.width}" height="{_HEIGHT}" '
            f'rx="4" fill="{COLOURS[box.kind]}" stroke="#555555"{dashed}/>'
            f'<text x="{_centre(box):g}" y="{_top(box) + 15:g}">{escape(box.label)}</text></g>'
        )
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _edge(box: _Box, child: _Box) -> str:
    ends = f'x1="{_centre(box):g}" y1="{_top(box) + _HEIGHT:g}" x2="{_centre(child):g}" y2="{_top(child):g}"'
    return f'<line {ends} stroke="#888888"/>'


def _top(box: _Box) -> float:
    return _MARGIN + _ROW * box.depth


def _centre(box: _Box) -> float:
    return box.x + box.width / 2


def _unfold(root: Node, max_nodes: int, widths: Mapping[str, int]) -> list[list[_Box]]:
    """Return boxes level by level, nearest to the root first, each inner node once."""
    levels = [[_Box(label(root, widths), root.kind, 0, root)]]
    drawn, count = {root}, 1
    while True:
        level: list[_Box] = []
        for box in levels[-1]:
            if box.node is None or box.kind == "more":
                continue
            for position, child in enumerate(box.node.children):
                if count >= max_nodes:
                    more = _Box(f"… {len(box.node.children) - position} more", "more", box.depth + 1, None)
                    box.children.append(more)
                    level.append(more)
                    break
                again = bool(child.children) and child in drawn
                drawn.add(child)
                kind = "more" if again else child.kind
                text = label(child, widths, box.node, position)
                below = _Box(f"see {text}" if again else text, kind, box.depth + 1, child)
                box.children.append(below)
                level.append(below)
                count += 1
        if not level:
            return levels
        levels.append(level)


def _place(levels: list[list[_Box]]) -> float:
    """Place parents above the middle of their children, without overlaps in a level.  Returns the width."""
    for level in reversed(levels):
        free, shift = float(_MARGIN), 0.0
        for box in level:
            box.x = free
            if box.children:
                wanted = (_centre(box.children[0]) + _centre(box.children[-1]) - box.width) / 2
                # At least the shift of the previous box, or their children would overlap.
                shift = max(free - wanted, shift)
                box.x = wanted + shift
                _move(box.children, shift)
            free = box.x + box.width + _GAP
    return max(box.x + box.width for level in levels for box in level) + _MARGIN


def _move(boxes: list[_Box], shift: float) -> None:
    stack = list(boxes) if shift else []
    while stack:
        box = stack.pop()
        box.x += shift
        stack.extend(box.children)
