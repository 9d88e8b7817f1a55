"""turboadam: steps of AdamW with a packed state."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _steps(t: Tensors, dtype: str, **settings: Any) -> None:
    parameters = [t.normal(*size, dtype=dtype, grad=True) for size in ((64, 96), (5120,), (70, 65))]
    optimiser = import_module("turboadam").TurboAdam(parameters, lr=0.01, **settings)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = t.normal(*parameter.shape, dtype=dtype)
        optimiser.step()


def single(t: Tensors) -> None:
    """Call steps on parameters of 32 bits."""
    _steps(t, "float32", weight_decay=0.1)


def half(t: Tensors) -> None:
    """Call steps on parameters of 16 bits."""
    _steps(t, "bfloat16")


CASES = {each.__name__: each for each in (single, half)}
