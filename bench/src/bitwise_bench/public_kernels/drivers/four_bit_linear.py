"""otf-llm: a product with weights of four bits and scales of groups."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def linear(t: Tensors) -> None:
    """Call the product for several numbers of rows."""
    bare_package("otf_llm")
    module = import_module("otf_llm.otf_triton_kernel")
    for rows in (5, 32):
        packed, scales = t.integers(0, 256, 128, 64, dtype="uint8"), t.uniform(128, 2, dtype="float16")
        t.call(module.triton_fused_int4_linear, t.normal(rows, 128, dtype="float16"), packed, scales, 64)


CASES = {each.__name__: each for each in (linear,)}
