"""flash-attention-x: attention with and without a causal mask, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call both versions of attention."""
    bare_package("flash_attention_x")
    for name, function in (("flash_attention_causal", "flash_attn"), ("flash_attention_causal_og", "flash_attn")):
        module = import_module(f"flash_attention_x.{name}")
        for causal, dtype, width in ((True, "float16", 64), (False, "bfloat16", 32)):
            q, k, v = (t.normal(1, 2, 128, width, dtype=dtype, grad=True) for _ in range(3))
            t.backward(t.call(getattr(module, function), q, k, v, causal, 0.15))


CASES = {each.__name__: each for each in (attention,)}
