"""ring-attention-pytorch: attention that continues from the results of an earlier part of the keys."""

from __future__ import annotations

import importlib.metadata
from importlib import import_module
from typing import Any
from unittest.mock import patch

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module() -> Any:
    """Return the module, which asks for the version of Triton."""
    with patch.object(importlib.metadata, "version", lambda name: "3.6.0"):
        return import_module("ring_attention_pytorch.triton_flash_attn")


def parts(t: Tensors) -> None:
    """Call attention over two parts of the keys, and the derivatives of the second."""
    bare_package("ring_attention_pytorch")
    module = _module()
    q, k, v = (t.normal(1, 160, 2, 64, dtype="float16") for _ in range(3))
    least = -3.4028234663852886e38
    o, m, lse = t.empty(1, 160, 2, 64, dtype="float16"), t.empty(1, 2, 256) + least, t.empty(1, 2, 256) + least
    t.call(module.flash_attn_forward, q, k, v, causal=True, o=o, m=m, lse=lse)
    second = t.call(module.flash_attn_forward, q, v, k, o=o, m=m, lse=lse, return_normalized_output=True)
    if second is None:
        return
    gradients = (t.empty(1, 160, 2, 64, dtype="float16") for _ in range(3))
    out = second[0].to(q.dtype)
    t.call(module.flash_attn_backward, t.normal(1, 160, 2, 64, dtype="float16"), q, k, v, out, second[2], *gradients)


def biased(t: Tensors) -> None:
    """Call attention with a bias and clamped scores."""
    bare_package("ring_attention_pytorch")
    module = _module()
    q, k, v = (t.normal(1, 90, 2, 32, dtype="bfloat16") for _ in range(3))
    bias = t.normal(1, 2, 90, 90, dtype="bfloat16")
    t.call(module.flash_attn_forward, q, k, v, bias=bias, softclamp_qk_sim=True, load_accumulated=False)


CASES = {each.__name__: each for each in (parts, biased)}
