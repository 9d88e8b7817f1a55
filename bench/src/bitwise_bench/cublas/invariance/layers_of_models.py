"""The linear layers that transformers builds for a config, against which the certificates of models are tested.

    python -m bitwise_bench.cublas.invariance.layers_of_models plugins/cublas_profiles/tests/layers_of_models.json

Models are built without memory, and each of them again with every other setting of a bias.  A layer is its output and
input widths and whether it has a bias; the layers of experts count as two, and the gate of an expert as its own layer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bitwise_bench.models.train_equals_serve import COMPARED
from bitwise_cublas_profiles.invariance.model_products import ARCHITECTURES

_Shape = tuple[int, int, bool]

_FIELDS = {
    "vocab_size": 16000, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
    "hidden_size": 1024, "intermediate_size": 2816, "head_dim": 128, "pad_token_id": 0,
}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 512, "num_experts_per_tok": 2}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **COMPARED,
    "bitnet": ("BitNetForCausalLM", _FIELDS),
    "bloom": ("BloomForCausalLM", {"vocab_size": 16000, "hidden_size": 1024, "n_layer": 2, "n_head": 8}),
    "cwm": ("CwmForCausalLM", _FIELDS),
    "gpt-bigcode with heads of their own": (
        "GPTBigCodeForCausalLM", {"vocab_size": 16000, "n_embd": 768, "n_layer": 2, "n_head": 8, "multi_query": False}
    ),
    "gptj": ("GPTJForCausalLM", {"vocab_size": 16000, "n_embd": 1024, "n_layer": 2, "n_head": 8}),
    "opt with a projection": ("OPTForCausalLM", {**_FIELDS, "ffn_dim": 3072, "word_embed_proj_dim": 512}),
    "persimmon": ("PersimmonForCausalLM", {**_FIELDS, "num_key_value_heads": 8}),
    "solar-open": ("SolarOpenForCausalLM", {**_FIELDS, **_EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1}),
    "youtu": (
        "YoutuForCausalLM",
        {
            **_FIELDS, "q_lora_rank": 256, "kv_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64,
            "v_head_dim": 64, "head_dim": 32,
        },
    ),
    "gemma2": ("Gemma2ForCausalLM", _FIELDS),
    "glm": ("GlmForCausalLM", _FIELDS),
    "glm4-moe": ("Glm4MoeForCausalLM", {**_FIELDS, **_EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2}),
    "olmo": ("OlmoForCausalLM", _FIELDS),
    "qwen2": ("Qwen2ForCausalLM", _FIELDS),
    "qwen3-moe": ("Qwen3MoeForCausalLM", {**_FIELDS, **_EXPERTS, "num_experts": 8}),
}  # fmt: skip
"""The models of `train_equals_serve` and others, in the same form."""


def built(kind: str, fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[_Shape]]:
    """Return the config of a model of a class of transformers, and the shapes of its linear layers."""
    import torch

    model_type: Any = getattr(import_module("transformers"), kind)
    config = model_type.config_class(**fields)
    with torch.device("meta"):
        model = model_type(config)
    return config.to_dict(), {shape for module in model.modules() for shape in shapes_of(module)}


def shapes_of(module: Any) -> Iterator[_Shape]:
    """Yield the shapes of a module that is a linear layer, a router, or a group of experts."""
    import torch

    name = type(module).__name__
    if isinstance(module, torch.nn.Linear) or name.endswith("Router"):
        n, k = module.weight.shape
        yield n, k, getattr(module, "bias", None) is not None
    elif name.endswith("Experts"):
        bias = hasattr(module, "down_proj_bias")
        hidden, width = (set(module.gate_up_proj.shape[1:]), set(module.down_proj.shape[1:]))
        (narrow,) = {each for each in width if 2 * each in hidden}
        (other,) = width - {narrow}
        yield narrow, other, bias
        yield other, narrow, bias


def scalars(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config that are numbers, booleans, texts or null."""
    return {
        name: value for name, value in sorted(config.items())
        if isinstance(value, bool | int | str | None) and not name.startswith("_")
    }  # fmt: skip


def record() -> dict[str, Any]:
    """Return the models whose architecture is known, each with its biases as they are and the other way round."""
    found = []
    for name, (kind, fields) in MODELS.items():
        plain = {each: value for each, value in fields.items() if each != "attn_implementation"}
        config, layers = built(kind, plain)
        if config["model_type"] not in ARCHITECTURES:
            continue
        other = {each: not value for each, value in config.items() if "bias" in each and isinstance(value, bool)}
        cases = {name: (config, layers)}
        if other:
            cases[f"{name} with {', '.join(f'{each}={value}' for each, value in other.items())}"] = built(
                kind, {**plain, **other}
            )
        found += [
            {"name": each, "config": scalars(given), "layers": sorted(shapes)}
            for each, (given, shapes) in cases.items()
        ]  # fmt: skip
    return {"transformers": version("transformers"), "models": found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="bitwise_bench.cublas.invariance.layers_of_models")
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args(arguments).out
    content = record()
    lines = ",\n".join(map(json.dumps, content["models"]))
    out.write_text(
        f'{{"transformers": {json.dumps(content["transformers"])}, "models": [\n{lines}\n]}}\n', encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
