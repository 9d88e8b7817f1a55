"""luminamoon: steps of an optimiser with bounded updates and stochastic rounding."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _steps(t: Tensors, dtype: str, **settings: Any) -> None:
    bare_package("luminamoon.optimizer")
    module = import_module("luminamoon.optimizer.luminav")
    parameters = [t.torch.nn.Parameter(t.normal(*shape, dtype=dtype)) for shape in ((40, 65), (130,))]
    optimiser = module.LuminaV(parameters, **settings)
    for _ in range(2):
        for each in parameters:
            each.grad = t.normal(*each.shape, dtype=dtype)
        t.call(optimiser.step)


def two_buffers(t: Tensors) -> None:
    """Call two steps with two states of each parameter."""
    _steps(t, "float32")


def one_buffer(t: Tensors) -> None:
    """Call two steps with one state of each parameter."""
    _steps(t, "float32", buffer=1)


def narrow(t: Tensors) -> None:
    """Call two steps of narrow parameters."""
    _steps(t, "bfloat16", cautious=False)


def radial(t: Tensors) -> None:
    """Call two steps that are bounded by a norm, in several passes."""
    _steps(t, "float32", bound_type="radial", centered_defect=True, fused_single_pass=False)


CASES = {each.__name__: each for each in (two_buffers, one_buffer, narrow, radial)}
