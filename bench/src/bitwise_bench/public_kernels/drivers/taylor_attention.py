"""TorchInductor: kernels of compiled attention by Taylor series of taylor-series-linear-attention."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


class _Shaped:
    """Stands for a type with a shape."""

    def __getitem__(self, shape: Any) -> Any:
        return Any


def _driver(dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("taylor_series_linear_attention")
        stub("jaxtyping", Float=_Shaped(), Int=_Shaped(), Bool=_Shaped())
        module = import_module("taylor_series_linear_attention.attention")
        t.torch.manual_seed(53)
        model = module.TaylorSeriesLinearAttn(dim=48, dim_head=8, heads=3, **settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)).train(False), t.normal(2, 40, 48, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "plain": _driver("float32"),
    "rotated": _driver("float32", rotary_emb=True, prenorm=True),
    "gated": _driver("bfloat16", gate_value_heads=True, shift_tokens=True),
    "one_head": _driver("float32", one_headed_kv=True, remove_even_power_dups=True),
}
