"""TorchInductor: kernels of compiled models of nystrom-attention, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(dtype: str, length: int, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(59)
        model = import_module("nystrom_attention").Nystromformer(
            dim=48, depth=1, heads=2, dim_head=16, num_landmarks=8, pinv_iterations=3, **settings
        )
        _step(t, model.to(t.device).to(t.dtype(dtype)), t.normal(2, length, 48, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "even": _driver("float32", 32),
    "padded": _driver("float32", 45),
    "plain": _driver("float32", 61, attn_values_residual=False),
}
