"""TorchInductor: kernels of compiled models, forward and backward, from the definitions of transformers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_SETTINGS = {
    "force_disable_caches": True,
    "max_autotune_pointwise": True,
    "use_static_cuda_launcher": False,
    "fallback_random": True,
}
_TOKENS = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
           "intermediate_size": 256, "max_position_embeddings": 128}  # fmt: skip
_DECODER = {**_TOKENS, "num_key_value_heads": 2}

_TEXT_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _DECODER),
    "qwen2": ("Qwen2", _DECODER),
    "qwen3": ("Qwen3", {**_DECODER, "head_dim": 32}),
    "gemma2": ("Gemma2", {**_DECODER, "head_dim": 32, "query_pre_attn_scalar": 32}),
    "mistral": ("Mistral", _DECODER),
    "mixtral": ("Mixtral", {**_DECODER, "num_local_experts": 4}),
    "phi3": ("Phi3", {**_DECODER, "pad_token_id": 0}),
    "olmo2": ("Olmo2", _DECODER),
    "bert": ("Bert", _TOKENS),
    "roberta": ("Roberta", {**_TOKENS, "max_position_embeddings": 130}),
    "distilbert": ("DistilBert", {"vocab_size": 512, "dim": 128, "n_layers": 1, "n_heads": 4, "hidden_dim": 256}),
    "electra": ("Electra", {**_TOKENS, "embedding_size": 128}),
    "gpt2": ("GPT2", {"vocab_size": 512, "n_embd": 128, "n_layer": 1, "n_head": 4, "n_positions": 128}),
    "gpt_neox": ("GPTNeoX", _TOKENS),
    "opt": ("OPT", {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
                    "ffn_dim": 256, "max_position_embeddings": 128, "word_embed_proj_dim": 128}),
    "bloom": ("Bloom", {"vocab_size": 512, "hidden_size": 128, "n_layer": 1, "n_head": 4}),
    "falcon": ("Falcon", {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}),
    "deberta": ("DebertaV2", {**_TOKENS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "mamba": ("Mamba", {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 1, "state_size": 8}),
}  # fmt: skip
_IMAGE_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", {**_TOKENS, "image_size": 32, "patch_size": 8}),
    "swin": ("Swin", {"image_size": 32, "patch_size": 4, "embed_dim": 32, "depths": [2], "num_heads": [2],
                      "window_size": 4}),
    "convnext": ("ConvNext", {"hidden_sizes": [32, 64], "depths": [1, 1], "num_stages": 2}),
    "dinov2": ("Dinov2", {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 28,
                          "patch_size": 14}),
    "resnet": ("ResNet", {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1]}),
}  # fmt: skip


def _transformers(name: str) -> Any:
    return getattr(import_module("transformers"), name)


def _model(t: Tensors, family: str, settings: dict[str, Any], dtype: str) -> Any:
    config = _transformers(f"{family}Config")(**settings)
    t.torch.manual_seed(7)
    return _transformers(f"{family}Model")(config).to(t.device).to(t.dtype(dtype)).train(False)


def _settings() -> Any:
    from torch._inductor import config

    return config.patch({name: value for name, value in _SETTINGS.items() if hasattr(config, name)})


def _step(t: Tensors, model: Any, *inputs: Any, **named: Any) -> None:
    """Compile a model, and run it forward and backward."""
    torch = t.torch
    torch._dynamo.reset()
    with _settings():
        found = torch.compile(model, dynamic=False)(*inputs, **named)
        output = found if torch.is_tensor(found) else found[0]
        output.float().square().mean().backward()
    torch._dynamo.reset()


def _text(family: str, settings: dict[str, Any], dtype: str) -> Driver:
    def driver(t: Tensors) -> None:
        _step(t, _model(t, family, settings, dtype), t.integers(0, 512, 2, 48))

    return driver


def _image(family: str, settings: dict[str, Any], dtype: str) -> Driver:
    def driver(t: Tensors) -> None:
        size = int(settings.get("image_size", 32))
        _step(t, _model(t, family, settings, dtype), t.normal(2, 3, size, size, dtype=dtype))

    return driver


def t5(t: Tensors) -> None:
    """Compile an encoder with a decoder."""
    settings = {"vocab_size": 512, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 1, "num_heads": 4}
    model = _model(t, "T5", settings, "float32")
    _step(t, model, t.integers(0, 512, 2, 48), decoder_input_ids=t.integers(0, 512, 2, 24))


def whisper(t: Tensors) -> None:
    """Compile a model of speech."""
    settings = {"vocab_size": 512, "d_model": 128, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 16,
                "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
                "decoder_ffn_dim": 256, "max_source_positions": 50, "max_target_positions": 50,
                "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
    model = _model(t, "Whisper", settings, "float32")
    _step(t, model, t.normal(2, 16, 100), decoder_input_ids=t.integers(0, 512, 2, 24))


def clip(t: Tensors) -> None:
    """Compile a model of images and text."""
    settings = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256,
                "image_size": 32, "patch_size": 8}  # fmt: skip
    config = _transformers("CLIPVisionConfig")(**settings)
    model = _transformers("CLIPVisionModel")(config).to(t.device).bfloat16().train(False)
    _step(t, model, t.normal(2, 3, 32, 32, dtype="bfloat16"))


def losses(t: Tensors) -> None:
    """Compile losses, scans and statistics of PyTorch."""
    functional = t.torch.nn.functional

    def several(x: Any, target: Any) -> Any:
        loss = functional.cross_entropy(x, target, label_smoothing=0.1)
        return loss + x.cumsum(0).var(1).sum() + functional.smooth_l1_loss(x.tanh(), x.erf()) + x.logsumexp(0).mean()

    _step(t, several, t.normal(64, 700, grad=True), t.integers(0, 700, 64))


def _optimiser(t: Tensors, name: str, **settings: Any) -> None:
    torch = t.torch
    parameters = [t.normal(*shape, grad=True) for shape in ((64, 100), (300,), (40, 60))]
    for parameter in parameters:
        parameter.grad = t.normal(*parameter.shape)
    optimiser = getattr(torch.optim, name)(parameters, **settings)
    torch._dynamo.reset()
    with torch.no_grad(), _settings():
        torch.compile(optimiser.step, fullgraph=False)()
    torch._dynamo.reset()


def adamw(t: Tensors) -> None:
    """Compile a step of AdamW."""
    _optimiser(t, "AdamW", capturable=True, foreach=True)


def sgd(t: Tensors) -> None:
    """Compile a step of gradient descent with momentum."""
    _optimiser(t, "SGD", lr=0.1, momentum=0.9, foreach=True)


CASES: dict[str, Driver] = {
    **{name: _text(family, settings, "bfloat16") for name, (family, settings) in _TEXT_MODELS.items()},
    **{f"{name}_single": _text(*_TEXT_MODELS[name], "float32") for name in ("llama", "bert", "gpt2", "qwen3")},
    **{name: _image(family, settings, "float32") for name, (family, settings) in _IMAGE_MODELS.items()},
    **{each.__name__: each for each in (t5, whisper, clip, losses, adamw, sgd)},
}
