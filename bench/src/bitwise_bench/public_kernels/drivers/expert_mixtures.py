"""TorchInductor: kernels of compiled mixtures of experts of mixture-of-experts, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(name: str, dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(43)
        model = getattr(import_module("mixture_of_experts.mixture_of_experts"), name)(dim=40, **settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)).train(False), t.normal(2, 30, 40, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "flat": _driver("MoE", "float32", num_experts=6, hidden_dim=72, second_policy_eval="all"),
    "ranked": _driver("MoE", "float32", num_experts=4, hidden_dim=48, second_policy_eval="none"),
    "nested": _driver("HeirarchicalMoE", "float32", num_experts=(2, 3), hidden_dim=40, second_policy_eval="none"),
}
