"""omnivoice-triton: norms with residuals and gates of a model of speech."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("omnivoice_triton.kernels")
    return import_module(f"omnivoice_triton.kernels.{name}")


def rows(t: Tensors) -> None:
    """Call norms and gates for several types and widths."""
    for dtype, length, width in (("float16", 11, 320), ("bfloat16", 7, 1100), ("float32", 20, 96)):
        x, y, weight = (
            t.normal(length, width, dtype=dtype),
            t.normal(length, width, dtype=dtype),
            t.normal(width, dtype=dtype),
        )
        t.call(_module("rms_norm").triton_rms_norm, x, weight)
        t.call(_module("fused_norm_residual").triton_fused_add_rms_norm, x, y, weight)
        t.call(_module("swiglu").triton_swiglu_forward, x, y)


CASES = {each.__name__: each for each in (rows,)}
