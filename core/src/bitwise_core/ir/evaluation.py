"""Evaluation of a dependence tree on bit patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core import numerics
from bitwise_core.ir.nodes import (
    Concat,
    Constant,
    Gather,
    Load,
    Matrix,
    Node,
    OpaqueOperation,
    Operation,
    Select,
    Slice,
    Undefined,
    descendants,
)

Values: TypeAlias = npt.NDArray[Any]
"""Patterns of one node for many inputs: unsigned words, or Python integers above 64 bits."""
Memory: TypeAlias = Callable[[str, int, int], Values]
MatrixUnit: TypeAlias = Callable[[str, Values, tuple[Values, ...], tuple[Values, ...]], Values]
Gatherer: TypeAlias = Callable[[Values, int], Values]
Approximation: TypeAlias = Callable[[str, tuple[Values, ...]], Values]


def evaluate(
    node: Node,
    memory: Callable[[str, int, int], int],
    matrix: Callable[[str, int, tuple[int, ...], tuple[int, ...]], int] | None = None,
    gather: Callable[[int, int], int] | None = None,
) -> int:
    """Return the pattern of one node for one content of memory.

    `memory(buffer, offset, bits)` returns the initial content, `matrix(instruction, accumulator, left, right)` the
    result of a matrix step and `gather(address, bits)` the content at a computed address, all as patterns.
    Raises `numerics.Unevaluable`, which names the node, where a node cannot be evaluated.
    """

    def load(buffer: str, offset: int, bits: int) -> Values:
        return _array(memory(buffer, offset, bits), bits)

    def step(instruction: str, accumulator: Values, left: tuple[Values, ...], right: tuple[Values, ...]) -> Values:
        assert matrix is not None
        factors = (tuple(int(value[0]) for value in side) for side in (left, right))
        return _array(matrix(instruction, int(accumulator[0]), *factors), int(accumulator.dtype.itemsize) * 8)

    def fetch(address: Values, bits: int) -> Values:
        assert gather is not None
        return _array(gather(int(address[0]), bits), bits)

    result = evaluate_many(node, load, matrix and step, gather and fetch)
    return int(result[0])


def _array(value: int, bits: int) -> Values:
    return np.array([value], dtype=kind(bits))


def kind(bits: int) -> np.dtype[Any]:
    """Return the dtype of arrays of patterns of that width."""
    return numerics.storage(bits) if bits <= 64 else np.dtype(object)


def evaluate_many(
    node: Node,
    memory: Memory,
    matrix: MatrixUnit | None = None,
    gather: Gatherer | None = None,
    approximate: Approximation | None = None,
    undefined: int | None = None,
) -> Values:
    """Return the patterns of one node for many contents of memory at once.

    The callables take and return arrays of one length, as `Values`.  `approximate(name, operands)` evaluates the
    operations without an evaluation of their own, and `undefined` is the pattern of undefined values.
    Raises `numerics.Unevaluable`, which names the node, where a node cannot be evaluated.
    """
    remaining: dict[Node, int] = {node: 1}
    order = list(descendants(node))
    for parent in order:
        for child in parent.children:
            remaining[child] = remaining.get(child, 0) + 1
    values: dict[Node, Values] = {}
    for current in order:
        values[current] = _value(current, values, memory, matrix, gather, approximate, undefined)
        for child in current.children:
            # Free values after their last use, for long chains over many inputs.
            remaining[child] -= 1
            if not remaining[child]:
                del values[child]
    return values[node]


def _value(
    node: Node,
    values: dict[Node, Values],
    memory: Memory,
    matrix: MatrixUnit | None,
    gather: Gatherer | None,
    approximate: Approximation | None,
    undefined: int | None,
) -> Values:
    parts = [values[child] for child in node.children]
    if isinstance(node, Operation) and (node.meaning.evaluable or approximate is None):
        return node.meaning.evaluate(*parts)
    if isinstance(node, Operation | OpaqueOperation) and approximate is not None:
        return approximate(node.name, tuple(parts))
    if isinstance(node, Load):
        return memory(node.buffer, node.offset, node.bits)
    if isinstance(node, Constant):
        return _array(node.value, node.bits)
    if isinstance(node, Select):
        return np.where(parts[0] != 0, parts[1], parts[2])
    if isinstance(node, Slice):
        return _extracted(parts[0], node.low_bit, node.bits)
    if isinstance(node, Concat):
        return _concatenated(node, parts)
    if isinstance(node, Matrix) and matrix is not None:
        count = len(node.left)
        return matrix(node.instruction, parts[0], tuple(parts[1 : count + 1]), tuple(parts[count + 1 :]))
    if isinstance(node, Gather) and gather is not None:
        return gather(parts[0], node.bits)
    if isinstance(node, Undefined) and undefined is not None:
        return _array(undefined, node.bits)
    if isinstance(node, Undefined):
        raise numerics.Unevaluable(f"the value is undefined: {node.reason}")
    if isinstance(node, OpaqueOperation):
        raise numerics.Unevaluable(f"{node.name} is an architecture's own operation: it has no evaluation here")
    if isinstance(node, Matrix):
        raise numerics.Unevaluable(f"no matrix unit was given to evaluate {node.instruction}")
    raise numerics.Unevaluable("no function was given that reads memory at computed addresses")


def _extracted(value: Values, low_bit: int, bits: int) -> Values:
    if value.dtype.hasobject:
        low: Values = (value >> low_bit) & ((1 << bits) - 1)
    else:
        word = value.astype(np.uint64)
        low = (word >> np.uint64(low_bit)) & np.uint64((1 << bits) - 1)
    return low.astype(kind(bits))


def _concatenated(node: Concat, parts: list[Values]) -> Values:
    target = kind(node.bits)
    total, low = np.zeros(1, dtype=target), 0
    for part, child in zip(parts, node.parts, strict=True):
        shift: Any = low if target.hasobject else target.type(low)
        total = total | (part.astype(target) << shift)
        low += child.bits
    return total
