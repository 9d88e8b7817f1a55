"""Products of models against the shapes that their modules have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bitwise_cublas_profiles.commands import app
from bitwise_cublas_profiles.invariance.model_products import (
    ARCHITECTURES,
    model_layers,
    model_products,
    read_config,
)
from bitwise_cublas_profiles.query import CublasError

LLAMA = {
    "model_type": "llama", "dtype": "bfloat16", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "torch_dtype": "bfloat16", "hidden_size": 7168, "intermediate_size": 18432,
    "num_attention_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536, "kv_lora_rank": 512, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "n_routed_experts": 256, "n_shared_experts": 1,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
}  # fmt: skip
QWEN_MOE = {
    "model_type": "qwen3_moe", "dtype": "bfloat16", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128,
    "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip


def shapes(config: dict[str, Any], **options: Any) -> dict[str, tuple[int, int]]:
    return {
        name: (each.product.n, each.product.k)
        for each in model_products(config, "config.json", **options) for name in each.layers
    }  # fmt: skip


def test_a_dense_model() -> None:
    assert shapes(LLAMA) == {
        "q_proj": (4096, 4096), "k_proj": (1024, 4096), "v_proj": (1024, 4096), "o_proj": (4096, 4096),
        "gate_proj": (14336, 4096), "up_proj": (14336, 4096), "down_proj": (4096, 14336), "lm_head": (128256, 4096),
    }  # fmt: skip
    assert {(each.product.operator, each.product.dtype) for each in model_products(LLAMA, "x")} == {("linear", "bf16")}
    assert {each.product.dtype for each in model_products(LLAMA, "x", "fp16")} == {"fp16"}


@pytest.mark.parametrize(
    ("kind", "experts", "dtype"),
    [
        ("exaone_moe", "num_experts", "fp32"), ("ernie4_5_moe", "moe_num_experts", "fp32"),
        ("solar_open", "n_routed_experts", "fp32"), ("minimax_m2", "num_local_experts", "bf16"),
        ("flex_olmo", "num_experts", "bf16"),
    ],
)  # fmt: skip
def test_the_type_of_a_router_is_that_of_its_model(kind: str, experts: str, dtype: str) -> None:
    config = {**LLAMA, "model_type": kind, experts: 48, "moe_intermediate_size": 512, "head_dim": 128}
    (found,) = (each.product for each in model_products(config, "x") if "router" in each.layers)
    assert (found.n, found.k, found.dtype) == (48, 4096, dtype)


def test_a_fused_and_divided_model() -> None:
    assert shapes(LLAMA, fused=True) == {
        "qkv_proj": (6144, 4096), "o_proj": (4096, 4096), "gate_up_proj": (28672, 4096), "down_proj": (4096, 14336),
        "lm_head": (128256, 4096),
    }  # fmt: skip
    assert shapes(LLAMA, fused=True, parts=4) == {
        "qkv_proj": (1536, 4096), "o_proj": (4096, 1024), "gate_up_proj": (7168, 4096), "down_proj": (4096, 3584),
        "lm_head": (32064, 4096),
    }  # fmt: skip
    with pytest.raises(CublasError, match="--tensor-parallel 16 does not divide k_proj, N=1024 in units of 128"):
        shapes(LLAMA, parts=16)


RECORDED = json.loads(Path(__file__).with_name("layers_of_models.json").read_text(encoding="utf-8"))["models"]


@pytest.mark.parametrize("model", RECORDED, ids=lambda model: str(model["name"]))
def test_layers_are_those_that_transformers_builds(model: dict[str, Any]) -> None:
    """Recorded by `python -m bitwise_bench.cublas.invariance.layers_of_models`."""
    found = {(each.n, each.k, each.bias) for each in model_layers(model["config"], "config.json")}
    assert found == {tuple(each) for each in model["layers"]}


def test_every_architecture_has_a_recorded_model() -> None:
    known = {each["config"]["model_type"] for each in RECORDED}
    assert set(ARCHITECTURES) - known == {"kimi_k2"}  # not a class of transformers


def test_latent_attention_and_experts() -> None:
    found = shapes(DEEPSEEK)
    assert found == {
        "q_a_proj": (1536, 7168), "q_b_proj": (24576, 1536), "kv_a_proj_with_mqa": (576, 7168),
        "kv_b_proj": (32768, 512), "o_proj": (7168, 16384), "router": (256, 7168),
        "experts.gate_proj": (2048, 7168), "experts.up_proj": (2048, 7168), "experts.down_proj": (7168, 2048),
        "shared_experts.gate_proj": (2048, 7168), "shared_experts.up_proj": (2048, 7168),
        "shared_experts.down_proj": (7168, 2048), "gate_proj": (18432, 7168), "up_proj": (18432, 7168),
        "down_proj": (7168, 18432), "lm_head": (129280, 7168),
    }  # fmt: skip
    (router,) = [each for each in model_products(DEEPSEEK, "x") if "router" in each.layers]
    assert router.product.dtype == "fp32"
    assert shapes(DEEPSEEK, fused=True)["fused_qkv_a_proj"] == (2112, 7168)
    assert shapes({**DEEPSEEK, "q_lora_rank": None})["q_proj"] == (24576, 7168)
    with pytest.raises(CublasError, match=r"needs the fields q_lora_rank \(null for none\), which are missing"):
        shapes({name: value for name, value in DEEPSEEK.items() if name != "q_lora_rank"})


def test_experts_behind_dense_layers() -> None:
    found = shapes(QWEN_MOE)
    assert (found["router"], found["experts.down_proj"], "gate_proj" in found) == ((128, 2048), (2048, 768), False)
    assert shapes({**QWEN_MOE, "mlp_only_layers": [0]})["gate_proj"] == (6144, 2048)
    assert shapes({**QWEN_MOE, "decoder_sparse_step": 2})["gate_proj"] == (6144, 2048)


def test_biases_follow_the_model() -> None:
    def biased(config: dict[str, Any]) -> set[str]:
        return {each.name for each in model_layers(config, "x") if each.bias}

    assert biased(LLAMA) == set()
    assert biased({**LLAMA, "attention_bias": True}) == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert biased({**LLAMA, "mlp_bias": True}) == {"gate_proj", "up_proj", "down_proj"}
    assert biased({**LLAMA, "model_type": "qwen2"}) == {"q_proj", "k_proj", "v_proj"}
    # The bias of a row-parallel layer is added after the sum over GPUs.
    found = {name: each.product.operator for each in model_products({**LLAMA, "attention_bias": True}, "x", parts=2)
             for name in each.layers}  # fmt: skip
    assert (found["q_proj"], found["o_proj"]) == ("addmm", "linear")


@pytest.mark.parametrize("kind", sorted(ARCHITECTURES))
def test_missing_fields_are_named_in_one_sentence(kind: str) -> None:
    with pytest.raises(CublasError, match=f"model_type {kind} needs the fields .*hidden_size.*vocab_size") as raised:
        model_layers({"model_type": kind}, "config.json")
    assert str(raised.value).startswith("config.json: ")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model_type": "mamba"}, "the fields of model_type 'mamba' are not known; known are apertus, "),
        ({"model_type": None}, "model_type is missing; known are apertus, "),
        ({"hidden_size": "4096"}, "hidden_size is '4096'; it is a whole number from 1 to 16777215"),
        ({"hidden_size": True}, "hidden_size is True; it is a whole number"),
        ({"vocab_size": 0}, "vocab_size is 0; it is a whole number from 1"),
        ({"attention_bias": 1}, "attention_bias is 1; it is true or false"),
        ({"dtype": "int8"}, "dtype is 'int8'; give the type with --dtype"),
    ],
)
def test_other_fields_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CublasError) as raised:
        shapes({**LLAMA, **fields})
    assert sentence in str(raised.value)


def test_the_text_model_of_a_larger_one(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "dtype": "bfloat16", "text_config": {
        **{name: value for name, value in LLAMA.items() if name != "dtype"}, "model_type": "gemma3_text",
        "head_dim": 256,
    }}))  # fmt: skip
    assert shapes(read_config(path))["q_proj"] == (8192, 4096)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "this is not complete JSON"), (b"[1]", "a config.json holds an object of JSON"),
        (b"\xff", "cannot be read (it is not text)"), (b'{"a": 1, "a": 2}', "the key 'a' twice"),
        (b" " * (5 << 20), "has more than 4 MiB; at most that is read"),
    ],
)  # fmt: skip
def test_files_that_are_no_config(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["invariance", "--model", str(path)])
    assert (done.exit_code, done.stdout, sentence in done.stderr) == (2, "", True)
