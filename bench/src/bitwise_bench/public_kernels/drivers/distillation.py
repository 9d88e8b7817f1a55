"""orda-kernel: losses of distillation that contain the last product, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors

_DIVERGENCES = ("forward", "reverse", "jeffreys", "renyi")


def teachers(t: Tensors) -> None:
    """Call the losses of several divergences with teachers of three kinds."""
    module = import_module("orda_kernel")
    for divergence in _DIVERGENCES:
        for rows, vocabulary, dtype in ((24, 300, "bfloat16"), (17, 700, "float32")):
            student = t.normal(rows, 48, dtype=dtype, grad=True)
            weight = t.normal(vocabulary, 48, dtype=dtype, grad=True, scale=0.2)
            other = t.normal(vocabulary, 48, dtype=dtype, scale=0.2)
            teacher = module.SeparateTeacher(t.normal(rows, 48, dtype=dtype), other)
            found = t.call(module.distillation_loss, student, weight, t.integers(0, vocabulary, rows), teacher,
                           kl_weight=0.7, kl_temperature=1.5, kl_divergence=divergence, backend="triton")  # fmt: skip
            if found is not None:
                t.call(lambda output: output.loss.backward(), found)


CASES = {each.__name__: each for each in (teachers,)}
