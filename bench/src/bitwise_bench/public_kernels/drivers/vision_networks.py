"""TorchInductor: kernels of compiled networks of torchvision, forward and backward, in small sizes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("torchvision")
    stub("torchvision.extension", _assert_has_ops=lambda: None, _has_ops=lambda: False)
    bare_package("torchvision.models")
    return import_module(f"torchvision.models.{name}")


def _driver(module: str, name: str, size: int, training: bool, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(43)
        model = getattr(_module(module), name)(num_classes=18, **settings).to(t.device).train(training)
        _step(t, model, t.normal(2, 3, size, size))

    return driver


def _residual(t: Tensors) -> None:
    module = _module("resnet")
    t.torch.manual_seed(43)
    model = module.ResNet(module.BasicBlock, [1, 1, 1, 1], num_classes=18).to(t.device).train()
    _step(t, model, t.normal(2, 3, 40, 40))


CASES: dict[str, Driver] = {
    "residual": _residual,
    "squeezed": _driver("squeezenet", "SqueezeNet", 48, False),
    "shuffled": _driver("shufflenetv2", "ShuffleNetV2", 64, True, stages_repeats=[1, 1, 1],
                        stages_out_channels=[16, 24, 32, 48, 64]),
    "dense": _driver("densenet", "DenseNet", 32, True, growth_rate=8, block_config=(2, 2), num_init_features=16),
    "transformer": _driver("vision_transformer", "VisionTransformer", 32, False, image_size=32, patch_size=8,
                           num_layers=1, num_heads=3, hidden_dim=72, mlp_dim=100),
    "windows": _driver("swin_transformer", "SwinTransformer", 32, False, patch_size=[4, 4], embed_dim=24, depths=[2],
                       num_heads=[2], window_size=[4, 4]),
    "several_axes": _driver("maxvit", "MaxVit", 32, False, input_size=(32, 32), stem_channels=16, partition_size=4,
                            block_channels=[16, 32], block_layers=[1, 1], head_dim=8,
                            stochastic_depth_prob=0.0),
    "mobile": _driver("mnasnet", "MNASNet", 64, True, alpha=0.25),
}  # fmt: skip
