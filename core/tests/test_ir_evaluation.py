"""The evaluation of trees."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from bitwise_core.ir.evaluation import evaluate, evaluate_many
from bitwise_core.ir.nodes import Concat, Constant, Gather, Load, Matrix, Node, Operation, Select, Slice, Undefined
from bitwise_core.numerics import Unevaluable

DATA = struct.pack("<4f", 1.5, -2.0, 0.25, 3.0) + bytes(range(16))


def memory(buffer: str, offset: int, bits: int) -> int:
    assert buffer == "X"
    return int.from_bytes(DATA[offset : offset + bits // 8], "little")


def fp32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


X = [Load("X", 4 * index, 32) for index in range(4)]


def test_arithmetic() -> None:
    total = Operation("fma.rn.fp32", (X[0], X[1], Operation("max.fp32", (X[2], X[3]))))
    assert evaluate(total, memory) == fp32(0.0)
    assert evaluate(Operation("sub.rn.fp32", (X[0], X[1])), memory) == fp32(3.5)


def test_selects_slices_and_concatenations() -> None:
    less = Operation("lt.fp32", (X[1], X[0]))
    assert evaluate(Select(less, X[2], X[3]), memory) == fp32(0.25)
    assert evaluate(Select(Operation("not.b1", (less,)), X[2], X[3]), memory) == fp32(3.0)
    whole = Load("X", 16, 128)
    assert evaluate(whole, memory) == int.from_bytes(bytes(range(16)), "little")
    assert evaluate(Slice(whole, 64, 32), memory) == 0x0B0A0908
    assert evaluate(Slice(Load("X", 16, 32), 4, 9), memory) == (0x03020100 >> 4) & 0x1FF
    both = Concat((Load("X", 17, 8), Load("X", 20, 16), Constant(4, 0xF), Slice(X[0], 0, 1)))
    assert both.bits == 29
    assert evaluate(both, memory) == 0x01 | 0x0504 << 8 | 0xF << 24
    wide = Concat((Load("X", 16, 64), Load("X", 24, 64), Constant(8, 0x7F)))
    assert evaluate(Slice(wide, 120, 16), memory) == 0x7F0F


def test_matrix_steps_and_gathers_call_the_given_functions() -> None:
    seen = []

    def unit(instruction: str, accumulator: int, left: tuple[int, ...], right: tuple[int, ...]) -> int:
        seen.append((instruction, accumulator, left, right))
        return 77

    halves = (Slice(X[0], 0, 16), Slice(X[0], 16, 16))
    step = Matrix("m.fp16", X[1], halves, halves[::-1])
    assert evaluate(step, memory, unit) == 77
    assert seen == [("m.fp16", fp32(-2.0), (0, 0x3FC0), (0x3FC0, 0))]
    fetch = Gather(Operation("add.b64", (Load("X", 16, 64), Constant(64, 1))), 16)
    assert evaluate(fetch, memory, gather=lambda address, bits: (address ^ bits) & 0xFFFF) == 0x0101 ^ 16


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (Undefined("not written", 32), "not written"),
        (Operation("ex2.approx.ftz.fp32", (X[0],)), r"ex2\.approx\.ftz\.fp32 is an approximation"),
        (Matrix("m.fp16", X[1], (X[0],), (X[0],)), r"evaluate m\.fp16"),
        (Gather(X[0], 32), "computed addresses"),
    ],
)
def test_nodes_without_a_value_are_named(node: Node, words: str) -> None:
    with pytest.raises(Unevaluable, match=words):
        evaluate(Concat((node, node)), memory)


def test_long_chains_over_many_inputs() -> None:
    generator = np.random.default_rng(1)
    columns = generator.standard_normal((4096, 5)).astype(np.float32)
    total: Node = Constant(32, 0)
    expected = np.zeros(5, dtype=np.float32)
    for index, column in enumerate(columns):
        total = Operation("add.rn.fp32", (total, Load("X", index, 32)))
        expected = expected + column
    got = evaluate_many(total, lambda buffer, offset, bits: columns[offset].view(np.uint32))
    assert got.tolist() == expected.view(np.uint32).tolist()
