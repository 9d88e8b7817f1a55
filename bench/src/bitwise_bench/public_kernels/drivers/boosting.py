"""ibu-boost: histograms of gradients by node, and the scores of splits."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def splits(t: Tensors) -> None:
    """Call the histograms, and the scores of splits over histograms."""
    bare_package("ibu_boost")
    module = import_module("ibu_boost.kernels.screening_split_triton")
    for rows, features, nodes, bins in ((200, 5, 2, 16), (500, 3, 4, 40)):
        binned = t.integers(0, bins, rows, features, dtype="uint8")
        g, h, node = t.normal(rows), t.uniform(rows), t.integers(0, nodes, rows, dtype="int32")
        t.call(module.build_histogram_triton, binned, g, h, node, nodes, bins)
        t.call(module.build_missing_stats_triton, binned, g, h, node, nodes)
        params = t.call(import_module("ibu_boost.screening_split").ScreeningParams)
        if params is not None:
            t.call(module.screening_split_triton, t.normal(nodes, features, bins), t.uniform(nodes, features, bins),
                   params)  # fmt: skip


CASES = {each.__name__: each for each in (splits,)}
