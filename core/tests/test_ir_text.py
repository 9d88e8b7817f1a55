"""Trees as text: the exact form parses to the same nodes, the outline is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from bitwise_core.ir.text import read, render, write
from bitwise_core.numerics import operation

NAMES = ["add.rn.fp32", "fma.rn.ftz.fp32", "neg.fp32", "max.nan.fp16", "convert.rn.fp16.fp32", "lt.fp32", "and.b8"]
NAMES += ["ex2.approx.ftz.fp32", "convert.fp64.fp32", "add.b64", "xor.b1", "mulwide.u32"]


def narrowed(node: Node, bits: int) -> Node:
    """Return a node of that width derived from another."""
    while node.bits < bits:
        node = Concat((node, node))
    return node if node.bits == bits else Slice(node, (node.bits - bits) // 2, bits)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Node, ...]:
    made: list[Node] = [
        Load(draw(st.one_of(st.sampled_from(["X", "%out.1", "a+b", "", "☃ x", 'q"[']).filter(bool))), offset, bits)
        for offset, bits in draw(
            st.lists(st.tuples(st.integers(-99, 999), st.sampled_from([8, 16, 32, 64, 128])), min_size=1, max_size=4)
        )
    ]
    for _ in range(draw(st.integers(0, 14))):
        one, two, three = (draw(st.sampled_from(made)) for _ in range(3))
        choice = draw(st.integers(0, 8))
        if choice == 0:
            bits = draw(st.integers(1, 70))
            made.append(Constant(bits, draw(st.integers(0, (1 << bits) - 1))))
        elif choice == 1:
            made.append(Select(narrowed(one, 1), two, narrowed(three, two.bits)))
        elif choice == 2:
            low = draw(st.integers(0, one.bits - 1))
            made.append(Slice(one, low, draw(st.integers(1, one.bits - low))))
        elif choice == 3:
            made.append(Concat((one, two, three)))
        elif choice == 4:
            made.append(Gather(one, draw(st.sampled_from([8, 32]))))
        elif choice == 5:
            made.append(Undefined(draw(st.text(min_size=1)), draw(st.integers(1, 64))))
        elif choice == 6:
            left = tuple(narrowed(node, 16) for node in (one, two))
            made.append(Matrix(draw(st.sampled_from(["m.fp16", "wide-64/16:a+b_c"])), three, left, left[::-1]))
        else:
            name = draw(st.sampled_from(NAMES))
            widths = [form.bits for form in operation(name).operands]
            made.append(Operation(name, tuple(narrowed(draw(st.sampled_from(made)), bits) for bits in widths)))
    return tuple(draw(st.lists(st.sampled_from(made), max_size=3)))


@given(roots=trees())
def test_text_parses_to_the_same_nodes(roots: tuple[Node, ...]) -> None:
    text = write(*roots)
    back = read(text)
    assert len(back) == len(roots)
    assert all(one is other for one, other in zip(back, roots, strict=True))
    assert write(*back) == text
    assert len(text.splitlines()) == 1 + len(set(descendants(*roots)))


def test_the_form() -> None:
    x, y = Load("X", 24, 32), Load("my buffer", -4, 32)
    total = Operation("add.rn.fp32", (x, y))
    half = Load("A", 0, 16)
    step = Matrix("m16.fp16", total, (half, Slice(x, 16, 16)), (half, half))
    assert write(step, total) == (
        "%0 = load X+24 b32\n"
        '%1 = load "my buffer"-4 b32\n'
        "%2 = add.rn.fp32 %0 %1\n"
        "%3 = load A+0 b16\n"
        "%4 = slice 16 b16 %0\n"
        "%5 = matrix m16.fp16 %2 [ %3 %4 ] [ %3 %3 ]\n"
        "return %5 %2\n"
    )
    assert read('%a = constant 0x10 b8\n\n%b = undefined "never written" b8\nreturn %b %a') == (
        Undefined("never written", 8),
        Constant(8, 16),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no line that returns"),
        ("return %1", "line 1 of the tree: '%1' is not defined above"),
        ("%1 = load X b32", "line 1 of the tree: 'X' is not an address such as X+24"),
        ("%1 = load X+0 32", "'32' is not a width such as b32"),
        ("%1 = load X+0", "it ends where a width is expected"),
        ("%1 = load X+0 b32 b32\nreturn %1", "is an extra operand"),
        ("%1 = load X+0 b12\nreturn %1", "line 1 of the tree: a load from X reads whole bytes"),
        ("\n%1 = load X+0 b32\n%1 = load X+4 b32", "line 3 of the tree: %1 is defined a second time"),
        ("%1 = load X+0 b32\n%2 = frob %1", "line 2 of the tree: no operation 'frob'"),
        ("%1 = load X+0 b32\n%2 = matrix m %1 %1", "brackets"),
        ("%1 = constant zz b8", "'zz' is not a value"),
        ("%1 = undefined why b8", "'why' is not a quoted reason"),
        ("1 = load X+0 b32", "a line must have the form %name = node"),
        ("return\n%1 = load X+0 b8", "line 2 of the tree: the return must be the last line"),
    ],
)
def test_errors_name_their_line(text: str, words: str) -> None:
    with pytest.raises(TreeError) as caught:
        read(text)
    assert words in str(caught.value)


def chain(length: int) -> Node:
    total: Node = Constant(32, 0)
    for index in range(length):
        total = Operation("add.rn.fp32", (total, Load("X", 4 * index, 32)))
    return total


def test_a_deep_chain_round_trips() -> None:
    deep = chain(20_000)
    assert read(write(deep)) == (deep,)


def test_the_outline_shares_and_elides() -> None:
    x = Load("X", 0, 32)
    square = Operation("mul.rn.fp32", (x, x))
    assert render(Operation("add.rn.fp32", (square, Operation("neg.fp32", (square,))))) == (
        "add.rn.fp32\n  %0 = mul.rn.fp32\n    X[0]\n    X[0]\n  neg.fp32\n    %0 (above)\n"
    )
    assert render(chain(50), max_depth=2) == ("add.rn.fp32\n  add.rn.fp32\n    add.rn.fp32 ...\n    X[48]\n  X[49]\n")
    short = render(chain(20_000), max_depth=10**9, max_lines=5).splitlines()
    assert len(short) == 6
    assert short[-1].strip() == "... 6 more operands, of 40001 nodes in all"
