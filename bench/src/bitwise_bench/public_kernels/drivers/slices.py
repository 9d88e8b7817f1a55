"""flashslice: soft assignments of points to slices, the sums over them and the way back, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def _slices(t: Tensors, points: int, heads: int, width: int, slices: int, dtype: str) -> None:
    module = import_module("flashslice.kernels.slice_ops")
    x, values = (t.normal(1, points, heads, width, dtype=dtype, grad=True) for _ in range(2))
    weight, bias = t.normal(slices, width, scale=0.3, grad=True), t.normal(slices, scale=0.1, grad=True)
    tau = t.uniform(heads, low=0.5, high=1.0, grad=True)
    found = t.call(module.fused_slice, x, values, weight, bias, tau)
    if found is not None:
        t.call(t.backward, found)
    tokens = t.normal(1, heads, slices, width, grad=True)
    found = t.call(module.fused_deslice, x, weight, bias, tau, tokens)
    if found is not None:
        t.call(t.backward, found)


def tiles(t: Tensors) -> None:
    """Call the kernels that hold a head in one tile."""
    _slices(t, 96, 2, 32, 32, "float32")
    _slices(t, 80, 2, 16, 64, "bfloat16")


def blocks(t: Tensors) -> None:
    """Call the kernels for widths that are no power of two."""
    _slices(t, 72, 2, 24, 40, "float32")
    _slices(t, 64, 1, 48, 96, "bfloat16")


CASES = {each.__name__: each for each in (tiles, blocks)}
