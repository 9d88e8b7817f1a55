"""Trees condensed for readers."""

from __future__ import annotations

from functools import reduce

from bitwise_core.ir.condensed_tree import condense
from bitwise_core.ir.nodes import Constant, Load, Node, Operation, Undefined
from bitwise_core.ir.text import render


def pairwise(first: int, count: int, step: int = 4, buffer: str = "X") -> Node:
    """Return the sum of consecutive elements, of halves."""
    if count == 1:
        return Load(buffer, first * step, 32)
    half = count // 2
    parts = pairwise(first, half, step, buffer), pairwise(first + half, half, step, buffer)
    return Operation("add.rn.fp32", parts)


def text(root: Node) -> str:
    return render(condense(root, 24), 24, 200)


def test_an_operand_that_repeats_the_first_one_is_one_line() -> None:
    assert text(pairwise(0, 16)).splitlines() == [
        "add.rn.fp32",
        "  add.rn.fp32",
        "    add.rn.fp32",
        "      add.rn.fp32",
        "        X[0]",
        "        X[1]",
        "      add.rn.fp32",
        "        X[2]",
        "        X[3]",
        "    the same operations on 4 elements, X[4] … X[7]",
        "  the same operations on 8 elements, X[8] … X[15]",
    ]


def test_other_operands_are_written() -> None:
    left = pairwise(0, 4)
    chain = reduce(lambda total, index: Operation("add.rn.fp32", (total, Load("X", 4 * index, 32))), (5, 6, 7), left)
    for other in (pairwise(4, 4, buffer="Y"), Operation("neg.fp32", (pairwise(4, 4),)), left, pairwise(4, 2), chain):
        assert "the same operations" not in text(Operation("max.fp32", (left, other)))


def test_constants_are_a_part_of_the_operations() -> None:
    def scaled(first: int, factor: int) -> Node:
        return Operation("mul.rn.fp32", (pairwise(first, 4), Constant(32, factor)))

    assert "the same operations on 4 elements, X[4] … X[7]" in text(Operation("max.fp32", (scaled(0, 2), scaled(4, 2))))
    assert "the same operations" not in text(Operation("max.fp32", (scaled(0, 2), scaled(4, 3))))


def test_operands_that_differ_in_no_element() -> None:
    def marked(reason: str) -> Node:
        return Operation("max.fp32", (pairwise(0, 4), Undefined("x" * 60 + reason, 32)))

    lines = text(Operation("min.fp32", (marked("a"), marked("b")))).splitlines()
    assert lines[-1] == "  the same operations on other values"


def test_shared_operands_are_no_other_elements() -> None:
    shared = pairwise(0, 64)
    weights = [Operation("mul.rn.fp32", (Load("X", 4 * index, 32), shared)) for index in range(100, 104)]
    sums = [Operation("add.rn.fp32", tuple(weights[place : place + 2])) for place in (0, 2)]
    lines = text(Operation("add.rn.fp32", tuple(sums))).splitlines()
    assert "    the same operations on X[101]" in lines
    assert "  the same operations on 2 elements, X[102] … X[103]" in lines
