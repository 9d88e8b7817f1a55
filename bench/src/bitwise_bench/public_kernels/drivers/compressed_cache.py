"""fused-turboquant: a cache of rotated keys with few bits."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def keys(t: Tensors) -> None:
    """Call the rotation with quantisation, the way back, and the scores of queries."""
    module = import_module("fused_turboquant.core.quantizer")
    scores = import_module("fused_turboquant.kernels.triton_attention").fused_qk_scores_rht
    for bits, width in ((2, 64), (3, 128), (4, 64)):
        quantiser = module.TurboQuantMSE(width, bits, device=t.device)
        packed = t.call(quantiser.encode, t.normal(2, 2, 24, width))
        if packed is not None:
            t.call(quantiser.decode, packed)
        levels = t.integers(0, 1 << bits, 2, 2, 24, width, dtype="uint8")
        t.call(scores, t.normal(2, 4, 3, width), levels, t.uniform(2, 2, 24), t.normal(1 << bits), 0.125, bits)


CASES = {"keys": keys}
