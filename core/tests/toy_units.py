"""Rows of a fictitious matrix unit, and values to evaluate descriptors on."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from bitwise_core.descriptors import Instruction
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.ir.evaluation import evaluate_many
from bitwise_core.ir.nodes import Node
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation, storage
from bitwise_core.numerics.mma import FusedSum, MmaSpec, SequentialMultiplyAdd, multiply_accumulate

SOURCE = "https://example.org/rows"


def unit(left: str, right: str, result: str, k: int, rule: FusedSum) -> MmaSpec:
    return MmaSpec("toy_1", "mma", left, right, result, result, k, rule, "published only", SOURCE)


UNITS = {
    row.name: row
    for row in (
        unit("fp16", "fp16", "fp32", 4, FusedSum(4, 25, 23, "rz")),
        unit("fp16", "fp16", "fp16", 4, FusedSum(4, 25, 10, "rn")),
        unit("bf16", "bf16", "fp32", 4, FusedSum(2, 24, 23, "rz", zero_products=True)),
        unit("e4m3", "e5m2", "fp32", 8, FusedSum(4, 13, 13, "rz", "alternate pairs", accumulator_last=True)),
    )
}
MMA = Instruction(architecture="toy_1", family="mma", k=4)
DOUBLE = MmaSpec(
    "toy_1", "mma", "fp64", "fp64", "fp64", "fp64", 4, SequentialMultiplyAdd(), "published only", SOURCE
)  # fmt: skip
UNITS[DOUBLE.name] = DOUBLE
HARDWARE = Hardware(UNITS)


def array(draw: Any, dtype: str, *shape: int) -> Bits:
    """Patterns near one, special patterns, and arbitrary patterns, by one drawn seed: to draw each costs more."""
    form = FLOAT_FORMATS[dtype]
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = ((form.bias + each) << form.mantissa_bits for each in (-3, 3))
    near = random.integers(low, high, shape, dtype=np.uint64, endpoint=True) << np.uint64(form.padding)
    near |= random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(form.bits - 1)
    special = [0, 1 << (form.bits - 1), 1 << form.padding, form.largest_magnitude << form.padding]
    special += [form.canonical_nan] if form.canonical_nan is not None else []
    anything = random.integers(0, (1 << form.bits) - 1, shape, dtype=np.uint64, endpoint=True)
    kind = random.integers(0, 5, shape)
    found = np.where(kind < 3, near, np.where(kind == 3, random.choice(np.array(special, np.uint64), shape), anything))
    return found.astype(storage(form.bits))


def tree_value(node: Node, buffers: dict[str, Bits]) -> int:
    """The value of a tree over row-major buffers."""

    def load(buffer: str, offset: int, bits: int) -> Any:
        flat = buffers[buffer].reshape(-1)
        assert bits == flat.dtype.itemsize * 8
        return flat[offset * 8 // bits : offset * 8 // bits + 1]

    def step(name: str, total: Any, left: Any, right: Any) -> Any:
        return multiply_accumulate(UNITS[name], np.stack(left, 1)[None], np.stack(right)[None], total[None, :, None])[
            0, :, 0
        ]

    return int(evaluate_many(node, load, step)[0])


def normal(generator: np.random.Generator, *shape: int) -> Bits:
    """fp16 patterns of very different magnitudes, so that the order of additions affects the bits."""
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-8, 8, shape)
    return values.astype(np.float16).view(np.uint16)


def chain(name: str, *arrays: Bits) -> Bits:
    return operation(name).evaluate(*arrays)
