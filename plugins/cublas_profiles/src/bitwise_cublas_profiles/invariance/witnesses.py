"""Operands on which two descriptors give one output element other bytes."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.evaluation import evaluate_finished
from bitwise_core.descriptors.problem import BiasedGEMM
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate

COLUMNS = 16
DRAWS = ("zero", "flat", "wide zero", "wide", "tiny")
"""The kinds of draws: normal numbers, or such numbers times powers of two. In those of `zero` the terms of each sum
cancel in pairs, so that the output consists of rounding errors, which depend on the order most. In `tiny` the sums are
about the least number of the output's type, so that signs of zeros show."""

_TINY = {"fp16": 2.0**-16, "bf16": 2.0**-71, "fp32": 2.0**-76}
"""The magnitude of operands of a tiny draw, by the output's type."""

Described = GEMMDesc | BiasedGEMM


@dataclass(frozen=True, slots=True)
class Witness:
    """An element whose bytes differ: `draw` and `column` of `drawn_operands`, and the patterns by both descriptors."""

    draw: int
    column: int
    left: str
    right: str

    def record(self) -> dict[str, Any]:
        """The witness as a JSON object."""
        return {**asdict(self), "columns": COLUMNS}


def product_of(found: Described) -> GEMMDesc:
    """The descriptor of the product itself."""
    return found.product if isinstance(found, BiasedGEMM) else found


def drawn_operands(desc: GEMMDesc, draw: int) -> tuple[Bits, Bits, Bits]:
    """One row of A (1, k), B (k, COLUMNS) and a bias (COLUMNS,) as patterns; they depend on k, the types and `draw`."""
    seed = zlib.crc32(f"{desc.k} {desc.left_dtype} {desc.right_dtype} {desc.output_dtype} {draw}".encode())
    source = np.random.default_rng(seed)

    def numbers(shape: tuple[int, ...], dtype: str) -> Bits:
        values = source.standard_normal(shape, dtype=np.float32)
        if "wide" in DRAWS[draw]:
            values *= np.exp2(source.integers(-6, 7, shape)).astype(np.float32)
        if DRAWS[draw] == "tiny":
            values *= np.float32(_TINY[desc.output_dtype])
        bits = values.view(np.uint32)
        return bits if dtype == "fp32" else operation(f"convert.rn.{dtype}.fp32").evaluate(bits)

    a, b = numbers((1, desc.k), desc.left_dtype), numbers((desc.k, COLUMNS), desc.right_dtype)
    bias = numbers((COLUMNS,), desc.output_dtype)
    if "zero" in DRAWS[draw]:
        places, half = source.permutation(desc.k), desc.k // 2
        one, other = places[:half], places[half : 2 * half]
        a[:, other] = a[:, one]
        b[other] = b[one] ^ b.dtype.type(1 << (FLOAT_FORMATS[desc.right_dtype].bits - 1))
        b[places[2 * half :]] = 0
    if DRAWS[draw] in ("zero", "wide zero", "tiny"):
        bias = np.zeros_like(bias)
    return a, b, bias


def row_bits(found: Described, a: Bits, b: Bits, bias: Bits) -> Bits:
    """The patterns of rows of the output, (rows, columns). Raises DescriptorError."""
    if isinstance(found, GEMMDesc):
        return evaluate(found, a, b)
    added = np.broadcast_to(bias, (a.shape[0], b.shape[1]))
    return evaluate_finished(found.finished(), a, b, [added], hardware=registry.default().hardware)


def find_witness(left: Described, right: Described) -> Witness | None:
    """The first drawn element whose bytes differ, None if none does or a matrix unit is unknown."""
    desc = product_of(left)
    digits = FLOAT_FORMATS[desc.output_dtype].bits // 4
    for draw in range(len(DRAWS)):
        a, b, bias = drawn_operands(desc, draw)
        try:
            one, other = row_bits(left, a, b, bias)[0], row_bits(right, a, b, bias)[0]
        except DescriptorError:
            return None
        places = np.flatnonzero(one != other)
        if len(places):
            place = int(places[0])
            return Witness(draw, place, f"{int(one[place]):0{digits}x}", f"{int(other[place]):0{digits}x}")
    return None
