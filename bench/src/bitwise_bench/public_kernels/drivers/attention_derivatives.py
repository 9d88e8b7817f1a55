"""jvp-flash-attention: attention with its directional derivative, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call attention with and without tangents, causal and not."""
    module = import_module("jvp_flash_attention.jvp_attention")
    for causal, width, dtype in ((False, 32, "float16"), (True, 64, "bfloat16")):
        heads = [t.normal(1, 2, 64, width, dtype=dtype, grad=True) for _ in range(3)]
        found = t.call(module.attention, *heads, None, 0.0, causal)
        if found is not None:
            t.call(t.backward, found)
        plain, tangents = ([t.normal(1, 2, 64, width, dtype=dtype) for _ in range(3)] for _ in range(2))

        def attended(*parts: object, causal: bool = causal) -> object:
            return module.attention(*parts, None, 0.0, causal)

        t.call(t.torch.func.jvp, attended, tuple(plain), tuple(tangents))


CASES = {"attention": attention}
