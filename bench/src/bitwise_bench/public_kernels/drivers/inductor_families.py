"""TorchInductor: kernels of compiled models of transformers, of other families and sizes than `inductor`."""

from __future__ import annotations

from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _model, _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_TOKENS = {"vocab_size": 320, "hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3,
           "intermediate_size": 200, "max_position_embeddings": 96}  # fmt: skip
_DECODER = {**_TOKENS, "num_key_value_heads": 1, "pad_token_id": 0}

_TEXT_MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "cohere": ("Cohere", _DECODER, "float32"),
    "olmo": ("Olmo", _DECODER, "float16"),
    "granite": ("Granite", _DECODER, "bfloat16"),
    "stablelm": ("StableLm", _DECODER, "float32"),
    "starcoder2": ("Starcoder2", _DECODER, "bfloat16"),
    "glm": ("Glm", {**_DECODER, "head_dim": 32}, "float32"),
    "nemotron": ("Nemotron", _DECODER, "float16"),
    "gptj": ("GPTJ", {"vocab_size": 320, "n_embd": 96, "n_layer": 1, "n_head": 3, "rotary_dim": 16}, "float32"),
    "albert": ("Albert", {**_TOKENS, "embedding_size": 48}, "float32"),
    "fnet": ("FNet", {**_TOKENS}, "float32"),
    "mobilebert": ("MobileBert", {**_TOKENS, "embedding_size": 64, "intra_bottleneck_size": 64,
                                  "hidden_size": 128, "num_attention_heads": 4}, "float16"),
    "mpnet": ("MPNet", _TOKENS, "bfloat16"),
    "roformer": ("RoFormer", {**_TOKENS, "embedding_size": 96}, "float32"),
    "squeezebert": ("SqueezeBert", {**_TOKENS, "embedding_size": 96, "q_groups": 3, "k_groups": 3, "v_groups": 3,
                                    "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1},
                    "float32"),
    "modernbert": ("ModernBert", {**_TOKENS, "pad_token_id": 0, "hidden_size": 96, "local_attention": 16},
                   "bfloat16"),
    "qwen2_moe": ("Qwen2Moe", {**_DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                               "shared_expert_intermediate_size": 96}, "float32"),
    "deepseek_v3": ("DeepseekV3", {**_TOKENS, "num_key_value_heads": 3, "q_lora_rank": 48, "kv_lora_rank": 32,
                                   "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32,
                                   "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 48, "first_k_dense_replace": 1}, "bfloat16"),
    "mamba2": ("Mamba2", {"vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 1, "state_size": 16,
                          "num_heads": 4, "head_dim": 32, "n_groups": 1, "chunk_size": 16}, "float32"),
    "esm": ("Esm", {**_TOKENS, "vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32,
                    "position_embedding_type": "rotary"}, "float16"),
}  # fmt: skip
_IMAGE_MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "beit": ("Beit", {**_TOKENS, "image_size": 32, "patch_size": 8, "use_relative_position_bias": True}, "float32"),
    "convnextv2": ("ConvNextV2", {"hidden_sizes": [24, 48], "depths": [1, 1], "num_stages": 2}, "float32"),
    "mobilenet_v2": ("MobileNetV2", {"depth_multiplier": 0.35, "image_size": 32}, "float32"),
    "regnet": ("RegNet", {"embedding_size": 16, "hidden_sizes": [24, 48], "depths": [1, 1], "groups_width": 8},
               "float32"),
    "segformer": ("Segformer", {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1],
                                "hidden_sizes": [24, 48], "patch_sizes": [3, 3], "strides": [2, 2],
                                "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}, "float32"),
    "swinv2": ("Swinv2", {"image_size": 32, "patch_size": 4, "embed_dim": 24, "depths": [1], "num_heads": [2],
                          "window_size": 4}, "float32"),
    "poolformer": ("PoolFormer", {"hidden_sizes": [24, 48], "depths": [1, 1], "num_encoder_blocks": 2,
                                  "patch_sizes": [3, 3], "strides": [2, 2], "padding": [1, 1]}, "float16"),
    "focalnet": ("FocalNet", {"image_size": 32, "patch_size": 4, "embed_dim": 24, "depths": [1],
                              "focal_levels": [2], "focal_windows": [3], "hidden_sizes": [24]}, "float32"),
}  # fmt: skip


def _text(family: str, settings: dict[str, Any], dtype: str) -> Driver:
    def driver(t: Tensors) -> None:
        _step(t, _model(t, family, settings, dtype), t.integers(2, int(settings["vocab_size"]), 3, 40))

    return driver


def _image(family: str, settings: dict[str, Any], dtype: str) -> Driver:
    def driver(t: Tensors) -> None:
        _step(t, _model(t, family, settings, dtype), t.normal(3, 3, 32, 32, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    **{name: _text(*each) for name, each in _TEXT_MODELS.items()},
    **{name: _image(*each) for name, each in _IMAGE_MODELS.items()},
}
