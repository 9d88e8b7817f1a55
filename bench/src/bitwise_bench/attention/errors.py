"""Errors of attention and of PyTorch's backends against double precision, over several seeds of each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

SEEDS = 40
HEADS = {"heads": 8, "groups": 2}
CASES: tuple[dict[str, Any], ...] = tuple(
    {**HEADS, **case}
    for case in (
        {"batch": 4, "queries": 1, "keys": 512, "depth": 128},
        {"batch": 4, "queries": 1, "keys": 2048, "depth": 64},
        {"batch": 4, "queries": 1, "keys": 2600, "depth": 96},
        {"batch": 4, "queries": 1, "keys": 4096, "depth": 256},
        {"batch": 4, "queries": 1, "keys": 8192, "depth": 128},
        {"batch": 2, "queries": 1, "keys": 65536, "depth": 128},
        {"batch": 2, "queries": 1, "keys": 90000, "depth": 64},
        {"batch": 2, "queries": 512, "keys": 512, "depth": 128},
        {"batch": 1, "queries": 900, "keys": 900, "depth": 128},
        {"batch": 1, "queries": 2048, "keys": 2048, "depth": 64},
        {"batch": 1, "queries": 2048, "keys": 2048, "depth": 96},
        {"batch": 1, "queries": 2048, "keys": 2048, "depth": 256},
        {"batch": 1, "queries": 4096, "keys": 4096, "depth": 128},
        {"batch": 1, "queries": 4096, "keys": 4096, "depth": 128, "causal": False},
        {"batch": 1, "queries": 1024, "keys": 1024, "depth": 128, "mean": 1.0},
        {"batch": 4, "queries": 1, "keys": 4096, "depth": 128, "mean": 1.0},
    )
)
"""Query, key and value are normal numbers; those of values have the mean `mean`, by default 0."""


def errors(case: Mapping[str, Any], seeds: int = SEEDS) -> dict[str, Any]:
    """Return the root mean square of the differences of all outputs of each seed, by implementation."""
    import torch

    from bitwise_bench.attention.timing import implementations

    causal = case["queries"] > 1 and case.get("causal", True)
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def tensor(length: int, heads: int, mean: float, draw: Any = generator) -> Any:
            shape = case["batch"], length, heads, case["depth"]
            return (torch.randn(shape, generator=draw, device="cuda") + mean).bfloat16().transpose(1, 2)

        tensors = [
            tensor(case["queries"], case["heads"], 0.0),
            tensor(case["keys"], case["groups"], 0.0),
            tensor(case["keys"], case["groups"], case.get("mean", 0.0)),
        ]
        exact = torch.nn.functional.scaled_dot_product_attention(
            *(each.double() for each in tensors), is_causal=causal, enable_gqa=True
        )
        for name, function in implementations(tensors, causal).items():
            difference = function().double() - exact
            found.setdefault(name, []).append(float(difference.square().mean().sqrt()))
    return {"case": dict(case), "errors": found}


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, int]:
    """Return the geometric mean of the ratios of errors of the same seeds, its standard error, and those above 1."""
    logarithms = [log(one / other) for one, other in zip(ours, theirs, strict=True)]
    center = fmean(logarithms)
    ratio = exp(center)
    return ratio, ratio * stdev(logarithms) / sqrt(len(logarithms)), sum(each > 0 for each in logarithms)
