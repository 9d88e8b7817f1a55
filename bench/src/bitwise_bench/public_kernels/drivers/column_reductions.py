"""flash-colreduce: sums, means and maxima over the columns of attention."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def columns(t: Tensors) -> None:
    """Call the reductions, causal and not."""
    function = import_module("flash_colreduce").flash_colreduce
    q, k = t.normal(1, 2, 150, 64, dtype="float16"), t.normal(1, 2, 200, 64, dtype="float16")
    t.call(function, q, k, "sum")
    t.call(function, q, k, "max", is_causal=True)


def columns_in_bfloat16(t: Tensors) -> None:
    """Call the mean, with a head dimension that is padded."""
    function = import_module("flash_colreduce").flash_colreduce
    t.call(function, *(t.normal(2, 1, 90, 48, dtype="bfloat16") for _ in range(2)), "mean", is_causal=True)


CASES = {each.__name__: each for each in (columns, columns_in_bfloat16)}
