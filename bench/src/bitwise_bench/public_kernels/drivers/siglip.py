"""siglip-kernel: losses between images and texts by sigmoids, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _features(t: Tensors, count: int, width: int, dtype: str) -> list[Any]:
    found = []
    for _ in range(2):
        each = t.normal(count, width)
        found.append((each / each.norm(dim=-1, keepdim=True)).to(t.dtype(dtype)).requires_grad_())
    return found


def _loss(t: Tensors, module: str, name: str, count: int, width: int, dtype: str, *settings: Any) -> None:
    function = getattr(import_module(f"siglip_kernel.{module}"), name)
    temperature, bias = t.of([1.5], "float32").squeeze(), t.of([-2.0], "float32").squeeze()
    found = t.call(function, *_features(t, count, width, dtype), temperature.requires_grad_(), bias.requires_grad_(),
                   *settings)  # fmt: skip
    if found is not None:
        t.call(found.backward)


def chunks(t: Tensors) -> None:
    """Call the losses that take the images in chunks."""
    _loss(t, "fused_chunked_bf16", "fused_chunked_bf16_siglip_loss", 96, 64, "bfloat16", 48)
    _loss(t, "fused_linear_sigmoid_bce", "fused_siglip_loss", 80, 48, "float32", 40)
    _loss(t, "fused_chunked_epilogue", "fused_chunked_epilogue_siglip_loss", 96, 64, "bfloat16", 48)


def fused(t: Tensors) -> None:
    """Call the losses in which the product and the sigmoid are one kernel."""
    _loss(t, "fused_siglip_kernel", "fully_fused_siglip_loss", 64, 64, "float32")
    _loss(t, "fused_siglip_v2", "fused_siglip_v2_loss", 72, 96, "bfloat16")
    _loss(t, "hopper_kernel", "hopper_fused_siglip_loss", 128, 64, "bfloat16")


def plus(t: Tensors) -> None:
    """Call the loss with groups."""
    _loss(t, "fused_siglip_plus", "fused_siglip_plus_loss", 64, 64, "bfloat16")


CASES = {each.__name__: each for each in (chunks, fused, plus)}
