"""FlashAttention: the Triton operators beside its compiled ones: norms, rotary embeddings, losses and attention."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("flash_attn.ops.triton")
    return import_module(f"flash_attn.{name}")


def norms(t: Tensors) -> None:
    """Call the norms with a residual, forward and backward, for rows of even and odd lengths."""
    module = _module("ops.triton.layer_norm")
    for columns, dtype, rms in ((512, "bfloat16", True), (771, "float16", False)):
        x, r = (t.normal(24, columns, dtype=dtype, grad=True) for _ in range(2))
        w, b = t.normal(columns, grad=True), t.normal(columns, grad=True)
        t.backward(t.call(module.layer_norm_fn, x, w, b, residual=r, prenorm=True, residual_in_fp32=True,
                          is_rms_norm=rms))  # fmt: skip


def parallel_norms(t: Tensors) -> None:
    """Call the norms of two blocks in parallel, with scaled rows."""
    module = _module("ops.triton.layer_norm")
    x, y = (t.normal(16, 384, dtype="bfloat16", grad=True) for _ in range(2))
    w, v = t.normal(384, grad=True), t.normal(384, grad=True)
    t.backward(t.call(module.layer_norm_fn, x, w, None, x1=y, weight1=v, is_rms_norm=True))
    t.backward(t.call(module.layer_norm_fn, x, w, None, residual=y, rowscale=t.uniform(16), is_rms_norm=True))


def rotary(t: Tensors) -> None:
    """Call the rotary embedding: halves, pairs, with offsets, and of sequences of different lengths."""
    f = _module("ops.triton.rotary").apply_rotary
    cos, sin = (t.uniform(96, 24, low=-1.0, dtype="bfloat16") for _ in range(2))
    x = t.normal(2, 50, 3, 64, dtype="bfloat16")
    t.call(f, x, cos, sin)
    t.call(f, x, cos, sin, interleaved=True, conjugate=True)
    t.call(f, x, cos, sin, seqlen_offsets=t.of([7, 30], "int32"), inplace=True)
    t.call(f, t.normal(61, 3, 64, dtype="bfloat16"), cos, sin, cu_seqlens=t.of([0, 40, 61], "int32"), max_seqlen=40)


def losses(t: Tensors) -> None:
    """Call the cross entropy, forward and backward, with ignored labels and smoothing."""
    f = _module("ops.triton.cross_entropy").cross_entropy_loss
    labels = t.integers(0, 1000, 20)
    labels[3] = -100
    for dtype, smoothing, square in (("float32", 0.0, 0.0), ("bfloat16", 0.1, 1e-4)):
        found = t.call(f, t.normal(20, 1003, dtype=dtype, grad=True), labels, label_smoothing=smoothing,
                       lse_square_scale=square)  # fmt: skip
        t.backward(found and found[0])


def _attention(t: Tensors, *, causal: bool, rows: int, width: int, bias: bool) -> None:
    module = _module("flash_attn_triton")
    q, k, v = (t.normal(2, rows, 2, width, dtype="float16", grad=True) for _ in range(3))
    added = t.normal(1, 2, 1, rows, dtype="float16") if bias else None
    t.backward(t.call(module.flash_attn_func, q, k, v, added, causal))


def causal_attention(t: Tensors) -> None:
    """Call the causal attention, forward and backward."""
    _attention(t, causal=True, rows=128, width=64, bias=False)


def biased_attention(t: Tensors) -> None:
    """Call the attention of odd lengths with a bias, forward and backward."""
    _attention(t, causal=False, rows=113, width=40, bias=True)


CASES = {each.__name__: each for each in (norms, parallel_norms, rotary, losses, causal_attention, biased_attention)}
