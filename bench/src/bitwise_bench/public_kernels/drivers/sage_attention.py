"""SageAttention: attention whose scores are products of integers of 8 bits."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _package() -> Any:
    return import_module("sageattention")


def _heads(t: Tensors, rows: int, width: int, dtype: str) -> tuple[Any, Any, Any]:
    q = t.normal(1, 4, rows, width, dtype=dtype)
    k, v = (t.normal(1, 2, rows, width, dtype=dtype) for _ in range(2))
    return q, k, v


def full(t: Tensors) -> None:
    """Call the attention of all tokens, and with heads last."""
    t.call(_package().sageattn, *_heads(t, 150, 64, "float16"))
    q, k, v = (each.transpose(1, 2).contiguous() for each in _heads(t, 77, 128, "bfloat16"))
    t.call(_package().sageattn, q, k, v, tensor_layout="NHD")


def causal(t: Tensors) -> None:
    """Call the causal attention."""
    t.call(_package().sageattn, *_heads(t, 200, 64, "bfloat16"), is_causal=True)


def wide_heads(t: Tensors) -> None:
    """Call the attention of heads of 96 numbers."""
    for is_causal in (False, True):
        t.call(_package().sageattn, *_heads(t, 130, 96, "float16"), is_causal=is_causal)


def variable_lengths(t: Tensors) -> None:
    """Call the attention of sequences of different lengths."""
    q = t.normal(137, 4, 64, dtype="float16")
    k, v = (t.normal(137, 2, 64, dtype="float16") for _ in range(2))
    starts = t.of([0, 100, 137], "int32")
    for is_causal in (False, True):
        t.call(_package().sageattn_varlen, q, k, v, starts, starts, 100, 100, is_causal=is_causal)


CASES = {each.__name__: each for each in (full, causal, wide_heads, variable_lengths)}
