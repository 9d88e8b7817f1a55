"""crossentropy-triton: the cross entropy with its gradient in one pass."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def losses(t: Tensors) -> None:
    """Call the loss over vocabularies of 1,000 to 5,000 words, with ignored labels."""
    module = import_module("crossentropy_triton.crossentropy_tl")
    for tokens, words, dtype in ((24, 1000, "float32"), (12, 5000, "bfloat16"), (10, 3072, "float16")):
        logits = t.normal(tokens, words, dtype=dtype, scale=3.0, grad=True)
        labels = t.integers(0, words, tokens)
        labels[::5] = -100
        found = t.call(module.CrossEntropyFunction.apply, logits * 1.5, labels, -100)
        if found is not None:
            t.call((found * 1.7).backward)


CASES = {"losses": losses}
