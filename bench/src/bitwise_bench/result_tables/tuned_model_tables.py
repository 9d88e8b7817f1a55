"""The table of models that TorchInductor tunes inside `same_bits`, beside free tuning."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bitwise_bench.inductor.models import HELD_OUT
from bitwise_bench.inductor.same_bits import rounds_ratio

_TIMES = ("GPU seconds", "step seconds", "graph seconds")


def tuned_models(records: Sequence[Mapping[str, Any]]) -> str:
    """Return times inside `same_bits` by those of free tuning, for each model of the records, and their means."""
    if not records:
        return "This is not measured yet; `python -m bitwise_bench.inductor.same_bits --record RECORD` measures it."
    rows: list[list[str]] = []
    ratios: dict[str, list[float]] = {name: [] for name in _TIMES}
    for record in records:
        for model in dict.fromkeys(run["model"] for run in record["runs"]):
            free, same = ([run for run in record["runs"] if run["model"] == model and run["mode"] == mode]
                          for mode in ("free", "same bits"))  # fmt: skip
            if not same:
                continue
            cells = [f"{model}{' (held out)' if model in HELD_OUT else ''}", _bytes(free), _bytes(same)]
            for name in _TIMES:
                ratio = _ratio(same, free, name)
                cells += [_digits(ratio), _digits(_ratio(free[1:2], free[:1], name))]
                ratios[name] += [] if ratio is None else [ratio]
            tuning = [_median(runs, "tuning seconds") for runs in (free, same)]
            rows.append([*cells, " / ".join(tuning), _median(same, "proof seconds")])
    head = (
        *("model", "byte patterns / processes, free", "`same_bits`", "GPU time", "free over free", "step"),
        *("free over free", "as a graph", "free over free", "tuning, free / `same_bits`, s", "proofs, s"),
    )
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    means = ", ".join(
        f"{name.removesuffix(' seconds')} {statistics.geometric_mean(found):.3f} (at most {max(found):.3f})"
        for name, found in ratios.items()
        if found
    )
    environment = records[-1]["environment"]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + (
        f"\n\nTimes inside `same_bits` by those of free tuning; geometric means: {means}. {environment['gpu']}, torch "
        f"{environment['torch']}, Triton {environment['triton']}."
    )


def _bytes(runs: Sequence[Mapping[str, Any]]) -> str:
    return f"{len({run['digest'] for run in runs})} / {len(runs)}" if runs else "-"


def _ratio(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], name: str) -> float | None:
    found = (
        rounds_ratio([dict(each) for each in runs], [dict(each) for each in others], name) if runs and others else []
    )
    return statistics.median(found) if found else None


def _digits(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def _median(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{statistics.median(run[name] for run in runs):.0f}" if runs else "-"
