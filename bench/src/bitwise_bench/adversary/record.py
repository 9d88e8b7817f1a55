"""Records of the adversary: counts as JSON, their sums, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bitwise_bench.environment import analysis_environment

COUNTS = (
    "programs",
    "equal",
    "unknown",
    "reasons",
    "covered",
    "wrong",
    "on device",
    "device wrong",
    "optimiser",
    "simulation",
    "kernels not judged",
)
"""The counts of a record.

`device wrong`: pairs whose bytes differ on the GPU, also where the assembler does not optimise.  `optimiser`: pairs
whose bytes differ only where it does: a pass of the assembler changes what its instructions compute.
"""
_LISTS = ("findings", "device differences", "wrong pairs that were not reproduced alone", "errors")


def record_of(
    parts: Sequence[Mapping[str, Any]],
    lost: Sequence[str],
    device: Mapping[str, str],
    *,
    seed: int,
    jobs: int,
    seconds: float,
) -> dict[str, Any]:
    """Return the record of a run from the tallies of its workers."""
    found = _summed(parts)
    found["errors"] = [*found["errors"], *lost]
    run = {
        "seed": seed,
        "jobs": jobs,
        "seconds": round(seconds, 1),
        "environment": {**analysis_environment(), **device},
    }
    return {"runs": [run], **found}


def merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of records.  Raises ValueError if two have the same seed and environment."""
    runs = [run for record in records for run in record["runs"]]
    for number, run in enumerate(runs):
        for other in runs[:number]:
            if (run["seed"], run["environment"]) == (other["seed"], other["environment"]):
                raise ValueError(f"two runs have the seed {run['seed']}: a run counts once")
    return {"runs": runs, **_summed(records)}


def _summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in COUNTS:
        total: Counter[str] = Counter()
        for part in parts:
            total.update(part[name])
        found[name] = dict(total)
    for name in _LISTS:
        found[name] = [each for part in parts for each in part[name]]
    return found


def failed(record: Mapping[str, Any]) -> bool:
    """Return whether a pair that the checker calls Equal returned different bytes."""
    return bool(record["wrong"] or record["device wrong"] or record["simulation"].get("other bytes"))


def counts_so_far(record: Mapping[str, Any]) -> str:
    """Return the counts of a run that has not ended, in one line."""
    totals = {name: sum(record[name].values()) for name in ("programs", "equal", "on device", "wrong", "device wrong")}
    text = f"{record['runs'][0]['seconds']:.0f} s: {totals['programs']} programs, {totals['equal']} pairs Equal"
    if record["runs"][0]["environment"].get("gpu"):
        text += f", {totals['on device']} executed on the GPU"
    return f"{text}, {totals['wrong'] + totals['device wrong']} with other bytes"


def summary(record: Mapping[str, Any]) -> str:
    """Return the counts in a few lines."""
    seconds = sum(run["seconds"] for run in record["runs"])
    lines = [
        f"{sum(record['programs'].values())} programs in {seconds:.0f} s; "
        f"{sum(record['equal'].values())} pairs Equal, {sum(record['unknown'].values())} programs Unknown",
        *(f"    {name}: {count}" for name, count in sorted(record["equal"].items())),
        *(f"    WRONG {name}: {count}" for name, count in sorted(record["wrong"].items())),
        f"wrong: {sum(record['wrong'].values())}; different NaNs in buffers of integers, which a note of the verdict "
        f"covers: {sum(record['covered'].values())}",
    ]
    if record["on device"]:
        lines.append(
            f"on the GPU: {sum(record['on device'].values())} pairs, {sum(record['device wrong'].values())} with "
            f"different bytes, and {sum(record['optimiser'].values())} with different bytes only where the assembler "
            f"optimises; programs compared with the simulation: {record['simulation']}"
        )
    return "\n".join(lines)
