"""Fit the costs of the launcher's schedules to measured times, and report what the choice costs.

    python -m bitwise_bench.cublas.cost_fit times.json [times.json ...] --out costs.json

The files are those of `schedule_timing --times`.  The regret of a problem is the time of the schedule that the costs
put first over that of the fastest one.  It is reported for costs that are fitted to all problems, and for each model
under costs that are fitted to the others.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.compressed_text import read_text
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.schedule_ranking import costs, expected_seconds

_STEPS = 40
_DIFFERENCE = 1e-4
"""The relative change of a cost by which its derivative is taken."""
_LARGEST_RESIDUAL = 0.5
"""Logarithms of times that differ by more have this weight: schedules that nobody would choose are not fitted."""
Costs = dict[str, float]


@dataclass(frozen=True)
class Measured:
    """The schedules of one problem and their seconds."""

    group: str
    m: int
    n: int
    plan: MatrixPlan
    k_contiguous: tuple[bool, bool]
    schedules: tuple[Schedule, ...]
    seconds: tuple[float, ...]

    @property
    def model(self) -> str:
        """The model of which the product is a layer or a gradient, or another group."""
        return self.group.split(" ")[0]

    def expected(self, given: Mapping[str, float]) -> list[float]:
        """Return the expected seconds of the schedules."""
        return [
            expected_seconds(
                self.plan, each, self.m, self.n, k_contiguous=self.k_contiguous, out_mapped=not self.n % 8, given=given
            )
            for each in self.schedules
        ]

    def regret(self, given: Mapping[str, float]) -> float:
        """Return the time of the schedule that the costs put first over that of the fastest one."""
        expected = self.expected(given)
        return self.seconds[expected.index(min(expected))] / min(self.seconds)


def measured(rows: Sequence[Mapping[str, Any]]) -> list[Measured]:
    """Return the problems of rows of `schedule_timing --times` that run on matrix units under the cost model."""
    found = []
    for row in rows:
        if len(row.get("times", ())) < 2:
            continue
        planned = plan(GEMMDesc.from_text(row["descriptor"]))
        timed = [(Schedule(**fields), 1e-6 * time) for fields, time in row["times"]]
        modelled = [(schedule, time) for schedule, time in timed if schedule.tma]
        if isinstance(planned, MatrixPlan) and len(modelled) > 1:
            schedules, seconds = zip(*modelled, strict=True)
            k_contiguous = (row["layout"][0] == "n", row["layout"][1] == "t")
            found.append(Measured(row["group"], row["m"], row["n"], planned, k_contiguous, schedules, seconds))
    return found


def fit(problems: Sequence[Measured], start: Mapping[str, float]) -> Costs:
    """Return the costs with the least squares of the logarithms of expected over measured times.

    Method: Levenberg and Marquardt's, on the logarithms of the costs.
    """
    names = sorted(start)
    current = np.log([start[name] for name in names])
    wanted = np.log([time for each in problems for time in each.seconds])
    # A time far from the fastest of its problem matters less.
    behind = np.array([time / min(each.seconds) for each in problems for time in each.seconds])

    def residuals(logarithms: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        given = dict(zip(names, np.exp(logarithms).tolist(), strict=True))
        error = np.log([time for each in problems for time in each.expected(given)]) - wanted
        bounded: np.ndarray[Any, Any] = _LARGEST_RESIDUAL * np.tanh(error / _LARGEST_RESIDUAL) / behind
        return bounded

    damping, error = 1e-2, residuals(current)
    for _ in range(_STEPS):
        columns = [(residuals(current + step) - error) / _DIFFERENCE for step in np.eye(len(names)) * _DIFFERENCE]
        slope = np.array(columns).T
        normal, gradient = slope.T @ slope, slope.T @ error
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * (np.diag(np.diag(normal)) + 1e-6 * np.eye(len(names))), gradient)
            moved = residuals(current - np.clip(step, -1, 1))
            if moved @ moved < error @ error:
                current, damping = current - np.clip(step, -1, 1), damping / 3
                break
            damping *= 4
        else:
            break
        done = (error @ error - moved @ moved) < 1e-6 * (error @ error)
        error = moved
        if done:
            break
    return dict(zip(names, (float(f"{each:.4g}") for each in np.exp(current)), strict=True))


def mean_regret(problems: Sequence[Measured], given: Mapping[str, float]) -> float:
    """Return the geometric mean of the regrets."""
    return math.exp(sum(math.log(each.regret(given)) for each in problems) / len(problems))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and report."""
    parser = argparse.ArgumentParser(prog="bitwise_bench.cublas.cost_fit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("times", type=Path, nargs="+", help="files of schedule_timing --times")
    parser.add_argument("--out", type=Path, help="write the costs here")
    chosen = parser.parse_args(arguments)
    contents = [json.loads(read_text(path)) for path in chosen.times]
    problems = measured([row for content in contents for row in content["rows"]])
    if not problems:
        parser.error("no problem in these files has two schedules with times: measure with --most and --times")
    start = dict(costs())
    found = fit(problems, start)
    models = sorted({each.model for each in problems})
    print(f"{len(problems)} problems, {sum(len(each.seconds) for each in problems)} times")
    print(f"regret before: {mean_regret(problems, start):.4f}, fitted to all: {mean_regret(problems, found):.4f}")
    left_out = {}
    for model in models:
        own = [each for each in problems if each.model == model]
        others = [each for each in problems if each.model != model]
        if others:
            left_out[model] = round(mean_regret(own, fit(others, found)), 4)
    print(json.dumps({"regret of each model under costs fitted to the others": left_out}, indent=1))
    if chosen.out is not None:
        content = {
            "environment": contents[0]["environment"],
            "provenance": f"fitted to {sum(len(each.seconds) for each in problems)} times of schedules of "
            f"{len(problems)} problems; the schedule that these costs put first takes "
            f"{mean_regret(problems, found):.3f} of the fastest one measured (a geometric mean), and at most "
            f"{max(left_out.values(), default=1.0):.3f} on a model under costs fitted to the others",
            "units": "launch, job, wait, iteration, merge: seconds; rates: operations, and copied, arriving, stored: "
            "bytes, a second of one multiprocessor; cached, memory: bytes a second of the device; the others are "
            "factors",
            "costs": found,
        }
        chosen.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
