"""vllm-factory: encoders' attention with positions and windows, norms, rotations, and gated units."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("kernels")
    return import_module(f"kernels.{name}")


def _heads(t: Tensors, heads: int, length: int, width: int, dtype: str = "bfloat16") -> Any:
    return t.normal(2, heads, length, width, dtype=dtype)


def relative_positions(t: Tensors) -> None:
    """Call attention with buckets of relative positions, of an encoder with padding and of a decoder."""
    attention = _module("flash_attention_rpb").flash_attention_rpb_final
    for decoder, masked in ((False, True), (True, False)):
        q, k, v = (_heads(t, 3, 70, 64) for _ in range(3))
        mask = t.of([[[[1] * 70]], [[[1] * 44 + [0] * 26]]], "bool") if masked else None
        t.call(attention, q, k, v, t.normal(32, 3, dtype="bfloat16"), 32, 128, decoder, padding_mask=mask,
               softmax_scale=0.125)  # fmt: skip


def disentangled(t: Tensors) -> None:
    """Call attention with disentangled positions, with and without terms of positions, and of uneven lengths."""
    attention = _module("flash_deberta_attention").flash_deberta_attention
    q, k, v = (_heads(t, 2, 50, 64, "float16") for _ in range(3))
    spans = [t.normal(2, 2, 50, 64, dtype="float16") for _ in range(2)]
    t.call(attention, q, k, v, seq_lengths=t.of([50, 31], "int32"), pos_key=spans[0], pos_query=spans[1],
           position_buckets=32, max_relative_distance=64, use_log_bucket=True)  # fmt: skip
    t.call(attention, q, k, v, causal=True)


def windows(t: Tensors) -> None:
    """Call attention with a bounded logit, a window, segments, and keys of another sequence behind the own ones."""
    attention = _module("flash_t5gemma2_attention").flash_t5gemma2_attention
    q, k, v = _heads(t, 4, 60, 64), _heads(t, 2, 60, 64), _heads(t, 2, 60, 64)
    t.call(attention, q, k, v, softcap=30.0, sliding_window=16, is_causal=True, sm_scale=0.125)
    t.call(attention, q, k, v, key_mask=t.integers(0, 2, 2, 60, dtype="int32"),
           segment_ids=t.of([[0] * 30 + [1] * 30, [0] * 60], "int32"), sm_scale=0.125)  # fmt: skip
    k, v = _heads(t, 2, 100, 64), _heads(t, 2, 100, 64)
    t.call(attention, q, k, v, is_causal=True, self_len=60, sm_scale=0.125)


def norms(t: Tensors) -> None:
    """Call layer norms, norms of queries and keys with their rotation, and a norm before a residual."""
    module = _module("fused_layernorm")
    for width, dtype in ((300, "float32"), (768, "bfloat16")):
        t.call(module.fused_layernorm, t.normal(2, 9, width, dtype=dtype), (width,), t.normal(width, dtype=dtype),
               t.normal(width, dtype=dtype))  # fmt: skip
    rotate = _module("fused_qk_norm_rope").fused_qk_norm_rope
    t.call(rotate, t.normal(2, 11, 4, 64, dtype="bfloat16"), t.normal(2, 11, 2, 64, dtype="bfloat16"),
           t.normal(64, dtype="bfloat16"), t.normal(64, dtype="bfloat16"), t.normal(2, 11, 64, dtype="bfloat16"),
           t.normal(2, 11, 64, dtype="bfloat16"))  # fmt: skip
    residual = _module("fused_gemma_rms_norm_dropout_residual").fused_gemma_rms_norm_dropout_residual
    t.call(residual, t.normal(15, 640, dtype="bfloat16"), t.normal(15, 640, dtype="bfloat16"),
           t.normal(640, dtype="bfloat16"))  # fmt: skip


def elements(t: Tensors) -> None:
    """Call rotations, gated units, sums with residuals, and embeddings with replaced tokens."""
    rotate = _module("fused_rope_global").fused_rope_global_apply
    t.call(rotate, t.normal(2, 9, 3, 64), t.normal(2, 9, 1, 64), t.normal(2, 9, 64), t.normal(2, 9, 64))
    gated = _module("ff_fused").fused_gelu_mul_dropout
    for name in ("gelu", "gelu_accurate", "silu", "relu"):
        t.call(gated, t.normal(7, 200, dtype="bfloat16"), t.normal(7, 200, dtype="bfloat16"), act_fn=name)
    t.call(_module("fused_glu_mlp").fused_gelu_mul_dropout, t.normal(7, 200), t.normal(7, 200))
    t.call(_module("fused_dropout_residual").fused_dropout_residual, t.normal(7, 200), t.normal(7, 200))
    scale = _module("fused_embed_scale_eoi").fused_embed_scale_eoi
    t.call(scale, t.normal(13, 96, dtype="bfloat16"), t.integers(0, 4, 13), 9.75, 3, t.normal(96, dtype="bfloat16"))


CASES = {each.__name__: each for each in (relative_positions, disentangled, windows, norms, elements)}
