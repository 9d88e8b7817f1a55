"""flash-attn-triton: attention with dropout, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def dropout(t: Tensors) -> None:
    """Call attention with and without dropout."""
    bare_package("flash_attn_triton")
    stub("triton.tools.experimental_descriptor")
    function = import_module("flash_attn_triton.triton_kernel.attention_kernel").attention
    for causal, width, chance in ((False, 64, 0.0), (True, 64, 0.0), (True, 32, 0.2), (False, 128, 0.1)):
        heads = [t.normal(1, 2, 128, width, dtype="float16", grad=True) for _ in range(3)]
        found = t.call(function, *heads, causal, 0.13, chance, 5)
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (dropout,)}
