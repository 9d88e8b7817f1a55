"""retention: attention by powers of scores, expanded states, and discounted sums."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def discounted(t: Tensors) -> None:
    """Call the discounted sum of states, forward and backward."""
    bare_package("retention")
    module = import_module("retention._discumsum.triton")
    x, gates = t.normal(1, 6, 2, 32, 16, grad=True), t.uniform(1, 6, 2, low=-1.0, grad=True)
    t.backward(t.call(module.DiscumsumTritonFunction.apply, x, gates))


def states(t: Tensors) -> None:
    """Call the sum of expanded keys times values."""
    bare_package("retention")
    module = import_module("retention._update_state.triton")
    k, v = (t.normal(1, 2, 128, 1, 32, dtype="bfloat16", scale=0.3, grad=True) for _ in range(2))
    t.backward(t.call(module._update_state.apply, k, v, 2))


def scores(t: Tensors) -> None:
    """Call attention by squares of scores, forward and backward."""
    bare_package("retention")
    module = import_module("retention._attention.triton")
    q, k, v = (t.normal(1, 128, 2, 32, dtype="bfloat16", scale=0.3, grad=True) for _ in range(3))
    gates = t.uniform(1, 128, 2, low=-0.2)
    t.backward(t.call(module._attention_fn, q, k, v, gates, 2, True, False, 0.2))


CASES = {each.__name__: each for each in (discounted, states, scores)}
