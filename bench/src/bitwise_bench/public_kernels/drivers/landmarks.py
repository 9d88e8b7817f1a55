"""dsalt: sparse attention over windows and landmarks, and the loss that contains the last product."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _without_tuning(module: Any, name: str) -> None:
    setattr(module, name, lambda *arguments, **keywords: None)


def windows(t: Tensors) -> None:
    """Call the attention of inference and of training."""
    inference = import_module("dsalt.kernels.dsalt_triton_attn")
    training = import_module("dsalt.kernels.dsalt_triton_train")
    _without_tuning(inference, "_maybe_autotune")
    _without_tuning(training, "_maybe_autotune_train")
    ends, heads = t.of([0, 40, 100], "int32"), 2
    for width in (32, 64):
        q, k, v = (t.normal(100, heads, width, dtype="float16", grad=True) for _ in range(3))
        marks = t.of([[[2 * k + shift for k in range(16)], [3 * k + shift for k in range(16)]] for shift in (0, 5)],
                     "int64")  # fmt: skip
        found = t.call(inference.dsalt_triton_attention, q, k, v, marks, t.normal(heads, 2, 16),
                       t.integers(4, 20, 100, dtype="int32"), ends)  # fmt: skip
        if found is not None:
            t.call(t.backward, found)
        found = t.call(training.dsalt_triton_train_attention, q, k, v, marks, t.normal(heads, 2, 16, grad=True),
                       t.uniform(100, low=4.0, high=20.0, grad=True), ends, 1.0, 4.0, 32)  # fmt: skip
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (windows,)}
