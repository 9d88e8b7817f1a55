"""spconv-triton: convolutions and pools of sparse grids, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from unittest.mock import patch

from bitwise_bench.public_kernels.tensors import Tensors


def _module() -> Any:
    with patch("importlib.metadata.version", return_value="1.0.0"):
        return import_module("spconv_triton.pytorch")


def _grid(t: Tensors, width: int, dtype: str) -> Any:
    places = t.torch.unique(t.integers(0, 9, 120, 3, dtype="int32").cpu(), dim=0).to(t.device)
    indices = t.torch.cat([t.torch.zeros_like(places[:, :1]), places], 1).contiguous()
    features = t.normal(len(places), width, dtype=dtype, grad=True)
    return _module().SparseConvTensor(features, indices, [9, 9, 9], 1)


def convolutions(t: Tensors) -> None:
    """Call convolutions that keep the places, and that find new ones."""
    module = _module()
    for name, dtype in (("SubMConv3d", "float32"), ("SparseConv3d", "float16")):
        layer = getattr(module, name)(16, 32, 3, bias=True, indice_key=name).to(t.device).to(t.dtype(dtype))
        found = t.call(layer, _grid(t, 16, dtype))
        if found is not None:
            t.call(t.backward, found.features)


def pools(t: Tensors) -> None:
    """Call the pools."""
    module = _module()
    for name in ("SparseMaxPool3d", "SparseAvgPool3d"):
        found = t.call(getattr(module, name)(2, 2), _grid(t, 24, "float32"))
        if found is not None:
            t.call(t.backward, found.features)


CASES = {each.__name__: each for each in (convolutions, pools)}
