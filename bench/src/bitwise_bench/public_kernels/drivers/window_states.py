"""sketchssm: states and queries of windows of gated delta rules."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from unittest.mock import patch

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def windows(t: Tensors) -> None:
    """Call the features of windows of 16 and of 8 tokens."""
    bare_package("sketchssm.calibration.collection.hooks")
    module = import_module("sketchssm.calibration.collection.hooks.kda_statistics")
    for window in (16, 8):
        q, k, v = (t.normal(1, 32, 2, 128) for _ in range(3))
        gates, beta = t.uniform(1, 32, 2, 128, low=-0.3), t.uniform(1, 32, 2)
        with patch.object(t.torch.accelerator, "device_index", lambda index: nullcontext(), create=True):
            t.call(module.features, q, k, v, gates, beta, window)


CASES = {each.__name__: each for each in (windows,)}
