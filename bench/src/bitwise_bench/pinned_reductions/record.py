"""The benchmark's record: every case, and a summary."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from bitwise_bench.pinned_reductions.cases import Case
from bitwise_bench.pinned_reductions.compilation import Variant
from bitwise_bench.pinned_reductions.tuning import Tuned


def environment() -> dict[str, str]:
    """The GPU and the versions."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "architecture": f"sm_{properties.major}{properties.minor}",
        "torch": torch.__version__,
        "triton": metadata.version("triton"),
        "python": platform.python_version(),
    }


def entry(case: Case, tuned: Sequence[Tuned]) -> dict[str, Any]:
    """One case: the free order, the fastest pinned one, and the latter without the layout pass if measured."""
    free, *rest = tuned
    pinned = [one for one in rest if one.variant.layout] or rest
    chosen = min(pinned, key=lambda one: one.microseconds)
    still = [one for one in rest if one.variant == Variant(chosen.variant.order, layout=False)]
    found = {
        "name": case.name,
        "kernel": case.kernel,
        "dtype": case.dtype,
        "size": list(case.size),
        "configurations": len(case.configurations),
        "ratio": round(free.microseconds / chosen.microseconds, 4),
        "free": free.as_json(),
        "pinned": chosen.as_json(),
    }
    if still and still[0] is not chosen:
        found["layout_gain"] = round(still[0].microseconds / chosen.microseconds, 4)
        found["without_layout"] = still[0].as_json()
    if len(pinned) > 1:
        found["orders"] = [one.as_json() for one in pinned]
    return found


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Relative speed of the pinned order by (kernel, type) and over all, and the number of classes of bytes."""
    pairs: dict[str, list[float]] = {}
    for one in entries:
        pairs.setdefault(f"{one['kernel']} {one['dtype']}", []).append(one["ratio"])
    by_pair = {name: round(mean(ratios), 4) for name, ratios in pairs.items()}
    least = min(entries, key=lambda one: float(one["ratio"]))
    compiles = {
        one["name"]: one["pinned"]["compile_ratio"] for one in entries if one["pinned"]["compile_ratio"] is not None
    }
    slowest = max(compiles, key=lambda name: compiles[name], default="")
    gains = {one["name"]: one["layout_gain"] for one in entries if "layout_gain" in one}
    found = {
        "pairs": by_pair,
        "geometric_mean": round(mean([one["ratio"] for one in entries]), 4),
        "slowest_pair": min(by_pair, key=lambda name: by_pair[name]),
        "slowest_case": [least["name"], least["ratio"]],
        "compile_ratio": round(mean(list(compiles.values())), 3) if compiles else None,
        "slowest_compile": [slowest, compiles[slowest]] if compiles else None,
        "most_classes": {mode: max(one[mode]["classes"] for one in entries) for mode in ("free", "pinned")},
        "disagree_with_order": [one["name"] for one in entries if one["pinned"]["agrees_with_order"] is False],
    }
    if gains:
        most, least_gain = max(gains, key=lambda name: gains[name]), min(gains, key=lambda name: gains[name])
        found["layout"] = {
            "cases": len(gains),
            "geometric_mean_of_gains": round(mean(list(gains.values())), 4),
            "greatest_gain": [most, gains[most]],
            "least_gain": [least_gain, gains[least_gain]],
        }
    return found
