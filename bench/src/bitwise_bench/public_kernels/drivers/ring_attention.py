"""ring-attention-pytorch: attention whose sums go on from those of other keys, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def forward(t: Tensors) -> None:
    """Call the forward pass with and without a causal mask, and a second time over other keys."""
    bare_package("ring_attention_pytorch")
    module = import_module("ring_attention_pytorch.triton_flash_attn")
    for causal in (False, True):
        q, k, v = (t.normal(1, 128, 2, 32, dtype="float16", scale=0.5) for _ in range(3))
        found = t.call(module.flash_attn_forward, q, k, v, causal=causal, return_normalized_output=True)
        if found is not None:
            out, largest, sums = found
            t.call(module.flash_attn_forward, q, v, k, o=out.float(), m=largest, lse=sums)


def backward(t: Tensors) -> None:
    """Call the backward pass."""
    bare_package("ring_attention_pytorch")
    module = import_module("ring_attention_pytorch.triton_flash_attn")
    q, k, v, out, gradient = (t.normal(1, 128, 2, 32, dtype="float16", scale=0.5) for _ in range(5))
    results = [t.empty(1, 128, 2, 32) for _ in range(3)]
    t.call(module.flash_attn_backward, gradient, q, k, v, out, t.normal(1, 2, 128), *results, t.empty(1, 2, 128))


CASES = {each.__name__: each for each in (forward, backward)}
