"""ebt-flash-attention: attention over two streams, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def streams(t: Tensors) -> None:
    """Call the attention of the observed and the predicted stream."""
    function = import_module("ebt_flash_attention.ebt_attention").EBTAttn.fwd
    for causal, length, width, dtype in (
        (True, 64, 32, "float16"),
        (True, 128, 64, "bfloat16"),
        (True, 96, 64, "float16"),
    ):
        parts = [t.normal(1, 2, length, width, dtype=dtype, grad=True) for _ in range(6)]
        found = t.call(function, *parts, None, causal, 0.2, False, False)
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (streams,)}
