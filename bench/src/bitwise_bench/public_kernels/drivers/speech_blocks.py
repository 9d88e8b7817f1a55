"""TorchInductor: kernels of compiled models of conformer, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(dtype: str, length: int, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(61)
        model = import_module("conformer").ConformerBlock(dim=40, dim_head=16, heads=2, ff_mult=2, **settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)), t.normal(2, length, 40, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "block": _driver("float32", 37, conv_kernel_size=9),
    "causal": _driver("float32", 50, conv_kernel_size=7, conv_causal=True),
    "narrow": _driver("bfloat16", 29, conv_kernel_size=5, conv_expansion_factor=3),
}
