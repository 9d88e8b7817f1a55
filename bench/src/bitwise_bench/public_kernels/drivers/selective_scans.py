"""TorchInductor: kernels of compiled state space models of mambapy, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(module: str, name: str, config: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("mambapy")
        found = import_module(f"mambapy.{module}")
        t.torch.manual_seed(31)
        model = getattr(found, name)(getattr(found, config)(d_model=32, n_layers=1, **settings)).to(t.device)
        _step(t, model.train(False), t.normal(2, 24, 32))

    return driver


CASES: dict[str, Driver] = {
    "parallel": _driver("mamba", "Mamba", "MambaConfig", d_state=8),
    "sequential": _driver("mamba", "Mamba", "MambaConfig", d_state=4, pscan=False),
    "normed": _driver("mamba", "Mamba", "MambaConfig", d_state=8, inner_layernorms=True),
}
