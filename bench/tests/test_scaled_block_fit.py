"""Costs of products with scales of blocks are found again from the times that they model."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas.scaled_block_fit import fit, main, mean_regret, products
from bitwise_bench.cublas.scaled_block_timing import BLOCKS, drawn
from bitwise_nvidia_sm90.gemm.scaled_block_schedules import COSTS, ranked_schedules

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
    for m, n, k, (down, across) in drawn(5, count):
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
    given = products(rows(12))
    true = replace(COSTS, copied=3 * COSTS.copied, operation=2 * COSTS.operation, four=1.1)
    dice = np.random.default_rng(0)
    timed = [replace(each, seconds=each.expected(true) * dice.uniform(0.99, 1.01, 8)) for each in given]
    found = fit(timed, COSTS)
    assert mean_regret(timed, found) < 1.005 <= mean_regret(timed, COSTS)
    assert 2.4 < found.copied / COSTS.copied < 3.6


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
