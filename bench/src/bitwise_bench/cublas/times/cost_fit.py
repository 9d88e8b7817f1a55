"""Fit the costs of the launcher's schedules to measured times, and report what the choice costs.

    python -m bitwise_bench.cublas.times.cost_fit times.json [times.json ...] --out costs.json [--beside h100.json.xz]

The files are those of `schedule_timing --times` on one device, and of `fused_epilogues --most`. The costs of the model
are fitted first, then the correction of the modelled times, to the order of the schedules of each problem. The errors
of the model are similar on devices of one architecture: with `--beside`, the correction is also fitted to times of an
H100, modelled with its costs, whose weight is `--weight`. Schedules that gather operands have costs and a correction of
their own, fitted to their times. The regret of a problem is the time of the schedule that is expected to be the
fastest over that of the fastest one. It is reported for a fit to all problems, and for each model under a fit that left
out a group of models with it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.times.regression_trees import boosted_trees
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.device_costs import (
    Correction,
    DeviceCosts,
    DeviceProperties,
    Numbers,
    correction_of,
    costs_of,
)
from bitwise_nvidia_sm90.gemm.expected_times import (
    Finishing,
    Quantities,
    corrected_seconds,
    correction_inputs,
    gathered_inputs,
    gathered_quantities,
    modelled_seconds,
    modelled_times,
    modelled_times_gathered,
    packing_seconds,
    quantities,
)
from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.schedule_ranking import seconds_of_schedules

_BYTES, _LINE, _ALIGNED, _MAPPED_BYTES = 2, 128, 8, 16
"""The bytes of an element and of a line of the cache; the elements, and the bytes, of whose multiples a tensor map has
lines."""
_STEPS = 40
_DIFFERENCE = 1e-4
"""The relative change of a cost by which its derivative is taken."""
_LARGEST_RESIDUAL = 0.4
"""Logarithms of times that differ by more have this weight: schedules that nobody would choose are not fitted."""
_PRIOR = 0.1
"""The weight of the change of a cost's logarithm, since times may not determine each cost."""
_FALL = 1.5
"""A time has the weight of its ratio to the fastest one of its problem to minus this power."""
OF_PACKING = frozenset({"packing", "packed", "packed across"})
"""Costs of the kernel that packs operands, which are fitted to the times of schedules that pack alone."""
_UNFITTED = frozenset({"operator", *OF_PACKING, "launch by pointers", "pointers", "pointers by area"})
"""Costs that are not fitted to the times of schedules that neither pack nor gather."""
OF_GATHERING = frozenset(
    {
        "added", "adding", "gathered across", "gathered cache", "gathered job", "gathered sums", "gathered unit",
        "gathering memory wait", "gathering wait", "whole groups",
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
class Unaligned:
    """The schedules of one product without tensor maps of its operands, and their seconds.

    `mapped` says of A, B and the output whether there is a tensor map of it.
    """

    group: str
    m: int
    n: int
    plan: MatrixPlan
    k_contiguous: tuple[bool, bool]
    mapped: tuple[bool, bool, bool]
    schedules: tuple[Schedule, ...]
    seconds: Numbers

    @property
    def gathering(self) -> NDArray[np.bool_]:
        """Which schedules gather operands."""
        return np.array([bool(each.gathering) for each in self.schedules])

    def quantities(self) -> Quantities:
        """Return the quantities of the schedules that gather operands."""
        chosen = [each for each in self.schedules if each.gathering]
        return gathered_quantities(self.plan, chosen, self.m, self.n, self.k_contiguous)

    def expected(self, device: DeviceCosts) -> Numbers:
        """Return the expected seconds of each schedule."""
        return seconds_of_schedules(self.plan, self.schedules, self.m, self.n, device, self.k_contiguous, self.mapped)

    def regret(self, device: DeviceCosts) -> float:
        """Return the time of the schedule that is expected to be the fastest over that of the fastest one."""
        return float(self.seconds[int(np.argmin(self.expected(device)))] / self.seconds.min())


def _expected(known: Quantities, given: Mapping[str, float], corrected: Correction | None) -> Numbers:
    return modelled_seconds(known, given) if corrected is None else corrected_seconds(known, given, corrected)


def rows_of_content(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of a file of `schedule_timing`, or of all parts of one of `fused_epilogues`."""
    return [row for part in content.get("parts", {"": content}).values() for row in part["rows"]]


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
        finishing = Finishing(row.get("output bytes", 2), row.get("loads", 0))
        key = (row["m"], row["n"], row["layout"], row["descriptor"], finishing)
        groups.setdefault(key, row["group"])
        if row.get("maps columns"):
            by_map.add(key)
        known = times.setdefault(key, {})
        for fields, time in row["times"]:
            schedule = Schedule(**fields)
            if schedule.tma and not schedule.packed:
                known[schedule] = min(known.get(schedule, math.inf), 1e-6 * time)
    found = []
    for key, known in times.items():
        m, n, layout, text, finishing = key
        planned = plan(GEMMDesc.from_text(text))
        if isinstance(planned, MatrixPlan) and len(known) > 1:
            k_contiguous = (layout[0] == "n", layout[1] == "t")
            leading = planned.k if k_contiguous[0] else m, planned.k if k_contiguous[1] else n
            alignments = math.gcd(_BYTES * leading[0], _LINE), math.gcd(_BYTES * leading[1], _LINE)
            given = quantities(
                planned, list(known), m, n, k_contiguous, not n * finishing.output_bytes % _MAPPED_BYTES,
                alignments=alignments, finishing=finishing, maps_columns=key in by_map,
            )  # fmt: skip
            seconds = tuple(known.values())
            found.append(Measured(groups[key], m, n, planned, k_contiguous, tuple(known), seconds, given))
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
    return least_squares(lambda given: modelled_seconds(known, given), seconds, weights, start, names, steps)


def least_squares(
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

    first = current.copy()

    def residuals(logarithms: Numbers) -> Numbers:
        given = {**start, **dict(zip(names, np.exp(logarithms).tolist(), strict=True))}
        error = np.log(modelled(given)) - wanted
        bounded: Numbers = _LARGEST_RESIDUAL * np.tanh(error / _LARGEST_RESIDUAL) * weights
        return np.concatenate([bounded, _PRIOR * (logarithms - first)])

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


def unaligned(rows: Sequence[Mapping[str, Any]]) -> list[Unaligned]:
    """Return the products in rows of `schedule_timing --times` that ran under schedules that gather operands."""
    found = []
    for row in rows:
        if not row.get("gathers units"):  # of kernels that gathered values one by one or in pairs
            continue
        known: dict[Schedule, float] = {}
        for fields, time in row.get("times", ()):
            schedule = Schedule(**fields)
            known[schedule] = min(known.get(schedule, math.inf), 1e-6 * time)
        planned = plan(GEMMDesc.from_text(row["descriptor"])) if any(each.gathering for each in known) else None
        if isinstance(planned, MatrixPlan):
            k_contiguous = (row["layout"][0] == "n", row["layout"][1] == "t")
            lines = row["k"] if k_contiguous[0] else row["m"], row["k"] if k_contiguous[1] else row["n"]
            gap, offset = row.get("gap", 0), row.get("offset", 0)
            a, b = ((line + gap) % _ALIGNED == 0 and offset % _ALIGNED == 0 for line in lines)
            found.append(Unaligned(
                row["group"], row["m"], row["n"], planned, k_contiguous, (a, b, row["n"] % _ALIGNED == 0),
                tuple(known), np.array(list(known.values())),
            ))  # fmt: skip
    return found


def fit_gathering(products: Sequence[Unaligned], start: Mapping[str, float]) -> Costs:
    """Return the costs with those of gathering fitted to the times of the schedules that gather operands."""
    times = [each.seconds[each.gathering] for each in products]
    seconds, weights = np.concatenate(times), np.concatenate([(each / each.min()) ** -_FALL for each in times])
    every = [each.quantities() for each in products]
    known = {name: np.concatenate([each[name] for each in every]) for name in every[0]}
    return least_squares(
        lambda given: modelled_times_gathered(known, given)["all"], seconds, weights, start, sorted(OF_GATHERING),
        4 * _STEPS,
    )  # fmt: skip


def fit_packing(products: Sequence[Unaligned], device: DeviceCosts) -> Costs:
    """Return the costs with those of packing fitted to the times of the schedules that pack operands."""
    parts, seconds = [], []
    for each in products:
        places = np.flatnonzero([one.packed for one in each.schedules])
        if not len(places):
            continue
        keeps = packed_plan(each.plan) == each.plan
        packs = not (keeps and each.mapped[0]), not (keeps and each.mapped[1])
        own = each.expected(device)[places] - packing_seconds(
            each.plan, each.m, each.n, packs, each.k_contiguous, device.costs
        )
        parts.append((each, packs, own))
        seconds.append(each.seconds[places])
    if not parts:
        return dict(device.costs)

    def modelled(given: Mapping[str, float]) -> Numbers:
        return np.concatenate(
            [
                own + packing_seconds(each.plan, each.m, each.n, packs, each.k_contiguous, given)
                for each, packs, own in parts
            ]
        )

    weights = np.concatenate([(each / each.min()) ** -_FALL for each in seconds])
    return least_squares(modelled, np.concatenate(seconds), weights, device.costs, sorted(OF_PACKING), _STEPS)


def fit_correction_of_gathering(products: Sequence[Unaligned], device: DeviceCosts) -> Correction:
    """Return the correction of the modelled times of schedules that gather operands.

    The mean error of all schedules of a product is left out, since it decides no choice.
    """
    none = correction_of({"indices": [], "bounds": [], "leaves": []})
    inputs, errors, weights = [], [], []
    for each in products:
        own, gathers = (each.seconds / each.seconds.min()) ** -_FALL, each.gathering
        found = np.log(each.seconds / each.expected(replace(device, gathering=none)))
        found = found - np.average(found, weights=own)
        given = each.quantities()
        inputs.append(gathered_inputs(given, modelled_times_gathered(given, device.costs)))
        errors.append(found[gathers])
        weights.append(own[gathers])
    return boosted_trees(np.concatenate(inputs), np.concatenate(errors), np.concatenate(weights))


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


def trees(given: Correction) -> str:
    """Return a correction as JSON."""
    return json.dumps({
        "indices": given.indices.tolist(), "bounds": _rounded(given.bounds, 6), "leaves": _rounded(given.leaves, 3),
    })  # fmt: skip


def _report(
    problems: Sequence[Measured], start: DeviceCosts, found: DeviceCosts, beside: Errors | None,
    chosen: argparse.Namespace,
) -> str:  # fmt: skip
    """Print what the choice costs for all problems, and for models that a fit left out; return it as a sentence."""
    count = sum(len(each.seconds) for each in problems)
    before = mean_regret(problems, start.costs, start.correction)
    after = mean_regret(problems, found.costs, found.correction)
    print(f"{len(problems)} problems, {count} times")
    print(f"regret before: {before:.4f}, fitted to all: {after:.4f}")
    left_out, logarithms = {}, 0.0
    models = sorted({each.model for each in problems})
    for left in (models[number :: chosen.groups] for number in range(min(chosen.groups, len(models)))):
        others = [each for each in problems if each.model not in left]
        if not others:
            continue
        refitted = fit(others, found.costs, 8, chosen.only)
        without = fit_correction(others, refitted, beside)
        for model in left:
            regret = mean_regret([each for each in problems if each.model == model], refitted, without)
            left_out[model] = round(regret, 4)
            logarithms += sum(each.model == model for each in problems) * math.log(regret)
    print(json.dumps({"regret of each model under a fit without its group": left_out}, indent=1))
    unseen = math.exp(logarithms / len(problems))
    print(f"regret of models that a fit left out: {unseen:.4f}")
    return (
        f"fitted to {count} times of schedules of {len(problems)} problems; the schedule that is expected to be the "
        f"fastest takes {after:.3f} of the time of the fastest one measured (a geometric mean), and {unseen:.3f} on "
        "models that a fit left out; the correction is fitted to these times"
        f"{f' and, with the weight {chosen.weight:g}, to those of an H100' if beside else ''}"
    )


def fitted_to_unaligned(products: Sequence[Unaligned], start: DeviceCosts) -> DeviceCosts:
    """Return the costs and the correction of gathering, fitted to products without tensor maps."""
    found = replace(start, costs=fit_gathering(products, start.costs))
    found = replace(found, costs=fit_packing(products, found))
    return replace(found, gathering=fit_correction_of_gathering(products, found))


def _report_of_unaligned(
    products: Sequence[Unaligned], start: DeviceCosts, found: DeviceCosts, groups: int
) -> str:  # fmt: skip
    """Print what the choice costs for products without tensor maps, and for those that a fit left out."""
    count = sum(len(each.seconds) for each in products)
    parts = [products[number::groups] for number in range(min(groups, len(products)))]
    unseen = []
    for left in parts if len(parts) > 1 else ():
        without = fitted_to_unaligned([each for part in parts if part is not left for each in part], found)
        unseen += [each.regret(without) for each in left]
    before, after = ([each.regret(device) for each in products] for device in (start, found))
    found_of = [math.exp(float(np.mean(np.log(each)))) if each else math.nan for each in (before, after, unseen)]
    print(f"{len(products)} products without tensor maps, {count} times")
    print("regret before: {:.4f}, fitted to all: {:.4f}, left out: {:.4f}".format(*found_of))
    return (
        f"the costs of gathering and of packing, and a correction of gathering, are fitted to {count} times of "
        f"{len(products)} products without tensor maps, whose regret is {found_of[1]:.3f}, and "
        f"{found_of[2]:.3f} for those that a fit left out"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and report."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.cost_fit", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("times", type=Path, nargs="+", help="files of schedule_timing --times")
    parser.add_argument("--beside", type=Path, help="a file of an H100, whose errors the correction is fitted to, too")
    parser.add_argument("--weight", type=float, default=1.0, help="the weight of those errors (default 1)")
    parser.add_argument("--groups", type=int, default=5, help="groups of models that are left out in turn (default 5)")
    parser.add_argument("--only", nargs="+", default=(), help="costs that are fitted (default all); others stay")
    parser.add_argument("--out", type=Path, help="write the costs and the correction here")
    chosen = parser.parse_args(arguments)
    contents = [json.loads(read_text(path)) for path in chosen.times]
    every = [row for content in contents for row in rows_of_content(content)]
    problems, products = measured(every), unaligned(every)
    if not problems and not products:
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
    found, sentences = start, []
    if problems:
        costs = fit(problems, start.costs, only=chosen.only)
        found = replace(found, costs=costs, correction=fit_correction(problems, costs, beside))
        sentences.append(_report(problems, start, found, beside, chosen))
    if products and not chosen.only:
        found = fitted_to_unaligned(products, found)
        sentences.append(_report_of_unaligned(products, start, found, chosen.groups))
    if chosen.out is not None:
        content = {
            "environment": contents[0].get("environment"),
            "device": asdict(device) if device else None,
            "provenance": f"{'; '.join(sentences)}; the costs of pointers are rough, from products with unaligned "
            "leading dimensions",
            "units": "times: seconds; operations: a second of one multiprocessor; line, outside: seconds of a line; "
            "read, stored, stored by elements, gathered sums: bytes a second of one multiprocessor; cache, gathered "
            "cache, memory, merged, added, packed: bytes a second of the device; operator: seconds of a launch of an "
            "elementwise operator; cached bytes, small: bytes; gathered unit: seconds of a unit of 8 values for each "
            "thread; pointers: seconds of an iteration of a tile by a power of its elements; the others are factors",
            "costs": found.costs,
        }
        text = json.dumps(content, indent=1)
        corrections = f' "correction": {trees(found.correction)},\n "correction of gathering": {trees(found.gathering)}'
        chosen.out.write_text(f"{text[:-2]},\n{corrections}\n}}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
