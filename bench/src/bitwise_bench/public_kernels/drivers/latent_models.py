"""TorchInductor: kernels of compiled models of perceiver-pytorch, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_SETTINGS: dict[str, Any] = {
    "num_freq_bands": 3, "max_freq": 6.0, "depth": 1, "num_latents": 12, "latent_dim": 40, "latent_heads": 2,
    "cross_dim_head": 16, "latent_dim_head": 16, "num_classes": 11,
}  # fmt: skip


def _driver(module: str, dtype: str, *shape: int, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(47)
        model = import_module(f"perceiver_pytorch.{module}").Perceiver(**_SETTINGS, **settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)).train(False), t.normal(2, *shape, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "images": _driver("perceiver_pytorch", "float32", 9, 7, 3, input_channels=3, input_axis=2),
    "sequences": _driver("perceiver_pytorch", "float32", 31, 5, input_channels=5, input_axis=1, weight_tie_layers=True),
    "gated": _driver("gated", "float32", 9, 7, 3, input_channels=3, input_axis=2),
}
