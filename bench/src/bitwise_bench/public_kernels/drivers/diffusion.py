"""TorchInductor: kernels of compiled networks of diffusers, forward and backward, in small sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

Inputs = Callable[[Tensors, str], dict[str, Any]]
"""Makes the arguments of a network from the type of its numbers."""


def _driver(name: str, dtype: str, inputs: Inputs, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        sys.modules.setdefault("importlib_metadata", metadata)
        t.torch.manual_seed(23)
        model = getattr(import_module("diffusers"), name)(**settings).to(t.device).to(t.dtype(dtype)).train(False)
        _step(t, model, return_dict=False, **inputs(t, dtype))

    return driver


def _sample(*shape: int) -> Inputs:
    return lambda t, dtype: {"sample": t.normal(*shape, dtype=dtype)}


def _timed(*shape: int) -> Inputs:
    return lambda t, dtype: {"sample": t.normal(*shape, dtype=dtype), "timestep": t.of([3, 40][: shape[0]], "int64")}


def _conditioned(t: Tensors, dtype: str) -> dict[str, Any]:
    return {**_timed(2, 4, 16, 16)(t, dtype), "encoder_hidden_states": t.normal(2, 9, 32, dtype=dtype)}


def _hidden(t: Tensors, dtype: str, *shape: int) -> dict[str, Any]:
    return {
        "hidden_states": t.normal(*shape, dtype=dtype),
        "timestep": t.of([3, 40], "int64"),
        "encoder_hidden_states": t.normal(2, 9, 32, dtype=dtype),
    }


def _classes(t: Tensors, dtype: str) -> dict[str, Any]:
    return {
        "hidden_states": t.normal(2, 4, 8, 8, dtype=dtype),
        "timestep": t.of([3, 40], "int64"),
        "class_labels": t.of([1, 0], "int64"),
    }


def _pooled(t: Tensors, dtype: str) -> dict[str, Any]:
    return {**_hidden(t, dtype, 2, 4, 8, 8), "pooled_projections": t.normal(2, 32, dtype=dtype)}


def _flux(t: Tensors, dtype: str) -> dict[str, Any]:
    return {
        "hidden_states": t.normal(2, 16, 4, dtype=dtype),
        "timestep": t.uniform(2, dtype=dtype),
        "encoder_hidden_states": t.normal(2, 9, 32, dtype=dtype),
        "pooled_projections": t.normal(2, 32, dtype=dtype),
        "img_ids": t.integers(0, 4, 16, 3).to(t.dtype(dtype)),
        "txt_ids": t.empty(9, 3, dtype=dtype),
    }


_BLOCKS: dict[str, Any] = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
_DOWN: dict[str, Any] = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
_HEADS: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1, "in_channels": 4}

CASES: dict[str, Driver] = {
    "unconditional": _driver("UNet2DModel", "float32", _timed(2, 3, 16, 16), sample_size=16, attention_head_dim=8,
                             down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                             up_block_types=("AttnUpBlock2D", "UpBlock2D"), **_BLOCKS),
    "conditional": _driver("UNet2DConditionModel", "float16", _conditioned, sample_size=16, attention_head_dim=8,
                           cross_attention_dim=32, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                           up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **_BLOCKS),
    "autoencoder": _driver("AutoencoderKL", "float32", _sample(2, 3, 16, 16), latent_channels=4, **_DOWN, **_BLOCKS),
    "tiny_autoencoder": _driver("AutoencoderTiny", "float32", _sample(2, 3, 16, 16),
                                encoder_block_out_channels=(16, 16), decoder_block_out_channels=(16, 16),
                                num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)),
    "vector_quantised": _driver("VQModel", "float32", _sample(2, 3, 16, 16), latent_channels=4, **_DOWN, **_BLOCKS),
    "classes": _driver("DiTTransformer2DModel", "float32", _classes, sample_size=8, num_embeds_ada_norm=50, **_HEADS),
    "pixart": _driver("PixArtTransformer2DModel", "bfloat16", lambda t, dtype: {
        **_hidden(t, dtype, 2, 4, 8, 8), "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
        sample_size=8, cross_attention_dim=32, caption_channels=32, **_HEADS),
    "linear_attention": _driver("SanaTransformer2DModel", "float32", lambda t, dtype: _hidden(t, dtype, 2, 4, 8, 8),
                                sample_size=8, num_cross_attention_heads=2, cross_attention_head_dim=16,
                                cross_attention_dim=32, caption_channels=32, out_channels=4, **_HEADS),
    "joint": _driver("SD3Transformer2DModel", "float16", _pooled, sample_size=8, patch_size=2, joint_attention_dim=32,
                     caption_projection_dim=32, pooled_projection_dim=32, out_channels=4, **_HEADS),
    "double_stream": _driver("FluxTransformer2DModel", "bfloat16", _flux, num_single_layers=1,
                             joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8), **_HEADS),
    "aura": _driver("AuraFlowTransformer2DModel", "float32", lambda t, dtype: _hidden(t, dtype, 2, 4, 8, 8),
                    sample_size=8, patch_size=2, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1,
                    attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=32,
                    out_channels=4, pos_embed_max_size=16),
    "video": _driver("WanTransformer3DModel", "float32", lambda t, dtype: _hidden(t, dtype, 2, 4, 2, 8, 8),
                     num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=32,
                     freq_dim=32, ffn_dim=48, num_layers=1),
    "video_blocks": _driver("CogVideoXTransformer3DModel", "float32",
                            lambda t, dtype: _hidden(t, dtype, 2, 2, 4, 8, 8), sample_width=8, sample_height=8,
                            sample_frames=5, max_text_seq_length=9, text_embed_dim=32, time_embed_dim=8,
                            out_channels=4, patch_size=2, temporal_compression_ratio=4, **_HEADS),
}  # fmt: skip
