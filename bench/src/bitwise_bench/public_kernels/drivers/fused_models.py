"""axiomlm: attention with windows."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call attention without a mask, with a causal one, and with a window."""
    bare_package("axiomlm.kernels")
    module = import_module("axiomlm.kernels.triton_kernels")
    for causal, window in ((False, None), (True, None), (True, 40)):
        q, k, v = (t.normal(1, 2, 256, 32, dtype="float16") for _ in range(3))
        t.call(module.triton_fused_sdpa_forward, q, k, v, causal, window)


CASES = {each.__name__: each for each in (attention,)}
