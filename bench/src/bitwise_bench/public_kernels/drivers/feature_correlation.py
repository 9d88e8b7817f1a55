"""local-corr-lumi: correlation of features at warped places."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def warped(t: Tensors) -> None:
    """Call the correlation for several widths and numbers of places."""
    function = import_module("local_corr.kernel").local_corr
    for channels, places in ((64, 9), (40, 16)):
        first, second = t.normal(2, 120, channels), t.normal(2, 10, 12, channels)
        t.call(function, first, second, t.uniform(2, 120, places, 2, low=-1.1))


CASES = {each.__name__: each for each in (warped,)}
