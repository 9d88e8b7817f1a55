"""flash-colsum: the sums of the columns of attention weights."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def sums(t: Tensors) -> None:
    """Call the sums with and without a causal mask, for one and for several sequences."""
    module = import_module("flash_colsum")
    for batch, queries, keys, causal, dtype in (
        (1, 80, 80, False, "float16"), (2, 96, 96, False, "bfloat16"), (1, 40, 72, True, "float16"),
    ):  # fmt: skip
        query = t.normal(batch, 2, queries, 64, dtype=dtype)
        t.call(module.flash_colsum, query, t.normal(batch, 2, keys, 64, dtype=dtype), is_causal=causal)


CASES = {"sums": sums}
