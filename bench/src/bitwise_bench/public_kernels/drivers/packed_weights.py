"""onecomp-runtime: products with weights of 4 bits in groups of 32."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def groups(t: Tensors) -> None:
    """Call the product."""
    bare_package("onecomp_runtime.layers")
    function = import_module("onecomp_runtime.layers.fused_int4_linear").fused_int4_gemm
    for m, k, n in ((5, 256, 64), (40, 512, 128), (100, 256, 192)):
        weight = t.integers(-(1 << 31), (1 << 31) - 1, k // 8, n, dtype="int32")
        t.call(function, t.normal(m, k, dtype="float16"), weight,
               t.uniform(k // 32, n, dtype="float16"), t.integers(-(1 << 31), (1 << 31) - 1, k // 32, n // 8,
               dtype="int32"), t.normal(n, dtype="float16"))  # fmt: skip


CASES = {each.__name__: each for each in (groups,)}
