"""kernel-fun: causal convolutions in strips, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def convolutions(t: Tensors) -> None:
    """Call the causal convolution and its derivative."""
    bare_package("kernel_fun.cconv._kernels")
    module = import_module("kernel_fun.cconv._kernels.strip")
    for batch, length, width in ((2, 60, 128), (1, 200, 256)):
        x, w = t.normal(batch, length, width, dtype="bfloat16"), t.normal(width, 4, dtype="bfloat16")
        t.call(module.cconv_fwd, x, w)
        t.call(module.cconv_bwd, x, w, t.normal(batch, length, width, dtype="bfloat16"))


CASES = {each.__name__: each for each in (convolutions,)}
