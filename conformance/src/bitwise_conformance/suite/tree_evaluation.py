"""Evaluation of trees on the bytes of buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.ir.evaluation import evaluate
from bitwise_core.ir.nodes import Node
from bitwise_core.numerics import Unevaluable, storage
from bitwise_core.numerics.mma import BlockScaledSpec, MatrixUnit, step_results


def place_of(element: str, root: Node) -> tuple[str, int]:
    """Return the buffer of an element such as `y[3]`, and its byte offset."""
    buffer, _, index = element.removesuffix("]").rpartition("[")
    return buffer, int(index) * (root.bits // 8)


def value_of(root: Node, before: Mapping[str, Array], units: Mapping[str, MatrixUnit]) -> int:
    """Return the bit pattern of a tree over the bytes of buffers; `units` are the matrix rows by name.

    Raises Unevaluable for an operation specific to an architecture and for a row that is not in `units`.
    """

    def memory(buffer: str, offset: int, bits: int) -> int:
        return int.from_bytes(before[buffer][offset : offset + bits // 8].tobytes(), "little")

    def step(name: str, accumulator: int, left: tuple[int, ...], right: tuple[int, ...]) -> int:
        unit = units.get(name)
        if unit is None:
            raise Unevaluable(f"there is no row {name}")
        widths = (
            (8, 8, 32)
            if isinstance(unit, BlockScaledSpec)
            else (unit.form("left").bits, unit.form("right").bits, unit.form("result").bits)
        )
        forms = [storage(each) for each in widths]
        a, b, c = (np.array(each, dtype=form) for each, form in zip((left, right, accumulator), forms, strict=True))
        return int(step_results(unit, a[None], b[:, None], c.reshape(1, 1))[0, 0])

    return evaluate(root, memory, step)
