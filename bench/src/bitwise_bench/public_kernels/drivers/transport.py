"""flash-sinkhorn: optimal transport between clouds of points, with gradients."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _clouds(t: Tensors, first: int, second: int, width: int) -> list[Any]:
    return [t.uniform(first, width, grad=True), t.uniform(second, width, grad=True)]


def losses(t: Tensors) -> None:
    """Call the loss with its gradient, balanced and unbalanced."""
    module = import_module("flash_sinkhorn.samples_loss")
    for first, second, width, settings in (
        (70, 90, 3, {}),
        (64, 48, 16, {"reach": 0.5}),
        (80, 80, 5, {"debias": True}),
    ):
        loss = t.call(module.SamplesLoss, "sinkhorn", blur=0.1, scaling=0.3, **settings)
        found = None if loss is None else t.call(loss, *_clouds(t, first, second, width))
        if found is not None:
            t.call(found.sum().backward)


def potentials(t: Tensors) -> None:
    """Call single steps, and the use of the plan."""
    module = import_module("flash_sinkhorn.kernels.sinkhorn_triton_ott_sqeuclid")
    x, y = (each.detach() for each in _clouds(t, 60, 75, 8))
    weights = [t.torch.full((60,), -4.1, device=t.device), t.torch.full((75,), -4.3, device=t.device)]
    t.call(module.sinkhorn_potentials_sqeuclid, x, y, *weights, 0.1, 3)
    apply = import_module("flash_sinkhorn.kernels.apply_ott")
    f, g = t.normal(60, scale=0.1), t.normal(75, scale=0.1)
    t.call(apply.apply_plan_vec_sqeuclid, x, y, f, g, t.normal(75), eps=0.1, axis=1)
    t.call(apply.apply_plan_mat_sqeuclid, x, y, f, g, t.normal(75, 8), eps=0.1, axis=1)
    t.call(apply.mat5_sqeuclid, x, y, f, g, t.normal(60, 8), eps=0.1)


def costs(t: Tensors) -> None:
    """Call the transform of a cost with its gradient."""
    module = import_module("flash_sinkhorn.c_transform")
    x, y = _clouds(t, 50, 64, 6)
    found = t.call(module.c_transform_cost, x, y.detach(), t.normal(64, grad=True))
    if found is not None:
        t.call(found.sum().backward)


CASES = {each.__name__: each for each in (losses, potentials, costs)}
