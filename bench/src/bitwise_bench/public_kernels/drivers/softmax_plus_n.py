"""flash-attention-softmax-n: attention whose softmax adds a number to its denominator, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call the attention for several lengths, widths and added numbers."""
    bare_package("flash_attention_softmax_n.core")
    module = import_module("flash_attention_softmax_n.core.flash_attn_triton")
    found: list[Any] = [each for each in vars(module).values() if isinstance(each, type)]
    function = next(each for each in found if issubclass(each, t.torch.autograd.Function)).apply
    for causal, length, width, added, dtype in ((True, 128, 64, 1.0, "float16"), (False, 128, 32, 0.0, "float16"),
                                                (True, 256, 64, 0.5, "bfloat16")):  # fmt: skip
        parts = [t.normal(1, 2, length, width, dtype=dtype, grad=True) for _ in range(3)]
        output = t.call(function, *parts, causal, 0.2, added)
        if output is not None:
            t.call(t.backward, output)


CASES = {each.__name__: each for each in (attention,)}
