"""Trees and orders of sums as records for the drawings of the page."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from bitwise_core.checker.trees.expression_trees import Tree
from bitwise_core.checker.trees.sum_orders import WrittenOrder
from bitwise_core.ir.condensed_tree import chain_key, factors_label, label_of
from bitwise_core.ir.nodes import Matrix, Node
from bitwise_core.ir.svg import label

MAXIMUM_NODES, LEVELS, MAXIMUM_OPERANDS, FOLDED_FROM = 260, 3, 12, 5
"""The most nodes of a drawn tree, the levels beside the path to the divergence, the most operands of a node, and the
length of a chain from which its middle is folded."""
MAXIMUM_BARS = 300


def tree_record(tree: Tree, path: Sequence[Node], widths: Mapping[str, int], shown: int = -1) -> dict[str, Any]:
    """Return the upper part of a tree, with everything on the way to a divergence.

    A record has the label `t`, the kind `k`, the line of the assembly `l`, its operands `c`, the number of operands
    that are left out `more`, and `m`: `path` on the way to the divergence, `first` at it, which is `path[shown]`.
    """
    path = path[: shown + 1]
    count = 0

    def record(node: Node, place: int | None, parent: Node | None = None, operand_place: int = 0) -> dict[str, Any]:
        nonlocal count
        count += 1
        made: dict[str, Any] = {
            "t": label_of(node) if node.children else label(node, widths, parent, operand_place),
            "k": node.kind,
        }
        if node in tree.lines:
            made["l"] = tree.lines[node]
        if place is not None:
            made["m"] = "first" if place == shown else "path"
        return made

    start = 0 if path and path[0] is tree.root else None
    root = record(tree.root, start)
    waiting: deque[tuple[Node, dict[str, Any], int | None, int]] = deque([(tree.root, root, start, 0)])
    while waiting:
        node, own, place, beside = waiting.popleft()
        operands = list(_operands(node))
        if not operands:
            continue
        if place is None and (beside >= LEVELS or count >= MAXIMUM_NODES):
            own["more"] = len(node.children)
            continue
        own["c"] = []
        following = None if place is None or place + 1 >= len(path) else path[place + 1]
        for number, operand in enumerate(operands[:MAXIMUM_OPERANDS]):
            if operand is following and place is not None:
                folded, end, end_place = _folded_path(path, place + 1)
                following = None
            else:
                folded, end = _folded_chain(node, operand)
                end_place = None
            below = record(end, end_place, node if end is operand else None, number)
            waiting.append((end, below, end_place, 0 if place is not None else beside + 1))
            if folded:
                below = {"t": f"{folded} more of them", "k": "more", "c": [below]} | (
                    {} if end_place is None else {"m": "path"}
                )
            own["c"].append(below)
        if len(operands) > MAXIMUM_OPERANDS:
            own["c"].append({"t": f"{len(operands) - MAXIMUM_OPERANDS} more operands", "k": "more"})
        if isinstance(node, Matrix):
            own["c"] += [{"t": factors_label(side, widths), "k": side[0].kind} for side in (node.left, node.right)]
    return root


def _operands(node: Node) -> Sequence[Node]:
    """Return the operands that are drawn as nodes: of a matrix step, the accumulator."""
    return node.children[:1] if isinstance(node, Matrix) else node.children


def _folded_path(path: Sequence[Node], place: int) -> tuple[int, Node, int]:
    """Return how many nodes of the path are folded from a place on, and the node and the place behind them."""
    end = place
    key = chain_key(path[place])
    while key and end + 1 < len(path) and chain_key(path[end + 1]) == key:
        end += 1
    return (end - place, path[end], end) if end - place >= FOLDED_FROM else (0, path[place], place)


def _folded_chain(node: Node, operand: Node) -> tuple[int, Node]:
    """Return how many steps of a chain of one operation are folded below a node, and the step behind them."""
    key = chain_key(node)
    steps = [operand]
    while key and chain_key(steps[-1]) == key:
        inner = [each for each in _operands(steps[-1]) if chain_key(each) == key]
        if len(inner) != 1:
            break
        steps.append(inner[0])
    return (len(steps) - 1, steps[-1]) if len(steps) > FOLDED_FROM else (0, operand)


def order_record(order: WrittenOrder | None) -> dict[str, Any] | None:
    """Return an order as bars over the terms: each has its level, its runs of terms, and what it adds.

    A bar of level 0 adds terms; the parts of a bar are on lower levels.
    """
    if order is None:
        return None
    bars: list[dict[str, Any]] = []

    def add(child: int) -> int:
        chain = order.chain(child)
        inner = [each for part in chain for each in part if each < 0]
        level = 1 + max((add(each) for each in inner), default=-1)
        steps = len(chain) - (len(chain[0]) == 1)
        if len(bars) < MAXIMUM_BARS:
            widths = sorted({len(part) for part in chain[1:]} or {len(chain[0])})
            one_step = any(len(part) > 1 for part in chain[1:]) or len(chain[0]) > 2
            bars.append(
                {"level": level, "runs": _runs(order.leaves(child)), "steps": steps,
                 "width": widths[-1], "fused": one_step, "text": order.text(child)}
            )  # fmt: skip
        return level

    add(order.root)
    return {"terms": max(order.leaves(order.root)) + 1, "bars": bars}


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for each in numbers:
        if runs and runs[-1][1] + 1 == each:
            runs[-1] = (runs[-1][0], each)
        else:
            runs.append((each, each))
    return runs
