"""hackers-kernels: a gated product of elements."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def gated(t: Tensors) -> None:
    """Call the gated product of three tensors."""
    bare_package("hackers_kernels")
    module = import_module("hackers_kernels.kernels")
    for dtype in ("float16", "float32"):
        x, first, second = (t.normal(7, 900, dtype=dtype) for _ in range(3))
        grid = (-(-x.numel() // 1024),)
        out = t.empty(7, 900, dtype="float16")
        t.call(module.swiglu_fused_kernel.__getitem__(grid), x, first, second, out, x.numel(), BLOCK_SIZE=1024)


CASES = {each.__name__: each for each in (gated,)}
