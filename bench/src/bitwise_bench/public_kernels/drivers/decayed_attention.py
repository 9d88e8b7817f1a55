"""leetDecoding: linear attention of one factor of the keys at a time, with and without decay."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def factors(t: Tensors) -> None:
    """Call attention with and without decay."""
    bare_package("leetDecoding.methods")
    module = import_module("leetDecoding.methods.FleetAttention_triton")
    for dtype in ("float32", "float16"):
        b, c, v = (t.normal(1, 2, 64, size, dtype=dtype, scale=0.3) for size in (8, 8, 64))
        t.call(module.FleetAttention_triton, b, c, v)
        t.call(module.FleetAttention_triton, b, c, v, t.uniform(2, low=0.8, dtype=dtype))


CASES = {each.__name__: each for each in (factors,)}
