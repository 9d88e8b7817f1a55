"""triformer: the parts of transformers, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def norms(t: Tensors) -> None:
    """Call the norms."""
    for width, dtype in ((144, "float32"), (500, "bfloat16")):
        x, weight = t.normal(20, width, dtype=dtype, grad=True), t.normal(width, dtype=dtype, grad=True)
        for found in (
            t.call(import_module("triformer.layernorm").Fast_Layernorm.apply, x, weight,
                   t.normal(width, dtype=dtype, grad=True), 1e-5),
            t.call(import_module("triformer.rms_norm").FastRMSNorm.apply, x, weight, 1e-6),
        ):  # fmt: skip
            if found is not None:
                t.call(t.backward, found)


def parts(t: Tensors) -> None:
    """Call softmax, the gated unit and dropout."""
    for causal in (False, True):
        found = t.call(import_module("triformer.softmax").TritonSoftmax(causal), t.normal(2, 3, 40, 40, grad=True))
        if found is not None:
            t.call(t.backward, found)
    gates = [t.normal(2, 9, 200, dtype="float16", grad=True) for _ in range(2)]
    found = t.call(import_module("triformer.swiglu").FastSwigluFunction.apply, *gates)
    if found is not None:
        t.call(t.backward, found)
    found = t.call(import_module("triformer.dropout").TritonDropout.apply, t.normal(30, 70, grad=True), 0.3, 17)
    if found is not None:
        t.call(t.backward, found)


def losses(t: Tensors) -> None:
    """Call the cross entropy in chunks."""
    module = import_module("triformer.cross_entropy")
    for reduction, words in (("mean", 900), ("sum", 2048)):
        loss = module.TritonCrossEntropyLoss(0, reduction, 2)
        found = t.call(loss, t.normal(16, words, grad=True), t.integers(0, words, 16))
        if found is not None:
            t.call(found.backward)


CASES = {each.__name__: each for each in (norms, parts, losses)}
