"""triton-submodular: greedy choices of subsets."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _chosen(t: Tensors, module: str, name: str, *settings: Any) -> None:
    functions = import_module(f"triton_submodular.functions.{module}")
    data = t.uniform(60, 24)
    for optimiser, kind in (("naive_greedy", "NaiveGreedyTriton"), ("lazy_greedy", "LazyGreedyTriton"),
                            ("stochastic_greedy", "StochasticGreedyTriton")):  # fmt: skip
        function = getattr(functions, name)(data, *settings)
        found = getattr(import_module(f"triton_submodular.optimizers.{optimiser}"), kind)(function)
        method = next(
            getattr(found, each) for each in ("maximize", "optimize", "select", "run") if hasattr(found, each)
        )
        t.call(method, 5)


def features(t: Tensors) -> None:
    """Choose by concave functions of features."""
    for function in ("sqrt", "log"):
        _chosen(t, "feature_based", "FeatureBased", function)


def similarities(t: Tensors) -> None:
    """Choose by similarities."""
    _chosen(t, "facility_location", "FacilityLocation")
    _chosen(t, "graph_cut", "GraphCut")


def coverage(t: Tensors) -> None:
    """Choose by coverage."""
    _chosen(t, "max_coverage", "MaxCoverage")


CASES = {each.__name__: each for each in (features, similarities, coverage)}
