"""TorchInductor: kernels of compiled models of transformers, of other families than `inductor` and `inductor_families`.

The families are the first, by a hash of their names, of those that run forward and backward in a small size; the size,
the length, the batch and the type of the numbers are drawn from the name too.
"""

from __future__ import annotations

import hashlib
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step, _transformers
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_TEXT: tuple[str, ...] = (
    "ImageGPT", "Camembert", "Tapas", "BigBird", "Lfm2", "ConvBert", "MiMoV2Flash", "XGLM", "OpenAIPrivacyFilter",
    "Cohere2Moe", "MegatronBert", "HunYuanDenseV1", "RobertaPreLayerNorm", "BigBirdPegasus", "XLMRobertaXL",
    "GraniteSWA", "Nystromformer", "Afmoe", "Ernie", "SeedOss", "MiniMaxM2", "RemBert", "Llama4Text", "Olmoe",
    "Tipsv2Text", "FalconH1", "Deberta", "Data2VecText", "MuseGlimmerText", "Doge", "Laguna", "MBart", "Helium",
    "Mellum", "Cwm", "JetMoe", "GptOss", "AriaText", "Yoso", "Moshi", "Qwen3Moe", "EuroBert", "XLM", "Gemma",
    "HYV4", "Phi", "SmolLM3", "GraniteMoeSWA", "Glm4Moe",
)  # fmt: skip
_PAIRS: tuple[str, ...] = (
    "Pegasus", "Blenderbot", "PegasusX", "Marian", "M2M100", "BlenderbotSmall",
)  # fmt: skip
_IMAGES: tuple[str, ...] = (
    "Sam3ViT", "PPOCRV6TinyRec", "InternVLVision", "SamVision", "ChineseCLIPVision", "PPOCRV6SmallRec",
    "Tipsv2Vision", "Sapiens2", "QianfanOCRVision",
)  # fmt: skip


class _Choice:
    """Draws from the name of a family."""

    def __init__(self, family: str) -> None:
        self._bytes = iter(hashlib.sha256(f"sizes {family}".encode()).digest())

    def of(self, *values: Any) -> Any:
        return values[next(self._bytes) % len(values)]


def _sizes(draw: _Choice) -> dict[str, Any]:
    """Return what a small model has, by the names that configurations of families use for it."""
    heads, width = draw.of(2, 3, 5, 6), draw.of(16, 24, 32, 40)
    hidden, inner, words = heads * width, draw.of(152, 208, 304, 376), draw.of(190, 260, 333)
    groups = draw.of(1, heads)
    return {
        **dict.fromkeys(("vocab_size",), words),
        **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim", "emb_dim"), hidden),
        **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), heads),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), heads),
        **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "hidden_dim", "n_inner"), inner),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), inner),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 1),
        **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"), 1),
        **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 80),
        **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "query_pre_attn_scalar"), width),
        "num_key_value_heads": groups,
        "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 72, "shared_expert_intermediate_size": 96,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
        "q_lora_rank": 40, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24, "v_head_dim": 24,
        "embedding_size": 72, "state_size": 8, "mamba_d_state": 8, "rotary_dim": 16, "sliding_window": 16,
        "attention_window": 16, "max_2d_position_embeddings": 64, "image_size": 48, "patch_size": 8,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }  # fmt: skip


def _model(t: Tensors, family: str, draw: _Choice) -> tuple[Any, Any, str]:
    sizes, config = _sizes(draw), _transformers(f"{family}Config")
    known = config()
    settings = config(**{name: value for name, value in sizes.items() if hasattr(known, name)})
    dtype = draw.of("float32", "float32", "bfloat16", "float16")
    t.torch.manual_seed(7)
    model = _transformers(f"{family}Model")(settings).to(t.device).to(t.dtype(dtype)).train(False)
    return model, sizes, dtype


def _text(family: str) -> Driver:
    def driver(t: Tensors) -> None:
        draw = _Choice(family)
        model, sizes, _ = _model(t, family, draw)
        _step(t, model, t.integers(3, sizes["vocab_size"], draw.of(1, 2, 3), draw.of(17, 33, 50, 63)))

    return driver


def _pair(family: str) -> Driver:
    def driver(t: Tensors) -> None:
        draw = _Choice(family)
        model, sizes, _ = _model(t, family, draw)
        batch, words = draw.of(1, 2, 3), sizes["vocab_size"]
        _step(t, model, t.integers(3, words, batch, draw.of(17, 33, 50)),
              decoder_input_ids=t.integers(3, words, batch, draw.of(9, 20, 31)))  # fmt: skip

    return driver


def _image(family: str) -> Driver:
    def driver(t: Tensors) -> None:
        draw = _Choice(family)
        model, _, dtype = _model(t, family, draw)
        _step(t, model, t.normal(draw.of(1, 2, 3), 3, 48, 48, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    **{family.lower(): _text(family) for family in _TEXT},
    **{family.lower(): _pair(family) for family in _PAIRS},
    **{family.lower(): _image(family) for family in _IMAGES},
}
