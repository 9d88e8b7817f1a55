"""cache-dit: fp8 rows for communication, and attention of two parts of the keys merged."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module() -> Any:
    bare_package("cache_dit.kernels")
    return import_module("cache_dit.kernels.triton")


def rows(t: Tensors) -> None:
    """Call the quantisation of rows with their scale behind them, and back."""
    module = _module()
    for width in (96, 1536):
        found = t.call(module.fp8_comm_per_token_quant, t.normal(2, 17, width, dtype="bfloat16"))
        if found is not None:
            t.call(module.fp8_comm_per_token_dequant, found)


def heads(t: Tensors) -> None:
    """Call the quantisation of heads in another order, and back."""
    module = _module()
    found = t.call(module.fp8_comm_qkv_permute_quant, t.normal(2, 9, 2, 3, 64, dtype="bfloat16"))
    if found is not None:
        t.call(module.fp8_comm_qkv_permute_dequant, found[0].contiguous())


def parts(t: Tensors) -> None:
    """Call the merge of attention over two parts of the keys."""
    module = _module()
    shape = (2, 19, 3, 64)
    t.call(module.fused_merge_attn_states, t.normal(*shape, dtype="bfloat16"), t.normal(2, 19, 3, 1),
           t.normal(*shape, dtype="bfloat16"), t.normal(2, 19, 3, 1))  # fmt: skip


CASES = {each.__name__: each for each in (rows, heads, parts)}
