"""Conch: attention over pages, norms, activations and quantisation for serving."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _op(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(import_module(f"conch.ops.{module}"), name)


def norms(t: Tensors) -> None:
    """Call the norms."""
    x, r, w = (t.normal(*shape, dtype="float16") for shape in ((24, 512), (24, 512), (512,)))
    _op("normalization.rms_norm.rms_norm")(x, w, 1e-6)
    _op("normalization.rms_norm.fused_add_rms_norm")(x, r, w, 1e-6)
    _op("normalization.gemma_rms_norm.gemma_rms_norm")(x, w, 1e-6)


def units(t: Tensors) -> None:
    """Call the gated units and the rotary embedding."""
    _op("activation.silu_and_mul.silu_and_mul")(t.normal(24, 1024, dtype="float16"))
    _op("activation.gelu_tanh_and_mul.gelu_tanh_and_mul")(t.normal(24, 1024, dtype="float16"))
    q, k = t.normal(24, 256, dtype="float16"), t.normal(24, 128, dtype="float16")
    _op("embedding.rotary_embedding.rotary_embedding")(
        t.integers(0, 60, 24), q, k, 64, t.uniform(64, 64, low=-1.0, dtype="float16")
    )


def _pages(t: Tensors) -> tuple[Any, Any, Any, Any]:
    """Return caches of keys and values of 12 pages of 16 tokens, and two sequences of 50 and 37 tokens in them."""
    k, v = (t.normal(12, 16, 2, 64, dtype="float16") for _ in range(2))
    return k, v, t.of([[3, 7, 1, 10], [5, 0, 11, 2]], "int32"), t.of([50, 37], "int32")


def paged_attention(t: Tensors) -> None:
    """Call the attention of one token over pages."""
    k, v, table, lengths = _pages(t)
    _op("attention.paged_attention.paged_attention")(t.normal(2, 4, 64, dtype="float16"), k, v, table, lengths)


def varlen_attention(t: Tensors) -> None:
    """Call the attention of prompts of different lengths over pages."""
    k, v, table, lengths = _pages(t)
    _op("attention.varlen_attention.varlen_attention")(
        t.normal(40, 4, 64, dtype="float16"), k, v, t.of([0, 25, 40], "int32"), 25, lengths, 50, table, causal=True
    )


def quantisation(t: Tensors) -> None:
    """Call the quantisation to 8 bits, and that of blocks to 4 bits and back."""
    x = t.normal(24, 512, dtype="float16")
    _op("quantization.int8.scaled_int8_quant")(x, t.of([0.05], "float32"))
    _op("quantization.fp8.scaled_fp8_quant")(x, t.of([0.05], "float32"))


def mixed_product(t: Tensors) -> None:
    """Call the product with weights of 4 bits."""
    words = t.integers(-(1 << 31), 1 << 31, 32, 128, dtype="int64").to(t.dtype("int32"))
    _op("quantization.gemm.mixed_precision_gemm")(
        t.normal(32, 256, dtype="float16"), words, t.uniform(2, 128, dtype="float16"), None, 4, 8, 128
    )


def scaled_product(t: Tensors) -> None:
    """Call the product of integers of 8 bits with scales."""
    a, b = t.integers(-127, 128, 32, 256, dtype="int8"), t.integers(-127, 128, 256, 128, dtype="int8")
    _op("quantization.gemm.scaled_gemm")(a, b, t.uniform(32, 1), t.uniform(128, 1), t.dtype("float16"))


def cache(t: Tensors) -> None:
    """Call the copy into pages."""
    k, v, _, _ = _pages(t)
    key, value = (t.normal(20, 2, 64, dtype="float16") for _ in range(2))
    _op("vllm.reshape_and_cache.reshape_and_cache")(key, value, k, v, t.integers(0, 1, 20).add(1).cumsum(0))


def suppression(t: Tensors) -> None:
    """Call the suppression of boxes."""
    corners = t.uniform(60, 2, high=50.0)
    boxes = t.torch.cat([corners, corners + t.uniform(60, 2, low=5.0, high=20.0)], 1)
    _op("vision.nms.nms")(boxes, t.uniform(60), 0.5)


CASES = {
    each.__name__: each
    for each in (
        *(norms, units, paged_attention, varlen_attention, quantisation, mixed_product, scaled_product, cache),
        suppression,
    )
}
