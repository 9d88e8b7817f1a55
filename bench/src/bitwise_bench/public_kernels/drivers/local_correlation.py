"""localcorr: correlations of pixels with neighbourhoods in another image."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def pyramids(t: Tensors) -> None:
    """Call the correlation at the levels of a pyramid, forward and backward."""
    module = import_module("localcorr.blocks")
    for name, levels, radius in (("LocalCorrTritonBlock", 2, 2), ("LocalCorrTritonFusedBlock", 2, 3)):
        maps = [t.normal(1, 32, 12, 16, grad=True) for _ in range(2)]
        block = t.call(getattr(module, name), *maps, levels, radius)
        found = None if block is None else t.call(block, t.uniform(1, 2, 12, 16, low=0.0, high=11.0))
        if found is not None:
            t.call(t.backward, found)


def neighbourhoods(t: Tensors) -> None:
    """Call the correlation at the places of a square around a pixel, forward and backward."""
    module = import_module("localcorr.triton.spatial_corr")
    for size, patch, dtype in (((1, 24, 10, 14), 5, "float32"), ((2, 32, 8, 12), 7, "float16")):
        sampler = module.TritonSpatialCorrelationSampler(patch_size=patch)
        found = t.call(sampler, *(t.normal(*size, dtype=dtype, grad=True) for _ in range(2)))
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (pyramids, neighbourhoods)}
