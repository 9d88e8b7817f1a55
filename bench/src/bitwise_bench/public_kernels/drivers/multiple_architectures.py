"""cuda-triton-multiarch: softmax, norms, gates and attention."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _function(name: str, module: str = "") -> Any:
    bare_package("kernels")
    return getattr(import_module(f"kernels.{module or name}"), f"{name}_triton")


def rows(t: Tensors) -> None:
    """Call softmax, norms and gates."""
    for dtype, length, width in (("float32", 21, 200), ("float16", 12, 1000)):
        x, gate, weight = (
            t.normal(length, width, dtype=dtype),
            t.normal(length, width, dtype=dtype),
            t.normal(width, dtype=dtype),
        )
        t.call(_function("softmax"), x)
        t.call(_function("rmsnorm"), x, weight)
        t.call(_function("swiglu"), x, gate)
        t.call(_function("fused_rmsnorm_swiglu"), x, gate, weight)


def attention(t: Tensors) -> None:
    """Call attention, whole and causal."""
    for length, width in ((64, 64), (128, 32)):
        parts = [t.normal(length, width, dtype="float16") for _ in range(3)]
        t.call(_function("attention"), *parts)
        t.call(_function("flash_attention"), *parts)
        for causal in (False, True):
            t.call(
                _function("flash_attention_full"),
                *[t.normal(2, 2, length, width, dtype="float16") for _ in range(3)],
                causal,
            )


CASES = {each.__name__: each for each in (rows, attention)}
