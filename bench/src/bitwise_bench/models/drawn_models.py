"""Configurations of models with drawn sizes: widths, heads, vocabularies, experts and windows that nobody chose."""

from __future__ import annotations

import random
from typing import Any

_WIDTHS = (
    "intermediate_size", "intermediate_size_mlp", "ffn_dim", "n_inner", "moe_intermediate_size",
    "shared_expert_intermediate_size",
)  # fmt: skip
"""Fields of widths inside of a layer, which depend on no other field."""
_EXPERTS = (
    ("num_experts", "num_experts_per_tok"), ("num_local_experts", "num_experts_per_tok"),
    ("n_routed_experts", "num_experts_per_tok"), ("moe_num_experts", "moe_k"), ("num_experts", "moe_topk"),
)  # fmt: skip
"""Fields of the number of experts, and of those that serve a token."""
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
"""Fields of the greatest magnitudes of scores and of logits."""
_HEAD_WIDTHS = (64, 80, 96, 128)
_HEADS = (4, 6, 8, 10, 12)
_NAMES = {
    "hidden_size": ("num_attention_heads", ("num_key_value_heads", "num_kv_heads")), "n_embd": ("n_head", ()),
}  # fmt: skip
"""By the field of the width of a model: those of its heads, and of the heads of keys."""


def drawn_fields(fields: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Return the fields of a model's configuration with other sizes, which a seed and the model's name decide.

    The number of layers and the kinds of layers stay.  A width of a layer is a multiple of 8.  A window has 5 to 90
    tokens.  Whether the embeddings of a model are tied to its last product is drawn as well.
    """
    source = random.Random(f"{seed}:{name}")
    found = dict(fields)
    for each in _WIDTHS:
        if each in found:
            found[each] = 8 * max(8, round(found[each] * source.uniform(0.5, 1.4) / 8))
    if "vocab_size" in found:
        found["vocab_size"] = source.randrange(6000, 24000)
    for width, (heads, of_keys) in _NAMES.items():
        if width in found:
            _draw_heads(found, width, heads, of_keys, source)
    if "word_embed_proj_dim" in found:
        found["word_embed_proj_dim"] = found["hidden_size"]
    for experts, of_token in _EXPERTS:
        if experts in found and of_token in found:
            found[experts] = 2 * source.randint(2, 6)
            found[of_token] = source.randint(1, found[experts] // 2)
    if "sliding_window" in found:
        found["sliding_window"] = source.randint(5, 90)
    for each in _CAPS:
        if each in found:
            found[each] = round(found[each] * source.uniform(0.02, 1.2), 2)
    found["tie_word_embeddings"] = source.random() < 0.5
    return found


def _draw_heads(found: dict[str, Any], width: str, heads: str, of_keys: tuple[str, ...], source: random.Random) -> None:
    before = found[heads]
    choices = [each for each in _HEADS if before % 4 or not each % 4 or width == "hidden_size"]
    found[heads] = count = source.choice(choices)
    for name in of_keys:
        if name in found and found[name] == before:
            found[name] = count
        elif name in found:
            found[name] = source.choice([each for each in range(2, count, 2) if count % each == 0])
    if "head_dim" in found or "v_head_dim" in found:
        # Some classes ask that the heads divide the width, though it is not theirs.
        unit = 32 * count
        found[width] = unit * source.randint(-(-640 // unit), 1280 // unit)
    else:
        found[width] = count * source.choice(_HEAD_WIDTHS)


_DENSE = (
    "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Olmo2ForCausalLM", "GraniteForCausalLM",
    "MistralForCausalLM", "Starcoder2ForCausalLM", "Phi3ForCausalLM",
)  # fmt: skip
"""Classes of dense models; one of the last three may have a window."""


def drawn_widths(seed: int, number: int) -> tuple[str, dict[str, Any]]:
    """Return the class and the widths of the layers of a dense model of about 1 to 8 billion parameters.

    A seed and a number decide them.  The widths of models of 16 to 32 layers are drawn: 2,048 to 4,096 for a token,
    64, 96 or 128 for a head, 2.5 to 4 times that of a token inside of a layer.
    """
    source = random.Random(f"{seed}:{number}")
    kind, head = source.choice(_DENSE), source.choice((64, 96, 128, 128))
    heads = source.choice([each for each in range(16, 65, 4) if 2048 <= each * head <= 4096])
    groups = source.choice([each for each in range(2, heads + 1) if heads % each == 0])
    hidden = heads * head
    found: dict[str, Any] = {
        "hidden_size": hidden, "intermediate_size": 128 * round(hidden * source.uniform(2.5, 4) / 128),
        "num_attention_heads": heads, "num_key_value_heads": groups,
    }  # fmt: skip
    if kind in ("LlamaForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"):
        found["head_dim"] = head
    if kind in _DENSE[-3:]:
        found["sliding_window"] = source.choice((None, 1024, 4096))
    if kind == "Phi3ForCausalLM":
        found["original_max_position_embeddings"] = 16384
    return kind, found
