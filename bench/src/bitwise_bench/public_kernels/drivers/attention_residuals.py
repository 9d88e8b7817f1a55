"""flash-attn-res: attention over the residuals of earlier blocks, in two phases."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def first_phase(t: Tensors) -> None:
    """Call the attention over blocks, forward and backward."""
    function = import_module("flash_attn_res").phase_1_batched_attention_triton_op
    blocks = t.normal(5, 2, 12, 128, dtype="bfloat16", grad=True)
    t.backward(t.call(function, blocks, t.normal(3, 128, dtype="bfloat16", grad=True), 1e-6))


def second_phase(t: Tensors) -> None:
    """Call the merge with the current block, forward and backward."""
    function = import_module("flash_attn_res").phase_2_online_softmax_merge_triton_op
    partial = t.normal(2, 12, 128, dtype="bfloat16", grad=True)
    query = t.normal(128, dtype="bfloat16", grad=True)
    before = t.normal(2, 12, 128, dtype="bfloat16", grad=True)
    t.backward(t.call(function, partial, query, before, t.normal(2, 12, grad=True), 1e-6))


CASES = {each.__name__: each for each in (first_phase, second_phase)}
