"""flash-attention-softmax-n: attention whose softmax adds a number to its denominator, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call the attention for several lengths, widths and added numbers."""
    bare_package("flash_attention_softmax_n.core")
    module = import_module("flash_attention_softmax_n.core.flash_attn_triton")
    function = next(value for name, value in vars(module).items()
                    if isinstance(value, type) and issubclass(value, t.torch.autograd.Function)).apply  # fmt: skip
    for causal, length, width, added, dtype in ((True, 128, 64, 1.0, "float16"), (False, 128, 32, 0.0, "float16"),
                                                (True, 256, 64, 0.5, "bfloat16")):  # fmt: skip
        parts = [t.normal(1, 2, length, width, dtype=dtype, grad=True) for _ in range(3)]
        found = t.call(function, *parts, causal, 0.2, added)
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (attention,)}
