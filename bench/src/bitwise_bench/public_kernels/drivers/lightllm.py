"""LightLLM: attention over a cache of tokens, norms, and products with quantised weights, for serving."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(model: str, name: str) -> Any:
    stub("rpyc")
    place = "common.basemodel" if model == "common" else f"models.{model}"
    bare_package(f"lightllm.{place}.triton_kernel")
    bare_package("lightllm.utils")
    return import_module(f"lightllm.{place}.triton_kernel.{name}")


def _requests(t: Tensors) -> dict[str, Any]:
    """Return two requests of 50 and 37 tokens, whose keys and values lie anywhere in a cache of 160."""
    table = t.torch.stack([t.torch.randperm(160, generator=t._generator)[:64] for _ in range(2)])
    return {
        "table": table.to(t.dtype("int32")).to(t.device),
        "index": t.of([0, 1], "int32"),
        "start": t.of([0, 50], "int32"),
        "length": t.of([50, 37], "int32"),
        "k": t.normal(160, 2, 64, dtype="float16"),
        "v": t.normal(160, 2, 64, dtype="float16"),
    }


def prefill(t: Tensors) -> None:
    """Call the attention of whole prompts."""
    q, o = t.normal(87, 4, 64, dtype="float16"), t.empty(87, 4, 64, dtype="float16")
    k, v = (t.normal(87, 2, 64, dtype="float16") for _ in range(2))
    start, length = t.of([0, 50], "int32"), t.of([50, 37], "int32")
    name = "context_flashattention_nopad"
    _module("llama", name).context_attention_fwd_no_prompt_cache(q, k, v, o, start, length, 50)
    _module("mistral", name).context_attention_fwd(q, k, v, o, start, length, 50, 32)


def prefill_with_cache(t: Tensors) -> None:
    """Call the attention of prompts of which a part is cached."""
    r = _requests(t)
    q, o = t.normal(67, 4, 64, dtype="float16"), t.empty(67, 4, 64, dtype="float16")
    _module("llama", "context_flashattention_nopad").context_attention_fwd(
        q, r["k"], r["v"], o, r["index"], t.of([0, 40], "int32"), r["length"], t.of([10, 10], "int32"), 50, r["table"]
    )


def decode(t: Tensors) -> None:
    """Call the attention of one token in two stages."""
    r = _requests(t)
    q, o = t.normal(2, 4, 64, dtype="float16"), t.empty(2, 4, 64, dtype="float16")
    middle, logs = t.empty(2, 4, 2, 64), t.empty(2, 4, 2)
    _module("llama", "flash_decoding_stage1").flash_decode_stage1(
        q, r["k"], r["v"], r["table"], r["index"], r["length"], 64, middle, logs, 32
    )
    _module("llama", "flash_decoding_stage2").flash_decode_stage2(middle, logs, r["length"], o, 32)
    _module("llama", "gqa_decode_flashattention_nopad").gqa_decode_attention_fwd(
        q, r["k"], r["v"], o, r["table"], r["index"], r["length"]
    )


def decode_by_parts(t: Tensors) -> None:
    """Call the scores, the softmax and the sum over values of the attention of one token."""
    r = _requests(t)
    q, scores = t.normal(2, 4, 64, dtype="float16"), t.normal(4, 87, dtype="float16")
    o = t.empty(2, 4, 64, dtype="float16")
    _module("llama", "token_attention_nopad_att1").token_att_fwd(
        q, r["k"], scores, r["table"], r["index"], r["start"], r["length"], 50
    )
    _module("llama", "token_attention_nopad_softmax").token_softmax_fwd(
        scores, r["start"], r["length"], t.empty(4, 87, dtype="float16"), 50
    )
    _module("llama", "token_attention_nopad_reduceV").token_att_fwd2(
        scores.softmax(-1), r["v"], o, r["table"], r["index"], r["start"], r["length"]
    )
    _module("llama", "token_attention_softmax_and_reducev").token_softmax_reducev_fwd(
        scores, r["v"], o, r["table"], r["index"], r["start"], r["length"], 0
    )


def norms(t: Tensors) -> None:
    """Call the norms."""
    x, w = t.normal(24, 512, dtype="float16"), t.normal(512, dtype="float16")
    _module("llama", "rmsnorm").rmsnorm_forward(x, w, 1e-6)
    _module("bloom", "layernorm").layernorm_forward(x, w, w, 1e-5)


def units(t: Tensors) -> None:
    """Call the gated units and the rotary embeddings."""
    _module("llama", "silu_and_mul").silu_and_mul_fwd(t.normal(24, 1024, dtype="float16"))
    _module("gemma_2b", "gelu_and_mul").gelu_and_mul_fwd(t.normal(24, 1024, dtype="float16"))
    q, k = t.normal(24, 4, 64, dtype="float16"), t.normal(24, 2, 64, dtype="float16")
    cos, sin = (t.uniform(24, 32, low=-1.0, dtype="float16") for _ in range(2))
    _module("llama", "rotary_emb").rotary_emb_fwd(q, k, cos, sin)


def cache(t: Tensors) -> None:
    """Call the copies into the cache, plain and quantised."""
    k, place = t.normal(20, 2, 64, dtype="float16"), t.integers(0, 2, 20, dtype="int32").cumsum(0).to(t.dtype("int32"))
    module = _module("common", "destindex_copy_kv")
    module.destindex_copy_kv(k, place, t.empty(64, 2, 64, dtype="float16"))
    module.destindex_copy_quantize_kv(k, place, t.empty(64, 2, 64, dtype="int8"), t.empty(64, 2, 1, dtype="float16"))


def penalties(t: Tensors) -> None:
    """Call the penalties of tokens that were generated before."""
    ids, counts = t.integers(0, 500, 30, dtype="int32"), t.integers(1, 4, 30, dtype="int32")
    _module("common", "apply_penalty").apply_penalty(
        t.normal(2, 500), t.uniform(2), t.uniform(2), t.uniform(2, low=1.0, high=2.0), ids, counts,
        t.of([0, 16, 30], "int32"), 16
    )  # fmt: skip


def quantised_products(t: Tensors) -> None:
    """Call products with weights of 8 and of 4 bits."""
    a = t.normal(32, 256, dtype="float16")
    eight = _module("common", "dequantize_gemm_int8")
    b = t.integers(-127, 128, 128, 256, dtype="int8").t()
    eight.matmul_dequantize_int8(a, b, t.uniform(1, 128, dtype="float16"))
    module = _module("common", "quantize_gemm_int8")
    module.matmul_quantize_int8(a, b, t.uniform(128, dtype="float16"))


def four_bits(t: Tensors) -> None:
    """Call products with weights of 4 bits."""
    a, module = t.normal(32, 256, dtype="float16"), _module("common", "dequantize_gemm_int4")
    words = t.integers(-(1 << 31), 1 << 31, 32, 128, dtype="int64").to(t.dtype("int32"))
    zeros = t.integers(-(1 << 31), 1 << 31, 2, 16, dtype="int64").to(t.dtype("int32"))
    scales = t.uniform(2, 128, dtype="float16")
    module.matmul_dequantize_int4_gptq(a, words, scales, zeros, 128)
    module.matmul_dequantize_int4_s2(a, words, scales, zeros, 128)
    module.matmul_dequantize_int4_s1(a, words, scales, zeros, 128)


CASES = {
    each.__name__: each
    for each in (
        *(prefill, prefill_with_cache, decode, decode_by_parts, norms, units, cache, penalties, quantised_products),
        four_bits,
    )
}
