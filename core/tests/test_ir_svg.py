"""Drawings are well-formed and bounded, and boxes do not overlap."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from bitwise_core.ir.nodes import Constant, Load, Matrix, Node, Operation, Undefined
from bitwise_core.ir.svg import COLOURS, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def balanced(depth: int) -> Node:
    level: list[Node] = [Load("X", 4 * index, 32) for index in range(1 << depth)]
    while len(level) > 1:
        level = [Operation("add.rn.fp32", (left, right)) for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def chain(length: int) -> Node:
    total: Node = Constant(32, 0)
    for index in range(length):
        total = Operation("fma.rn.fp32", (Load("A", 4 * index, 32), Load("B", 4 * index, 32), total))
    return total


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_small_tree_is_drawn_whole() -> None:
    svg = to_svg(Operation("add.rn.fp32", (Load("X", 24, 32), Constant(32, 0x80000000))))
    assert texts(svg) == ["add.rn.fp32", "X[6]", "-0 (0x80000000)"]
    root = ElementTree.fromstring(svg)
    assert [box.get("fill") for box in root.iter(f"{SVG}rect")] == [
        COLOURS["operation"],
        COLOURS["load"],
        COLOURS["constant"],
    ]
    assert len(list(root.iter(f"{SVG}line"))) == 2
    assert texts(to_svg(Undefined("because", 32))) == ['undefined "because" b32']


def test_names_are_escaped() -> None:
    assert texts(to_svg(Load("<&>", 0, 32))) == ["<&>[0]"]


def test_shared_nodes_are_drawn_once() -> None:
    square = Operation("mul.rn.fp32", (Load("X", 0, 32),) * 2)
    assert texts(to_svg(Operation("add.rn.fp32", (square, square)))) == [
        "add.rn.fp32",
        "mul.rn.fp32",
        "see mul.rn.fp32",
        "X[0]",
        "X[0]",
    ]


@pytest.mark.parametrize("tree", [balanced(5), chain(4096), balanced(10)])
@pytest.mark.parametrize("limit", [1, 2, 50, 300])
def test_drawings_are_bounded_and_boxes_do_not_overlap(tree: Node, limit: int) -> None:
    root = ElementTree.fromstring(to_svg(tree, max_nodes=limit))
    rows: dict[float, list[tuple[float, float]]] = {}
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    boxes = list(root.iter(f"{SVG}rect"))
    labels = [element.text or "" for element in root.iter(f"{SVG}text")]
    drawn = [label for label in labels if not label.startswith("…")]
    assert len(drawn) == min(limit, {"add.rn.fp32": 63, "fma.rn.fp32": 12289}[tree.name] if tree is not BIG else 2047)
    for box in boxes:
        left = float(box.get("x", ""))
        rows.setdefault(float(box.get("y", "")), []).append((left, left + float(box.get("width", ""))))
    assert max(rows) < height
    for row in rows.values():
        assert row[0][0] >= 0
        assert row[-1][1] <= width
        assert all(one[1] < other[0] for one, other in pairwise(row))


BIG = balanced(10)


def test_a_wide_matrix_step_is_elided() -> None:
    factors = tuple(Load("A", 2 * index, 16) for index in range(40))
    step = Matrix("family.k16.fp16", Load("C", 0, 32), factors, factors)
    found = texts(to_svg(step, max_nodes=4))
    assert found == ["family.k16.fp16 (40 products)", "C[0]", "A[0]", "A[1]", "… 78 more"]


def test_a_drawing_has_at_least_one_node() -> None:
    with pytest.raises(ValueError, match="at least one node, not 0"):
        to_svg(Constant(8, 0), max_nodes=0)
