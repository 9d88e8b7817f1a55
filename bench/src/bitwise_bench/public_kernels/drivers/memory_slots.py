"""TorchInductor: kernels of compiled models with a memory of memformer, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(name: str, dtype: str, *lengths: int, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(73)
        model = getattr(import_module("memformer.memformer"), name)(dim=48, depth=1, heads=2, **settings)
        given = [t.normal(2, length, 48, dtype=dtype) for length in lengths]
        _step(t, model.to(t.device).to(t.dtype(dtype)), *given)

    return driver


CASES: dict[str, Driver] = {
    "encoder": _driver("Encoder", "float32", 30, 12),
    "decoder": _driver("Decoder", "float32", 23, 11),
    "narrow": _driver("Encoder", "bfloat16", 41, 9),
}
