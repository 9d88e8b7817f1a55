"""Nodes: identity, checks, depth."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import pytest

from bitwise_core.ir import nodes
from bitwise_core.ir.nodes import (
    Concat,
    Constant,
    Gather,
    Load,
    Matrix,
    Node,
    Operation,
    Select,
    Slice,
    TreeError,
    Undefined,
    descendants,
)

X = Load("X", 0, 32)
Y = Load("Y", 4, 32)
H = Load("H", 0, 16)
P = Slice(X, 3, 1)


def chain(length: int, buffer: str = "X") -> Node:
    total: Node = Constant(32, 0)
    for index in range(length):
        total = Operation("add.rn.fp32", (total, Load(buffer, 4 * index, 32)))
    return total


def test_the_same_structure_is_the_same_object() -> None:
    def build() -> list[Node]:
        total = Operation("fma.rn.fp32", (X, Y, Constant(32, 0)))
        return [
            total,
            Matrix("m.16.fp16", total, (H, H), (H, H)),
            Select(P, X, Y),
            Slice(X, 16, 16),
            Concat((H, H)),
            Gather(X, 32),
            Undefined("not written", 32),
        ]

    first, second = build(), build()
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert len(set(first)) == 7


def test_every_field_distinguishes_nodes() -> None:
    different: list[Node] = [
        Load("X", 0, 32),
        Load("X", 4, 32),
        Load("X", 0, 16),
        Load("Z", 0, 32),
        Constant(32, 0),
        Constant(64, 0),
        Constant(32, 1),
        Operation("add.rn.fp32", (X, Y)),
        Operation("add.rn.fp32", (Y, X)),
        Operation("add.rz.fp32", (X, Y)),
        Matrix("m", X, (H,), (H,)),
        Matrix("n", X, (H,), (H,)),
        Matrix("m", Y, (H,), (H,)),
        Matrix("m", X, (H, H), (H, H)),
        Select(P, X, Y),
        Select(P, Y, X),
        Slice(X, 0, 8),
        Slice(X, 8, 8),
        Slice(X, 0, 16),
        Concat((H, X)),
        Concat((X, H)),
        Gather(X, 32),
        Gather(X, 16),
        Undefined("a", 32),
        Undefined("b", 32),
    ]
    assert len(set(different)) == len(different)
    assert X is Load("X", 0, 32)


def test_an_operation_has_its_canonical_name() -> None:
    node = Operation("add.s32", (X, Y))
    assert node.name == "add.b32"
    assert node is Operation("add.b32", (X, Y))
    assert (Operation("lt.fp32", (X, Y)).bits, Operation("convert.fp64.fp32", (X,)).bits) == (1, 64)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Load("", 0, 32), "names its buffer"),
        (lambda: Load("X", 0.5, 32), "must be an integer, not 0.5"),  # type: ignore[arg-type]
        (lambda: Load("X", True, 32), "must be an integer, not True"),
        (lambda: Load("X", 0, 12), "whole bytes, not 12 bits"),
        (lambda: Constant(8, 256), "0x100 is not a pattern of 8 bits"),
        (lambda: Constant(8, -1), "-0x1 is not a pattern"),
        (lambda: Constant(0, 0), "at least one bit"),
        (lambda: Operation("add.rn.fp32", (X, H)), "takes operands of 32 and 32 bits and was given 32 and 16"),
        (lambda: Operation("add.rn.fp32", (X,)), "was given 32"),
        (lambda: Operation("add.fp32", (X, Y)), "name one of the roundings"),
        (lambda: Operation("neg.fp32", (1,)), "must be made of nodes, not of int"),  # type: ignore[arg-type]
        (lambda: Matrix("two words", X, (H,), (H,)), "is not one word"),
        (lambda: Matrix("m[4]", X, (H,), (H,)), "'m[4]' is not one word"),
        (lambda: Matrix("m", X, (H,), (H, H)), "1 left and 2 right"),
        (lambda: Matrix("m", X, (), ()), "has no products"),
        (lambda: Matrix("m", X, (H, X), (H, H)), "left factors of m differ"),
        (lambda: Select(X, X, Y), "one bit, not 32"),
        (lambda: Select(P, X, H), "between 32 bits and 16 bits"),
        (lambda: Slice(X, 16, 17), "bits 16 to 32 are not in a value of 32 bits"),
        (lambda: Slice(X, -1, 4), "are not in a value"),
        (lambda: Concat(()), "at least one part"),
        (lambda: Gather(X, 4), "whole bytes"),
        (lambda: Undefined("", 8), "says why"),
        (lambda: Undefined("a", 0), "at least one bit"),
    ],
)
def test_invalid_nodes_are_refused_with_the_reason(build: object, words: str) -> None:
    with pytest.raises(TreeError) as caught:
        build()  # type: ignore[operator]
    assert words in str(caught.value)


def test_nodes_are_immutable() -> None:
    with pytest.raises(AttributeError, match="nodes are immutable"):
        X.offset = 8
    with pytest.raises(AttributeError, match="nodes are immutable"):
        del X.offset
    assert copy.deepcopy(chain(3)) is chain(3)
    assert copy.copy(X) is X
    with pytest.raises(TypeError, match=r"ir\.text\.write"):
        pickle.dumps(X)


def test_children_come_before_parents_and_once() -> None:
    square = Operation("mul.rn.fp32", (X, X))
    root = Operation("add.rn.fp32", (square, Operation("fma.rn.fp32", (square, Y, X))))
    order = list(descendants(root, square))
    assert order == [X, square, Y, root.operands[1], root]


def test_deep_chains_are_built_traversed_and_freed() -> None:
    gc.collect()
    before = len(nodes._INTERNED)
    deep = chain(100_000, "deep")
    assert sum(1 for _ in descendants(deep)) == 200_001
    del deep
    gc.collect()
    assert len(nodes._INTERNED) == before


def test_interning_is_thread_safe() -> None:
    found: list[list[Node]] = []

    def build() -> None:
        found.append([Load("threads", 8 * index, 32) for index in range(2000)])

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len({id(node) for node in column}) == 1 for column in zip(*found, strict=True))
