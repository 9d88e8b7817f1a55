"""flash-swiglu-mlp: the product with a gate through tensor memory accesses, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def gated(t: Tensors) -> None:
    """Call the product with a gate."""
    bare_package("flash_swiglu_mlp")
    function = import_module("flash_swiglu_mlp.ops").flash_swiglu
    for rows, width, hidden, dtype in ((128, 128, 256, "bfloat16"), (200, 192, 320, "float16")):
        found = t.call(function, t.normal(1, rows, width, dtype=dtype, grad=True), t.normal(hidden, width, dtype=dtype,
                       grad=True), t.normal(hidden, width, dtype=dtype, grad=True), t.normal(width, hidden, dtype=dtype,
                       grad=True))  # fmt: skip
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (gated,)}
