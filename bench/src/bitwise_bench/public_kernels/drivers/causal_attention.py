"""flash-attention-triton: causal attention, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def causal(t: Tensors) -> None:
    """Call causal attention."""
    function = import_module("flash_attention_triton.flash_attention_2").flash_attention_v2
    for shape, width, dtype in (
        ((2, 75, 3), 64, "float16"),
        ((1, 160, 2), 32, "bfloat16"),
        ((1, 64, 2), 80, "float16"),
    ):
        heads = [t.normal(*shape, width, dtype=dtype, grad=True) for _ in range(3)]
        for deterministic in (True, False):
            found = t.call(function, *heads, None, deterministic)
            if found is not None:
                t.call(t.backward, found)


CASES = {each.__name__: each for each in (causal,)}
