"""Kernels whose order of operations is fixed by the source, compiled for two architectures and compared.

A pair gives its kernel, the expected verdict, and for a difference the operations of the first divergence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl

from bitwise_bench.corpus.cases import Argument
from bitwise_bench.corpus.configurations import given, index, numbers, result
from bitwise_bench.corpus.cross_architecture_pairs import FUSING, Expected, Pair, pair
from bitwise_bench.corpus.kernels import cross_architecture_rows, cross_architecture_values

__all__ = ["Pair", "pairs"]


@triton.jit
def elementwise(x, y, z, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    a = tl.load(x + place, mask=inside, other=0.0)
    b = tl.load(y + place, mask=inside, other=0.0)
    if KIND == "copy":
        out = a
    elif KIND == "add":
        out = a + b
    elif KIND == "multiply":
        out = a * b
    elif KIND == "multiply_add":
        out = a * b + a
    elif KIND == "fused":
        out = tl.fma(a, b, a)
    elif KIND == "horner":
        out = tl.fma(tl.fma(tl.fma(a, b, 0.25), a, -1.5), a, b)
    elif KIND == "leaky":
        out = tl.where(a > 0, a, 0.01 * b)
    elif KIND == "select_largest":
        out = tl.where(a > b, a, b)
    elif KIND == "magnitude":
        out = tl.abs(a) - b
    elif KIND == "divide":
        out = tl.div_rn(a, b)
    elif KIND == "divide_fast":
        out = a / b
    elif KIND == "root":
        out = tl.sqrt_rn(tl.abs(a))
    elif KIND == "power":
        out = tl.exp2(a)
    elif KIND == "logarithm":
        out = tl.log2(tl.abs(a) + 1.0)
    elif KIND == "inverse_root":
        out = tl.rsqrt(tl.abs(a) + 1.0)
    elif KIND == "widened":
        out = a.to(tl.float32) * b.to(tl.float32)
    elif KIND == "narrowed":
        out = (a * b).to(tl.float16)
    elif KIND == "bits":
        out = (a * b).to(tl.int32, bitcast=True)
    elif KIND == "loaded_bits":
        out = a.to(tl.int32, bitcast=True) ^ b.to(tl.int32, bitcast=True)
    elif KIND == "integers":
        out = ((a << 5) + b) ^ (a >> 7)
    tl.store(z + place, out.to(z.dtype.element_ty), mask=inside)


@triton.jit
def column_walk(x, z, rows, columns, KIND: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(rows):
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        if KIND == "sum":
            total += value
        elif KIND == "squares":
            total = tl.fma(value, value, total)
        elif KIND == "largest":
            total = tl.where(value > total, value, total)
        elif KIND == "decayed":
            total = tl.fma(total, 0.75, value)
    tl.store(z + column, total, mask=inside)


@triton.jit
def _pairs(value, SIZE: tl.constexpr, NEIGHBOURS: tl.constexpr):
    if NEIGHBOURS:
        left, right = tl.split(tl.reshape(value, (SIZE // 2, 2)))
    else:
        left, right = tl.split(tl.permute(tl.reshape(value, (2, SIZE // 2)), (1, 0)))
    return left + right


@triton.jit
def row_tree(x, z, columns, NEIGHBOURS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    value = tl.load(x + row * columns + tl.arange(0, BLOCK)).to(tl.float32)
    value = _pairs(value, BLOCK, NEIGHBOURS)
    value = _pairs(value, BLOCK // 2, NEIGHBOURS)
    value = _pairs(value, BLOCK // 4, NEIGHBOURS)
    value = _pairs(value, BLOCK // 8, NEIGHBOURS)
    value = _pairs(value, BLOCK // 16, NEIGHBOURS)
    value = _pairs(value, BLOCK // 32, NEIGHBOURS)
    tl.store(z + row * (BLOCK >> 6) + tl.arange(0, BLOCK >> 6), value)


@triton.jit
def product(
    a, b, c, k, KIND: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr
):  # fmt: skip
    row, column = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), dtype=OUT)
    if KIND == "multiply_adds":
        for step in range(k):
            left = tl.load(a + row[:, None] * k + step).to(tl.float32)
            right = tl.load(b + step * N + column[None, :]).to(tl.float32)
            total = tl.fma(tl.broadcast_to(left, (M, N)), tl.broadcast_to(right, (M, N)), total)
    elif KIND == "rounded_products":
        for step in range(k):
            left = tl.load(a + row[:, None] * k + step).to(tl.float32)
            right = tl.load(b + step * N + column[None, :]).to(tl.float32)
            total += left * right
    else:
        for start in range(0, k, BK):
            inner = start + tl.arange(0, BK)
            left = tl.load(a + row[:, None] * k + inner[None, :])
            right = tl.load(b + inner[:, None] * N + column[None, :])
            total = tl.dot(left, right, total, input_precision=KIND, out_dtype=OUT)
    tl.store(c + row[:, None] * N + column[None, :], total)


@triton.jit
def gathered(x, places, z, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    where = tl.load(places + place, mask=inside, other=0)
    tl.store(z + place, tl.load(x + where, mask=inside, other=0.0) * 0.5, mask=inside)


@triton.jit
def transposed(x, z, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    there = (column[:, None] < columns) & (row[None, :] < rows)
    tl.store(z + column[:, None] * rows + row[None, :], tl.trans(tile), mask=there)


def _elementwise(
    kind: str, expected: Expected, nodes: tuple[str, str] | None = None, *,
    dtype: str = "fp32", out: str = "fp32", name: str = "", **settings: Any,
) -> Pair:  # fmt: skip
    count = 1000
    arguments = [given("x", dtype, count), given("y", dtype, count), result("z", out, count), *numbers(count=count)]
    return pair(name or f"{kind}-{dtype}-{out}", elementwise, arguments, (4,), expected, nodes, KIND=kind, BLOCK=256,
                 **settings)  # fmt: skip


def _elementwise_pairs() -> Iterator[Pair]:
    for kind in ("copy", "add", "multiply", "multiply_add", "fused", "horner", "select_largest", "magnitude"):
        yield _elementwise(kind, "equal")
    # A select between a loaded number and a product is a select of their bits, those of an arithmetic NaN included.
    yield _elementwise("leaky", "unproved", same_bytes=True)
    for kind in ("add", "multiply"):
        yield _elementwise(kind, "equal", dtype="fp16", out="fp16")
    yield _elementwise("multiply_add", "equal", left=FUSING, right=FUSING, name="multiply_add-fused-both")
    yield _elementwise("multiply_add", "unproved", ("fma.rn.fp32", "add.rn.fp32"), left=FUSING,
                       name="multiply_add-fused-left")  # fmt: skip
    yield _elementwise("multiply_add", "unproved", ("add.rn.fp32", "fma.rn.fp32"), right=FUSING,
                       name="multiply_add-fused-right")  # fmt: skip
    flushing = {"allow_flush_denorm": True}
    for kind, operation in (("add", "add"), ("multiply", "mul"), ("fused", "fma")):
        yield _elementwise(kind, "unproved", (f"{operation}.rn.fp32", f"{operation}.rn.ftz.fp32@gfx942"),
                           right=flushing, name=f"{kind}-flushed")  # fmt: skip
    yield _elementwise("copy", "equal", right=flushing, name="copy-flushed")
    yield _elementwise("widened", "equal", dtype="fp16")
    # The AMD backend rounds a product to fp16 by an fma with +0, so a product of -0 becomes +0.
    yield _elementwise("narrowed", "unproved", ("mul.rn.fp32", "fma.rn.fp32"), out="fp16")
    yield _elementwise("divide", "equal")
    yield _elementwise("root", "unproved", ("sqrt.rn.fp32", "select"))
    yield _elementwise("divide_fast", "unproved", ("div.full.fp32@sm_90", "div.rn.fp32"))
    yield _elementwise("power", "unproved", name="power")
    yield _elementwise("logarithm", "unproved", name="logarithm")
    yield _elementwise("inverse_root", "unproved", name="inverse_root")
    # Execution on bit patterns does not distinguish NaN payloads, so no input is a counterexample.
    yield _elementwise("bits", "unproved", out="i32", name="bits-of-a-product", same_bytes=True)
    yield _elementwise("loaded_bits", "equal", out="i32")
    yield _elementwise("integers", "equal", dtype="i32", out="i32")
    yield _elementwise("multiply", "equal", dtype="fp64", out="fp64")


def _walk_pairs() -> Iterator[Pair]:
    for kind in ("sum", "squares", "largest", "decayed"):
        for dtype in ("fp32", "fp16"):
            arguments = [given("x", dtype, 24 * 200), result("z", "fp32", 200), *numbers(rows=24, columns=200)]
            yield pair(f"column-{kind}-{dtype}", column_walk, arguments, (2,), "equal", KIND=kind, BLOCK=128)
    for neighbours in (False, True):
        arguments = [given("x", "fp32", 8 * 256), result("z", "fp32", 8 * 4), *numbers(columns=256)]
        yield pair(f"row-tree-{'neighbours' if neighbours else 'halves'}", row_tree, arguments, (8,), "equal",
                    NEIGHBOURS=neighbours, BLOCK=256)  # fmt: skip


def _product_pairs() -> Iterator[Pair]:
    def arguments(dtype: str, out: str, m: int, n: int, k: int) -> list[Argument]:
        return [given("a", dtype, m * k), given("b", dtype, k * n), result("c", out, m * n), *numbers(k=k)]

    for kind in ("multiply_adds", "rounded_products"):
        for dtype in ("fp32", "fp16"):
            yield pair(f"product-{kind}-{dtype}", product, arguments(dtype, "fp32", 16, 32, 40), (1,), "equal",
                        KIND=kind, M=16, N=32, BK=16, OUT=tl.float32)  # fmt: skip
    units = {
        ("fp16", "tf32", 16): ("fused k16 fp32 fp16 fp16 fp32 sm_90", "mfma k8 fp32 fp16 fp16 fp32 gfx942"),
        ("fp16", "tf32", 32): ("fused k16 fp32 fp16 fp16 fp32 sm_90", "mfma k8 fp32 fp16 fp16 fp32 gfx942"),
        ("bf16", "tf32", 16): ("fused k16 fp32 bf16 bf16 fp32 sm_90", "mfma k8 fp32 bf16 bf16 fp32 gfx942"),
        ("bf16", "tf32", 32): ("fused k16 fp32 bf16 bf16 fp32 sm_90", "mfma k8 fp32 bf16 bf16 fp32 gfx942"),
        ("fp32", "tf32", 16): ("fused k8 fp32 tf32 tf32 fp32 sm_90", "mfma k4 fp32 tf32 tf32 fp32 gfx942"),
        ("fp32", "tf32", 32): ("fused k8 fp32 tf32 tf32 fp32 sm_90", "mfma k4 fp32 tf32 tf32 fp32 gfx942"),
    }
    for (dtype, precision, side), nodes in units.items():
        steps = (f"matrix {nodes[0]}", f"matrix {nodes[1]}")
        yield pair(f"product-{dtype}-{side}", product, arguments(dtype, "fp32", 64, 64, 64), (1,), "unproved",
                    steps, right={"matrix_instr_nonkdim": side}, KIND=precision, M=64, N=64, BK=32,
                    OUT=tl.float32)  # fmt: skip
    yield pair("product-fp32-ieee", product, arguments("fp32", "fp32", 32, 32, 64), (1,), "unproved",
                ("fma.rn.fp32", "matrix mfma k1 fp32 fp32 fp32 fp32 gfx942"), right={"matrix_instr_nonkdim": 16},
                same_bytes=True, KIND="ieee", M=32, N=32, BK=32, OUT=tl.float32)  # fmt: skip


def _moving_pairs() -> Iterator[Pair]:
    buffers = [given("x", "fp32", 500), index("places", "i32", 700, 500), result("z", "fp32", 700)]
    arguments: list[Argument] = [*buffers, *numbers(count=700)]
    # Buffer loads of the AMD backend return 0 beyond 2 GiB, which no address of this launch reaches.
    yield pair("gathered", gathered, arguments, (3,), "unproved", ("gather 32", "select"),
                same_bytes=True, BLOCK=256)  # fmt: skip
    for dtype in ("fp32", "fp16"):
        arguments = [given("x", dtype, 70 * 90), result("z", dtype, 70 * 90), *numbers(rows=70, columns=90)]
        yield pair(f"transposed-{dtype}", transposed, arguments, (3, 3), "equal", BM=32, BN=32)


def pairs() -> tuple[Pair, ...]:
    """Return every pair, in a stable order."""
    return (
        *_elementwise_pairs(),
        *_walk_pairs(),
        *_product_pairs(),
        *_moving_pairs(),
        *cross_architecture_values.pairs(),
        *cross_architecture_rows.pairs(),
    )
