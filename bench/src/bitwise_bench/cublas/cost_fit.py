"""Fit the costs of the launcher's schedules to measured times, and report what the choice costs.

    python -m bitwise_bench.cublas.cost_fit times.json [times.json ...] --out costs.json [--beside h100.json.xz]

The files are those of `schedule_timing --times` on one device. The costs of the model are fitted first, then the
correction of the modelled times, to the order of the schedules of each problem. The errors of the model are similar on
devices of one architecture: with `--beside`, the correction is also fitted to times of an H100, modelled with its
costs, whose weight is `--weight`. The regret of a problem is the time of the schedule that is expected to be the
fastest over that of the fastest one. It is reported for a fit to all problems, and for each model under a fit that left
out a group of models with it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.regression_trees import boosted_trees
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.device_costs import Correction, DeviceProperties, Numbers, costs_of
from bitwise_nvidia_sm90.gemm.expected_times import (
    Quantities,
    corrected_seconds,
    correction_inputs,
    modelled_seconds,
    modelled_seconds_gathered,
    modelled_times,
    quantities,
)
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule

_LINE = 64
"""The elements of a line of the cache."""
_STEPS = 40
_DIFFERENCE = 1e-4
"""The relative change of a cost by which its derivative is taken."""
_LARGEST_RESIDUAL = 0.4
"""Logarithms of times that differ by more have this weight: schedules that nobody would choose are not fitted."""
_FALL = 1.5
"""A time has the weight of its ratio to the fastest one of its problem to minus this power."""
_UNFITTED = frozenset(
    {"operator", "packing", "packed", "packed across", "launch by pointers", "pointers", "pointers by area"}
)
"""Costs of schedules and of operators whose times are not fitted."""
OF_GATHERING = frozenset(
    {
        "added", "adding", "gathered job", "gathered sums", "gathered unit", "gathering wait", "sums across",
        "whole groups",
    }
)  # fmt: skip
"""Costs of schedules that gather operands, which are fitted to their times alone."""
Costs = dict[str, float]


@dataclass(frozen=True, eq=False)
class Measured:
    """The schedules of one problem, their seconds, and their quantities."""

    group: str
    m: int
    n: int
    plan: MatrixPlan
    k_contiguous: tuple[bool, bool]
    schedules: tuple[Schedule, ...]
    seconds: tuple[float, ...]
    quantities: Quantities

    @property
    def model(self) -> str:
        """The model of which the product is a layer or a gradient, or another group."""
        return self.group.split(" ")[0]

    def regret(self, given: Mapping[str, float], corrected: Correction | None) -> float:
        """Return the time of the schedule that is expected to be the fastest over that of the fastest one."""
        expected = _expected(self.quantities, given, corrected)
        return self.seconds[int(np.argmin(expected))] / min(self.seconds)


@dataclass(frozen=True, eq=False)
class Gathered:
    """The schedules of one product that gather its operands, and their seconds."""

    m: int
    n: int
    plan: MatrixPlan
    schedules: tuple[Schedule, ...]
    seconds: Numbers

    def modelled(self, given: Mapping[str, float]) -> Numbers:
        """Return the modelled seconds of each schedule."""
        return modelled_seconds_gathered(self.plan, self.schedules, self.m, self.n, given)


def _expected(known: Quantities, given: Mapping[str, float], corrected: Correction | None) -> Numbers:
    return modelled_seconds(known, given) if corrected is None else corrected_seconds(known, given, corrected)


def measured(rows: Sequence[Mapping[str, Any]]) -> list[Measured]:
    """Return the problems of rows of `schedule_timing --times` that run on matrix units under the cost model.

    Of several times of a schedule the least counts.
    """
    times: dict[tuple[Any, ...], dict[Schedule, float]] = {}
    groups: dict[tuple[Any, ...], str] = {}
    by_map: set[tuple[Any, ...]] = set()  # rows of kernels that stored transposed tiles through maps
    for row in rows:
        if len(row.get("times", ())) < 2:
            continue
        key = (row["m"], row["n"], row["layout"], row["descriptor"])
        groups.setdefault(key, row["group"])
        if row.get("maps columns"):
            by_map.add(key)
        known = times.setdefault(key, {})
        for fields, time in row["times"]:
            schedule = Schedule(**fields)
            if schedule.tma and not schedule.packed:
                known[schedule] = min(known.get(schedule, math.inf), 1e-6 * time)
    found = []
    for (m, n, layout, text), known in times.items():
        planned = plan(GEMMDesc.from_text(text))
        if isinstance(planned, MatrixPlan) and len(known) > 1:
            k_contiguous = (layout[0] == "n", layout[1] == "t")
            leading = planned.k if k_contiguous[0] else m, planned.k if k_contiguous[1] else n
            whole_lines = leading[0] % _LINE == 0, leading[1] % _LINE == 0
            given = quantities(
                planned, list(known), m, n, k_contiguous, not n % 8, whole_lines=whole_lines,
                maps_columns=(m, n, layout, text) in by_map,
            )  # fmt: skip
            seconds = tuple(known.values())
            group = groups[m, n, layout, text]
            found.append(Measured(group, m, n, planned, k_contiguous, tuple(known), seconds, given))
    return found


def _joined(problems: Sequence[Measured]) -> tuple[Quantities, Numbers, Numbers]:
    """Return the quantities and the seconds of all schedules of problems, and the weights of these times."""
    known = {name: np.concatenate([each.quantities[name] for each in problems]) for name in problems[0].quantities}
    seconds = np.array([time for each in problems for time in each.seconds])
    behind = np.array([time / min(each.seconds) for each in problems for time in each.seconds])
    return known, seconds, behind**-_FALL


def fit(
    problems: Sequence[Measured], start: Mapping[str, float], steps: int = _STEPS, only: Sequence[str] = ()
) -> Costs:
    """Return the costs with the least squares of the logarithms of modelled over measured times.

    With `only`, those of these names are fitted: few times do not determine all costs.
    """
    known, seconds, weights = _joined(problems)
    names = sorted(set(only) or set(start) - _UNFITTED - OF_GATHERING)
    return _least_squares(lambda given: modelled_seconds(known, given), seconds, weights, start, names, steps)


def _least_squares(
    modelled: Callable[[Mapping[str, float]], Numbers],
    seconds: Numbers,
    weights: Numbers,
    start: Mapping[str, float],
    names: Sequence[str],
    steps: int,
) -> Costs:
    """Return costs of which those with these names are fitted, by the logarithms of modelled over measured times.

    Method: Levenberg and Marquardt's, on the logarithms of the costs.
    """
    wanted, current = np.log(seconds), np.log([start[name] for name in names])

    def residuals(logarithms: Numbers) -> Numbers:
        given = {**start, **dict(zip(names, np.exp(logarithms).tolist(), strict=True))}
        error = np.log(modelled(given)) - wanted
        bounded: Numbers = _LARGEST_RESIDUAL * np.tanh(error / _LARGEST_RESIDUAL) * weights
        return bounded

    damping, error = 1e-2, residuals(current)
    for _ in range(steps):
        columns = [(residuals(current + step) - error) / _DIFFERENCE for step in np.eye(len(names)) * _DIFFERENCE]
        slope = np.array(columns).T
        normal, gradient = slope.T @ slope, slope.T @ error
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * (np.diag(np.diag(normal)) + 1e-6 * np.eye(len(names))), gradient)
            moved = residuals(current - np.clip(step, -0.7, 0.7))
            if moved @ moved < error @ error:
                current, damping = current - np.clip(step, -0.7, 0.7), damping / 3
                break
            damping *= 4
        else:
            break
        done = (error @ error - moved @ moved) < 1e-5 * (error @ error)
        error = moved
        if done:
            break
    fitted = dict(zip(names, np.exp(current).tolist(), strict=True))
    return {name: float(f"{fitted.get(name, start[name]):.4g}") for name in sorted(start)}


def gathered(rows: Sequence[Mapping[str, Any]]) -> list[Gathered]:
    """Return the products in rows of `schedule_timing --times` that ran under schedules that gather operands."""
    found = []
    for row in rows:
        if not row.get("gathers units"):  # of kernels that gathered values one by one or in pairs
            continue
        times = [(Schedule(**fields), 1e-6 * time) for fields, time in row.get("times", ())]
        known = {schedule: time for schedule, time in times if schedule.gathering}
        planned = plan(GEMMDesc.from_text(row["descriptor"])) if known else None
        if isinstance(planned, MatrixPlan):
            found.append(Gathered(row["m"], row["n"], planned, tuple(known), np.array(list(known.values()))))
    return found


def fit_gathering(products: Sequence[Gathered], start: Mapping[str, float]) -> Costs:
    """Return the costs with those of gathering fitted to the times of these products."""
    seconds = np.concatenate([each.seconds for each in products])
    weights = np.concatenate([(each.seconds / each.seconds.min()) ** -_FALL for each in products])

    def modelled(given: Mapping[str, float]) -> Numbers:
        return np.concatenate([each.modelled(given) for each in products])

    return _least_squares(modelled, seconds, weights, start, sorted(OF_GATHERING), 4 * _STEPS)


@dataclass(frozen=True, eq=False)
class Errors:
    """What a correction is fitted to: its inputs, the errors of modelled times, and their weights."""

    inputs: Numbers
    errors: Numbers
    weights: Numbers


def errors_of(problems: Sequence[Measured], given: Mapping[str, float]) -> Errors:
    """Return the errors of the times that are modelled with these costs.

    The mean error of a problem's times is left out, since it decides no choice.
    """
    known, seconds, weights = _joined(problems)
    modelled = modelled_times(known, given)
    errors = np.log(seconds / modelled["all"])
    problem = np.repeat(np.arange(len(problems)), [len(each.seconds) for each in problems])
    means = np.bincount(problem, errors * weights) / np.bincount(problem, weights)
    return Errors(correction_inputs(known, modelled), errors - means[problem], weights)


def fit_correction(
    problems: Sequence[Measured], given: Mapping[str, float], beside: Errors | None = None
) -> Correction:
    """Return the correction of the times that are modelled with these costs, fitted to them and to errors `beside`."""
    every = [errors_of(problems, given), *([] if beside is None else [beside])]
    return boosted_trees(
        np.concatenate([each.inputs for each in every]), np.concatenate([each.errors for each in every]),
        np.concatenate([each.weights for each in every]),
    )  # fmt: skip


def mean_regret(problems: Sequence[Measured], given: Mapping[str, float], corrected: Correction | None) -> float:
    """Return the geometric mean of the regrets."""
    return math.exp(sum(math.log(each.regret(given, corrected)) for each in problems) / len(problems))


def _rounded(values: NDArray[Any], digits: int) -> list[Any]:
    rounding: Callable[[float], float] = lambda value: float(f"{value:.{digits}g}")  # noqa: E731
    return [[rounding(value) for value in row] for row in values.tolist()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and report."""
    parser = argparse.ArgumentParser(prog="bitwise_bench.cublas.cost_fit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("times", type=Path, nargs="+", help="files of schedule_timing --times")
    parser.add_argument("--beside", type=Path, help="a file of an H100, whose errors the correction is fitted to, too")
    parser.add_argument("--weight", type=float, default=1.0, help="the weight of those errors (default 1)")
    parser.add_argument("--groups", type=int, default=5, help="groups of models that are left out in turn (default 5)")
    parser.add_argument("--only", nargs="+", default=(), help="costs that are fitted (default all); others stay")
    parser.add_argument("--out", type=Path, help="write the costs and the correction here")
    chosen = parser.parse_args(arguments)
    contents = [json.loads(read_text(path)) for path in chosen.times]
    problems = measured([row for content in contents for row in content["rows"]])
    if not problems:
        parser.error("no problem in these files has two schedules with times: measure with --most and --times")
    device = next((DeviceProperties(**content["device"]) for content in contents if "device" in content), None)
    start, beside = costs_of(device), None
    if chosen.beside is not None:
        others = measured(json.loads(read_text(chosen.beside))["rows"])
        beside = errors_of(others, costs_of().costs)
        beside = Errors(beside.inputs, beside.errors, beside.weights * chosen.weight)
    unknown = ", ".join(sorted(set(chosen.only) - set(start.costs)))
    if unknown:
        parser.error(f"{unknown}: the model has no such costs; it has {', '.join(sorted(start.costs))}")
    found = fit(problems, start.costs, only=chosen.only)
    unaligned = gathered([row for content in contents for row in content["rows"]])
    if unaligned and not chosen.only:
        found = fit_gathering(unaligned, found)
    corrected = fit_correction(problems, found, beside)
    count = sum(len(each.seconds) for each in problems)
    before, after = mean_regret(problems, start.costs, start.correction), mean_regret(problems, found, corrected)
    print(f"{len(problems)} problems, {count} times")
    print(f"regret before: {before:.4f}, fitted to all: {after:.4f}")
    left_out, logarithms = {}, 0.0
    models = sorted({each.model for each in problems})
    for left in (models[number :: chosen.groups] for number in range(min(chosen.groups, len(models)))):
        others = [each for each in problems if each.model not in left]
        if not others:
            continue
        refitted = fit(others, found, 8, chosen.only)
        without = fit_correction(others, refitted, beside)
        for model in left:
            regret = mean_regret([each for each in problems if each.model == model], refitted, without)
            left_out[model] = round(regret, 4)
            logarithms += sum(each.model == model for each in problems) * math.log(regret)
    print(json.dumps({"regret of each model under a fit without its group": left_out}, indent=1))
    unseen = math.exp(logarithms / len(problems))
    print(f"regret of models that a fit left out: {unseen:.4f}")
    if chosen.out is not None:
        content = {
            "environment": contents[0].get("environment"),
            "device": asdict(device) if device else None,
            "provenance": f"fitted to {count} times of schedules of {len(problems)} problems; the schedule that is "
            f"expected to be the fastest takes {after:.3f} of the time of the fastest one measured (a geometric mean), "
            f"and {unseen:.3f} on models that a fit left out; the correction is fitted to these times"
            f"{f' and, with the weight {chosen.weight:g}, to those of an H100' if beside else ''}; "
            "the costs of packing and of pointers are rough, from products with unaligned leading dimensions",
            "units": "times: seconds; operations: a second of one multiprocessor; line, outside: seconds of a line; "
            "read, stored by elements, gathered sums: bytes a second of one multiprocessor; cache, memory, merged, "
            "packed: bytes a second of the device; operator: seconds of a launch of an elementwise operator; cached "
            "bytes, small: bytes; pointers: seconds of an iteration of a tile by a power of its elements; the others "
            "are factors",
            "costs": found,
        }
        trees = {
            "indices": corrected.indices.tolist(), "bounds": _rounded(corrected.bounds, 6),
            "leaves": _rounded(corrected.leaves, 3),
        }  # fmt: skip
        text = json.dumps(content, indent=1)
        chosen.out.write_text(f'{text[:-2]},\n "correction": {json.dumps(trees)}\n}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
