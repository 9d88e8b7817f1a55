"""flash-mlm: attention of masked language models."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def subsequences(t: Tensors) -> None:
    """Call attention without a cache, of two precisions."""
    function = import_module("flash_mlm.host").flash_attn_mlm
    for dtype in ("float16", "bfloat16"):
        q, k, v = (t.normal(2, 2, 128, 64, dtype=dtype) for _ in range(3))
        t.call(function, q, k, v, 0.125)


CASES = {each.__name__: each for each in (subsequences,)}
