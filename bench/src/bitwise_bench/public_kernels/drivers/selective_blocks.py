"""TorchInductor: kernels of compiled state space models of minimamba, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(name: str, config: str, dtype: str = "float32", **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        module = import_module("minimamba")
        t.torch.manual_seed(47)
        model = getattr(module, name)(getattr(module, config)(d_model=40, n_layer=1, d_state=8, **settings))
        _step(t, model.to(t.device).to(t.dtype(dtype)).train(False), t.integers(0, 90, 2, 24))

    return driver


CASES: dict[str, Driver] = {
    "words": _driver("MambaForCausalLM", "MambaLMConfig", vocab_size=90),
    "features": _driver("MambaForFeatureExtraction", "MambaLMConfig", vocab_size=90),
}
