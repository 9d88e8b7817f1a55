"""Cut Cross-Entropy: the loss of a classifier without its logits in memory."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _loss(t: Tensors, dtype: str, **settings: Any) -> None:
    # Its platform check compiles with TorchInductor unless the implementation is named.
    f = import_module("cut_cross_entropy").linear_cross_entropy
    e, c = t.normal(48, 128, dtype=dtype, scale=0.3, grad=True), t.normal(600, 128, dtype=dtype, scale=0.3, grad=True)
    targets = t.integers(0, 600, 48)
    targets[5] = -100
    t.backward(f(e, c, targets, impl="cce", **settings))


def plain(t: Tensors) -> None:
    """Call the loss."""
    _loss(t, "bfloat16")


def soft_cap(t: Tensors) -> None:
    """Call the loss with a soft cap, of half precision."""
    _loss(t, "float16", softcap=20.0)


def unfiltered(t: Tensors) -> None:
    """Call the loss without skipping small gradients."""
    _loss(t, "bfloat16", filter_eps=None)


CASES = {each.__name__: each for each in (plain, soft_cap, unfiltered)}
