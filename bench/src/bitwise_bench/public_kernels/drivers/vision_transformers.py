"""TorchInductor: kernels of compiled vision transformers of vit-pytorch, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_SQUARE: dict[str, Any] = {
    "image_size": 48,
    "patch_size": 8,
    "num_classes": 30,
    "dim": 80,
    "depth": 1,
    "heads": 2,
    "mlp_dim": 136,
}


def _driver(module: str, name: str, shape: tuple[int, ...], dtype: str = "float32", **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("vit_pytorch")
        t.torch.manual_seed(13)
        found = getattr(import_module(f"vit_pytorch.{module}"), name)(**settings)
        model = found.to(t.device).to(t.dtype(dtype)).train(False)
        _step(t, model, t.normal(*shape, dtype=dtype))

    return driver


_IMAGES = (3, 3, 48, 48)

CASES: dict[str, Driver] = {
    "vit": _driver("vit", "ViT", _IMAGES, **_SQUARE),
    "simple_vit": _driver("simple_vit", "SimpleViT", _IMAGES, "bfloat16", **_SQUARE),
    "deepvit": _driver("deepvit", "DeepViT", _IMAGES, **_SQUARE),
    "parallel": _driver("parallel_vit", "ViT", _IMAGES, "float16", **_SQUARE),
    "normalised": _driver("normalized_vit", "nViT", _IMAGES, **_SQUARE),
    "cait": _driver("cait", "CaiT", _IMAGES, cls_depth=1, **_SQUARE),
    "small_data": _driver("vit_for_small_dataset", "ViT", _IMAGES, **_SQUARE),
    "query_key_norm": _driver("simple_vit_with_qk_norm", "SimpleViT", _IMAGES, "bfloat16", **_SQUARE),
    "registers": _driver("simple_vit_with_register_tokens", "SimpleViT", _IMAGES, **_SQUARE),
    "value_residual": _driver("simple_vit_with_value_residual", "SimpleViT", _IMAGES, **_SQUARE),
    "hyper_connections": _driver(
        "simple_vit_with_hyper_connections", "SimpleViT", _IMAGES, num_residual_streams=2, **_SQUARE
    ),
    "fourier": _driver("simple_vit_with_fft", "SimpleViT", _IMAGES, freq_patch_size=8, **_SQUARE),
    "one_dimension": _driver(
        "vit_1d", "ViT", (3, 3, 96), seq_len=96, patch_size=8, num_classes=30, dim=80, depth=1, heads=2, mlp_dim=136
    ),
    "three_dimensions": _driver(
        "simple_vit_3d",
        "SimpleViT",
        (2, 3, 4, 32, 32),
        image_size=32,
        image_patch_size=8,
        frames=4,
        frame_patch_size=2,
        num_classes=30,
        dim=96,
        depth=1,
        heads=2,
        mlp_dim=136,
    ),
    "compact": _driver(
        "cct",
        "CCT",
        (3, 3, 32, 32),
        img_size=32,
        embedding_dim=96,
        n_conv_layers=1,
        kernel_size=5,
        stride=2,
        padding=2,
        num_layers=1,
        num_heads=2,
        mlp_ratio=2.0,
        num_classes=30,
    ),
    "pooling": _driver(
        "pit",
        "PiT",
        (3, 3, 48, 48),
        image_size=48,
        patch_size=8,
        num_classes=30,
        dim=64,
        depth=(1, 1),
        heads=2,
        mlp_dim=136,
    ),
    "nested": _driver(
        "nest",
        "NesT",
        (2, 3, 32, 32),
        image_size=32,
        patch_size=4,
        dim=48,
        heads=2,
        num_hierarchies=2,
        block_repeats=(1, 1),
        num_classes=30,
    ),
    "cross": _driver(
        "cross_vit",
        "CrossViT",
        (2, 3, 48, 48),
        image_size=48,
        num_classes=30,
        depth=1,
        sm_dim=64,
        sm_patch_size=8,
        sm_enc_depth=1,
        sm_enc_heads=2,
        sm_enc_mlp_dim=96,
        lg_dim=96,
        lg_patch_size=16,
        lg_enc_depth=1,
        lg_enc_heads=2,
        lg_enc_mlp_dim=128,
        cross_attn_depth=1,
        cross_attn_heads=2,
    ),
    "max": _driver(
        "max_vit",
        "MaxViT",
        (2, 3, 64, 64),
        num_classes=30,
        dim=32,
        depth=(1,),
        dim_head=16,
        window_size=4,
        mbconv_expansion_rate=2,
        dim_conv_stem=16,
    ),
    "covariance": _driver(
        "xcit",
        "XCiT",
        _IMAGES,
        image_size=48,
        patch_size=8,
        num_classes=30,
        dim=64,
        depth=1,
        cls_depth=1,
        heads=2,
        mlp_dim=136,
    ),
    "tokens_to_tokens": _driver(
        "t2t",
        "T2TViT",
        (2, 3, 48, 48),
        image_size=48,
        num_classes=30,
        dim=64,
        depth=1,
        heads=2,
        mlp_dim=128,
        t2t_layers=((7, 4), (3, 2)),
    ),
}
