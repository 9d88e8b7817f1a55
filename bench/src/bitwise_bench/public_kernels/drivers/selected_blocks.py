"""native-sparse-attention-pytorch: attention over blocks of keys that each query selects."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call the forward pass over selected blocks, with and without their own block."""
    bare_package("native_sparse_attention_pytorch")
    module = import_module("native_sparse_attention_pytorch.triton_native_sparse_attention")
    for own in (True, False):
        q, k, v = (t.normal(1, 2, 64, 32, dtype="float16", scale=0.5) for _ in range(3))
        chosen = t.integers(0, 4, 1, 2, 64, 2)
        mask = t.integers(0, 2, 1, 2, 64, 2, dtype="bool")
        t.call(module.native_sparse_attn_forward, q, k, v, chosen, mask, 16, own)


CASES = {each.__name__: each for each in (attention,)}
