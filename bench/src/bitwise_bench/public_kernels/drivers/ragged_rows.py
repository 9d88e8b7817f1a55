"""ring-flash-attn: rows of several lengths, padded and packed."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def packed(t: Tensors) -> None:
    """Call both directions."""
    bare_package("ring_flash_attn")
    module = import_module("ring_flash_attn.triton_utils")
    ends = t.of([0, 5, 17, 30], "int32")
    t.call(module.flatten_varlen_lse, t.normal(3, 2, 13), ends)
    t.call(module.unflatten_varlen_lse, t.normal(30, 2), ends, 13)


CASES = {each.__name__: each for each in (packed,)}
