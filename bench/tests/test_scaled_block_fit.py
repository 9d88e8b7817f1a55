"""Costs of products with scales of blocks are found again from the times that they model."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas.times.scaled_block_fit import fit, fit_correction, main, mean_regret, products
from bitwise_bench.cublas.times.scaled_block_timing import BLOCKS, drawn
from bitwise_nvidia_sm90.gemm.device_costs import correction_of
from bitwise_nvidia_sm90.gemm.scaled_block_schedules import ranked_schedules
from bitwise_nvidia_sm90.gemm.scaled_block_times import (
    ScaledBlockCosts,
    ScaledBlockModel,
    fitted_model,
    modelled_times,
)

NONE = correction_of({"indices": [], "bounds": [], "leaves": []})

TEXT = (
    "gemm(k={k} left_dtype=e4m3 right_dtype=e4m3 output_dtype=fp32 path=matrix instruction=instruction("
    "architecture=sm_90 family=wgmma k=32) instruction_k=32 k_cuts=[cut(span=128)])"
)


def rows(count: int) -> list[dict[str, Any]]:
    """Return rows without times of drawn products under schedules of several ranks."""
    from bitwise_core.descriptors import GEMMDesc
    from bitwise_nvidia_sm90.gemm.kernels.block_scales import BlockScales
    from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
    from bitwise_nvidia_sm90.gemm.schedule import Schedule

    found, usual = [], asdict(Schedule(0))
    for m, n, k, (down, across) in drawn(5, 2 * count):
        if len(found) == count:
            continue
        text = TEXT.format(k=k)
        planned = plan(GEMMDesc.from_text(text))
        assert isinstance(planned, MatrixPlan)
        scales = (
            BlockScales(down, across, "product", False, down == 1, across == 1),
            BlockScales(across, down, "product", False, across == 1, down == 1),
        )
        every = ranked_schedules(planned, m, n, scales, ("e4m3", "e4m3", "bf16"), 132)
        chosen = random.Random(m).sample(every, 8)
        fields = [{name: value for name, value in asdict(each).items() if value != usual[name]} for each in chosen]
        found.append({
            "m": m, "n": n, "blocks": [down, across], "order": "product_first", "descriptor": text,
            "times": [[each, 1.0] for each in fields],
        })  # fmt: skip
    return found


def test_costs_that_made_the_times_are_found_again() -> None:
    given = products(rows(18))
    start = fitted_model().costs
    true = replace(start, copied=3 * start.copied, operation=2 * start.operation, four=1.1)
    dice = np.random.default_rng(0)
    timed = [
        replace(each, seconds=modelled_times(each.quantities, true)["all"] * dice.uniform(0.99, 1.01, 8))
        for each in given
    ]
    found = fit(timed, start)
    assert mean_regret(timed, ScaledBlockModel(found, NONE)) < 1.005
    assert mean_regret(timed, ScaledBlockModel(found, NONE)) < mean_regret(timed, ScaledBlockModel(start, NONE))
    assert 2.2 < found.copied / start.copied < 3.8


def test_a_correction_finds_what_the_model_lacks() -> None:
    given, costs = products(rows(18)), fitted_model().costs
    timed = [
        replace(
            each,
            seconds=modelled_times(each.quantities, costs)["all"] * np.where(each.quantities["stages"] > 5, 1.0, 1.3),
        )
        for each in given
    ]
    before = mean_regret(timed, ScaledBlockModel(costs, NONE))
    assert mean_regret(timed, ScaledBlockModel(costs, fit_correction(timed, costs))) < 1.005 < before


def test_a_written_model_is_the_fitted_one(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given, dice = rows(3), random.Random(3)
    given = [{**each, "times": [[name, dice.uniform(10, 20)] for name, _ in each["times"]]} for each in given]
    path, out = tmp_path / "times.json", tmp_path / "model.json"
    path.write_text(json.dumps({"environment": {"gpu": "a GPU"}, "rows": given}))
    assert main([str(path), "--out", str(out)]) == 0
    printed, written = capsys.readouterr().out, json.loads(out.read_text())
    assert "24 times of 3 products" in written["provenance"]
    model = ScaledBlockModel(ScaledBlockCosts(**written["costs"]), correction_of(written["correction"]))
    found = re.search(r"fitted to all: ([\d.]+)", printed)
    assert found
    assert abs(mean_regret(products(given), model) - float(found[1])) < 2e-3  # written with fewer digits


def test_scales_of_own_rows_have_whole_vectors() -> None:
    cases = drawn(92)
    assert {each[3] for each in cases} == {*BLOCKS}
    assert all(m % 4 == 0 for m, _, _, blocks in cases if blocks[0] == 1)
    assert any(m % 4 for m, *_ in cases)


def test_files_without_times_are_refused(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "times.json"
    path.write_text('{"rows": [{"m": 1}]}')
    with pytest.raises(SystemExit):
        main([str(path)])
    assert "measure with --most" in capsys.readouterr().err
