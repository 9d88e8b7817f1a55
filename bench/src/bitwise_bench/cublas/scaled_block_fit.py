"""Fit the costs of products with scales of blocks to measured times, and report what the choice costs.

    python -m bitwise_bench.cublas.scaled_block_fit times.json [times.json ...]

The files are those of `scaled_block_timing --most`.  The regret of a product is the time of the schedule that is
expected to be the fastest over that of the fastest one: under the present costs, under a fit to all products, and for
products that a fit left out.
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
from bitwise_bench.cublas.cost_fit import least_squares
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.kernels.block_scales import BlockScales, Order
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import WarpgroupTiles
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.scaled_block_schedules import COSTS, ScaledBlockCosts, expected_seconds
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.warpgroup_kernels import warpgroup_tiles

_MULTIPROCESSORS = 132
_FALL = 3.0
"""A time has the weight of its ratio to the fastest one of its product to minus this power."""
_STEPS, _GROUPS = 40, 5


@dataclass(frozen=True, eq=False)
class Product:
    """The schedules of one product, their tiles and their seconds."""

    m: int
    n: int
    plan: MatrixPlan
    schedules: tuple[Schedule, ...]
    tiles: tuple[WarpgroupTiles, ...]
    seconds: NDArray[np.float64]

    def expected(self, costs: ScaledBlockCosts) -> NDArray[np.float64]:
        """Return the expected seconds of each schedule."""
        found = []
        for each, tiles in zip(self.schedules, self.tiles, strict=True):
            down, across = (self.n, self.m) if each.transposed else (self.m, self.n)
            found.append(expected_seconds(tiles, each, down, across, self.plan, _MULTIPROCESSORS, costs))
        return np.array(found)

    def regret(self, costs: ScaledBlockCosts) -> float:
        """Return the time of the schedule that is expected to be the fastest over that of the fastest one."""
        return float(self.seconds[int(np.argmin(self.expected(costs)))] / self.seconds.min())


def products(rows: Sequence[Mapping[str, Any]]) -> list[Product]:
    """Return the products of rows of `scaled_block_timing --most` with several times."""
    found = []
    for row in rows:
        if len(row.get("times", ())) < 2:
            continue
        planned = plan(GEMMDesc.from_text(row["descriptor"]))
        assert isinstance(planned, MatrixPlan)
        schedules = tuple(Schedule(**fields) for fields, _ in row["times"])
        tiles = tuple(_tiles(row, planned, each) for each in schedules)
        seconds = np.array([1e-6 * time for _, time in row["times"]])
        found.append(Product(row["m"], row["n"], planned, schedules, tiles, seconds))
    return found


def _tiles(row: Mapping[str, Any], planned: MatrixPlan, chosen: Schedule) -> WarpgroupTiles:
    rows, columns = row["blocks"][::-1] if chosen.transposed else row["blocks"]
    order: Order = "product"
    if row["order"] == "left_first":
        order = "columns" if chosen.transposed else "rows"
    scales = BlockScales(rows, columns, order, False, rows == 1, columns == 1)
    return warpgroup_tiles(planned, chosen, ("e4m3", "e4m3", "bf16"), (True, True), "elements", scales=scales)


def fit(given: Sequence[Product], start: ScaledBlockCosts) -> ScaledBlockCosts:
    """Return the costs with the least squares of the logarithms of modelled over measured times."""
    seconds = np.concatenate([each.seconds for each in given])
    weights = np.concatenate([(each.seconds / each.seconds.min()) ** -_FALL for each in given])

    def modelled(costs: Mapping[str, float]) -> NDArray[np.float64]:
        return np.concatenate([each.expected(ScaledBlockCosts(**costs)) for each in given])

    return ScaledBlockCosts(**least_squares(modelled, seconds, weights, asdict(start), sorted(asdict(start)), _STEPS))


def mean_regret(given: Sequence[Product], costs: ScaledBlockCosts) -> float:
    """Return the geometric mean of the regrets."""
    return math.exp(sum(math.log(each.regret(costs)) for each in given) / len(given))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and report."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.scaled_block_fit", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("times", type=Path, nargs="+", help="files of scaled_block_timing --most")
    given = parser.parse_args(arguments)
    every = [each for path in given.times for each in products(json.loads(read_text(path))["rows"])]
    if not every:
        parser.error("no product in these files has two schedules with times: measure with --most")
    found = fit(every, COSTS)
    unseen = 0.0
    for group in range(_GROUPS):
        others = [each for place, each in enumerate(every) if place % _GROUPS != group]
        without = fit(others, COSTS) if others else COSTS
        unseen += sum(math.log(each.regret(without)) for each in every[group::_GROUPS])
    print(f"{len(every)} products, {sum(len(each.seconds) for each in every)} times")
    print(
        f"regret before: {mean_regret(every, COSTS):.4f}, fitted to all: {mean_regret(every, found):.4f}, "
        f"left out: {math.exp(unseen / len(every)):.4f}"
    )
    print(json.dumps(asdict(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
