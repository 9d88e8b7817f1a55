"""TorchInductor: kernels of compiled networks of splines of flashkan, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(41)
        model = import_module("flashkan").KANNetwork([37, 24, 11], **settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)), t.normal(33, 37, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "cubic": _driver("float32"),
    "quadratic": _driver("float32", grid_size=8, spline_order=2),
    "narrow": _driver("bfloat16", grid_size=3),
}
