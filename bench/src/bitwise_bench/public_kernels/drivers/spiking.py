"""tetherpy: neurons that spike over steps of time, linear attention and encodings, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _one(t: Tensors, value: float) -> Any:
    return t.of([value], "float32")


def neurons(t: Tensors) -> None:
    """Call the leaky, the parametric and the adaptive neurons."""
    functions = {
        name: getattr(import_module(f"tether.functional.{name.lower()}"), f"{name}SubFunction").apply
        for name in ("LIF", "PLIF", "ALIF")
    }
    for steps, count in ((6, 300), (35, 1100)):
        x, start = t.normal(steps, count, grad=True), t.empty(count)
        one, two, decay = _one(t, 1.0), _one(t, 2.0), _one(t, 0.9)
        results = [
            *(t.call(functions["LIF"], x, start, decay, one, two, surrogate) for surrogate in (0, 1)),
            t.call(functions["PLIF"], x, start, t.uniform(count), t.uniform(count), two, 0),
            t.call(functions["ALIF"], x, start, t.empty(count), decay, _one(t, 0.95), one, _one(t, 0.1), two),
        ]
        for found in results:
            if found is not None:
                t.call(t.backward, found)


def fused(t: Tensors) -> None:
    """Call the product with neurons, the linear attention and the encoding by rates."""
    t.call(import_module("tether.kernels.linear_lif").linear_lif_fwd, t.normal(5, 20, 48), t.normal(70, 48))
    q, k, v = (t.uniform(4, 2, 2, 16, 32) for _ in range(3))
    t.call(import_module("tether.kernels.attention").causal_linear_attention_fused, q, k, v)
    t.call(import_module("tether.kernels.encoding").rate_encoding_triton, t.uniform(6, 50), 7)


CASES = {each.__name__: each for each in (neurons, fused)}
