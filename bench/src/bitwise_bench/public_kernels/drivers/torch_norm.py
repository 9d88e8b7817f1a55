"""torchnorm: norms of rows, forward and backward, of widths that are no power of two among others."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _norm(t: Tensors, name: str, width: int, dtype: str, **settings: Any) -> Any:
    module = import_module("torchnorm.layer_norm" if name == "LayerNorm" else "torchnorm.rms_norm")
    found = getattr(module, name)(width, **settings).to(t.device).to(t.dtype(dtype))
    for parameter in found.parameters():
        parameter.data.copy_(1 + t.normal(*parameter.shape, dtype=dtype, scale=0.25))
    return found


def narrow(t: Tensors) -> None:
    """Call the norms of rows of 96 to 320 numbers of 16 bits."""
    for name, rows, width, dtype in (("LayerNorm", 17, 96, "bfloat16"), ("RMSNorm", 24, 320, "float16")):
        t.backward(_norm(t, name, width, dtype)(t.normal(rows, width, dtype=dtype, grad=True)))


def wide(t: Tensors) -> None:
    """Call the norms of rows of 1,536 and 3,000 numbers of 32 bits."""
    for name, rows, width in (("LayerNorm", 6, 1536), ("RMSNorm", 5, 3000)):
        t.backward(_norm(t, name, width, "float32")(t.normal(rows, width, grad=True)))


def residual(t: Tensors) -> None:
    """Call the norm of a sum with a residual."""
    for width, dtype in ((640, "bfloat16"), (1000, "float32")):
        norm = _norm(t, "FusedAddRMSNorm", width, dtype)
        norm(t.normal(12, width, dtype=dtype), t.normal(12, width, dtype=dtype))


CASES = {each.__name__: each for each in (narrow, wide, residual)}
