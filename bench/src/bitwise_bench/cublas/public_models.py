"""The fields of public models' `config.json` that determine their matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def _dense(
    kind: str, hidden: int, width: int, heads: int, groups: int, vocabulary: int, **more: Any
) -> Mapping[str, Any]:  # fmt: skip
    return MappingProxyType({
        "model_type": kind, "dtype": "bfloat16", "hidden_size": hidden, "intermediate_size": width,
        "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": vocabulary, **more,
    })  # fmt: skip


_LATENT = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "attention_bias": False, "n_shared_experts": 1, "moe_intermediate_size": 2048,
}  # fmt: skip

CONFIGS: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "Llama-3.1-8B": _dense("llama", 4096, 14336, 32, 8, 128_256),
    "DeepSeek-V3": _dense(
        "deepseek_v3", 7168, 18432, 128, 128, 129_280, n_routed_experts=256, first_k_dense_replace=3, **_LATENT
    ),
    "Qwen3-8B": _dense("qwen3", 4096, 12288, 32, 8, 151_936, head_dim=128, attention_bias=False),
    "Qwen2.5-7B": _dense("qwen2", 3584, 18944, 28, 4, 152_064),
    "Llama-3.1-70B": _dense("llama", 8192, 28672, 64, 8, 128_256),
    "Qwen3-30B-A3B": _dense(
        "qwen3_moe", 2048, 6144, 32, 4, 151_936, head_dim=128, num_experts=128, moe_intermediate_size=768,
        decoder_sparse_step=1, mlp_only_layers=[],
    ),
    "Mixtral-8x7B": _dense("mixtral", 4096, 14336, 32, 8, 32_000, num_local_experts=8),
    "Mistral-7B-v0.3": _dense("mistral", 4096, 14336, 32, 8, 32_768),
    "Gemma-2-9B": _dense("gemma2", 3584, 14336, 16, 8, 256_000, head_dim=256),
    "Qwen3-32B": _dense("qwen3", 5120, 25600, 64, 8, 151_936, head_dim=128, attention_bias=False),
    "Llama-3.2-1B": _dense("llama", 2048, 8192, 32, 8, 128_256, head_dim=64),
    "Phi-4": _dense("phi3", 5120, 17920, 40, 10, 100_352),
    "Kimi-K2": _dense(
        "kimi_k2", 7168, 18432, 64, 64, 163_840, n_routed_experts=384, first_k_dense_replace=1, **_LATENT
    ),
    "Qwen2.5-0.5B": _dense("qwen2", 896, 4864, 14, 2, 151_936),
})  # fmt: skip
