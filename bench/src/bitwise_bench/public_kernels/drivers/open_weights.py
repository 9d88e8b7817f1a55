"""tritonllm: the decoder of open weights: norms, rotations, attention with sinks, and products of one token."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    found = next(each for each in map(Path, sys.path) if (each / "tritonllm" / "gpt_oss").is_dir())
    if str(found / "tritonllm") not in sys.path:
        sys.path.insert(0, str(found / "tritonllm"))
    bare_package("gpt_oss.triton")
    stub("pytest", mark=_Anything(), skip=None)
    return import_module(f"gpt_oss.triton.{name}")


class _Anything:
    """Stands for decorators of tests."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: lambda function: function


def rows(t: Tensors) -> None:
    """Call norms and rotations."""
    module = _module("triton_kernels")
    t.call(module.rmsnorm_forward, t.normal(2, 5, 300, dtype="bfloat16"), t.normal(300), 1e-5)
    q, k = t.normal(1, 20, 4, 64, dtype="bfloat16"), t.normal(1, 20, 2, 64, dtype="bfloat16")
    angles = t.uniform(64, 32, high=6.0)
    t.call(module.rope_forward, q, k, angles.sin(), angles.cos(), 64, t.of([3], "int32"))


def products(t: Tensors) -> None:
    """Call the products of one token with the weights of layers and of the vocabulary."""
    module = _module("triton_kernels")
    hidden = t.normal(1, 1, 256, dtype="bfloat16")
    t.call(module.unembedding_decode_forward, hidden, t.normal(300, 256, dtype="bfloat16"))
    t.call(module.qkv_decode_forward, hidden, t.normal(256, 256, dtype="bfloat16"), t.normal(256, dtype="bfloat16"),
           128, 64)  # fmt: skip
    t.call(module.out_residual_decode_forward, hidden, t.normal(200, 256, dtype="bfloat16"),
           t.normal(200, dtype="bfloat16"), t.normal(1, 1, 200, dtype="bfloat16"))  # fmt: skip


def attention(t: Tensors) -> None:
    """Call attention with sinks, with and without a window, of many and of one query."""
    module = _module("attention_tt")
    sinks, first = t.normal(4, dtype="bfloat16"), t.of([0], "int32")
    k, v = (t.normal(1, 128, 2, 64, dtype="bfloat16") for _ in range(2))
    for window in (None, 32):
        t.call(module.attention, t.normal(1, 128, 2, 2, 64, dtype="bfloat16"), k, v, sinks, 0.125, window, first)
    module = _module("attention_tt_decode")
    last = t.of([127], "int32")
    t.call(module.attention_decode, t.normal(1, 1, 2, 2, 64, dtype="bfloat16"), k, v, sinks, 0.125, None, last)


CASES = {each.__name__: each for each in (rows, products, attention)}
