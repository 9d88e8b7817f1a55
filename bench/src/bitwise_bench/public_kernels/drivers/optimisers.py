"""TorchInductor: kernels of compiled steps of the optimisers of pytorch-optimizer."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _settings
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_NAMES = (
    "AdaBelief", "AdaBound", "AdaPNM", "AdaNorm", "Adan", "AdEMAMix", "ADOPT", "Amos", "Aida", "AvaGrad", "CAME",
    "DiffGrad", "FAdam", "Fromage", "FTRL", "Grams", "Gravity", "Kate", "Lamb", "LaProp", "LARS", "Lion", "MADGRAD",
    "MARS", "MSVAG", "Nero", "NovoGrad", "PAdam", "PNM", "QHAdam", "QHM", "RAdam", "Ranger", "SGDP", "SignSGD", "SM3",
    "SRMM", "StableAdamW", "SWATS", "Tiger", "Yogi", "AdaSmooth", "AggMo", "AdamP", "ScheduleFreeAdamW",
)  # fmt: skip


def _driver(name: str) -> Driver:
    def driver(t: Tensors) -> None:
        torch = t.torch
        parameters = [t.normal(*shape, grad=True) for shape in ((48, 70), (210,))]
        for parameter in parameters:
            parameter.grad = t.normal(*parameter.shape)
        optimiser: Any = getattr(import_module("pytorch_optimizer"), name)(parameters, lr=0.01)
        torch._dynamo.reset()
        with torch.no_grad(), _settings():
            torch.compile(optimiser.step, fullgraph=False)()
        torch._dynamo.reset()

    return driver


CASES: dict[str, Driver] = {name.lower(): _driver(name) for name in _NAMES}
