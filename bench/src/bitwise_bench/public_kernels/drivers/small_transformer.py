"""triton-transformer: layer norms, softmaxes, products with an activation, and dropout."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def norms(t: Tensors) -> None:
    """Call the layer norm in both forms, forward and backward."""
    bare_package("triton_transformer")
    module = import_module("triton_transformer.layernorm")
    for rows, columns, stable in ((9, 200, False), (6, 512, True)):
        x, weight = t.normal(rows, columns, grad=True), t.normal(columns, grad=True)
        t.backward(t.call(module.layernorm, x, weight, 1e-5, True, stable))
        t.call(module.layernorm, x.detach(), weight.detach(), 1e-5, True, stable)


def softmaxes(t: Tensors) -> None:
    """Call the softmax with and without a causal mask, forward and backward."""
    bare_package("triton_transformer")
    module = import_module("triton_transformer.softmax")
    for causal in (False, True):
        t.backward(t.call(module.softmax, t.normal(3, 40, 40, grad=True), causal, True))


def products(t: Tensors) -> None:
    """Call products of batches of matrices, alone and with a squared activation."""
    bare_package("triton_transformer")
    module = import_module("triton_transformer.bmm")
    x, weight = t.normal(2, 48, 64, dtype="float16"), t.normal(64, 80, dtype="float16")
    t.call(module.triton_bmm, x, weight)
    t.call(module.triton_bmm, x, weight, module.relu_squared_activation)


def dropped(t: Tensors) -> None:
    """Call dropout with a seed."""
    bare_package("triton_transformer")
    module = import_module("triton_transformer.dropout")
    t.call(module.seeded_dropout, t.normal(3, 700), 0.3, 17)


CASES = {each.__name__: each for each in (norms, softmaxes, products, dropped)}
