"""saga-activation: an activation with a gate from neighbouring pixels, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def gates(t: Tensors) -> None:
    """Call the gated activation on images of three types."""
    function = import_module("saga.activation").SAGAFusedFunction
    for size, dtype in (((2, 12, 9, 11), "float32"), ((1, 16, 16, 24), "bfloat16"), ((3, 7, 8, 8), "float16")):
        images = [t.normal(*size, dtype=dtype, grad=True) for _ in range(3)]
        t.backward(function.apply(*images, 0.7)[0])


CASES = {"gates": gates}
