"""flash-semicrf: partition functions and best segmentations of semi-Markov random fields."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _scores(t: Tensors, dtype: str, grad: bool = True) -> tuple[object, ...]:
    sums = t.normal(2, 25, 4, dtype=dtype).cumsum(1).requires_grad_(grad)
    rest = (t.normal(4, 4, dtype=dtype, grad=grad), t.normal(5, 4, dtype=dtype, grad=grad))
    return sums, *rest, t.of([24, 17], "int64")


def partitions(t: Tensors) -> None:
    """Call the logarithm of the partition function, forward and backward."""
    bare_package("flash_semicrf.streaming")
    module = import_module("flash_semicrf.streaming.autograd")
    t.backward(t.call(module.semi_crf_streaming_forward, *_scores(t, "float64"), 5))
    t.backward(t.call(module.semi_crf_streaming_forward, *_scores(t, "float32"), 5))


def segmentations(t: Tensors) -> None:
    """Call the best segmentation."""
    bare_package("flash_semicrf.streaming")
    module = import_module("flash_semicrf.streaming.autograd")
    t.call(module.semi_crf_streaming_forward, *_scores(t, "float64", False), 5, semiring="max")


CASES = {each.__name__: each for each in (partitions, segmentations)}
