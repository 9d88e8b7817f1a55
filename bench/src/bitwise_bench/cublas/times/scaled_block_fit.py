"""Fit the costs of products with scales of blocks to measured times, and report what the choice costs.

    python -m bitwise_bench.cublas.times.scaled_block_fit times.json [times.json ...]

The files are those of `scaled_block_timing --most`.  The regret of a product is the time of the schedule that is
expected to be the fastest over that of the fastest one: under the present model, under a fit to all products, and for
products that a fit left out.  With --out, the costs and their correction are written.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.times.cost_fit import least_squares, trees
from bitwise_bench.cublas.times.regression_trees import boosted_trees
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.device_costs import Correction
from bitwise_nvidia_sm90.gemm.expected_times import Quantities
from bitwise_nvidia_sm90.gemm.kernels.block_scales import BlockScales, Order
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import WarpgroupTiles
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.scaled_block_times import (
    ScaledBlockCosts,
    ScaledBlockModel,
    corrected_seconds,
    correction_inputs,
    fitted_model,
    modelled_times,
    quantities,
)
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.warpgroup_kernels import warpgroup_tiles

_MULTIPROCESSORS = 132
_FALL = 3.0
"""A time has the weight of its ratio to the fastest one of its product to minus this power."""
_STEPS, _GROUPS = 40, 5


@dataclass(frozen=True, eq=False)
class Product:
    """The schedules of one product, their quantities and their seconds."""

    schedules: tuple[Schedule, ...]
    quantities: Quantities
    seconds: NDArray[np.float64]

    def regret(self, model: ScaledBlockModel) -> float:
        """Return the time of the schedule that is expected to be the fastest over that of the fastest one."""
        return float(self.seconds[int(np.argmin(corrected_seconds(self.quantities, model)))] / self.seconds.min())


def products(rows: Sequence[Mapping[str, Any]]) -> list[Product]:
    """Return the products of rows of `scaled_block_timing --most` with several times."""
    found = []
    for row in rows:
        if len(row.get("times", ())) < 2:
            continue
        planned = plan(GEMMDesc.from_text(row["descriptor"]))
        assert isinstance(planned, MatrixPlan)
        schedules = tuple(Schedule(**fields) for fields, _ in row["times"])
        given = [(_tiles(row, planned, each), each) for each in schedules]
        seconds = np.array([1e-6 * time for _, time in row["times"]])
        found.append(Product(schedules, quantities(planned, given, row["m"], row["n"], _MULTIPROCESSORS), seconds))
    return found


def _tiles(row: Mapping[str, Any], planned: MatrixPlan, chosen: Schedule) -> WarpgroupTiles:
    rows, columns = row["blocks"][::-1] if chosen.transposed else row["blocks"]
    order: Order = "product"
    if row["order"] == "left_first":
        order = "columns" if chosen.transposed else "rows"
    scales = BlockScales(rows, columns, order, False, rows == 1, columns == 1)
    return warpgroup_tiles(planned, chosen, ("e4m3", "e4m3", "bf16"), (True, True), "elements", scales=scales)


def _joined(given: Sequence[Product]) -> tuple[Quantities, NDArray[np.float64], NDArray[np.float64]]:
    """Return the quantities and the seconds of all schedules of products, and the weights of these times."""
    known = {name: np.concatenate([each.quantities[name] for each in given]) for name in given[0].quantities}
    weights = np.concatenate([(each.seconds / each.seconds.min()) ** -_FALL for each in given])
    return known, np.concatenate([each.seconds for each in given]), weights


def fit(given: Sequence[Product], start: ScaledBlockCosts) -> ScaledBlockCosts:
    """Return the costs with the least squares of the logarithms of modelled over measured times."""
    known, seconds, weights = _joined(given)

    def modelled(costs: Mapping[str, float]) -> NDArray[np.float64]:
        return np.asarray(modelled_times(known, ScaledBlockCosts(**costs))["all"])

    return ScaledBlockCosts(**least_squares(modelled, seconds, weights, asdict(start), sorted(asdict(start)), _STEPS))


def fit_correction(given: Sequence[Product], costs: ScaledBlockCosts) -> Correction:
    """Return the correction of the modelled times; the mean error of a product is left out: it decides no choice."""
    known, seconds, weights = _joined(given)
    modelled = modelled_times(known, costs)
    errors = np.log(seconds / modelled["all"])
    product = np.repeat(np.arange(len(given)), [len(each.seconds) for each in given])
    means = np.bincount(product, errors * weights) / np.bincount(product, weights)
    return boosted_trees(correction_inputs(known, modelled), errors - means[product], weights)


def fitted(given: Sequence[Product], start: ScaledBlockCosts) -> ScaledBlockModel:
    """Return the costs and the correction that are fitted to products."""
    costs = fit(given, start)
    return ScaledBlockModel(costs, fit_correction(given, costs))


def mean_regret(given: Sequence[Product], model: ScaledBlockModel) -> float:
    """Return the geometric mean of the regrets."""
    return math.exp(sum(math.log(each.regret(model)) for each in given) / len(given))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and report."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.scaled_block_fit", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("times", type=Path, nargs="+", help="files of scaled_block_timing --most")
    parser.add_argument("--out", type=Path, help="write the costs and the correction here")
    given = parser.parse_args(arguments)
    contents = [json.loads(read_text(path)) for path in given.times]
    every = [each for content in contents for each in products(content["rows"])]
    if not every:
        parser.error("no product in these files has two schedules with times: measure with --most")
    start = fitted_model()
    found = fitted(every, start.costs)
    unseen = list[float]()
    for group in range(_GROUPS):
        others = [each for place, each in enumerate(every) if place % _GROUPS != group]
        without = fitted(others, found.costs) if others else start
        unseen += [each.regret(without) for each in every[group::_GROUPS]]
    count = sum(len(each.seconds) for each in every)
    left_out = math.exp(sum(map(math.log, unseen)) / len(unseen))
    print(f"{len(every)} products, {count} times")
    print(
        f"regret before: {mean_regret(every, start):.4f}, fitted to all: {mean_regret(every, found):.4f}, "
        f"left out: {left_out:.4f}, most {max(unseen):.3f}"
    )
    print(json.dumps(asdict(found.costs), indent=1))
    if given.out is not None:
        content = {
            "environment": contents[0].get("environment"),
            "provenance": f"fitted to {count} times of {len(every)} products; the schedule that is expected to be the "
            f"fastest takes {mean_regret(every, found):.3f} of the time of the fastest one measured (a geometric "
            f"mean), and {left_out:.3f} for products that a fit left out",
            "costs": asdict(found.costs),
        }
        text = json.dumps(content, indent=1)
        given.out.write_text(f'{text[:-2]},\n "correction": {trees(found.correction)}\n}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
