"""aqlm: products with weights that are sums of entries of codebooks."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def products(t: Tensors) -> None:
    """Call products for one and two codebooks, in groups of inputs and of outputs, with and without bias."""
    bare_package("aqlm.inference_kernels")
    module = import_module("aqlm.inference_kernels.triton_kernel")
    for books, outer, inner, dtype, biased, wide in (
        (2, 1, 8, "float16", False, True),
        (1, 1, 8, "bfloat16", True, True),
        (1, 4, 8, "float16", False, False),
        (2, 1, 8, "float32", True, True),
    ):
        outputs, inputs = 48, 96
        codes = t.integers(-128, 128, outputs // outer, inputs // inner, books, dtype="int16")
        t.call(module.triton_matmul, t.normal(3, inputs, dtype=dtype), codes,
               t.normal(books, 256, outer, inner, dtype=dtype, scale=0.2),
               t.normal(outputs // outer, 1, 1, 1, dtype=dtype),
               t.normal(outputs, dtype=dtype) if biased else None, wide)  # fmt: skip


CASES = {each.__name__: each for each in (products,)}
