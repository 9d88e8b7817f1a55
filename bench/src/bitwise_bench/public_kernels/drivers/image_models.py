"""TorchInductor: kernels of compiled image models of timm, forward and backward, in small sizes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(module: str, name: str, dtype: str, size: int = 32, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("timm")
        stub("timm", __version__="1.0.31")
        bare_package("timm.models")
        bare_package("timm.data")
        constants = import_module("timm.data.constants")
        stub("timm.data", **{name: value for name, value in vars(constants).items() if name.isupper()})
        stub("torchvision.ops.misc", FrozenBatchNorm2d=type("FrozenBatchNorm2d", (t.torch.nn.Module,), {}))
        t.torch.manual_seed(19)
        found = getattr(import_module(f"timm.models.{module}"), name)(num_classes=22, **settings)
        model = found.to(t.device).to(t.dtype(dtype)).train(False)
        _step(t, model, t.normal(2, 3, size, size, dtype=dtype))

    return driver


_PATCHES: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 72, "depth": 1, "num_heads": 3}
_FOUR: dict[str, Any] = {"depths": (1, 1, 1, 1), "dims": (16, 24, 32, 40)}

CASES: dict[str, Driver] = {
    "pooled_by_attention": _driver("vision_transformer", "VisionTransformer", "float32", global_pool="map",
                                   class_token=False, qk_norm=True, init_values=0.1, **_PATCHES),
    "relative_positions": _driver("vision_transformer_relpos", "VisionTransformerRelPos", "bfloat16", **_PATCHES),
    "eva": _driver("eva", "Eva", "bfloat16", use_rot_pos_emb=True, swiglu_mlp=True, scale_mlp=True, **_PATCHES),
    "beit": _driver("beit", "Beit", "float16", use_rel_pos_bias=True, **_PATCHES),
    "convit": _driver("convit", "ConVit", "float32", **_PATCHES),
    "cross_covariance": _driver("xcit", "Xcit", "float32", **_PATCHES),
    "class_attention": _driver("cait", "Cait", "float32", **_PATCHES),
    "mixer": _driver("mlp_mixer", "MlpMixer", "float16", img_size=32, patch_size=8, num_blocks=1, embed_dim=72),
    "convmixer": _driver("convmixer", "ConvMixer", "float32", dim=40, depth=1, kernel_size=5, patch_size=4),
    "convnext": _driver("convnext", "ConvNeXt", "bfloat16", 64, use_grn=True, **_FOUR),
    "metaformer": _driver("metaformer", "MetaFormer", "float32", 64, **_FOUR),
    "inception_next": _driver("inception_next", "MetaNeXt", "float32", 64, **_FOUR),
    "mambaout": _driver("mambaout", "MambaOut", "float16", 64, **_FOUR),
    "starnet": _driver("starnet", "StarNet", "float32", 64, base_dim=16, depths=(1, 1, 1, 1)),
    "fasternet": _driver("fasternet", "FasterNet", "float32", 64, embed_dim=24, depths=(1, 1, 1, 1)),
    "pyramid": _driver("pvt_v2", "PyramidVisionTransformerV2", "float32", 64, depths=(1, 1, 1, 1),
                       embed_dims=(16, 32, 48, 64), num_heads=(1, 1, 2, 2)),
    "tiny_vit": _driver("tiny_vit", "TinyVit", "float32", 64, depths=(1, 1, 1, 1),
                        embed_dims=(16, 32, 48, 64), num_heads=(1, 2, 3, 4), window_sizes=(4, 4, 4, 4)),
    "nested": _driver("nest", "Nest", "float32", img_size=32, patch_size=4, num_levels=2, embed_dims=(32, 48),
                      num_heads=(2, 3), depths=(1, 1)),
    "dual_attention": _driver("davit", "DaVit", "float32", depths=(1, 1), embed_dims=(24, 48), num_heads=(2, 4),
                              window_size=4),
    "dense": _driver("densenet", "DenseNet", "float32", growth_rate=8, block_config=(2, 2)),
    "local_global": _driver("edgenext", "EdgeNeXt", "float32", 64, dims=(16, 24, 32, 40), depths=(1, 1, 1, 1),
                            heads=(4, 4, 4, 4)),
    "twins": _driver("twins", "Twins", "float32", 64, img_size=64, depths=(1, 1, 1, 1), embed_dims=(16, 32, 48, 64),
                     num_heads=(1, 2, 3, 4)),
}  # fmt: skip
