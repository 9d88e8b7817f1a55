"""Configurations of models with drawn sizes: widths, heads, vocabularies and experts that nobody chose."""

from __future__ import annotations

import random
from typing import Any

_WIDTHS = (
    "intermediate_size", "intermediate_size_mlp", "ffn_dim", "n_inner", "moe_intermediate_size",
    "shared_expert_intermediate_size",
)  # fmt: skip
"""Fields of widths inside of a layer, which depend on no other field."""
_HEAD_WIDTHS = (64, 80, 96, 128)
_HEADS = (4, 6, 8, 10, 12)
_NAMES = {
    "hidden_size": ("num_attention_heads", ("num_key_value_heads", "num_kv_heads")), "n_embd": ("n_head", ()),
}  # fmt: skip
"""By the field of the width of a model: those of its heads, and of the heads of keys."""


def drawn_fields(fields: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Return the fields of a model's configuration with other sizes, which a seed and the model's name decide.

    The number of layers and the kinds of layers stay.  A width of a layer is a multiple of 8.
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
