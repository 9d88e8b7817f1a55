"""TorchInductor: kernels of a compiled graph network of egnn-pytorch, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(**settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("egnn_pytorch")
        t.torch.manual_seed(41)
        model = import_module("egnn_pytorch.egnn_pytorch").EGNN(dim=24, **settings).to(t.device)
        _step(t, model.train(False), t.normal(2, 14, 24), t.normal(2, 14, 3))

    return driver


CASES: dict[str, Driver] = {
    "dense": _driver(),
    "normed": _driver(norm_feats=True, norm_coors=True, soft_edges=True),
    "nearest": _driver(num_nearest_neighbors=4, fourier_features=2),
}
