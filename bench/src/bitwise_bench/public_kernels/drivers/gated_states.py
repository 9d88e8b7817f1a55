"""TorchInductor: kernels of compiled gated state spaces of gated-state-spaces-pytorch, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(name: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("gated_state_spaces_pytorch")
        module = import_module("gated_state_spaces_pytorch.gss")
        t.torch.manual_seed(59)
        model = getattr(module, name)(**settings).to(t.device).train(False)
        _step(t, model, t.integers(0, 90, 2, 40) if name == "GatedStateSpacesLM" else t.normal(2, 40, 48))

    return driver


CASES: dict[str, Driver] = {
    "layer": _driver("GSS", dim=48, dss_kernel_N=24, dim_expansion_factor=2),
    "reversed": _driver("GSS", dim=48, dss_kernel_N=16, dim_expansion_factor=2, reverse_seq=True),
    "words": _driver("GatedStateSpacesLM", num_tokens=90, dim=32, depth=1, dss_kernel_N=16, dim_expansion_factor=2),
}
