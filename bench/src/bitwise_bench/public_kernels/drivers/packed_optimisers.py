"""flashoptim: optimisers with quantised states and corrections of narrow parameters."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _steps(t: Tensors, name: str, dtype: str, **settings: Any) -> None:
    module = import_module("flashoptim")
    parameter = t.torch.nn.Parameter(t.normal(40, 65, dtype=dtype))
    optimiser = getattr(module, name)([parameter], **settings)
    for _ in range(2):
        parameter.grad = t.normal(40, 65, dtype=dtype)
        t.call(optimiser.step)


def adam(t: Tensors) -> None:
    """Call two steps of AdamW for bf16 parameters."""
    _steps(t, "FlashAdamW", "bfloat16")


def adam_of_single_precision(t: Tensors) -> None:
    """Call two steps of Adam for fp32 parameters without quantised states."""
    _steps(t, "FlashAdam", "float32", quantize=False, master_weight_bits=None)


def momentum(t: Tensors) -> None:
    """Call two steps of SGD with momentum."""
    _steps(t, "FlashSGD", "bfloat16", momentum=0.9, nesterov=True)


def signs(t: Tensors) -> None:
    """Call two steps of Lion."""
    _steps(t, "FlashLion", "bfloat16", master_weight_bits=32)


def states(t: Tensors) -> None:
    """Call the quantisation of states, and the corrections of parameters."""
    module = import_module("flashoptim.optimizers")
    numbers = t.normal(33, 64)
    found = t.call(module.quantize, numbers)
    if found is not None:
        t.call(module.dequantize, *found)
    found = t.call(module.quantize, numbers.abs(), signed=False, sqrt=True)
    narrow = numbers.to(t.dtype("bfloat16"))
    bits = t.call(module.compute_ecc_bits, numbers, narrow)
    if bits is not None:
        t.call(module.reconstruct_fp32_param, narrow, bits)


CASES = {each.__name__: each for each in (adam, adam_of_single_precision, momentum, signs, states)}
