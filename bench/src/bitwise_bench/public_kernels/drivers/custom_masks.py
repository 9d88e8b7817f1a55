"""flashattention2-custom-mask: attention with a mask that the caller gives, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def masked(t: Tensors) -> None:
    """Call attention with a mask of random places."""
    module = import_module("fa2_custom_mask.fa2_custom_mask")
    q, k, v = (t.normal(1, 2, 128, 32, dtype="float16", scale=0.5, grad=True) for _ in range(3))
    mask = t.integers(0, 2, 1, 2, 128, 128, dtype="bool")
    t.backward(t.call(module._attention.apply, q, k, v, mask, 0.18))


def unmasked(t: Tensors) -> None:
    """Call attention without a mask."""
    module = import_module("fa2_custom_mask.fa2_custom_mask")
    q, k, v = (t.normal(1, 2, 128, 64, dtype="float16", scale=0.5, grad=True) for _ in range(3))
    t.backward(t.call(module._attention.apply, q, k, v, None, 0.125))


CASES = {each.__name__: each for each in (masked, unmasked)}
