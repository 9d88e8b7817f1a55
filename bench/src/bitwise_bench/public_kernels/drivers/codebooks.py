"""TorchInductor: kernels of compiled quantisers of vector-quantize-pytorch, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(module: str, name: str, training: bool, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("vector_quantize_pytorch")
        t.torch.manual_seed(37)
        model = getattr(import_module(f"vector_quantize_pytorch.{module}"), name)(**settings).to(t.device)
        _step(t, model.train(training), t.normal(2, 30, 32, grad=True))

    return driver


CASES: dict[str, Driver] = {
    "finite_scalars": _driver("finite_scalar_quantization", "FSQ", True, levels=[8, 5, 5], dim=32),
    "binary": _driver("lookup_free_quantization", "LFQ", True, dim=32, codebook_size=64),
    "nearest": _driver("vector_quantize_pytorch", "VectorQuantize", True, dim=32, codebook_size=40),
}  # fmt: skip
