"""autoawq: four-bit weights with a scale and a zero for each group."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors

_EDGE = 1 << 31


def _module() -> Any:
    bare_package("awq.modules.triton")
    return import_module("awq.modules.triton.gemm")


def _words(t: Tensors, *shape: int) -> Any:
    return t.integers(-_EDGE, _EDGE, *shape, dtype="int32")


def weights(t: Tensors) -> None:
    """Call the expansion of the weights, of whole tiles and of others."""
    module = _module()
    for rows, words, group in ((128, 16, 64), (96, 7, 32)):
        scales = t.normal(rows // group, words * 8, dtype="float16", scale=0.02)
        t.call(module.awq_dequantize_triton, _words(t, rows, words), scales, _words(t, rows // group, words))


def products(t: Tensors) -> None:
    """Call products with the weights, whole and in parts that are added by atomic operations."""
    module = _module()
    for parts, rows, depth, words in ((1, 33, 128, 12), (1, 5, 256, 8), (4, 20, 256, 8)):
        scales = t.normal(depth // 64, words * 8, dtype="float16", scale=0.02)
        t.call(module.awq_gemm_triton, t.normal(rows, depth, dtype="float16"), _words(t, depth, words), scales,
               _words(t, depth // 64, words), parts)  # fmt: skip


CASES = {each.__name__: each for each in (weights, products)}
