"""The matrix products of a transformers model, from its `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bitwise_core.input_files import read_text
from bitwise_core.json_text import parse_json
from bitwise_cublas_profiles.invariance.products import DTYPES, Product
from bitwise_cublas_profiles.query import CublasError

MAXIMUM_BYTES = 4 << 20
"""The longest config.json that is read."""

_TORCH_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

Split = Literal["columns", "rows", "none"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer: its output and input widths, whether it has a bias, and how tensor parallelism splits its weight.

    A split weight is divided in whole units of `unit` columns or rows, such as those of a head. `fp32` layers multiply
    in fp32 in every model. `fused` names the layer that serving engines make of it and its neighbours.
    """

    name: str
    n: int
    k: int
    bias: bool = False
    split: Split = "none"
    fp32: bool = False
    fused: str = ""
    unit: int = 1


@dataclass(frozen=True, slots=True)
class ModelProduct:
    """One product of a model, and the layers that run it."""

    layers: tuple[str, ...]
    product: Product


class _Fields:
    """The fields of a config.json. Missing ones are collected, so that one message names all."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name, self.values = name, values
        self.missing: list[str] = []

    def size(self, *names: str) -> int:
        """A positive integer under the first of these names that is present; 1 if none is, which is recorded."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if type(value) is not int or not 1 <= value < 1 << 24:
                raise CublasError(f"{self.name}: {name} is {value!r}; it is a whole number from 1 to {(1 << 24) - 1}")
            return value
        self.missing.append(" or ".join(names))
        return 1

    def count(self, name: str) -> int:
        """A number of layers or experts, 0 if it is absent."""
        value = self.values.get(name)
        if value is None:
            return 0
        if type(value) is not int or not 0 <= value < 1 << 24:
            raise CublasError(f"{self.name}: {name} is {value!r}; it is a whole number of 0 or more")
        return value

    def has(self, name: str) -> bool:
        """Whether a field is present and not null."""
        return self.values.get(name) is not None

    def flag(self, name: str, default: bool) -> bool:
        """A boolean field."""
        value = self.values.get(name, default)
        if type(value) is not bool:
            raise CublasError(f"{self.name}: {name} is {value!r}; it is true or false")
        return value


def _attention(found: _Fields, bias: bool, output_bias: bool) -> Iterator[Layer]:
    hidden, heads = found.size("hidden_size"), found.size("num_attention_heads")
    groups = found.size("num_key_value_heads") if found.has("num_key_value_heads") else heads
    head = found.size("head_dim") if found.has("head_dim") else max(1, hidden // heads)
    yield Layer("q_proj", heads * head, hidden, bias, "columns", fused="qkv_proj", unit=head)
    yield Layer("k_proj", groups * head, hidden, bias, "columns", fused="qkv_proj", unit=head)
    yield Layer("v_proj", groups * head, hidden, bias, "columns", fused="qkv_proj", unit=head)
    yield Layer("o_proj", hidden, heads * head, output_bias, "rows", unit=head)


def _gated(found: _Fields, width: int, prefix: str = "", bias: bool = False) -> Iterator[Layer]:
    hidden = found.size("hidden_size")
    yield Layer(f"{prefix}gate_proj", width, hidden, bias, "columns", fused=f"{prefix}gate_up_proj")
    yield Layer(f"{prefix}up_proj", width, hidden, bias, "columns", fused=f"{prefix}gate_up_proj")
    yield Layer(f"{prefix}down_proj", hidden, width, bias, "rows")


def _ungated(found: _Fields, up: str, down: str, bias: bool) -> Iterator[Layer]:
    hidden, width = found.size("hidden_size"), found.size("intermediate_size")
    yield Layer(up, width, hidden, bias, "columns")
    yield Layer(down, hidden, width, bias, "rows")


def _head(found: _Fields) -> Iterator[Layer]:
    kind = found.values["model_type"]
    bias = kind in ("codegen", "gptj", "phi") or (kind == "ernie4_5_moe" and found.flag("use_bias", False))
    hidden = found.size("word_embed_proj_dim" if kind == "opt" else "hidden_size", "n_embd")
    yield Layer("lm_head", found.size("vocab_size"), hidden, bias, "columns")


def _llama(found: _Fields) -> Iterator[Layer]:
    bias = found.flag("attention_bias", False)
    yield from _attention(found, bias, bias)
    yield from _gated(found, found.size("intermediate_size"), bias=found.flag("mlp_bias", False))


def _plain(found: _Fields) -> Iterator[Layer]:
    yield from _attention(found, False, False)
    yield from _gated(found, found.size("intermediate_size"))


def _qwen2(found: _Fields) -> Iterator[Layer]:
    yield from _attention(found, True, False)
    yield from _gated(found, found.size("intermediate_size"))


def _with_head_width(found: _Fields) -> Iterator[Layer]:
    found.size("head_dim")
    bias = found.flag("attention_bias", False)
    yield from _attention(found, bias, bias)
    yield from _gated(found, found.size("intermediate_size"))


def _one_flag(found: _Fields) -> Iterator[Layer]:
    """Biases everywhere or nowhere."""
    bias = found.flag("use_bias", False)
    yield from _attention(found, bias, bias)
    yield from _gated(found, found.size("intermediate_size"), bias=bias)


def _two_flags(found: _Fields) -> Iterator[Layer]:
    """Attention whose output has a flag of its own, or no bias."""
    output = found.flag("attention_out_bias", False)
    yield from _attention(found, found.flag("attention_bias", False), output)
    yield from _gated(found, found.size("intermediate_size"), bias=found.flag("mlp_bias", False))


def _stablelm(found: _Fields) -> Iterator[Layer]:
    yield from _attention(found, found.flag("use_qkv_bias", False), False)
    yield from _gated(found, found.size("intermediate_size"))


def _glm(found: _Fields) -> Iterator[Layer]:
    found.size("head_dim")
    yield from _attention(found, found.flag("attention_bias", False), False)
    gate, _, down = _gated(found, found.size("intermediate_size"))
    yield Layer("gate_up_proj", 2 * gate.n, gate.k, split="columns")
    yield down


def _up_and_down(found: _Fields) -> Iterator[Layer]:
    bias = found.flag("attention_bias", False)
    yield from _attention(found, bias, bias)
    yield from _ungated(found, "up_proj", "down_proj", found.flag("mlp_bias", False))


def _starcoder2(found: _Fields) -> Iterator[Layer]:
    bias = found.flag("use_bias", True)
    yield from _attention(found, bias, bias)
    yield from _ungated(found, "c_fc", "c_proj", bias)


def _phi(found: _Fields) -> Iterator[Layer]:
    q, k, v, o = _attention(found, True, True)
    yield from (q, k, v, replace(o, name="dense"))
    yield from _ungated(found, "fc1", "fc2", True)


def _falcon(found: _Fields) -> Iterator[Layer]:
    hidden, heads, bias = found.size("hidden_size"), found.size("num_attention_heads"), found.flag("bias", False)
    head = max(1, hidden // heads)
    if found.flag("new_decoder_architecture", False):
        groups = found.size("num_kv_heads") if found.has("num_kv_heads") else heads
        columns, unit = (heads + 2 * groups) * head, (heads // groups + 2) * head
    elif found.flag("multi_query", True):
        columns, unit = hidden + 2 * head, hidden + 2 * head
    else:
        columns, unit = 3 * hidden, 3 * head
    width = found.size("ffn_hidden_size") if found.has("ffn_hidden_size") else 4 * hidden
    yield Layer("query_key_value", columns, hidden, bias, "columns", unit=unit)
    yield Layer("dense", hidden, hidden, bias, "rows", unit=head)
    yield Layer("dense_h_to_4h", width, hidden, bias, "columns")
    yield Layer("dense_4h_to_h", hidden, width, bias, "rows")


def _phi3(found: _Fields) -> Iterator[Layer]:
    q, k, v, o = _attention(found, False, False)
    groups = k.n // k.unit
    yield Layer("qkv_proj", q.n + k.n + v.n, q.k, split="columns", unit=(q.n + k.n + v.n) // groups)
    yield o
    gate, _, down = _gated(found, found.size("intermediate_size"))
    yield Layer("gate_up_proj", 2 * gate.n, gate.k, split="columns")
    yield down


def _gpt_neox(found: _Fields) -> Iterator[Layer]:
    hidden, width = found.size("hidden_size"), found.size("intermediate_size")
    bias = found.flag("attention_bias", True)
    head = max(1, hidden // found.size("num_attention_heads"))
    yield Layer("query_key_value", 3 * hidden, hidden, bias, "columns", unit=3 * head)
    yield Layer("dense", hidden, hidden, bias, "rows", unit=head)
    yield Layer("dense_h_to_4h", width, hidden, True, "columns")
    yield Layer("dense_4h_to_h", hidden, width, True, "rows")


def _opt(found: _Fields) -> Iterator[Layer]:
    hidden, width, bias = found.size("hidden_size"), found.size("ffn_dim"), found.flag("enable_bias", True)
    head = max(1, hidden // found.size("num_attention_heads"))
    for name in ("q_proj", "k_proj", "v_proj"):
        yield Layer(name, hidden, hidden, bias, "columns", fused="qkv_proj", unit=head)
    yield Layer("out_proj", hidden, hidden, bias, "rows", unit=head)
    yield Layer("fc1", width, hidden, bias, "columns")
    yield Layer("fc2", hidden, width, bias, "rows")
    outer = found.size("word_embed_proj_dim")
    if outer != hidden:
        yield Layer("project_in", hidden, outer)
        yield Layer("project_out", outer, hidden)


def _bloom(found: _Fields) -> Iterator[Layer]:
    hidden = found.size("hidden_size", "n_embed")
    head = max(1, hidden // found.size("n_head", "num_attention_heads"))
    yield Layer("query_key_value", 3 * hidden, hidden, True, "columns", unit=3 * head)
    yield Layer("dense", hidden, hidden, True, "rows", unit=head)
    yield Layer("dense_h_to_4h", 4 * hidden, hidden, True, "columns")
    yield Layer("dense_4h_to_h", hidden, 4 * hidden, True, "rows")


def _named_as_gpt2(found: _Fields) -> Iterator[Layer]:
    """Models whose fields have the names of GPT-2, and whose linear layers are plain ones."""
    hidden, kind = found.size("n_embd"), found.values["model_type"]
    head = max(1, hidden // found.size("n_head"))
    width = found.size("n_inner") if found.has("n_inner") else 4 * hidden
    if kind == "gptj":
        for name in ("q_proj", "k_proj", "v_proj"):
            yield Layer(name, hidden, hidden, False, "columns", fused="qkv_proj", unit=head)
    elif kind == "codegen":
        yield Layer("qkv_proj", 3 * hidden, hidden, False, "columns", unit=3 * head)
    elif found.flag("multi_query", True):  # every head has the same keys, which no division splits
        yield Layer("c_attn", hidden + 2 * head, hidden, True, "columns", unit=hidden + 2 * head)
    else:
        yield Layer("c_attn", 3 * hidden, hidden, True, "columns", unit=3 * head)
    bias = kind == "gpt_bigcode"
    yield Layer("c_proj" if bias else "out_proj", hidden, hidden, bias, "rows", unit=head)
    yield Layer("c_fc" if bias else "fc_in", width, hidden, True, "columns")
    yield Layer("mlp.c_proj" if bias else "fc_out", hidden, width, True, "rows")


def _mixtral(found: _Fields) -> Iterator[Layer]:
    yield from _attention(found, False, False)
    yield Layer("router", found.size("num_local_experts", "num_experts"), found.size("hidden_size"))
    yield from _gated(found, found.size("intermediate_size"), "experts.")


def _qwen_moe(found: _Fields) -> Iterator[Layer]:
    newer = found.values["model_type"] == "qwen3_moe"
    if newer:
        found.size("head_dim")
    bias = found.flag("attention_bias", False) if newer else found.flag("qkv_bias", True)
    yield from _attention(found, bias, bias and newer)
    yield Layer("router", found.size("num_experts", "num_local_experts"), found.size("hidden_size"))
    yield from _gated(found, found.size("moe_intermediate_size"), "experts.")
    if not newer:
        yield from _gated(found, found.size("shared_expert_intermediate_size"), "shared_expert.")
        yield Layer("shared_expert_gate", 1, found.size("hidden_size"))
    if found.values.get("mlp_only_layers") or found.count("decoder_sparse_step") > 1:
        yield from _gated(found, found.size("intermediate_size"))


def _olmoe(found: _Fields) -> Iterator[Layer]:
    bias = found.flag("attention_bias", False)
    yield from _attention(found, bias, bias)
    yield Layer("router", found.size("num_experts", "num_local_experts"), found.size("hidden_size"))
    yield from _gated(found, found.size("intermediate_size"), "experts.")


def _granite_moe(found: _Fields) -> Iterator[Layer]:
    bias = found.flag("attention_bias", False)
    yield from _attention(found, bias, bias)
    yield Layer("router", found.size("num_local_experts", "num_experts"), found.size("hidden_size"))
    yield from _gated(found, found.size("intermediate_size"), "experts.")


def _experts_after_dense(found: _Fields) -> Iterator[Layer]:
    """A mixture of experts whose router multiplies in fp32, behind dense layers; experts may be shared."""
    ernie = found.values["model_type"] == "ernie4_5_moe"
    bias, hidden = ernie and found.flag("use_bias", False), found.size("hidden_size")
    yield from _attention(found, bias, bias)
    width = found.size("moe_intermediate_size")
    yield Layer("router", found.size("num_experts", "moe_num_experts"), hidden, fp32=True)
    yield from _gated(found, width, "experts.")
    if shared := found.count("moe_num_shared_experts" if ernie else "num_shared_experts"):
        yield from _gated(found, shared * width, "shared_experts.", bias)
    yield from _gated(found, found.size("intermediate_size"), bias=bias)


def _gpt_oss(found: _Fields) -> Iterator[Layer]:
    found.size("head_dim")
    bias = found.flag("attention_bias", True)
    yield from _attention(found, bias, bias)
    yield Layer("router", found.size("num_local_experts", "num_experts"), found.size("hidden_size"), True)
    yield from _gated(found, found.size("intermediate_size"), "experts.", bias=True)


def _routed(found: _Fields) -> Iterator[Layer]:
    """A mixture of experts with shared experts, behind dense layers, whose router multiplies in fp32."""
    hidden, width = found.size("hidden_size"), found.size("moe_intermediate_size")
    yield Layer("router", found.size("n_routed_experts"), hidden, fp32=True)
    yield from _gated(found, width, "experts.")
    bias = found.values["model_type"] == "deepseek_v2" and found.flag("mlp_bias", False)
    if shared := found.count("n_shared_experts"):
        yield from _gated(found, shared * width, "shared_experts.", bias)
    if found.count("first_k_dense_replace"):
        yield from _gated(found, found.size("intermediate_size"), bias=bias)


def _latent_attention(found: _Fields) -> Iterator[Layer]:
    hidden, heads, rank = found.size("hidden_size"), found.size("num_attention_heads"), found.size("kv_lora_rank")
    plain, rotary, value = found.size("qk_nope_head_dim"), found.size("qk_rope_head_dim"), found.size("v_head_dim")
    bias = found.flag("attention_bias", False)
    if "q_lora_rank" not in found.values:
        found.missing.append("q_lora_rank (null for none)")
    if found.has("q_lora_rank"):
        low = found.size("q_lora_rank")
        yield Layer("q_a_proj", low, hidden, bias, fused="fused_qkv_a_proj")
        yield Layer("q_b_proj", heads * (plain + rotary), low, split="columns", unit=plain + rotary)
    else:
        yield Layer("q_proj", heads * (plain + rotary), hidden, split="columns", unit=plain + rotary)
    together = "fused_qkv_a_proj" if found.has("q_lora_rank") else ""
    yield Layer("kv_a_proj_with_mqa", rank + rotary, hidden, bias, fused=together)
    yield Layer("kv_b_proj", heads * (plain + value), rank, split="columns", unit=plain + value)
    yield Layer("o_proj", hidden, heads * value, bias, "rows", unit=value)


def _deepseek(found: _Fields) -> Iterator[Layer]:
    yield from _latent_attention(found)
    yield from _routed(found)


def _latent_and_dense(found: _Fields) -> Iterator[Layer]:
    yield from _latent_attention(found)
    yield from _gated(found, found.size("intermediate_size"), bias=found.flag("mlp_bias", False))


def _glm4_moe(found: _Fields) -> Iterator[Layer]:
    found.size("head_dim")
    yield from _attention(found, found.flag("attention_bias", False), False)
    yield from _routed(found)


def _dots1(found: _Fields) -> Iterator[Layer]:
    bias = found.flag("attention_bias", False)
    yield from _attention(found, bias, bias)
    yield from _routed(found)


ARCHITECTURES: Mapping[str, Callable[[_Fields], Iterator[Layer]]] = {
    **dict.fromkeys(
        (
            "bitnet", "cohere", "cohere2", "cwm", "diffllama", "granite", "hunyuan_v1_dense", "hyperclovax", "llama",
            "olmo", "olmo2", "olmo3", "smollm3",
        ),
        _llama,
    ),
    **dict.fromkeys(("exaone4", "ministral3", "mistral"), _plain),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "qwen3", "vaultgemma"), _with_head_width),
    **dict.fromkeys(("helium", "seed_oss"), _two_flags), **dict.fromkeys(("glm", "glm4"), _glm),
    **dict.fromkeys(("apertus", "arcee", "jais2", "nanochat", "nemotron"), _up_and_down),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _deepseek),
    **dict.fromkeys(("minicpm3", "youtu"), _latent_and_dense),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), _qwen_moe),
    **dict.fromkeys(("codegen", "gpt_bigcode", "gptj"), _named_as_gpt2),
    **dict.fromkeys(("ernie4_5_moe", "exaone_moe"), _experts_after_dense),
    **dict.fromkeys(("gpt_neox", "persimmon"), _gpt_neox), **dict.fromkeys(("glm4_moe", "solar_open"), _glm4_moe),
    **dict.fromkeys(("minimax_m2", "mixtral"), _mixtral), **dict.fromkeys(("flex_olmo", "olmoe"), _olmoe),
    "bloom": _bloom, "dots1": _dots1, "ernie4_5": _one_flag, "falcon": _falcon, "gpt_oss": _gpt_oss,
    "granitemoe": _granite_moe, "opt": _opt, "phi": _phi, "phi3": _phi3, "qwen2": _qwen2, "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}  # fmt: skip
"""The layers of each known `model_type`, as modules of transformers are built; the head is that of every model."""


def read_config(path: Path) -> dict[str, Any]:
    """The object of a config.json, that of its text model if it has one. Raises CublasError."""
    text = read_text(path, CublasError, MAXIMUM_BYTES)
    try:
        found = parse_json(text)
    except ValueError as error:
        raise CublasError(f"{path}: this is not complete JSON ({error})") from None
    inner = found.get("text_config") if isinstance(found, dict) else None
    if isinstance(inner, dict) and found.get("model_type") not in ARCHITECTURES:
        found = {**{name: found[name] for name in ("dtype", "torch_dtype") if name in found}, **inner}
    if not isinstance(found, dict):
        raise CublasError(f"{path}: a config.json holds an object of JSON")
    return found


def model_layers(config: Mapping[str, Any], name: str) -> list[Layer]:
    """The linear layers of a model, one of each kind. Raises CublasError, with all missing fields, where they do not
    follow from the config.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        wrong = "model_type is missing" if kind is None else f"the fields of model_type {kind!r} are not known"
        raise CublasError(
            f"{name}: {wrong}; known are {', '.join(sorted(ARCHITECTURES))}. Give the products one by one as N K"
        )
    found = _Fields(name, config)
    layers = [*ARCHITECTURES[kind](found), *_head(found)]
    if found.missing:
        raise CublasError(
            f"{name}: model_type {kind} needs the fields {', '.join(dict.fromkeys(found.missing))}, which are missing"
        )
    return layers


def quantised(config: Mapping[str, Any], name: str) -> list[str]:
    """A sentence on a model whose weights are quantised: its products are not those of `model_products`."""
    if config.get("quantization_config") is None:
        return []
    return [
        f"{name} has a quantization_config: a product of quantised weights is another one, and these are products of "
        "weights that are not quantised"
    ]


def fused_layers(layers: list[Layer]) -> list[Layer]:
    """The layers after neighbours with the same input are made one, as serving engines do."""
    found: dict[str, Layer] = {}
    for each in layers:
        name = each.fused or each.name
        if name in found:
            found[name] = replace(found[name], n=found[name].n + each.n)
        else:
            found[name] = replace(each, name=name, fused="")
    return list(found.values())


def divided_layers(layers: list[Layer], parts: int) -> list[Layer]:
    """The part of each layer on one of `parts` GPUs by tensor parallelism. Raises CublasError if it does not divide."""
    found = []
    for each in layers:
        side = {"columns": "n", "rows": "k", "none": ""}[each.split]
        if not side or parts == 1:
            found.append(each)
            continue
        width = getattr(each, side)
        if width // each.unit % parts:
            units = f" in units of {each.unit}" if each.unit > 1 else ""
            raise CublasError(f"--tensor-parallel {parts} does not divide {each.name}, {side.upper()}={width}{units}")
        # The bias of a row-parallel layer is added after the parts are summed.
        kept = each.bias and each.split == "columns"
        smaller = {"n": each.n, "k": each.k, side: width // parts}
        found.append(replace(each, n=smaller["n"], k=smaller["k"], bias=kept))
    return found


def model_products(
    config: Mapping[str, Any], name: str, dtype: str | None = None, *, fused: bool = False, parts: int = 1
) -> list[ModelProduct]:
    """The distinct products of a model, each with its layers.

    `dtype` is by default that of the config. Raises CublasError.
    """
    if dtype is None:
        given = config.get("dtype", config.get("torch_dtype"))
        dtype = _TORCH_DTYPES.get(given) if isinstance(given, str) else None
        if dtype is None:
            raise CublasError(f"{name}: dtype is {given!r}; give the type with --dtype, one of {', '.join(DTYPES)}")
    layers = divided_layers(model_layers(config, name), parts)
    found: dict[Product, list[str]] = {}
    for each in fused_layers(layers) if fused else layers:
        kind = "fp32" if each.fp32 else dtype
        product = Product(each.n, each.k, kind, "addmm" if each.bias else "linear")
        found.setdefault(product, []).append(each.name)
    return [ModelProduct(tuple(names), product) for product, names in found.items()]
