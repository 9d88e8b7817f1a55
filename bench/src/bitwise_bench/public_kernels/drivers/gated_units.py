"""TorchInductor: kernels of compiled gated attention units of FLASH-pytorch, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(name: str, dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("flash_pytorch")
        module = import_module("flash_pytorch.flash_pytorch")
        t.torch.manual_seed(37)
        model = getattr(module, name)(**settings).to(t.device).to(t.dtype(dtype)).train(False)
        inputs = t.integers(0, 97, 2, 50) if name == "FLASHTransformer" else t.normal(2, 50, 48, dtype=dtype)
        _step(t, model, inputs)

    return driver


CASES: dict[str, Driver] = {
    "units": _driver("GAU", "float32", dim=48, query_key_dim=24, causal=True),
    "laplacian": _driver("GAU", "bfloat16", dim=48, query_key_dim=24, laplace_attn_fn=True, rel_pos_bias=True),
    "groups": _driver("FLASH", "float32", dim=48, group_size=16, query_key_dim=24, causal=True),
    "layers": _driver(
        "FLASHTransformer", "float32", num_tokens=97, dim=48, depth=1, group_size=16, norm_type="scalenorm"
    ),
}
