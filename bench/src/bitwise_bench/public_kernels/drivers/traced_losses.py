"""lightning-thunder: cross entropies of classes and of probabilities, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


class _Executor:
    """Takes the place of an executor, with which nothing is registered."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """Keep nothing."""

    def register_operator(self, *given: Any, **named: Any) -> None:
        """Register nothing."""

    def register_implementation(self, *given: Any, **named: Any) -> None:
        """Register nothing."""


def _loss() -> Any:
    bare_package("thunder.executors")
    stub("thunder.extend", OperatorExecutor=_Executor, register_executor=lambda executor: None)
    stub(
        "thunder.executors.triton_utils", triton_version=lambda: "3.6.0", is_triton_version_at_least=lambda least: True
    )
    stub("thunder.torch", cross_entropy=None)
    return import_module("thunder.executors.triton_crossentropy_impl").cross_entropy


def _differentiated(t: Tensors, *arguments: Any, **settings: Any) -> None:
    found = t.call(_loss(), *arguments, **settings)
    if found is not None:
        t.call(t.backward, found)


def classes(t: Tensors) -> None:
    """Call losses of classes, with weights, ignored labels and smoothed labels, by several reductions."""
    for dtype, words, settings in (
        ("float32", 300, {"reduction": "mean"}),
        ("bfloat16", 1100, {"reduction": "sum", "ignore_index": 7}),
        ("float32", 257, {"reduction": "none", "label_smoothing": 0.1}),
    ):
        logits = t.normal(9, words, dtype=dtype, grad=True)
        _differentiated(t, logits, t.integers(0, words, 9), **settings)
    weights = t.uniform(300, low=0.5, high=2.0)
    _differentiated(t, t.normal(9, 300, grad=True), t.integers(0, 300, 9), weights, reduction="mean")
    _differentiated(t, t.normal(9, 300, grad=True), t.integers(0, 300, 9), weights, label_smoothing=0.2)


def distributions(t: Tensors) -> None:
    """Call losses of probabilities, with and without weights."""
    for dtype, weighted in (("float32", False), ("float16", True)):
        targets = t.normal(7, 200, dtype=dtype).softmax(-1)
        weights = t.uniform(200, low=0.5, high=2.0) if weighted else None
        _differentiated(t, t.normal(7, 200, dtype=dtype, grad=True), targets, weights, label_smoothing=0.1)


CASES = {each.__name__: each for each in (classes, distributions)}
