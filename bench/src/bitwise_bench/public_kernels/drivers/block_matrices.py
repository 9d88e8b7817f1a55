"""tritonix: products, also in parts of the depth, gated units, and products with matrices of few blocks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors

_TILES = {"block_m": 32, "block_n": 32, "block_k": 32, "group_m": 2}


def _module(name: str) -> Any:
    return import_module(f"tritonix.{name}")


def _grid(rows: int, columns: int, *further: int) -> tuple[int, ...]:
    return (-(-rows // 32), -(-columns // 32), *further)


def products(t: Tensors) -> None:
    """Call products of matrices of whole tiles and of others, with narrow and with single precision."""
    kernel = _module("matrix.mma").matmul_kernel
    for m, n, k, dtype in ((64, 96, 128, "float16"), (70, 50, 72, "float32")):
        a, b, c = t.normal(m, k, dtype=dtype), t.normal(k, n, dtype=dtype), t.empty(m, n, dtype=dtype)
        t.call(kernel[_grid(m, n)], a, b, c, m, n, k, k, 1, n, 1, n, 1, **_TILES)


def parts(t: Tensors) -> None:
    """Call products in two parts of the depth, which are added by atomic operations."""
    kernel = _module("matrix.mma").gemm_splitk_kernel
    a, b, c = t.normal(64, 256, dtype="float16"), t.normal(256, 64, dtype="float16"), t.empty(64, 64)
    t.call(kernel[_grid(64, 64, 2)], a, b, c, 64, 64, 256, 256, 1, 64, 1, 64, 1, split_k=2, **_TILES)


def gated_units(t: Tensors) -> None:
    """Call gated units with interleaved columns."""
    module = _module("fused.glu")
    for dtype in ("float16", "float32"):
        x, both = t.normal(64, 96, dtype=dtype), t.normal(96, 128, dtype=dtype, scale=0.1)
        t.call(module.glu_kernel[_grid(64, 128)], x, both, t.empty(64, 64, dtype=dtype), 64, 128, 96, 96, 1, 128, 1,
               64, 1, **_TILES)  # fmt: skip


def few_blocks(t: Tensors) -> None:
    """Call products with matrices of few blocks."""
    module = _module("matrix.sparse")
    rows, depth, columns, kept = 64, 128, 96, 4
    a = t.normal(rows, depth, dtype="float16")
    values = t.normal(columns // 32, kept, 16, 32, dtype="float16")
    places = t.of([[0, 2, 5, 7], [1, 3, 4, 6], [0, 1, 6, 7]], "int32")
    t.call(module.dense_block_sparse_kernel[(2, 3)], a, values, places, t.empty(rows, columns), rows, columns, depth,
           depth, 1, columns, 1, P=kept, B_K=16, B_N=32, BLOCK_M=32, BLOCK_P=2)  # fmt: skip
    t.call(module.dense_blocksparse_mm[(2, 3)], a, values, places, t.empty(rows, columns), rows, columns, depth,
           columns, 1, p=kept, size_k=16, size_n=32, block_m=32, block_p=2, group_m=2)  # fmt: skip


CASES = {each.__name__: each for each in (products, parts, gated_units, few_blocks)}
