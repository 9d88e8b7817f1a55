"""TorchInductor: kernels of compiled ensembles of tabm, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import stub
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(67)
        stub("rtdl_num_embeddings", LinearEmbeddings=None, LinearReLUEmbeddings=None, PeriodicEmbeddings=None,
             PiecewiseLinearEmbeddings=None)  # fmt: skip
        model = import_module("tabm").TabM(
            n_num_features=13, d_out=3, n_blocks=2, d_block=56, dropout=0.0, k=4, **settings
        )
        _step(t, model.to(t.device).to(t.dtype(dtype)), t.normal(24, 13, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "shared": _driver("float32", arch_type="tabm", start_scaling_init="random-signs"),
    "small": _driver("float32", arch_type="tabm-mini", start_scaling_init="normal"),
    "packed": _driver("bfloat16", arch_type="tabm-packed", start_scaling_init=None),
}
