"""colortransfer-triton: the colours of one image given to another."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def statistics(t: Tensors) -> None:
    """Call the transfer by moments, by wavelets, and the conversion of colours."""
    module, metrics = import_module("colortransfer_triton.api"), import_module("colortransfer_triton.metrics")
    for size in ((24, 32), (40, 36)):
        source, reference = t.uniform(1, 3, *size), t.uniform(1, 3, *size, low=0.2)
        t.call(module.adain, source, reference)
        t.call(module.wavelet, source, reference, levels=3)
        t.call(metrics.srgb_to_lab, source)


def transport(t: Tensors) -> None:
    """Call the transfers by optimal transport, and the table of colours."""
    module = import_module("colortransfer_triton.ot")
    source, reference = t.uniform(200, 3), t.uniform(180, 3)
    t.call(module.sliced_transport, source, source[:200] * 0.9, iterations=3)
    t.call(module.sinkhorn_plan, source, reference, iterations=4)
    images = [t.uniform(1, 3, 20, 24) for _ in range(2)]
    t.call(module.sliced_ot, *images, samples=128, lut_size=9, iterations=3)
    t.call(module.sinkhorn, *images, samples=96, lut_size=9, iterations=4)


CASES = {each.__name__: each for each in (statistics, transport)}
