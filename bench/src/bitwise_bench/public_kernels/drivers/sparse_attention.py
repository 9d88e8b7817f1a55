"""flash-sparse-attn: dense, sparse and gated attention, and decoding."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str = "flash_sparse_attn") -> Any:
    """Return a module of the package, whose projections need another package."""
    stub("triton_kernels.matmul_ogs", matmul_ogs=None, PrecisionConfig=None, FlexCtx=None)
    stub("triton_kernels.numerics", InFlexData=None, OutFlexData=None)
    return import_module(name)


def _heads(t: Tensors) -> list[object]:
    return [t.normal(1, 96, heads, 64, dtype="bfloat16", grad=True) for heads in (4, 2, 2)]


def _one_query(t: Tensors) -> list[object]:
    return [t.normal(1, 4, 64, dtype="bfloat16"), *(t.normal(1, 96, 2, 64, dtype="bfloat16") for _ in range(2))]


def dense(t: Tensors) -> None:
    """Call dense causal attention, forward and backward."""
    t.backward(t.call(_module().flash_dense_attn_func, *_heads(t), is_causal=True))


def sparse(t: Tensors) -> None:
    """Call attention that leaves out small weights, forward and backward."""
    function = _module().flash_sparse_attn_func
    t.backward(t.call(function, *_heads(t), is_causal=True, softmax_threshold=0.01))


def gated(t: Tensors) -> None:
    """Call gated attention, forward and backward."""
    function = _module().flash_gated_attn_func
    gates = t.uniform(1, 96, 4, dtype="bfloat16", grad=True), t.uniform(1, 96, 2, dtype="bfloat16", grad=True)
    t.backward(t.call(function, *_heads(t), *gates, is_causal=True, softmax_threshold=0.01))


def decoding(t: Tensors) -> None:
    """Call dense and sparse attention of one query."""
    module = _module()
    with t.torch.no_grad():
        t.call(module.flash_dense_attn_with_kvcache_func, *_one_query(t))
        t.call(module.flash_sparse_attn_with_kvcache_func, *_one_query(t), softmax_threshold=0.01)


def masked(t: Tensors) -> None:
    """Call attention with a mask that is computed from keys, forward and backward."""
    module = _module("flash_sparse_attn.deprecated.flash_sparse_attn_triton")
    bias = t.normal(1, 4, 96, 96, dtype="bfloat16", grad=True)
    q, k, v = (t.normal(1, 96, 4, 64, dtype="bfloat16", grad=True) for _ in range(3))
    t.backward(t.call(module.triton_sparse_attn_func, q, k, v, bias, True))


CASES = {each.__name__: each for each in (dense, sparse, gated, decoding, masked)}
