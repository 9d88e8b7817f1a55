"""moe-ops: routing to experts, and products of groups of rows."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def routing(t: Tensors) -> None:
    """Call the choice of the experts, forward and backward."""
    module = import_module("moe_ops.fused_topk_softmax_ops")
    for tokens, experts, count, dtype in ((40, 8, 2, "bfloat16"), (33, 24, 4, "float32"), (64, 64, 6, "float32")):
        logits = t.normal(tokens, experts, dtype=dtype, grad=True)
        found = t.call(module.fused_topk_softmax, logits, count)
        if found is not None:
            t.call(t.backward, found[0])


def permutation(t: Tensors) -> None:
    """Call the permutation of tokens by expert and its inverse, forward and backward."""
    order, back = import_module("moe_ops.permute_ops"), import_module("moe_ops.unpermute_ops")
    for tokens, experts, count, width, dtype in ((24, 4, 2, 96, "bfloat16"), (40, 8, 3, 160, "float32")):
        rows = t.normal(tokens, width, dtype=dtype, grad=True)
        experts_of = t.integers(0, experts, tokens, count, dtype="int32")
        found = t.call(order.permute, rows, experts_of, 0, experts)
        if found is None:
            continue
        weights = t.uniform(tokens, count, grad=True)
        again = t.call(back.unpermute, found[0], found[1], weights, tokens, count)
        if again is not None:
            t.call(t.backward, again)


def grouped(t: Tensors) -> None:
    """Call the product of each group of rows with the matrix of its expert, forward and backward."""
    for module, dtype in (("grouped_gemm_ops", "bfloat16"), ("grouped_gemm_ops_sm90", "float16")):
        rows = t.normal(160, 64, dtype=dtype, grad=True)
        weights = t.normal(4, 96, 64, dtype=dtype, grad=True)
        offsets = t.of([0, 48, 48, 113, 160], "int32")
        found = t.call(import_module(f"moe_ops.{module}").grouped_gemm, rows, weights, offsets)
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (routing, permutation, grouped)}
