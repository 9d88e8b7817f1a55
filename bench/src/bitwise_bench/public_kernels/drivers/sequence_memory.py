"""TorchInductor: kernels of compiled layers of performer-pytorch: attention by random features."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("performer_pytorch")
        stub("local_attention", LocalAttention=None)
        stub("axial_positional_embedding", AxialPositionalEmbedding=None)
        t.torch.manual_seed(29)
        module = import_module("performer_pytorch.performer_pytorch")
        model = module.Performer(dim=64, depth=1, heads=2, dim_head=32, **settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)).train(False), t.normal(2, 40, 64, dtype=dtype))

    return driver


CASES: dict[str, Driver] = {
    "softmax": _driver("float32"),
    "generalised": _driver("float32", generalized_attention=True),
    "scaled": _driver("float32", use_scalenorm=True, ff_glu=True),
    "reversed": _driver("bfloat16", use_rezero=True, nb_features=24),
}
