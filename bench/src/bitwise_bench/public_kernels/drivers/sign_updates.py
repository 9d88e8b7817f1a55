"""lion-pytorch: the update of parameters by the signs of interpolated gradients."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def updates(t: Tensors) -> None:
    """Call two steps for fp32 parameters, and one for bf16 parameters."""
    update = import_module("lion_pytorch.triton").update_fn
    parameter, average = t.normal(33, 65), t.normal(33, 65)
    for _ in range(2):
        t.call(update, parameter, t.normal(33, 65), average, 1e-3, 0.01, 0.9, 0.99)
    t.call(update, t.normal(512, dtype="bfloat16"), t.normal(512, dtype="bfloat16"),
           t.normal(512, dtype="bfloat16"), 1e-2, 0.1, 0.95, 0.98)  # fmt: skip


def steps(t: Tensors) -> None:
    """Call a step of the optimiser with its fused update."""
    optimiser_type = import_module("lion_pytorch").Lion
    parameter = t.torch.nn.Parameter(t.normal(40, 24))
    optimiser = optimiser_type([parameter], lr=1e-3, weight_decay=0.02, use_triton=True)
    parameter.grad = t.normal(40, 24)
    t.call(optimiser.step)


CASES = {each.__name__: each for each in (updates, steps)}
