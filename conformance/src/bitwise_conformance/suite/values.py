"""Evaluation of trees on the bytes of buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.ir.evaluation import evaluate
from bitwise_core.ir.nodes import Node
from bitwise_core.numerics import Unevaluable, storage
from bitwise_core.numerics.mma import MmaSpec, multiply_accumulate


def place_of(element: str, root: Node) -> tuple[str, int]:
    """Return the buffer of an element such as `y[3]`, and its byte offset."""
    buffer, _, index = element.removesuffix("]").rpartition("[")
    return buffer, int(index) * (root.bits // 8)


def value_of(root: Node, before: Mapping[str, Array], units: Mapping[str, MmaSpec]) -> int:
    """Return the bit pattern of a tree over the bytes of buffers; `units` are the matrix rows by name.

    Raises Unevaluable for an operation specific to an architecture and for a row that is not in `units`.
    """

    def memory(buffer: str, offset: int, bits: int) -> int:
        return int.from_bytes(before[buffer][offset : offset + bits // 8].tobytes(), "little")

    def step(name: str, accumulator: int, left: tuple[int, ...], right: tuple[int, ...]) -> int:
        unit = units.get(name)
        if unit is None:
            raise Unevaluable(f"there is no row {name}")
        a = np.array([left], dtype=storage(unit.form("left").bits))
        b = np.array(right, dtype=storage(unit.form("right").bits))
        c = np.array([[accumulator]], dtype=storage(unit.form("result").bits))
        return int(multiply_accumulate(unit, a, b[:, None], c)[0, 0])

    return evaluate(root, memory, step)
