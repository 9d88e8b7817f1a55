"""torch-optimi: optimisers of low precision, with compensated sums."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _named(name: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        for dtype, lengths in (("float32", (900, 70)), ("bfloat16", (1300,))):
            parameters = [t.normal(each, dtype=dtype, grad=True) for each in lengths]
            for parameter in parameters:
                parameter.grad = t.normal(*parameter.shape, dtype=dtype)
            found = getattr(import_module("optimi"), name)(parameters, lr=0.01, triton=True, **settings)
            for _ in range(2):
                t.call(found.step)

    return driver


CASES: dict[str, Driver] = {
    "adam": _named("Adam"),
    "adamw": _named("AdamW", weight_decay=0.1),
    "adan": _named("Adan", weight_decay=0.02),
    "lion": _named("Lion", weight_decay=0.1),
    "radam": _named("RAdam"),
    "ranger": _named("Ranger", weight_decay=0.1),
    "sgd": _named("SGD", momentum=0.9),
    "stableadamw": _named("StableAdamW"),
}
