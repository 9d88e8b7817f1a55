"""triton-sigmoid: attention with sigmoids in the place of softmax, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call the attention of whole sequences, causal and not."""
    module = import_module("triton_sigmoid.sigmoid_triton_dense")
    for causal, width, dtype in ((False, 32, "float16"), (True, 64, "bfloat16")):
        heads = [t.normal(1, 2, 96, width, dtype=dtype, grad=True) for _ in range(3)]
        found = t.call(module.sigmoid_attention, *heads, is_causal=causal)
        if found is not None:
            t.call(t.backward, found)


def padded(t: Tensors) -> None:
    """Call the attention of sequences of several lengths."""
    module = import_module("triton_sigmoid.sigmoid_triton_padded")
    heads = [t.normal(2, 2, 80, 64, dtype="float16", grad=True) for _ in range(3)]
    lengths = t.of([55, 80], "int32")
    found = t.call(module.sigmoid_attention_padded, *heads, lengths, lengths)
    if found is not None:
        t.call(t.backward, found)


CASES = {each.__name__: each for each in (attention, padded)}
