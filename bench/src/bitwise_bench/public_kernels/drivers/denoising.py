"""bm3d-triton: denoising of images by groups of similar blocks."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def images(t: Tensors) -> None:
    """Denoise a small image in one and in two steps."""
    module = import_module("bm3d_triton.api")
    t.call(module.denoise, t.uniform(1, 1, 40, 48), 0.1)
    t.call(module.denoise, t.uniform(1, 3, 32, 32), 0.1, two_step=False)


CASES = {"images": images}
